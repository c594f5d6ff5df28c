#!/bin/sh
# SPDX-License-Identifier: MIT
# The engine for fio: it must move the bytes that fio writes, end a job on an error with the error's
# text, and report the paths of the bytes.
#
# lib.sh sets base.
# shellcheck disable=SC2154
. "$(dirname "$0")/../cli/lib.sh"
build=${BUILD_DIR:?is the build of Penstock}
root=$(cd "$(dirname "$0")/../.." && pwd)

# The first case compiles $engine.  fio itself is built without sanitizers.
make_engine() {
	need fio
	"$root/tools/fio-source" -n >source 2>why || skip "the source of the installed fio (./dev fio)"
	engine=$base/engine.so
	preload=
	CFLAGS=-Werror
	if ldd "$build/src/libpenstock.so" | grep -q libasan; then
		CFLAGS="$CFLAGS -fsanitize=address,undefined -fno-sanitize-recover=all"
		preload="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)"
		# fio does not free its parsed options.
		ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0:verify_asan_link_order=0
		export ASAN_OPTIONS
	fi
	export CFLAGS
	[ -f "$engine" ] || "$root/tools/fio-engine" -b "$build" -s "$(cat source)" -o "$engine"
}

# job OPTION...: run a job of the engine on ./data or ./$file, with the output in ./out and ./err.
job() {
	LD_PRELOAD=$preload timeout 60 fio --name=job --ioengine="external:$engine" \
		--filename="$PWD/${file:-data}" --size=2m --randrepeat=1 \
		--clocksource=clock_gettime "$@" >out 2>err || {
		cat out err
		return 1
	}
}

# fails SENTENCE OPTION...: run a job that must fail and print SENTENCE.
fails() {
	sentence=$1
	shift
	if job "$@" >said; then
		echo "this job should have failed: $*"
		return 1
	fi
	says "$sentence" said
	lacks "AddressSanitizer" said
	lacks "runtime error" said
}

verified() {
	job --rw=randrw --bsrange=512-64k --iodepth=16 --verify=crc32c --verify_fatal=1 "$@"
	says "penstock: job" out
}

host() {
	make_engine
	verified --fsync=8
	says " syncs" out
	# The file must have the content that fio expects, read by another engine.
	job --rw=write --bs=64k --verify=crc32c --do_verify=0
	fio --name=job --ioengine=psync --filename="$PWD/data" --size=2m --rw=read --bs=64k \
		--verify=crc32c --verify_fatal=1 >out 2>&1 || {
		cat out
		return 1
	}
}

soft() {
	make_engine
	verified --device=soft:0
	says "soft:0, " out
	verified --device=soft:0 --verify_async=2 --iodepth_batch=8 --iodepth_batch_complete_min=4 \
		--iodepth_batch_complete_max=8
	# Even without verify, the written bytes must come from the device.
	job --rw=write --bs=64k --iodepth=4 --device=soft:0 --buffer_pattern=0x5a
	head -c 2097152 /dev/zero | tr '\0' 'Z' | cmp - data
}

# A changed file must be detected: the compared bytes must come from the file, not fio's buffer.
differs() {
	make_engine
	for device in host soft:0; do
		job --rw=write --bs=4k --verify=crc32c --do_verify=0 --device=$device
		printf 'x' | dd of=data bs=1 seek=1048600 conv=notrunc status=none
		fails "verify: bad" --rw=read --bs=4k --verify=crc32c --verify_fatal=1 --device=$device
	done
}

