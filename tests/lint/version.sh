#!/bin/sh
# SPDX-License-Identifier: MIT
# version.sh [ROOT]: all files contain the same version, and NEWS.md has an entry for it.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1

n=0
failed=0
same() { # NAME WANT GOT
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n $1"
	else
		printf 'not ok %d %s\n# it is "%s" and not "%s"\n' $n "$1" "$3" "$2"
		failed=1
	fi
}

part() {
	sed -n "s/^#define PST_VERSION_$1 \([0-9]*\)$/\1/p" include/penstock.h
}

# The package computes __version__ from these constants.
constant() {
	sed -n "s/^PST_VERSION_$1 = \([0-9]*\)$/\1/p" python/penstock/_abi.py
}

version=$(sed -n "s/^  version: '\([0-9.]*\)',$/\1/p" meson.build)
same meson_build_has_one 1 "$(echo "$version" | grep -cE '^[0-9]+\.[0-9]+\.[0-9]+$')"
same header "$version" "$(part MAJOR).$(part MINOR).$(part PATCH)"
same python "$version" "$(constant MAJOR).$(constant MINOR).$(constant PATCH)"
same news "## $version" "$(grep -x "## $version" NEWS.md)"
echo "1..$n"
exit $failed
