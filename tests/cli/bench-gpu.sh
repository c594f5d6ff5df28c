#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/gpu on the stub of the driver: each section measures what it names, in the requested number
# of rounds, and a program that fails gives no figure.  GPU_BENCH is the command, BUILD the build
# folder.
. "$(dirname "$0")/lib.sh"

# rounds STATUS ARGUMENT...: run bench/gpu with a file of 16 MiB.
rounds() {
	status=$1
	shift
	use_stub 1
	need python3
	[ -e file ] || random 16777216 file
	gives "$status" "$GPU_BENCH" --build "$BUILD" --seconds 0.02 --json json file "$@"
}

first() {
	rounds 0 --rounds 1 --only first --sizes 64k,256k
	json json 'sorted(r["row"] for r in d["rows"]) == ["256k", "64k"]'
	json json 'all(set(r["by"]) == {"penstock", "pinned 8", "pinned 12", "pinned 16"} for r in d["rows"])'
	json json 'all(len(v) == 1 and v[0]["gb"] > 0 for r in d["rows"] for v in r["by"].values())'
	[ "$(grep -c ' of pinned [0-9]*, CPU ' out)" = 2 ]
}

one_and_small() {
	rounds 0 --rounds 2 --only one,small
	json json 'all(len(v) == 2 for r in d["rows"] for v in r["by"].values())'
	json json '[r["row"] for r in d["rows"] if r["section"] == "small"] == ["in 1", "in 1, stable", "in 64", "in 64, stable", "not scattered"]'
	json json '{k for r in d["rows"] if r["row"] == "not scattered" for k in r["by"]} == {"pinned 8", "pinned 12", "pinned 16"}'
	json json '{k: set(r["by"]) for r in d["rows"] for k in [r["row"]] if k.startswith("4k")} == {"4k x1": {"penstock", "pread to host"}}'
	says "2 rounds: medians" out
	grep -q '^4k x1  *penstock  *[0-9.]* ([0-9.]*-[0-9.]*)' out
}

beside() {
	rounds 0 --rounds 1 --only beside
	json json 'all(0 < v[0]["left"] for r in d["rows"] for v in r["by"].values())'
}

# After a signal, the results so far are printed.
signal() {
	use_stub 1
	need python3
	[ -e file ] || random 16777216 file
	: >err # the one below may begin late
	"$GPU_BENCH" --build "$BUILD" --seconds 0.02 --rounds 1000 --only one --json json file >out 2>err &
	i=0
	while [ "$(grep -c '^round' err)" -lt 2 ]; do
		i=$((i + 1))
		[ $i -lt 600 ]
		sleep 0.1
	done
	kill -TERM $!
	status=0
	wait $! || status=$?
	[ $status = 143 ]
	grep -q '^4k x1  *penstock  *[0-9.]* ([0-9.]*-[0-9.]*)' out
	json json '2 <= d["rounds"] < 1000'
}

mistakes() {
	rounds 2 --only first,nothing
	says "'nothing' is none of first" err
	rounds 2 --rounds 0
	gives 2 "$GPU_BENCH" nofile
	says "nofile is no file" err
	gives 1 "$GPU_BENCH" --build . file
	says "cli/penstock is missing" err
}

# A program that fails, or a machine without a GPU, gives no figure.
failures() {
	use_stub 1
	random 16777216 file
	gives 1 env PST_FAULT=file.read:0:EIO "$GPU_BENCH" --build "$BUILD" --only one --json json file
	says EIO err
	[ ! -e json ]
	gives 1 env PST_LIBCUDA=/none "$GPU_BENCH" --build "$BUILD" --only first file
	says "cuda:0" err
}

run_cases first one_and_small beside signal mistakes failures
