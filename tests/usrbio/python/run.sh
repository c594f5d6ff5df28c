#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh plain|daemon TEST.py: run a test in Python, with the modules of MODULES and the library in
# USRBIO_DIR, in a directory that PENSTOCK prepares or that the program FOREIGN mounts.
set -u
kind=$1
test=$2
skip() {
	echo "1..0 # SKIP $*"
	exit 0
}
command -v python3 >/dev/null || skip "python3 is not installed"

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/penstock-test-XXXXXX") || exit 1
daemon=
end() {
	[ -z "$daemon" ] || {
		kill "$daemon" 2>/dev/null
		wait "$daemon"
	}
	umount -l "$dir/mnt" 2>/dev/null
	rm -rf --one-file-system "$dir"
}
trap end EXIT
trap 'exit 1' INT TERM
mkdir "$dir/mnt" "$dir/back"
MOUNT=$dir/mnt
export MOUNT

case $kind in
plain)
	"$PENSTOCK" mount --plain "$MOUNT" >"$dir/log" 2>&1 || {
		cat "$dir/log"
		exit 1
	}
	;;
daemon)
	[ -x "${FOREIGN:-}" ] || skip "the daemon (libfuse3-dev)"
	[ -w /dev/fuse ] || skip "/dev/fuse"
	# mount_rig.h also needs root.
	[ "$(id -u)" = 0 ] || skip "root, to have a /dev/shm of its own"
	"$FOREIGN" "$dir/back" "$MOUNT" >"$dir/log" 2>&1 &
	daemon=$!
	n=0
	until grep -q '^ready' "$dir/log"; do
		n=$((n + 1))
		[ $n -lt 100 ] && kill -0 "$daemon" 2>/dev/null ||
			skip "a FUSE that can be mounted: $(head -n 1 "$dir/log")"
		sleep 0.1
	done
	DAEMON=1
	export DAEMON
	;;
esac

# A sanitizer's library must be loaded before all others.
if nm -D "$USRBIO_DIR/libhf3fs_api_shared.so" | grep -q __asan_init; then
	SANITIZER=$(gcc -print-file-name=libasan.so)
	export SANITIZER
	# The interpreter does not free most of its memory at exit.
	ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
	export ASAN_OPTIONS
fi
export PYTHONPATH="$MODULES" HF3FS_LIBRARY_PATH="$USRBIO_DIR" PYTHONDONTWRITEBYTECODE=1
LD_PRELOAD=${SANITIZER:-} timeout -k 5 300 python3 -X faulthandler "$test"
