#!/bin/sh
# SPDX-License-Identifier: MIT
# doctor --rdma: the requirements of RDMA, with the stub of libibverbs and without one.
. "$(dirname "$0")/lib.sh"

verdict() { # FIRST_LINE_BEGINS
	[ "$(sed -n 1p out | cut -c "1-${#1}")" = "$1" ]
	[ "$(sed -n 2p out | cut -c 1-8)" = "LIMITS: " ]
	[ "$(sed -n 3p out | cut -c 1-6)" = "NEXT: " ]
}

# The stub's devices are not in sysfs, so the library alone reports them.
use_verbs() { # NAME=VALUE...
	for set; do
		export "STUB_IBVERBS_$set"
	done
	PST_LIBIBVERBS=$STUB_LIBIBVERBS
	export PST_LIBIBVERBS
}

ready() {
	use_verbs DEVICES=2
	gives 0 env COLUMNS=200 "$PENSTOCK" doctor --rdma
	verdict "OK: "
	# The address is chosen by type, not by order, and is never link-local.
	says "stub0 port 1 is active, Ethernet" out
	says "GID 3 of 4: 10.9.0.1, RoCE v2, IPv4" out
	says "stub1 registers dma-bufs" out
	says "dma-bufs stand in for it" out
	says "stub0 wrote and read 64 KiB of host, reached by its address, and they were right" out
	[ ! -s err ]
}

infiniband() {
	use_verbs LINK=ib
	gives 0 env COLUMNS=200 "$PENSTOCK" doctor --rdma
	verdict "OK: "
	says "stub0 port 1 is active, InfiniBand" out
}

no_dmabuf() {
	use_verbs DMABUF=95
	gives 0 "$PENSTOCK" doctor --rdma --json
	json out 'd["ok"] and "dma-buf" in d["verdict"][1]'
	json out '[c["errno"] for c in d["checks"] if c["check"] == "dma-buf"] == [95]'
	json out 'all(c["cure"] for c in d["checks"] if c["state"] == "missing")'
	json out 'set(d) == {"ok", "verdict", "checks", "penstock", "machine"}'
	use_verbs DMABUF=93
	gives 0 "$PENSTOCK" doctor --rdma --json
	json out '"/dev/infiniband" in [c["cure"] for c in d["checks"] if c["check"] == "dma-buf"][0]'
}

# A path whose registration works but whose bytes are wrong is detected.
loop_fails() {
	use_verbs FAIL=completion:2:10
	gives 0 "$PENSTOCK" doctor --rdma --json
	json out 'any("writes into host memory but does not read it: remote access error" in c["text"]
		for c in d["checks"] if c["check"] == "loop-back" and c["state"] == "missing")'
	json out 'not d["ok"] and d["verdict"][0].startswith("NO")'
}

no_library() {
	PST_LIBIBVERBS=$PWD/missing.so gives 0 "$PENSTOCK" doctor --rdma --json
	json out 'not d["ok"] and d["checks"][0]["check"] == "library"'
	json out 'd["checks"][0]["state"] == "missing" and "libibverbs1" in d["checks"][0]["cure"]'
	PST_LIBIBVERBS=$PWD/missing.so gives 0 "$PENSTOCK" doctor --rdma
	verdict "NO: no port is ready for RDMA"
}

wrong_options() {
	for wrong in --gds '--dir .'; do
		# shellcheck disable=SC2086
		gives 2 "$PENSTOCK" doctor --rdma $wrong
		says "--rdma goes with --json only" err
	done
}

run_cases ready infiniband no_dmabuf loop_fails no_library wrong_options
