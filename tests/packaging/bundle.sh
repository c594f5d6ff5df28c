#!/bin/sh
# SPDX-License-Identifier: MIT
# bundle.sh ROOT: the result of ./dev bundle runs from another folder, without files of the build.
set -u
root=$1
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1

n=0
failed=0
check() { # NAME COMMAND...
	n=$((n + 1))
	name=$1
	shift
	if "$@" >log 2>&1; then
		echo "ok $n $name"
	else
		echo "not ok $n $name"
		tail -n 40 log | sed 's/^/# /'
		failed=1
	fi
}

made() {
	"$root/dev" bundle && cp -a "$root/build/bundle" moved
}

# The bundle uses no library of the checkout, nothing that the loader reads contains a path of the
# checkout, and an installed program does not replace the bundle's own.
stands_alone() {
	strings moved/lib/libpenstock.so.0 | grep libexec >programs || return 1
	! grep "^/usr/" programs || return 1
	for so in moved/lib/*.so.0 moved/lib/penstock/compat/*.so; do
		readelf -d "$so" >dynamic || return 1
		! grep -E "R(UN)?PATH.*[:[]/" dynamic || return 1
	done
	for exe in moved/bin/penstock moved/tests/test-unit-crc32c moved/tests/test-api-args; do
		[ -x $exe ] || return 1
		ldd $exe >libs || return 1
		cat libs
		! grep -E "not found|$root" libs || return 1
	done
	grep "$base/moved/.*lib/libpenstock.so" libs
}

runs() {
	moved/bin/penstock --version && moved/bin/penstock demo --size 8 --dir .
}

# Run only these tests, by the script that runs all.
tests() {
	find moved/tests -maxdepth 1 -name 'test-*' ! -name test-unit-crc32c ! -name test-api-args -delete
	find moved/tests/cli -name '*.sh' ! -name lib.sh ! -name usage.sh -delete
	moved/run-tests >out || {
		cat out
		return 1
	}
	cat out
	grep -q '^tests/test-unit-crc32c: [1-9][0-9]* passed, 0 failed' out &&
		grep -q '^tests/cli/usage.sh: [1-9][0-9]* passed, 0 failed' out
}

check is_made made
check stands_alone stands_alone
check hardened sh "$root/tests/packaging/hardened.sh" moved/bin moved/lib moved/libexec
check the_command_runs runs
check tests_run tests
echo "1..$n"
exit $failed
