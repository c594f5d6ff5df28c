#!/bin/sh
# SPDX-License-Identifier: MIT
# bench.sh DIR SRC PID: the measurements of bench/ run on a mount, find the right bytes, and print
# each of their rows.  The figures themselves are not checked.
#
# lib.sh sets base.
# shellcheck disable=SC2154
dir=${1:?is the mount}
src=${2:-$dir}
PENSTOCK=${PENSTOCK:-/nonexistent}
. "$(dirname "$0")/../cli/lib.sh"

pairs() {
	"$PENSTOCK" mount --plain "$src" >/dev/null
	"$BENCH_MOUNT" -n 1 -m 5 -f 8 "$dir" "$src" >out 2>&1 || {
		cat out
		return 1
	}
	[ "$(grep -c '^[14] [KM]iB' out)" = 17 ] || {
		cat out
		return 1
	}
}

fair() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	chmod 755 "$dir"
	"$BENCH_FAIR" -n 1 -m 50 -d 4 "$dir" >out 2>err || {
		cat out err
		return 1
	}
	for row in good hostile busy busy3 nobody 'reads/s, good to hostile' 'p99, hostile to good' \
		'p99, busy to good' 'p99, hostile to busy3'; do
		grep -q "^$row *[0-9]" out || {
			cat out
			return 1
		}
	done
	# Remove memory that killed processes leave.
	rm -f /dev/shm/hf3fs-iov-*
}

names() {
	"$BENCH_NAMES" -n 1 -m 1 -t 2 source="$src" mount="$dir" >out 2>&1 || {
		cat out
		return 1
	}
	for row in 'stat' 'stat, synced' 'open, close' 'create, close' 'create, write, close' rename \
		unlink readdir; do
		[ "$(grep -cE "^$row +2  (source|mount) +([0-9.]+ *){5}\$" out)" = 2 ] || {
			cat out
			return 1
		}
	done
}

# Without bindfs the comparison names what is missing.
names_without_bindfs() {
	mkdir -p empty/bench
	: >empty/bench/names
	chmod 755 empty/bench/names
	# The script needs only dirname before it looks for bindfs.
	mkdir bin
	ln -s "$(command -v dirname)" bin/dirname
	! PATH=$PWD/bin "$MOUNT_NAMES" -b "$PWD/empty" >out 2>&1 || return 1
	grep -q 'bindfs is not there.*install' out || {
		cat out
		return 1
	}
}

run_cases pairs fair names names_without_bindfs
