#!/bin/sh
# SPDX-License-Identifier: MIT
# foreign-dlopen.sh PROGRAM: errors of a client that loads the library by name, if the library is
# missing.
set -u
program=$1
n=0
failed=0

result() { # NAME STATUS
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "$out" | sed 's/^/# /'
		failed=1
	fi
}

out=$("$program" / /nonexistent/file /nonexistent/libhf3fs_api_shared.so 2>&1)
[ $? = 2 ] && [ "$out" = "usrbio-foreign-dlopen: /nonexistent/libhf3fs_api_shared.so: cannot \
open shared object file: No such file or directory" ]
result names_the_missing_library $?

# A library without the functions.
out=$("$program" / /nonexistent/file libm.so.6 2>&1)
[ $? = 2 ] && echo "$out" | grep -q 'undefined symbol: hf3fs_reg_fd'
result names_the_missing_symbol $?

out=$("$program" / 2>&1)
[ $? = 2 ] && echo "$out" | grep -q '^usage: '
result wants_arguments $?

echo "1..$n"
exit $failed
