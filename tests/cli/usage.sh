#!/bin/sh
# SPDX-License-Identifier: MIT
# The command line: help on request; status 2 and a hint for errors.
. "$(dirname "$0")/lib.sh"

version() {
	gives 0 "$PENSTOCK" --version
	grep -Eq '^penstock [0-9]+\.[0-9]+\.[0-9]+$' out
}

help() {
	for args in help --help -h; do
		gives 0 "$PENSTOCK" $args
		says "Usage: penstock COMMAND" out
	done
	for command in demo doctor cp bench window mount umount run top tier kv perf; do
		gives 0 "$PENSTOCK" help $command
		says "Usage: penstock $command" out
		gives 0 "$PENSTOCK" $command --help
		says "Usage: penstock $command" out
		[ "$(awk 'length > 80' out | wc -l)" = 0 ]
	done
}

no_command() {
	gives 2 "$PENSTOCK"
	says "Usage: penstock COMMAND" err
	[ ! -s out ]
}

mistaken() { # TEXT ARGUMENT...
	text=$1
	shift
	gives 2 "$PENSTOCK" "$@"
	says "$text" err
	says "Try 'penstock help" err
	[ ! -s out ]
}

wrong_words() {
	mistaken "there is no command 'frobnicate'" frobnicate
	mistaken "there is no command 'frobnicate'" help frobnicate
	mistaken "unknown option --frobnicate" --frobnicate
	for command in demo doctor cp bench window mount umount run top tier; do
		mistaken "unknown option --frobnicate" $command --frobnicate
		mistaken "unknown option -Z" $command -Z
	done
}

# The message names one cause, and the intended name if one is similar.
mistyped() {
	mistaken "unknown option --polcy" cp --polcy a b
	lacks "or a value" err
	mistaken "unknown option --ptah; did you mean --path?" cp --ptah=direct a b
	mistaken "unknown option --verfiy; did you mean --verify?" cp a b --verfiy
	mistaken "unknown option --turn_s; did you mean --turns?" bench --turn_s 3
	mistaken "unknown option --jsn; did you mean --json?" demo --jsn
	mistaken "unknown option --jsn; did you mean --json?" doctor --jsn
	mistaken "unknown option --sorce; did you mean --source?" mount --sorce a b
	mistaken "unknown option --intervall; did you mean --interval?" top --intervall 3
	mistaken "unknown option --sed; did you mean --seed?" window validate --sed 3
	mistaken "unknown option -json; did you mean --json?" demo -json
	mistaken "option --json takes no value" demo --json=yes
	mistaken "option --verify takes no value" cp --verify=x a b
	mistaken "option --si is short for --size and for --sizes" bench --si 4k
	mistaken "there is no command 'bnech'; did you mean bench?" bnech
	mistaken "there is no command 'unmount'; did you mean umount?" unmount d
	mistaken "did you mean validate?" window valiidate
	mistaken "no path is called 'direkt'; did you mean direct?" cp --path direkt a b
	gives 1 "$PENSTOCK" bench -m gpu:0
	says "did you mean cuda:0?" err
}

missing_values() {
	mistaken "option --dir needs a value" demo --dir
	mistaken "option --depth needs a value" cp --depth
	mistaken "option -f needs a value" bench -f
}

wrong_values() {
	mistaken "--depth takes" cp --depth 0 a b
	mistaken "--depth takes" cp --depth 12x a b
	mistaken "--block takes" cp --block 5000 a b
	mistaken "--store takes" cp --store best a b
	mistaken "no path is called 'fast'" cp --path direct,fast a b
	mistaken "one SRC and one DST" cp a
	mistaken "one SRC and one DST" cp a b c
	mistaken "two devices" cp --via soft:0 a host
	mistaken "--size takes" demo --size 0
	mistaken "unexpected argument" demo thing
	mistaken "unexpected argument" doctor thing
	mistaken "--op takes" bench --op erase
	mistaken "--sizes takes" bench --sizes 4k,,x
	mistaken "--queues takes" bench --queues 100000
	mistaken "--turns takes" bench --turns 0
	mistaken "--turns takes" bench --turns 101
	mistaken "--batch must not be more" bench --depth 4 --batch 5
	mistaken "give either --source SOURCE or --plain" mount
	mistaken "give either --source SOURCE or --plain" mount dir
	mistaken "give either --source SOURCE or --plain" mount --plain --source a dir
	mistaken "give one directory" mount --source a
	mistaken "--timeout takes" mount --source a --timeout x dir
	mistaken "--links takes" mount --source a --links 0 dir
	mistaken "--memory takes" mount --source a --memory lots dir
	mistaken "--metrics takes" mount --source a --metrics "" dir
	for address in 0.0.0.0:9464 10.1.2.3:9464 "[::]:9464"; do
		mistaken "others could read the numbers" mount --source a --metrics $address dir
	done
	for address in localhost:9464 :9464 127.0.0.1:65536 127.1:9464 ::1:9464 [::1:9464; do
		mistaken "is no address and port" mount --source a --metrics $address dir
	done
	mistaken "give one directory" mount --plain
	mistaken "give one directory" mount --plain a b
	mistaken "give one directory" umount
	mistaken "give one directory" umount a b
	mistaken "give the command" run
	mistaken "give the command" run --
	mistaken "more than" bench --sizes 1g --depth 1000
}

full_output() {
	[ -w /dev/full ] || skip "there is no /dev/full"
	got=0
	"$PENSTOCK" --version >/dev/full 2>err || got=$?
	[ $got = 1 ]
	says "cannot write the output" err
}

run_cases version help no_command wrong_words mistyped missing_values wrong_values full_output
