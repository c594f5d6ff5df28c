#!/bin/sh
# SPDX-License-Identifier: MIT
# Run the library's tests of data on file systems that this machine can make in images, with sectors
# of 512 and 4096 bytes.  Needs root and loop devices.
#
# TEST_DIR has the programs test-io and so on, with or without "api-" in their names.  lib.sh sets
# base.
# shellcheck disable=SC2154
TMPDIR=${FS_TMPDIR:-/dev/shm}
export TMPDIR
: "${PENSTOCK:=/nonexistent}"
: "${TEST_DIR:=$(cd "$(dirname "$0")/.." && pwd)}"
. "$(dirname "$0")/lib.sh"

# The tests of O_DIRECT and the page cache; PST_SOAK=1 runs all tests on each file system.
programs=policy
[ -z "${PST_SOAK:-}" ] || programs="io sync policy"

program() {
	for p in "$TEST_DIR/test-$1" "$TEST_DIR/test-api-$1" "$TEST_DIR/api/test-api-$1"; do
		if [ -x "$p" ]; then
			echo "$p"
			return
		fi
	done
}

# run_in DIR: run the tests on the file system of DIR.
run_in() {
	for name in $programs; do
		p=$(program "$name")
		[ -n "$p" ] || skip "the program test-$name in $TEST_DIR"
		if ! PST_TEST_DIR=$1 "$p" >"$base/tap" 2>&1; then
			echo "$name:"
			grep -A 2 '^not ok' "$base/tap" || tail -n 20 "$base/tap"
			return 1
		fi
	done
}

# on_image SECTOR MKFS...: run the tests on a file system on a loop device.
on_image() {
	sector=$1
	shift
	[ "$(id -u)" = 0 ] || skip "root, to mount images"
	need losetup
	need "$1"
	truncate -s 400M image
	dev=$(losetup --show -f -b "$sector" image) || skip "a loop device with sectors of $sector"
	trap 'losetup -d "$dev" 2>/dev/null || :' EXIT
	"$@" "$dev"
	mkdir mnt
	mount "$dev" mnt || skip "mounting what $1 makes"
	run_in "$PWD/mnt"
	leave mnt
}

ext4_sectors_of_512() {
	programs="io sync policy"
	on_image 512 mkfs.ext4 -q
}

ext4_sectors_of_4096() {
	on_image 4096 mkfs.ext4 -q
}

ext4_blocks_of_1024() {
	on_image 512 mkfs.ext4 -q -b 1024
}

xfs_sectors_of_512() {
	on_image 512 mkfs.xfs -q -s size=512
}

xfs_sectors_of_4096() {
	programs="io policy"
	on_image 4096 mkfs.xfs -q
}

btrfs() {
	on_image 512 mkfs.btrfs -q
}

tmpfs() {
	[ "$(id -u)" = 0 ] || skip "root, to mount a tmpfs"
	mkdir mnt
	mount -t tmpfs -o size=300M none mnt || skip "mounting a tmpfs"
	run_in "$PWD/mnt"
	leave mnt
}

# overlay_on MKFS...: run the tests on an overlay whose layers are on one image; some files are
# copied up.
overlay_on() {
	[ "$(id -u)" = 0 ] || skip "root, to mount images"
	need losetup
	need "$1"
	truncate -s 400M image
	dev=$(losetup --show -f image) || skip "a loop device"
	trap 'umount mnt 2>/dev/null || :; umount layers 2>/dev/null || :; losetup -d "$dev" 2>/dev/null || :' EXIT
	"$@" "$dev"
	mkdir mnt layers
	mount "$dev" layers || skip "mounting what $1 makes"
	mkdir layers/lower layers/upper layers/work
	mount -t overlay -o lowerdir=layers/lower,upperdir=layers/upper,workdir=layers/work \
		overlay mnt || skip "an overlay"
	run_in "$PWD/mnt"
	leave mnt
	leave layers
}

overlay_on_ext4() {
	overlay_on mkfs.ext4 -q
}

overlay_on_xfs() {
	overlay_on mkfs.xfs -q
}

run_cases ext4_sectors_of_512 ext4_sectors_of_4096 ext4_blocks_of_1024 xfs_sectors_of_512 \
	xfs_sectors_of_4096 btrfs tmpfs overlay_on_ext4 overlay_on_xfs
