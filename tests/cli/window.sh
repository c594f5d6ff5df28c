#!/bin/sh
# SPDX-License-Identifier: MIT
# window: the software device's windows work, errors are detected, and the tools of gdrcopy print
# what the original tools print.
#
# WRONG_BYTES_SO makes one byte of windows wrong; without it the case is skipped.
. "$(dirname "$0")/lib.sh"

window() {
	"$PENSTOCK" window "$@"
}

# ------------------------------------------------------------- our own tables

everything_is_right() {
	gives 0 window validate -d soft --seed 7
	for i in 1 2 3 4 5 6 7 8 9 10; do
		grep -q "^check $i: .*: ok, " out
	done
	says "all 10 checks are right" out
	says "device   soft:0" out
	says "window   by soft, cached, proven" out
	[ ! -s err ]
	gives 0 window validate -d soft:0 --backend soft --caching cached --size 4k --random 200 --json
	json out 'len(d["checks"]) == 10 and all(c["ok"] and c["bytes_wrong"] == 0 for c in d["checks"])'
	json out 'd["backend"] == "soft" and d["proven"] and d["size"] == 4096 and d["seed"] > 0'
	json out 'd["checks"][3]["copies"] == 10 and d["checks"][9]["copies"] == 200'
}

wrong() { # HOW COMMAND...
	how=$1
	shift
	gives 1 env LD_PRELOAD="$WRONG_BYTES_SO" WRONG_BYTES="$how" "$@"
}

wrong_bytes_are_noticed() {
	[ -n "${WRONG_BYTES_SO-}" ] || skip "windows that are wrong"
	wrong store "$PENSTOCK" window validate -d soft
	# Accesses through the pointer are right.
	says "checks found wrong bytes" err
	grep -q '^check 1: .*: ok' out
	for i in 2 3 4 5 6 7 8 9 10; do
		grep -q "^check $i: .*: FAILED" out
	done
	grep -q '^  +0 of the window, read back by the device: byte 163840 is 0x.. and should be 0x..; 1 bytes differ' out
	wrong before "$PENSTOCK" window validate -d soft
	for i in 4 5 8 9 10; do
		grep -q "^check $i: .*: FAILED" out
	done
	grep -q '^check 6: .*: ok' out
	wrong load "$PENSTOCK" window validate -d soft --json
	json out '[c["ok"] for c in d["checks"]] == [True, True] + [False] * 8'
	json out 'd["checks"][2]["bytes_wrong"] == 1 and d["checks"][2]["first_wrong"] == 163840'
	for sub in "copybw --sizes 4k" "copylat --max 64k"; do
		# shellcheck disable=SC2086
		wrong store "$PENSTOCK" window $sub -d soft --runtime 0.01
		says "a store of" err
		says "gave wrong data" err
		# shellcheck disable=SC2086
		wrong load "$PENSTOCK" window $sub -d soft --runtime 0.01
		says "a load of" err
	done
	ln -s "$PENSTOCK" gdrcopy_copybw
	ln -s "$PENSTOCK" validate
	ln -s "$PENSTOCK" gdrcopy_sanity
	wrong store ./gdrcopy_copybw -d soft -w 10 -r 10
	says "other bytes" err
	wrong load ./validate -d soft
	says "check error: 1 different bytes" out
	says "2 of 4 checks failed" err
	wrong store ./gdrcopy_sanity -d soft -t data_validation_cumemalloc -t basic_cumemalloc
	says "Total: 2, Passed: 1, Failed: 1, Waived: 0" out
	says "List of failed tests:" out
	says "    data_validation_cumemalloc" out
}

