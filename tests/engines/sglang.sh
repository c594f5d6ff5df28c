#!/bin/sh
# SPDX-License-Identifier: MIT
# sglang.sh [VERSION]: test penstock.sglang_hicache with SGLang's own factory, base class, failure
# injector and file back end for HiCache storage.  Not run by CI: it fetches SGLang's wheel, torch
# and other dependencies of the modules under test from PyPI, 5 GB, into build/upstream.
#
# SGLang's own tests of storage back ends start a server with a model on a GPU, and its wheel does
# not contain them.
set -eu
cd "$(dirname "$0")/../.."
version=${1:-0.5.23}
root=$PWD
top=${PST_UPSTREAM:-$root/build/upstream}/sglang-$version
python=${PYTHON:-python3}
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

if [ ! -f "$top/ready" ]; then
	if ! "$python" -m pip download --no-deps --dest "$top/wheel" "sglang==$version" >/dev/null 2>&1; then
		echo "sglang.sh: skipped: PyPI has no sglang $version for this Python, or cannot be reached"
		exit 77
	fi
	"$python" -m venv "$top/venv"
	# SGLang itself requires CUDA kernels, which these modules do not import.
	"$top/venv/bin/python" -m pip install torch numpy pytest orjson psutil pybase64 requests pillow \
		starlette msgspec pydantic pyzmq tqdm ipython aiohttp transformers
	"$top/venv/bin/python" -m pip install --no-deps "$top"/wheel/sglang-*.whl
	: >"$top/ready"
fi
PST_LIBPENSTOCK=$root/build/default/src/libpenstock.so.0
PST_LIBPENSTOCK_KV=$root/build/default/kv/libpenstock-kv.so.0
PENSTOCK=$root/build/default/cli/penstock
export PST_LIBPENSTOCK PST_LIBPENSTOCK_KV PENSTOCK
PYTHONPATH=$root/python "$top/venv/bin/python" -m pytest -q -rfEs -p no:cacheprovider tests/engines/sglang_ours.py
