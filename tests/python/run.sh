#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh TEST.py: run a test of the package, with the library PST_LIBPENSTOCK.
set -u
# Use PYTHON, or the first Python with torch, or with numpy, or the first one.
has() {
	"$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)' "$2" \
		2>/dev/null
}
python=${PYTHON:-}
for module in torch numpy; do
	for candidate in python3 /usr/bin/python3; do
		[ -n "$python" ] || ! has "$candidate" $module || python=$candidate
	done
done
[ -n "$python" ] || python=python3
command -v "$python" >/dev/null || {
	echo "1..0 # SKIP python3 is not installed"
	exit 0
}

# A sanitizer's library must be loaded before all others.
if nm -D "$PST_LIBPENSTOCK" | grep -q __asan_init; then
	SANITIZER=$(gcc -print-file-name=libasan.so)
	export PST_TEST_SANITIZED=1
	# The interpreter does not free most of its memory at exit.
	export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
fi
export PYTHONPATH="$MODULES" PYTHONDONTWRITEBYTECODE=1
LD_PRELOAD=${SANITIZER:-} exec timeout -k 5 300 "$python" -X faulthandler "$@"
