#!/bin/sh
# SPDX-License-Identifier: MIT
# include-direction.sh [ROOT]: a layer includes only what stands to its left in
#
#	base  <  mem, net, topo  <  window, store, remote  <  core  <  penstock.c  <  the rest
#
# Providers of one layer do not know each other, and what is not the library itself sees
# only <penstock.h>.  The last case plants a violation to see that this test can fail.
set -eu
root=${1:-$(dirname "$0")/../..}
root=$(cd "$root" && pwd)

# Folders of src/ that files of the given place may include; "public" is <penstock.h>.
allowed() {
	case $1 in
	src/base) echo "base public" ;;
	src/mem) echo "base mem public" ;;
	src/net) echo "base net public" ;;
	src/topo) echo "base topo public" ;;
	src/proto) echo "base proto" ;;
	src/window) echo "base window mem net topo public" ;;
	src/store) echo "base store public" ;;
	src/remote) echo "base remote net store public" ;;
	src/core) echo "base core mem net topo window store remote public" ;;
	src/tier) echo "base tier core public" ;;
	src) echo "base mem net topo window store remote core tier public" ;;
	src/worker) echo "base proto worker public" ;;
	compat/gdrapi | daemon) echo "proto public" ;;
	compat/usrbio) echo "base proto worker public" ;;
	cli) echo "proto public" ;;
	# What it measures beside us is called by the vendor's ABI; the command has the means.
	bench) echo "base cli public" ;;
	python | examples) echo "public" ;;
	esac
}

# Print one line for each #include of the folder that it must not have.
check() { # ROOT PLACE
	for f in "$1/$2"/*.[ch]; do
		[ -f "$f" ] || continue
		sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"][^>"]*[>"]\).*/\1/p' "$f" |
		while read -r inc; do
			name=${inc#?}
			name=${name%?}
			case $inc in
			'<penstock.h>') part=public ;;
			'"'*..*) part=$name ;;
			'"'*/* | '<base/'* | '<mem/'* | '<net/'* | '<topo/'* | '<proto/'* | \
			'<window/'* | '<worker/'* | '<store/'* | '<remote/'* | '<core/'* | '<tier/'*)
				part=${name%%/*}
				# <net/if.h> is the system's; <net/...> of ours would exist.
				case $inc in '<'*) [ -f "$1/src/$name" ] || continue ;; esac
				;;
			'"'*)
				# A header of its own folder.
				[ -f "$1/$2/$name" ] && continue
				part=$name
				;;
			*) continue ;;
			esac
			case " $(allowed "$2") " in
			*" $part "*) ;;
			*) echo "$2/${f##*/}: must not include $inc" ;;
			esac
		done
	done
}

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

for place in src/base src/mem src/net src/topo src/proto src/window src/store src/remote \
	src/core src/tier src src/worker compat/gdrapi compat/usrbio daemon cli python examples bench; do
	[ -d "$root/$place" ] || continue
	result "$place" "$(check "$root" "$place")"
done

# Folders that this test does not know would go unchecked.
unknown=$(cd "$root" && for d in src/*/ compat/*/; do
	d=${d%/}
	[ -n "$(allowed "$d")" ] || echo "$d is not in this test's list"
done)
result every_folder_is_listed "$unknown"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/base" "$tmp/src/mem" "$tmp/src/store" "$tmp/src/core" "$tmp/cli" \
	"$tmp/compat/gdrapi"
: >"$tmp/src/core/queue.h"
echo '#include "core/queue.h"' >"$tmp/src/base/a.c"
echo '#include "store/store.h"' >"$tmp/src/mem/b.c"
echo '# include "../mem/mem.h"' >"$tmp/src/store/c.c"
echo '#include <core/queue.h>' >"$tmp/cli/d.c"
echo '#include <net/if.h>' >"$tmp/src/core/e.c"
: >"$tmp/compat/gdrapi/log.h"
echo '#include "log.h"' >"$tmp/compat/gdrapi/f.c"
echo '#include "base/base.h"' >>"$tmp/compat/gdrapi/f.c"
found=$(for place in src/base src/mem src/store src/core cli compat/gdrapi; do check "$tmp" "$place"; done)
want='src/base/a.c: must not include "core/queue.h"
src/mem/b.c: must not include "store/store.h"
src/store/c.c: must not include "../mem/mem.h"
cli/d.c: must not include <core/queue.h>
compat/gdrapi/f.c: must not include "base/base.h"'
if [ "$found" = "$want" ]; then
	result planted_violations_are_found ""
else
	result planted_violations_are_found "$found"
fi

echo "1..$n"
exit $failed
