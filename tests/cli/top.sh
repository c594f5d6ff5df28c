#!/bin/sh
# SPDX-License-Identifier: MIT
# top: activity of a mount, as a table and as JSON, of one directory or of all mounts; an error if
# there is nothing to show.
. "$(dirname "$0")/lib.sh"

serve() { # OPTION...
	need_mount
	gives 0 "$PENSTOCK" mount mnt --source src "$@"
}

# umount does not wait for the server's end.
gone() {
	gives 0 "$PENSTOCK" umount mnt
	for _ in $(seq 500); do
		[ -e "${1:-mnt/none}" ] || return 0
		sleep 0.01
	done
	return 1
}

# Run a program with a ring: a build has RINGER, a bundle does not.
ring() { # READS UID
	[ -x "${RINGER:-}" ] || skip "the program mount-ringer"
	head -c 65536 /dev/urandom >src/data
	mkfifo "hold$2" 2>/dev/null || :
	"$RINGER" mnt data "$1" "$2" <"hold$2" >"said$2" &
	eval "exec $((3 + ($2 > 0)))>hold$2"
	for _ in $(seq 1000); do
		! grep -q '^done$' "said$2" || return 0
		sleep 0.01
	done
	cat "said$2"
	return 1
}

shows_a_mount() {
	serve
	gives 0 "$PENSTOCK" top mnt --once --interval 0.1
	says "$PWD/mnt  from $PWD/src" out
	says "penstock $("$PENSTOCK" --version | cut -d ' ' -f 2)" out
	says "with passthrough by the kernel" out
	says "Nobody has rings here." out
	plain_text out
	gone
}

shows_users() {
	serve --memory 64m
	ring 200 0
	ring 100 65534
	gives 0 "$PENSTOCK" top mnt --once --interval 0.3
	says "each user may publish 64MB of memory" out
	grep -Eq '^USER +REQ/S +READ +WRITTEN +P50 +P99 +ERR/S +MEM +PATH$' out
	[ "$(grep -cE '^(root|nobody) +[0-9]' out)" = 2 ]
	COLUMNS=80 gives 0 "$PENSTOCK" top mnt --once --interval 0.1
	# Directory names are not wrapped.
	[ "$(awk 'length > 80 && !/(mnt|src)$/' out | wc -l)" = 0 ]
	says "$PWD/mnt" out
	gives 0 "$PENSTOCK" top mnt --once --json --interval 0.1
	json out 'd["dir"].endswith("/mnt") and len(d["users"]) == 2 and d["bytes_limit"] == 64 << 20'
	json out 'all(u["requests"] == {0: 201, 65534: 101}[u["uid"]] for u in d["users"])'
	json out 'all(u["errors"] == 1 and u["rings"] == 1 and u["iovs"] == 1 for u in d["users"])'
	json out 'all(u["read_bytes"] == 4096 * (u["requests"] - 1) for u in d["users"])'
	json out 'all(u["paths"] and u["worker"]["state"] == "running" for u in d["users"])'
	exec 3>&- 4>&-
	wait
	gone
}

# While users work: rates, percentiles and the order of rows.
shows_rates() {
	serve
	[ -x "${RINGER:-}" ] || skip "the program mount-ringer"
	head -c 65536 /dev/urandom >src/data
	mkfifo hold
	"$RINGER" mnt data 100000000 <hold >said &
	worker=$!
	exec 3>hold
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		gives 0 "$PENSTOCK" top mnt --once --json --interval 0.2
		! python3 -c 'import json; assert json.load(open("out"))["users"][0]["requests_per_s"] > 0' \
			2>/dev/null || break
	done
	json out 'd["users"][0]["requests_per_s"] > 0 and d["users"][0]["read_bytes_per_s"] > 0'
	json out '0 < d["users"][0]["p50_us"] <= d["users"][0]["p99_us"]'
	gives 0 "$PENSTOCK" top --metrics "$(socket_of)" --once --interval 0.2
	grep -Eq '^root +[0-9.]+k? +[0-9.]+ [kMG]?B/s +0 B/s +[0-9.]+ [num]?s +[0-9.]+ [num]?s +0 ' out
	kill $worker
	exec 3>&-
	wait $worker || :
	gone
}

