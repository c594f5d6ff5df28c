#!/bin/sh
# SPDX-License-Identifier: MIT
# environment.sh [ROOT]: SECURITY.md lists the variables that the libraries read, and set-uid
# programs ignore all of them.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

n=0
failed=0
result() { # NAME TEXT
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "$2" | sed 's/^/# /'
		failed=1
	fi
}

files() {
	find src compat usrbio -name '*.[ch]' | sort
}

# Find our variables by their form, others by the calls that read them.
files | xargs sed -n 's/[^"]*"\(PST_[A-Z_]*\)"[^"]*/\1\n/gp' | sed -n '/^PST_[A-Z_]*$/p' >"$tmp/names"
files | xargs grep -ohE '(getenv|[^a-z]env|env_is)\("[A-Z0-9_]*"' | sed 's/.*"\(.*\)".*/\1/' >>"$tmp/names"
sort -u "$tmp/names" >"$tmp/read"
sed -n 's/^| `\([A-Z0-9_]*\)` |.*/\1/p' SECURITY.md | sort -u >"$tmp/listed"

result all_are_listed "$(comm -23 "$tmp/read" "$tmp/listed")"
result all_listed_are_read "$(comm -13 "$tmp/read" "$tmp/listed")"
result some_are_found "$([ "$(wc -l <"$tmp/read")" -gt 10 ] || cat "$tmp/read")"
result set_uid_programs_ignore_them "$(files |
	xargs grep -nE '(^|[^_[:alnum:]])getenv[[:space:]]*\(|[^_[:alnum:]]environ\[')"

echo "1..$n"
exit $failed
