#!/bin/sh
# SPDX-License-Identifier: MIT
# Options of a mount in fstab: ours take effect; those common to all mounts are accepted; errors
# name any others.  Also lines of fstab with mount(8).
#
# lib.sh sets base.
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"

serve() { # OPTION...
	need_mount
	gives 0 "$PENSTOCK" mount mnt --source src "$@"
}

stop() {
	gives 0 "$PENSTOCK" umount mnt
}

# is_read_only COMMAND...: the command must fail with EROFS.
is_read_only() {
	"$@" >out 2>err && return 1
	says "Read-only file system" err
}

read_only() {
	need_mount
	need unshare
	unshare -m true 2>/dev/null || skip "the right to make a mount namespace"
	echo text >src/file
	head -c 65536 /dev/urandom >src/data
	mkdir src/below
	# A file system mounted below the source is read-only too.
	# shellcheck disable=SC2016
	unshare -m sh -c 'mount -t tmpfs none src/below && echo below >src/below/file &&
		"$1" mount mnt --source src -o ro && cat mnt/below/file || exit 1
		touch mnt/below/new && exit 1
		"$1" umount mnt' sh "$PENSTOCK" >got 2>err
	says below got
	says "Read-only file system" err
	serve -o rw,ro
	[ "$(cat mnt/file)" = text ]
	is_read_only touch mnt/new
	is_read_only dd if=/dev/zero of=mnt/file count=1 conv=notrunc
	is_read_only chmod 0 mnt/file
	is_read_only mkdir mnt/dir
	is_read_only ln -s x mnt/link
	is_read_only ln mnt/file mnt/link
	is_read_only mv mnt/file mnt/moved
	is_read_only rm mnt/file
	is_read_only ln -s "$PWD/mnt/file" mnt/3fs-virt/rm-rf/x
	[ "$(readlink mnt/3fs-virt/get-conf/usr.readonly)" = true ]
	# The source itself is unchanged.
	touch src/new
	[ -e mnt/new ]
	# Rings may read from a read-only mount.
	if [ -x "${RINGER:-}" ]; then
		"$RINGER" mnt data 10 </dev/null >said
		says "done" said
	fi
	stop
	serve -o ro,rw
	touch mnt/file
	stop
}

times_of_access() {
	need_mount
	# Use a source that updates access times.
	mount -t tmpfs -o strictatime none src
	serve -o noatime
	echo text >src/file
	touch -d 2020-01-01 src/file
	before=$(stat -c %x src/file)
	[ "$(cat mnt/file)" = text ]
	[ "$(stat -c %x src/file)" = "$before" ]
	stop
	serve -o noatime,relatime
	[ "$(cat mnt/file)" = text ]
	[ "$(stat -c %x src/file)" != "$before" ]
	stop
	leave src
}

no_programs() {
	need_mount
	cp /bin/true src/program
	serve -o noexec
	grep -F " $PWD/mnt " /proc/self/mountinfo | grep -q noexec
	./mnt/program 2>err && return 1
	says "Permission denied" err
	stop
	serve -o noexec,exec
	./mnt/program
	stop
}

what_every_mount_does() {
	serve --allow-other \
		-o defaults,allow_other,default_permissions,nosuid,nodev,_netdev,nofail,noauto,users,x-a.b=c,X-d,comment=e,,
	[ ! -s err ]
	[ -e mnt/3fs-virt ]
	stop
}

# Options of the command are also accepted in a list after -o.
those_of_the_command() {
	serve -o kernel-cache,memory=1m,metrics=none,users -o timeout=0,users=7
	tr '\0' '\n' <"/proc/$(server)/cmdline" >words
	says --kernel-cache words
	says --memory=1048576 words
	says --timeout=0 words
	says --users=7 words
	says none words
	stop
}

# Find the process whose command line contains this mount point.
server() {
	for p in /proc/[0-9]*; do
		if tr '\0' '\n' 2>/dev/null <"$p/cmdline" | grep -qxF "$PWD/mnt"; then
			echo "${p#/proc/}"
		fi
	done
}

refused() { # TEXT OPTIONS
	gives 2 "$PENSTOCK" mount mnt --source src -o "$2"
	says "$1" err
	lacks " $PWD/mnt " /proc/self/mountinfo
}

unknown_ones_are_named() {
	mkdir mnt src
	refused "unknown option -o wrong" ro,wrong,noexec
	refused "unknown option -o source" source=src
	refused "-o suid: set-user-ID bits have no effect" suid
	refused "-o dev: devices have no effect" dev
	refused "-o remount: a mount that serves cannot be changed" remount,ro
	refused "-o sync: mount the file system of the source with it" sync
	refused "-o strictatime: mount the file system of the source with it" strictatime
	refused "-o ro takes no value" ro=1
	refused "-o memory needs a value" memory
	refused "--links takes a number" links=many
	gives 2 "$PENSTOCK" mount --plain mnt -o ro
	says "-o is for mounts with --source" err
}

what_only_root_does() {
	need_other
	mkdir mnt src
	chmod 777 mnt src
	fails "--allow-other: only a server of root's" as_other "$PENSTOCK" mount mnt --source src --allow-other
	fails "--allow-other: only a server of root's" as_other "$PENSTOCK" mount mnt --source src -o allow_other
	fails "-o ro takes a server of root's" as_other "$PENSTOCK" mount mnt --source src -o ro
	fails "-o noatime takes a server of root's" as_other "$PENSTOCK" mount mnt --source src -o noatime
}

# in_fstab LINE COMMANDS: run them with this line as fstab and our helpers in mount(8)'s path.
in_fstab() {
	printf "%s\n" "$1" >fstab
	# shellcheck disable=SC2016
	unshare -m sh -ec 'mount --bind sbin "$(readlink -f /sbin)"
		'"$2"
}

lines_of_fstab() {
	need_mount
	need unshare
	unshare -m true 2>/dev/null || skip "the right to make a mount namespace"
	mkdir sbin 'with blank'
	for name in mount.penstock mount.fuse.penstock; do
		ln -s "$PENSTOCK" sbin/$name
	done
	echo text >src/file
	touch 'with blank/file'
	for type in penstock fuse.penstock; do
		in_fstab "$PWD/src $PWD/mnt $type ro,noexec,_netdev,nofail,memory=1m,x-systemd.device-timeout=9 0 0" '
			mount -T fstab mnt
			cat mnt/file
			touch mnt/new 2>err && exit 1
			# A mounted directory is not mounted again.
			mount -T fstab -a
			[ "$(grep -cF " $PWD/mnt " /proc/self/mountinfo)" = 1 ]
			umount mnt
			mount -T fstab -a
			cat mnt/file
			umount mnt' >out
		[ "$(grep -cx text out)" = 2 ]
		says "Read-only file system" err
	done
	in_fstab "$PWD/with\\040blank $PWD/mnt penstock defaults 0 0" 'mount -T fstab mnt; [ -e mnt/file ]; umount mnt'
	# With an error in the line, nothing is mounted.
	in_fstab "$PWD/src $PWD/mnt penstock wrong 0 0" 'mount -T fstab mnt' 2>err && return 1
	says "unknown option -o wrong" err
	in_fstab "$PWD/src $PWD/mnt penstock wrong 0 0" 'mount -T fstab -s mnt; cat mnt/file; umount mnt' >out
	says text out
	in_fstab "$PWD/src $PWD/mnt penstock ro 0 0" 'mount -T fstab -f mnt; [ ! -e mnt/file ]'
}

run_cases read_only times_of_access no_programs what_every_mount_does those_of_the_command unknown_ones_are_named \
	what_only_root_does lines_of_fstab
