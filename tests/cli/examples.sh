#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs of examples/ do what their comments say.
. "$(dirname "$0")/lib.sh"

# They lie beside the command in a build folder, and nowhere else.
example() {
	path=$(dirname "$PENSTOCK")/../examples/$1
	[ -x "$path" ] || skip "there is no $1 here"
}

load_shards() {
	example load-shards
	gives 0 "$path"
	says "2 tensors, 1003417 bytes, by" out
	gives 0 "$path" -d host
	gives 1 "$path" nothing
	says "nothing" err
	random 5000 bad
	gives 1 "$path" bad
	says "bad: " err
	gives 1 "$path" -d soft:77
}

kv_offload() {
	example kv-offload
	gives 0 "$path"
	says "every byte is where it belongs" out
	gives 0 "$path" -d host .
	[ -z "$(find . -name 'kv-offload*')" ]
	PST_FAULT=store.write:3:EIO gives 1 "$path" .
	says "EIO" err
	[ -z "$(find . -name 'kv-offload*')" ]
}

run_cases load_shards kv_offload
