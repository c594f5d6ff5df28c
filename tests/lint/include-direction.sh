#!/bin/sh
# SPDX-License-Identifier: MIT
# include-direction.sh [ROOT]: a folder includes only itself and folders to its left in
#
# 	base  <  topo, mem, file, net  <  window, remote, peer, gds  <  core, gds/path  <  api
#
# and within core in
#
# 	queue  <  ways  <  sched  <  stream  <  carry
#
# Providers in one folder do not know each other.  Code outside the library sees <penstock.h>,
# shared formats (usrbio/proto) and helpers (tools/common).  The last case plants violations to
# prove that this test can fail.
set -eu
root=${1:-$(dirname "$0")/../..}
root=$(cd "$root" && pwd)

# Print the folders from which a file may include, with everything below them; "public" is
# <penstock.h>.
allowed() {
	case $1 in
	src/base/*) echo "base public" ;;
	src/topo/*) echo "base topo public" ;;
	src/mem/*) echo "base mem public" ;;
	src/window/*) echo "base window mem topo public" ;;
	src/file/*) echo "base file public" ;;
	# Paths include the core; the core's lower layers do not include paths.
	src/gds/path/*) echo "base gds core mem topo window file public" ;;
	src/gds/*) echo "base gds/cufile gds/facts mem topo file public" ;;
	# RDMA devices register memory of any kind.
	src/net/verbs/*) echo "base net/verbs mem public" ;;
	src/net/*) echo "base net public" ;;
	# The RDMA device of the server accesses a request's memory.
	src/remote/*) echo "base remote mem net file public" ;;
	src/peer/*) echo "base mem net file peer public" ;;
	src/core/queue/*) echo "base mem file core/queue public" ;;
	src/core/ways/*) echo "base mem window file core/queue core/ways public" ;;
	src/core/sched/*) echo "base mem topo file core/queue core/ways core/sched public" ;;
	src/core/stream/*) echo "base core/queue core/ways core/sched core/stream public" ;;
	src/core/carry/*) echo "base mem topo window file core public" ;;
	# Only the module may include providers.
	src/tier/provider.c) echo "base tier file public" ;;
	src/tier/provider_names.c) echo "base tier file public" ;;
	src/tier/*) echo "base tier public" ;;
	src/rados/*) echo "base file rados public" ;;
	src/s3/*) echo "base file s3 public" ;;
	src/api/*) echo "base mem net topo window file remote peer gds core api public" ;;
	serve/*) echo "base net serve" ;;
	# The client of a served store includes the parts of the storage service's client that do
	# not need libpenstock.
	kv/remote.c|kv/remote.h)
		echo "base net remote kv public"
		;;
	# The store may include only the policies of tiers.
	kv/*) echo "base tier kv public" ;;
	usrbio/proto/*) echo "base usrbio/proto" ;;
	usrbio/server/*) echo "base usrbio/proto usrbio/server public" ;;
	# Broker and worker of a mount share their messages; only the worker executes requests.
	usrbio/mount/worker.c) echo "base usrbio/mount usrbio/proto usrbio/server public" ;;
	# src/base/names.c has names of paths.
	usrbio/mount/metrics.c) echo "base net usrbio/mount usrbio/proto public" ;;
	usrbio/mount/set.c|usrbio/mount/set_names.c|usrbio/mount/set_private.h)
		echo "base tier usrbio/mount usrbio/proto"
		;;
	# A mount may include those parts of the storage service's client that do not need
	# libpenstock.
	usrbio/mount/service.h|usrbio/mount/service.c|usrbio/mount/service_attr.c|usrbio/mount/service_file.c|usrbio/mount/service_names.c)
		echo "base net remote usrbio/mount usrbio/proto"
		;;
	usrbio/mount/*) echo "base net usrbio/mount usrbio/proto" ;;
	usrbio/library/*) echo "base usrbio/proto usrbio/server usrbio/library public" ;;
	# gdrcopy's tools are part of the command: they measure as penstock window does.
	compat/gdrapi/tools/*) echo "base cli/window compat/gdrapi/tools tools/common public" ;;
	compat/gdrapi/*) echo "base public" ;;
	compat/fio/*) echo "public" ;;
	compat/nixl/*) echo "public" ;;
	compat/streamer/*) echo "base public" ;;
	# Commands do not include each other; all may include the list of commands.
	cli/tier/*) echo "base tier cli/tier cli/commands.h tools/common public" ;;
	# cp to a file in a set of tiers.
	cli/cp/tier.c) echo "base tier cli/cp tools/common public" ;;
	# The server's access to a store of KV blocks.
	cli/serve/store.c|cli/serve/store.h)
		echo "cli/serve kv base serve tools/common public"
		;;
	cli/serve/*) echo "cli/serve cli/commands.h base net serve tools/common public" ;;
	cli/*/*) echo "${1%/*} cli/commands.h tools/common usrbio/proto public" ;;
	cli/*) echo "cli compat/gdrapi/tools tools/common public" ;;
	tools/common/*) echo "base tools/common public" ;;
	# Baselines call the vendor's libraries by their ABI.
	bench/tiers.c) echo "base tier" ;;
	bench/crowd.c) echo "base bench net tools/common public" ;;
	bench/kv.c) echo "base tier kv tools/common public" ;;
	bench/*) echo "base bench gds/cufile mem/cuda tools/common usrbio/proto public" ;;
	examples/*) echo "tools/common public" ;;
	usrbio/python/*) echo "public" ;;
	esac
}

# Return true if FOLDER is one of ALLOWED or below one.
within() { # FOLDER ALLOWED
	for have in $2; do
		case $1/ in
		"$have"/*) return 0 ;;
		esac
	done
	return 1
}

# Print a line for each forbidden #include of a file.
check() { # ROOT FILE
	may=$(allowed "$2")
	sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"][^>"]*[>"]\).*/\1/p' "$1/$2" |
	while read -r inc; do
		name=${inc#?}
		name=${name%?}
		from=${name%/*}
		case $inc in
		'<penstock.h>') from=public ;;
		'"cli/commands.h"' | '"file/module.h"') from=$name ;;
		'<'*)
			# <net/if.h> belongs to the system; our <net/...> would exist.
			[ -f "$1/src/$name" ] || [ -f "$1/$name" ] || continue
			;;
		'"'*..*) ;;
		*)
			# A header of the same folder.
			case $name in
			*/*) ;;
			*) [ -f "$1/${2%/*}/$name" ] && continue ;;
			esac
			;;
		esac
		within "$from" "$may" || echo "$2: must not include $inc"
	done
}

