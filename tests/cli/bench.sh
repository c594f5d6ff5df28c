#!/bin/sh
# SPDX-License-Identifier: MIT
# bench measures what it reports, leaves nothing behind, and destroys nothing.
. "$(dirname "$0")/lib.sh"

quick="--dir . --size 16m --runtime 0.2"

table() {
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick --sizes 4k,64k,1m
	for line in "machine " "memory   host" "file " "requests read" "4 KiB " "64 KiB " "1 MiB " \
		"plain: pread"; do
		says "$line" out
	done
	no_leftovers .
	[ ! -s err ]
}

json_output() {
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick --sizes 4k,1m --json
	json out '[r["size"] for r in d["rows"]] == [4096, 1048576]'
	json out 'all(r["penstock"]["gb_per_s"] > 0 and r["plain"]["gb_per_s"] > 0 for r in d["rows"])'
	json out 'all(r["penstock"]["paths"] for r in d["rows"])'
	[ ! -s err ]
}

every_operation_into_every_memory() {
	for op in read write randread randwrite; do
		for mem in host soft:0; do
			# shellcheck disable=SC2086
			gives 0 "$PENSTOCK" bench $quick -m $mem --op $op --sizes 64k --queues 2 \
				--pieces 3 --depth 5 --batch 2 --json
			json out "d['op'] == '$op' and d['rows'][0]['penstock']['bytes'] > 0"
		done
	done
	no_leftovers .
}

cold_reads_each_byte_once() {
	gives 0 "$PENSTOCK" bench --dir . --size 8m --runtime 5 --sizes 4k,12k --op randread --json
	# This needs a file system whose files can be cold.
	json out 'd["state"] == "warm" or d["rows"][0]["penstock"]["bytes"] == 8 << 20'
	json out 'd["state"] == "warm" or d["rows"][1]["penstock"]["bytes"] == (8 << 20) // 12288 * 12288'
	json out 'd["state"] == "warm" or all(r["plain"]["bytes"] == r["penstock"]["bytes"] and
		r["turns"] == 6 for r in d["rows"])'
}

# Limit the turns by requests and not by time: 52,428 requests take longer than the 10 ms that a
# ratio needs.
medians_and_spreads() {
	gives 0 "$PENSTOCK" bench --dir . --size 16m --warm --runtime 600 --bytes 1g --sizes 4k --turns 5 \
		--json
	json out 'd["rows"][0]["turns"] == 5 and d["rows"][0]["ratio_why"] is None'
	for side in penstock plain; do
		json out "(lambda s, m: len(s['gb_per_s_turns']) == 5 and s['bytes'] == 1 << 30 and
			s['requests'] == 1 << 18 and
			0 < s['gb_per_s_lowest'] <= s['gb_per_s'] <= s['gb_per_s_highest'] and
			s['gb_per_s_lowest'] == min(s['gb_per_s_turns']) and
			s['gb_per_s_highest'] == max(s['gb_per_s_turns']) and
			s['gb_per_s'] == m(s['gb_per_s_turns']) and
			abs(s['iops'] * 4096 / 1e9 / s['gb_per_s'] - 1) < 1e-4 and
			0 < s['p50_us'] <= s['p99_us'])(
				d['rows'][0]['$side'], __import__('statistics').median)"
	done
	json out '(lambda r, v: r["ratio_lowest"] <= r["ratio"] <= r["ratio_highest"] and
		abs(r["ratio_lowest"] / v[0] - 1) < 1e-4 and abs(r["ratio"] / v[2] - 1) < 1e-4 and
		abs(r["ratio_highest"] / v[4] - 1) < 1e-4)(d["rows"][0], sorted(a / b for a, b in zip(
			d["rows"][0]["penstock"]["gb_per_s_turns"], d["rows"][0]["plain"]["gb_per_s_turns"])))'
	gives 0 "$PENSTOCK" bench --dir . --size 16m --warm --runtime 600 --bytes 1g --sizes 4k
	says "turns: 6 of each, in alternation" out
	grep -q '^size .* of turns .* path$' out
	grep -Eq '^  ratio  *[0-9.]+x  *[0-9.]+-[0-9.]+$' out
}

