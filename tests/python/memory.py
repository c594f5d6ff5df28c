# SPDX-License-Identifier: MIT
"""Memory of other libraries' objects, and what keeps it alive."""
import array
import ctypes
import errno
import fcntl
import gc
import mmap
import os
import struct
import sys
import weakref

from tap import Skip, case, data, eq, file, gives, numpy, run, torch, true

import penstock
from penstock import Memory, _memory


@case
def allocated():
    for device in ("host", "soft:0"):
        with Memory.alloc(device, 10000) as memory:
            eq((memory.nbytes, len(memory), memory.writable), (10000, 10000, True))
            true(memory.device.startswith(device.partition(":")[0]), memory.device)
            content = data(5000)
            memory.copy_in(content, 100)
            eq(memory.copy_out(5000, 100), content)
            eq(len(memory.copy_out(offset=9000)), 1000)
            gives(ValueError, memory.copy_out, 2, 9999)
            gives(errno.ERANGE, memory.copy_in, b"ab", 9999)
            true("10000" in repr(memory))
        true(memory.closed)
        gives(ValueError, memory.copy_out)
        memory.close()
        true("closed" in repr(memory))
    gives(ValueError, Memory.alloc, "host", -1)
    gives(ValueError, Memory.alloc, "host", 2**64 + 1)
    gives(errno.EINVAL, Memory.alloc, "host", 0)


@case
def views():
    memory = Memory.alloc("host", 100)
    view = memory.view()
    eq((len(view), view.readonly, bytes(view)), (100, False, bytes(100)))
    view[10:13] = b"abc"
    eq(memory.copy_out(3, 10), b"abc")
    # The view keeps the memory.
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    view[0] = 1
    true(gone() is not None)
    del view
    gc.collect()
    true(gone() is None)
    gives(ValueError, Memory.alloc("soft:0", 100).view)


@case
def arrays_of_objects():
    np = numpy()
    for array_ in (np.array([None, "a"]), np.zeros(2, [("a", "i8"), ("b", object)])):
        e = gives(ValueError, Memory.of, array_)
        true("pointers" in str(e), str(e))
    Memory.of(np.zeros(2, [("a", "i8"), ("b", "f4")])).close()


@case
def objects_with_buffers():
    content = data(300)
    for obj in (bytearray(300), array.array("b", bytes(300)), mmap.mmap(-1, 300),
                (ctypes.c_char * 300)(), memoryview(bytearray(400))[50:350]):
        with Memory.of(obj) as memory:
            eq((memory.nbytes, memory.writable, memory.device), (300, True, "host"))
            memory.copy_in(content)
            eq(bytes(memoryview(obj).cast("B")), content)


@case
def objects_of_numpy():
    np = numpy()
    with Memory.of(np.zeros((3, 5), np.float32)) as memory:
        eq(memory.nbytes, 60)
    gives(ValueError, Memory.of, np.zeros((4, 4))[:, :2])
    gives(ValueError, Memory.of, np.zeros((4, 4)).T)
    gives(ValueError, Memory.of, np.zeros((0, 4)))
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    with Memory.of(read_only) as memory:
        true(not memory.writable)


@case
def what_cannot_be_memory():
    gives(TypeError, Memory.of, "text")
    gives(TypeError, Memory.of, 3)
    gives(TypeError, Memory.of, [1, 2])
    gives(ValueError, Memory.of, b"")
    gives((ValueError, BufferError), Memory.of, memoryview(bytearray(10))[::2])


@case
def read_only_memory_is_not_read_into():
    path = file("source", data(10))
    with penstock.File(path) as f, penstock.Queue() as queue:
        for obj in (b"0123456789", memoryview(bytearray(10)).toreadonly()):
            e = gives(ValueError, f.read, obj)
            true("read-only" in str(e))
            gives(ValueError, f.readv, obj, [0], [0], [5])
            gives(ValueError, queue.read, f, obj)
            gives(ValueError, f.read_into, [bytearray(2), obj], [0, 0])
            with Memory.of(obj) as memory:
                gives(ValueError, memory.copy_in, b"x")
        eq(b"0123456789", bytes(range(48, 58)))


