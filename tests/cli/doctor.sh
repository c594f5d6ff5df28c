#!/bin/sh
# SPDX-License-Identifier: MIT
# doctor: a verdict in three lines, on every machine.
. "$(dirname "$0")/lib.sh"

verdict() { # FIRST_LINE_BEGINS
	[ "$(sed -n 1p out | cut -c "1-${#1}")" = "$1" ]
	[ "$(sed -n 2p out | cut -c 1-8)" = "LIMITS: " ]
	[ "$(sed -n 3p out | cut -c 1-6)" = "NEXT: " ]
}

three_lines_first() {
	gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: files reach "
	for part in devices stores paths limits machine; do
		grep -q "^$part" out
	done
	[ ! -s err ]
	[ -z "$(find . -type d -name 'penstock-*')" ]
}

# Which memory other devices can reach, in the format of ucx_info.
accelerators() {
	gives 0 "$PENSTOCK" doctor --accel
	grep -q '^# Memory domain: soft$' out
	grep -q '^#        Device: dmabuf:0$' out
	grep -q '^#        dmabuf: yes: what another driver exports' out
	grep -q '^  p2pdma ' out
	gives 0 "$PENSTOCK" doctor --accel --json
	json out '{"host", "soft", "dmabuf"} <= {x["domain"] for x in d["domains"]}'
	json out '[x["dmabuf"] for x in d["domains"] if x["domain"] == "dmabuf"] == [True]'
	json out '[x["check"] for x in d["machine"]][:2] == ["kernel", "p2pdma"]'
	json out 'all(x["text"] for x in d["machine"] + d["domains"])'
	gives 2 "$PENSTOCK" doctor --accel --gds
	says "--accel goes with --json alone" err
}

json_output() {
	gives 0 "$PENSTOCK" doctor --dir . --json
	json out 'd["ok"] and len(d["verdict"]) == 3'
	json out '{"host", "soft:0"} <= {x["name"] for x in d["devices"]}'
	json out 'all(x["paths"]["buffered"]["read"]["state"] == "proven" for x in d["devices"])'
	json out 'all(x["paths"]["buffered"]["write"]["state"] == "proven" for x in d["devices"])'
	[ ! -s err ]
}

no_uring() {
	PST_FAULT=file.uring:0:EPERM gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: "
	sed -n 2p out >line
	says "threads are used" line
}

no_direct() {
	PST_FAULT=file.direct:0:EINVAL gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: "
	grep -q 'direct .*impossible' out
}

no_directory() {
	gives 0 "$PENSTOCK" doctor --dir nowhere
	verdict "BAD: no file to try with"
	gives 0 "$PENSTOCK" doctor --dir nowhere --json
	json out 'not d["ok"] and d["files"]["error"]'
}

no_descriptors() {
	for n in 4 6 8 12; do
		gives 0 sh -c "ulimit -n $n; exec \"\$0\" doctor --dir ." "$PENSTOCK"
	done
	[ "$(wc -l <out)" -gt 10 ]
}

failing_device() {
	PST_FAULT=mem.alloc:0:ENOMEM gives 0 "$PENSTOCK" doctor --dir .
	verdict "BAD: files do not reach"
}

failing_disk() {
	PST_FAULT=file.read:0:EIO,file.write:0:EIO gives 0 "$PENSTOCK" doctor --dir .
	verdict "BAD: files do not reach"
	says "EIO" out
}

gpu_facts() {
	use_stub
	gives 0 "$PENSTOCK" doctor --dir .
	verdict "OK: files reach cuda:0 by "
	says "PCI fff0:17:00.0, NUMA node unknown" out
	grep -q '^    UUID  *30747562-2063-7564-6120-646576696365$' out
	grep -q '^    async engines  *3$' out
	grep -q '^    bar1  *unknown$' out
	grep -q '^    otherwise as cuda:0$' out
	grep -q '^    as cuda:0$' out
	lacks "none: " out

	gives 0 "$PENSTOCK" doctor --dir . --json
	json out '[x["facts"]["dma-buf"] for x in d["devices"] if x["name"] == "cuda:1"] == ["yes"]'
	json out '[x["facts"]["page size"][-5:] for x in d["devices"] if x["name"] == "host"] == ["bytes"]'
	json out 'd["missing"]["cuda"] == ""'
	# The kernel for small pieces is detected by a request that used it.
	json out '[x["paths"]["gather"]["read"]["state"] for x in d["devices"]] ==
		["impossible", "proven", "proven", "impossible"]'
	json out '[x["paths"]["gather"]["write"]["state"] for x in d["devices"]] ==
		["impossible", "proven", "proven", "impossible"]'
	json out 'all(p["needs"] for x in d["devices"] for p in x["paths"].values())'
}

what_the_driver_does_not_tell() {
	use_stub 1
	STUB_CUDA_FAIL=cuDeviceGetAttribute:0:1 gives 0 "$PENSTOCK" doctor --dir . --json
	json out '{x["facts"]["dma-buf"] for x in d["devices"] if x["name"] == "cuda:0"} == {"unknown"}'
	json out '{x["facts"]["async engines"] for x in d["devices"] if x["name"] == "cuda:0"} == {"unknown"}'
}

# as_machine SCRIPT ARGUMENT...: run doctor after the script replaced files of the kernel.
as_machine() {
	[ "$(id -u)" = 0 ] || skip "root, to lay files over the kernel's"
	need unshare
	unshare -m mount -t tmpfs none /sys/bus/pci 2>err || skip "mounts of its own: $(cat err)"
	script=$1
	shift
	gives 0 unshare -m sh -e -c "
		pci=/sys/bus/pci/devices module=/sys/module
		mount -t tmpfs none /sys/bus/pci
		mount -t tmpfs none /sys/module
		$script
		exec \"\$0\" doctor --dir . \"\$@\"" "$PENSTOCK" "$@"
}

kernel_facts() {
	use_stub 1
	as_machine '
		gpu=$pci/fff0:17:00.0
		mkdir -p $gpu $module/nvidia
		echo 1 >$gpu/numa_node
		printf "%s\n" "0x1000000 0x1ffffff 0x40200" "0x0 0x0 0x0" \
			"0x200000000 0x3ffffffff 0x14220c" >$gpu/resource
		echo 580.1.2 >$module/nvidia/version
		echo OE >$module/nvidia/taint' --json
	json out '[x["numa_node"] for x in d["devices"] if x["name"] == "cuda:0"] == [1]'
	json out '[(x["facts"]["driver"], x["facts"]["kernel module"], x["facts"]["bar1"])
		for x in d["devices"] if x["name"] == "cuda:0"] ==
		[("580.1.2", "open", "8192 MiB, all of the memory")]'
}

gpu_without_driver() {
	as_machine '
		mkdir -p $pci/0000:9a:00.0 $pci/0000:17:00.0 $pci/0000:01:00.0
		echo 0x10de | tee $pci/0000:9a:00.0/vendor >$pci/0000:17:00.0/vendor
		echo 0x030200 | tee $pci/0000:9a:00.0/class >$pci/0000:17:00.0/class
		echo 0x10de >$pci/0000:01:00.0/vendor
		echo 0x068000 >$pci/0000:01:00.0/class'
	verdict "OK: files reach soft:0"
	sed -n 2p out >line
	says "NVIDIA GPUs at PCI 0000:17:00.0 and others are not served: no NVIDIA driver here" line
	sed -n 3p out >line
	says "docker run --gpus all" line
	grep -q '^    NVIDIA GPUs on the PCI bus  *2, the first at 0000:17:00.0$' out
}

no_gpu() {
	gives 0 "$PENSTOCK" doctor --dir .
	grep -q '^  cuda  *none: no NVIDIA driver here: /nonexistent/libcuda.so.1' out
	use_stub 0
	gives 0 "$PENSTOCK" doctor --dir . --json
	json out '"CUDA_ERROR_NO_DEVICE" in d["missing"]["cuda"]'
	json out 'd["ok"]'
}

full_gpus() {
	use_stub
	STUB_CUDA_FAIL=cuMemAlloc_v2:0:2 gives 0 "$PENSTOCK" doctor --dir .
	verdict "BAD: files do not reach cuda:0"
	sed -n 2p out >line
	says "files do not reach cuda:1" line
}

empty_environment() {
	gives 0 env -i COLUMNS=$COLUMNS "$PENSTOCK" doctor --dir .
	verdict "OK: "
}

odd_names() {
	shown='a\012\033[31mb\233\302\205\377c'
	mkdir "$(odd_name)"
	PST_LOG=debug gives 0 "$PENSTOCK" doctor --dir "$(odd_name)"
	says "paths to a scratch file in $shown (" out
	plain_text out err
	PST_LOG=debug gives 0 "$PENSTOCK" doctor --dir "$(odd_name)" --json
	json out 'd["ok"]'
	plain_text out err
	for option in '' --json --gds; do
		# shellcheck disable=SC2086
		"$PENSTOCK" doctor --dir "$(odd_name)/none" $option >out 2>err || true
		says "a\\" out
		plain_text out err
	done
	random 300000 "$(odd_name)/$(odd_name)"
	PST_LOG=debug "$PENSTOCK" doctor --gds --json --file "$(odd_name)/$(odd_name)" >out 2>err || true
	json out 'isinstance(d, dict)'
	plain_text out err
}

run_cases three_lines_first accelerators json_output no_uring no_direct no_directory no_descriptors \
	failing_device failing_disk gpu_facts what_the_driver_does_not_tell kernel_facts \
	gpu_without_driver no_gpu full_gpus empty_environment odd_names
