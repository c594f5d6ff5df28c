#!/bin/sh
# SPDX-License-Identifier: MIT
# The manual: examples compile and run, every option is documented, every word is defined.
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)

need_tree() {
	[ -f "$root/man/libpenstock.3" ] && [ -f "$root/include/penstock.h" ] ||
		skip "there is no source tree here"
}

# Extract the programs of a page, each to a file; \e is the manual's backslash.
programs() { # PAGE
	awk -v name="$(basename "$1" .3)" '
		/^\.Sh / { examples = $2 == "EXAMPLES" }
		/^\.Bd -literal/ { inside = examples; text = ""; next }
		/^\.Ed$/ && inside {
			inside = 0
			if (text ~ /\nint main\(/) {
				file = name "-" ++n ".c"
				printf "%s", text >file
				close(file)
				print file
			}
		}
		inside { gsub(/\\e/, "\\"); text = text $0 "\n" }' "$1"
}

# Each example compiles and works; those that take a file get one as an argument.
examples_of_the_library() {
	need_tree
	need cc
	lib=$(dirname "$PENSTOCK")/../src
	[ -e "$lib/libpenstock.so" ] || skip "there is no library to link with here"
	! nm -D "$lib/libpenstock.so" | grep -q '__[at]san_init' || skip "a sanitizer's library"
	random 5000000 file
	n=0
	for page in "$root"/man/*.3; do
		for source in $(programs "$page"); do
			gives 0 cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$root/include" $source \
				-o example -L"$lib" -lpenstock -Wl,-rpath,"$lib"
			gives 0 ./example file
			cp out ${source%.c}.out
			if grep -q 'argv\[1\]' $source; then
				gives 1 ./example nothing
				says "nothing" err
			fi
			n=$((n + 1))
		done
	done
	[ $n -ge 8 ]
	says "read of 5000000 bytes by staged" libpenstock-1.out
	says "soft:0 " pst_device-1.out
	says "no-io_uring: " pst_why-1.out
	says " 67108864 bytes of staging" pst_stats-1.out
}

every_option_is_there() {
	need_tree
	for command in demo doctor cp bench window mount umount run top tier; do
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

no_complaint_of_mandoc() {
	need_tree
	need mandoc
	mandoc -T lint -W warning "$root"/man/*.[1-8]
}

run_cases examples_of_the_library every_option_is_there no_complaint_of_mandoc