bandwidth() {
	gives 0 window copybw -d soft --sizes 4k,64k -t 1,2 --runtime 0.02
	[ "$(grep -c '^store ' out)" = 4 ] && [ "$(grep -c '^load ' out)" = 4 ]
	says "copies: pst_mem_copy_in() and pst_mem_copy_out()" out
	[ ! -s err ]
	gives 0 window copybw -d soft --sizes 4k,64k -t 1,2 --runtime 0.02 --json
	json out '[(r["copy"], r["threads"], r["size"]) for r in d["rows"]] == [(c, t, s) for c in ("store", "load") for t in (1, 2) for s in (4096, 65536)]'
	json out 'all(r[k]["gb_per_s"] > 0 and r[k]["p99_us"] >= r[k]["p50_us"] > 0 for r in d["rows"] for k in ("window", "copies"))'
	gives 0 window copybw -d soft --sizes 4k --runtime 0.02 --baseline none --json
	json out 'all("copies" not in r for r in d["rows"]) and "copies" not in d'
}

kernels() {
	gives 0 window copybw -d soft --sizes 4k --runtime 0.01 --kernel memcpy --json
	json out '{r["kernel"] for r in d["rows"]} == {"memcpy"} and len(d["rows"]) == 2'
	gives 0 window copybw -d soft --sizes 4k --runtime 0.01 --kernel all --json
	json out '("store", "memcpy") in {(r["copy"], r["kernel"]) for r in d["rows"]}'
	json out 'len({(r["copy"], r["kernel"]) for r in d["rows"]}) == len(d["rows"]) >= 2'
	json out 'len({(r["copy"], r["copies"]["gb_per_s"]) for r in d["rows"]}) == 2'
	for name in $(sed -n 's/.*"kernel":"\([a-z0-9.]*\)".*/\1/p' out | sort -u); do
		gives 0 window validate -d soft --kernel "$name"
	done
	fails "kernel" "$PENSTOCK" window validate -d soft --kernel nothing
	fails "kernel" "$PENSTOCK" window validate -d soft --kernel all
}

latency() {
	gives 0 window copylat -d soft --max 64k --runtime 0.02
	[ "$(grep -c '^store ' out)" = 17 ] && [ "$(grep -c '^load ' out)" = 17 ]
	says "device: pst_mem_copy_in()" out
	gives 0 window copylat -d soft --max 64k --runtime 0.02 --json
	json out '[r["size"] for r in d["rows"]] == 2 * [1 << i for i in range(17)]'
	json out 'all(r["window"]["median_us"] >= r["window"]["min_us"] > 0 for r in d["rows"])'
	# A row with fewer than 100 buckets has no 99th percentile.
	json out 'all((r[k]["p99_us"] is None) == (r[k]["buckets"] < 100) for r in d["rows"] for k in ("window", "copies"))'
}

opening() {
	gives 0 window apiperf -d soft --max 128k -n 20
	says "64 KiB" out
	[ "$(grep -c '^opening a window of' out)" = 4 ]
	gives 0 window apiperf -d soft --max 128k -n 20 --json
	json out '[(r["size"], r["others_open"]) for r in d["rows"]] == [(s, o) for o in (True, False) for s in (65536, 131072)]'
	json out 'all(sum(b["windows"] for b in r["open_histogram"]) == 20 for r in d["rows"])'
	json out 'all(r[s]["median_us"] > 0 for r in d["rows"] for s in ("wrap", "open", "info", "close", "free"))'
}

round_trip() {
	gives 0 window pingpong -d soft -n 500
	for line in "window to window" "device's own copies" "socket" "no code runs on the device"; do
		says "$line" out
	done
	gives 0 window pingpong -d soft -n 500 --json
	json out 'all(d[k]["median_us"] > 0 and d[k]["buckets"] == 5 for k in ("window", "copies", "socket"))'
	# A grant alone does not open a window by a dma-buf, if the machine has dma-bufs.
	gives 1 window pingpong -d soft --backend dmabuf
	says "dmabuf" err
	[ ! -s out ]
}

# ------------------------------------------------------------------- mistakes

