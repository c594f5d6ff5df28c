#!/bin/sh
# SPDX-License-Identifier: MIT
# copy-qemu.sh SOURCE_ROOT TEST_COPY: run test-copy on other CPUs by QEMU's user mode: x86-64
# without SSE4.1, without AVX2 and with AVX2, and a cross-compiled arm64 program.  QEMU supports
# neither AVX-512 nor MOVDIR64B.
set -u
root=$1
exe=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
failed=0

result() { # NAME STATUS
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		sed 's/^/# /' "$tmp/out"
		failed=1
	fi
}

skip() { # NAME WHAT_IS_MISSING
	n=$((n + 1))
	echo "ok $n $1 # SKIP $2 is not installed"
}

# Print the path of the first command that is installed.
first() {
	for c; do
		command -v "$c" && return
	done
}

# ran KERNEL...: check that each kernel was tested or, with a minus before it, skipped.
ran() {
	for k; do
		case $k in
		-*) want="^ok [0-9]* ${k#-}_random_copies # SKIP" ;;
		*) want="^ok [0-9]* ${k}_random_copies\$" ;;
		esac
		grep -q "$want" "$tmp/out" || {
			echo "there is no line like $want" >>"$tmp/out"
			return 1
		}
	done
}

x86() { # CPU KERNEL...
	cpu=$1
	shift
	if [ "$(uname -m)" != x86_64 ]; then
		n=$((n + 1))
		echo "ok $n x86_64_$cpu # SKIP this machine is not x86-64, nor is the test"
	elif [ -z "$qemu_x86" ]; then
		skip "x86_64_$cpu" qemu-x86_64
	else
		"$qemu_x86" -cpu "$cpu" "$exe" >"$tmp/out" 2>"$tmp/err" && ran "$@"
		result "x86_64_$cpu" $?
	fi
}

arm64() {
	gcc=$(first aarch64-linux-gnu-gcc)
	qemu=$(first qemu-aarch64 qemu-aarch64-static)
	if [ -z "$gcc" ]; then
		skip arm64 aarch64-linux-gnu-gcc
		return
	fi
	if [ -z "$qemu" ]; then
		skip arm64 qemu-aarch64
		return
	fi
	if ! echo '#include <stdio.h>' | "$gcc" -E - >/dev/null 2>&1; then
		skip arm64 libc6-dev-arm64-cross
		return
	fi
	"$gcc" -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static -o "$tmp/test" \
		-I"$root/include" -I"$root/src" -I"$root/tests" "$root/tests/unit/test-copy.c" \
		"$root"/src/window/copy*.c "$root/src/base/err.c" "$root/src/base/shown.c" \
		>"$tmp/out" 2>&1 &&
		"$qemu" "$tmp/test" >"$tmp/out" 2>&1 && ran neon strict memcpy
	result arm64 $?
}

qemu_x86=$(first qemu-x86_64 qemu-x86_64-static)
x86 Opteron_G1 -avx512 -avx2 -movdir64b -sse4.1 sse2 strict memcpy
x86 Nehalem -avx512 -avx2 sse4.1 sse2
x86 Haswell -avx512 avx2 sse4.1 sse2
arm64
echo "1..$n"
exit $failed
