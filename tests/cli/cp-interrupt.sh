#!/bin/sh
# SPDX-License-Identifier: MIT
# cp: whatever ends it, a new target is there as a whole or not at all.
. "$(dirname "$0")/lib.sh"

# A copy that takes eight seconds, ended after one, or as many as $after says, by a signal.
after=1
interrupted() { # STATUS SIGNAL OPTION...
	want=$1
	signal=$2
	shift 2
	random 10485767 src
	PST_FAULT=file.read:0:50ms gives "$want" timeout --preserve-status -s "$signal" $after \
		"$PENSTOCK" cp --block 64k --depth 1 "$@" src dst
}

by_sigint() {
	interrupted 130 INT
	[ ! -e dst ]
	no_leftovers .
}

by_sigterm() {
	interrupted 143 TERM --via soft:0
	[ ! -e dst ]
	no_leftovers .
}

with_threads() {
	interrupted 130 INT --store threads
	[ ! -e dst ]
	no_leftovers .
}

old_target_is_emptied() {
	# A busy machine may not have begun by then.
	for after in 1 2 4; do
		random 3000 dst
		interrupted 130 INT
		[ -s dst ] || break
	done
	[ -f dst ] && [ ! -s dst ]
	no_leftovers .
}

by_sigkill() {
	interrupted 137 KILL
	[ ! -e dst ]
}

while_loading() {
	random 10485767 src
	PST_FAULT=file.read:0:50ms gives 130 timeout --preserve-status -s INT 1 \
		"$PENSTOCK" cp --block 64k --depth 1 src soft:0
}

# Without /proc a file without a name could not get one: the copy has to begin with a name.
no_proc() {
	unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"
}

named_from_the_beginning() {
	# Nor does the loader find out where the command lies.
	dir=$(dirname "$PENSTOCK")
	export LD_LIBRARY_PATH="$dir/../src:$dir/../lib"
	no_proc "$PENSTOCK" --version 2>/dev/null || skip "this needs to hide /proc"
	random 10485767 src
	gives 0 no_proc "$PENSTOCK" cp --verify src dst
	cmp src dst
	no_leftovers .
	rm dst

	for signal in INT:130 TERM:143 KILL:137; do
		for after in 1 2 4; do
			# shellcheck disable=SC2016
			PST_FAULT=file.read:0:50ms gives "${signal#*:}" timeout --preserve-status \
				-s "${signal%:*}" $after unshare -m sh -c 'mount -t tmpfs none /proc &&
					exec "$0" cp --block 64k --depth 1 src dst' "$PENSTOCK"
			[ ! -e dst ]
			[ $signal = KILL:137 ] && [ ! -f "$(echo dst.penstock-*)" ] || break
		done
		[ $signal = KILL:137 ] || no_leftovers .
	done
	# A file that SIGKILL left must not be taken for the target.
	left=$(echo dst.penstock-*)
	[ -f "$left" ]
}

run_cases by_sigint by_sigterm with_threads old_target_is_emptied by_sigkill while_loading \
	named_from_the_beginning