# List the C files of these folders.
files() { # ROOT FOLDER...
	(
		cd "$1"
		shift
		find "$@" -name '*.[ch]' | sort
	)
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

# A folder unknown to this test would go unchecked.
unknown=
rooms=$(cd "$root" &&
	ls -d src/*/ src/core/*/ usrbio/*/ compat/*/ serve kv cli tools/*/ bench examples)
for room in $rooms; do
	room=${room%/}
	[ "$room" != src/core ] || continue # its rooms are there by themselves
	[ -n "$(files "$root" "$room")" ] || continue
	if [ -z "$(allowed "$room/a.c")" ]; then
		unknown="$unknown $room"
		continue
	fi
	result "$room" "$(files "$root" "$room" | while read -r f; do check "$root" "$f"; done)"
done
result every_folder_is_listed "$unknown"

# List the folders in allowed(), in its labels and its answers.
missing=
named=$(sed -n 's/^	\([a-z][^)]*\)) echo "\(.*\)" ;;$/\1 \2/p' "$0" | tr ' ' '\n' | sort -u)
# Keep a label such as bench/*, whatever files the current directory has.
set -f
for room in $named; do
	case $room in
	public | '$'* | cli/\*/\*) continue ;;
	esac
	room=${room%/\*}
	[ -e "$root/$room" ] || [ -e "$root/src/$room" ] || missing="$missing $room"
done
set +f
result every_listed_folder_is_there "$missing"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/base" "$tmp/src/mem/cuda" "$tmp/src/file" \
	"$tmp/src/core/queue" "$tmp/src/core/ways" "$tmp/src/core/sched" \
	"$tmp/src/gds/cufile" "$tmp/src/gds/path" "$tmp/cli/cp" "$tmp/compat/gdrapi"
: >"$tmp/src/core/queue/queue.h"
echo '#include "core/queue/queue.h"' >"$tmp/src/base/a.c"
echo '#include "file/file.h"' >"$tmp/src/mem/cuda/b.c"
echo '# include "../mem/mem.h"' >"$tmp/src/file/c.c"
echo '#include <core/queue/queue.h>' >"$tmp/cli/cp/d.c"
echo '#include <net/if.h>' >"$tmp/src/core/queue/e.c"
echo '#include "core/queue/queue.h"' >"$tmp/src/core/ways/i.c"
echo '#include "core/carry/job.h"' >"$tmp/src/core/sched/j.c"
echo '#include "core/core.h"' >"$tmp/src/gds/cufile/f.c"
echo '#include "core/core.h"' >"$tmp/src/gds/path/g.c"
: >"$tmp/compat/gdrapi/log.h"
echo '#include "log.h"' >"$tmp/compat/gdrapi/h.c"
echo '#include "mem/mem.h"' >>"$tmp/compat/gdrapi/h.c"
found=$(files "$tmp" src cli compat | while read -r f; do check "$tmp" "$f"; done)
want='cli/cp/d.c: must not include <core/queue/queue.h>
compat/gdrapi/h.c: must not include "mem/mem.h"
src/base/a.c: must not include "core/queue/queue.h"
src/core/sched/j.c: must not include "core/carry/job.h"
src/file/c.c: must not include "../mem/mem.h"
src/gds/cufile/f.c: must not include "core/core.h"
src/mem/cuda/b.c: must not include "file/file.h"'
if [ "$found" = "$want" ]; then
	result planted_violations_are_found ""
else
	result planted_violations_are_found "$found"
fi

echo "1..$n"
exit $failed