# Six operations are too few for a ratio.
few_operations_tell_no_ratio() {
	for state in --cold --warm; do
		gives 0 "$PENSTOCK" bench --dir . --size 1m --bytes 24k --sizes 4k $state
		grep -Eq '^4 KiB  *[0-9.]+  *[0-9]+  *-  *-  *[0-9.]+  *[a-z+]+$' out
		grep -Eq '^  plain  *[0-9.]+  *[0-9]+  *-  *-  *[0-9.]+$' out
		lacks "  ratio" out
		says "ratio: none for 4 KiB: a turn had 6 requests, and a ratio takes 16 in each." out
		gives 0 "$PENSTOCK" bench --dir . --size 1m --bytes 24k --sizes 4k $state --json
		json out '(lambda r: r["turns"] == 1 and r["ratio"] is r["ratio_lowest"] is None and
			r["ratio_highest"] is None and r["ratio_why"].startswith("a turn had 6 requests") and
			all(s["requests"] == 6 and s["gb_per_s"] > 0 and s["p50_us"] is s["p99_us"] is None and
				s["gb_per_s_lowest"] is s["gb_per_s_highest"] is None
				for s in (r["penstock"], r["plain"])))(d["rows"][0])'
	done
	gives 0 "$PENSTOCK" bench --dir . --size 16m --warm --runtime 600 --bytes 1g --sizes 4k --turns 1
	says "ratio: none for 4 KiB: there was 1 turn, and a ratio takes 4." out
	lacks "of turns" out
}

# Without a baseline there is one run, or the requested number of turns.
turns_without_a_baseline() {
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick --warm --sizes 4k --baseline none --json
	json out '(lambda r: r["turns"] == 1 and "ratio" not in r and "plain" not in r and
		r["penstock"]["iops"] > 0 and r["penstock"]["gb_per_s_lowest"] is None)(d["rows"][0])'
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick --warm --sizes 4k --baseline none --turns 3 --json
	json out 'd["rows"][0]["turns"] == 3 == len(d["rows"][0]["penstock"]["gb_per_s_turns"])'
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick --warm --sizes 4k --baseline none --turns 3
	says "turns: 3.  GB/s and IOPS are medians" out
	lacks "ratio" out
}

# A ratio with the software device would only measure this emulator.
emulator_has_no_ratio() {
	gives 0 "$PENSTOCK" bench --dir . --size 16m --warm --runtime 600 --bytes 256m --sizes 64k -m soft
	says "soft:0 is an emulator" out
	says "ratio: none, the software device is an emulator" out
	says "plain: pread of host memory" out
	gives 0 "$PENSTOCK" bench --dir . --size 16m --warm --runtime 600 --bytes 256m --sizes 64k -m soft --json
	json out 'd["rows"][0]["ratio"] is None and "emulator" in d["rows"][0]["ratio_why"]'
}

# O_DIRECT reads leave a cold file cold, so more than the whole file can be read.
direct_reads_go_on() {
	head -c 64k /dev/zero >file
	dd if=file of=/dev/null bs=64k iflag=direct 2>err || skip "O_DIRECT on this file system"
	rm file err
	gives 0 "$PENSTOCK" bench --dir . --size 1m --runtime 2 --sizes 64k --path direct --json
	json out 'd["rows"][0]["penstock"]["bytes"] > 1 << 20'
}

bytes_limit() {
	gives 0 "$PENSTOCK" bench --dir . --size 8m --warm --bytes 1m --sizes 64k --json
	json out 'd["rows"][0]["penstock"]["bytes"] == 1 << 20 == d["rows"][0]["plain"]["bytes"]'
}

stores() {
	for store in uring threads; do
		[ $store = threads ] || "$PENSTOCK" doctor --dir . | grep -q 'uring *available' || continue
		# shellcheck disable=SC2086
		gives 0 "$PENSTOCK" bench $quick --store $store --sizes 64k --json
		json out "d['store'] == '$store'"
	done
}

# The driver pins three parts of 64 MiB, 8 MiB at a time.
stable_waits_for_a_slow_driver() {
	use_stub
	export STUB_CUDA_REGISTER_US=100000
	gives 0 "$PENSTOCK" bench --dir . --size 136m --runtime 0.1 -m cuda --stable --sizes 1m --json
	json out 'd["pages_bytes"] == 136 << 20'
}

