#!/bin/sh
# SPDX-License-Identifier: MIT
# mount --source and umount: a directory is mounted elsewhere and unmounted, its virtual tree works,
# and errors name their cause and cure.
#
# lib.sh sets base and program.
# shellcheck disable=SC2154
. "$(dirname "$0")/lib.sh"

serve() { # OPTION...
	need_mount
	gives 0 "$PENSTOCK" mount mnt --source src "$@"
	says "$PWD/mnt serves $PWD/src" out
}

# umount does not wait for the server's end.
gone() {
	for _ in $(seq 500); do
		grep -qF " $PWD/mnt " /proc/self/mountinfo || return 0
		sleep 0.01
	done
	return 1
}

# published NAME SIZE...: print the link targets of a program that publishes that much memory, each
# under a new UUID with NAME appended.  The program runs until it is killed.
published() {
	: >answers # the program may begin late, and an earlier one's end is in there
	python3 - "$@" >answers <<'EOF' &
import os, sys, tempfile, time, uuid
for size in map(int, sys.argv[2:]):
    fd, path = tempfile.mkstemp(prefix="pst-test-", dir="/dev/shm")
    os.ftruncate(fd, size)
    name = str(uuid.uuid4()) + sys.argv[1]
    try:
        os.symlink(path, "mnt/3fs-virt/iovs/" + name)
        print(name, flush=True)
    except OSError as e:
        print(os.strerror(e.errno), flush=True)
    os.unlink(path)
print("end", flush=True)
time.sleep(60)
EOF
	pid=$!
	for _ in $(seq 500); do
		! grep -q '^end$' answers || return 0
		sleep 0.01
	done
	return 1
}

# After the publishing program's end, the server counts only later publications.
forgotten() {
	kill -KILL $pid
	wait $pid 2>/dev/null || :
	for _ in $(seq 500); do
		[ -n "$(find mnt/3fs-virt/iovs -name '*-*-*')" ] || return 0
		sleep 0.01
	done
	return 1
}

appears_and_goes() {
	serve
	echo text >mnt/file
	[ "$(cat src/file)" = text ]
	[ "$(stat -c %i mnt/file)" = "$(stat -c %i src/file)" ]
	[ "$(findmnt -n -o FSTYPE mnt 2>/dev/null || echo fuse.hf3fs)" = fuse.hf3fs ]
	fails "$PWD/mnt serves already" "$PENSTOCK" mount mnt --source src
	gives 0 "$PENSTOCK" umount mnt
	says "$PWD/mnt is no mount any more" out
	gone
	[ ! -e mnt/file ]
	fails "there is nothing to undo" "$PENSTOCK" umount mnt
}

in_the_foreground() {
	need_mount
	"$PENSTOCK" mount --foreground mnt --source src >ready &
	pid=$!
	for _ in $(seq 500); do
		[ ! -s ready ] || break
		sleep 0.01
	done
	says "$PWD/mnt serves $PWD/src" ready
	touch mnt/file
	kill -TERM $pid
	wait $pid
	gone
	[ -e src/file ]
}

# Find the process whose command line contains this mount point.
server() {
	for p in /proc/[0-9]*; do
		if tr '\0' '\n' 2>/dev/null <"$p/cmdline" | grep -qxF "$PWD/mnt"; then
			echo "${p#/proc/}"
		fi
	done
}

# With more inodes than it may have open, the server closes some, and opens them again.
few_descriptors() {
	need_mount
	for i in $(seq 100); do
		mkdir "src/$i"
		echo "$i" >"src/$i/file"
	done
	cat src/*/file >all
	"$program" --inodes 16 --source "$PWD/src" "$PWD/mnt"
	for _ in 1 2; do
		cat mnt/*/file | cmp - all
	done
	[ "$(ls "/proc/$(server)/fd" | wc -l)" -lt 100 ] || skip "handles of files in $PWD"
	gives 0 "$PENSTOCK" umount mnt
}

its_server_is_killed() {
	serve
	kill -KILL "$(server)"
	# The request that the server was answering is aborted.
	for _ in $(seq 500); do
		ls mnt >/dev/null 2>err || ! grep -q "not connected" err || break
		sleep 0.01
	done
	says "not connected" err
	fails "serves already" "$PENSTOCK" mount mnt --source src
	gives 0 "$PENSTOCK" umount mnt
	gone
}

in_use() {
	serve
	(cd mnt && exec sleep 60) &
	pid=$!
	for _ in $(seq 500); do
		[ "$(readlink "/proc/$pid/cwd")" != "$PWD/mnt" ] || break
		sleep 0.01
	done
	fails "programs use $PWD/mnt" "$PENSTOCK" umount mnt
	kill $pid
	wait $pid 2>/dev/null || :
	gives 0 "$PENSTOCK" umount mnt
}

wrong_places() {
	need_mount
	touch file
	fails "none: No such file" "$PENSTOCK" mount none --source src
	fails "none: No such file" "$PENSTOCK" mount mnt --source none
	fails "file is not a directory" "$PENSTOCK" mount file --source src
	fails "file is not a directory" "$PENSTOCK" mount mnt --source file
}

