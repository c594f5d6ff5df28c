#!/bin/sh
# SPDX-License-Identifier: MIT
# skips.sh ROOT: the tests that ./dev arm64 and ./dev valgrind skip exist, and tests/skips allows
# the reasons.
set -u
cd "$1" || exit 1
conditions=$(sed -n 's/^\(emulated\|valgrind\): //p' tests/skips)

allowed() { # REASON
	echo "$conditions" | while read -r pattern; do
		# shellcheck disable=SC2254 # a pattern is what it is
		case $1 in
		$pattern) echo yes ;;
		esac
	done | grep -q yes
}

n=0
failed=0
for list in arm64 valgrind; do
	wrong=$(grep '^test-' "tests/$list.skip" | while read -r program rest; do
		name=${rest%%:*}
		source=tests/unit/test-${program#test-unit-}.c
		if [ ! -f "$source" ]; then
			echo "# $program: there is no $source"
		elif [ "$name" != '*' ] && [ "$name" != no_descriptor_leaks ] &&
			! grep -qw -- "${name%% *}" "$source" tests/unit/*.h; then
			echo "# $program: there is no case $name"
		fi
		allowed "${rest#*: }" || echo "# tests/skips does not allow: ${rest#*: }"
	done)
	n=$((n + 1))
	if [ -z "$wrong" ]; then
		echo "ok $n $list"
	else
		printf 'not ok %d %s\n%s\n' $n $list "$wrong"
		failed=1
	fi
done
echo "1..$n"
exit $failed
