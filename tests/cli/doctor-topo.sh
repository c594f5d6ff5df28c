#!/bin/sh
# SPDX-License-Identifier: MIT
# doctor --topo: distances on the PCI bus, compared with libhwloc; the table; the picture.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"

need_hwloc() {
	need python3
	python3 -c 'import ctypes; ctypes.CDLL("libhwloc.so.15")' 2>/dev/null ||
		skip "libhwloc.so.15 (libhwloc15), the judge"
}

# Compare every pair of devices of every machine that the script describes; ./dev topo compares
# more.
machines() {
	need_hwloc
	python3 "$here/topo_judge.py" "$PENSTOCK" machines
}

# device HOST/BRIDGE/.../ADDRESS CLASS VENDOR NODE: add a device to the sysfs in ./sys.
device() {
	at=sys/devices
	for part in $(echo "$1" | tr / ' '); do
		at=$at/$part
		mkdir -p "$at"
	done
	echo "$2" >"$at/class"
	echo "$3" >"$at/vendor"
	echo "$4" >"$at/numa_node"
	mkdir -p sys/bus/pci/devices
	ln -s "../../../devices/$1" sys/bus/pci/devices/
}

# name CLASS NAME HOST/.../ADDRESS: add a device's name in a class of the kernel.
name() {
	mkdir -p "sys/class/$1" "sys/devices/$3/$1/$2"
	ln -s "../../devices/$3/$1/$2" "sys/class/$1/"
}

# A GPU and a NIC behind one switch, a disk next to the switch, another disk on the other node.
small() {
	mkdir -p sys/devices/system/node/node0 sys/devices/system/node/node1
	up=pci0000:00/0000:00:01.0/0000:01:00.0
	device $up/0000:02:00.0/0000:03:00.0 0x030200 0x10de 0
	device $up/0000:02:01.0/0000:04:00.0 0x020700 0x15b3 0
	device pci0000:00/0000:00:02.0/0000:05:00.0 0x010802 0x144d 0
	device pci0000:80/0000:80:02.0/0000:81:00.0 0x010802 0x144d 1
	device pci0000:00/0000:00:1f.0 0x030000 0x1a03 0
	name infiniband mlx5_0 $up/0000:02:01.0/0000:04:00.0
	name net ib0 $up/0000:02:01.0/0000:04:00.0
	name block nvme0n1 pci0000:00/0000:00:02.0/0000:05:00.0
	name block nvme0n1p1 pci0000:00/0000:00:02.0/0000:05:00.0
	: >sys/class/block/nvme0n1p1/partition
	# Some accelerators' drivers also have a network device.
	name net gpu0 $up/0000:02:00.0/0000:03:00.0
}

table() {
	small
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys
	[ "$(sed -n 1p out)" = "OK: 1 accelerator, 1 NIC, 2 disk controllers on 2 NUMA nodes" ]
	says "LIMITS: 0000:03:00.0 reaches no disk without the CPU's host bridge" out
	grep -q '^N0 *mlx5_0 ib0 *0000:04:00.0 *0 *pci0000:00 *3 ' out
	grep -q '^D0 *nvme0n1 *0000:05:00.0 ' out
	grep -q '^A0 *- *0000:03:00.0 ' out
	grep -q '^A0  *-  *PIX  *PHB  *SYS$' out
	grep -q '^D1  *SYS  *SYS  *SYS  *-$' out
	grep -q '^A0 0000:03:00.0  *PIX: mlx5_0  *PHB: nvme0n1$' out
	# For a narrow terminal the table is split by columns, and nothing is left out.
	COLUMNS=20 gives 0 "$PENSTOCK" doctor --topo --sysfs sys
	[ "$(grep -c '^A0  *\(-\|SYS\)' out)" = 2 ]
}

as_json() {
	small
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys --json
	json out 'd["ok"] and len(d["verdict"]) == 3 and d["numa_nodes"] == 2'
	json out '[x["id"] for x in d["devices"]] == ["A0", "N0", "D0", "D1"]'
	json out 'd["devices"][0]["bridges"] == ["0000:00:01.0", "0000:01:00.0", "0000:02:00.0"]'
	json out 'd["devices"][1]["names"] == ["mlx5_0", "ib0"]'
	json out 'd["distances"] == [["SELF", "PIX", "PHB", "SYS"], ["PIX", "SELF", "PHB", "SYS"],
		["PHB", "PHB", "SELF", "SYS"], ["SYS", "SYS", "SYS", "SELF"]]'
	json out 'd["nearest"] == [{"id": "A0", "nic": {"distance": "PIX", "ids": ["N0"]},
		"disk": {"distance": "PHB", "ids": ["D0"]}}]'
}

