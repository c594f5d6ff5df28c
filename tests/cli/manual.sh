#!/bin/sh
# SPDX-License-Identifier: MIT
# The manual: its example compiles and runs, it knows every option, every word is defined.
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)

need_tree() {
	[ -f "$root/man/libpenstock.3" ] && [ -f "$root/include/penstock.h" ] ||
		skip "there is no source tree here"
}

example_of_the_library() {
	need_tree
	need cc
	lib=$(dirname "$PENSTOCK")/../src
	[ -e "$lib/libpenstock.so" ] || skip "there is no library to link with here"
	! nm -D "$lib/libpenstock.so" | grep -q '__[at]san_init' || skip "a sanitizer's library"
	# The first literal text that begins with an include; \e is the manual's backslash.
	sed -n '/^\.Bd -literal$/,/^\.Ed$/p' "$root/man/libpenstock.3" |
		sed -n '/^#include/,/^\.Ed$/{/^\.Ed$/q;p;}' | sed 's/\\e/\\/g' >example.c
	gives 0 cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$root/include" example.c \
		-o example -L"$lib" -lpenstock -Wl,-rpath,"$lib"
	random 100000 file
	gives 0 ./example file
	says "100000" out
	gives 1 ./example nothing
	says "nothing" err
}

every_option_is_there() {
	need_tree
	for command in demo doctor cp bench window mount umount run; do
		page=$root/man/penstock-$command.1
		[ -f "$page" ] || page=$root/man/penstock.1
		"$PENSTOCK" help $command >usage
		for option in $(grep -o -e '--[a-z-]*' usage | sort -u); do
			grep -q -e "Fl -${option#--}" "$page" || {
				echo "$command $option is not in ${page##*/}"
				return 1
			}
		done
	done
}

every_function_is_there() {
	need_tree
	status=0
	for fn in $(grep -o '\bpst_[a-z_]*(' "$root/include/penstock.h" | tr -d '(' | sort -u); do
		grep -q "^PST_API.*\b$fn(" "$root/include/penstock.h" || continue
		grep -q "\b$fn\b" "$root/man/libpenstock.3" || {
			echo "$fn is not in libpenstock.3"
			status=1
		}
	done
	return $status
}

no_complaint_of_mandoc() {
	need_tree
	need mandoc
	mandoc -T lint -W warning "$root"/man/*.[1-8]
}

run_cases example_of_the_library every_option_is_there every_function_is_there \
	no_complaint_of_mandoc