# A read into the wrong place of the device must be detected with every pattern.
lies() {
	make_engine
	cat >lie.c <<-'END'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <penstock.h>

	int pst_queue_prep(struct pst_queue *q, const struct pst_io *io)
	{
		int (*real)(struct pst_queue *, const struct pst_io *) =
			(int (*)(struct pst_queue *, const struct pst_io *))dlsym(RTLD_NEXT, "pst_queue_prep");
		static struct pst_mem *other;
		struct pst_io lie = *io;

		if (!other && pst_mem_alloc("soft:0", 1 << 20, NULL, &other) < 0)
			return -12;
		if (io->op == PST_OP_READ) {
			lie.mem = other;
			lie.mem_off = 0;
		}
		return real(q, &lie);
	}
	END
	cc -shared -fPIC -I "$root/include" lie.c -o lie.so -L "$build/src" -lpenstock \
		-Wl,-rpath,"$build/src"
	for device in host soft:0; do
		for pattern in 0x5a 0xa5 0x00; do
			# Write without the fault, verify with it.
			job --rw=write --bs=4k --verify=pattern --verify_pattern=$pattern --device=$device
			preload="$preload $PWD/lie.so"
			fails "verify failed" --rw=write --bs=4k --verify=pattern --verify_fatal=1 \
				--verify_pattern=$pattern --device=$device
			preload=${preload% *}
		done
	done
}

cuda() {
	make_engine
	use_stub
	verified --device=cuda:0
	says "cuda:0, " out
	verified --device=cuda:1 --bsrange=4k-64k --thread=1
}

threads_and_processes() {
	make_engine
	for how in 0 1; do
		verified --device=soft:0 --numjobs=3 --size=1m --offset_increment=1m --thread=$how
		[ "$(grep -c "penstock: job.*writes" out)" -ge 3 ]
	done
	# A child of a process that has used the library cannot use it.
	fails "to all jobs, or to none" --rw=read --bs=4k --thread=1 --name=forked \
		--ioengine="external:$engine" --filename="$PWD/data" --size=1m --rw=read --stonewall
}

trims() {
	make_engine
	verified --rw=randtrimwrite --bs=4k
	job --rw=trim --bs=64k
	[ "$(tr -d '\0' <data | wc -c)" = 0 ]
}

direct() {
	make_engine
	dd if=/dev/zero of=probe bs=4096 count=1 oflag=direct 2>why || skip "O_DIRECT in $PWD: $(cat why)"
	job --rw=write --bs=64k
	for device in host soft:0; do
		job --rw=randread --bs=4k --iodepth=16 --direct=1 --device=$device --strict=1
		says "direct" out
		lacks "cached" out
		lacks "buffered" out
	done
	job --rw=read --bs=64k --direct=1 --device=soft:0 --path=staged+direct
	for path in cached+buffered direct+buffered staged; do
		fails "does not go with direct=1" --rw=read --direct=1 --device=soft:0 --path=$path
	done
}

limits_and_latencies() {
	make_engine
	job --rw=write --bs=64k
	job --rw=randread --bs=4k --iodepth=8 --time_based --runtime=1 --rate_iops=300 \
		--output-format=json
	python3 - <<-'END'
	import json
	job = json.load(open("out"))["jobs"][0]["read"]   # nothing else is on standard output
	assert 200 < job["iops"] < 400, job["iops"]
	lat, clat, slat = (job[x] for x in ("lat_ns", "clat_ns", "slat_ns"))
	assert clat["N"] == job["total_ios"], clat
	assert 0 < clat["percentile"]["50.000000"] <= clat["percentile"]["99.000000"] < 1e9, clat
	assert lat["mean"] >= clat["mean"] and slat["N"] == clat["N"], (lat, slat)
	END
	says "penstock: job" err
}

