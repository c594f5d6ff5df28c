#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/loaders on a small model, with the installed loaders and with fakes that fail.  The results
# have a failed loader's reason and no number for it.  LOADERS is the script, LOAD_BENCH is
# bench/load.
. "$(dirname "$0")/lib.sh"

fakes=$(cd "$(dirname "$0")/loaders" && pwd)

here() {
	[ -n "${LOADERS:-}" ] || skip "LOADERS, which names the script"
	need python3
	TMPDIR=$PWD
	export TMPDIR
}

# loaders STATUS ARGUMENT...: run bench/loaders on a model of a few MB, in two rounds.
loaders() {
	here
	status=$1
	shift
	gives "$status" "$LOADERS" --load "$LOAD_BENCH" --size 3m --tensors 24 --shards 2 --rounds 2 \
		--loads 2 --threads 2 --json json "$@"
	[ -z "$(find . -name 'loaders.*' -o -name 'model-*')" ]
}

# of "NAME..." PYTHON: each of these loaders must have a row v, for which PYTHON must be true.
of() {
	json json "set('$1'.split()) <= {v['loader'] for v in d['rows']} and
		all($2 for v in d['rows'] if v['loader'] in '$1'.split())"
}

measured() { # NAME...
	of "$*" "v['status'] == 'done' and v['verified_loads'] == 4 and v['start_s'] > 0 and
		all(len(s['seconds']) == 2 and 0 < s['lowest_s'] <= s['median_s'] <= s['highest_s']
			and s['gb_per_s'] > 0 and s['cpu_s'] > 0 for s in (v['new'], v['warm']))"
}

# failed LINE...: rows without a number must match these lines, "NAME STATUS TEXT".
failed() {
	lines=$(printf '%s\n' "$@")
	json json "all(any(v['loader'] == name and v['status'] == status and text in v['text']
			and '\n' not in v['text'] and not any(type(x) in (int, float, dict, list)
				for k, x in v.items() if k != 'versions') for v in d['rows'])
		for name, status, text in (line.split(None, 2) for line in '''$lines'''.splitlines()))"
}

# Only one state is measured if the file system cannot be dropped from memory.
states() {
	json json '[i["state"] for i in d["left_out"]] in ([], ["disk"]) and
		{r["state"] for r in d["rows"] + d["left_out"]} == {"memory", "disk"}'
}

nothing_runs() { # with a file of this case
	if grep -qaF -e "$PWD/" /proc/[0-9]*/cmdline 2>/dev/null; then
		echo "something was left running"
		return 1
	fi
}

host() {
	loaders 0 --device host --svg svg
	states
	measured penstock penstock-per-file by-hand
	of penstock "v['ours'] and v['path'] and v['versions']['penstock']"
	of by-hand "not v['ours']"
	of penstock "v['new']['host_bytes'] > 1e6" # the tensors
	of "penstock by-hand" "all(0 < a < 2 * s for a, s in zip(v['new']['alloc_s'], v['new']['seconds']))"
	json json 'd["model"]["tensors"] == 24 and 2e6 < d["model"]["bytes"] < 4e6 and
		len(d["model"]["files"]) == 2 and d["machine"]["device"] and d["device"] == "host" and
		"instanttensor" in [i["loader"] for i in d["absent"]]'
	says "* penstock" out
	says "new process" out
	python3 -c 'import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
assert root.tag.endswith("}svg")
text = "".join(root.itertext())
for word in "penstock-per-file", "by-hand", "From memory", "warmed up":
    assert word in text, word' svg
	[ ! -s err ]
}

soft() {
	loaders 0 --device soft:0 --state memory
	measured penstock by-hand
	of penstock "'staged' in v['path'] or 'window' in v['path']"
}

# Only the first load of the first process has its bytes compared.
verify_once() {
	loaders 0 --device soft:0 --state memory --verify once --only penstock,by-hand
	of "penstock by-hand" "v['status'] == 'done' and v['verified_loads'] == 1 and
		len(v['new']['seconds']) == 2"
}

cuda() {
	use_stub 1
	loaders 0 --device cuda:0 --only penstock,penstock-per-file,by-hand --state memory
	measured penstock penstock-per-file by-hand
	says "cuda:0: Stub device 0" out
}

# Load by the Python package, which uses the library of bench/load.
python() {
	nm -D "$BUILD/src/libpenstock.so.0" | grep -q '__[at]san_init' && skip "a sanitizer's library"
	loaders 0 --device soft:0 --state memory --only penstock-python,penstock-python-file
	measured penstock-python-file
	of penstock-python-file "v['ours'] and 'staged' in v['path'] or 'window' in v['path']"
	says "absent    penstock-python: load_files() has tensors on the host" out
	python3 -c 'import numpy' 2>/dev/null || skip "numpy"
	loaders 0 --device host --state memory --only penstock-python,penstock-python-file
	measured penstock-python penstock-python-file
}

failures() {
	loaders 1 --device host --state memory --add "$fakes/fakes.py" --svg svg \
		--only by-hand,right,wrong,lacks,cuts,raises,dies
	measured by-hand right
	of right "v['first_tensor_s'] > 0"
	failed "wrong wrong has wrong bytes" "lacks wrong was not delivered" \
		"cuts wrong bytes and not" "raises failed RuntimeError: the first line" \
		"dies failed ended by SIGABRT"
	says "failed: RuntimeError: the first line" out
	says "wrong bytes" svg
}

