#!/bin/sh
# SPDX-License-Identifier: MIT
# static-lib.sh OUT.a INTERNAL.a MAP OBJCOPY AR CC...
# Creates OUT.a with a single object: all of INTERNAL.a, and the parts of liburing that it uses.
# Only the symbols of the version map MAP are global.
set -eu
out=$1 int=$2 map=$3 objcopy=$4 ar=$5
shift 5

tmp=$out.tmp
rm -rf "$tmp"
mkdir "$tmp"
sed -n 's/^[[:space:]]*\(pst_[a-z0-9_]*\);.*/\1/p' "$map" >"$tmp/global"
uring=$("$@" -print-file-name=liburing.a)
# Link with $CC, because a cross compiler knows its linker.
"$@" -r -nostdlib -o "$tmp/penstock.o" -Wl,--whole-archive "$int" -Wl,--no-whole-archive "$uring"
"$objcopy" --keep-global-symbols="$tmp/global" "$tmp/penstock.o"
rm -f "$out"
"$ar" rcsD "$out" "$tmp/penstock.o"
rm -rf "$tmp"