errors() {
	make_engine
	job --rw=write --bs=64k
	mkdir dir
	"$PENSTOCK" mount --plain dir >/dev/null
	fails "there is no device soft:9" --rw=read --device=soft:9
	fails "no path is called 'foo'" --rw=read --path=foo
	fails "at most 4096 requests" --rw=read --iodepth=5000
	fails "path=, strict=, stable= and deadline= do not go with rings=" --rw=read --rings=. --path=direct
	fails "no ring on $PWD/nowhere" --rw=read --rings="$PWD/nowhere"
	# A log of requests may read beyond the size that the file had when fio started.
	printf 'fio version 2 iolog\n%s add\n%s open\n%s read 0 4096\n%s read 8388608 4096\n%s close\n' \
		"$PWD/data" "$PWD/data" "$PWD/data" "$PWD/data" "$PWD/data" >log
	fails "a file ends before" --rw=read --read_iolog="$PWD/log"
	PST_FAULT=file.read:0:EIO fails "failed reads" --rw=read --bs=64k
	lacks "host, 1 reads" said
	for fault in file.read:0:EIO file.write:0:EIO file.sync:0:EIO mem.copy:0:EIO mem.alloc:0:ENOMEM; do
		PST_FAULT=$fault
		export PST_FAULT
		fails "(" --rw=randrw --bs=64k --iodepth=4 --verify=crc32c --fsync=4 --device=soft:0
		unset PST_FAULT
		says "penstock: job: " said
	done
	fails "read failed: EOPNOTSUPP" --rw=read --device=soft:0 --path=gds
	fails "PST_USRBIO_DEVICE" --rw=read --device=soft:0 --rings="$PWD/dir"
	fails "is not on $PWD/dir" --rw=read --rings="$PWD/dir"
	"$PENSTOCK" umount dir
}

plain_directory() {
	make_engine
	mkdir dir
	"$PENSTOCK" mount --plain dir >/dev/null
	file=dir/data
	verified --rings=dir --iodepth_batch=16
	says "by rings on dir" out
	PST_USRBIO_DEVICE=soft
	export PST_USRBIO_DEVICE
	verified --rings=dir --iodepth_batch=16 --device=soft:0
	"$PENSTOCK" umount dir
}

# A sync must come after all writes that fio queued before it, even in a large batch.
syncs_of_rings() {
	make_engine
	mkdir dir
	"$PENSTOCK" mount --plain dir >/dev/null
	cat >trace.c <<-'END'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <stdio.h>
	#include <hf3fs_usrbio.h>

	static void note(const char *what)
	{
		FILE *to = fopen("trace", "a");

		if (to) {
			(void)fputs(what, to);
			(void)fclose(to);
		}
	}

	int fsync(int fd)
	{
		int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

		note("sync\n");
		return real(fd);
	}

	int hf3fs_submit_ios(const struct hf3fs_ior *ior)
	{
		int (*real)(const struct hf3fs_ior *) =
			(int (*)(const struct hf3fs_ior *))dlsym(RTLD_NEXT, "hf3fs_submit_ios");

		note("submit\n");
		return real(ior);
	}
	END
	cc -shared -fPIC -I "$root/include/compat" trace.c -o trace.so -Wl,--no-as-needed \
		-L "$build/usrbio/library" -lhf3fs_api_shared -Wl,-rpath,"$build/usrbio/library"
	file=dir/data
	preload="$preload $PWD/trace.so"
	job --rw=write --bs=4k --size=256k --rings=dir --iodepth=16 --iodepth_batch=16 --fsync=8
	"$PENSTOCK" umount dir
	cat trace
	awk '$1 == "sync" && last != "submit" { exit 1 } { last = $1 } END { exit NR < 12 }' trace
}

killed() {
	make_engine
	job --rw=write --bs=64k
	mkdir dir
	"$PENSTOCK" mount --plain dir >/dev/null
	for how in --device=soft:0 --rings="$PWD/dir"; do
		LD_PRELOAD=$preload fio --name=job --ioengine="external:$engine" --size=2m --rw=randrw \
			--filename="$PWD/dir/data" --bs=4k --iodepth=8 --time_based --runtime=60 --thread=1 \
			--status-interval=1 "$how" >out 2>err &
		pid=$!
		for _ in $(seq 300); do
			! grep -q "IOPS=" out || break
			sleep 0.1
		done
		says "IOPS=" out
		kill -KILL $pid
		wait $pid 2>/dev/null || :
	done
	"$PENSTOCK" umount dir
	rm -f /dev/shm/fio*
	left=$(find /dev/shm -name 'penstock*' -o -name 'hf3fs-*' -o -name 'sem.hf3fs-*')
	[ -z "$left" ] || {
		echo "left: $left"
		return 1
	}
}

run_cases host soft differs lies cuda threads_and_processes trims direct limits_and_latencies errors \
	plain_directory syncs_of_rings killed