hangs_and_absent() {
	loaders 0 --device host --state memory --add "$fakes/fakes.py" --add "$fakes/absent.py" \
		--only hangs,absent --patience 0.5
	failed "hangs failed no answer within 0.5 s"
	nothing_runs
	json json '[i["install"] for i in d["absent"]] == ["pip install absent-loader"]'
	says "absent: not installed: no_module_has_this_name; pip install absent-loader" out
}

# The model stays in a new folder below --dir and is found there again.  A user's own model also
# works.
files() {
	here
	set -- --device host --only by-hand --state memory
	"$LOADERS" --load "$LOAD_BENCH" --size 3m --tensors 24 --rounds 1 --dir kept "$@"
	touch -d @1 kept/model-*/*.safetensors
	"$LOADERS" --load "$LOAD_BENCH" --size 3m --tensors 24 --rounds 1 --dir kept "$@"
	[ "$(stat -c %Y kept/model-*/*.safetensors | sort -u)" = 1 ]
	mv kept/model-*/model-00001* one.safetensors
	rm -r kept
	loaders 0 "$@" --files one.safetensors
	json json 'len(d["model"]["files"]) == 1'
	loaders 1 --device host --files one.safetensors one.safetensors
	says "tensors have different names" err
}

# A file system in memory is not called disk.
not_disk() {
	[ "$(stat -f -c %T /dev/shm)" = tmpfs ] || skip "a file system in memory"
	shm=$(mktemp -d "/dev/shm/${PST_TEST_ID:-penstock-test}-XXXXXX")
	trap 'status=$?; end_case; rm -rf "$shm"; exit $status' EXIT
	loaders 0 --device host --only by-hand --dir "$shm"
	json json '[r["state"] for r in d["rows"]] == ["memory"] and
		d["left_out"][0]["state"] == "disk" and "tmpfs" in d["left_out"][0]["text"]'
	says "left out  disk: 100% of the files was in memory" out
}

# ends_by_signal COMMAND...: a run whose loader hangs gets SIGTERM, prints the results so far, and
# leaves nothing.
ends_by_signal() {
	here
	"$@" --load "$LOAD_BENCH" --size 3m --tensors 24 --device host --add "$fakes/fakes.py" \
		--only by-hand,hangs --state memory >out 2>err &
	pid=$!
	until [ -n "$(find . -name hangs)" ]; do
		kill -0 $pid
		sleep 0.02
	done
	kill -TERM $pid
	got=0
	wait $pid || got=$?
	[ $got = 143 ]
	says "stopped behind 0 of 7 rounds" out
	grep -q "^  by-hand  *[0-9]" out
	says "absent    hangs: stopped before its first load, memory" out
	nothing_runs
	[ -z "$(find . -name 'loaders.*')" ]
}

interrupted() {
	ends_by_signal "$LOADERS"
}

# timeout(1) sends its signal twice; here the second one arrives when the model is about to be
# removed.
interrupted_twice() {
	ends_by_signal python3 -c 'import os, runpy, shutil, signal, sys
remove = shutil.rmtree
def rmtree(*args, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    remove(*args, **options)
shutil.rmtree = rmtree
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")' "$LOADERS"
}

# Each of these files gives one line of error.
hostile_files() {
	here
	python3 -c 'import struct
def put(name, head):
    with open(name, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + bytes(64))
def offsets(name, text):
    put(name, b"{\"a\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[%s]}}" % text)
put("list", b"[]")
put("cut", b"{\"a\":{\"dty")
put("utf8", b"{\"\xff\":{}}")
put("deep", b"[" * 100000)
put("number", b"{\"a\":5}")
put("lacks", b"{\"a\":{\"dtype\":\"U8\"}}")
offsets("backwards", b"64,0")
offsets("negative", b"-64,0")
offsets("text", b"\"0\",\"64\"")
offsets("fraction", b"0.5,64")
offsets("one", b"64")
offsets("empty", b"0,0")'
	mkfifo pipe
	for file in list cut utf8 deep number lacks backwards negative text fraction one pipe; do
		loaders 1 --device host --files $file
		says "loaders: $file is no safetensors file" err
		[ "$(wc -l <err)" = 1 ]
	done
	loaders 1 --device host --files empty
	says "the tensors in these files have no bytes" err
}

# The program that --load names may print anything.
strange_answers() {
	here
	for answer in "echo '[]'" "echo '{}'" "echo 5" "kill -40 \$\$"; do
		printf '#!/bin/sh\n%s\n' "$answer" >strange
		chmod +x strange
		gives 1 "$LOADERS" --load ./strange --device host --size 3m --tensors 24 \
			--state memory
		[ "$(wc -l <err)" = 1 ]
	done
	says "ended by signal 40" err
}

mistakes() {
	loaders 2 --size 3x
	[ ! -s out ]
	loaders 2 --size 1e400
	loaders 2 --patience inf
	gives 1 env TMPDIR="$PWD/nowhere" "$LOADERS" --load "$LOAD_BENCH"
	[ "$(wc -l <err)" = 1 ]
	loaders 1 --device host --only nobody
	says "there is no loader 'nobody'; there are penstock," err
	loaders 1 --device cuda:0
	says "no NVIDIA driver here" err
	gives 1 "$LOADERS" --load nowhere/load
	says "nowhere/load is not there" err
}

run_cases host soft verify_once cuda python failures hangs_and_absent files not_disk interrupted \
	interrupted_twice hostile_files strange_answers mistakes
