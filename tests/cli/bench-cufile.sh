#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/cufile on the stubs of both vendor libraries: whatever cuFile does, the program ends,
# reports it, and measures the rest.  CUFILE_BENCH is the program.
. "$(dirname "$0")/lib.sh"

quick="--size 8m --seconds 0.03 --depth 4 --batch 4 --threads 1,2"

# bench STATUS STUB ARGUMENT...: run bench/cufile on a cuFile stub with the settings STUB.
bench() {
	status=$1
	STUB_CUFILE=$2
	export STUB_CUFILE
	shift 2
	use_stub 1 # which is where the other double is too
	TMPDIR=$PWD
	export TMPDIR
	# shellcheck disable=SC2086
	gives "$status" "$CUFILE_BENCH" $quick --libcufile "$STUB_LIBCUFILE" "$@"
	no_leftovers .
	[ ! -e cufile.log ]
}

# all KEY PYTHON: PYTHON must be true for each measured cell, where v is the cell's value of KEY.
all() {
	json out "all($2 for c in d['cells'] if not c['text'] for v in [c['$1']])"
}

# Fewer cache states are measured if the file system cannot drop its pages or lacks O_DIRECT.
json_output() {
	bench 0 mode=compat --json --blocks 4k,64k,1m
	json out 'len(d["cells"]) == 12 and sum(not c["text"] for c in d["cells"]) >= 6'
	json out 'd["cufile"] == 1150 and d["cufile_status"] == "done"'
	json out 'd["cufile_mode"].startswith("compat")'
	for key in cufile penstock penstock_deep plain; do
		all $key "v['status'] == 'done' and v['bytes'] > 0"
		all $key "0 < v['least'] <= v['gb_per_s'] <= v['most'] and 0 < v['p50_us'] <= v['p99_us']"
	done
	all penstock "v['paths'] and v['ratio'] > 0"
	all penstock_deep "v['ratio'] > 0"
	json out 'all(("cufile_batch" in c) == (c["block"] <= 65536) for c in d["cells"] if not c["text"])'
	json out 'all(c["cufile_batch"]["gb_per_s"] > 0 for c in d["cells"] if "cufile_batch" in c)'
	[ ! -s err ]
}

table() {
	bench 0 mode=compat --blocks 4k,1m --both
	for line in "machine " "GPU      Stub device 0" "cuFile   1.15" "mode     compat" \
		"file     8 MiB" "warm: " "4 KiB     1  cuFile, " "4 KiB     2  batch 4, " \
		"1 MiB     1  penstock, 1 " "1 MiB     2  penstock, 4 " "plain " \
		"one at a time, beside cuFile: "; do
		says "$line" out
	done
	awk 'length > 100 { print; bad = 1 } END { exit bad }' out
	[ ! -s err ]
}

own_file() {
	random 5000000 file
	cp file copy
	bench 0 mode=compat --file file --warm --blocks 64k --json
	json out 'len(d["cells"]) == 2 and all(c["state"] == "warm" for c in d["cells"])'
	cmp file copy
	bench 0 mode=compat --file file --warm --blocks 4m --json
	json out '[c["text"] for c in d["cells"]] == ["", "the file has not a block for each thread"]'
}

refused() {
	bench 0 udev=0 --warm --blocks 64k
	says "cuFile   refused" out
	says "cuFileHandleRegister gave 5027 (HANDLE_NOT_REGISTERED)" out
	says "64 KiB    1  cuFile, O_DIRECT   refused" out
	bench 0 udev=0 --warm --blocks 64k --json
	json out 'd["cufile_status"] == "refused"'
	for key in cufile cufile_batch; do
		all $key "v['status'] == 'refused' and '5027' in v['text'] and 'gb_per_s' not in v"
	done
	all penstock "v['status'] == 'done' and v['gb_per_s'] > 0 and 'ratio' not in v"
	all plain "v['status'] == 'done' and v['gb_per_s'] > 0"
	bench 0 fail=cuFileBufRegister:0:5036 --warm --blocks 64k --json
	all cufile "v['status'] == 'refused' and 'GPU_MEMORY_PINNING_FAILED' in v['text']"
	all penstock "v['gb_per_s'] > 0"
}

