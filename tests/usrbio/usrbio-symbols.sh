#!/bin/sh
# SPDX-License-Identifier: MIT
# usrbio-symbols.sh LIBRARY HEADERS: U2 and U3, the headers as compilers see them, and the library's
# exports.
set -u
lib=$1
headers=$2
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

skip() { # NAME WHY
	n=$((n + 1))
	echo "ok $n $1 # SKIP $2"
}

same() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then
		result "$1" ""
	else
		result "$1" "wanted: $(echo "$2" | tr '\n' ' ') got: $(echo "$3" | tr '\n' ' ')"
	fi
}

# Compile each header alone, by each of its names, as C and as C++.
compiles() { # NAME COMPILER ARG...
	name=$1
	shift
	command -v "$1" >/dev/null 2>&1 || {
		skip "$name" "$1 is not installed"
		return
	}
	said=
	for h in hf3fs_usrbio hf3fs_usrbio_gdr hf3fs/hf3fs_usrbio hf3fs/hf3fs_usrbio_gdr \
		lib/api/hf3fs_usrbio lib/api/hf3fs_usrbio_gdr; do
		said="$said$(echo "#include \"$h.h\"" |
			"$@" -Wall -Wextra -Werror -pedantic -I"$headers" -fsyntax-only - 2>&1)"
	done
	# Compile all of them in one program.
	said="$said$(printf '#include <%s>\n' lib/api/hf3fs_usrbio_gdr.h hf3fs/hf3fs_usrbio.h \
		hf3fs_usrbio.h hf3fs_usrbio_gdr.h |
		"$@" -Wall -Wextra -Werror -pedantic -I"$headers" -fsyntax-only - 2>&1)"
	result "$name" "$said"
}
compiles U2_gcc_c99 gcc -std=c99 -x c
compiles U2_gcc_c11 gcc -std=c11 -x c
compiles U2_gcc_cxx17 g++ -std=c++17 -x c++
compiles U2_clang_c99 clang -std=c99 -x c
compiles U2_clang_c11 clang -std=c11 -x c
compiles U2_clang_cxx17 clang -std=c++17 -x c++

dynamic() { # TAG
	readelf -d "$lib" | sed -n "s/.*($1).*\[\(.*\)\]/\1/p"
}

same U3_soname libhf3fs_api_shared.so "$(dynamic SONAME)"
same U3_file libhf3fs_api_shared.so "$(basename "$(readlink -f "$lib")")"

# The library exports all calls of the headers, and no others.
declared=$(cat "$headers/hf3fs_usrbio.h" "$headers/hf3fs_usrbio_gdr.h" | tr '\n' ' ' |
	grep -o 'HF3FS_API [^;]*;' | sed -n 's/[^(]*[ *]\(hf3fs_[a-z0-9_]*\)(.*/\1/p' | LC_ALL=C sort -u)
same U3_symbols "$declared" "$(nm -D --defined-only "$lib" | sed -n 's/.* [A-Z] //p' | LC_ALL=C sort)"
result U3_no_versions "$(nm -D --defined-only "$lib" | grep @)"

# Names of 3FS that programs look up, whatever the headers declare.
missing=$(for name in is_hf3fs extract_mount_point iovcreate iovopen iovunlink iovdestroy iovwrap ior_size \
	iorcreate iorcreate2 iorcreate3 iorcreate4 iordestroy reg_fd dereg_fd io_entries prep_io \
	submit_ios wait_for_ios hardlink punchhole iorwrap \
	gdr_available gdr_device_count iovcreate_gpu iovopen_gpu iovwrap_gpu iovunlink_gpu \
	iovdestroy_gpu iov_is_gpu iov_gpu_device iovsync_gpu iov_export_gpu iov_import_gpu \
	iovcreate_device iovopen_device iovwrap_device iov_mem_type iov_device_id iovsync; do
	echo "$declared" | grep -q -x "hf3fs_$name" || echo "hf3fs_$name"
done)
result U3_names_of_3fs "$missing"

# Sanitizers add libraries.
same U3_needed "libc.so.6
libpenstock.so.0" "$(dynamic NEEDED | grep -v -E '^lib([atu]bsan|asan|tsan|ubsan|gcov|m|gcc_s)\.so|^ld-linux' | LC_ALL=C sort)"
case $(dynamic RUNPATH) in
*'$ORIGIN/../..'*) result U3_runpath "" ;;
*) result U3_runpath "it is '$(dynamic RUNPATH)'" ;;
esac

# The library finds libpenstock even if it is loaded through a link in another folder: a bundle may
# be anywhere.
dir=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
ln -s "$(readlink -f "$lib")" "$dir/libhf3fs_api_shared.so"
missing() { # ENVIRONMENT... COMMAND...
	env -u LD_LIBRARY_PATH "$@" 2>&1 | grep -E 'not found|cannot'
}
case $(dynamic NEEDED) in
*san*) ;; # has to come before the program's own
*)
	result U3_through_a_link "$(missing ldd "$dir/libhf3fs_api_shared.so")"
	result U3_preloaded_through_a_link \
		"$(missing LD_PRELOAD="$dir/libhf3fs_api_shared.so" true)"
	;;
esac

readelf -d "$lib" | grep -q NODELETE
same U3_stays_loaded 0 $?

echo "1..$n"
exit $failed
