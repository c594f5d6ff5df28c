#!/bin/sh
# SPDX-License-Identifier: MIT
# doctor: a verdict in three lines, wherever it runs.
. "$(dirname "$0")/lib.sh"

verdict() { # FIRST_LINE_BEGINS
	[ "$(sed -n 1p out | cut -c "1-${#1}")" = "$1" ]
	[ "$(sed -n 2p out | cut -c 1-8)" = "LIMITS: " ]
	[ "$(sed -n 3p out | cut -c 1-6)" = "NEXT: " ]
}

three_lines_first() {
	gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: files reach "
	for part in devices stores paths limits machine; do
		grep -q "^$part" out
	done
	[ ! -s err ]
	[ -z "$(find . -type d -name 'penstock-*')" ]
}

json_output() {
	gives 0 "$PENSTOCK" doctor --dir . --json
	json out 'd["ok"] and len(d["verdict"]) == 3'
	json out '{"host", "soft:0"} <= {x["name"] for x in d["devices"]}'
	json out 'all(x["paths"]["buffered"]["read"]["state"] == "proven" for x in d["devices"])'
	json out 'all(x["paths"]["buffered"]["write"]["state"] == "proven" for x in d["devices"])'
	[ ! -s err ]
}

no_uring() {
	PST_FAULT=store.uring:0:EPERM gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: "
	sed -n 2p out >line
	says "threads are used" line
}

no_direct() {
	PST_FAULT=store.direct:0:EINVAL gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: "
	grep -q 'direct .*impossible' out
}

no_directory() {
	gives 0 "$PENSTOCK" doctor --dir nowhere
	verdict "BAD: no file to try with"
	gives 0 "$PENSTOCK" doctor --dir nowhere --json
	json out 'not d["ok"] and d["files"]["error"]'
}

no_descriptors() {
	for n in 4 6 8 12; do
		gives 0 sh -c "ulimit -n $n; exec \"\$0\" doctor --dir ." "$PENSTOCK"
	done
	[ "$(wc -l <out)" -gt 10 ]
}

failing_device() {
	PST_FAULT=mem.alloc:0:ENOMEM gives 0 "$PENSTOCK" doctor --dir .
	verdict "BAD: files do not reach"
}

failing_disk() {
	PST_FAULT=store.read:0:EIO,store.write:0:EIO gives 0 "$PENSTOCK" doctor --dir .
	verdict "BAD: files do not reach"
	says "EIO" out
}

empty_environment() {
	gives 0 env -i "$PENSTOCK" doctor --dir .
	verdict "OK: "
}

run_cases three_lines_first json_output no_uring no_direct no_directory no_descriptors \
	failing_device failing_disk empty_environment
