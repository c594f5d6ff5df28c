#!/bin/sh
# SPDX-License-Identifier: MIT
# mount --plain and umount: a directory is prepared and restored, and errors name their cause and
# cure.
#
# lib.sh sets base.
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"
: "${FUSEFS:=$(cd "$(dirname "$0")/.." && pwd)/fusefs}"

# publish DIR...: start a program that publishes memory in the background; $pid is its PID.
publish() {
	[ -x "${PUBLISH:-}" ] || skip "PUBLISH, which names the program tests/cli/publish"
	rm -f ready
	"$PUBLISH" "$@" >ready &
	pid=$!
	wait_ready
}

wait_ready() {
	for _ in $(seq 500); do
		[ ! -s ready ] || return 0
		kill -0 $pid || return 1
		sleep 0.01
	done
	return 1
}

# End the program that publish() started, without the shell's message.
end() {
	kill -KILL "$1"
	wait "$1" 2>/dev/null || :
}

shm_of() {
	find /dev/shm -maxdepth 1 -name "hf3fs-iov-*.p$1.s*"
}

# private SCRIPT [ARGUMENT...]: run it in a private mount namespace.  Call need_private before.
private() {
	unshare -m --propagation private sh -ec "$@"
}

need_private() {
	need unshare
	private true 2>/dev/null || skip "the right to make a mount namespace"
	# Cases mount over /dev/shm, so files must not be below /dev.
	case $PWD in
	/dev/*) skip "a TMPDIR that is not beneath /dev" ;;
	esac
}

# ----------------------------------------------------------------- as it should be

prepares_and_undoes() {
	mkdir dir
	gives 0 "$PENSTOCK" mount --plain dir
	says "$PWD/dir is ready" out
	says "penstock run -- PROGRAM" out
	says "penstock umount $PWD/dir" out
	says "/dev/shm, " out
	[ "$(wc -l <out)" = 3 ]
	[ ! -s err ]
	[ "$(stat -c %a dir/3fs-virt/iovs)" = 700 ]
	[ "$(cat dir/3fs-virt/plain)" = "usrbio plain directory 1" ]
	[ -z "$(ls dir/3fs-virt/iovs)" ]
	gives 0 "$PENSTOCK" umount dir
	says "$PWD/dir serves no programs" out
	[ -z "$(ls -A dir)" ]
}

twice_is_once() {
	mkdir 'a dir'
	gives 0 "$PENSTOCK" mount --plain 'a dir'
	ls -lR --time-style=full-iso 'a dir/3fs-virt/plain' >before
	gives 0 "$PENSTOCK" mount --plain "$PWD/a dir/."
	says "$PWD/a dir was already ready" out
	ls -lR --time-style=full-iso 'a dir/3fs-virt/plain' | cmp - before
	gives 0 "$PENSTOCK" umount 'a dir'
	fails "$PWD/a dir is no mount of Penstock: there is nothing to undo" "$PENSTOCK" umount 'a dir'
	gives 0 "$PENSTOCK" mount --plain 'a dir'
	gives 0 "$PENSTOCK" umount 'a dir'
}

what_is_in_it_stays() {
	mkdir dir
	random 10000 dir/file
	cp dir/file before
	gives 0 "$PENSTOCK" mount --plain dir
	gives 0 "$PENSTOCK" umount dir
	cmp dir/file before
	[ "$(ls -A dir)" = file ]
}

leftovers_are_removed() {
	mkdir dir
	gives 0 "$PENSTOCK" mount --plain dir
	publish dir dir dir
	end $pid
	[ "$(ls dir/3fs-virt/iovs | wc -l)" = 3 ]
	[ "$(shm_of $pid | wc -l)" = 3 ]
	gives 0 "$PENSTOCK" mount --plain dir
	says "3 names that ended programs had left were removed" out
	[ -z "$(ls dir/3fs-virt/iovs)" ]
	[ -z "$(shm_of $pid)" ]
	gives 0 "$PENSTOCK" mount --plain dir
	lacks "had left" out
	publish dir
	end $pid
	gives 0 "$PENSTOCK" umount dir
	[ -z "$(shm_of $pid)" ]
	[ -z "$(ls -A dir)" ]
}

# Use the library of rings like a program written for 3FS.
a_program_that_is_killed() {
	need python3
	libs=$("$PENSTOCK" run printenv LD_LIBRARY_PATH)
	for lib in $(echo "$libs" | tr ':' ' '); do
		nm -D "$lib/libhf3fs_api_shared.so" 2>/dev/null | grep -q '__[at]san_init' &&
			skip "a sanitizer's library"
	done
	mkdir dir
	random 100000 dir/file
	gives 0 "$PENSTOCK" mount --plain dir
	cat >program.py <<-'END'
		import ctypes, sys, time
		lib = ctypes.CDLL("libhf3fs_api_shared.so")
		where = ctypes.create_string_buffer(256)
		assert lib.hf3fs_extract_mount_point(where, 256, b"dir/file") > 0
		assert where.value == sys.argv[1].encode(), where.value
		iov, ior = ctypes.create_string_buffer(312), ctypes.create_string_buffer(600)
		size = ctypes.c_size_t
		assert lib.hf3fs_iovcreate(iov, where, size(1 << 20), size(0), -1) == 0
		assert lib.hf3fs_iorcreate(ior, where, 16, True, 0, -1) == 0
		print("ready", flush=True)
		time.sleep(100)
	END
	"$PENSTOCK" run python3 program.py "$PWD/dir" >ready &
	pid=$!
	wait_ready
	[ "$(ls dir/3fs-virt/iovs | wc -l)" = 2 ]
	[ "$(shm_of $pid | wc -l)" = 1 ]
	fails "$PWD/dir is in use by process $pid (python3): end it first" "$PENSTOCK" umount dir
	end $pid
	[ "$(ls dir/3fs-virt/iovs | wc -l)" = 2 ]
	gives 0 "$PENSTOCK" mount --plain dir
	says "2 names that ended programs had left were removed" out
	[ -z "$(shm_of $pid)" ]
	gives 0 "$PENSTOCK" umount dir
	[ "$(ls -A dir)" = file ]
}

several_at_once() {
	mkdir dir
	for _ in 1 2 3 4 5 6; do
		"$PENSTOCK" mount --plain dir >/dev/null || echo failed >>log &
	done
	wait
	[ ! -e log ]
	gives 0 "$PENSTOCK" umount dir
	[ -z "$(ls -A dir)" ]
}

# again COMMAND...: repeat it until ./over exists; its errors go to ./said.
again() {
	while [ ! -e over ]; do
		"$@" >/dev/null 2>>said || echo >>failed
	done
}

# After mount the directory is prepared, even if others run umount at the same time.
made_and_undone_at_once() {
	mkdir dir
	for _ in 1 2; do
		again "$PENSTOCK" umount dir &
	done
	for _ in 1 2 3; do
		again "$PENSTOCK" mount --plain dir &
	done
	sleep 3 # as long as they are at it
	: >over
	wait
	[ -e said ]
	# Expected: a running program uses the directory.
	grep -v -e '^penstock: umount: .* is in use' -e '^penstock: umount: a program has just used ' \
		-e '^penstock: umount: .* there is nothing to undo$' said >wrong || :
	[ ! -s wrong ] || {
		sort wrong | uniq -c
		return 1
	}
	gives 0 "$PENSTOCK" mount --plain dir
	gives 0 "$PENSTOCK" umount dir
	[ -z "$(ls -A dir)" ]
}

# --------------------------------------------------------------------- in use

in_use() {
	mkdir dir
	gives 0 "$PENSTOCK" mount --plain dir
	publish dir dir
	one=$pid
	publish dir
	gives 0 "$PENSTOCK" mount --plain dir
	lacks "had left" out
	fails "$PWD/dir is in use by process " "$PENSTOCK" umount dir
	says "$one (publish)" err
	says "$pid (publish)" err
	says "end them first" err
	[ "$(ls dir/3fs-virt/iovs | wc -l)" = 3 ]
	end $one
	fails "is in use by process $pid (publish): end it first" "$PENSTOCK" umount dir
	end $pid
	gives 0 "$PENSTOCK" umount dir
}

in_use_by_other_programs() {
	mkdir dir
	gives 0 "$PENSTOCK" mount --plain dir
	ln -s /dev/shm/psm_of_some_python dir/3fs-virt/iovs/00112233-4455-6677-8899-aabbccddeeff
	fails "$PWD/dir holds 1 name of programs that left no trace of themselves; when they have ended" \
		"$PENSTOCK" umount dir
	says "'find $PWD/dir/3fs-virt/iovs -type l -delete' removes what is left: 00112233-4455-6677-8899-aabbccddeeff" err
	for i in $(seq 10 40); do
		ln -s /dev/shm/psm_of_some_python "dir/3fs-virt/iovs/00112233-4455-6677-8899-aabbccddee$i"
	done
	fails "$PWD/dir holds 32 names" "$PENSTOCK" umount dir
	[ "$(tr , '\n' <err | grep -c aabbccddee)" = 8 ]
	says " and 24 more" err
	sh -c "$(sed -n "s/.*'\\(find .*\\)'.*/\\1/p" err)"
	[ -z "$(ls dir/3fs-virt/iovs)" ]
	ln -s /dev/shm/hf3fs-iov-00112233-4455-6677-8899-aabbccddeeff.p1.s1.n1 dir/3fs-virt/iovs/x
	fails "another container or machine, 1 name:" "$PENSTOCK" umount dir
	# A name from an earlier boot, on a file system that no other machine has.
	touch -h -d 2001-01-01 dir/3fs-virt/iovs/x
	case $(stat -f -c %T dir) in
	ext2/ext3 | xfs | btrfs | f2fs | tmpfs | overlayfs | zfs) gives 0 "$PENSTOCK" umount dir ;;
	*) fails "another container" "$PENSTOCK" umount dir ;;
	esac
}