stable() {
	use_stub
	export PST_WINDOW=off # small requests too
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick -m cuda --stable --sizes 4k
	says "pages    16 MiB of 16 MiB pinned" out
	says "of depth 32, warm, path auto" out
	grep -Eq '^4 KiB .* (pagecache|pagecache\+.*|.*\+pagecache)$' out # requests may be gathered
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick -m cuda --stable --warm --sizes 4k,1m --json
	json out 'd["state"] == "warm" and d["pages_bytes"] == 16 << 20 and d["pages_why"] == "none"'
	json out 'd["pages_wait_seconds"] > 0'
	json out 'all("pagecache" in r["penstock"]["paths"] for r in d["rows"])'
	unset PST_WINDOW
	# If nothing can be pinned, the output says so and the measurement is made nevertheless.
	gives 0 "$PENSTOCK" bench $quick -m soft --stable --sizes 4k
	says "pages    none pinned for soft:0: this kind of memory or file does not offer the path" out
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick -m host --stable --sizes 4k --json
	json out 'd["pages_bytes"] == 0 and d["pages_why"] == "no-provider"'
}

stable_is_not_cold() {
	for order in "--cold --stable" "--stable --cold"; do
		# shellcheck disable=SC2086
		gives 2 "$PENSTOCK" bench $quick $order
		says "--cold and --stable exclude each other" err
		[ ! -s out ]
	done
	gives 2 "$PENSTOCK" bench --stable --op write
	says "--stable is for reading" err
	use_stub
	# shellcheck disable=SC2086
	fails "say --stable" "$PENSTOCK" bench $quick -m cuda --path pagecache
	no_leftovers .
}

gpu() {
	use_stub
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick -m cuda:1 --sizes 64k
	says "memory   cuda:1 (Stub device 1)" out
	says "plain: pread and pst_mem_copy_in" out
	grep -q '^64 KiB .* \(staged\|gather\)' out # pieces of several requests may be gathered
	fails "there is no device cuda:9" "$PENSTOCK" bench -m cuda:9 --dir .
	no_leftovers .
}

plot() {
	# shellcheck disable=SC2086
	gives 0 "$PENSTOCK" bench $quick --sizes 4k,64k --plot chart.svg --baseline none
	need python3
	python3 -c 'import xml.dom.minidom as m; m.parse("chart.svg")'
	says "GB/s" chart.svg
}

own_file_is_not_destroyed() {
	random 1000000 file
	cp file copy
	gives 0 "$PENSTOCK" bench -f file --runtime 0.1 --sizes 4k
	cmp file copy
	gives 2 "$PENSTOCK" bench -f file --op write
	says "--overwrite" err
	cmp file copy
	gives 0 "$PENSTOCK" bench -f file --op write --overwrite --runtime 0.1 --sizes 4k
	[ -s file ]
}

errors() {
	random 1000 small
	fails "too small" "$PENSTOCK" bench -f small --sizes 4k
	fails "cannot open nothing" "$PENSTOCK" bench -f nothing
	fails "soft:77" "$PENSTOCK" bench -m soft:77 --dir . --size 1m
	mkfifo fifo
	fails "fifo" timeout 10 "$PENSTOCK" bench -f fifo
	PST_FAULT=file.read:5:EIO fails "EIO" "$PENSTOCK" bench --dir . --size 1m --runtime 1
	PST_FAULT=file.context:0:ENOMEM fails "cannot make a queue" "$PENSTOCK" bench --dir . --size 1m --queues 3
	no_leftovers .
}

interrupted() {
	gives 130 timeout --preserve-status -s INT 1 "$PENSTOCK" bench --dir . --size 64m --warm \
		--runtime 60
	no_leftovers .
}

odd_names() {
	mkdir "$(odd_name)"
	for option in '' --json; do
		# shellcheck disable=SC2086
		PST_LOG=debug gives 0 "$PENSTOCK" bench --dir "$(odd_name)" --size 16m \
			--runtime 0.2 --sizes 64k $option
		plain_text out err
	done
	fails 'a\012\033[31mb\233\302\205\377c' "$PENSTOCK" bench --dir "$(odd_name)/none" --size 16m
	plain_text err
}

run_cases table json_output every_operation_into_every_memory cold_reads_each_byte_once \
	medians_and_spreads few_operations_tell_no_ratio turns_without_a_baseline \
	emulator_has_no_ratio direct_reads_go_on bytes_limit stores stable stable_is_not_cold stable_waits_for_a_slow_driver gpu plot \
	own_file_is_not_destroyed errors interrupted odd_names
