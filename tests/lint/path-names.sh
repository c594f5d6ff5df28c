#!/bin/sh
# SPDX-License-Identifier: MIT
# path-names.sh [ROOT]: the queue, the engines, the planner, the parts and the public calls name no
# path.  They use the table (src/core/ways/path.h).  The last case plants names to prove that this
# test can fail.
set -eu
root=${1:-$(dirname "$0")/../..}
root=$(cd "$root" && pwd)

# Files that must not name a path; and the table, which names all.
rooms='src/core/queue/*.[ch] src/core/sched/*.[ch] src/core/stream/*.[ch] src/core/carry/*.[ch]
	src/core/ways/plan.[ch] src/core/ways/part.[ch] src/core/ways/part_proof.c src/api/*.[ch]'
table='src/core/ways/path.c src/core/ways/path.h'

# Headers of src/core/ways that belong to no path.
shared='(part|path|pieces|plan|proof|region|registration|source|trial|way)'

# Further prefixes of paths' functions.  window_ and peer_ do not count: the folders src/window and
# src/peer have these prefixes, and api/ calls their functions.
others='ahead|cached_window|cufile|mappings?|small|warm|window_cache'

# Print FILE:LINE: TEXT for each line that names a path: its number (except PST_PATH_MAX and
# PST_PATH_BIT()), its table, its header, its functions and types.  Comments and members of structs
# (f->direct_bad) do not count.
names() { # ROOT
	cd "$1"
	paths=$(sed -n 's/^[[:space:]]*\[PST_PATH_.*=/&/p' src/core/ways/path.c |
		grep -o '&path_[a-z]*' | sed 's/&path_//' | tr '\n' '|')
	paths=${paths%|}
	own=$(printf '%s' "$paths" | tr '|' '\n' | grep -vx -e window -e peer | tr '\n' '|')$others
	# shellcheck disable=SC2086 # patterns
	awk -v paths="$paths" -v own="$own" -v shared="$shared" -v table="$table" '
	# Return the line without its comments.
	function code(line,    out, at) {
		out = ""
		while (line != "") {
			at = index(line, inside ? "*/" : "/*")
			if (!inside)
				out = out (at ? substr(line, 1, at - 1) : line)
			if (at)
				inside = !inside
			line = at ? substr(line, at + 2) : ""
		}
		return out
	}
	FNR == 1 { inside = 0 }
	{
		text = code($0)
		all = text
		gsub(/PST_PATH_(MAX|BIT)/, "", all)
		named = text ~ "(^|[^.>A-Za-z0-9_])(" own ")_[a-z0-9]" ||
			text ~ "struct (" own ")($|[^a-z0-9])"
		if (index(table, FILENAME) == 0)
			named = named || all ~ /PST_PATH_[A-Z]/ ||
				text ~ "(^|[^a-z_])path_(" paths ")($|[^a-z0-9_])"
		if (text ~ "^ *# *include *\"(core/ways/|gds/)")
			named = text !~ "\"core/ways/" shared "[.]h\""
		if (named)
			print FILENAME ":" FNR ": " text
	}' $rooms $table
}

echo "1..2"
found=$(names "$root")
if [ -z "$found" ]; then
	echo "ok 1 no_path_is_named"
else
	echo "not ok 1 no_path_is_named"
	printf '%s\n' "$found" | sed 's/^/# /'
fi

copy=$(mktemp -d "${TMPDIR:-/tmp}/path-names.XXXXXX")
trap 'rm -rf "$copy"' EXIT
for room in core/queue core/ways core/sched core/stream core/carry api; do
	mkdir -p "$copy/src/$room"
	: >"$copy/src/$room/none.c"
	: >"$copy/src/$room/none.h"
done
cp "$root/src/core/ways/path.c" "$copy/src/core/ways"
for f in path.h plan.c plan.h part.c part.h part_proof.c; do
	: >"$copy/src/core/ways/$f"
done
echo 'static int a = PST_PATH_DIRECT;' >"$copy/src/core/queue/a.c"
echo 'return path_direct.wanted(r);' >"$copy/src/core/queue/b.c"
echo '#include "core/ways/cached.h"' >"$copy/src/core/queue/c.c"
echo '	if (pagecache_still(m))' >"$copy/src/core/carry/d.c"
echo '	struct gds_route *e; /* of it */' >"$copy/src/core/sched/e.h"
echo '/* the end */ gds_file_end(f);' >"$copy/src/api/f.c"
echo '	struct mapping *g;' >"$copy/src/api/g.h"
echo 'small_let_go(r);' >>"$copy/src/core/ways/path.c"
printf '%s\n' '/* gds_fit() and' ' * PST_PATH_GDS */' 'return f->direct_bad;' 'x = large * small;' \
	'int paths[PST_PATH_MAX + 1];' '#include "core/ways/plan.h"' >"$copy/src/core/queue/none.c"
want='a.c b.c c.c d.c e.h f.c g.h path.c '
planted=$(names "$copy" | sed 's,.*/\([a-z_]*\.[ch]\):.*,\1,' | sort -u | tr '\n' ' ')
if [ "$planted" = "$want" ]; then
	echo "ok 2 names_are_found"
else
	echo "not ok 2 names_are_found"
	names "$copy" | sed 's/^/# /'
fi
