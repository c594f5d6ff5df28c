#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs of examples/ do what their comments say.
. "$(dirname "$0")/lib.sh"

# Examples are in the build folder, next to the command; they are never installed.
example() {
	path=$(dirname "$PENSTOCK")/../examples/$1
	[ -x "$path" ] || skip "there is no $1 here"
}

load_shards() {
	example load-shards
	gives 0 "$path"
	says "2 tensors, 1003417 bytes, by" out
	gives 0 "$path" -d host
	gives 1 "$path" nothing
	says "nothing" err
	random 5000 bad
	gives 1 "$path" bad
	says "bad: " err
	gives 1 "$path" -d soft:77
}

kv_offload() {
	example kv-offload
	gives 0 "$path"
	says "every byte is where it belongs" out
	gives 0 "$path" -d host .
	[ -z "$(find . -name 'kv-offload*')" ]
	PST_FAULT=file.write:3:EIO gives 1 "$path" .
	says "EIO" err
	[ -z "$(find . -name 'kv-offload*')" ]
}

cancel_reads() {
	example cancel-reads
	random 20000000 file
	# Slow down reads, so that the cancel comes before most of them complete.
	for device in host soft; do
		PST_FAULT=file.read:0:20ms gives 0 "$path" -d $device file
		grep -q "^[1-9][0-9]* arrived, [1-9][0-9]* were cancelled, 0 failed; 0 may" out
	done
	use_stub
	gives 0 "$path" -d cuda file
	says ", 0 failed; 0 may still" out
	PST_FAULT=file.read:0:EIO gives 1 "$path" file
	says "0 arrived, " out
	says "read failed: EIO" err
	gives 1 "$path" nothing
	gives 2 "$path"
}

# A hanging request completes anyway, and reports that its memory is busy.
cancel_what_hangs() {
	example cancel-reads
	[ -x "${FUSEFS:-}" ] || skip "FUSEFS, which names the program fusefs"
	[ -c /dev/fuse ] || skip "/dev/fuse"
	mkdir mnt
	"$FUSEFS" mnt >ready 2>&1 &
	server=$!
	until grep -q ready ready; do
		kill -0 $server 2>/dev/null || skip "a FUSE that can be mounted: $(cat ready)"
		sleep 0.1
	done
	gives 1 "$path" -d host mnt/hang
	kill $server
	wait $server || :
	# Half of the reads are beyond the end of the file, and may complete before they are
	# cancelled.
	says " were cancelled, 16 failed" out
	lacks " 0 were cancelled" out
	lacks " 0 may still touch" out
	says "ETIMEDOUT" err
	says "the memory cannot be used again" err
}

wrap_cuda() {
	example wrap-cuda
	random 3000000 file
	random 12345 short
	gives 0 "$path" file
	says "no NVIDIA driver here" out
	says "read of 1048576 bytes by staged" out
	gives 0 "$path" short
	use_stub
	gives 0 "$path" file
	lacks "no NVIDIA driver here" out
	says "read of 1048576 bytes by gather" out
	gives 0 "$path" short
	says "read of 12345 bytes" out
	# Work on the stream does not start before a slow read ends.
	PST_FAULT=file.read:0:200ms gives 0 "$path" file
	PST_FAULT=file.read:0:EIO gives 1 "$path" file
	says "read failed: EIO" err
	gives 1 "$path" nothing
}

read_tensors() {
	example read-tensors
	random 10000019 file
	for device in host soft; do
		gives 0 "$path" -d $device file 300
		says "300 tensors: read of 10000019 bytes by" out
	done
	use_stub
	gives 0 "$path" -d cuda file 300
	# The device may gather pieces of several requests.
	grep -q '^300 tensors: read of 10000019 bytes by \(staged\|gather\)' out
	PST_FAULT=file.read:0:EIO gives 1 "$path" file 3
	says EIO err
	random 2 small
	gives 1 "$path" small 3
	says "fewer bytes than tensors" err
	gives 2 "$path" file 0
}

