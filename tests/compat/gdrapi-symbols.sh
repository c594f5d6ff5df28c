#!/bin/sh
# SPDX-License-Identifier: MIT
# gdrapi-symbols.sh LIBRARY: check libgdrapi's names, symbols and needed libraries.
set -u
lib=$1
n=0
failed=0

result() { # NAME TEXT
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "$2" | sed 's/^/# /'
		failed=1
	fi
}

same() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then
		result "$1" ""
	else
		result "$1" "wanted: $(echo "$2" | tr '\n' ' ') got: $(echo "$3" | tr '\n' ' ')"
	fi
}

dynamic() { # TAG
	readelf -d "$lib" | sed -n "s/.*($1).*\[\(.*\)\]/\1/p"
}

same soname libgdrapi.so.2 "$(dynamic SONAME)"
same file libgdrapi.so.2.6 "$(basename "$(readlink -f "$lib")")"
for link in libgdrapi.so libgdrapi.so.2; do
	same "$link" "$(readlink -f "$lib")" "$(readlink -f "$(dirname "$lib")/$link")"
done

same symbols "gdr_close
gdr_copy_from_bar
gdr_copy_from_mapping
gdr_copy_to_bar
gdr_copy_to_mapping
gdr_driver_get_version
gdr_get_attribute
gdr_get_callback_flag
gdr_get_info
gdr_get_info_v2
gdr_get_mapping_type_string
gdr_map
gdr_map_v2
gdr_open
gdr_pin_buffer
gdr_pin_buffer_v2
gdr_runtime_get_version
gdr_unmap
gdr_unpin_buffer" "$(nm -D --defined-only "$lib" | sed -n 's/.* [A-Z] //p' | LC_ALL=C sort)"
result no_versions "$(nm -D --defined-only "$lib" | grep @)"

# Ignore the libraries of sanitizers.
same needed "libc.so.6
libpenstock.so.0" "$(dynamic NEEDED | grep -v -E '^lib([atu]bsan|asan|tsan|ubsan|gcov|m|gcc_s)\.so|^ld-linux' | LC_ALL=C sort)"
case $(dynamic RUNPATH) in
*'$ORIGIN/../..'*) result runpath "" ;;
*) result runpath "it is '$(dynamic RUNPATH)'" ;;
esac
readelf -d "$lib" | grep -q NODELETE
same stays_loaded 0 $?

echo "1..$n"
exit $failed
