#!/bin/sh
# SPDX-License-Identifier: MIT
# format.sh [--fix]: print where C and C++ files differ from .clang-format, or rewrite them.  A file
# that turns the formatter off gives the reason above.
set -eu
cd "$(dirname "$0")/../.."

files=$(find . \( -path ./.git -o -path './build*' \) -prune -o \( -name '*.[ch]' -o -name '*.cpp' \) -print | sort)
[ -n "$files" ] || exit 1
status=0
if [ "${1-}" = --fix ]; then
	echo "$files" | xargs clang-format -i
elif ! echo "$files" | xargs -n 100 -P 2 clang-format --dry-run --Werror 2>/dev/null; then
	# Checking files one by one is much slower, and only needed to print the difference.
	status=1
	for f in $files; do
		clang-format "$f" | diff --label "$f" --label "$f as .clang-format wants it" -u "$f" - || :
	done
fi
for f in $(grep -rlE --include='*.[ch]' --include='*.cpp' 'clang-format off' . | grep -v '^./build'); do
	grep -B 3 'clang-format off' "$f" | grep -q 'formatter is off because' || {
		echo "$f: why the formatter is off is not said above"
		status=1
	}
done
exit $status
