#!/bin/sh
# SPDX-License-Identifier: MIT
# static-lib.sh OUT.a INTERNAL.a MAP OBJCOPY AR CC...: one object of all of ours and what it uses of
# liburing, with only the symbols of the version map global.
set -eu
out=$1 int=$2 map=$3 objcopy=$4 ar=$5
shift 5

tmp=$out.tmp
rm -rf "$tmp"
mkdir "$tmp"
sed -n 's/^[[:space:]]*\(pst_[a-z0-9_]*\);.*/\1/p' "$map" >"$tmp/global"
uring=$("$@" -print-file-name=liburing.a)
# The compiler knows its linker, a cross compiler too.
"$@" -r -nostdlib -o "$tmp/penstock.o" -Wl,--whole-archive "$int" -Wl,--no-whole-archive "$uring"
"$objcopy" --keep-global-symbols="$tmp/global" "$tmp/penstock.o"
rm -f "$out"
"$ar" rcsD "$out" "$tmp/penstock.o"
rm -rf "$tmp"
