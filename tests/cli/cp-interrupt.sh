#!/bin/sh
# SPDX-License-Identifier: MIT
# cp: however it ends, a new target exists completely or not at all.
. "$(dirname "$0")/lib.sh"

# Start a copy that takes eight seconds, and send a signal after $after seconds.
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
	# On a busy machine the copy may not have begun: wait longer.
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

# Without /proc a file made by O_TMPFILE cannot get a name later, so the copy writes to a named
# temporary file.
no_proc() {
	unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"
}

named_from_the_beginning() {
	# Without /proc the loader cannot find the command's folder either.
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
	# A temporary file left by SIGKILL must not look like the target.
	left=$(echo dst.penstock-*)
	[ -f "$left" ]
}

# ./without COMMAND...: run without /proc, except for the boot id.
make_without() {
	cat >without <<-'END'
		#!/bin/sh
		boot=$(cat /proc/sys/kernel/random/boot_id)
		# shellcheck disable=SC2016
		exec unshare -m sh -c 'mount -t tmpfs none /proc && mkdir -p /proc/sys/kernel/random &&
			echo "$0" >/proc/sys/kernel/random/boot_id && exec "$@"' "$boot" "$@"
	END
	chmod +x without
	./without "$PENSTOCK" --version 2>/dev/null || skip "this needs to hide /proc"
}

# The next copy to that name removes what a killed copy left, and nothing else.
cleared() {
	dir=$(dirname "$PENSTOCK")
	export LD_LIBRARY_PATH="$dir/../src:$dir/../lib"
	make_without
	random 10485767 src
	boot=$(tr -d - </proc/sys/kernel/random/boot_id | cut -c 1-12)

	PST_FAULT=file.read:0:60000ms ./without "$PENSTOCK" cp src dst &
	until [ -f "$(echo dst.penstock-"$boot"????????)" ]; do
		kill -0 $!
		sleep 0.02
	done
	writes=$(echo dst.penstock-*)
	# Files being written are kept, and so are those of another boot, of another name, or made
	# by a user.
	other=dst.penstock-$(echo "$boot" | tr 0-9a-f 1-9a-f0)00000000
	touch "$other" "dst.penstock-${boot}0000000" "dst2.penstock-${boot}00000000" \
		"dst.penstock-${boot}0000000X"
	touch "dst.penstock-${boot}00000001"
	random 3000 small
	gives 0 ./without "$PENSTOCK" cp small dst
	cmp small dst
	[ -f "$writes" ] && [ -f "$other" ] && [ -f "dst.penstock-${boot}0000000" ] &&
		[ -f "dst2.penstock-${boot}00000000" ] && [ -f "dst.penstock-${boot}0000000X" ]
	[ ! -e "dst.penstock-${boot}00000001" ]

	kill -KILL $!
	wait $! || true
	[ -f "$writes" ]
	rm dst
	gives 0 ./without "$PENSTOCK" cp small dst
	cmp small dst
	[ ! -e "$writes" ]
	[ -f "$other" ]
}

run_cases by_sigint by_sigterm with_threads old_target_is_emptied by_sigkill while_loading \
	named_from_the_beginning cleared
