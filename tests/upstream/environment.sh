#!/bin/sh
# SPDX-License-Identifier: MIT
# environment.sh [VENV PACKAGE]: print the Python interpreter for upstream's tests: $PYTHON, or that
# of build/upstream/python, a virtual environment with torch that all tests share.  With arguments,
# make VENV again: it has that PACKAGE from PyPI, and all packages of the other interpreter.
#
# Before build/upstream/python is made, two lines tell what is fetched and how much room it needs.
# If the disk has less, nothing is fetched.  The sizes are in MB, measured with torch 2.15.0 on
# x86-64.
set -eu
packages="torch numpy safetensors pytest fsspec ml_dtypes tqdm pydantic regex filelock huggingface_hub humanize"
fetched=3030
most=8850 # what is fetched and what is unpacked, at the same time
kept=5820
top=$(cd "$(dirname "$0")/../.." && pwd)/build/upstream
venv=$top/python

say() {
	printf '%s\n' "upstream: $*" >&2
}

# pip keeps no cache elsewhere, and asks no questions.
export PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

if [ -z "${PYTHON:-}" ] && [ ! -f "$venv/complete" ]; then
	rm -rf "$venv"
	mkdir -p "$top"
	free=$(($(df -Pk "$top" | awk 'END { print $4 }') * 1024 / 1000000))
	say "fetching torch and what else upstream's tests need from PyPI, about $fetched MB"
	say "$venv takes up to $most MB meanwhile, then $kept MB, until you remove it; $free MB are free"
	if [ $free -lt $most ]; then
		say "that is too little: make room, or set PYTHON to an interpreter that has $packages"
		exit 1
	fi
	trap 'rm -rf "$venv"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	python3 -m venv "$venv" >&2
	mkdir "$venv/tmp"
	# On a terminal pip shows its progress.
	quiet=-q
	[ ! -t 2 ] || quiet=
	# shellcheck disable=SC2086
	TMPDIR=$venv/tmp "$venv/bin/pip" install $quiet $packages >&2
	rm -rf "$venv/tmp"
	: >"$venv/complete"
	trap - EXIT
fi
python=${PYTHON:-$venv/bin/python}
if [ $# -gt 0 ]; then
	rm -rf "$1"
	mkdir -p "$top"
	"$python" -m venv --without-pip "$1"
	site=$("$1/bin/python" -c 'import site; print(site.getsitepackages()[0])')
	"$python" - "$site" <<-'END'
		import sys
		with open(sys.argv[1] + "/theirs.pth", "w") as file:
		    file.writelines(path + "\n" for path in sys.path if path.endswith("-packages"))
	END
	"$python" -m pip install -q --no-deps --ignore-installed --target "$site" "$2" >&2
	python=$1/bin/python
fi
echo "$python"
