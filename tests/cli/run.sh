#!/bin/sh
# SPDX-License-Identifier: MIT
# run: the loader of the program finds our libraries first, and nothing else changes.
. "$(dirname "$0")/lib.sh"
# The test runner may have set LD_LIBRARY_PATH.
unset LD_LIBRARY_PATH

finds_the_folder() {
	gives 0 "$PENSTOCK" run printenv LD_LIBRARY_PATH
	found=' '
	# The libraries are in one folder, or each in its own folder of a build.
	for dir in $(tr ':' ' ' <out); do
		[ "${dir#/}" != "$dir" ]
		for lib in libgdrapi.so libgdrapi.so.2 libhf3fs_api_shared.so libpenstock_streamer.so; do
			[ ! -e "$dir/$lib" ] || found="$found$lib "
		done
	done
	[ "$found" = ' libgdrapi.so libgdrapi.so.2 libhf3fs_api_shared.so libpenstock_streamer.so ' ]
}

what_is_there_comes_behind() {
	LD_LIBRARY_PATH=/some/where:/else gives 0 "$PENSTOCK" run printenv LD_LIBRARY_PATH
	grep -Eq '^(/[^:]*:)+/some/where:/else$' out
	LD_LIBRARY_PATH='' gives 0 "$PENSTOCK" run printenv LD_LIBRARY_PATH
	grep -Eq '^/[^:]*(:/[^:]+)*$' out
	gives 0 env -i A=1 B='x y' "$PENSTOCK" run /usr/bin/env
	[ "$(grep -v -e '^LD_LIBRARY_PATH=' -e '^PYTHONPATH=' out | sort | tr '\n' ' ')" = 'A=1 B=x y ' ]
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

# An installation: the libraries next to libpenstock, Python's modules below them.
python_finds_its_modules() {
	lib=$(dirname "$PENSTOCK")/../src/libpenstock.so.0
	[ -e "$lib" ] || lib=$(dirname "$PENSTOCK")/../lib/libpenstock.so.0
	[ -e "$lib" ] || skip "the library beside the command"
	gives 0 env -u PYTHONPATH "$PENSTOCK" run sh -c 'echo "${PYTHONPATH-none}"'
	before=$(cat out)
	mkdir -p lib/penstock/compat/python/hf3fs_fuse
	cp -L "$lib" lib/
	echo 'print("ours")' >lib/penstock/compat/python/hf3fs_py_usrbio.py
	LD_LIBRARY_PATH=$PWD/lib
	export LD_LIBRARY_PATH
	gives 0 env -u PYTHONPATH "$PENSTOCK" run sh -c 'echo "$LD_LIBRARY_PATH $PYTHONPATH"'
	[ "$(cat out)" = "$PWD/lib/penstock/compat:$PWD/lib $PWD/lib/penstock/compat/python" ]
	PYTHONPATH=/some/where:/else gives 0 "$PENSTOCK" run printenv PYTHONPATH
	[ "$(cat out)" = "$PWD/lib/penstock/compat/python:/some/where:/else" ]
	need python3
	gives 0 "$PENSTOCK" run python3 -c 'import hf3fs_py_usrbio'
	[ "$(cat out)" = ours ]
	# Without Python modules, PYTHONPATH is not set.
	rm -r lib/penstock/compat/python
	gives 0 env -u PYTHONPATH "$PENSTOCK" run sh -c 'echo "${PYTHONPATH-none}"'
	[ "$(cat out)" = none ]
	[ "$before" = none ] || [ -d "$before" ]
}

a_colon_cannot_be_named() {
	lib=$(dirname "$PENSTOCK")/../src/libpenstock.so.0
	[ -e "$lib" ] || lib=$(dirname "$PENSTOCK")/../lib/libpenstock.so.0
	[ -e "$lib" ] || skip "the library beside the command"
	mkdir -p a:b/lib/penstock/compat
	cp -L "$lib" a:b/lib/
	ln -s a:b/lib lib
	LD_LIBRARY_PATH=$PWD/lib fails "for the colon in it" "$PENSTOCK" run true
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
	python_finds_its_modules a_colon_cannot_be_named \
	arguments_are_the_programs status_is_the_programs
