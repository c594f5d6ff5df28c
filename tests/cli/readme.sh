#!/bin/sh
# SPDX-License-Identifier: MIT
# The README: its example compiles and prints what the README shows, and its commands run.
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)

example() {
	[ -f "$root/README.md" ] || skip "there is no source tree here"
	need cc
	lib=$(dirname "$PENSTOCK")/../src
	[ -e "$lib/libpenstock.so" ] || skip "there is no library to link with here"
	! nm -D "$lib/libpenstock.so" | grep -q '__[at]san_init' || skip "a sanitizer's library"
	sed -n '/^```c$/,/^```$/{/^```/d;p;}' "$root/README.md" >example.c
	gives 0 cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$root/include" example.c \
		-o example -L"$lib" -lpenstock -Wl,-rpath,"$lib"
	random 125640 file
	gives 0 ./example file
	says "read of 125640 bytes by staged" out
	gives 1 ./example nothing
	says "nothing" out
}

commands() {
	random 3000000 model.safetensors
	gives 0 "$PENSTOCK" doctor
	gives 0 "$PENSTOCK" cp model.safetensors soft:0 --verify
	gives 0 "$PENSTOCK" bench --dir . --size 16m -m soft --runtime 0.2
}

# The five commands of the README's section on tiers.
tiers() {
	[ -f "$root/README.md" ] || skip "there is no source tree here"
	random 3000000 model.safetensors
	PST_TIER_DIR=$PWD/state
	export PST_TIER_DIR
	sed -n '/^## Fast and slow disks/,/^`/{s/^    //p;}' "$root/README.md" >lines
	[ "$(wc -l <lines)" = 5 ]
	penstock() {
		"$PENSTOCK" "$@"
	}
	. ./lines >out
	says "m: to hdd" out
	cmp model.safetensors hdd/m
	[ ! -e nvme/m ]
}

run_cases example commands tiers
