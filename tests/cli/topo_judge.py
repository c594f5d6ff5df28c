# SPDX-License-Identifier: MIT
"""topo_judge.py PENSTOCK machines
topo_judge.py PENSTOCK hwloc DIR
topo_judge.py write NAME DIR

Compare penstock doctor --topo with libhwloc.

machines: make an XML topology for libhwloc and a sysfs for penstock from each description below.
hwloc: do so for each XML topology with PCI devices below DIR; archives of a sysfs below DIR are
read by both.  write: write the sysfs of one machine to DIR.
"""

import ctypes as c
import glob
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

PCI_TYPES = {"gpu": "0302 [10de:2330]", "npu": "1200 [1da3:1020]", "nic": "0207 [15b3:1021]",
                 "eth": "0200 [8086:1572]", "nvme": "0108 [144d:a80a]", "vga": "0300 [1a03:2000]",
                 "amd": "0380 [1002:740f]", "vector": "0b40 [1bcf:001c]",
             "quickassist": "0b40 [8086:37c8]"}

# A machine: NUMA nodes, then host bridges (node or None, trees).  A tree is a device, or the list
# of what is behind a bridge.  A switch is an upstream bridge with one bridge per device.


def switch(*below):
    return [[one] if isinstance(one, str) else one for one in below]


