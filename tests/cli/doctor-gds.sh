#!/bin/sh
# SPDX-License-Identifier: MIT
# doctor --gds: the requirements of direct paths, on the stubs of NVIDIA's driver and cuFile.
. "$(dirname "$0")/lib.sh"

# The library's own path, by O_DIRECT.  On a CPU with a small cache slots are small, and a GPU
# kernel copies several of them at once (gather).
own_way='\(staged+\)\?\(gather+\)\?direct'

verdict() { # FIRST_LINE_BEGINS
	[ "$(sed -n 1p out | cut -c "1-${#1}")" = "$1" ]
	[ "$(sed -n 2p out | cut -c 1-8)" = "LIMITS: " ]
	[ "$(sed -n 3p out | cut -c 1-6)" = "NEXT: " ]
}

# The output has no byte that affects a terminal.
harmless() {
	[ "$(tr -d '\n' <out | LC_ALL=C tr -d '\040-\176' | wc -c)" = 0 ]
	[ ! -s err ]
}

proven() {
	use_cufile mode=p2pdma
	gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "OK: a scratch file in . has a direct way to cuda:0 and every other GPU"
	grep -q '^a scratch file in \. with cuda:0 (' out
	grep -q '^a scratch file in \. with cuda:1 (' out
	grep -q '^  library     ok          cuFile 1.15, /' out
	grep -q '^  trial       ok          1048576 bytes came directly, by p2pdma' out
	grep -q '^  requests    proven      a read went gds$' out
	grep -q '^  the rest as for cuda:0$' out
	harmless
	[ -z "$(find . -name 'penstock-*')" ]
}

refused() {
	use_cufile mode=compat
	gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has no direct way from a scratch file in . to cuda:0 and 1 more; requests go "
	sed -n 2p out >line
	says "trial: cuFile could not open its driver: DRIVER_NOT_INITIALIZED (5001)" line
	grep -q '^  trial       missing     cuFile could not open' out
	grep -q '^                          -> load the module nvidia-fs or' out
	# The path is named as in a completion.
	grep -q "^  requests    impossible  a read went $own_way" out
	tr -s ' \n' ' ' <out >flat
	says "cuFile was not used: it has no direct way" flat
	harmless
}

json_output() {
	use_cufile mode=nvfs
	gives 0 "$PENSTOCK" doctor --gds --dir . --json
	[ ! -s err ]
	json out 'd["ok"] and len(d["verdict"]) == 3 and d["penstock"] and d["machine"]'
	json out 'd["file"] == "" and d["dir"] == "." and d["file_error"] == "" and d["no_gpu"] == ""'
	json out '[g["device"] for g in d["gpus"]] == ["cuda:0", "cuda:1"] and d["checks"] == []'
	json out 'all(g["direct"] and g["error"] == "" and g["pci"] and g["model"] for g in d["gpus"])'
	json out 'all(c["state"] in ("ok", "missing", "unknown", "not needed") and c["text"] and
		set(c) == {"check", "state", "errno", "text", "cure"}
		for g in d["gpus"] for c in g["checks"])'
	json out '{"gpu", "library", "nvidia-fs", "p2pdma", "filesystem", "disk", "udev", "direct-io",
		"iommu", "acs", "distance", "trial"} == {c["check"] for c in d["gpus"][0]["checks"]}'
	json out 'all(g["requests"]["gds"] == "proven" and g["requests"]["paths"] == ["gds"] and
		g["requests"]["why"] == "none" and g["requests"]["error"] == "" for g in d["gpus"])'
	json out 'isinstance(d["mounts"], list) and d["mounts_error"] == "" and d["more_mounts"] == 0'

	use_cufile udev=0 1
	gives 0 "$PENSTOCK" doctor --gds --dir . --json
	json out 'not d["ok"] and not d["gpus"][0]["direct"]'
	json out '[(c["state"], c["cure"][:24]) for c in d["gpus"][0]["checks"] if c["check"] == "trial"]
		== [("missing", "it finds nothing about t")]'
	json out 'd["gpus"][0]["requests"]["why"] == "no-gds" and
		{"direct"} < set(d["gpus"][0]["requests"]["paths"]) <= {"direct", "staged", "gather"} and
		"doctor --gds" in d["gpus"][0]["requests"]["text"]'
}

lies() {
	use_cufile lie=wrong 1
	gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has no direct way"
	says "wrong bytes" out
	says "-> keep it off with PST_GDS=off" out
}

# A trial that hangs is given up, and no second one is started.
hangs() {
	use_cufile hang=cuFileDriverOpen:1
	# Give the trial one second instead of 25.
	PST_FAULT=gds.probe:0:short gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has no direct way"
	grep -q '^  trial       missing     penstock-gds-probe did not answer in time' out
	[ "$(grep -c '^  trial ' out)" = 1 ]
	[ "$(grep -c "^  requests    impossible  a read went $own_way; the path gds was not" out)" = 2 ]
	tr -s ' \n' ' ' <out >flat
	says "cuFile was not used: it hangs" flat
	harmless
}

