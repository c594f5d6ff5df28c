#!/bin/sh
# SPDX-License-Identifier: MIT
# dlopen-note.sh LIBRARY SRC [OPTION_OF_GREP...]: libraries that are loaded at run time are named in
# notes for packagers, in the form of https://systemd.io/ELF_DLOPEN_METADATA/.
set -u
lib=$1
src=$2
shift 2
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

command -v readelf >/dev/null 2>&1 || {
	echo "1..0 # SKIP readelf is not installed"
	exit 0
}

# Sections of the type NOTE, loaded with the file, four bytes aligned.
section=$(readelf -SW "$lib" | sed -n 's/.*\.note\.dlopen *//p')
case $section in
'NOTE '*' A '*' 4') result section "" ;;
*) result section "no such section: '$section'" ;;
esac

# Older readelf does not know the type's name, and prints all notes on one line.
notes=$(readelf -nW "$lib" | grep -oE 'FDO +0x[0-9a-f]+[^(]*(\(0x407c0c0a|DLOPEN)' | wc -l)
sonames=$(grep "$@" -rhoE '"lib[A-Za-z0-9_-]+\.so(\.[0-9]+)?"' "$src" | tr -d '"' | grep -v '^libpenstock-' | sort -u)
want=$(echo "$sonames" | grep -c .)
if [ "$want" -gt 0 ] && [ "$notes" = "$want" ]; then
	result a_note_for_each_library ""
else
	result a_note_for_each_library "$notes notes for $want libraries: $sonames"
fi

json=$(readelf -pW .note.dlopen "$lib" 2>/dev/null || readelf -p .note.dlopen "$lib")
said=$(echo "$json" | sed -n 's/^.*\(\[{.*}\]\)$/\1/p' | python3 -c '
import json, sys
for line in sys.stdin:
    for entry in json.loads(line):
        assert entry["priority"] in ("required", "recommended", "suggested"), entry
        assert entry["feature"] and entry["description"], entry
        print("\n".join(entry["soname"]))' | sort -u)
if [ "$said" = "$sonames" ]; then
	result json_names_them ""
else
	result json_names_them "the notes name '$said', the sources '$sonames'"
fi

echo "1..$n"
exit $failed
