# SPDX-License-Identifier: MIT
"""Cases for NIXL's plug-in, run with the agent of NIXL's wheel; tests/compat/nixl.sh runs them.

    nixl_cases.py CASE [ARGUMENT...]
"""
import ctypes
import hashlib
import os
import random
import sys
import threading
import time

from nixl_cu12 import _api

OURS = "PENSTOCK"


def agent(backend=OURS, params=None, name="test"):
    config = _api.nixl_agent_config(
        backends=[], sync_mode=_api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    )
    a = _api.nixl_agent(name, config)
    a.create_backend(backend, params or {})
    a.used = backend
    return a


def register(a, kind, addr, size, dev=0, meta=""):
    """Register one range and return what deregister_memory() takes."""
    descs = a.get_reg_descs([(addr, size, dev, meta)], kind)
    return a.register_memory(descs, backends=[a.used])


def prepare(a, op, mem, file, kind="DRAM"):
    return a.initialize_xfer(
        op,
        a.get_xfer_descs(mem, kind),
        a.get_xfer_descs(file, "FILE"),
        a.name,
        backends=[a.used],
    )


def wait(a, handle):
    until = time.monotonic() + 60
    while True:
        state = a.check_xfer_state(handle)
        if state != "PROC":
            return state
        assert time.monotonic() < until, "a transfer does not end"


def run(a, handle):
    state = a.transfer(handle)
    return wait(a, handle) if state == "PROC" else state


def move(a, op, mem, file, kind="DRAM"):
    handle = prepare(a, op, mem, file, kind)
    try:
        assert run(a, handle) == "DONE"
    finally:
        a.release_xfer_handle(handle)


def fails(call, *args):
    """The call must raise, or end in the state ERR."""
    try:
        state = call(*args)
    except Exception as e:  # each of NIXL's statuses has a class of its own
        return type(e).__name__
    assert state == "ERR", "%s is no failure" % state
    return "ERR"


def places(rng, sizes, room):
    """Return a place for each size, without overlaps, in any order."""
    spare = room - sum(sizes)
    gaps = sorted(rng.randrange(spare + 1) for _ in sizes)
    order = list(range(len(sizes)))
    rng.shuffle(order)
    at = [0] * len(sizes)
    used = 0
    for i, k in enumerate(order):
        at[k] = gaps[i] + used
        used += sizes[k]
    return at


class Host:
    """Host memory of a device-like interface."""

    kind = "DRAM"

    def __init__(self, size):
        self.buf = ctypes.create_string_buffer(size + 4096)
        self.addr = (ctypes.addressof(self.buf) + 4095) & -4096
        self.size = size

    def get(self):
        return ctypes.string_at(self.addr, self.size)

    def put(self, data, off=0):
        ctypes.memmove(self.addr + off, bytes(data), len(data))


class MemInfo(ctypes.Structure):
    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("addr", ctypes.c_uint64),
        ("len", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("buffer_id", ctypes.c_uint64),
        ("device", ctypes.c_char * 64),
    ]


class Device:
    """Memory of a device of the library."""

    kind = "VRAM"

    def __init__(self, size, device):
        self.lib = ctypes.CDLL(os.environ["LIBPENSTOCK"])
        self.mem = ctypes.c_void_p()
        self.size = size
        info = MemInfo(sz=ctypes.sizeof(MemInfo))
        err = self.lib.pst_mem_alloc(
            device.encode(), ctypes.c_uint64(size), None, ctypes.byref(self.mem)
        )
        assert err == 0, "no memory of %s: %d" % (device, err)
        assert self.lib.pst_mem_info(self.mem, ctypes.byref(info)) == 0
        self.addr = info.addr

    def get(self):
        buf = ctypes.create_string_buffer(self.size)
        assert self.lib.pst_mem_copy_out(self.mem, ctypes.c_uint64(0), buf, self.size) == 0
        return buf.raw

    def put(self, data, off=0):
        data = bytes(data)
        assert self.lib.pst_mem_copy_in(self.mem, ctypes.c_uint64(off), data, len(data)) == 0