crashes() {
	use_cufile mode=p2pdma 1
	PST_GDS_PROBE=/bin/false gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has no direct way"
	says "crashed" out
}

no_library() {
	use_cufile mode=p2pdma 1
	export PST_LIBCUFILE=/nonexistent/libcufile.so.0
	gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has no direct way"
	grep -q '^  library     missing     no cuFile here: /nonexistent/libcufile.so.0' out
	grep -q '^                          -> install it: ' out
	sed -n 2p out >line
	grep -q 'missing: [a-z, ]*library, ' line
	sed -n 3p out >line
	grep -q '^NEXT: \(gpu\|library\): ' line
}

# The direct path works, but a setting forbids it.
switched_off() {
	use_cufile mode=p2pdma 1
	PST_GDS=off gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has a direct way to cuda:0, but requests go "
	sed -n 1p out >line
	says "PST_GDS=off" line
}

no_gpu() {
	gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: there is no NVIDIA GPU to read to: no NVIDIA driver here"
	grep -q '^a scratch file in \.$' out
	grep -q '^  filesystem ' out
	lacks "requests  " out
	harmless
	use_stub 0
	gives 0 "$PENSTOCK" doctor --gds --dir . --json
	json out '"CUDA_ERROR_NO_DEVICE" in d["no_gpu"] and d["gpus"] == [] and not d["ok"]'
	json out '"filesystem" in {c["check"] for c in d["checks"]}'
}

full_gpu() {
	use_cufile mode=p2pdma 1
	STUB_CUDA_FAIL=cuMemAlloc_v2:0:2 gives 0 "$PENSTOCK" doctor --gds --dir .
	verdict "NO: cuFile has no direct way"
	says "a read failed: " out
}

a_file() {
	use_cufile mode=p2pdma 1
	random 3000000 data
	cp data before
	gives 0 "$PENSTOCK" doctor --gds --file data
	verdict "OK: data has a direct way to cuda:0, and requests take it"
	grep -q '^data with cuda:0 (' out
	lacks "other mounts" out
	cmp data before
	gives 0 "$PENSTOCK" doctor --gds --file data --json
	json out 'd["file"] == "data" and d["dir"] == "" and d["mounts"] == [] and d["ok"]'
	# Too short for requests by cuFile, but long enough for the trial.
	random 5000 data
	gives 0 "$PENSTOCK" doctor --gds --file data
	says "5000 bytes came directly" out
	grep -q '^  requests    possible ' out
}

wrong_files() {
	use_cufile mode=p2pdma 1
	fails "nowhere does not exist" "$PENSTOCK" doctor --gds --file nowhere
	: >empty
	fails "empty is empty" "$PENSTOCK" doctor --gds --file empty
	fails "is a directory" "$PENSTOCK" doctor --gds --file .
	fails "character device" "$PENSTOCK" doctor --gds --file /dev/null
	gives 0 "$PENSTOCK" doctor --gds --dir nowhere
	verdict "BAD: no file to try with: "
	harmless
	gives 0 "$PENSTOCK" doctor --gds --dir nowhere --json
	json out 'not d["ok"] and "nowhere" in d["file_error"] and d["gpus"][0]["checks"] == []'
}

wrong_words() {
	gives 2 "$PENSTOCK" doctor --file data
	says "--file goes with --gds" err
	gives 2 "$PENSTOCK" doctor --gds --file data --dir .
	says "--file goes with --gds" err
	gives 2 "$PENSTOCK" doctor --gds data
	says "unexpected argument" err
}

# Hostile names are shown, without effect on the terminal.
odd_names() {
	use_cufile mode=p2pdma 1
	esc=$(printf '\033')
	name=$(printf 'a b\nc\td\\\033[31me\302\2339m\200\342\200\256f')
	random 200000 "$name"
	gives 0 "$PENSTOCK" doctor --gds --file "$name"
	verdict "OK: a b\\012c\\011d\\\\033[31me\\302\\2339m\\200\\342\\200\\256f has"
	lacks "$esc" out
	harmless
	gives 0 "$PENSTOCK" doctor --gds --file "$name" --json
	json out 'd["file"].startswith("a b\\012c\\011d") and d["ok"]'
	# Letters outside of ASCII are printed unchanged.
	name=$(printf 'm\303\266del')
	random 200000 "$name"
	gives 0 "$PENSTOCK" doctor --gds --file "$name"
	verdict "OK: $name has"
	gives 1 "$PENSTOCK" doctor --gds --file "$(printf 'no\033such')"
	lacks "$esc" err
}

# Call this before with_mounts().
need_mounts() {
	[ "$(id -u)" = 0 ] || skip "root, to lay a file over the kernel's"
	need unshare
	unshare -m true 2>err || skip "mounts of its own: $(cat err)"
}

