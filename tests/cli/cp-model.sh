#!/bin/sh
# SPDX-License-Identifier: MIT
# cp leaves a target in the same state as cp(1).
. "$(dirname "$0")/lib.sh"

# Run copies as an ordinary user: root may follow links and open files that others may not.
as_user() {
	if [ "$(id -u)" = 0 ]; then
		as_other "$@"
	else
		"$@"
	fi
}

# Print all visible attributes and contents of the folder, except times and inode numbers.
state() { # FOLDER
	(
		cd "$1" || exit 1
		find . -mindepth 1 -printf '%p %y %m %u %g %n %s %l\n' | sort
		find . -type f -print | sort | while read -r f; do
			echo "$f $(cksum <"$f")"
		done
		echo "in sum: $(cat sum)"
	)
}

# same STATUS SRC DST [RUN...]: the result must be cp(1)'s in an equal folder, which "put" makes;
# STATUS is the expected exit status.
same() {
	want=$1 src=$2 dst=$3
	shift 3
	[ "$(id -u)" != 0 ] || [ "${1:-}" != as_user ] || need_other
	for who in model ours; do
		rm -rf $who
		mkdir $who
		(
			cd $who || exit 1
			random_but_same >src
			put
			[ "$(id -u)" != 0 ] || [ "${1:-}" != as_user ] || chown -R 65534:65534 .
			[ $who = model ] || set -- "$@" "$PENSTOCK"
			echo "$want" >sum
			status=0
			"$@" cp "$src" "$dst" >../out 2>../err || status=$?
			[ $status = "$want" ] || {
				echo "$who: cp $src $dst gave $status and not $want"
				cat ../err
				exit 1
			}
		)
	done
	state model >model.txt
	state ours >ours.txt
	diff model.txt ours.txt
}

random_but_same() {
	yes 0123456789abcdef | head -c 70001
}

old() {
	echo "the old contents" >dst
	chmod "$1" dst
}

a_new_file() {
	put() { chmod 644 src; }
	for mask in 022 077 002 0; do
		(
			umask $mask
			same 0 src dst
		)
	done
	for mode in 600 755 4755 400 666 444; do
		put() { chmod $mode src; }
		same 0 src dst
		same 0 src dst as_user
	done
}

an_existing_file() {
	put() { old 604; }
	same 0 src dst
	(
		umask 077
		same 0 src dst
	)
	put() { old 640 && chmod 755 src; }
	same 0 src dst as_user
	# The target is writable but not readable.
	put() { old 200; }
	same 0 src dst as_user
	# A world-writable file of another user keeps its owner.
	[ "$(id -u)" = 0 ] || skip "this needs root, to give files away"
	put() { old 666 && chown 54321:54321 dst; }
	same 0 src dst
}

a_read_only_file() {
	put() { old 400; }
	same 1 src dst as_user
	[ "$(id -u)" != 0 ] || same 0 src dst
}

a_hard_link() {
	put() { old 644 && ln dst other; }
	same 0 src dst
	cmp ours/src ours/other
}

an_access_control_list() {
	need setfacl
	put() { old 640 && setfacl -m u:54321:rw dst; }
	(
		mkdir probe
		cd probe
		old 640
		setfacl -m u:54321:rw dst 2>/dev/null
	) || skip "this file system has no access control lists"
	same 0 src dst
	[ "$(getfacl -c model/dst)" = "$(getfacl -c ours/dst)" ]
	# Repeat this in a folder with a default ACL.
	put() { mkdir d && setfacl -d -m u:54321:rw d; }
	same 0 src d
	[ "$(getfacl -c model/d/src)" = "$(getfacl -c ours/d/src)" ]
}

symbolic_links() {
	put() { mkdir dir && echo old >dir/real && chmod 606 dir/real && ln -s dir/real dst; }
	same 0 src dst
	cmp ours/src ours/dir/real
	put() { mkdir dir && ln -s dir dst; }
	same 0 src dst
	put() { ln -s nowhere dst; }
	same 1 src dst
	put() { ln -s dst dst; }
	same 1 src dst
	put() { ln -s src dst; }
	same 1 src dst
	put() { mkdir dir && ln -s ../src dir/src; }
	same 1 src dir
}

# fs.protected_symlinks: others' links in a sticky folder are not followed, even by root.
a_link_that_is_protected() {
	[ "$(cat /proc/sys/fs/protected_symlinks)" = 1 ] || skip "fs.protected_symlinks is off"
	[ "$(id -u)" = 0 ] || skip "this needs root, to give a link away"
	put() {
		mkdir sticky && chmod 1777 sticky && old 644 && chown 12345 sticky
		ln -s ../dst sticky/link && chown -h 54321 sticky/link
	}
	same 1 src sticky/link
	says "Permission denied" err
	put() {
		mkdir sticky dir && chmod 1777 sticky && chown 12345 sticky
		ln -s ../dir sticky/link && chown -h 54321 sticky/link
	}
	same 1 src sticky/link
}

folders() {
	put() { mkdir dir; }
	same 0 src dir
	same 0 src dir/
	same 0 src dir/new
	same 1 src nowhere/
	same 1 src nowhere/dst
	put() { mkdir -p dir/src; }
	same 1 src dir
	put() { mkdir dir && chmod 555 dir; }
	same 1 src dir/new as_user
}

source_is_target() {
	put() { ln src hard; }
	same 1 src src
	same 1 src ./src
	same 1 src hard
	same 1 src .
}

# A file that the shell opened, through the name /dev/stdout, counts as a regular file.
standard_output() {
	random_but_same >src
	echo "longer than nothing" >ours
	gives 0 sh -c '"$0" cp --quiet src /dev/stdout >>ours' "$PENSTOCK"
	cmp src ours
	# cp(1) writes to pipes; penstock cp refuses.
	# shellcheck disable=SC2016
	gives 0 sh -c '{ "$0" cp --quiet src /dev/stdout; echo $? >&3; } 3>status | cat >piped' "$PENSTOCK"
	[ "$(cat status)" = 1 ] && [ ! -s piped ]
	says "/dev/stdout is not a regular file" err
}

no_space() {
	mkdir mnt
	mount -t tmpfs -o size=1m none mnt 2>/dev/null || skip "this needs to mount a tmpfs"
	random 800000 src
	random 700000 mnt/dst
	# There is room for only one of the two files, so the copy goes in place.
	gives 0 "$PENSTOCK" cp --verify src mnt/dst
	cmp src mnt/dst
	random 4000000 big
	fails "No space left on device" "$PENSTOCK" cp big mnt/dst
	# Unlike cp(1), a failed copy keeps the old bytes, and leaves no part of a new file.
	cmp src mnt/dst
	fails "No space left on device" "$PENSTOCK" cp big mnt/new
	[ ! -e mnt/new ]
	no_leftovers mnt
}

run_cases a_new_file an_existing_file a_read_only_file a_hard_link an_access_control_list \
	symbolic_links a_link_that_is_protected folders source_is_target standard_output no_space