# Compute the lines that read_direct must print for these parts of a file.
checksums() { # FILE OFFSET LENGTH [OFFSET LENGTH]...
	need python3
	python3 -c 'import sys
table = []
for i in range(256):
    for k in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    table.append(i)
data = open(sys.argv[1], "rb").read()
for off, length in zip(*[map(int, sys.argv[2:])] * 2):
    part = data[off:off + length]
    crc = 0xFFFFFFFF
    for b in part:
        crc = crc >> 8 ^ table[(crc ^ b) & 255]
    print("read of", len(part), "bytes")
    print("crc32c %08x" % (crc ^ 0xFFFFFFFF))' "$@"
}

# Compute the bytes that write_direct must write to a file.
written() { # FILE OFFSET LENGTH [OFFSET LENGTH]...
	need python3
	python3 -c 'import sys
data = bytearray(open(sys.argv[1], "rb").read())
for off, length in zip(*[map(int, sys.argv[2:])] * 2):
    data.extend(bytes(max(0, off + length - len(data))))
    for i in range(off, off + length):
        data[i] = (i * 0x9E3779B97F4A7C15 & 2**64 - 1) >> 56
open(sys.argv[1], "wb").write(data)' "$@"
}

# Drop the file from the page cache.
cold() { # FILE
	sync "$1"
	dd if="$1" iflag=nocache count=0 status=none
}

reads() { # DEVICE FILE OFFSET LENGTH [OFFSET LENGTH]...
	device=$1
	shift
	checksums "$@" >want
	cold "$1"
	gives 0 "$path" "$device" "$@"
	grep -o -e '^read of [0-9]* bytes' -e '^crc32c .*' out >got
	cmp got want
}

writes() { # DEVICE FILE OFFSET LENGTH [OFFSET LENGTH]...
	device=$1
	shift
	if [ -e "$1" ]; then cp "$1" want; else : >want; fi
	gives 0 "$path" -s "$device" "$@"
	says "sync done" out
	file=$1
	shift
	written want "$@"
	cmp want "$file"
}

# Whole pages; odd ends; across, at and after the end of the file; one byte.
some="0 1048576 4096 4096 4095 1000003 1500000 600000 2000300 1 2000301 1 4611686018427387904 5 77 1"

read_direct() {
	example read_direct
	random 2000301 file
	: >empty
	for device in host soft:0; do
		reads $device file $some
		reads $device empty 0 1 100 100000
	done
	says "gds no: the path needs an accelerator" out
}

write_direct() {
	example write_direct
	for device in host soft:0; do
		random 2000301 file
		writes $device file 0 1048576 4095 100003
		# Keep the file's size, then grow the file by part of a page, then leave a hole.
		writes $device file 2000000 301 2000300 10000 3000000 5
		rm -f new
		writes $device new 0 70001
		: >empty
		writes $device empty 100 1
	done
	PST_FAULT=file.sync:0:EIO gives 1 "$path" -s host file 0 1
	says EIO err
	PST_FAULT=file.write:0:ENOSPC gives 1 "$path" host file 0 1
	says ENOSPC err
}

# Both programs print one line that begins with the program's name.
refuses() { # TEXT DEVICE FILE OFFSET LENGTH
	text=$1
	shift
	for name in read_direct write_direct; do
		example $name
		gives 1 "$path" "$@"
		says "$name: " err
		says "$text" err
		[ "$(wc -l <err)" = 1 ]
	done
}

direct_errors() {
	random 5000 file
	mkdir dir
	refuses "there is no" soft:77 file 0 1
	refuses "device" nothing file 0 1
	refuses "dir is a directory" host dir 0 1
	refuses "ends beyond 2^63" host file 9223372036854775807 1
	refuses "no number" host file -1 1
	refuses "no number" host file 0 1k
	refuses "no number" host file 0 18446744073709551616
	refuses "length zero" host file 0 0
	refuses "bytes" host file 0 9223372036854775807
	refuses "bytes" soft:0 file 0 9223372036854775807
	for name in read_direct write_direct; do
		example $name
		gives 2 "$path" host file 0
		gives 2 "$path" host file 0 1 2
	done
	[ "$(wc -c <file)" = 5000 ]
	example read_direct
	gives 1 "$path" host nothing 0 1
	says "nothing does not exist" err
}

read_only_file() {
	example write_direct
	random 5000 file
	cp file want
	chmod 400 file
	as=
	if [ "$(id -u)" = 0 ]; then
		need setpriv
		as="setpriv --bounding-set=-dac_override"
	fi
	gives 1 $as "$path" host file 0 1
	says "file: no permission" err
	cmp file want
}

