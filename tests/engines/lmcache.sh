#!/bin/sh
# SPDX-License-Identifier: MIT
# lmcache.sh [VERSION]: run LMCache's own tests of native L2 adapters on penstock.lmcache, and count
# passed, failed and skipped ones, each with its reason.  Not run by CI: it fetches LMCache's wheel,
# its source archive and their dependencies from PyPI, into build/upstream.  PYTHON names an
# interpreter with torch, numpy, pytest and pip, whose packages are used.
#
# The tests are unchanged, except for one line that replaces their mock of a connector by our
# client.
set -eu
cd "$(dirname "$0")/../.."
version=${1:-0.5.7rc2}
root=$PWD
top=$root/build/upstream/lmcache-$version
python=${PYTHON:?names an interpreter with torch, numpy, pytest and pip}
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

if [ ! -f "$top/ready" ]; then
	rm -rf "$top"
	mkdir -p "$top/run"
	"$python" -m venv "$top/venv"
	"$python" -c 'import site; print(site.getsitepackages()[0])' >"$top/other"
	cp "$top/other" "$("$top/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/other.pth"
	pip="$top/venv/bin/python -m pip"
	$pip install 'setuptools>=77' setuptools_scm wheel ninja packaging pytest
	$pip install --pre --no-deps "lmcache==$version"
	# Dependencies of the modules under test.  LMCache's other back ends need more, and another
	# torch.
	$pip install sortedcontainers prometheus_client pyyaml aiofile aiofiles aiohttp httpx msgspec pyzmq \
		xxhash opentelemetry-api opentelemetry-sdk opentelemetry-exporter-prometheus psutil \
		cachetools py-cpuinfo blake3 fastapi uvicorn numba nvtx requests cryptography
	NO_NATIVE_EXT=1 $pip download --no-deps --no-binary :all: --no-build-isolation --dest "$top" \
		"lmcache==$version"
	tar -C "$top" -xzf "$top/lmcache-$version.tar.gz"
	: >"$top/ready"
fi
tests=$top/lmcache-$version/tests/v1/distributed
# Copy the tests out of the source archive, whose package is not built.
cp "$tests/test_fault_inject_l2_adapter.py" "$top/run"
sed 's/^# Test Fixtures$/from ours import MockNativeConnector  # noqa/' \
	"$tests/test_native_connector_l2_adapter.py" >"$top/run/test_native_connector_l2_adapter.py"
grep -q '^from ours' "$top/run/test_native_connector_l2_adapter.py"
cat >"$top/run/ours.py" <<'END'
import shutil
import tempfile

from penstock.lmcache import Client


class MockNativeConnector(Client):
    """The name that the tests use."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="penstock-lmcache-")
        super().__init__([self.root], 1 << 28, "test")

    def close(self):
        super().close()
        shutil.rmtree(self.root, ignore_errors=True)
END
cd "$top/run"
PST_LIBPENSTOCK=$root/build/default/src/libpenstock.so.0
PST_LIBPENSTOCK_KV=$root/build/default/kv/libpenstock-kv.so.0
export PST_LIBPENSTOCK PST_LIBPENSTOCK_KV
PYTHONPATH=$root/python "$top/venv/bin/python" -m pytest -q -rfEs -p no:cacheprovider --noconftest \
	test_native_connector_l2_adapter.py test_fault_inject_l2_adapter.py
