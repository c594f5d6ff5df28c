#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh ROOT: ./dev install installs exactly the files in tests/packaging/installed; programs
# and the examples can be built against them with pkg-config, CMake and Meson; ./dev uninstall
# leaves nothing.
set -u
root=$1
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1

n=0
failed=0
check() { # NAME COMMAND...
	n=$((n + 1))
	name=$1
	shift
	if "$@" >log 2>&1; then
		echo "ok $n $name"
	else
		echo "not ok $n $name"
		tail -n 40 log | sed 's/^/# /'
		failed=1
	fi
}

# Run a case that needs a program.
check_with() { # PROGRAM NAME COMMAND...
	if command -v "$1" >/dev/null; then
		shift
		check "$@"
	else
		n=$((n + 1))
		echo "ok $n $2 # SKIP $1 is not installed"
	fi
}

files() { # DIR
	(cd "$1" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort)
}

# The list uses fixed placeholders for the version and for Debian's library folder.
installs() {
	"$root/dev" install --prefix="$prefix" || return 1
	files "$prefix" | sed -E 's|\.so\.[0-9]+\.[0-9]+\.[0-9]+$|.so.VERSION|' >have
	diff -u "$root/tests/packaging/installed" have
}

pc() {
	PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@"
}

version() {
	"$prefix/bin/penstock" --version >out && cat out
	[ "$(cat out)" = "penstock $(pc --modversion penstock)" ]
}

shared() {
	# shellcheck disable=SC2046
	gcc -Wall -Werror -o shared prog.c $(pc --cflags --libs penstock) || return 1
	readelf -d shared | grep -q 'NEEDED.*libpenstock\.so\.' || return 1
	LD_LIBRARY_PATH=$prefix/lib ./shared
}

# Without the shared object, the linker uses the archive, and pkg-config names everything that the
# archive needs.
static() {
	mkdir only && cp "$prefix/lib/libpenstock.a" only/ || return 1
	# shellcheck disable=SC2046
	gcc -Wall -Werror -static -o static prog.c -Lonly $(pc --cflags --libs --static penstock |
		sed "s|-L[^ ]*||g") || return 1
	./static
}

dropins() {
	for lib in gdrapi usrbio; do
		# shellcheck disable=SC2046
		gcc -Wall -Werror -o $lib $lib.c $(pc --cflags --libs penstock-$lib) || return 1
		"$prefix/bin/penstock" run -- ./$lib || return 1
	done
}

# Run each installed example, with host memory and with the software device.
examples() {
	nr=0
	random 3000000 data
	for source in "$prefix"/share/doc/penstock/examples/*.c; do
		program=${source##*/}
		program=${program%.c}
		# shellcheck disable=SC2046
		cc -Wall -Wextra -Werror -o "$program" "$source" $(pc --cflags --libs penstock) || return 1
		for device in host soft:0; do
			case $program in
			read_direct | write_direct) set -- $device data 0 8192 ;;
			read-tensors) set -- -d $device data 30 ;;
			cancel-reads) set -- -d $device data ;;
			wrap-cuda) set -- data ;;
			kv-offload | load-shards) set -- -d $device ;;
			*)
				echo "how is $program run?"
				return 1
				;;
			esac
			LD_LIBRARY_PATH=$prefix/lib "./$program" "$@" || return 1
		done
		nr=$((nr + 1))
	done
	[ $nr -ge 7 ]
}

random() { # BYTES FILE
	head -c "$1" /dev/urandom >"$2"
}