mistaken() { # TEXT ARGUMENT...
	text=$1
	shift
	gives 2 "$PENSTOCK" window "$@"
	says "$text" err
	says "Try 'penstock help window'" err
	[ ! -s out ]
}

wrong_words() {
	mistaken "say what to do"
	mistaken "say what to do" frobnicate
	mistaken "unexpected argument b" validate b
	mistaken "unknown option --frobnicate" validate --frobnicate
	mistaken "unknown option -Z" copybw -Z
	mistaken "option --sizes needs a value" copybw --sizes
	mistaken "option -d needs a value" copybw -d
	mistaken "validate does not take --sizes" validate --sizes 4k
	mistaken "copybw does not take --max" copybw --max 1m
	mistaken "pingpong does not take --runtime" pingpong --runtime 1
	mistaken "copylat does not take --count" copylat -n 5
}

wrong_values() {
	mistaken "--size takes" validate --size 5
	mistaken "--size takes" validate --size 4097
	mistaken "--seed takes" validate --seed 0
	mistaken "--sizes takes" copybw --sizes 4k,,8k
	mistaken "--sizes takes" copybw --sizes 2g
	mistaken "--threads takes" copybw -t 0
	mistaken "--threads takes" copybw -t 65
	mistaken "--max takes" copylat --max 1k
	mistaken "--count takes" apiperf -n 0
	mistaken "--runtime takes" copylat --runtime never
	mistaken "--baseline takes" copylat --baseline pread
	mistaken "--caching takes" validate --caching best
}

no_window() {
	fails "soft:77" "$PENSTOCK" window validate -d soft:77
	fails "host memory needs no window" "$PENSTOCK" window validate -d host
	fails "no backend nvrm" "$PENSTOCK" window validate -d soft --backend nvrm
	fails "not write combining" "$PENSTOCK" window copybw -d soft --caching wc
	fails "more than" "$PENSTOCK" window copybw -d soft --sizes 1g -t 64
	PST_FAULT=mem.alloc:0:ENOMEM fails "ENOMEM" "$PENSTOCK" window copylat -d soft
	PST_FAULT=mem.copy:0:EIO fails "EIO" "$PENSTOCK" window validate -d soft
}

interrupted() {
	gives 130 timeout --preserve-status -s INT 1 "$PENSTOCK" window copybw -d soft --runtime 60
	gives 130 timeout --preserve-status -s INT 1 "$PENSTOCK" window validate -d soft --random 100000000
	gives 130 timeout --preserve-status -s INT 1 "$PENSTOCK" window pingpong -d soft -n 10000000
}

doctor_knows() {
	gives 0 "$PENSTOCK" doctor --dir .
	grep -q '^windows' out
	grep -q '  soft *proven$' out
	gives 0 "$PENSTOCK" doctor --dir . --json
	json out '[b["state"] for x in d["devices"] if x["name"] == "soft:0" for b in x["windows"]["backends"] if b["backend"] == "soft"] == ["proven"]'
	json out 'all(x["windows"]["backends"] == [] for x in d["devices"] if x["name"] == "host")'
	json out 'all(bool(b["text"]) == (b["state"] == "impossible") for x in d["devices"] for b in x["windows"]["backends"])'
}

# ------------------------------------------------------- the tools of gdrcopy

tool() { # NAME
	[ -e "$1" ] || ln -s "$PENSTOCK" "$1"
}

# Print the output with N for numbers that differ from run to run, and A for addresses.
plain() {
	sed -E -e 's/0x[0-9a-f]+/0xA/' -e 's/(ptr|va): [0-9a-f]+$/\1: A/' \
		-e 's/BW: [0-9.e+]+MB/BW: NMB/' -e 's/[0-9]+\.[0-9]{4}/T/g' out
}