@case
def objects_are_kept_while_memory_is_open():
    class Bytes(bytearray):
        pass
    obj = Bytes(100)
    gone = weakref.ref(obj)
    memory = Memory.of(obj)
    gives(BufferError, obj.extend, b"x")
    del obj
    gc.collect()
    true(gone() is not None)
    memory.copy_in(b"abc")
    memory.close()
    gc.collect()
    true(gone() is None)
    # Without close(), the last reference frees the memory.
    obj = Bytes(100)
    Memory.of(obj)
    gc.collect()
    obj.extend(b"x")
    # A failed call keeps nothing.
    empty = Bytes()
    gives(ValueError, Memory.of, empty)
    empty.extend(b"x")


@case
def memory_in_use_lingers():
    """Memory that a request may still touch is kept after close()."""
    fifo_free = penstock.Queue()
    with penstock.File(file("lingers", data(1000))) as f:
        obj = bytearray(1000)
        memory = Memory.of(obj)
        fifo_free.read(f, memory)
        memory.close()
        eq(_memory.sweep(), 1)
        gives(BufferError, obj.extend, b"x")
        fifo_free.submit()
        fifo_free.reap(1)
        eq(_memory.sweep(), 0)
        obj.extend(b"x")
        eq(bytes(obj[:1000]), data(1000))
    fifo_free.close()


# ------------------------------------------------------- objects made for the purpose

class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


NEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))


class Tensor:
    """An object with DLPack only."""

    def __init__(self, addr, shape, strides=None, device=1, versioned=None, bits=16, offset=0,
                 major=1):
        kind = Managed if versioned is None else Versioned
        self.managed = kind()
        t = self.managed.tensor
        t.data, t.device_type, t.ndim, t.bits, t.lanes = addr, device, len(shape), bits, 1
        t.shape = (ctypes.c_int64 * len(shape))(*shape)
        if strides:
            t.strides = (ctypes.c_int64 * len(strides))(*strides)
        t.byte_offset = offset
        self.name = b"dltensor"
        if versioned is not None:
            self.name, self.managed.major, self.managed.flags = (b"dltensor_versioned", major,
                                                                 versioned)
        self.asked = []

    def __dlpack_device__(self):
        return (self.managed.tensor.device_type, 0)

    def __dlpack__(self, **how):
        self.asked.append(how)
        if "max_version" in how and self.name == b"dltensor":
            raise TypeError("max_version")
        return NEW(ctypes.addressof(self.managed), self.name, None)


@case
def objects_with_dlpack():
    block = (ctypes.c_char * 64)()
    addr = ctypes.addressof(block)
    with Memory.of(Tensor(addr, [4, 8])) as memory:
        eq((memory.nbytes, memory.writable), (64, True))
        memory.copy_in(b"hello")
        eq(block[:5], b"hello")
    with Memory.of(Tensor(addr, [2, 8], [8, 1], offset=32)) as memory:
        memory.copy_in(b"there")
        eq(block[32:37], b"there")
    # A dimension of size 1 may have any stride.
    Memory.of(Tensor(addr, [1, 8], [77, 1])).close()
    tensor = Tensor(addr, [32], versioned=1)
    with Memory.of(tensor) as memory:
        eq((memory.nbytes, memory.writable), (64, False))
    eq(tensor.asked, [{"max_version": (1, 0)}])
    with Memory.of(Tensor(addr, [32], versioned=0)) as memory:
        true(memory.writable)
    gives(ValueError, Memory.of, Tensor(addr, [4, 8], [1, 4]))
    gives(ValueError, Memory.of, Tensor(addr, [4, 0]))
    gives(ValueError, Memory.of, Tensor(addr, [4], device=10))
    gives(ValueError, Memory.of, Tensor(addr, [3], bits=4))
    gives(ValueError, Memory.of, Tensor(addr, [3], versioned=0, major=2))


class CudaArray:
    def __init__(self, addr, shape, typestr="<f4", read_only=False, **more):
        self.__cuda_array_interface__ = {"data": (addr, read_only), "shape": shape,
                                         "typestr": typestr, "version": 3, **more}