# With CMake, against an installation that was moved, for each version that matches.
cmake_consumer() {
	cp -a "$prefix" moved || return 1
	cmake -S cmake -B cmake-build -DCMAKE_PREFIX_PATH="$base/moved" || return 1
	cmake --build cmake-build || return 1
	cmake-build/shared && cmake-build/static || return 1
	readelf -d cmake-build/shared | grep -q 'NEEDED.*libpenstock\.so\.0' || return 1
	ldd cmake-build/shared | grep "$base/moved/lib/libpenstock.so.0" || return 1
	! readelf -d cmake-build/static | grep 'NEEDED.*libpenstock' || return 1
	version=$(pc --modversion penstock)
	for wanted in "" 0.1 "$version" "$version EXACT" 0.1...9; do
		finds "$wanted" || return 1
	done
	for wanted in 9 "${version%.*}.99" "0.0.1 EXACT" 0.0.1...0.0.2; do
		! finds "$wanted" || return 1
	done
	# The error names a missing file.
	rm moved/lib/libpenstock.so
	! finds "" || return 1
	grep -q "there is no.*/moved/lib/libpenstock.so: install" found.log
}

finds() { # VERSION
	rm -rf find-build
	cmake -S cmake -B find-build -DCMAKE_PREFIX_PATH="$base/moved" "-DWANTED=$1" >found.log 2>&1
	status=$?
	cat found.log
	return $status
}

# Use the checkout as a subproject, without a pkg-config file.
meson_consumer() {
	mkdir meson/subprojects && ln -s "$root" meson/subprojects/penstock || return 1
	PKG_CONFIG_LIBDIR=/nonexistent meson setup meson-build meson --wrap-mode=forcefallback \
		-Dpenstock:cli=false || return 1
	ninja -C meson-build consumer || return 1
	meson-build/consumer || return 1
	# Headers with other projects' names are not exposed.
	ninja -C meson-build -t commands consumer | grep -- '-o consumer.p/' >commands || return 1
	! grep 'include/compat' commands
}

# Foreign files in the same folders are kept.
uninstalls() {
	echo mine >"$prefix/lib/mine"
	"$root/dev" uninstall || return 1
	[ "$(cd "$prefix" && find . ! -type d)" = ./lib/mine ] && ! [ -d "$prefix/lib/penstock" ]
}

# Install with DESTDIR, as packagers do.
destdir() {
	"$root/dev" install --prefix=/opt/penstock --destdir="$base/stage" || return 1
	[ -x stage/opt/penstock/bin/penstock ] || return 1
	"$root/dev" uninstall --destdir="$base/stage" || return 1
	[ -z "$(find stage ! -type d)" ]
}

cat >prog.c <<'END'
#include <penstock.h>
#include <string.h>

int main(void)
{
	struct pst_mem *m = NULL;

	if (pst_mem_alloc("soft:0", 4096, NULL, &m) < 0)
		return 1;
	pst_mem_free(m);
	return !strlen(pst_version());
}
END
cat >gdrapi.c <<'END'
#include <gdrapi.h>

int main(void)
{
	int major = 0, minor = 0;

	gdr_runtime_get_version(&major, &minor);
	return major != 2;
}
END
cat >usrbio.c <<'END'
#include <hf3fs_usrbio.h>

int main(void)
{
	return hf3fs_ior_size(16) == 0;
}
END
mkdir cmake meson
cp prog.c cmake/
cp prog.c meson/
cat >cmake/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.13)
project(consumer C)
separate_arguments(WANTED)
find_package(penstock ${WANTED} REQUIRED)
add_executable(shared prog.c)
target_link_libraries(shared PRIVATE penstock::penstock)
add_executable(static prog.c)
target_link_libraries(static PRIVATE penstock::penstock_static)
END
cat >meson/meson.build <<'END'
project('consumer', 'c')
executable('consumer', 'prog.c', dependencies: dependency('penstock', version: '>=0.1'))
END
prefix=$base/prefix
check installs_what_is_listed installs
check the_command_runs version
check a_program_shared shared
check a_program_static static
check programs_of_the_drop_in_libraries dropins
check each_example_alone examples
check_with cmake a_project_of_cmake cmake_consumer
check a_project_of_meson meson_consumer
check hardened sh "$root/tests/packaging/hardened.sh" "$prefix"
check uninstall_leaves_nothing uninstalls
check staged destdir
echo "1..$n"
exit $failed