MACHINES = {
    # Two sockets with two switches each; two GPUs, two NICs and two disks behind each switch.
    "eight-gpus": (2, [(0, [[switch(*["gpu", "gpu", "nic", "nic", "nvme", "nvme"])]]),
                       (0, [[switch(*["gpu", "gpu", "nic", "nic", "nvme", "nvme"])]]),
                       (0, [["eth"], "vga", ["nvme"]]),
                       (1, [[switch(*["gpu", "gpu", "nic", "nic", "nvme", "nvme"])]]),
                       (1, [[switch(*["gpu", "gpu", "nic", "nic", "nvme", "nvme"])]])]),
    # One host bridge per socket, with switches behind a switch.
    "two-levels": (2, [(n, [[switch([switch("gpu", "gpu", "nic")], [switch("gpu", "gpu", "nic")],
                                    "nvme")], ["nic"]]) for n in (0, 1)]),
    # Eight accelerators with one root port each, four NUMA nodes per socket.
    "no-switch": (8, [(n, [["amd"], ["nic"]]) for n in range(8)]),
    # One host bridge per device, as on some ARM and AMD machines.
    "host-each": (2, [(n // 6, [[kind]]) for n, kind in
                      enumerate(["npu", "npu", "nic", "nvme", "npu", "npu"] * 2)]),
    # A virtual machine: all devices on the root bus, with unknown nodes.
    "flat": (1, [(None, ["gpu", "gpu", "eth", "nvme", "nvme", "vector", "quickassist"])]),
    "one-node": (1, [(None, [["gpu"]]), (None, [["nic"]])]),
    "unknown-nodes": (2, [(None, [["gpu"], ["nic"]]), (None, [["gpu"], ["nvme"]])]),
    # Several functions behind one port, and a bridge that is deeper on one side.
    "functions": (1, [(0, [["nic", "nic", switch("gpu", [switch("gpu", "nvme")])]])]),
}


class Obj(c.Structure):
    pass


Obj._fields_ = [
    ("type", c.c_int), ("subtype", c.c_char_p), ("os_index", c.c_uint), ("name", c.c_char_p),
    ("total_memory", c.c_uint64), ("attr", c.c_void_p), ("depth", c.c_int),
    ("logical_index", c.c_uint), ("next_cousin", c.c_void_p), ("prev_cousin", c.c_void_p),
    ("parent", c.POINTER(Obj)), ("sibling_rank", c.c_uint), ("next_sibling", c.POINTER(Obj)),
    ("prev_sibling", c.c_void_p), ("arity", c.c_uint), ("children", c.c_void_p),
    ("first_child", c.c_void_p), ("last_child", c.c_void_p), ("symmetric_subtree", c.c_int),
    ("memory_arity", c.c_uint), ("memory_first_child", c.c_void_p), ("io_arity", c.c_uint),
    ("io_first_child", c.POINTER(Obj)), ("misc_arity", c.c_uint),
    ("misc_first_child", c.c_void_p), ("cpuset", c.c_void_p), ("complete_cpuset", c.c_void_p),
    ("nodeset", c.c_void_p)]


class PciAttr(c.Structure):
    _fields_ = [("domain", c.c_ushort), ("bus", c.c_ubyte), ("dev", c.c_ubyte), ("func", c.c_ubyte),
                ("cls", c.c_ushort), ("vendor", c.c_ushort), ("device", c.c_ushort),
                ("subvendor", c.c_ushort), ("subdevice", c.c_ushort), ("revision", c.c_ubyte),
                ("linkspeed", c.c_float)]


class BridgeAttr(c.Structure):
    _fields_ = [("pci", PciAttr), ("upstream", c.c_int), ("domain", c.c_ushort),
                ("secondary", c.c_ubyte), ("subordinate", c.c_ubyte), ("downstream", c.c_int)]


BRIDGE, PCI, OS_DEVICE = 14, 15, 16
IO = (BRIDGE, PCI, OS_DEVICE)
CLASS_OF = {0: "block", 2: "net", 3: "infiniband"}


def libhwloc():
    lib = c.CDLL("libhwloc.so.15")
    lib.hwloc_get_obj_by_depth.restype = c.POINTER(Obj)
    for fn in (lib.hwloc_bitmap_weight, lib.hwloc_bitmap_isequal, lib.hwloc_bitmap_first):
        fn.argtypes = [c.c_void_p] * (2 if fn is lib.hwloc_bitmap_isequal else 1)
    return lib


def same(a, b):
    return c.addressof(a.contents) == c.addressof(b.contents)


class Hwloc:
    """A topology, loaded by libhwloc from an XML file or from a copy of a machine's sysfs."""

    def __init__(self, lib, xml=None, root=None):
        self.lib, self.t = lib, c.c_void_p()
        os.environ.pop("HWLOC_FSROOT", None)
        os.environ["HWLOC_HIDE_ERRORS"] = "2"  # hide warnings about wrong data of machines
        if root:
            os.environ["HWLOC_FSROOT"] = root
            os.environ["HWLOC_COMPONENTS"] = "linux,stop"
        else:
            os.environ.pop("HWLOC_COMPONENTS", None)
        assert lib.hwloc_topology_init(c.byref(self.t)) == 0
        if xml:
            assert lib.hwloc_topology_set_xml(self.t, xml.encode()) == 0, xml
        lib.hwloc_topology_set_all_types_filter(self.t, 0)
        self.loaded = lib.hwloc_topology_load(self.t) == 0
        self.nodes = self.level(-3) if self.loaded else []
        self.devs = {self.address(o): o for o in self.level(-5)} if self.loaded else {}

    def close(self):
        self.lib.hwloc_topology_destroy(self.t)

    def level(self, depth):
        found, i = [], 0
        while o := self.lib.hwloc_get_obj_by_depth(self.t, c.c_int(depth), c.c_uint(i)):
            found.append(o)
            i += 1
        return found

    @staticmethod
    def pci(o):
        return c.cast(o.contents.attr, c.POINTER(PciAttr)).contents

    @staticmethod
    def bridge(o):
        return c.cast(o.contents.attr, c.POINTER(BridgeAttr)).contents

    def address(self, o):
        a = self.pci(o)
        return f"{a.domain:04x}:{a.bus:02x}:{a.dev:02x}.{a.func:x}"

    @staticmethod
    def parents(o):
        """Return the parents from the root down."""
        up = []
        while o.contents.parent:
            o = o.contents.parent
            up.append(o)
        return up[::-1]

    def place(self, o):
        """Return the object above a device that is not part of the PCI bus."""
        return [p for p in self.parents(o) if p.contents.type not in IO][-1].contents.nodeset

    def node(self, o):
        """Return the NUMA node; -1 if unknown."""
        nodes = self.place(o)
        if len(self.nodes) > 1 and self.lib.hwloc_bitmap_weight(nodes) != 1:
            return -1
        return self.lib.hwloc_bitmap_first(nodes)

    def distance(self, a, b):
        ups = self.parents(a), self.parents(b)
        n = 0
        while n < min(map(len, ups)) and same(ups[0][n], ups[1][n]):
            n += 1
        common = ups[0][n - 1]
        if same(a, b):
            return "SELF"
        if common.contents.type == BRIDGE:
            if self.bridge(common).upstream == 0:
                return "PHB"
            return "PIX" if max(map(len, ups)) - n <= 1 else "PXB"
        one = len(self.nodes) <= 1 or self.node(a) >= 0
        return "NODE" if one and self.lib.hwloc_bitmap_isequal(self.place(a), self.place(b)) \
            else "SYS"

    def names(self, o):
        """Return the device's names in classes of the kernel, as (class, name)."""
        found, child = [], o.contents.io_first_child
        while child:
            kind = c.cast(child.contents.attr, c.POINTER(c.c_int)).contents.value
            if child.contents.type == OS_DEVICE and kind in CLASS_OF and child.contents.name:
                found.append((CLASS_OF[kind], child.contents.name.decode()))
            child = child.contents.next_sibling
        return found

    def sysfs(self, root):
        """Write the files that the kernel would show for the PCI bus of this machine."""
        sysfs = Sysfs(root, len(self.nodes))
        for pci, o in self.devs.items():
            above = [p for p in self.parents(o) if p.contents.type == BRIDGE]
            if above:
                b = self.bridge(above[0])
                host = f"pci{b.domain:04x}:{b.secondary:02x}"
            else:
                host = "pci" + pci[:7]
            a = self.pci(o)
            # On a machine with one node the kernel reports node -1.
            node = self.node(o) if len(self.nodes) > 1 else -1
            sysfs.device(host, [self.address(p) for p in above[1:]], pci, a.cls, a.vendor,
                         a.device, node, self.names(o))


class Sysfs:
    def __init__(self, root, nodes):
        self.root = root
        for n in range(nodes):
            os.makedirs(f"{root}/devices/system/node/node{n}")
        os.makedirs(f"{root}/bus/pci/devices")

    def folder(self, path, pci, **facts):
        where = f"{self.root}/{path}"
        if os.path.isdir(where):
            return
        os.makedirs(where)
        for fact, value in facts.items():
            with open(f"{where}/{fact}", "w", encoding="ascii") as f:
                f.write(f"{value}\n")
        os.symlink(f"../../../{path}", f"{self.root}/bus/pci/devices/{pci}")

    def device(self, host, bridges, pci, cls, vendor, device, node, names):
        path = f"devices/{host}"
        for b in bridges:
            path += "/" + b
            self.folder(path, b, **{"class": "0x060400", "vendor": "0x8086", "numa_node": node})
        path += "/" + pci
        self.folder(path, pci, **{
            "class": f"{cls << 8:#08x}", "vendor": f"{vendor:#06x}", "device": f"{device:#06x}",
            "numa_node": node, "current_link_width": 16, "max_link_width": 16,
            "max_link_speed": "32.0 GT/s PCIe"})
        for kind, name in names:
            os.makedirs(f"{self.root}/{path}/{kind}/{name}")
            os.makedirs(f"{self.root}/class/{kind}", exist_ok=True)
            os.symlink(f"../../{path}/{kind}/{name}", f"{self.root}/class/{kind}/{name}")


class Machine:
    """A description; makes its XML, in the order in which buses are numbered."""

    def __init__(self, nodes, hosts):
        self.nodes, self.bus, self.count = nodes, 0, {}
        inside = {n: "" for n in [None, *range(nodes)]}
        for node, trees in hosts:
            first = self.bus
            self.bus += 1
            below = "".join(self.tree(t, first, i) for i, t in enumerate(trees))
            inside[node] += (f'<object type="Bridge" bridge_type="0-1" depth="0" '
                             f'bridge_pci="0000:[{first:02x}-{self.bus - 1:02x}]">{below}</object>')
        sets = 'cpuset="{0}" complete_cpuset="{0}" nodeset="{0}" complete_nodeset="{0}"'.format
        every, text = f"0x{(1 << nodes) - 1:08x}", ""
        for n in range(nodes):
            one = sets(f"0x{1 << n:08x}")
            text += (f'<object type="Package" os_index="{n}" {one}>'
                     f'<object type="NUMANode" os_index="{n}" {one} local_memory="4096"/>'
                     f'<object type="PU" os_index="{n}" {one}/>{inside[n]}</object>')
        self.xml = ('<?xml version="1.0" encoding="UTF-8"?>\n'
                    '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                    f'<topology version="2.0">\n<object type="Machine" os_index="0" {sets(every)} '
                    f'allowed_cpuset="{every}" allowed_nodeset="{every}">{text}{inside[None]}'
                    '</object></topology>')

    def tree(self, tree, bus, place):
        dev, fn = (place, 0) if isinstance(tree, list) or bus == 0 else (0, place)
        pci = f"0000:{bus:02x}:{dev:02x}.{fn}"
        if isinstance(tree, str):
            n = self.count[tree] = self.count.get(tree, -1) + 1
            name, number = {"nvme": (f"nvme{n}n1", 0), "eth": (f"eth{n}", 2),
                            "nic": (f"mlx5_{n}", 3)}.get(tree, ("", 0))
            osdev = f'<object type="OSDev" name="{name}" osdev_type="{number}"/>' if name else ""
            return (f'<object type="PCIDev" pci_busid="{pci}" pci_type="{PCI_TYPES[tree]} '
                    f'[0000:0000] 00" pci_link_speed="0.0">{osdev}</object>')
        first = self.bus
        self.bus += 1
        below = "".join(self.tree(t, first, i) for i, t in enumerate(tree))
        return (f'<object type="Bridge" bridge_type="1-1" depth="1" bridge_pci="0000:'
                f'[{first:02x}-{self.bus - 1:02x}]" pci_busid="{pci}" pci_type="0604 [8086:2030] '
                f'[0000:0000] 00" pci_link_speed="0.0">{below}</object>')


def report(penstock, sysfs, *options):
    out = subprocess.run([penstock, "doctor", "--topo", "--json", "--sysfs", sysfs, *options],
                         check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)


def is_wanted(cls, vendor):
    return cls >> 8 in (1, 2, 0x12) or cls == 0x0c06 or cls == 0x0b40 and vendor != 0x8086 or \
        cls >> 8 == 3 and vendor in (0x10de, 0x1002, 0x8086)


def compare(what, hw, got, exact=True):
    """Compare every pair of devices, their nodes and their names.  Return the number of pairs of
    each relation."""
    wanted = {pci for pci, o in hw.devs.items() if is_wanted(hw.pci(o).cls, hw.pci(o).vendor)}
    mine = [d["pci"] for d in got["devices"]]
    assert not exact or set(mine) == wanted, f"{what}: devices {set(mine) ^ wanted}"
    counts = {}
    for i, a in enumerate(got["devices"]):
        if a["pci"] not in hw.devs:
            continue
        node = hw.node(hw.devs[a["pci"]])
        # The kernel may report a node but all CPUs as local, and libhwloc uses the CPUs.
        if len(hw.nodes) > 1 and (exact or node >= 0):
            assert a["numa_node"] == node, f"{what}: node of {a['pci']} is {node}, not {a}"
        names = {name for _, name in hw.names(hw.devs[a["pci"]])}
        assert a["kind"] == "accelerator" or len(names) > 4 or not exact or \
            set(a["names"]) == names, f"{what}: {a['pci']} has names {names}, not {a['names']}"
        for k, b in enumerate(mine):
            if b not in hw.devs:
                continue
            want = hw.distance(hw.devs[a["pci"]], hw.devs[b])
            if not exact and want in ("NODE", "SYS") and -1 in (node, hw.node(hw.devs[b])):
                continue
            have = got["distances"][i][k]
            assert have == want, f"{what}: {a['pci']} to {b} is {want}, and not {have}"
            counts[want] = counts.get(want, 0) + 1
    return counts


def said(what, got, counts):
    total = sum(counts.values())
    print(f"{what}: {len(got['devices'])} devices, {total} pairs equal,",
          ", ".join(f"{k} {counts[k]}" for k in ("PIX", "PXB", "PHB", "NODE", "SYS")
                    if k in counts) or "none apart")
    return total


def read_xml(lib, text):
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as f:
        f.write(text)
        f.flush()
        hw = Hwloc(lib, xml=f.name)
    assert hw.loaded, "libhwloc does not read the topology"
    return hw


def judge_text(lib, penstock, what, text):
    hw = read_xml(lib, text)
    total = None
    if hw.devs:
        with tempfile.TemporaryDirectory() as root:
            hw.sysfs(root)
            got = report(penstock, root)
            total = said(what, got, compare(what, hw, got))
    hw.close()
    return total


def complete(sysfs):
    """Add files that old archives lack, though every kernel has them; libhwloc reads config
    instead."""
    for folder in glob.glob(f"{sysfs}/bus/pci/devices/*"):
        if not os.path.exists(f"{folder}/config"):
            continue
        with open(f"{folder}/config", "rb") as f:
            config = f.read(4)
        for name, at in ("vendor", 0), ("device", 2):
            if not os.path.exists(f"{folder}/{name}"):
                with open(f"{folder}/{name}", "w", encoding="ascii") as f:
                    f.write(f"0x{config[at + 1]:02x}{config[at]:02x}\n")


def judge_archive(lib, penstock, path):
    """Compare on a copy of a machine's sysfs.  Return False if it has no PCI devices."""
    what = os.path.basename(path)
    with tarfile.open(path) as tar, tempfile.TemporaryDirectory() as root:
        names = [n for n in tar.getnames() if "/bus/pci/devices/" in n]
        if not names:
            return None
        tar.extractall(root)
        top = f"{root}/{names[0].split('/')[0]}"
        complete(f"{top}/sys")
        hw = Hwloc(lib, root=top)
        assert hw.loaded, path
        got = report(penstock, f"{top}/sys")
        total = said(what, got, compare(what, hw, got, exact=False))
        hw.close()
        return total


def judge_machines(penstock):
    lib = libhwloc()
    total = 0
    for name, (nodes, hosts) in MACHINES.items():
        total += judge_text(lib, penstock, name, Machine(nodes, hosts).xml)
    assert total > 1000, total


def judge_hwloc(penstock, folder):
    lib = libhwloc()
    xmls = archives = total = 0
    for path in sorted(glob.glob(f"{folder}/**/*.xml", recursive=True)):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if 'type="PCIDev"' not in text:
            continue
        # Debian's libhwloc cannot parse comments.
        n = judge_text(lib, penstock, os.path.basename(path),
                       re.sub("<!--.*?-->\n?", "", text, flags=re.S))
        xmls += n is not None
        total += n or 0
    for path in sorted(glob.glob(f"{folder}/**/*.tar.bz2", recursive=True)):
        n = judge_archive(lib, penstock, path)
        archives += n is not None
        total += n or 0
    assert xmls, f"no XML topology with PCI devices in {folder}"
    print(f"{xmls} XML topologies, {archives} copies of a sysfs, {total} pairs")


def write(name, folder):
    nodes, hosts = MACHINES[name]
    hw = read_xml(libhwloc(), Machine(nodes, hosts).xml)
    hw.sysfs(folder)
    hw.close()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    elif sys.argv[2] == "machines":
        judge_machines(sys.argv[1])
    else:
        judge_hwloc(sys.argv[1], sys.argv[3])
