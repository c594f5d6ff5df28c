#!/bin/sh
# SPDX-License-Identifier: MIT
# vllm_served.sh [VERSION]: vLLM's own tests of its file system tier over penstock.vllm_tier without torch,
# first with directories, then with a store that penstock serve has.  Outside CI: it fetches vLLM's source
# archive, numpy, msgspec and pytest from PyPI, 100 MB, into build/upstream.
#
# vllm_torch.py has numpy in place of torch.  vllm.sh runs the same tests, and those of the other tiers, with
# torch.
set -eu
cd "$(dirname "$0")/../.."
version=${1:-0.33.0}
root=$PWD
top=${PST_UPSTREAM:-$root/build/upstream}/vllm-source-$version
python=${PYTHON:-python3}
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

if [ ! -f "$top/ready" ] && ! "$python" -m pip download --no-deps --dest "$top/sdist" tblib >/dev/null 2>&1; then
	echo "vllm_served.sh: skipped: PyPI cannot be reached"
	exit 77
fi
if [ ! -f "$top/ready" ]; then
	rm -rf "$top"
	mkdir -p "$top/sdist"
	"$python" -m venv "$top/venv"
	"$top/venv/bin/python" -m pip install numpy msgspec typing_extensions pytest
	# The step that reads the metadata of the source archive fails, as in vllm.sh.
	TMPDIR=$top/sdist "$top/venv/bin/python" -m pip download --no-clean --no-deps --no-build-isolation \
		--no-binary vllm --dest "$top/sdist" "vllm==$version" >"$top/sdist.log" 2>&1 || true
	: >"$top/ready"
fi
tests=$(find "$top/sdist" -path '*/tests/v1/kv_offload' -type d | head -n 1)
[ -n "$tests" ] || { echo "vllm_served.sh: the source archive of vLLM $version has no tests/v1/kv_offload"; exit 1; }
rm -rf "$top/run"
mkdir -p "$top/run/tests/v1"
touch "$top/run/tests/__init__.py" "$top/run/tests/v1/__init__.py"
cp -r "$tests" "$top/run/tests/v1/kv_offload"
cp "$root/tests/engines/vllm_ours.py" "$top/run/ours.py"
cp "$root/tests/engines/vllm_fake.py" "$root/tests/engines/vllm_torch.py" "$top/run"
sed -e 's/^    FileSystemTierManager,$/    FileSystemTierManager as _Theirs,/' \
	-e 's/^from vllm.v1.kv_offload.tiering.fs.thread_pool/from ours import FileSystemTierManager  # noqa\n&/' \
	"$tests/tiering/test_fs_tier.py" >"$top/run/tests/v1/kv_offload/tiering/test_penstock_tier.py"
grep -q '^from ours' "$top/run/tests/v1/kv_offload/tiering/test_penstock_tier.py"
cd "$top/run"
PENSTOCK=$root/build/default/cli/penstock
PST_LIBPENSTOCK=$root/build/default/src/libpenstock.so.0
PST_LIBPENSTOCK_KV=$root/build/default/kv/libpenstock-kv.so.0
PST_VLLM_SOURCE=${tests%/tests/v1/kv_offload}
export PENSTOCK PST_LIBPENSTOCK PST_LIBPENSTOCK_KV PST_VLLM_SOURCE
status=0
for served in 0 1; do
	echo "over a store $([ $served = 1 ] && echo 'on a server' || echo 'in directories'):"
	PST_VLLM_SERVED=$served PYTHONPATH=$root/python:$top/run "$top/venv/bin/python" -m pytest -q -rfEs \
		-p no:cacheprovider -p vllm_torch -p ours tests/v1/kv_offload/tiering/test_penstock_tier.py || status=1
done
exit $status
