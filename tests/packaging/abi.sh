#!/bin/sh
# SPDX-License-Identifier: MIT
# abi.sh ROOT: ./dev abi detects changes that break programs, and accepts others.  Uses a small
# library under our libraries' names.
set -u
root=$1
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1

for tool in abidw abidiff gcc; do
	command -v $tool >/dev/null || {
		echo "1..0 # SKIP $tool is not installed"
		exit 0
	}
done

mkdir include
cat >include/shop.h <<'END'
#include <stddef.h>
struct pst_item { int price; };
struct pst_shop_opts { size_t sz; int a; };
struct pst_shop;
enum pst_colour { PST_RED, PST_BLUE };
END
cat >shop.c <<'END'
#include "shop.h"
struct pst_shop { int secret; };
int pst_sell(struct pst_item *it, enum pst_colour c) { return it->price + (int)c; }
int pst_open(const struct pst_shop_opts *o, struct pst_shop *s) { return o->a + s->secret; }
int pst_close(struct pst_shop *s) { return s->secret; }
END
cp include/shop.h shop.h.first
cp shop.c shop.c.first

build() { # SONAME
	mkdir -p out
	for name in libpenstock libgdrapi libhf3fs_api_shared libpenstock_streamer; do
		gcc -g -shared -fPIC -Iinclude "-Wl,-soname,$name.$1" -o out/$name.so shop.c || exit 1
	done
}

n=0
failed=0
# outcome STATUS TEXT: the check's status and output for the library in its current state.
outcome() { # NAME STATUS TEXT [SONAME]
	n=$((n + 1))
	build "${4:-1}"
	status=0
	sh "$root/packaging/abi" check out abi include >log 2>&1 || status=$?
	if [ $status = "$2" ] && grep -qF "$3" log; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "# status $status and not $2, or not '$3':"
		sed 's/^/# /' log
		failed=1
	fi
	cp shop.h.first include/shop.h
	cp shop.c.first shop.c
}

outcome without_a_release 0 "no release to compare with"
build 1
sh "$root/packaging/abi" write out abi include || exit 1
outcome unchanged 0 "libpenstock keeps what programs rely on"

echo 'int pst_buy(void) { return 0; }' >>shop.c
outcome added_function 0 "libgdrapi keeps"
sed -i 's/PST_BLUE/PST_BLUE, PST_GREEN/' include/shop.h
outcome added_value 0 "libpenstock keeps"
sed -i 's/int a;/int a, b;/' include/shop.h
outcome grown_options 0 "libpenstock keeps"
sed -i 's/int secret;/int more, secret;/' shop.c
outcome changed_secret 0 "libpenstock keeps"

sed -i '/pst_close/d' shop.c
outcome removed_function 1 "break with: libgdrapi libhf3fs_api_shared libpenstock"
sed -i 's/int price;/int price, size;/' include/shop.h
outcome grown_structure 1 "break with:"
sed -i 's/size_t sz; int a;/size_t sz; int b, a;/' include/shop.h
outcome moved_option 1 "break with:"
sed -i 's/PST_RED, PST_BLUE/PST_BLUE, PST_RED/' include/shop.h
outcome changed_value 1 "break with:"
sed -i 's/enum pst_colour c)/long c)/' shop.c
outcome changed_argument 1 "break with:"
sed -i '/pst_close/d' shop.c
outcome new_soname 0 "libpenstock is now libpenstock.2 and was libpenstock.1" 2

echo "1..$n"
exit $failed