# If a file system below the source hangs, the command ends, names the source, and leaves nothing.
a_source_that_hangs() {
	need_mount
	[ -x "${FUSEFS:-}" ] || skip "FUSEFS, which names the program fusefs"
	mkdir hung
	"$FUSEFS" hung >ready 2>&1 &
	fusefs=$!
	for _ in $(seq 500); do
		! grep -q '^ready$' ready || break
		sleep 0.01
	done
	says ready ready
	kill -STOP $fusefs
	got=0
	timeout -s KILL 60 "$PENSTOCK" mount mnt --source "$PWD/hung" >out 2>err || got=$?
	cp /proc/self/mountinfo mounts
	for p in /proc/[0-9]*; do
		tr '\0' ' ' 2>/dev/null <"$p/cmdline" || :
	done >commands
	# Let the file system answer now, so that a failing case leaves nothing.
	kill -CONT $fusefs
	[ $got = 1 ]
	says "$PWD/hung does not answer for 10 s" err
	lacks " $PWD/mnt " mounts
	lacks "--source $PWD/hung" commands
	gives 0 "$PENSTOCK" mount mnt --source hung
	[ -e mnt/normal ]
	gives 0 "$PENSTOCK" umount mnt
	kill $fusefs
	wait $fusefs || :
}

odd_names() {
	need_mount
	mkdir 'a, b\ c'
	touch 'a, b\ c/file'
	gives 0 "$PENSTOCK" mount mnt --source 'a, b\ c'
	[ -e mnt/file ]
	grep -F " $PWD/mnt " /proc/self/mountinfo | grep -q nosuid,nodev
	gives 0 "$PENSTOCK" umount mnt
}

not_into_itself() {
	need_mount
	mkdir src/mnt
	gives 0 "$PENSTOCK" mount src/mnt --source src
	ls src/mnt/mnt 2>err && return 1
	says "Too many levels" err
	gives 0 "$PENSTOCK" umount src/mnt
}

published_while_alive() {
	serve
	published '' 4096 65536
	[ "$(grep -c -- - answers)" = 2 ]
	[ "$(find mnt/3fs-virt/iovs -name '*-*-*' | wc -l)" = 2 ]
	[ "$(readlink "mnt/3fs-virt/iovs/$(head -n 1 answers)" | cut -c 1-18)" = /dev/shm/pst-test- ]
	for link in submit-ios submit-ios.ph submit-ios.pl; do
		[ "$(stat -Lc %a "mnt/3fs-virt/iovs/$link")" = 600 ]
	done
	forgotten
	sem=$(readlink mnt/3fs-virt/iovs/submit-ios)
	gives 0 "$PENSTOCK" umount mnt
	for _ in $(seq 500); do
		[ -e "$sem" ] || return 0
		sleep 0.01
	done
	return 1
}

as_much_as_one_may() {
	serve --links 3 --rings 1 --memory 1m
	published '' 4096 1048576
	says "Disk quota exceeded" answers
	forgotten
	published .r0.t0 8192 8192
	[ "$(grep -c -- - answers)" = 1 ]
	says "Too many open files" answers
	forgotten
	published '' 4096 4096 4096 4096
	[ "$(grep -c -- - answers)" = 3 ]
	says "Too many open files" answers
	forgotten
	gives 0 "$PENSTOCK" umount mnt
}

not_empty() {
	serve
	[ ! -s err ]
	gives 0 "$PENSTOCK" umount mnt
	gone
	touch mnt/hidden
	gives 0 "$PENSTOCK" mount mnt --source src
	says "is not empty" err
	[ ! -e mnt/hidden ]
	gives 0 "$PENSTOCK" umount mnt
	gone
	rm mnt/hidden
}

# Invalid publications, each with the error of symlink(2).
refused() {
	serve
	id=01234567-89ab-cdef-0123-456789abcdef
	for pair in "Invalid argument:/dev/shm/none:$id" "Invalid argument:/etc/passwd:$id" \
		"Invalid argument:/dev/shm/../../etc/passwd:$id" "Invalid argument:/dev/shm/none:name" \
		"Invalid argument:gdr:$id.gdr.d0"; do
		target=${pair#*:}
		name=${target#*:}
		target=${target%%:*}
		[ "$target" != gdr ] || {
			target=/dev/shm/pst-test-$$
			head -c 4096 /dev/zero >"$target"
		}
		ln -s "$target" "mnt/3fs-virt/iovs/$name" 2>err && return 1
		says "${pair%%:*}" err
	done
	rm "$target"
	for command in "mkdir mnt/3fs-virt/x" "touch mnt/3fs-virt/iovs/x" "rm mnt/3fs-virt/iovs/submit-ios" \
		"mv mnt/3fs-virt mnt/y" "rmdir mnt/3fs-virt/iovs" "ln -s a mnt/3fs-virt/x"; do
		$command 2>err && return 1
		says "Operation not permitted" err
	done
	gives 0 "$PENSTOCK" umount mnt
}

whole_trees_are_removed() {
	serve
	mkdir -p src/tree/a/b src/keep
	touch src/tree/a/b/file src/keep/file
	ln -s ../keep src/tree/link
	ls -R mnt/tree >/dev/null
	ln -s "$PWD/mnt/tree" mnt/3fs-virt/rm-rf/x
	[ ! -e mnt/tree ]
	[ ! -e src/tree ]
	[ -e src/keep/file ]
	for path in "$PWD/mnt" "$PWD/src/keep" keep "$PWD/mnt/../src/keep" "$PWD/mnt/3fs-virt/iovs"; do
		ln -s "$path" mnt/3fs-virt/rm-rf/x 2>err && return 1
	done
	[ -e src/keep/file ]
	gives 0 "$PENSTOCK" umount mnt
}

run_cases appears_and_goes in_the_foreground few_descriptors its_server_is_killed in_use wrong_places \
	a_source_that_hangs odd_names \
	not_into_itself not_empty published_while_alive as_much_as_one_may refused whole_trees_are_removed
