#!/bin/sh
# SPDX-License-Identifier: MIT
# vllm.sh [VERSION]: run vLLM's own tests of the tiers of KV offloading, first unchanged, then those
# of its file system tier on penstock.vllm_tier; count passed, failed and skipped ones, each with
# its reason.  Not run by CI: it fetches vLLM, torch and their dependencies from PyPI, 4 GB, into
# build/upstream.
#
# Tests that examine the file system tier's files, thread pool or look-up thread are left out: WHY
# gives the reason for each.
set -eu
cd "$(dirname "$0")/../.."
version=${1:-0.33.0}
root=$PWD
top=${PST_UPSTREAM:-$root/build/upstream}/vllm-$version
python=${PYTHON:-python3}
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

if [ ! -f "$top/ready" ] && ! "$python" -m pip download --no-deps --dest "$top/sdist" tblib >/dev/null 2>&1; then
	echo "vllm.sh: skipped: PyPI cannot be reached"
	exit 77
fi
if [ ! -f "$top/ready" ]; then
	rm -rf "$top"
	mkdir -p "$top/sdist"
	"$python" -m venv "$top/venv"
	pip="$top/venv/bin/python -m pip"
	$pip install "vllm==$version" pytest pytest-asyncio
	# Reading the source archive's metadata needs a CUDA compiler and fails, but the archive is
	# unpacked by then.
	TMPDIR=$top/sdist $pip download --no-clean --no-deps --no-build-isolation --no-binary vllm --dest "$top/sdist" \
		"vllm==$version" >"$top/sdist.log" 2>&1 || true
	: >"$top/ready"
fi
tests=$(find "$top/sdist" -path '*/tests/v1/kv_offload' -type d | head -n 1)
[ -n "$tests" ] || { echo "vllm.sh: the source archive of vLLM $version has no tests/v1/kv_offload"; exit 1; }
rm -rf "$top/run"
mkdir -p "$top/run/tests/v1"
touch "$top/run/tests/__init__.py" "$top/run/tests/v1/__init__.py"
cp -r "$tests" "$top/run/tests/v1/kv_offload"
cp "$root/tests/engines/vllm_ours.py" "$top/run/ours.py"
sed -e 's/^    FileSystemTierManager,$/    FileSystemTierManager as _Theirs,/' \
	-e 's/^from vllm.v1.kv_offload.tiering.fs.thread_pool/from ours import FileSystemTierManager  # noqa\n&/' \
	"$tests/tiering/test_fs_tier.py" >"$top/run/tests/v1/kv_offload/tiering/test_penstock_tier.py"
grep -q '^from ours' "$top/run/tests/v1/kv_offload/tiering/test_penstock_tier.py"
cd "$top/run"
PST_LIBPENSTOCK=$root/build/default/src/libpenstock.so.0
PST_LIBPENSTOCK_KV=$root/build/default/kv/libpenstock-kv.so.0
export PST_LIBPENSTOCK PST_LIBPENSTOCK_KV
run() {
	PYTHONPATH=$root/python:$top/run "$top/venv/bin/python" -m pytest -q -rfEs -p no:cacheprovider "$@"
}
folder=tests/v1/kv_offload/tiering
status=0
run $folder/test_fs_tier.py $folder/test_tiering_offloading.py $folder/test_backpressure.py \
	$folder/test_metrics.py || status=1
run -p ours $folder/test_penstock_tier.py || status=1
exit $status