first_release() {
	tool validate
	gives 0 ./validate -d soft
	cat >want <<'EOT'
buffer size: 327680
check 1: direct access + read back via cuMemcpy D->H
check 2: gdr_copy_to_bar() + read back via cuMemcpy D->H
check 3: gdr_copy_to_bar() + read back via gdr_copy_from_bar()
check 4: gdr_copy_to_bar() + read back via gdr_copy_from_bar() + extra_dwords=5
EOT
	cmp out want
	tool copybw
	gives 0 ./copybw -d soft
	plain >got
	cat >want <<'EOT'
testing size: 4096
rounded size: 65536
device ptr: A
bar_ptr: 0xA
info.va: A
info.mapped_size: 65536
info.page_size: 65536
page offset: 0
user-space pointer:0xA
BAR writing test...
BAR1 write BW: NMB/s
BAR reading test...
BAR1 read BW: NMB/s
unmapping buffer
unpinning buffer
closing gdrdrv
EOT
	diff want got
}

copybw_26() {
	tool gdrcopy_copybw
	gives 0 ./gdrcopy_copybw -d soft -s 0x20001 -c 65536 -o 4096 -w 50 -r 20
	plain >got
	cat >want <<'EOT'
GPU id:0; name: software device in host memory; Bus id: none
selecting device 0
testing size: 131073
rounded size: 196608
gpu alloc fn: pst_mem_alloc
device ptr: A
map_d_ptr: 0xA
info.va: A
info.mapped_size: 196608
info.page_size: 65536
info.mapped: 1
info.wc_mapping: 0
page offset: 0
user-space pointer:0xA
writing test, size=65536 offset=4096 num_iters=50
write BW: NMB/s
reading test, size=65536 offset=4096 num_iters=20
read BW: NMB/s
unmapping buffer
unpinning buffer
closing gdrdrv
EOT
	diff want got
	gives 0 ./gdrcopy_copybw -d soft -s 4096 -w 50 -r 20 -l
	[ "$(grep -c '^write BW: ' out)" = 12 ]
	says "size=2048 offset=0" out
}

copylat_26() {
	tool gdrcopy_copylat
	gives 0 ./gdrcopy_copylat -d soft -s 1 -w 150 -r 100
	plain >got
	grep -qx 'gdr_copy_to_mapping num iters for each size: 200' got
	grep -qx 'gdr_copy_from_mapping num iters for each size: 100' got
	tab=$(printf '\t')
	[ "$(grep -cx "Test $tab$tab$tab Size(B) $tab Median Time(us) $tab Min. Time(us)" got)" = 2 ]
	[ "$(grep -cE "^gdr_copy_to_mapping $tab +[0-9]+ $tab +T $tab +T$" got)" = 17 ]
	[ "$(grep -cE "^gdr_copy_from_mapping $tab +[0-9]+ $tab +T $tab +T$" got)" = 17 ]
	for line in "device ptr: 0xA" "allocated size: 65536" "user-space pointer: 0xA" \
		"use cold cache: no" "closing gdrdrv"; do
		grep -qx "$line" got
	done
}

apiperf_26() {
	tool gdrcopy_apiperf
	gives 0 ./gdrcopy_apiperf -d soft -s 131072 -n 20 -w 2
	tab=$(printf '\t')
	f="${tab}[0-9]+\.[0-9]{6}"
	grep -qE "^65536$f$f$f$f$f$" out
	grep -qE "^131072$f$f$f$f$f$" out
	[ "$(grep -c "^Size(B)${tab}pin.Time(us)${tab}map.Time(us)${tab}get_info.Time(us)${tab}unmap.Time(us)${tab}unpin.Time(us)$" out)" = 2 ]
	says "Histogram of gdr_pin_buffer latency for 131072 bytes" out
	[ "$(grep -cE "^\[[0-9.]+${tab}-${tab}[0-9.]+\]${tab}[0-9]+$" out)" = 20 ]
	[ "$(sed -n 's/^\[.*\]\t//p' out | awk '{ n += $1 } END { print n }')" = 40 ]
	[ "$(tail -n 1 out)" = "closing gdrdrv" ]
}

