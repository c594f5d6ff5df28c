# SPDX-License-Identifier: MIT
"""iovec: slices, the buffer protocol, and errors."""
import copy
import ctypes
import errno
import os
import pickle
import uuid

import hf3fs_py_usrbio as usrbio
from hf3fs_fuse import io
from tap import MOUNT, Skip, case, eq, gives, memory, published, run


def wrap(base, **kwargs):
    return usrbio.iovec(base, str(uuid.uuid4()), MOUNT, **kwargs)


@case
def slices():
    with memory(1000) as shm:
        iov = wrap(shm.buf)
        eq((iov.base_off, iov.result, iov.userdata), (0, 0, None))
        for got, off, size in ((iov[:], 0, 1000), (iov[10:20], 10, 10), (iov[-10:], 990, 10),
                               (iov[990:2000], 990, 10), (iov[20:10], 20, 0), (iov[5:6:1], 5, 1),
                               (iov[100:200][10:20], 110, 10), (iov[100:200][:-1], 100, 99)):
            eq((got.base_off, len(memoryview(got))), (off, size))
            eq(isinstance(got, usrbio.iovec), True)
        for step in (2, -1):
            gives(ValueError, lambda: iov[0:10:step])
        gives(TypeError, lambda: iov[3])
        gives(TypeError, lambda: iov["a"])


@case
def no_room_for_its_pages():
    """Publishing memory larger than /dev/shm is an error, and leaves nothing."""
    fs = os.statvfs("/dev/shm")
    if not fs.f_blocks:
        raise Skip("a /dev/shm with a limit")
    before = published()
    with memory((fs.f_blocks + 1) * fs.f_frsize) as shm:
        error = gives(OSError, lambda: io.make_iovec(shm, MOUNT))
        eq((error.errno, "--shm-size" in str(error)), (errno.ENOSPC, True))
    eq(published(), before)


@case
def its_pages_are_there():
    with memory(1 << 20) as shm:
        path = f"/dev/shm/{shm.name}"
        eq(os.stat(path).st_blocks, 0)
        iov = io.make_iovec(shm, MOUNT)
        eq(os.stat(path).st_blocks * 512, 1 << 20)
        del iov


@case
def buffer_of_bytes():
    with memory(64) as shm:
        iov = wrap(shm.buf)
        view = memoryview(iov)
        eq((view.format, view.itemsize, view.shape, view.readonly), ("B", 1, (64,), False))
        view[0] = 7
        view[1:4] = b"abc"
        eq(bytes(shm.buf[:5]), b"\7abc\0")
        eq(bytes(iov[1:4]), b"abc")
        eq(view[2], ord("b"))
        memoryview(iov[8:16])[:] = bytes(range(8))
        eq(bytes(shm.buf[8:16]), bytes(range(8)))
        memoryview(iov[16:20])[:] = shm.buf[8:12]
        eq(bytes(memoryview(iov)[16:20]), bytes(range(4)))


@case
def assignment():
    with memory(16) as shm:
        iov = wrap(shm.buf)
        iov[2:4] = b"xy"
        iov[8:16][1:3] = b"zz"
        eq(bytes(shm.buf), b"\0\0xy\0\0\0\0\0zz\0\0\0\0\0")
        gives(ValueError, iov.__setitem__, slice(0, 4), b"toolong")


@case
def numpy_arrays():
    try:
        import numpy
    except ImportError:
        raise Skip("numpy") from None
    with memory(80) as shm:
        iov = wrap(shm.buf)
        array = numpy.frombuffer(iov, dtype=numpy.float64)
        array[:] = range(10)
        eq(bytes(iov[8:16]), numpy.float64(1).tobytes())
        eq(iov.slice_by(array[2:4]).base_off, 16)
        eq(numpy.frombuffer(iov[:8], dtype=numpy.uint8).shape, (8,))
        eq(iov[numpy.int64(8):numpy.int32(16)].base_off, 8)
        del array


@case
def slice_by_addresses():
    with memory(100) as shm:
        iov = wrap(shm.buf)
        part = iov.slice_by(shm.buf[10:30])
        eq((part.base_off, len(part)), (10, 20))
        eq((part.slice_by(shm.buf[15:16]).base_off), 15)
        eq(len(iov.slice_by(shm.buf[:0])), 0)
        for outside in (shm.buf[9:11], shm.buf[29:31], bytearray(4)):
            gives(IndexError, part.slice_by, outside)
        gives(TypeError, iov.slice_by, b"read-only")
        gives(TypeError, iov.slice_by, shm.buf[0:10:2])


@case
def other_owners_of_memory():
    owner = bytearray(32)
    iov = wrap(owner)
    memoryview(iov)[0] = 1
    eq(owner[0], 1)
    # Growing would move the memory.
    gives(BufferError, owner.extend, bytes(1000))
    doubles = (ctypes.c_double * 4)()
    eq(len(wrap(doubles)), 32)
    gives(TypeError, wrap, b"read-only")
    gives(TypeError, wrap, memoryview(owner)[::2])
    gives(TypeError, wrap, 12)


@case
def refusals():
    with memory(4096) as shm:
        name = str(uuid.uuid4())
        gives(ValueError, usrbio.iovec, shm.buf, "no UUID", MOUNT)
        gives(ValueError, usrbio.iovec, shm.buf, name.replace("-", ""), MOUNT)
        gives(ValueError, usrbio.iovec, shm.buf, "{" + name + "}", MOUNT)
        gives(ValueError, usrbio.iovec, shm.buf, name, MOUNT + "\0")
        gives(errno.EINVAL, usrbio.iovec, shm.buf, name, "/" + "x" * 300)
        gives(errno.EINVAL, usrbio.iovec, shm.buf, name, MOUNT, block_size=4097)
        gives(ValueError, usrbio.iovec, shm.buf, name, MOUNT, block_size=-1)
        gives(errno.EINVAL, wrap, bytearray())
        usrbio.iovec(base=shm.buf, id=name.upper(), hf3fs_mount_point=MOUNT, block_size=4096,
                     numa=-1)


@case
def objects_not_values():
    with memory(16) as shm:
        iov = wrap(shm.buf)
        eq(len({iov[:4], iov[:4]}), 2)
        gives(TypeError, pickle.dumps, iov)
        gives(TypeError, copy.copy, iov)
        for name in ("result", "userdata", "base_off"):
            gives(AttributeError, setattr, iov, name, 1)


@case
def closed_memory():
    with memory(4096) as shm:
        iov = wrap(shm.buf)
        part = iov[:10]
        shm.close()
        ring = usrbio.ioring(MOUNT, 4)
        gives(ValueError, ring.prepare, part, True, 0, 0)
        gives(ValueError, iov.__setitem__, slice(0, 1), b"x")
        ring.destroy()


@case
def made_of_shared_memory():
    with memory(4096) as shm:
        for block, end in ((0, ""), (512, ".b512")):
            iov = io.make_iovec(shm, MOUNT, block, -1)
            eq(published(), [iov.link.rsplit("/", 1)[1]])
            eq(iov.link.endswith(end) and len(published()[0]), 36 + len(end))
            iov[0:3] = b"abc"
            eq(bytes(shm.buf[:3]), b"abc")
            eq(bytes(iov[1:3]), b"bc")
            del iov
            eq(published(), [])
        gives(errno.EINVAL, io.make_iovec, shm, MOUNT, block_size=8192)
        gives(errno.ENOENT, io.make_iovec, shm, "/proc/self")


run()