@case
def objects_of_cuda():
    try:
        block = Memory.alloc("cuda:0", 1 << 16)
    except OSError as e:
        raise Skip(f"no GPU: {e}") from None
    addr = block.address
    content = data(64)
    with penstock.File(file("cuda", content)) as f:
        for obj in (CudaArray(addr + 256, (4, 4)), CudaArray(addr + 256, (4, 4), strides=(16, 4)),
                    Tensor(addr, [32], device=2, offset=256)):
            block.copy_in(bytes(1 << 16))
            with Memory.of(obj) as memory:
                eq((memory.nbytes, memory.device, memory.writable), (64, block.device, True))
                f.read(memory)
            eq(block.copy_out(64, 256), content)
            f.read(obj)
    tensor = Tensor(addr, [32], device=2)
    Memory.of(tensor).close()
    eq(tensor.asked[-1], {"stream": -1})
    with Memory.of(CudaArray(addr, (4,), read_only=True)) as memory:
        true(not memory.writable)
    gives(ValueError, Memory.of, CudaArray(addr, (4, 4), strides=(4, 16)))
    gives(ValueError, Memory.of, CudaArray(addr, (4,), mask=1))
    gives(ValueError, Memory.of, CudaArray(addr, (0,)))
    gives(OSError, Memory.of, CudaArray(addr + (1 << 40), (4,)))
    # The CPU is refused: a host address is not a device's.
    host = bytearray(64)
    e = gives(OSError, Memory.of, CudaArray(ctypes.addressof(
        (ctypes.c_char * 64).from_buffer(host)), (4,)))
    true(e.errno in (errno.EFAULT, errno.EINVAL), str(e))


@case
def tensors_of_torch():
    t = torch()
    tensor = t.zeros(100, dtype=t.bfloat16)
    with Memory.of(tensor) as memory:
        eq((memory.nbytes, memory.writable), (200, True))
        memory.copy_in(b"\x80\x3f")
    eq(float(tensor[0]), 1.0)
    gives(ValueError, Memory.of, t.zeros(4, 4).t())


@case
def no_dmabufs():
    descriptors = len(os.listdir("/proc/self/fd"))
    memfd = os.memfd_create("plain")
    os.truncate(memfd, 8192)
    os.lseek(memfd, 3, os.SEEK_SET)
    error = gives(errno.EINVAL, Memory.of_dmabuf, memfd)
    true("no dma-buf" in str(error), error)
    gives(errno.EINVAL, Memory.of_dmabuf, memfd, offset=8192, length=1)
    gives(errno.EINVAL, Memory.of_dmabuf, memfd, offset=9000)
    eq(os.lseek(memfd, 0, os.SEEK_CUR), 3)
    os.close(memfd)
    gives(errno.EBADF, Memory.of_dmabuf, memfd)
    gives(ValueError, Memory.of_dmabuf, 0, offset=-1)
    read, write = os.pipe()
    gives(errno.EINVAL, Memory.of_dmabuf, read)
    os.close(read)
    os.close(write)
    eq(len(os.listdir("/proc/self/fd")), descriptors)


@case
def dmabufs():
    if not os.access("/dev/udmabuf", os.R_OK | os.W_OK):
        raise Skip("/dev/udmabuf")
    memfd = os.memfd_create("pages", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(memfd, 1 << 20)
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with open("/dev/udmabuf", "r+b", buffering=0) as device:
        # struct udmabuf_create: memfd, flags, offset, size
        buf = fcntl.ioctl(device, 0x40187542, struct.pack("IIQQ", memfd, 1, 0, 1 << 20))
    os.close(memfd)
    with Memory.of_dmabuf(buf, offset=4096) as memory:
        os.close(buf)
        eq((memory.nbytes, memory.writable), ((1 << 20) - 4096, True))
        content = data(100000)
        with penstock.File(file("dmabuf", content)) as f:
            eq(penstock.read(f, memory), 100000)
        eq(memory.copy_out(100000), content)
        gives(ValueError, memory.view)


@case
def no_leaks():
    obj = bytearray(100)
    before = sys.getrefcount(obj)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(1000):
        Memory.of(obj).close()
    eq(sys.getrefcount(obj), before)
    true(len(os.listdir("/proc/self/fd")) <= descriptors + 4)


run()
