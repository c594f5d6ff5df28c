#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/raw on the stubs of both vendor libraries: each mode moves and compares the requested bytes,
# or prints what is missing.  RAW_BENCH is the program.
. "$(dirname "$0")/lib.sh"

# raw STATUS ARGUMENT...: run bench/raw with a file of 4 MiB.
raw() {
	status=$1
	shift
	use_stub 1
	[ -e file ] || random 4194304 file
	gives "$status" "$RAW_BENCH" "$@"
}

# Skip if the file system lacks O_DIRECT.
direct_or_skip() {
	[ -e file ] || random 4194304 file
	dd if=file of=/dev/null bs=1M iflag=direct 2>err || skip "O_DIRECT on this file system"
}

pinned() {
	raw 0 pinned file --size 64k --threads 2 --passes 3 --offsets random --json
	json out 'd["tool"] == "raw" and d["mode"] == "pinned" and len(d["passes"]) == 3'
	json out 'all(p["bytes"] == 4194304 and p["gb_per_s"] > 0 for p in d["passes"])'
	# Each thread compares two slots after each pass.
	json out '0 < d["verified_bytes"] <= 3 * 2 * 2 * 65536'
	json out '0 < d["p50_us"] <= d["p99_us"] and d["gb_per_s"] > 0'
	[ ! -s err ]
}

table() {
	raw 0 pinned file --size 1m --passes 2
	says "pinned file, pieces of 1024 KiB, 1 threads, sequential offsets, buffered" out
	says "of it compared" out
	[ "$(grep -c '^ *[12] ' out)" = 2 ]
}

blocks() {
	raw 0 pinned file --size 64k --block 4k --threads 2 --offsets random --json
	json out 'd["block"] == 4096 and d["passes"][0]["bytes"] == 4194304 and d["verified_bytes"] > 0'
	raw 2 odirect file --size 64k --block 4k
	says "plain and pinned" err
}

rounds() {
	raw 0 pinned file --size 64k --bytes 128k --seconds 0.5 --json
	json out 'd["passes"][0]["bytes"] > 131072 and d["passes"][0]["seconds"] >= 0.5'
}

odirect() {
	direct_or_skip
	raw 0 odirect file --size 64k --bytes 1m --json
	json out 'd["device"] == "host" and d["io"] == "direct" and d["passes"][0]["bytes"] == 1048576'
}

writes() {
	direct_or_skip
	cp file copy
	raw 2 gpu-write file --size 64k
	says "say --overwrite" err
	cmp file copy
	raw 0 gpu-write file --size 64k --overwrite --json
	json out 'd["write"] and d["passes"][0]["bytes"] == 4194304 and d["verified_bytes"] > 0'
	! cmp -s file copy
}

cufile() {
	[ -n "${STUB_LIBCUFILE:-}" ] || skip "STUB_LIBCUFILE, which names the library's double"
	raw 0 cufile file --size 64k --threads 2 --libcufile "$STUB_LIBCUFILE" --json
	json out 'd["mode"] == "cufile" and d["passes"][0]["bytes"] == 4194304'
	json out 'd["verified_bytes"] > 0'
	STUB_CUFILE=udev=0
	export STUB_CUFILE
	raw 3 cufile file --size 64k --libcufile "$STUB_LIBCUFILE" --json
	json out 'd["refused"] == "cuFileHandleRegister" and d["code"] == 5027'
	[ ! -e cufile.log ]
}

missing() {
	raw 3 cufile file --libcufile /nonexistent/libcufile.so.0
	says "libcufile.so.0" err
	PST_LIBCUDA=/nonexistent/libcuda.so.1
	export PST_LIBCUDA
	gives 3 "$RAW_BENCH" pinned file
	says "libcuda.so.1" err
}

options() {
	for args in "pinned" "nothing file" "pinned file --size 0" "pinned file --size 3x" \
		"pinned file --threads 0" "pinned file --threads 257" "pinned file --passes 0" \
		"pinned file --offsets sideways" "pinned file --size 64k --block 3k" "odirect file --io buffered" "pinned file --write"; do
		# shellcheck disable=SC2086
		raw 2 $args
		[ ! -s out ]
	done
	raw 0 --help
	says "Usage: raw" out
	raw 1 pinned file --size 8m
	says "smaller than a piece" err
	raw 1 pinned nowhere
	says "nowhere" err
}

run_cases pinned table blocks rounds odirect writes cufile missing options
