#!/bin/sh
# SPDX-License-Identifier: MIT
# udmabuf: windows on dma-bufs that the kernel makes of the software device's memory, if it has
# /dev/udmabuf.  The kernel of ./dev vm has it.
. "$(dirname "$0")/lib.sh"

need_udmabuf() {
	[ -r /dev/udmabuf ] && [ -w /dev/udmabuf ] || skip "/dev/udmabuf"
}

bytes_are_right() {
	need_udmabuf
	gives 0 "$PENSTOCK" window validate -d soft --backend dmabuf
	says "window   by dmabuf, cached, proven" out
	says "all 10 checks are right" out
	gives 0 "$PENSTOCK" window validate -d soft --backend dmabuf --size 64k --json
	json out 'd["backend"] == "dmabuf" and d["proven"] and all(c["ok"] for c in d["checks"])'
}

it_is_the_first_choice() {
	need_udmabuf
	gives 0 "$PENSTOCK" window validate -d soft
	says "window   by dmabuf" out
}

doctor_proves_it() {
	need_udmabuf
	gives 0 "$PENSTOCK" doctor --dir .
	grep -q '^  soft:0 *dmabuf *proven$' out
	gives 0 "$PENSTOCK" doctor --dir . --json
	json out '[b["state"] for x in d["devices"] if x["name"] == "soft:0" for b in x["windows"]["backends"]] == ["proven", "proven"]'
}

# The descriptor sent with a grant is the memory's own.
a_grant_opens_none() {
	need_udmabuf
	gives 1 "$PENSTOCK" window pingpong -d soft --backend dmabuf -n 10
	says "dmabuf" err
}

run_cases bytes_are_right it_is_the_first_choice doctor_proves_it a_grant_opens_none
