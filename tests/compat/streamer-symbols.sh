#!/bin/sh
# SPDX-License-Identifier: MIT
# streamer-symbols.sh LIBRARY: check libpenstock_streamer's symbols and needed libraries.
set -u
lib=$1
n=0
failed=0

same() { # NAME WANT GOT
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "# wanted: $(echo "$2" | tr '\n' ' ') got: $(echo "$3" | tr '\n' ' ')"
		failed=1
	fi
}

dynamic() { # TAG
	readelf -d "$lib" | sed -n "s/.*($1).*\[\(.*\)\]/\1/p"
}

same symbols "runai_end@@PENSTOCK_STREAMER_OLD
runai_file_streamer_end@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_list_files@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_probe_direct_block_size@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_request@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_response@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_response_str@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_set_credentials@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_set_fs_strategy@@RUNAI_FILE_STREAMER_1.0
runai_file_streamer_start@@RUNAI_FILE_STREAMER_1.0
runai_list_files@@PENSTOCK_STREAMER_OLD
runai_request@@PENSTOCK_STREAMER_OLD
runai_response@@PENSTOCK_STREAMER_OLD
runai_response_str@@PENSTOCK_STREAMER_OLD
runai_start@@PENSTOCK_STREAMER_OLD" \
	"$(nm -D --defined-only --with-symbol-versions "$lib" | sed -n 's/.* [T] //p' | LC_ALL=C sort)"
# Ignore the libraries of sanitizers.
same needed "libc.so.6
libpenstock.so.0" "$(dynamic NEEDED | grep -v -E '^lib([atu]bsan|asan|tsan|ubsan|gcov|m|gcc_s)\.so|^ld-linux' | LC_ALL=C sort)"
readelf -d "$lib" | grep -q NODELETE
same stays_loaded 0 $?

echo "1..$n"
exit $failed
