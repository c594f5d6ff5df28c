#!/bin/sh
# SPDX-License-Identifier: MIT
# The plug-in for NIXL, driven by the agent of NIXL's wheel.
#
# NIXL_SOURCE names a source of NIXL, whose headers the plug-in is compiled with, and NIXL_PYTHON an
# interpreter with nixl-cu12 and numpy.
#
# lib.sh sets base.
# shellcheck disable=SC2154
. "$(dirname "$0")/../cli/lib.sh"
build=${BUILD_DIR:?is the build of Penstock}
root=$(cd "$(dirname "$0")/../.." && pwd)
cases=$root/tests/compat/nixl_cases.py
LIBPENSTOCK=$build/src/libpenstock.so.0
# The agent logs each error of its callers.
NIXL_LOG_LEVEL=FATAL
export LIBPENSTOCK NIXL_LOG_LEVEL

# The first case compiles the plug-in, next to a copy of the wheel's for POSIX files.
make_plugin() {
	[ -n "${NIXL_SOURCE:-}" ] || skip "NIXL_SOURCE, which names a source of NIXL"
	[ -n "${NIXL_PYTHON:-}" ] || skip "NIXL_PYTHON, which names an interpreter with nixl-cu12"
	need c++
	! ldd "$build/src/libpenstock.so" | grep -q -e libasan -e libtsan ||
		skip "a library without a sanitizer"
	wheel=$("$NIXL_PYTHON" -c 'import nixl_cu12, os; print(os.path.dirname(nixl_cu12.__path__[0]))')
	NIXL_PLUGIN_DIR=$base/plugins
	LD_LIBRARY_PATH=$wheel/.nixl_cu12.mesonpy.libs:$wheel/nixl_cu12.libs
	export NIXL_PLUGIN_DIR LD_LIBRARY_PATH
	[ ! -f "$NIXL_PLUGIN_DIR/libplugin_POSIX.so" ] || return 0
	# Without optimization, so that equal methods keep their own names.
	CFLAGS=-Werror CXXFLAGS="-Werror -O0" "$root/tools/nixl-plugin" -s "$NIXL_SOURCE" -b "$build" \
		-o "$NIXL_PLUGIN_DIR/libplugin_PENSTOCK.so" >/dev/null
	cp "$wheel/.nixl_cu12.mesonpy.libs/plugins/libplugin_POSIX.so" "$NIXL_PLUGIN_DIR"
}

# nixl CASE [ARGUMENT...]: run a case of nixl_cases.py, with output in ./out and ./err.
nixl() {
	LD_PRELOAD=${preload:-} timeout 120 "$NIXL_PYTHON" "$cases" "$@" >out 2>err || {
		cat out err
		return 1
	}
}

# methods PLUGIN: print the virtual methods of its engine in order.  The class of each plug-in has
# another name, and methods that a plug-in does not have are those of NIXL's class.
methods() {
	python3 - "$1" <<-'END'
	import re, subprocess, sys

	def run(*args):
	    return subprocess.run(args, stdout=subprocess.PIPE, check=True).stdout.decode()

	symbols, table = {}, None
	for line in run("readelf", "--wide", "--symbols", "--demangle", sys.argv[1]).splitlines():
	    field = line.split(None, 7)
	    if len(field) < 8 or field[3] not in ("FUNC", "OBJECT"):
	        continue
	    at, size, name = int(field[1], 16), int(field[2], 0), field[7]
	    if re.search(r"vtable for .*(nixlPosixEngine|penstock_engine)", name):
	        table = (at, at + size)
	    elif field[3] == "FUNC":
	        symbols.setdefault(at, name)
	slots = {}
	for line in run("readelf", "--wide", "--relocs", sys.argv[1]).splitlines():
	    field = line.split()
	    if len(field) < 4 or not re.fullmatch("[0-9a-f]{16}", field[0]):
	        continue
	    at = int(field[0], 16)
	    if table and table[0] + 16 <= at < table[1]:
	        # A relocation by a symbol has its value in the fourth field, else the target.
	        slots[at] = symbols.get(int(field[3], 16), "?")
	for at in sorted(slots):
	    name = slots[at].replace("(anonymous namespace)::", "")
	    name = re.sub(r"\[clone.*|\[abi:\w+\]", "", name)
	    print(re.sub(r"~?\b(nixlPosixEngine|penstock_engine|nixlBackendEngine)\b", "E", name))
	END
}

# The interface that the plug-in was compiled for must be the wheel's: the same methods in the same
# order.
interface() {
	make_plugin
	need readelf
	methods "$NIXL_PLUGIN_DIR/libplugin_PENSTOCK.so" >ours
	methods "$NIXL_PLUGIN_DIR/libplugin_POSIX.so" >theirs
	[ "$(grep -c E:: ours)" -gt 20 ]
	lacks '?' ours
	diff ours theirs
}