# Compute the name of the server's socket from the mount point's name, as the server does.
socket_of() {
	python3 -c 'import os
n = 0xcbf29ce484222325
for b in os.fsencode(os.path.realpath("mnt")):
    n = (n ^ b) * 0x100000001b3 % 2**64
print(f"/run/penstock/{n:016x}.metrics")'
}

# Problems are listed below the table.
shows_trouble() {
	serve
	ring 10 0
	worker=$(awk -F '"' '/^penstock_worker_info/ { print $4 }' <<-END
		$(python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b"GET /metrics HTTP/1.1\r\n\r\n")
print(s.makefile().read())' "$(socket_of)")
	END
	)
	kill -STOP "$worker"
	gives 0 "$PENSTOCK" top mnt --once --interval 0.1
	says "! root: worker $worker is stopped" out
	kill -KILL "$worker"
	exec 3>&-
	wait
	gone
}

in_a_row() {
	serve
	gives 0 timeout -s INT 5 sh -c '"$1" top mnt --json --interval 0.1 | head -n 3' sh "$PENSTOCK"
	[ "$(wc -l <out)" = 3 ]
	python3 -c 'import json
assert all(json.loads(line)["interval_s"] >= 0.1 for line in open("out"))'
	gone
}

on_a_terminal() {
	serve
	need script
	# A busy machine may need longer for the first table.
	for s in 1 2 4 8; do
		script -qec "stty rows 20 cols 80; timeout -s INT $s '$PENSTOCK' top mnt --interval 0.2" \
			/dev/null >out 2>&1 </dev/null || :
		! grep -qF "Nobody has rings here." out || break
	done
	# The command uses the alternate screen and restores the first one.
	says "$(printf '\033[?1049h')" out
	says "$(printf '\033[?1049l')" out
	says "Nobody has rings here." out
	gone
}

other_sockets() {
	serve --metrics numbers
	[ "$(stat -c %a numbers)" = 600 ]
	fails "tells no numbers at" "$PENSTOCK" top mnt
	fails "another path, which 'penstock top --metrics PATH' takes" "$PENSTOCK" top mnt
	gives 0 "$PENSTOCK" top --metrics ./numbers --once --interval 0.1
	says "$PWD/mnt  from" out
	gone "$PWD/numbers"
	[ ! -e numbers ]
	serve --metrics none
	fails "tells no numbers at" "$PENSTOCK" top mnt
	gone
}

# Use a port of the loopback instead of a Unix socket.
a_port() {
	need python3
	need_mount
	# Another program may take the port first.
	for _ in 1 2 3 4 5; do
		at=127.0.0.1:$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
		got=0
		"$PENSTOCK" mount mnt --source src --metrics "$at" >out 2>err || got=$?
		grep -q "in use" err || break
	done
	[ $got = 0 ]
	gives 0 "$PENSTOCK" top --metrics "$at" --once --interval 0.1
	says "$PWD/mnt  from $PWD/src" out
	fails "tells no numbers at" "$PENSTOCK" top mnt
	gone
}

# Commands that kill the server of mnt, for this shell and others.
# shellcheck disable=SC2016
kill_server='
	for p in /proc/[0-9]*; do
		if tr "\0" "\n" 2>/dev/null <"$p/cmdline" | grep -qxF "$PWD/mnt"; then
			kill -KILL "${p#/proc/}"
		fi
	done
	for _ in $(seq 500); do
		ls mnt >/dev/null 2>&1 || break
		sleep 0.01
	done'

# The server is killed: its socket stays, and the next server replaces it.
a_dead_server() {
	serve
	socket=$(socket_of)
	eval "$kill_server"
	fails "has ended" "$PENSTOCK" top mnt
	[ -S "$socket" ]
	fails "has ended" "$PENSTOCK" top --metrics "$socket"
	gives 0 "$PENSTOCK" umount mnt
	serve
	[ -S "$socket" ]
	gives 0 "$PENSTOCK" top mnt --once --interval 0.1
	gone "$socket"
	[ ! -e "$socket" ]
}

