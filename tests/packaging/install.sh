#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh ROOT: ./dev install puts there what tests/packaging/installed lists and no more,
# programs can be built against it as pkg-config says, and ./dev uninstall leaves nothing.
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

files() { # DIR
	(cd "$1" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort)
}

# The version's own names, and Debian's folder for libraries, stand for all.
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

# Without the shared object beside it the linker takes the archive, and all that it needs is named.
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

# Files of others in the same folders stay.
uninstalls() {
	echo mine >"$prefix/lib/mine"
	"$root/dev" uninstall || return 1
	[ "$(cd "$prefix" && find . ! -type d)" = ./lib/mine ] && ! [ -d "$prefix/lib/penstock" ]
}

# As packagers do it.
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
prefix=$base/prefix
check installs_what_is_listed installs
check the_command_runs version
check a_program_shared shared
check a_program_static static
check programs_of_the_drop_in_libraries dropins
check uninstall_leaves_nothing uninstalls
check staged destdir
echo "1..$n"
exit $failed
