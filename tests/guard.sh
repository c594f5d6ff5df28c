#!/bin/sh
# SPDX-License-Identifier: MIT
# guard.sh GUARD: whatever a test does and however it ends, nothing of it is left.  FUSEFS is the
# program fusefs.
#
# Each case runs with private mounts and without, if the machine allows both.
set -u
guard=$(realpath "$1")
base=$(mktemp -d "${TMPDIR:-/var/tmp}/guard-XXXXXX") || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1
mkdir dirs
PST_TEST_DIR=$base/dirs
export PST_TEST_DIR

# A test that leaves everything possible: a daemon, a stopped child, a stopped FUSE server with its
# mount, shared memory, files in a read-only directory.  $how is its end.
cat >messy.sh <<'END'
cd "$TMPDIR"
setsid sh -c 'echo $$ >>"$1/pids"; exec sleep 1000' sh "$base" >/dev/null 2>&1 &
sh -c 'echo $$ >>"$1/pids"; kill -STOP $$; sleep 1000' sh "$base" &
mkdir -p mnt ro/ro "/dev/shm/$PST_TEST_ID-dir"
: >ro/file >"/dev/shm/$PST_TEST_ID-dir/file" >"/dev/shm/pst-$PST_TEST_ID"
chmod 500 ro
if [ -c /dev/fuse ] && [ -x "${FUSEFS:-}" ]; then
	"$FUSEFS" mnt >ready 2>&1 &
	server=$!
	echo $server >>"$base/pids"
	until grep -q . ready || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
	kill -STOP $server
fi
until [ "$(wc -l <"$base/pids")" -ge 2 ]; do sleep 0.05; done
echo "$TMPDIR" >"$base/where"
case $how in
skip) echo "1..0 # SKIP nothing"; exit 0 ;;
fail) exit 3 ;;
crash) kill -SEGV $$ ;;
esac
sleep 1000
END

lives() {
	case $(sed -n 's/^[^)]*) \(.\).*/\1/p' "/proc/$1/stat" 2>/dev/null) in
	'' | Z | X) return 1 ;;
	esac
}

# Check that no process, mount or file of the test is left.
gone() {
	while read -r pid; do
		! lives "$pid" || return 1
	done <pids
	[ -z "$(ls -A dirs)" ] && ! grep -q " $base/" /proc/self/mountinfo &&
		[ -z "$(find /dev/shm -name "*${base##*/}*" -o -name "*$(basename "$(cat where)")*" 2>/dev/null)" ]
}

# Wait for a condition, however long: a busy machine must not give a wrong result.
becomes() {
	for _ in $(seq 600); do
		! "$@" || return 0
		sleep 0.1
	done
	echo "# not within a minute: $*"
	return 1
}

# ends HOW STATUS [SIGNAL]: run a test that ends like HOW, and check guard's status.  With SIGNAL,
# guard gets the signal.
ends() {
	how=$1
	rm -f pids where
	: >pids
	# shellcheck disable=SC2086
	base=$base how=$how FUSEFS=${FUSEFS:-} "$guard" $mode sh messy.sh >out 2>err &
	pid=$!
	if [ $# -gt 2 ]; then
		becomes [ -s where ] || return 1
		kill "-$3" $pid
	fi
	status=0
	wait $pid || status=$?
	[ $status = "$2" ] || {
		echo "# status $status"
		sed 's/^/# /' err
		return 1
	}
	# After guard was killed by SIGKILL, its helper runs for a moment.
	becomes gone
}

a_good_test() {
	# shellcheck disable=SC2086
	"$guard" $mode sh -c 'echo hello; (sleep 0.1) & : >"$TMPDIR/file"' >out 2>err &&
		[ "$(cat out)" = hello ] && [ ! -s err ] && [ -z "$(ls -A dirs)" ]
}

# Leftovers are named, and the test has failed.
skips() {
	ends skip 1 && [ "$(grep -c 'left behind: process ' err)" -ge 2 ]
}

fails() {
	ends fail 3
}

crashes() {
	ends crash 139
}

is_interrupted() {
	ends wait 130 INT
}

is_terminated() {
	ends wait 143 TERM
}

is_killed() {
	ends wait 137 KILL
}

# Other files that a test mounts or links are not removed, even if PST_TEST_DIR is a symbolic link
# or a relative path.  Without the right to mount, only the link is tested.
leaves_others_alone() {
	rm -rf theirs link
	mkdir theirs
	ln -s dirs link
	: >theirs/file
	: >theirs/linked
	chmod 400 theirs/linked
	for dir in "$base/link" link; do
		# shellcheck disable=SC2016,SC2086
		PST_TEST_DIR=$dir "$guard" $mode sh -c '
			ln theirs/linked "$TMPDIR/linked" && mkdir "$TMPDIR/mnt" "$TMPDIR/shut" &&
			: >"$TMPDIR/shut/file" && chmod 0 "$TMPDIR/shut" || exit 9
			mount --bind theirs "$TMPDIR/mnt" 2>/dev/null; exit 3' >out 2>err
		[ $? = 3 ] && [ -e theirs/file ] && [ "$(stat -c %a theirs/linked)" = 400 ] &&
			[ -z "$(ls -A dirs)" ] && ! grep -q " $base/" /proc/self/mountinfo ||
			return 1
	done
}

modules_stay_alone() {
	rm -rf modules
	mkdir modules
	: >modules/module.py
	# shellcheck disable=SC2086
	env -u PYTHONDONTWRITEBYTECODE PYTHONPATH=modules "$guard" $mode python3 -c 'import module' &&
		[ "$(ls -A modules)" = module.py ]
}

n=0
failed=0
run() {
	n=$((n + 1))
	if "$1"; then
		echo "ok $n $1$mode"
	else
		echo "not ok $n $1$mode"
		failed=1
	fi
}

for mode in "" " --shared"; do
	for name in a_good_test skips fails crashes is_interrupted is_terminated is_killed \
		leaves_others_alone modules_stay_alone; do
		run $name
	done
done
echo "1..$n"
exit $failed