# ------------------------------------------------------------------ not like this

no_directory() {
	echo >file
	for what in mount\ --plain umount; do
		fails "file is not a directory" "$PENSTOCK" $what file
		fails "nothing: No such file or directory" "$PENSTOCK" $what nothing
		fails ": No such file or directory" "$PENSTOCK" $what ''
	done
	[ "$(cat file)" = "" ]
}

too_long_a_name() {
	long=$(printf '%0200d' 0)
	mkdir -p "$long/$long"
	fails "at most" "$PENSTOCK" mount --plain "$long/$long"
	[ -z "$(ls -A "$long/$long")" ]
}

something_else_is_there() {
	mkdir dir
	echo >dir/3fs-virt
	for what in mount\ --plain umount; do
		fails "dir/3fs-virt is there and was not made by" "$PENSTOCK" $what dir
	done
	rm dir/3fs-virt
	mkdir -p dir/3fs-virt/get-conf dir/3fs-virt/iovs
	for what in mount\ --plain umount; do
		fails "dir/3fs-virt is there and was not made by" "$PENSTOCK" $what dir
	done
	[ -d dir/3fs-virt/get-conf ]
	rm -r dir/3fs-virt
	gives 0 "$PENSTOCK" mount --plain dir
	echo >dir/3fs-virt/notes
	fails "holds more than 'penstock mount' made" "$PENSTOCK" umount dir
	rm dir/3fs-virt/notes
	gives 0 "$PENSTOCK" umount dir
}

