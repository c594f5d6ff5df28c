#!/bin/sh
# SPDX-License-Identifier: MIT
# hardened.sh FILE|FOLDER...: check that programs and libraries, also those below folders, are
# hardened as the top meson.build says.  Each file is a case; other files are ignored.  Each member
# of an archive must have been compiled for CET: linking one object without it turns CET off for the
# whole program.
set -u
LC_ALL=C
export LC_ALL
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT

command -v readelf >/dev/null || {
	echo "1..0 # SKIP readelf is not installed"
	exit 0
}

is_elf() {
	[ "$(head -c 4 "$1" | tail -c 3)" = ELF ]
}

# Print the missing properties of a file.
faults() { # FILE
	readelf -hW "$1" >"$base/header" && readelf -lW "$1" >"$base/segments" &&
		readelf -dW "$1" >"$base/dynamic" && readelf -W --dyn-syms "$1" >"$base/symbols" ||
		echo "readelf cannot read it"
	# readelf returns 1 for notes that it does not know, such as that of dlopen.
	readelf -nW "$1" >"$base/notes" 2>&1
	grep -q 'Type: *DYN' "$base/header" || echo "its address is fixed: it is no PIE"
	grep -q 'GNU_RELRO' "$base/segments" || echo "no GNU_RELRO: relocated tables stay writable"
	grep -q 'GNU_STACK .* RW ' "$base/segments" || echo "no GNU_STACK of RW: the stack is executable"
	grep -Eq 'BIND_NOW|FLAGS_1.* NOW' "$base/dynamic" || echo "no BIND_NOW"
	! grep -q TEXTREL "$base/dynamic" || echo "TEXTREL: code is written to"
	grep -q ' __stack_chk_fail' "$base/symbols" || echo "no __stack_chk_fail: no stack protector"
	# The compiler calls the checked form where it knows the size of the buffer.
	! grep -q ' UND .*printf' "$base/symbols" || grep -q ' UND __.*printf_chk' "$base/symbols" ||
		echo "_FORTIFY_SOURCE is off: no call of printf() and its kind is checked"
	case ${1##*/} in
	*.so*) grep -q 'FLAGS_1.* NODELETE' "$base/dynamic" || echo "no NODELETE: dlclose() unmaps it" ;;
	esac
	! grep -q 'Machine:.*X86-64' "$base/header" || grep -q 'x86 feature:.*SHSTK' "$base/notes" ||
		echo "no note of SHSTK"
}

members() { # ARCHIVE
	readelf -hW "$1" 2>/dev/null >"$base/headers"
	grep -q 'Machine:.*X86-64' "$base/headers" || return 0
	all=$(grep -c 'Machine:' "$base/headers")
	marked=$(readelf -nW "$1" 2>/dev/null | grep -c 'x86 feature: IBT, SHSTK')
	[ "$all" = "$marked" ] || echo "$marked of $all members have the notes of IBT and SHSTK"
}

n=0
failed=0
for file in $(find "$@" -type f | sort); do
	# Libraries that a bundle copies from the machine were built by others.
	case ${file##*/} in
	*.o | *.pc | *.cmake) continue ;;
	libpenstock_int.a) missing=$(members "$file") ;;
	penstock | penstock-* | libpenstock*.so* | libgdrapi.so* | libhf3fs_api_shared.so)
		is_elf "$file" || continue
		missing=$(faults "$file")
		;;
	*) continue ;;
	esac
	n=$((n + 1))
	if [ -z "$missing" ]; then
		echo "ok $n ${file##*/}"
	else
		echo "not ok $n ${file##*/}"
		echo "$missing" | sed "s|^|# $file: |"
		failed=1
	fi
done
[ "$n" -gt 0 ] || {
	echo "not ok 1 nothing of Penstock's is in $*"
	n=1 failed=1
}
echo "1..$n"
exit $failed