# with_mounts TEXT ARGUMENT...: run doctor with TEXT as the kernel's list of mounts.
with_mounts() {
	need_mounts
	printf '%b' "$1" >mountinfo
	shift
	unshare -m sh -c 'mount --bind mountinfo /proc/$$/mountinfo && cat /proc/$$/mountinfo' \
		>seen 2>err || skip "mounts of its own: $(cat err)"
	cmp -s seen mountinfo || skip "a kernel that lets one lie about mounts"
	gives 0 unshare -m sh -c \
		'mount --bind mountinfo /proc/$$/mountinfo && exec "$0" doctor --gds --dir . "$@"' \
		"$PENSTOCK" "$@"
}

mounts() {
	use_cufile mode=p2pdma 1
	odd=$(printf 'x y\nz\033')
	mkdir "$odd" data
	text="20 1 0:20 / /proc rw - proc proc rw
21 1 0:50 / $PWD/data rw,a=b shared:1 - nfs4 server:/exp\\\\040ort rw,vers=4
22 1 0:51 / $PWD/x\\\\040y\\\\012z\\\\033 rw - lustre a@tcp:/b rw
23 1 0:50 /sub $PWD/data/much/longer rw - nfs4 server:/exp rw
24 1 259:77 / $PWD/data rw - ext4 /dev/nvme9n1 rw
25 1 259:78 / $PWD/none rw - xfs /dev/nvme8n1 rw
26 1 7:3 / $PWD/snap ro - squashfs /dev/loop3 ro
27 1 0:52 / $PWD/ov rw - overlay overlay rw
nonsense
28 1 what / /x
29 1 0:53 / relative rw - nfs4 s:/x rw
30 1 0:54 / / rw -
"
	with_mounts "$text"
	harmless
	sed -n '/^other mounts, not tried$/,$p' out >list
	grep -qF "$PWD/data (nfs4, 0:50, server:/exp ort)" list
	grep -qF "$PWD/x y\\012z\\033 (lustre, 0:51, a@tcp:/b)" list
	grep -A1 -F "$PWD/data (ext4, 259:77, /dev/nvme9n1)" list | grep -q 'another mount lies over it'
	grep -A1 -F "$PWD/none (xfs, 259:78, /dev/nvme8n1)" list | grep -q 'not tried   /'
	says ENOENT list
	for word in squashfs overlay /proc longer relative; do
		lacks "$word" list
	done
	with_mounts "$text" --json
	json out '[m["type"] for m in d["mounts"]] == ["nfs4", "lustre", "ext4", "xfs"]'
	json out 'd["mounts"][0]["device"] == "0:50" and d["mounts"][0]["error"] == ""'
	json out '"filesystem" in {c["check"] for c in d["mounts"][0]["checks"]}'
	json out 'not {"trial", "library"} & {c["check"] for m in d["mounts"] for c in m["checks"]}'
	json out '[bool(m["error"]) for m in d["mounts"]] == [False, False, True, True]'
}

many_mounts() {
	text=
	for n in $(seq 70); do
		text="${text}1$n 1 259:$n / /none/$n rw - ext4 /dev/x rw\n"
	done
	with_mounts "$text"
	says "and 6 more mounts" out
	with_mounts "" --json
	json out 'd["mounts"] == [] and d["mounts_error"] == ""'
}

# A file server that does not answer costs some seconds.
dead_mounts() {
	[ -x "${FUSEFS:-}" ] || skip "FUSEFS, which names the program fusefs"
	[ -c /dev/fuse ] || skip "/dev/fuse"
	need_mounts
	# A sanitizer would wait at exit for the thread that waits for the server.
	lib=$(dirname "$PENSTOCK")/../src/libpenstock.so
	! nm -D "$lib" 2>/dev/null | grep -q '__[at]san_init' || skip "a library without a sanitizer"
	mkdir mnt
	"$FUSEFS" mnt >ready 2>&1 &
	server=$!
	until grep -q ready ready; do
		kill -0 $server 2>/dev/null || skip "a FUSE that can be mounted: $(cat ready)"
		sleep 0.1
	done
	kill -STOP $server
	with_mounts "20 1 0:50 / $PWD/mnt rw - nfs server:/gone rw\n21 1 0:51 / $PWD rw - nfs server:/here rw\n"
	kill -CONT $server
	kill $server
	wait $server || :
	says "it does not answer within 5 s" out
	sed -n '/server:.here/,$p' out | grep -q 'as for the file above'
}

# Plain doctor gives the same reason.
the_other_doctor() {
	use_cufile mode=compat 1
	gives 0 "$PENSTOCK" doctor --dir .
	lacks "not in this version; needs an NVIDIA GPU" out
	grep -q '^    gds .*impossible.*cuFile was not used: it has no direct way.*penstock doctor --gds' out
	use_cufile mode=p2pdma 1
	gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: files reach cuda:0 by gds and leave it by gds"
	grep -q '^    gds  *both  *proven$' out
}

run_cases proven refused json_output lies hangs crashes no_library switched_off no_gpu full_gpu \
	a_file wrong_files wrong_words odd_names mounts many_mounts dead_mounts the_other_doctor
