#!/bin/sh
# SPDX-License-Identifier: MIT
# format.sh [--fix]: say where the C files differ from what .clang-format wants, or rewrite them.
# Where a file turns the formatter off, it says above why.
set -eu
cd "$(dirname "$0")/../.."

status=0
for f in $(find . \( -path ./.git -o -path './build*' \) -prune -o -name '*.[ch]' -print | sort); do
	if [ "${1-}" = --fix ]; then
		clang-format -i "$f"
	else
		clang-format "$f" | diff --label "$f" --label "$f as .clang-format wants it" -u "$f" - ||
			status=1
	fi
done
for f in $(grep -rlE --include='*.[ch]' 'clang-format off' . | grep -v '^./build'); do
	grep -B 3 'clang-format off' "$f" | grep -q 'formatter is off because' || {
		echo "$f: why the formatter is off is not said above"
		status=1
	}
done
exit $status