# A text for each device, and a box for each bridge that devices share.
picture() {
	small
	name net 'a&<b>"c' pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0
	rm sys/class/infiniband/mlx5_0 sys/class/net/ib0
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys --svg machine.svg
	python3 - <<-'END'
		import xml.etree.ElementTree as tree
		svg = "{http://www.w3.org/2000/svg}"
		root = tree.parse("machine.svg").getroot()
		texts = [t.text for t in root.iter(svg + "text")]
		for text in ("NUMA node 0", "NUMA node 1", "host bridge pci0000:00", "bridge 0000:01:00.0",
			     "nvme0n1", "0000:81:00.0", 'a&<b>"c', "NIC (1)"):
		    assert text in texts, (text, texts)
		# Each port of the switch has only one device, so no port is a box.
		assert not any("0000:02:0" in t for t in texts if t), texts
		boxes = [b.get("class") for b in root.iter(svg + "rect")]
		assert [boxes.count(c) for c in ("node", "host", "bridge", "tile")] == [2, 2, 1, 4], boxes
		width, height = float(root.get("width")), float(root.get("height"))
		for b in root.iter(svg + "rect"):
		    x, y = float(b.get("x", 0)), float(b.get("y", 0))
		    assert x + float(b.get("width")) <= width and y + float(b.get("height")) <= height
	END
	fails "cannot write" "$PENSTOCK" doctor --topo --sysfs sys --svg missing/machine.svg
}

# Hostile contents of a fake sysfs are ignored, or give an error.
hostile() {
	fails "mount sysfs, or name a sysfs with --sysfs" "$PENSTOCK" doctor --topo --sysfs missing
	device pci0000:00/0000:01:00.0 0x020000 0x15b3 99999
	device pci0000:00/0000:02:00.0 "$(head -c 5000 /dev/zero | tr '\0' 9)" 0x15b3 x
	device pci0000:00/0000:03:00.0 0x12zzzz 0x 1
	ln -s 0000:04:00.0 sys/bus/pci/devices/0000:04:00.0
	mkdir sys/bus/pci/devices/0000:05:00.0:x sys/bus/pci/devices/x
	name net "$(odd_name)" pci0000:00/0000:01:00.0
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys
	plain_text out
	says "1 NIC" out
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys --json --svg machine.svg
	json out 'len(d["devices"]) == 1 and d["devices"][0]["numa_node"] < 1000'
	plain_text machine.svg
	deep=pci0000:00
	for n in $(seq 10 50); do
		deep=$deep/0000:$n:00.0
	done
	device "$deep/0000:60:00.0" 0x020000 0x15b3 0
	fails "behind more than 32 bridges" "$PENSTOCK" doctor --topo --sysfs sys
}

nothing() {
	mkdir -p sys/bus/pci/devices
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys
	[ "$(sed -n 1p out)" = "NO: 0 accelerators, 0 NICs, 0 disk controllers on 1 NUMA node" ]
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys --json --svg machine.svg
	json out 'not d["ok"] and d["devices"] == [] and d["distances"] == []'
}

# A port with fewer active lanes than both sides support is reported.
narrow() {
	small
	echo 8 >sys/bus/pci/devices/0000:05:00.0/current_link_width
	echo 16 >sys/bus/pci/devices/0000:05:00.0/max_link_width
	gives 0 "$PENSTOCK" doctor --topo --sysfs sys
	says "nvme0n1 has 8 of its 16 PCIe lanes" out
	says "NEXT: see whether the slot of nvme0n1 (0000:05:00.0) has all lanes" out
}

wrong_options() {
	for wrong in --gds --accel --rdma '--dir .'; do
		# shellcheck disable=SC2086
		gives 2 "$PENSTOCK" doctor --topo $wrong
		says "--topo goes with --json, --svg and --sysfs only" err
	done
	gives 2 "$PENSTOCK" doctor --svg x
	says "--svg and --sysfs go with --topo" err
}

run_cases machines table as_json picture hostile nothing narrow wrong_options