# Bytes after a hole that is longer than the kernel's read-ahead during the trial: cuFile is used
# for uncached bytes.
HOLE=40000000
behind_hole() { # BYTES FILE
	[ "$(stat -f -c %T .)" != tmpfs ] || skip "a directory on a disk"
	random "$1" tail
	rm -f "$2"
	truncate -s $HOLE "$2"
	cat tail >>"$2"
}

# The programs use cuFile where it is direct; the bytes are the same.
direct_by_gds() {
	for mode in p2pdma nvfs c2c; do
		use_cufile mode=$mode,version=1190
		behind_hole 3000301 file
		example read_direct
		reads cuda:0 file $((HOLE + 2048)) 1048576
		says "gds proven" out
		says "+gds" out
		example write_direct
		writes cuda:0 tail 4096 1048576
		says "bytes by gds" out
		says "gds proven" out
	done
}

# Unaligned ends of a read, which cuFile cannot move, take another path.  A write with such ends
# takes the other path for all of its bytes.
direct_odd_ends() {
	use_cufile mode=p2pdma,version=1190
	behind_hole 3000301 file
	example read_direct
	reads cuda:0 file $((HOLE + 1600001)) 5000000
	says "read of 1400300 bytes by staged+gds" out
	reads cuda:0 tail $some
	: >empty
	reads cuda:0 empty 0 1000000
	example write_direct
	writes cuda:0 tail 4095 1000003 2900000 300000 4096 1048576
	says "write of 1000003 bytes by staged+buffered" out
	says "write of 1048576 bytes by gds" out
	# A new file system is unverified until the file has bytes.
	writes cuda:0 new 0 1048576 1048576 1048576
	says "write of 1048576 bytes by gds" out
}

# Without cuFile the bytes are the same, and the cause is named.
no_gds() { # TEXT
	behind_hole 1000301 file
	example read_direct
	reads cuda:0 file $((HOLE + 100)) 1000000
	lacks "+gds" out
	lacks "by gds" out
	says "gds no: cuFile was not used: $1" out
	example write_direct
	# The ends of a write take another path at the same time.  If they change the file while its
	# bytes are compared, cuFile is not rejected, and another process compares again, with other
	# old bytes: nothing is learned from a write of the bytes that the file has.
	for _ in 1 2 3 4 5 6 7 8 9; do
		random 1000301 tail
		writes cuda:0 tail 4096 901120 4095 900003 1000300 1000
		lacks "+gds" out
		lacks "by gds" out
		! grep -qF "gds no: cuFile was not used: $1" out || break
	done
	says "gds no: cuFile was not used: $1" out
}

direct_without_gds() {
	use_stub
	no_gds "libcufile is not here, or neither the module nvidia-fs nor P2PDMA is"
	use_cufile mode=compat
	no_gds "it has no direct way"
	use_cufile mode=nvfs,udev=0
	no_gds "it has no direct way"
	use_cufile mode=nvfs,lie=wrong
	no_gds "it moved wrong bytes"
	use_cufile mode=nvfs
	PST_GDS=off no_gds "PST_GDS=off in the environment forbids it"
}

# The library moved the right bytes in the trial, and moves wrong ones now.
direct_by_liar() {
	use_cufile mode=p2pdma,version=1190
	cat >probe <<-EOF
		#!/bin/sh
		STUB_CUFILE=mode=p2pdma,version=1190 exec "$PST_GDS_PROBE" "\$@"
	EOF
	chmod +x probe
	export PST_GDS_PROBE="$PWD/probe"
	for lie in wrong nodata; do
		export STUB_CUFILE=mode=p2pdma,version=1190,lie=$lie
		no_gds "it moved wrong bytes"
		example read_direct
		reads cuda:0 file $((HOLE + 100)) 1000000
		# If io_uring is forbidden, that is the first reason.
		grep -q "not better because io_uring" out ||
			says "not better because cuFile was not used: it moved wrong bytes" out
	done
}

run_cases load_shards kv_offload cancel_reads cancel_what_hangs wrap_cuda read_tensors \
	read_direct write_direct direct_errors read_only_file \
	direct_by_gds direct_odd_ends direct_without_gds direct_by_liar