sanity_26() {
	tool gdrcopy_sanity
	gives 0 ./gdrcopy_sanity -d soft
	[ "$(head -n 1 out)" = "Total: 36, Passed: 13, Failed: 0, Waived: 23" ]
	says "List of waived tests:" out
	[ ! -s err ]
	gives 0 ./gdrcopy_sanity -d soft -v -t basic_cumemalloc -t basic_with_tokens
	says "&&&& PASSED basic_cumemalloc" err
	says "&&&& WAIVED basic_with_tokens" err
	says "Total: 2, Passed: 1, Failed: 0, Waived: 1" out
	gives 0 ./gdrcopy_sanity -d soft -s -t basic_cumemalloc
	[ ! -s out ]
	gives 0 ./gdrcopy_sanity -l
	[ "$(grep -c '^    ' out)" = 37 ]
	gives 0 ./gdrcopy_sanity -d soft -e
	says "Total: 37, " out
	gives 1 ./gdrcopy_sanity -d soft:77 -t basic_cumemalloc
	says "Total: 1, Passed: 0, Failed: 1, Waived: 0" out
	says "Error: Encountered an error or a test failure with status=1" err
	gives 1 ./gdrcopy_sanity -t nothing
	says "unknown test nothing" err
}

# It does not matter here whether the stub's memory can be mapped.
a_gpu_by_number() {
	use_stub 2
	tool gdrcopy_copybw
	for n in 0 1; do
		./gdrcopy_copybw -d $n -a cuMemAlloc -s 4096 -w 1 -r 1 >out 2>err || [ -s err ]
		grep -qE '^GPU id:0; name: .*; Bus id: [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}$' out
		grep -qE '^GPU id:1; ' out
		says "selecting device $n" out
		says "rounded size: 65536" out
	done
	gives 1 ./gdrcopy_copybw -d 7
	says "cuda:7" err
	gives 0 "$PENSTOCK" doctor --dir .
	grep -q '^  cuda:0 *[a-z]* *\(proven\|impossible\)' out
	grep -q '^  cuda:1 *[a-z]* *\(proven\|impossible\)' out
}

refused() { # TEXT TOOL ARGUMENT...
	text=$1
	name=$2
	shift 2
	tool "$name"
	gives 1 "./$name" "$@"
	says "$text" err
	[ ! -s out ]
}

foreign_mistakes() {
	refused "option -c cannot be served" gdrcopy_copylat -c
	refused "option -C cannot be served" gdrcopy_copylat -C
	refused "option -Z cannot be served" gdrcopy_copybw -Z
	refused "option -s needs a value" gdrcopy_copybw -s
	refused "-s takes a number" gdrcopy_copybw -s 4x
	refused "cuMemCreate" gdrcopy_copybw -a cuMemCreate
	refused "-a takes cuMemAlloc" gdrcopy_copybw -a malloc
	refused "-M takes" gdrcopy_copybw -M fast
	refused "offset must be multiple of 4 bytes" gdrcopy_copybw -o 2
	refused "run past the end" gdrcopy_copybw -s 4096 -o 4 -c 4096
	refused "run past the end" gdrcopy_copybw -s 4096 -c 8192
	refused "unexpected argument x" gdrcopy_apiperf x
	refused "option -s cannot be served" copybw -s 4096
	refused "option -s cannot be served" validate -s 4096
	refused "-d takes" validate -d ''
	for name in validate copybw gdrcopy_copybw gdrcopy_copylat gdrcopy_apiperf gdrcopy_sanity; do
		tool $name
		gives 0 ./$name -h
		says "Usage: $name" out
	done
}

run_cases everything_is_right wrong_bytes_are_noticed bandwidth kernels latency opening round_trip \
	wrong_words wrong_values no_window interrupted doctor_knows first_release copybw_26 \
	copylat_26 apiperf_26 sanity_26 a_gpu_by_number foreign_mistakes
