#!/bin/sh
# SPDX-License-Identifier: MIT
# run: the loader of the program finds our libraries first, and nothing else is changed.
. "$(dirname "$0")/lib.sh"
# The runner of tests may have set it.
unset LD_LIBRARY_PATH

finds_the_folder() {
	gives 0 "$PENSTOCK" run printenv LD_LIBRARY_PATH
	found=' '
	# Together in one folder, or each in its own of a build.
	for dir in $(tr ':' ' ' <out); do
		[ "${dir#/}" != "$dir" ]
		for lib in libgdrapi.so libgdrapi.so.2 libhf3fs_api_shared.so; do
			[ ! -e "$dir/$lib" ] || found="$found$lib "
		done
	done
	[ "$found" = ' libgdrapi.so libgdrapi.so.2 libhf3fs_api_shared.so ' ]
}

what_is_there_comes_behind() {
	LD_LIBRARY_PATH=/some/where:/else gives 0 "$PENSTOCK" run printenv LD_LIBRARY_PATH
	grep -Eq '^(/[^:]*:)+/some/where:/else$' out
	LD_LIBRARY_PATH='' gives 0 "$PENSTOCK" run printenv LD_LIBRARY_PATH
	grep -Eq '^/[^:]*(:/[^:]+)*$' out
	gives 0 env -i A=1 B='x y' "$PENSTOCK" run /usr/bin/env
	[ "$(grep -v '^LD_LIBRARY_PATH=' out | sort | tr '\n' ' ')" = 'A=1 B=x y ' ]
}

a_program_loads_it() {
	need python3
	dirs=$("$PENSTOCK" run printenv LD_LIBRARY_PATH)
	nm -D "${dirs%%:*}/libgdrapi.so" 2>/dev/null | grep -q '__[at]san_init' &&
		skip "a sanitizer's library"
	cat >load.py <<-'END'
		import ctypes
		for name in ("libgdrapi.so", "libgdrapi.so.2"):
		    lib = ctypes.CDLL(name)
		    a, b = ctypes.c_int(), ctypes.c_int()
		    lib.gdr_runtime_get_version(ctypes.byref(a), ctypes.byref(b))
		    print(a.value, b.value)
		lib = ctypes.CDLL("libhf3fs_api_shared.so")
		lib.hf3fs_ior_size.restype = ctypes.c_size_t
		print(lib.hf3fs_ior_size(1024))
	END
	gives 0 "$PENSTOCK" run python3 load.py
	[ "$(cat out)" = "2 6
2 6
102544" ]
}

arguments_are_the_programs() {
	gives 0 "$PENSTOCK" run printf '<%s>' --help -Z -- 'a b' ''
	[ "$(cat out)" = '<--help><-Z><--><a b><>' ]
	gives 0 "$PENSTOCK" run -- printf '<%s>' --help
	[ "$(cat out)" = '<--help>' ]
	[ ! -s err ]
}

status_is_the_programs() {
	gives 3 "$PENSTOCK" run sh -c 'exit 3'
	gives 127 "$PENSTOCK" run no-such-program
	says "penstock: run: no-such-program: " err
	echo >plain
	gives 126 "$PENSTOCK" run ./plain
	says "penstock: run: ./plain: " err
	gives 141 sh -c '"$0" run sh -c "kill -PIPE \$\$"; exit $?' "$PENSTOCK"
}

run_cases finds_the_folder what_is_there_comes_behind a_program_loads_it \
	arguments_are_the_programs status_is_the_programs
