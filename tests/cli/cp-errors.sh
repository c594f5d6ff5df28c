#!/bin/sh
# SPDX-License-Identifier: MIT
# cp: a copy that cannot work prints an error and leaves nothing behind.
. "$(dirname "$0")/lib.sh"

missing_source() {
	fails "cannot open nothing: No such file or directory" "$PENSTOCK" cp nothing dst
	[ ! -e dst ]
}

# The command refuses the names that the library refuses.
names_with_a_scheme() {
	random 100 src
	mkdir a:
	cp src a:/b
	fails "nothing here opens gs://" "$PENSTOCK" cp gs://host/x dst
	fails "pst://HOST:PORT/PATH" "$PENSTOCK" cp pst://host:1/ dst
	fails "b is no address" "$PENSTOCK" cp src pst://b/c
	fails "opened as ./a://b" "$PENSTOCK" cp a://b dst
	[ ! -e dst ]
	fails "pst://host/x names a file of a service" "$PENSTOCK" bench --file pst://host/x
	"$PENSTOCK" cp -q ./a://b dst
	cmp src dst
	"$PENSTOCK" cp -q src ./a://c
	cmp src a:/c
	# A name without a scheme is a path.
	mkdir A:
	"$PENSTOCK" cp -q src A://x
	cmp src A:/x
}

unreadable_source() {
	[ "$(id -u)" != 0 ] || skip "the superuser may read everything"
	random 100 src
	chmod 000 src
	fails "cannot open src: Permission denied" "$PENSTOCK" cp src dst
}

directory_as_source() {
	mkdir dir
	fails "dir is a directory" "$PENSTOCK" cp dir dst
}

fifo_as_source() {
	mkfifo fifo
	fails "fifo is neither a regular file nor a block device" timeout 10 "$PENSTOCK" cp fifo dst
}

# A file like /proc/self/status reports a size of 0; an empty copy would lose its bytes.
source_without_a_length() {
	[ "$(stat -c %s /proc/self/status)" = 0 ] || skip "the kernel says how long it is"
	fails "/proc/self/status has more than the 0 bytes that it says; take cp(1)" \
		"$PENSTOCK" cp /proc/self/status dst
	[ ! -e dst ]
	: >empty
	"$PENSTOCK" cp -q empty dst
	[ -f dst ] && [ ! -s dst ]
}

fifo_as_target() {
	mkfifo fifo
	random 100 src
	fails "fifo is not a regular file" timeout 10 "$PENSTOCK" cp src fifo
	[ -p fifo ]
}

same_file() {
	random 5000 src
	cp src copy
	ln src hard
	ln -s src symbolic
	for dst in src ./src hard symbolic .; do
		fails "are the same file" "$PENSTOCK" cp src "$dst"
	done
	cmp src copy
}

missing_directory() {
	random 100 src
	fails "No such file or directory" "$PENSTOCK" cp src nowhere/dst
	fails "there is no directory nowhere/" "$PENSTOCK" cp src nowhere/
}

dangling_link() {
	random 100 src
	ln -s nowhere link
	fails "link is a symbolic link that leads nowhere" "$PENSTOCK" cp src link
}

read_only_target() {
	[ "$(id -u)" != 0 ] || skip "the superuser may write everything"
	random 100 src
	random 50 dst
	cp dst copy
	chmod 400 dst
	fails "cannot open dst to write: Permission denied" "$PENSTOCK" cp src dst
	cmp dst copy
}

unknown_device() {
	random 100 src
	fails "soft:77" "$PENSTOCK" cp src soft:77
	fails "cuda:99" "$PENSTOCK" cp src cuda:99
	[ ! -e soft:77 ] && [ ! -e cuda:99 ]
}

full_disk() {
	mkdir mnt
	mount -t tmpfs -o size=1m none mnt 2>/dev/null || skip "this needs to mount a tmpfs"
	random 4000000 src
	fails "No space left on device" "$PENSTOCK" cp src mnt/dst
	[ -z "$(ls -A mnt)" ]
	# If the file system cannot reserve room, the disk fills up during the copy.
	random 100000 mnt/dst
	cp mnt/dst copy
	PST_FAULT=file.write:3:ENOSPC fails "ENOSPC" "$PENSTOCK" cp --block 64k src dst
	[ ! -e dst ]
	fails "No space left on device" "$PENSTOCK" cp src mnt/dst
	cmp mnt/dst copy
	no_leftovers .
}

limited_file_size() {
	random 4000000 src
	(
		ulimit -f 1000
		fails "File too large" "$PENSTOCK" cp src dst
	)
	[ ! -e dst ]
	no_leftovers .
}

failed_operations() {
	random 4000000 src
	random 1000 copy
	backends="uring threads"
	if ! "$PENSTOCK" cp --store uring copy new 2>err; then
		says "io_uring is forbidden" err
		backends=threads
	fi
	for site in file.read file.write file.sync; do
		for store in $backends; do
			rm -f new
			cp copy dst
			PST_FAULT=$site:1:EIO fails "EIO" "$PENSTOCK" cp --block 64k --store $store \
				src new
			[ ! -e new ]
			# A partial copy could have the right size.
			PST_FAULT=$site:1:EIO fails "EIO" "$PENSTOCK" cp --block 64k --store $store \
				src dst
			[ -f dst ] && [ ! -s dst ]
		done
	done
	cp copy dst
	PST_FAULT=mem.alloc:1:ENOMEM fails "ENOMEM" "$PENSTOCK" cp src dst
	cmp dst copy
	no_leftovers .
}

failed_reread() {
	random 2000000 src
	# 31 blocks of the source are read, then 31 of the target; verification of paths adds reads
	# at the start.
	PST_FAULT=file.read:60:EIO fails "EIO" "$PENSTOCK" cp --verify --block 64k src dst
	[ ! -e dst ]
	no_leftovers .
}

# Wait until the process has opened its target, so it knows the source.
is_copying() {
	until find "/proc/$1/fd" -printf '%l\n' 2>/dev/null |
		grep -q -e "^$PWD/.*(deleted)\$" -e "^$PWD/dst\.penstock-"; do
		kill -0 "$1"
		sleep 0.01
	done
}

source_that_changes() {
	random 1000000 src
	PST_FAULT=file.read:0:50ms "$PENSTOCK" cp --block 64k --depth 1 src dst >out 2>err &
	is_copying $!
	echo more >>src
	status=0
	wait $! || status=$?
	[ $status = 1 ]
	says "src changed while it was copied" err
	[ ! -e dst ]
	no_leftovers .
}

source_that_shrinks() {
	random 1000000 src
	PST_FAULT=file.read:0:50ms "$PENSTOCK" cp --block 64k --depth 1 src dst >out 2>err &
	is_copying $!
	: >src
	status=0
	wait $! || status=$?
	[ $status = 1 ]
	says "src ended early" err
	[ ! -e dst ]
	no_leftovers .
}

strict_says_why() {
	random 5001 src
	fails "EOPNOTSUPP" "$PENSTOCK" cp --path direct --strict src dst
	[ ! -e dst ]
}

run_cases missing_source names_with_a_scheme unreadable_source directory_as_source fifo_as_source source_without_a_length \
	fifo_as_target same_file missing_directory dangling_link read_only_target unknown_device full_disk \
	limited_file_size failed_operations failed_reread source_that_changes source_that_shrinks \
	strict_says_why