inside_of_another() {
	mkdir -p dir/3fs-virtual
	gives 0 "$PENSTOCK" mount --plain dir
	for inside in dir/3fs-virt dir/3fs-virt/iovs; do
		fails "is part of what 'penstock mount' made" "$PENSTOCK" mount --plain $inside
	done
	gives 0 "$PENSTOCK" mount --plain dir/3fs-virtual
	gives 0 "$PENSTOCK" umount dir/3fs-virtual
	gives 0 "$PENSTOCK" umount dir
}

open_to_others() {
	mkdir dir
	gives 0 "$PENSTOCK" mount --plain dir
	chmod 777 dir/3fs-virt/iovs
	for what in mount\ --plain umount; do
		fails "others have rights on $PWD/dir/3fs-virt/iovs" "$PENSTOCK" $what dir
		says "'chmod 700' it" err
	done
	chmod 700 dir/3fs-virt/iovs
	chmod 775 dir/3fs-virt
	fails "others have rights on $PWD/dir/3fs-virt: " "$PENSTOCK" mount --plain dir
	says "'chmod 755' it" err
	chmod 755 dir/3fs-virt
	gives 0 "$PENSTOCK" umount dir
}

another_users() {
	need_other
	mkdir dir
	chmod 777 dir
	as_other "$PENSTOCK" mount --plain dir
	for what in mount\ --plain umount; do
		fails "dir/3fs-virt belongs to user $(id -un 65534)" "$PENSTOCK" $what dir
	done
	as_other "$PENSTOCK" umount dir
	gives 0 "$PENSTOCK" mount --plain dir
	: >out
	: >err
	chmod 666 out err
	gives 1 as_other "$PENSTOCK" umount dir
	says "belongs to user $(id -un)" err
}

