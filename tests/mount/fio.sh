#!/bin/sh
# SPDX-License-Identifier: MIT
# fio.sh DIR SRC PID: random writes and reads through a mount, by each engine; each block has a
# checksum.
#
# lib.sh sets base.
# shellcheck disable=SC2154
dir=${1:?is the mount}
src=${2:-$dir}
PENSTOCK=${PENSTOCK:-/nonexistent}
. "$(dirname "$0")/../cli/lib.sh"

size=32m
[ -z "${PST_SOAK:-}" ] || size=1g

# job ENGINE [OPTION...]: write blocks of 4k to 64k, read some while others are written, then read
# all.
job() {
	engine=$1
	shift
	need fio
	fio --enghelp | grep -qw "$engine" || skip "fio with its engine $engine"
	fio --name=data --directory="$dir" --filename=data-$$ --ioengine="$engine" --size=$size \
		--bsrange=4k-64k --rw=randwrite --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--verify_backlog=64 --randrepeat=1 --end_fsync=1 \
		"$@" >out 2>&1 || {
		cat out
		return 1
	}
	cmp "$dir/data-$$" "$src/data-$$"
	rm "$dir/data-$$"
}

direct_job() { # ENGINE [OPTION...]
	dd if=/dev/zero of="$src/probe" bs=4096 count=1 oflag=direct 2>why ||
		skip "O_DIRECT in $src: $(cat why)"
	rm "$src/probe"
	job "$@" --direct=1
}

psync() {
	job psync
}

psync_direct() {
	direct_job psync
}

libaio() {
	job libaio --iodepth=16
}

libaio_direct() {
	direct_job libaio --iodepth=16
}

mmap() {
	job mmap
}

several_at_once() {
	need fio
	fio --name=many --directory="$dir" --ioengine=psync --size=8m --numjobs=4 --bsrange=4k-64k \
		--rw=randrw --verify=crc32c --verify_fatal=1 --randrepeat=1 >out 2>&1 || {
		cat out
		return 1
	}
	rm "$dir"/many.*
}

run_cases psync psync_direct libaio libaio_direct mmap several_at_once
