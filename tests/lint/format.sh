#!/bin/sh
# SPDX-License-Identifier: MIT
# format.sh [--fix]: say where the C files differ from what .clang-format wants, but for
# blanks before trailing comments and in definitions of macros: people align those by what
# belongs together.  With --fix only files that differ otherwise are rewritten.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

squeeze() {
	sed -e ':join' -e '/^#define .*\\$/{N;s/[[:space:]]*\\\n[[:space:]]*/ /;bjoin' -e '}' |
		sed -e 's|\([^[:space:]]\)[[:space:]][[:space:]]*|\1 |g' \
		    -e 's|\([^[:space:]]\)/\*|\1 /*|' \
		    -e 's|^[[:space:]]*\*| *|' -e 's|)-offsetof(|) - offsetof(|'
}

status=0
for f in $(find . \( -path ./.git -o -path './build*' \) -prune -o -name '*.[ch]' -print | sort); do
	clang-format "$f" >"$tmp/new"
	squeeze <"$f" >"$tmp/a"
	squeeze <"$tmp/new" >"$tmp/b"
	cmp -s "$tmp/a" "$tmp/b" && continue
	if [ "${1-}" = --fix ]; then
		cat "$tmp/new" >"$f"
		echo "$f"
	else
		diff --label "$f" --label "$f as .clang-format wants it" -u "$tmp/a" "$tmp/b" || status=1
	fi
done
exit $status