not_writable() {
	need_other
	mkdir dir
	: >out
	: >err
	gives 1 as_other "$PENSTOCK" mount --plain dir
	says "you may not write to $PWD/dir" err
	[ -z "$(ls -A dir)" ]
}

read_only() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o ro none dir
		"$0" mount --plain dir' "$PENSTOCK" 2>err && return 1
	says "cannot make or remove $PWD/dir/3fs-virt: Read-only file system" err
}

# ---------------------------------------------------------------- shared memory

no_shared_memory() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o mode=755 none /dev
		"$0" mount --plain dir' "$PENSTOCK" 2>err && return 1
	says "/dev/shm: No such file or directory; programs have their buffers there" err
	says "mount -t tmpfs" err
	[ -z "$(ls -A dir)" ]
}

tiny_shared_memory() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o size=4m none /dev/shm
		"$0" mount --plain dir' "$PENSTOCK" 2>err && return 1
	says "/dev/shm has 4 MiB in all" err
	says "--shm-size=1g" err
	[ -z "$(ls -A dir)" ]
}

full_shared_memory() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o size=20m none /dev/shm
		head -c 20m /dev/zero >/dev/shm/all
		"$0" mount --plain dir' "$PENSTOCK" 2>err && return 1
	says "/dev/shm is full" err
	[ -z "$(ls -A dir)" ]
}

read_only_shared_memory() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o ro none /dev/shm
		"$0" mount --plain dir' "$PENSTOCK" 2>err && return 1
	says "cannot make shared memory in /dev/shm: Read-only file system" err
	[ -z "$(ls -A dir)" ]
}

endless_shared_memory() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o size=0 none /dev/shm
		"$0" mount --plain dir
		[ -z "$(ls -A /dev/shm)" ]' "$PENSTOCK" >out
	says "come from /dev/shm." out
}

no_proc() {
	nm "$PENSTOCK" 2>/dev/null | grep -q '__[at]san_init' && skip "a sanitizer's program"
	need_private
	mkdir dir
	# The loader finds a program's folder in /proc; its library is in src/ of a build, lib/ of a
	# bundle.
	bin=$(dirname "$PENSTOCK")
	LD_LIBRARY_PATH=$bin/../src:$bin/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
	private 'mount -t tmpfs none /proc
		"$0" mount --plain dir' "$PENSTOCK" 2>err && return 1
	says "mount -t proc proc /proc" err
	[ -z "$(ls -A dir)" ]
}

# ------------------------------------------------------------------ file systems

on_a_3fs_mount() {
	[ -x "$FUSEFS" ] || skip "the program fusefs in $(dirname "$FUSEFS")"
	[ -w /dev/fuse ] || skip "/dev/fuse"
	mkdir mnt
	"$FUSEFS" mnt hf3fs >ready &
	pid=$!
	wait_ready || skip "the right to mount by FUSE"
	grep -q " $PWD/mnt .* - fuse.hf3fs " /proc/self/mountinfo
	for what in mount\ --plain umount; do
		fails "$PWD/mnt is on a 3FS mount, whose daemon serves programs already" \
			"$PENSTOCK" $what mnt
	done
	kill $pid
	wait $pid || :
}

no_room_for_links() {
	need_private
	mkdir dir
	private 'mount -t tmpfs -o nr_inodes=4 none dir
		"$0" mount --plain dir && exit 1
		[ -z "$(ls -A dir)" ]' "$PENSTOCK" 2>err
	says "cannot make a symbolic link in $PWD/dir/3fs-virt/iovs: No space left on device" err
}

without_links() {
	[ "$(id -u)" = 0 ] || skip "root, to mount an image"
	need mkfs.vfat
	truncate -s 8M image
	mkfs.vfat image >/dev/null
	mkdir mnt
	mount -o loop,umask=077 image mnt || skip "the right to mount an image with vfat"
	fails "cannot make a symbolic link in $PWD/mnt/3fs-virt/iovs" "$PENSTOCK" mount --plain mnt
	says "take a directory on a file system that has them" err
	[ -z "$(ls -A mnt)" ]
	umount mnt
}

run_cases prepares_and_undoes twice_is_once what_is_in_it_stays leftovers_are_removed \
	a_program_that_is_killed several_at_once made_and_undone_at_once in_use \
	in_use_by_other_programs no_directory too_long_a_name something_else_is_there \
	inside_of_another open_to_others another_users not_writable read_only no_shared_memory \
	tiny_shared_memory full_shared_memory read_only_shared_memory endless_shared_memory \
	no_proc on_a_3fs_mount no_room_for_links without_links