no_library() {
	bench 0 "" --warm --blocks 64k --json --libcufile /nonexistent/libcufile.so.0
	all cufile "v['status'] == 'refused' and 'libcufile.so.0' in v['text']"
	all penstock "v['gb_per_s'] > 0"
}

no_gpu() {
	[ -n "${CUFILE_BENCH:-}" ] || skip "CUFILE_BENCH, which names the program"
	TMPDIR=$PWD
	export TMPDIR
	# shellcheck disable=SC2086
	gives 3 "$CUFILE_BENCH" $quick
	says "libcuda.so.1" err
	[ ! -s out ]
	no_leftovers .
}

hanging_batch() {
	bench 0 hang=cuFileBatchIOGetStatus:0 --warm --blocks 4k --threads 1,2 --patience 1 --json
	all cufile_batch "v['status'] == 'HANGS' and 'no answer' in v['text']"
	for key in cufile penstock plain; do
		all $key "v['status'] == 'done' and v['gb_per_s'] > 0"
	done
	# After a path has hung once, the program measures no further cell of it.
	bench 0 hang=cuFileBatchIOGetStatus:0 --warm --blocks 4k,8k,16k --patience 1 --json
	json out '"not asked again" in d["cells"][-1]["cufile_batch"]["text"]'
}

hanging_driver() {
	bench 0 hang=cuFileDriverOpen:0 --warm --blocks 4k --patience 1 --json
	json out 'd["cufile_status"] == "HANGS"'
	all cufile "v['status'] == 'HANGS'"
	all penstock "v['status'] == 'done' and v['gb_per_s'] > 0"
}

hanging_read() {
	bench 0 hang=read:20 --warm --blocks 4k --threads 1 --patience 1 --json
	all cufile "v['status'] == 'HANGS'"
	all plain "v['status'] == 'done'"
}

# The last blocks of a turn are compared.
wrong_bytes() {
	for lie in wrong nodata; do
		bench 1 mode=compat,lie=$lie --warm --blocks 64k --json
		for key in cufile cufile_batch; do
			all $key "v['status'] == 'WRONG' and 'gb_per_s' not in v"
		done
		all penstock "v['status'] == 'done' and v['gb_per_s'] > 0"
	done
	bench 0 mode=compat,lie=short --warm --blocks 64k --json
	all cufile "v['status'] == 'FAILED' and 'gave 32768 bytes' in v['text']"
}

not_cold() {
	[ "$(stat -f -c %T /dev/shm)" = tmpfs ] || skip "a file system in memory"
	shm=$(mktemp -d "/dev/shm/${PST_TEST_ID:-penstock-test}-XXXXXX")
	trap 'status=$?; end_case; rm -rf "$shm"; exit $status' EXIT
	random 4194304 "$shm/file"
	bench 0 mode=compat --file "$shm/file" --blocks 64k --json
	json out 'all(("stayed in" in c["text"]) == (c["state"] == "cold") for c in d["cells"])'
}

options() {
	for args in "--blocks 1k" "--blocks 128m" "--threads 0" "--threads 65" "--seconds x" "--turns 0" \
		"--batch 129" "--nothing" "file"; do
		# shellcheck disable=SC2086
		bench 2 "" $args
		[ ! -s out ]
	done
	bench 0 "" --help
	says "Usage: cufile" out
	bench 1 "" --file nothing
	says "cannot open nothing" err
}

interrupted() {
	use_stub 1
	TMPDIR=$PWD
	export TMPDIR
	gives 130 timeout --preserve-status -s INT 1 "$CUFILE_BENCH" --size 8m --warm --seconds 60 \
		--libcufile "$STUB_LIBCUFILE"
	no_leftovers .
}

run_cases json_output table own_file refused no_library no_gpu hanging_batch hanging_driver \
	hanging_read wrong_bytes not_cold options interrupted
