#!/bin/sh
# SPDX-License-Identifier: MIT
# lmcache.sh [VERSION]: LMCache's own tests of its native L2 adapters over penstock.lmcache, and counts
# of what passed, failed and was skipped.  Outside CI: it fetches LMCache's wheel and source archive
# from PyPI, 60 MB, into build/upstream.  PYTHON names an interpreter with torch, numpy, pytest and pip.
#
# The mock of the tests is replaced by our client.  What is left out, or may fail, is in
# lmcache.expected with its reason.
set -eu
cd "$(dirname "$0")/../.."
version=${1:-0.5.7rc2}
root=$PWD
top=$root/build/upstream/lmcache-$version
python=${PYTHON:?names an interpreter with torch, numpy, pytest and pip}
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

if [ ! -f "$top/ready" ]; then
	mkdir -p "$top"
	"$python" -m venv "$top/venv"
	"$python" -c 'import site; print(site.getsitepackages()[0])' \
		>"$(echo "$top"/venv/lib/python3*/site-packages)/other.pth"
	pip="$top/venv/bin/python -m pip"
	$pip install -q 'setuptools>=77' setuptools_scm wheel ninja packaging
	$pip install -q --pre --no-deps "lmcache==$version"
	# What the modules of the tests import.
	$pip install -q sortedcontainers prometheus_client pyyaml aiofiles httpx msgspec pyzmq xxhash \
		opentelemetry-api opentelemetry-sdk psutil pytest numba
	NO_NATIVE_EXT=1 $pip download -q --no-deps --no-binary :all: --no-build-isolation \
		--dest "$top" "lmcache==$version"
	tar -C "$top" -xzf "$top/lmcache-$version.tar.gz"
	: >"$top/ready"
fi
tests=$top/lmcache-$version/tests/v1/distributed
cp "$tests/test_native_connector_l2_adapter.py" "$tests/test_penstock_l2_adapter.py"
cat >"$top/ours.py" <<'END'
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
# After the mock and before its first use.
sed -i 's/^# Test Fixtures$/from ours import MockNativeConnector  # noqa/' "$tests/test_penstock_l2_adapter.py"
cd "$top/lmcache-$version"
PST_LIBPENSTOCK=$root/build/default/src/libpenstock.so.0
PST_LIBPENSTOCK_KV=$root/build/default/kv/libpenstock-kv.so.0
export PST_LIBPENSTOCK PST_LIBPENSTOCK_KV
PYTHONPATH=$root/python:$top "$top/venv/bin/python" -m pytest -q -rfEs -p no:cacheprovider \
	--noconftest tests/v1/distributed/test_penstock_l2_adapter.py \
	tests/v1/distributed/test_fault_inject_l2_adapter.py
