#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh TEST.py: a test of the package, with the library that PST_LIBPENSTOCK names.
set -u
# The first Python that has numpy, else the first.
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null && break
done
[ -n "$python" ] || python=python3
command -v "$python" >/dev/null || {
	echo "1..0 # SKIP python3 is not installed"
	exit 0
}

# The library of a sanitizer has to come before the program's own.
if nm -D "$PST_LIBPENSTOCK" | grep -q __asan_init; then
	SANITIZER=$(gcc -print-file-name=libasan.so)
	# The interpreter frees little of its own at exit.
	export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
fi
export PYTHONPATH="$MODULES" PYTHONDONTWRITEBYTECODE=1
LD_PRELOAD=${SANITIZER:-} exec timeout -k 5 300 "$python" -X faulthandler "$@"