class Load(threading.Thread):
    """Random transfers of one thread, with a model of its memory and files."""

    FILES = 3
    FILE_SIZE = 3 << 20
    MEM_SIZE = 4 << 20

    def __init__(self, a, seed, rounds, device, devs):
        super().__init__()
        self.a, self.rounds, self.seed = a, rounds, seed
        self.rng = random.Random(seed)
        self.mem = Device(self.MEM_SIZE, device) if device else Host(self.MEM_SIZE)
        self.mem_model = bytearray(self.rng.randbytes(self.MEM_SIZE))
        self.mem.put(self.mem_model)
        self.files, self.models, self.fds, self.regs = [], [], [], []
        for i in range(self.FILES):
            model = self.rng.randbytes(self.FILE_SIZE)
            path = "load-%d-%d" % (seed, i)
            with open(path, "wb") as f:
                f.write(model)
            if i % 2 and devs:
                # By a path, under a number that no descriptor has.
                dev = devs + seed * self.FILES + i
                meta = "rw:" + os.path.abspath(path)
            else:
                dev, meta = os.open(path, os.O_RDWR), ""
                self.fds.append(dev)
            self.regs.append((register(a, "FILE", 0, self.FILE_SIZE, dev, meta), "FILE"))
            self.files.append((path, dev))
            self.models.append(bytearray(model))
        # Two registrations next to each other.
        half = self.MEM_SIZE // 2
        self.regs.append((register(a, self.mem.kind, self.mem.addr, half), "mem"))
        self.regs.append((register(a, self.mem.kind, self.mem.addr + half, half), "mem"))
        self.error = None

    def batch(self):
        """Return op and lists of (place in memory, file, place in file, size)."""
        rng = self.rng
        op = rng.choice(["READ", "WRITE"])
        nr = rng.choice([1, 1, 2, 7, 40, 200])
        top = min(300000, self.FILE_SIZE // (2 * nr))
        sizes = [rng.choice([1, 511, 512, 4096, 65536, rng.randint(1, top)]) for _ in range(nr)]
        sizes = [min(s, top) for s in sizes]
        if rng.random() < 0.2:
            sizes = [4096 * ((s + 4095) // 4096) for s in sizes]
        half = self.MEM_SIZE // 2
        split = [rng.randrange(2) for _ in sizes]
        pick = [rng.randrange(self.FILES) for _ in sizes]
        mem_at, file_at = [0] * nr, [0] * nr
        for group, room, at, base in (
            (split, half, mem_at, lambda g: g * half),
            (pick, self.FILE_SIZE, file_at, lambda g: 0),
        ):
            for g in set(group):
                members = [i for i in range(nr) if group[i] == g]
                if sum(sizes[i] for i in members) > room:
                    return self.batch()
                for i, p in zip(members, places(rng, [sizes[i] for i in members], room)):
                    at[i] = base(g) + p
        return op, list(zip(mem_at, pick, file_at, sizes))

    def model(self, op, moves):
        for m, k, f, n in moves:
            if op == "READ":
                self.mem_model[m : m + n] = self.models[k][f : f + n]
            else:
                self.models[k][f : f + n] = self.mem_model[m : m + n]

    def check(self):
        assert self.mem.get() == bytes(self.mem_model), "memory differs"

    def one(self):
        a = self.a
        op, moves = self.batch()
        handle = prepare(
            a,
            op,
            [(self.mem.addr + m, n, 0) for m, _, _, n in moves],
            [(f, n, self.files[k][1]) for _, k, f, n in moves],
            self.mem.kind,
        )
        for _ in range(self.rng.choice([1, 1, 3])):
            # Posted again, with other bytes.
            if op == "WRITE":
                m, _, _, n = moves[0]
                fresh = self.rng.randbytes(n)
                self.mem.put(fresh, m)
                self.mem_model[m : m + n] = fresh
            assert run(a, handle) == "DONE"
            self.model(op, moves)
        a.release_xfer_handle(handle)
        if op == "READ":
            self.check()

    def run(self):
        try:
            for _ in range(self.rounds):
                self.one()
            self.check()
            for (path, _), model in zip(self.files, self.models):
                with open(path, "rb") as f:
                    assert f.read() == bytes(model), "%s differs" % path
        except BaseException as e:
            self.error = e

    def done(self):
        for reg, _ in self.regs:
            self.a.deregister_memory(reg, backends=[self.a.used])
        for fd in self.fds:
            os.close(fd)

    def digest(self):
        return hashlib.sha256(b"".join(self.models)).hexdigest()


def case_load(backend, threads, rounds, device="", params=""):
    """Random transfers of many threads; print a sum of what the files then have."""
    a = agent(backend, dict(p.split("=") for p in params.split()))
    devs = 0 if backend != OURS else 1000000
    loads = [Load(a, seed, int(rounds), device, devs) for seed in range(int(threads))]
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    for load in loads:
        if load.error:
            raise load.error
        load.done()
    print("digest", hashlib.sha256("".join(x.digest() for x in loads).encode()).hexdigest())


def file_of(size):
    with open("data", "wb") as f:
        f.write(random.Random(size).randbytes(size))
    return os.open("data", os.O_RDWR)


def case_hostile():
    """Descriptors that do not fit must be refused, and the agent must serve others afterwards."""
    a = agent()
    size = 1 << 20
    fd = file_of(size)
    mem = Host(size)
    # More of a file than there is: only the library knows its end.
    register(a, "FILE", 0, 1 << 40, fd)
    register(a, "DRAM", mem.addr, size)
    top = 1 << 64

    def refused(m, f):
        fails(lambda: run(a, prepare(a, "READ", m, f)))

    one = (mem.addr, 4096, 0)
    refused([one, one], [(0, 4096, fd)])
    refused([one], [(0, 8192, fd)])
    refused([(mem.addr + size - 1, 2, 0)], [(0, 2, fd)])
    refused([(mem.addr - 1, 2, 0)], [(0, 2, fd)])
    # NIXL adds address and length, and the sum is within the registered range.
    refused([(mem.addr + 8, top - 4, 0)], [(8, top - 4, fd)])
    refused([one], [((1 << 40) - 1, 4096, fd)])
    refused([one], [(top - 2048, 4096, fd)])
    refused([one], [(0, 4096, fd + 500)])
    refused([(16, 4096, 0)], [(0, 4096, fd)])
    refused([one], [(size - 1, 4096, fd)])
    refused([one], [(1 << 30, 4096, fd)])
    # Nothing to move is no mistake.
    move(a, "READ", [(mem.addr, 0, 0), one], [(0, 0, fd), (0, 4096, fd)])
    move(a, "READ", [(mem.addr, size, 0)], [(0, size, fd)])
    with open("data", "rb") as f:
        assert mem.get() == f.read()


def case_registration():
    """What cannot be registered must be refused, and nothing stays open."""
    a = agent()
    fd = file_of(8192)
    mem = Host(8192)
    before = len(os.listdir("/proc/self/fd"))

    def refused(*args):
        assert fails(register, a, *args) != "ERR"

    os.mkdir("folder")
    os.mkfifo("pipe")
    folder = os.open("folder", os.O_RDONLY)
    pipe = os.open("pipe", os.O_RDWR)
    append = os.open("data", os.O_WRONLY | os.O_APPEND)
    refused("FILE", 0, 8192, 999)
    refused("FILE", 0, 8192, 1 << 40)
    refused("FILE", 0, 8192, (1 << 64) - 1)
    for bad in (folder, pipe, append):
        refused("FILE", 0, 8192, bad)
        os.close(bad)
    here = os.getcwd()
    refused("FILE", 0, 8192, fd, "ro:%s/missing" % here)
    refused("FILE", 0, 8192, fd, "rw,creat:%s/data" % here)
    refused("FILE", 0, 8192, fd, "rw,:%s/data" % here)
    refused("FILE", 0, 8192, fd, "ro:")
    refused("FILE", 0, 8192, fd, "ro:" + "x" * 5000)
    refused("FILE", 0, 8192, fd, "ro:%s/data\0x" % here)
    refused("FILE", 0, 8192, fd, "ro:nothing://server/x")
    refused("DRAM", 0, 8192)
    refused("DRAM", 16, 8192)
    refused("DRAM", mem.addr, 0)
    refused("DRAM", mem.addr, (1 << 64) - 1)
    refused("VRAM", mem.addr, 8192)
    refused("VRAM", 1 << 50, 8192)
    assert not os.path.exists("missing")
    # A path needs a number of its own.
    one = register(a, "FILE", 0, 8192, 70, "ro:%s/data" % here)
    refused("FILE", 0, 8192, 70, "ro:%s/pipe" % here)
    a.deregister_memory(one, backends=[OURS])
    two = register(a, "FILE", 0, 8192, 70, "rw,create,sync,direct,noatime:%s/new" % here)
    register(a, "DRAM", mem.addr, 8192)
    mem.put(b"q" * 8192)
    move(a, "WRITE", [(mem.addr, 8192, 0)], [(0, 8192, 70)])
    a.deregister_memory(two, backends=[OURS])
    with open("new", "rb") as f:
        assert f.read() == b"q" * 8192
    assert os.stat("new").st_mode & 0o777 == 0o644 & ~os.umask(0)
    after = len(os.listdir("/proc/self/fd"))
    assert before == after, "%d descriptors, then %d" % (before, after)


def case_rights():
    """A file's own rights hold, and a descriptor closed by the program stays usable."""
    a = agent()
    fd = file_of(8192)
    mem = Host(8192)
    register(a, "DRAM", mem.addr, 8192)
    for flags, op in ((os.O_RDONLY, "WRITE"), (os.O_WRONLY, "READ")):
        other = os.open("data", flags)
        reg = register(a, "FILE", 0, 8192, other)
        fails(lambda: run(a, prepare(a, op, [(mem.addr, 8192, 0)], [(0, 8192, other)])))
        a.deregister_memory(reg, backends=[OURS])
        os.close(other)
    register(a, "FILE", 0, 8192, fd)
    os.close(fd)
    # The number now is another file's.
    with open("other", "wb") as f:
        f.write(b"o" * 8192)
    assert os.open("other", os.O_RDWR) == fd
    move(a, "READ", [(mem.addr, 8192, 0)], [(0, 8192, fd)])
    with open("data", "rb") as f:
        assert mem.get() == f.read()


def case_lifetimes():
    """A transfer whose memory was deregistered must not run; states must be NIXL's."""
    a = agent()
    size = 64 << 20
    fd = file_of(1 << 20)
    os.truncate("data", size)
    mem = Host(size)
    file = register(a, "FILE", 0, size, fd)
    reg = register(a, "DRAM", mem.addr, size)
    whole = ([(mem.addr, size, 0)], [(0, size, fd)])
    handle = prepare(a, "READ", *whole)
    assert fails(a.check_xfer_state, handle)
    state = a.transfer(handle)
    if state == "PROC":
        again = fails(a.transfer, handle)
        assert again in ("ERR", "nixlRepostActiveError"), again
    assert wait(a, handle) == "DONE"
    assert a.check_xfer_state(handle) == "DONE"
    assert run(a, handle) == "DONE"
    a.deregister_memory(reg, backends=[OURS])
    assert fails(lambda: run(a, handle))
    a.release_xfer_handle(handle)
    reg = register(a, "DRAM", mem.addr, size)
    # Deregistered while a transfer runs: the call waits for it.
    handle = prepare(a, "READ", *whole)
    a.transfer(handle)
    a.deregister_memory(reg, backends=[OURS])
    mark = b"m" * size
    mem.put(mark)
    time.sleep(0.1)
    assert mem.get() == mark, "memory changed after it was deregistered"
    a.release_xfer_handle(handle)
    a.deregister_memory(file, backends=[OURS])


def case_release(params=""):
    """A released transfer must not touch its memory any more."""
    a = agent(OURS, dict(p.split("=") for p in params.split()))
    rng = random.Random(1)
    size = 32 << 20
    fd = file_of(1 << 20)
    os.truncate("data", size)
    mem = Host(size)
    register(a, "FILE", 0, size, fd)
    register(a, "DRAM", mem.addr, size)
    mark = b"m" * size
    nr = 256
    step = size // nr
    released = 0
    for i in range(60):
        handle = prepare(
            a,
            "READ",
            [(mem.addr + k * step, step, 0) for k in range(nr)],
            [(k * step, step, fd) for k in range(nr)],
        )
        a.transfer(handle)
        time.sleep(rng.choice([0, 0, 0.0005, 0.002, 0.01]))
        released += a.check_xfer_state(handle) == "PROC"
        a.release_xfer_handle(handle)
        mem.put(mark)
        time.sleep(0.005)
        assert mem.get() == mark, "memory changed after the release"
    move(a, "READ", [(mem.addr, size, 0)], [(0, size, fd)])
    print("released in flight:", released)
    assert released


def case_busy(flag):
    """While something may touch the memory, a transfer must not end nor be released."""
    a = agent(OURS, {"threads": "1"})
    size = 1 << 20
    fd = file_of(size)
    mem = Host(size)
    register(a, "FILE", 0, size, fd)
    register(a, "DRAM", mem.addr, size)
    whole = ([(mem.addr, size, 0)], [(0, size, fd)])
    open(flag, "w").close()
    handle = prepare(a, "READ", *whole)
    a.transfer(handle)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert a.check_xfer_state(handle) == "PROC"
    fails(a.release_xfer_handle, handle)
    os.unlink(flag)
    # Other transfers of the same memory have another opening of it, which is quiet.
    move(a, "READ", *whole)
    time.sleep(0.1)
    a.release_xfer_handle(handle)


def case_remote(name):
    """A file that another process serves."""
    a = agent()
    size = 3 << 20
    mem = Host(size)
    data = random.Random(9).randbytes(size)
    with open("want", "wb") as f:
        f.write(data)
    mem.put(data)
    register(a, "DRAM", mem.addr, size)
    register(a, "FILE", 0, size, 5000, "rw,create:" + name)
    move(a, "WRITE", [(mem.addr, size, 0)], [(0, size, 5000)])
    mem.put(bytes(size))
    move(a, "READ", [(mem.addr, size, 0)], [(0, size, 5000)])
    assert mem.get() == data
    assert a.query_memory([(0, 0, 0, name)], OURS, "FILE")[0]["size"] == str(size)


def case_end():
    """An agent must end while a transfer runs."""
    size = 64 << 20
    fd = file_of(1 << 20)
    os.truncate("data", size)
    mem = Host(size)
    for _ in range(20):
        a = agent()
        register(a, "FILE", 0, size, fd)
        register(a, "DRAM", mem.addr, size)
        handle = prepare(a, "READ", [(mem.addr, size, 0)], [(0, size, fd)])
        a.transfer(handle)
        a.release_xfer_handle(handle)
        del a, handle


def case_params():
    """Parameters are checked, and those of the environment are used."""
    for params in (
        {"polcy": "auto"},
        {"policy": "fast"},
        {"policy": "direct+"},
        {"threads": "65"},
        {"threads": "-1"},
        {"depth": "0"},
        {"depth": "5000"},
        {"timeout_ms": "4294967296"},
        {"sync": "maybe"},
        {"backend": "aio"},
    ):
        assert fails(agent, OURS, params) != "ERR", params
    for params in (
        {"policy": "direct+buffered+cached", "threads": "3", "depth": "4"},
        {"backend": "threads", "sync": "true", "timeout_ms": "1000", "stable": "1"},
    ):
        a = agent(OURS, params)
        fd = file_of(100000)
        mem = Host(100000)
        register(a, "FILE", 0, 100000, fd)
        register(a, "DRAM", mem.addr, 100000)
        move(a, "READ", [(mem.addr, 100000, 0)], [(0, 100000, fd)])
        with open("data", "rb") as f:
            assert mem.get() == f.read()
    os.environ["PST_NIXL"] = "threads=2,depth=none"
    assert fails(agent) != "ERR"
    os.environ["PST_NIXL"] = "threads=2,depth=8"
    agent()


def case_query():
    a = agent()
    file_of(12345)
    found = a.query_memory([(0, 0, 0, p) for p in ("data", "rw:data", "none", "")], OURS, "FILE")
    assert [bool(f) for f in found] == [True, True, False, False], found
    assert found[0]["size"] == found[1]["size"] == "12345"


def case_create():
    agent()


if __name__ == "__main__":
    globals()["case_" + sys.argv[1]](*sys.argv[2:])
