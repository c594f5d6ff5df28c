#!/bin/sh
# SPDX-License-Identifier: MIT
# cp copies every byte.
. "$(dirname "$0")/lib.sh"

# Sizes around pages and blocks, and 0.
sizes="0 1 511 4095 4096 4097 65536 4194303 4194305 10485767"

round_trip() {
	for size in $sizes; do
		random "$size" src
		gives 0 "$PENSTOCK" cp "$@" src dst
		cmp src dst
		says "$size bytes in " out
		rm dst
	done
	no_leftovers .
}

plain() {
	round_trip
}

verified() {
	round_trip --verify
}

through_the_device() {
	round_trip --via soft:0 --verify
}

by_threads() {
	round_trip --store threads --verify
}

small_blocks_in_any_order() {
	round_trip --block 64k --depth 64 --verify
}

one_block_at_a_time() {
	round_trip --block 4k --depth 1 --no-sync
}

buffered_only() {
	round_trip --path buffered --verify
}

into_device_memory() {
	for size in $sizes; do
		random "$size" src
		gives 0 "$PENSTOCK" cp --verify src soft:0
		says "$size bytes in " out
		gives 0 "$PENSTOCK" cp --verify --device host src
		gives 0 "$PENSTOCK" cp --verify src host
	done
	[ ! -e soft:0 ] && [ ! -e host ]
}

gpu() {
	use_stub
	random 3000001 src
	gives 0 "$PENSTOCK" cp src cuda:1 --verify
	says "3000001 bytes in " out
	says ", into cuda:1 (Stub device 1); read by " out
	says "; read back and compared in " out
	gives 0 "$PENSTOCK" cp --via cuda src dst --verify
	grep -q ', through cuda:0 (Stub device 0); read by [a-z+]*; written by [a-z+]*; read back by ' out
	cmp src dst
	: >empty
	gives 0 "$PENSTOCK" cp empty cuda:0
	lacks GB/s out
	[ ! -e cuda:0 ]
	[ ! -e cuda:1 ]
	fails "cuda:0 is a device and no file" "$PENSTOCK" cp cuda:0 dst2
	fails "there is no device cuda:7" "$PENSTOCK" cp src cuda:7
	use_stub 0
	fails "CUDA_VISIBLE_DEVICES" "$PENSTOCK" cp src cuda
}

a_file_may_have_a_device_name() {
	random 5000 src
	gives 0 "$PENSTOCK" cp src ./soft:0
	cmp src soft:0
	gives 0 "$PENSTOCK" cp ./soft:0 dst
	cmp src dst
}

# A mistyped device must not become a file name.
a_mistyped_device_is_no_file() {
	random 5000 src
	for pair in cuda0=cuda:0 CUDA:0=cuda:0 gpu:0=cuda:0 gpu=cuda:0 cdua:1=cuda:1 soft0=soft:0 \
		SOFT:0=soft:0 HOST=host cpu=host cuda:x=cuda:0; do
		gives 2 "$PENSTOCK" cp src "${pair%=*}"
		says "there is no device ${pair%=*}; did you mean ${pair#*=}?" err
		[ ! -e "${pair%=*}" ]
		gives 1 "$PENSTOCK" cp src --device "${pair%=*}"
		says "\"${pair%=*}\" is no device name; did you mean ${pair#*=}?" err
		gives 0 "$PENSTOCK" cp src "./${pair%=*}"
		cmp src "${pair%=*}"
		gives 0 "$PENSTOCK" cp src "${pair%=*}"
		rm "${pair%=*}"
	done
	gives 2 "$PENSTOCK" cp src npu:0
	says "there is no device npu:0, 'penstock doctor' lists those that there are" err
	fails "no device at PCI address 0000:ff:1f.7" "$PENSTOCK" cp src 0000:ff:1f.7
	for name in sort1 gpu-results cuda0.bin model:x d41d8cd98f00b204e9800998ecf8427e; do
		gives 0 "$PENSTOCK" cp src $name
		cmp src $name
	done
}

# An unaligned file end is not reported as a reason.
an_odd_end_is_no_reason() {
	random 3000001 src
	gives 0 "$PENSTOCK" cp --verify src dst
	lacks "why unaligned" out
	# Paths of reads and writes are printed separately.
	grep -Eq '^3000001 bytes in .* GB/s; read by [a-z+]+; written by [a-z+]+; read back by [a-z+]+ and compared in [0-9.]+ s$' out
}

onto_a_directory() {
	mkdir dir
	random 5000 src
	gives 0 "$PENSTOCK" cp src dir
	cmp src dir/src
	random 6000 src
	gives 0 "$PENSTOCK" cp src dir/
	cmp src dir/src
}

over_an_old_file() {
	random 9000 src
	random 20000 dst
	gives 0 "$PENSTOCK" cp --verify src dst
	cmp src dst
	no_leftovers .
}

over_a_symbolic_link() {
	mkdir dir
	random 9000 src
	random 100 dir/real
	ln -s dir/real link
	gives 0 "$PENSTOCK" cp src link
	[ -L link ]
	cmp src dir/real
}

mode_is_kept() {
	random 100 src
	chmod 754 src
	gives 0 "$PENSTOCK" cp src dst
	[ "$(stat -c %a dst)" = 754 ]
	chmod 400 src
	gives 0 "$PENSTOCK" cp src dst2
	[ "$(stat -c %a dst2)" = 400 ]
}

quiet_is_quiet() {
	random 5000 src
	gives 0 "$PENSTOCK" cp --quiet src dst
	[ ! -s out ] && [ ! -s err ]
}

no_progress_without_terminal() {
	random 10485767 src
	gives 0 "$PENSTOCK" cp src dst
	[ ! -s err ]
}

names_with_odd_characters() {
	name="$(printf 'a b\n%%s\303\244')"
	random 5000 "$name"
	gives 0 "$PENSTOCK" cp -- "$name" "x $name"
	cmp "$name" "x $name"
	gives 0 "$PENSTOCK" cp -- "$name" -dash
	cmp "$name" ./-dash
}

long_name() {
	name=$(printf '%0255d' 7)
	random 5000 src
	gives 0 "$PENSTOCK" cp src "$name"
	cmp src "$name"
}

slow_and_short_operations() {
	random 3000001 src
	PST_FAULT=file.read:0:short gives 0 "$PENSTOCK" cp --verify src dst
	cmp src dst
	PST_FAULT=file.write:0:short gives 0 "$PENSTOCK" cp --verify src dst
	cmp src dst
	PST_FAULT=file.uring:0:EPERM,file.direct:0:EINVAL gives 0 "$PENSTOCK" cp --verify src dst
	cmp src dst
}

run_cases plain verified through_the_device by_threads small_blocks_in_any_order \
	one_block_at_a_time buffered_only into_device_memory gpu a_file_may_have_a_device_name \
	a_mistyped_device_is_no_file an_odd_end_is_no_reason \
	onto_a_directory over_an_old_file over_a_symbolic_link mode_is_kept quiet_is_quiet \
	no_progress_without_terminal names_with_odd_characters long_name slow_and_short_operations
