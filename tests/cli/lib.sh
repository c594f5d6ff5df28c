# SPDX-License-Identifier: MIT
# Helpers of all tests of the command.  A script sources this, defines a function for each case and
# ends with: run_cases first_case second_case ...
#
# A case runs in a subshell with set -e, in a private empty directory.  Its first failing command
# fails the case.  Call "skip REASON" if something is missing.

case ${PENSTOCK:?is the penstock binary to test} in
/*) ;;
*) PENSTOCK=$PWD/$PENSTOCK ;;
esac
# Use no real GPU, so that cases are the same on every machine; tests/hw uses real ones.
PST_LIBCUDA=/nonexistent/libcuda.so.1
export PST_LIBCUDA
# Make each message one line, so that cases can find it.
COLUMNS=1000
export COLUMNS
base=$(mktemp -d "${TMPDIR:-/var/tmp}/penstock-test-XXXXXX") || exit 1
# Files made by a case may be read-only.
trap 'chmod -R u+rwx "$base" 2>/dev/null; rm -rf --one-file-system "$base"' EXIT
trap 'exit 1' INT TERM

skip() {
	echo "SKIP $*"
	exit 77
}

need() {
	command -v "$1" >/dev/null 2>&1 || skip "$1 is not installed"
}

# as_other COMMAND...: run it as an ordinary user without other rights.  Call need_other before.
as_other() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

# Replace PENSTOCK by a copy in $base that every user may run: other users may have no access to the
# checkout, for example below /root.
need_other() {
	[ "$(id -u)" = 0 ] || skip "root, to become another user"
	need setpriv
	as_other true || skip "the right to become another user"
	chmod o+x "$base" .
	as_other test -x "$base" || skip "a TMPDIR that other users can reach"
	# The command finds its library next to its own folder: in src/ of a build, in lib/ of a
	# bundle.
	beside=$(dirname "$(dirname "$PENSTOCK")")
	for lib in src lib; do
		[ ! -d "$base/others" ] && [ -e "$beside/$lib/libpenstock.so.0" ] || continue
		mkdir -p "$base/others/bin" "$base/others/$lib"
		cp -L "$beside/$lib/libpenstock.so.0" "$base/others/$lib/"
		cp "$PENSTOCK" "$base/others/bin/"
		chmod -R go+rX "$base/others"
	done
	PENSTOCK=$base/others/bin/penstock
}

# Skip unless the case can mount by FUSE; make a source and a mount point.
need_mount() {
	program=$(dirname "$PENSTOCK")/../usrbio/mount/penstock-mount
	[ -x "$program" ] || program=$(dirname "$PENSTOCK")/../libexec/penstock/penstock-mount
	[ -x "$program" ] || skip "penstock-mount"
	[ -w /dev/fuse ] || skip "/dev/fuse"
	[ "$(id -u)" = 0 ] || skip "root, to mount"
	mkdir -p mnt src
	chmod o+x "$base" .
	python3 "$(dirname "$0")/../missing.py" fuse || return 0
	skip "the right to mount by FUSE"
}

# Give the case GPUs, 2 or the given number, by the stub of the driver.
use_stub() {
	[ -n "${STUB_LIBCUDA:-}" ] || skip "STUB_LIBCUDA, which names the driver's double"
	PST_LIBCUDA=$STUB_LIBCUDA
	STUB_CUDA_DEVICES=${1:-2}
	export STUB_CUDA_DEVICES
}

# Like use_stub, also with the stub of NVIDIA's cuFile, set up by the text
# (tests/stub/cufile_stub.h).
use_cufile() { # TEXT [GPUS]
	use_stub "${2:-2}"
	[ -n "${STUB_LIBCUFILE:-}" ] || skip "STUB_LIBCUFILE, which names the double of cuFile"
	dd if=/dev/zero of=direct bs=4096 count=1 oflag=direct 2>why ||
		skip "O_DIRECT in $PWD: $(cat why)"
	rm direct why
	PST_LIBCUFILE=$STUB_LIBCUFILE
	STUB_CUFILE=$1
	export PST_LIBCUFILE STUB_CUFILE
}

# gives STATUS COMMAND...: the exit status must be STATUS; output is in ./out and ./err.
gives() {
	want=$1
	shift
	got=0
	"$@" >out 2>err || got=$?
	[ "$got" = "$want" ] || {
		echo "$* gave $got and not $want"
		cat out err
		return 1
	}
}

# says TEXT FILE: the file must contain the text.
says() {
	grep -qF -e "$1" "$2" || {
		echo "there is no '$1' in $2:"
		cat "$2"
		return 1
	}
}

# lacks TEXT FILE: the file must not contain the text.  "! grep" would not end a case under set -e.
lacks() {
	if grep -qF -e "$1" "$2"; then
		echo "there is '$1' in $2:"
		cat "$2"
		return 1
	fi
}

# Bytes that a file name may have: a newline, an escape sequence, C1 controls, invalid UTF-8.
odd_name() {
	printf 'a\n\033[31mb\233\302\205\377c'
}

# plain_text FILE...: there must be only text, without terminal control.
plain_text() {
	for file; do
		[ "$(LC_ALL=C tr -d '\n\t\040-\176' <"$file" | wc -c)" = 0 ] || {
			echo "$file is not plain text:"
			cat -v "$file"
			return 1
		}
	done
}

# fails TEXT COMMAND...: the command must exit with 1, print nothing to standard output, and print
# one line of error that contains the text.
fails() {
	text=$1
	shift
	gives 1 "$@"
	says "$text" err
	[ "$(grep -c '^penstock: ' err)" = 1 ] || {
		echo "not one message:"
		cat err
		return 1
	}
	[ ! -s out ] || {
		echo "standard output is not empty:"
		cat out
		return 1
	}
}

# random BYTES FILE: write random bytes.
random() {
	head -c "$1" /dev/urandom >"$2"
}

# The directory must have no temporary file of a copy.
no_leftovers() {
	left=$(find "$1" -name '*penstock-*' | head -n 5)
	[ -z "$left" ] || {
		echo "left behind: $left"
		return 1
	}
}

# json FILE PYTHON: the file must be one JSON object d for which the expression is true.
json() {
	need python3
	python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert isinstance(d, dict)
assert eval("(" + sys.argv[2] + ")"), sys.argv[2]' "$1" "$2"
}

# leave DIR: unmount it.  Processes that have ended may keep it busy for a short time.
leave() {
	for _ in $(seq 300); do
		umount "$1" 2>/dev/null && return
		sleep 0.1
	done
	umount "$1"
}

# At the end of a case, end background processes and unmount ./mnt.
end_case() {
	# shellcheck disable=SC2046
	kill -KILL $(jobs -p) 2>/dev/null && wait 2>/dev/null
	! grep -qF " $PWD/mnt " /proc/self/mountinfo || umount -l mnt 2>/dev/null ||
		fusermount3 -u -z mnt
}

run_cases() {
	n=0
	failed=0
	for name; do
		case ",${PST_TEST_CASE:-$name}," in
		*",$name,"*) ;;
		*) continue ;; # ./dev test NAME -- CASE...
		esac
		n=$((n + 1))
		mkdir "$base/$name"
		# Do not run the case in a condition, where set -e has no effect.
		(
			cd "$base/$name" || exit 1
			trap 'status=$?; end_case; exit $status' EXIT
			set -e
			"$name"
		) >"$base/log" 2>&1
		status=$?
		if [ $status = 0 ]; then
			echo "ok $n $name"
		elif [ $status = 77 ]; then
			echo "ok $n $name # SKIP $(sed -n 's/^SKIP //p' "$base/log" | tail -n 1)"
		else
			echo "not ok $n $name"
			sed 's/^/# /' "$base/log"
			failed=1
		fi
	done
	if [ $n = 0 ]; then
		echo "1..0 # SKIP a case called $PST_TEST_CASE"
	else
		echo "1..$n"
	fi
	exit $failed
}