no_mount() {
	mkdir dir
	fails "is no mount of 'penstock mount --source'" "$PENSTOCK" top dir
	fails "none: No such file" "$PENSTOCK" top none
	fails "No such file" "$PENSTOCK" top --metrics ./none
	touch file
	fails "has ended" "$PENSTOCK" top --metrics ./file
	gives 2 "$PENSTOCK" top --metrics name
	gives 2 "$PENSTOCK" top --metrics 10.0.0.1:9464
	gives 2 "$PENSTOCK" top dir --metrics ./none
	gives 2 "$PENSTOCK" top --interval 0
	says "--interval takes seconds" err
}

# The previous server may not have ended yet: the new one waits for the name.
mounted_again() {
	for _ in 1 2 3 4 5; do
		serve
		gives 0 "$PENSTOCK" top mnt --once --interval 0.01
		gives 0 "$PENSTOCK" umount mnt
	done
}

# private COMMANDS: run them where other mounts are not visible; $1 is the command.
private() {
	need unshare
	unshare -m true 2>/dev/null || skip "the right to make a mount namespace"
	unshare -m sh -c "umount -a -t fuse.hf3fs
		$1" sh "$PENSTOCK"
}

no_mount_at_all() {
	need_mount
	# shellcheck disable=SC2016
	private '"$1" top --once' >out 2>err && return 1
	says "there is no mount here that tells numbers" err
	[ ! -s out ]
}

# Without a directory, each mount with metrics has a block or a line.
all_of_them() {
	need_mount
	mkdir mnt2 mnt3
	# shellcheck disable=SC2016
	private '
		"$1" mount mnt --source src >&2 && "$1" mount mnt2 --source src >&2 &&
			"$1" mount mnt3 --source src --metrics none >&2
		"$1" top --once --interval 0.1 >table || exit 1
		"$1" top --once --json --interval 0.1 >lines || exit 1
		# A mount whose server has ended is named, and the other one is shown.
		'"$kill_server"'
		"$1" top --once --interval 0.1 >table2 2>said
		echo $? >status
		"$1" umount mnt >&2
		"$1" top --once --interval 0.1 >table3
		"$1" umount mnt2 >&2
		"$1" umount mnt3 >&2' 2>err
	for dir in mnt mnt2; do
		says "$PWD/$dir  from $PWD/src" table
	done
	[ "$(grep -c "  from " table)" = 2 ]
	[ "$(grep -c "Nobody has rings here" table)" = 2 ]
	python3 -c 'import json
dirs = [json.loads(line)["dir"] for line in open("lines")]
assert sorted(d.rpartition("/")[2] for d in dirs) == ["mnt", "mnt2"], dirs'
	says "the server of $PWD/mnt has ended" said
	[ "$(cat status)" = 1 ]
	[ "$(grep -c "  from " table2)" = 1 ]
	says "$PWD/mnt2  from" table2
	[ "$(grep -c "  from " table3)" = 1 ]
}

no_permission() {
	serve
	need_other
	fails "are for root: run it as root" as_other "$PENSTOCK" top "$PWD/mnt"
	fails "are for who mounted it, and for root" as_other "$PENSTOCK" top
	gone
}

# A foreign server closes the connection or answers with nonsense.
hostile_server() {
	for answer in '' 'nonsense' 'HTTP/1.1 500 No\r\n\r\n' 'HTTP/1.1 200 OK\r\n\r\nnonsense\n' \
		'HTTP/1.1 200 OK\r\n\r\na{b="c} 1\n' 'HTTP/1.1 200 OK\r\n\r\npenstock_rings{uid="1"} 0x\n'; do
		python3 - "$answer" <<-'END' &
			import os, socket, sys
			s = socket.socket(socket.AF_UNIX)
			s.bind("false.tmp")
			s.listen(1)
			os.rename("false.tmp", "false")
			c = s.accept()[0]
			c.recv(1000)
			c.sendall(sys.argv[1].encode().decode("unicode_escape").encode("latin-1"))
		END
		for _ in $(seq 500); do
			[ ! -S false ] || break
			sleep 0.01
		done
		fails "" "$PENSTOCK" top --metrics ./false --once
		plain_text err
		wait
		rm false
	done
}

run_cases shows_a_mount shows_users shows_rates shows_trouble in_a_row on_a_terminal other_sockets a_port a_dead_server \
	no_mount mounted_again no_mount_at_all all_of_them no_permission hostile_server
