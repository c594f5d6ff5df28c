#!/bin/sh
# SPDX-License-Identifier: MIT
# The sums of all cases fail for failed cases, for programs that never ended, and for skips that
# tests/skips does not allow.  Each line of tests/skips is needed.
set -u
root=$1
tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/pst-sums-XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/tests"
cp "$root/tests/tap-sum.py" "$tmp/tests/"
cat >"$tmp/tests/skips" <<'END'
# A comment.
when missing: true
missing: no frob*
missing: no words @ spoken: *
when there: false
there: no thing
when named: [ "$REASON" = "a cat is not there" ]
named: a * is not there
END
failed=0
n=0

# sums NAME STATUS LAST_LINE RESULT STDOUT [OPTION]: sum one log and compare.
sums() {
	n=$((n + 1))
	printf '{"name": "a / t", "stdout": "%s", "result": "%s", "returncode": 0}\n' "$5" "$4" \
		>"$tmp/log.json"
	# shellcheck disable=SC2086
	python3 "$tmp/tests/tap-sum.py" ${6:-} "$tmp/log.json" >"$tmp/out" 2>&1
	status=$?
	if [ $status = "$2" ] && [ "$(tail -n 1 "$tmp/out")" = "$3" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		sed 's/^/# /' "$tmp/out"
		failed=1
	fi
}

sums passes 0 "1 passed, 0 failed, 0 skipped" OK 'ok 1 x\n1..1'
sums fails 1 "1 passed, 1 failed, 0 skipped" ERROR 'ok 1 x\nnot ok 2 y\n1..2'
sums hangs 1 "1 passed, 1 failed, 0 skipped" TIMEOUT 'ok 1 x\n'
sums no_plan 1 "1 passed, 1 failed, 0 skipped" OK 'ok 1 x\n'
sums allowed 0 "1 passed, 0 failed, 1 skipped" OK 'ok 1 x\nok 2 y # SKIP no frobs\n1..2'
sums allowed_by_reason 0 "1 passed, 0 failed, 1 skipped" OK \
	'ok 1 x\nok 2 y # SKIP a cat is not there\n1..2'
sums not_listed 1 "1 passed, 1 failed, 0 skipped" OK 'ok 1 x\nok 2 y # SKIP whatever\n1..2'
sums of_another_case 1 "1 passed, 1 failed, 0 skipped" OK 'ok 1 x\nok 2 y # SKIP no words\n1..2'
sums not_missing 1 "1 passed, 1 failed, 0 skipped" OK 'ok 1 x\nok 2 y # SKIP no thing\n1..2'
sums another_reason 1 "1 passed, 1 failed, 0 skipped" OK \
	'ok 1 x\nok 2 y # SKIP a dog is not there\n1..2'
sums elsewhere 0 "1 passed, 0 failed, 1 skipped" OK 'ok 1 x\nok 2 y # SKIP no thing\n1..2' \
	--elsewhere
sums a_whole_program 1 "0 passed, 1 failed, 0 skipped" OK '1..0 # SKIP whatever'

cp "$root/tests/skips" "$tmp/tests/"
sums the_list_is_read 0 "1 passed, 0 failed, 0 skipped" OK 'ok 1 x\n1..1'
echo "nonsense: without a condition" >>"$tmp/tests/skips"
sums nonsense 1 "$tmp/tests/skips:$(wc -l <"$tmp/tests/skips"): neither a condition nor a skip under one: nonsense: without a condition" \
	OK 'ok 1 x\n1..1'
echo "1..$n"
exit $failed
