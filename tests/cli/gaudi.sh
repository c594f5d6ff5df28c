#!/bin/sh
# SPDX-License-Identifier: MIT
# The command with Gaudi memory, on stubs of the vendor's libraries: doctor, copies in attach mode,
# the refusal in own mode, and puts, gets and messages between two processes.
. "$(dirname "$0")/lib.sh"

attr() { # NODE NAME TEXT
	mkdir -p "sysroot/sys/$1/device"
	echo "$3" >"sysroot/sys/$1/$2"
}

# Make a fake sysfs with one Gaudi 2.
use_gaudi() { # MODE
	attr class/accel/accel0 pci_addr 0000:1d:00.0
	attr class/accel/accel0 device_type GAUDI2
	attr class/accel/accel0 status operational
	attr class/accel/accel0 device/vendor 0x1da3
	PST_GAUDI_ROOT=$PWD/sysroot
	PST_GAUDI_MODE=$1
	PST_LIBHLTHUNK=$STUB_LIBHLTHUNK
	PST_LIBSYNAPSE=$STUB_LIBSYNAPSE
	PST_LIBSCAL=$STUB_LIBSYNAPSE
	STUB_GAUDI_DIR=$PWD
	export PST_GAUDI_ROOT PST_GAUDI_MODE PST_LIBHLTHUNK PST_LIBSYNAPSE PST_LIBSCAL STUB_GAUDI_DIR
}

row() { # PYTHON: d is the row of the Gaudi
	json out "[eval('''$1''', {'d': r}) for r in d['domains'] if r['device'] == 'gaudi:0'] == [True]"
}

doctor() {
	use_gaudi own
	gives 0 env COLUMNS=200 "$PENSTOCK" doctor --accel
	says "# Memory domain: gaudi" out
	says "Component: Habana GAUDI2" out
	says "Device: gaudi:0, 0000:1d:00.0" out
	says "dmabuf: yes: its memory became a dma-buf of 65536 bytes" out
	gives 0 "$PENSTOCK" doctor --accel --json
	row 'd["dmabuf"] and d["pci"] == "0000:1d:00.0" and d["domain"] == "gaudi"'
	# Another process has the device: the error says so, and how to find that process.
	(
		exec 8>stub-gaudi-0
		flock 8
		gives 0 "$PENSTOCK" doctor --accel --json
		row 'not d["dmabuf"] and d["errno"] == 16 and "fuser /dev/accel/accel0" in d["text"]'
	)
	STUB_GAUDI_FAIL=hlthunk_device_mapped_memory_export_dmabuf_fd:0:22 \
		gives 0 "$PENSTOCK" doctor --accel --json
	row 'not d["dmabuf"] and d["errno"] == 22 and "large BAR" in d["text"]'
	PST_DMABUF=no gives 0 "$PENSTOCK" doctor --accel --json
	row 'not d["dmabuf"] and "PST_DMABUF=no" in d["text"]'
	PST_LIBHLTHUNK=$PWD/missing.so gives 0 "$PENSTOCK" doctor --accel --json
	row 'not d["dmabuf"] and "no libhl-thunk here" in d["text"]'
}

synapse_copies() {
	use_gaudi synapse
	random 5000000 data
	gives 0 "$PENSTOCK" cp --verify data gaudi:0
	says gaudi:0 out
	gives 0 "$PENSTOCK" cp --via gaudi:0 data copy
	cmp data copy
	gives 0 "$PENSTOCK" cp --dmabuf yes --via gaudi:0 data again
	cmp data again
	gives 2 "$PENSTOCK" cp --dmabuf maybe --via gaudi:0 data again
	says "--dmabuf takes yes, no or try" err
}

own_refuses() {
	use_gaudi own
	random 5000 data
	gives 1 "$PENSTOCK" cp data gaudi:0
	says "the CPU cannot map gaudi memory; only other devices reach it" err
	says "PST_GAUDI_MODE=synapse" err
}

# A network card reaches memory of both modes.
rdma() {
	for mode in own synapse; do
		use_gaudi $mode
		PST_LIBIBVERBS=$STUB_LIBIBVERBS gives 0 env COLUMNS=200 "$PENSTOCK" doctor --rdma
		says "64 KiB of gaudi:0, reached by a dma-buf, and they were right" out
	done
	PST_DMABUF=no PST_LIBIBVERBS=$STUB_LIBIBVERBS gives 0 "$PENSTOCK" doctor --rdma
	says "PST_DMABUF=no" out
}

# Two processes, one of which has the device.
peers() {
	use_gaudi synapse
	"$PENSTOCK" perf --listen "unix:$PWD/sock" -m gaudi:0 2>server &
	server=$!
	until grep -q 'listening on ' server; do
		kill -0 $server
		sleep 0.01
	done
	for op in put get send recv; do
		gives 0 "$PENSTOCK" perf --op $op --sizes 4k,300000 --iters 20 --json "unix:$PWD/sock"
		json out "all(r['gb_per_s'] > 0 for r in d['rows']) and len(d['rows']) == 2"
	done
	kill -TERM $server
	gives 0 wait $server
}

run_cases doctor synapse_copies own_refuses rdma peers