# Another NIXL must be refused with a sentence, and be accepted on demand.
version() {
	make_plugin
	mkdir plugins source
	cp -r "$NIXL_SOURCE/src" source
	sed "s/version: '[0-9.]*'/version: '0.9.0'/" "$NIXL_SOURCE/meson.build" >source/meson.build
	"$root/tools/nixl-plugin" -s "$PWD/source" -b "$build" -o "$PWD/plugins/libplugin_PENSTOCK.so"
	NIXL_PLUGIN_DIR=$PWD/plugins
	if nixl create >said; then
		echo "a plug-in for another NIXL was loaded"
		return 1
	fi
	says "this plug-in was built for NIXL 0.9, but " said
	PST_NIXL_ANY_VERSION=1
	export PST_NIXL_ANY_VERSION
	nixl create
}

# The same random transfers by both plug-ins must give the same files.
load() {
	make_plugin
	nixl load PENSTOCK 4 40
	cp out ours
	nixl load POSIX 4 40
	diff ours out
}

load_of_options() {
	make_plugin
	for params in "threads=1 depth=1" "sync=true" "policy=buffered+cached" "backend=threads"; do
		nixl load PENSTOCK 3 20 "" "$params"
	done
}

load_soft() {
	make_plugin
	nixl load PENSTOCK 3 30 soft:0
}

load_cuda() {
	make_plugin
	use_stub
	nixl load PENSTOCK 3 30 cuda:1
}

# A transfer to other places must be detected.
lies() {
	make_plugin
	cat >lie.c <<-'END'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <penstock.h>

	int pst_queue_prep(struct pst_queue *q, const struct pst_io *io)
	{
		int (*real)(struct pst_queue *, const struct pst_io *) =
			(int (*)(struct pst_queue *, const struct pst_io *))dlsym(RTLD_NEXT, "pst_queue_prep");
		static struct pst_seg segs[32];
		static unsigned nr;
		struct pst_io lie = *io;

		if (io->nr_segs > 1 && io->nr_segs <= 32 && nr++ == 5) {
			for (unsigned i = 0; i < io->nr_segs; i++)
				segs[i] = io->segs[i];
			segs[io->nr_segs - 1].file_off = segs[0].file_off;
			lie.segs = segs;
		}
		return real(q, &lie);
	}
	END
	cc -shared -fPIC -I "$root/include" lie.c -o lie.so -Wl,--no-as-needed -L "$build/src" -lpenstock \
		-Wl,-rpath,"$build/src"
	preload=$PWD/lie.so
	if nixl load PENSTOCK 1 60 >said; then
		echo "wrong bytes were not detected"
		return 1
	fi
	says "differs" said
}

hostile() {
	make_plugin
	nixl hostile
	says "is not within the registered memory" err
	says "the file ends before that" err
}

registration() {
	make_plugin
	nixl registration
	says "is no file descriptor" err
	says "opened with O_APPEND" err
	says "is host memory: register it as DRAM" err
}

rights() {
	make_plugin
	nixl rights
	says "the file is not open for writing" err
}

lifetimes() {
	make_plugin
	nixl lifetimes
}

release() {
	make_plugin
	nixl release
	nixl release "threads=1 depth=2"
}

busy() {
	make_plugin
	cat >busy.c <<-'END'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <errno.h>
	#include <unistd.h>
	#include <penstock.h>

	static struct pst_mem *lost;
	static int done;

	int pst_queue_reap(struct pst_queue *q, struct pst_done *dones, unsigned min, unsigned max,
			   uint64_t deadline_ns)
	{
		int (*real)(struct pst_queue *, struct pst_done *, unsigned, unsigned, uint64_t) =
			(int (*)(struct pst_queue *, struct pst_done *, unsigned, unsigned, uint64_t))
			dlsym(RTLD_NEXT, "pst_queue_reap");
		int nr = real(q, dones, min, max, deadline_ns);

		if (nr > 0 && !done && access("flag", F_OK) == 0) {
			done = 1;
			dones[0].flags |= PST_DONE_BUSY;
		}
		return nr;
	}

	int pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns)
	{
		int (*real)(struct pst_mem *, uint64_t) =
			(int (*)(struct pst_mem *, uint64_t))dlsym(RTLD_NEXT, "pst_mem_drain");

		if (access("flag", F_OK) == 0)
			lost = mem;
		return mem == lost && access("flag", F_OK) == 0 ? -EBUSY : real(mem, deadline_ns);
	}
	END
	cc -shared -fPIC -I "$root/include" busy.c -o busy.so -Wl,--no-as-needed -L "$build/src" -lpenstock \
		-Wl,-rpath,"$build/src"
	preload=$PWD/busy.so
	nixl busy flag
	says "something may still touch its memory" err
	says "do not free or reuse the memory" err
}

# A file of a storage service, named by a path.
service() {
	make_plugin
	mkdir srv
	"$PENSTOCK" serve --root srv --write --listen "unix:$PWD/socket" 2>served &
	server=$!
	for _ in $(seq 100); do
		[ ! -S socket ] || break
		sleep 0.1
	done
	nixl remote "pst+unix://$PWD/socket:/data"
	kill $server
	wait $server
	cmp srv/data want
}

ends() {
	make_plugin
	nixl end
}

parameters() {
	make_plugin
	nixl params
	says "there is no parameter 'polcy'" err
	says "parameter threads is '65': give a number from 0 (automatic) to 64" err
}

queries() {
	make_plugin
	nixl query
}

run_cases interface version load load_of_options load_soft load_cuda lies hostile registration rights \
	lifetimes release busy service ends parameters queries
