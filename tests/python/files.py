# SPDX-License-Identifier: MIT
"""Blocking reads and writes."""
import array
import errno
import os

from tap import case, data, eq, file, gives, numpy, run, true, work

import penstock
from penstock import File, Memory

CONTENT = data(300000)


@case
def modes():
    path = f"{work}/modes"
    gives(FileNotFoundError, File, path)
    gives(FileNotFoundError, File, path, "r+")
    gives(ValueError, File, path, "rb")
    with File(path, "x", permissions=0o600) as f:
        f.write(b"abc")
        gives(errno.EBADF, f.read, bytearray(1))
    eq(os.stat(path).st_mode & 0o777, 0o600)
    gives(FileExistsError, File, path, "x")
    with File(path, "u") as f:
        f.write(b"X", 1)
    eq(open(path, "rb").read(), b"aXc")
    with File(path) as f:
        gives(errno.EBADF, f.write, b"x")
    with File(path, "w+") as f:
        eq(f.size, 0)
    true(f.closed)
    gives(ValueError, f.read, bytearray(1))
    f.close()


@case
def reads_and_writes():
    for device in ("host", "soft:0"):
        path = file("rw", CONTENT)
        with File(path, "r+") as f, Memory.alloc(device, 300000) as memory:
            result = f.read(memory)
            eq((result.nbytes, int(result), result.prefix), (300000,) * 3)
            true(result.path, "no path")
            eq(memory.copy_out(), CONTENT)
            f.read(memory, 1000, 50, mem_offset=7)
            eq(memory.copy_out(50, 7), CONTENT[1000:1050])
            f.write(memory, 5, 50, mem_offset=7)
            f.sync()
        with open(path, "rb") as f:
            eq(f.read(), CONTENT[:5] + CONTENT[1000:1050] + CONTENT[55:])


@case
def objects():
    path = file("objects", CONTENT)
    with File(path, "r+") as f:
        target = bytearray(100)
        f.read(target, 10)
        eq(target, CONTENT[10:110])
        # The buffer is no longer locked.
        target.extend(b"x")
        eq(f.write(b"constant").nbytes, 8)
        f.read(target, 0, 8, mem_offset=1)
        eq(target[1:9], b"constant")


@case
def short_reads():
    path = file("short", CONTENT[:100])
    with File(path) as f:
        target = bytearray(50)
        e = gives(penstock.ShortRead, f.read, target, 90)
        true(isinstance(e, EOFError))
        eq((e.result.nbytes, "10 of the 50" in str(e)), (10, True))
        eq(f.read(target, 90, short=True).nbytes, 10)
        eq(target[:10], CONTENT[90:100])
        gives(penstock.ShortRead, f.readv, target, [0, 90], [0, 10], 20)
        gives(penstock.ShortRead, f.read_into, [bytearray(5), bytearray(50)], [0, 90])
        gives(penstock.ShortRead, f.read, target, 1000)
        eq(f.read(target, 1000, short=True).nbytes, 0)


@case
def bad_ranges():
    with File(file("bad", CONTENT)) as f:
        target = bytearray(100)
        for args in ((0, 101), (0, 0), (-1, 5), (2**64, 5), (0, -1)):
            gives(ValueError, f.read, target, *args)
        gives(ValueError, f.read, target, mem_offset=100)
        gives(ValueError, f.read, target, mem_offset=101)
        gives(errno.EOVERFLOW, f.read, target, 2**63)
        gives(TypeError, f.read, target, 1.5)
        gives(ValueError, f.readv, target, [], [], [])
        gives(OSError, f.readv, target, [0], [99], [5])
        gives(OSError, f.readv, target, array.array("q", [-1]), [0], [5])
        gives(ValueError, f.readv, target, [0, 1], [0, 1, 2], 5)
        gives(ValueError, f.read, target, timeout=0)
        gives(ValueError, f.read, target, stream=0)
        gives(errno.EOPNOTSUPP, f.read, target, stream=1)
        gives(ValueError, f.read, target, timeout=-1)
        eq(target, bytes(100))


@case
def many_ranges():
    for device in ("host", "soft:0"):
        with File(file("many", CONTENT), "r+") as f, Memory.alloc(device, 10000) as memory:
            offsets = array.array("q", range(0, 100000, 1000))
            places = array.array("q", range(9900, -1, -100))
            eq(f.readv(memory, offsets, places, 100).nbytes, 10000)
            want = b"".join(CONTENT[at:at + 100] for at in reversed(offsets))
            eq(memory.copy_out(), want)
            eq(f.writev(memory, places, places, 100).nbytes, 10000)
            eq(f.readv(memory, 0, 0, 10000).nbytes, 10000)
            eq(memory.copy_out(), want)


@case
def ranges_of_numpy():
    np = numpy()
    target = np.zeros((4, 100), np.uint8)
    with File(file("many", CONTENT)) as f:
        f.readv(target, np.array([400, 300, 200, 100]), np.arange(4) * 100, np.int64(100))
    eq(target.tobytes(), b"".join(CONTENT[at:at + 100] for at in (400, 300, 200, 100)))


@case
def many_objects():
    with File(file("each", CONTENT), "r+") as f:
        targets = [bytearray(10), Memory.alloc("soft:0", 20), array.array("i", bytes(40))]
        eq(f.read_into(targets, [0, 100, 200]).nbytes, 70)
        eq(targets[0], CONTENT[:10])
        eq(targets[1].copy_out(), CONTENT[100:120])
        eq(targets[2].tobytes(), CONTENT[200:240])
        true(not targets[1].closed)
        f.write_from([b"abc", targets[1]], [50, 60])
        target = bytearray(30)
        f.read(target, 50)
        eq(target, b"abc" + CONTENT[53:60] + CONTENT[100:120])


@case
def strict_and_policies():
    with File(file("policy", CONTENT)) as f:
        target = Memory.alloc("host", 300000)
        true("buffered" in f.read(target, policy=["buffered"]).path)
        gives(ValueError, f.read, target, policy=["quick"])
        gives(ValueError, f.read, target, policy=[])
        e = gives(errno.EOPNOTSUPP, f.read, target, strict=True, policy="window")
        true(e.result is not None and e.filename == f.name)
    with File(file("policy", CONTENT), plain=True) as f:
        eq(f.read(target).nbytes, 300000)


@case
def wrapped():
    path = file("wrapped", CONTENT)
    with open(path, "rb") as raw, File.wrap(raw) as f:
        raw.close()
        target = bytearray(100)
        f.read(target)
        eq(target, CONTENT[:100])
        eq(f.name, path)
    gives(errno.EBADF, File.wrap, 12345)


@case
def no_descriptors_are_left():
    path = file("left", CONTENT)
    with File(path) as f:
        f.read(bytearray(5))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        File(path)
    true(len(os.listdir("/proc/self/fd")) <= before + 4)


run()
