# SPDX-License-Identifier: MIT
"""Memory in other code: views, the buffer protocol, DLPack; and its lifetime there."""
import ctypes
import gc
import subprocess
import sys
import weakref

from tap import Skip, case, data, eq, file, gives, numpy, run, torch, true

import penstock
from penstock import Memory, _exports

VERSIONED = {"max_version": (1, 0)}

POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
RENAME = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi))
USED, USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"


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


class Consumer:
    """Consumes a capsule's tensor as the DLPack standard requires."""

    def __init__(self, capsule, versioned=False):
        kind, name, used = ((Versioned, b"dltensor_versioned", USED_VERSIONED) if versioned else
                            (Managed, b"dltensor", USED))
        self.address = POINTER(capsule, name)
        self.managed = kind.from_address(self.address)
        RENAME(capsule, used)
        t = self.managed.tensor
        eq((t.ndim, t.code, t.bits, t.lanes, t.byte_offset, t.strides[0]), (1, 1, 8, 1, 0, 1))
        self.data, self.nbytes, self.device = t.data, t.shape[0], (t.device_type, t.device_id)
        if versioned:
            eq((self.managed.major, self.managed.minor), (1, 0))
            self.flags = self.managed.flags

    def delete(self):
        # Call the deleter without the interpreter's lock.
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.address)


def without_collector(function):
    def inner():
        gc.collect()
        gc.disable()
        try:
            function()
        finally:
            gc.enable()
    inner.__name__ = function.__name__
    return case(inner)


@without_collector
def views_hold_off_close():
    memory = Memory.alloc("host", 100)
    first, second = memory.view(), memory.view()
    e = gives(BufferError, memory.close)
    true("2 views" in str(e), str(e))
    first[0] = 7
    eq(memory.copy_out(1), b"\x07")
    first.release()
    part = second[10:20]
    del second
    gives(BufferError, memory.close)
    part[0] = 1
    del part
    memory.close()
    true(memory.closed)
    # Dropping the last reference does not close the memory: the view keeps it.
    memory = Memory.alloc("host", 100)
    view, gone = memory.view(), weakref.ref(memory)
    del memory
    view[99] = 1
    true(gone() is not None)
    del view
    true(gone() is None)


@case
def a_view_in_a_cycle_with_its_memory():
    told = []

    class Last:
        def __del__(self):
            self.view[0] = 1
            told.append(bytes(self.view))
    for _ in range(20):
        # Finalizers usually run in the order in which objects were made.
        memory, last = Memory.alloc("host", 1 << 20), Last()
        last.memory, last.view, last.self, memory.last = memory, memory.view(), last, last
        del memory, last
        gc.collect()
    eq((len(told), told[-1][:2]), (20, b"\x01\0"))
    eq(penstock._memory.sweep(), 0)


@without_collector
def read_only_views():
    with Memory.of(b"abc") as memory:
        view = memory.view()
        true(view.readonly)
        eq(bytes(view), b"abc")
        del view


@without_collector
def buffer_protocol():
    memory = Memory.alloc("host", 100)
    memory.copy_in(b"hello")
    with memory.__buffer__(0) as view:
        eq(bytes(view[:5]), b"hello")
    if sys.version_info < (3, 12):
        gives(TypeError, memoryview, memory)
        memory.close()
        return
    with memoryview(memory) as view:
        eq((view.nbytes, view.format, view.readonly, bytes(view[:5])),
           (100, "B", False, b"hello"))
        gives(BufferError, memory.close)
    eq(len(bytes(memory)), 100)
    memory.close()
    gives(BufferError, memoryview, memory)
    with Memory.of(b"abc") as memory:
        eq(bytes(memory), b"abc")
        gives((TypeError, BufferError), (ctypes.c_char * 3).from_buffer, memory)
    gives(BufferError, memoryview, Memory.alloc("soft:0", 100))


@case
def tensors_of_host_memory():
    memory = Memory.alloc("host", 5000)
    memory.copy_in(data(5000))
    eq(memory.__dlpack_device__(), (1, 0))
    for versioned, how in ((False, {}), (False, {"max_version": (0, 8)}), (True, VERSIONED),
                           (True, {"max_version": (3, 1), "copy": False, "dl_device": (1, 0)})):
        consumer = Consumer(memory.__dlpack__(**how), versioned)
        eq((consumer.data, consumer.nbytes, consumer.device), (memory.address, 5000, (1, 0)))
        eq(getattr(consumer, "flags", 0), 0)
        gives(BufferError, memory.close)
        consumer.delete()
    memory.close()
    gives(ValueError, memory.__dlpack__)


@case
def copies_and_read_only_memory():
    with Memory.of(bytes(range(100))) as memory:
        e = gives(BufferError, memory.__dlpack__)
        true("read-only" in str(e), str(e))
        consumer = Consumer(memory.__dlpack__(**VERSIONED), True)
        eq(consumer.flags, 1)
        consumer.delete()
        consumer = Consumer(memory.__dlpack__(copy=True))
        # The copy does not depend on the memory.
    true(consumer.data != 0)
    eq(ctypes.string_at(consumer.data, 100), bytes(range(100)))
    consumer.delete()
    memory = Memory.alloc("host", 10)
    consumer = Consumer(memory.__dlpack__(copy=True, **VERSIONED), True)
    eq(consumer.flags, 2)
    true(consumer.data != memory.address)
    memory.close()
    consumer.delete()


@without_collector
def what_keeps_memory_and_how_long():
    def exported():
        memory = Memory.alloc("host", 4096)
        return weakref.ref(memory), memory.__dlpack__()
    gone, capsule = exported()
    _exports.sweep()
    true(gone() is not None)
    consumer = Consumer(capsule)
    del capsule
    _exports.sweep()
    ctypes.memset(consumer.data, 1, 4096)
    true(gone() is not None)
    consumer.delete()
    Memory.alloc("host", 1).close()     # collects handles of unused capsules
    true(gone() is None)
    # No consumer took the tensor, as when numpy refuses the device.
    gone, capsule = exported()
    del capsule
    _exports.sweep()
    true(gone() is None)
    # A consumer may keep the capsule itself, as Memory.of() does.
    gone, capsule = exported()
    keeper = [capsule]
    del capsule
    _exports.sweep()
    true(gone() is not None)
    del keeper
    _exports.sweep()
    true(gone() is None)


@case
def the_collector_looks_too():
    memory = Memory.alloc("host", 4096)
    gone, consumer = weakref.ref(memory), Consumer(memory.__dlpack__())
    del memory
    gc.collect()
    true(gone() is not None)
    consumer.delete()
    gc.collect()
    true(gone() is None)


@case
def many_tensors():
    memory = Memory.alloc("host", 4096)
    consumers = []
    for number in range(1000):
        consumers.append(Consumer(memory.__dlpack__()))
        if number % 3:
            consumers.pop(0).delete()
    true(len(_exports._tensors) < 1000, len(_exports._tensors))
    e = gives(BufferError, memory.close)
    true(f"{len(consumers)} views" in str(e), str(e))
    for consumer in consumers:
        consumer.delete()
    memory.close()
    _exports.sweep()
    eq(len(_exports._tensors), 0)


@case
def a_consumer_that_ends_after_the_interpreter():
    text = f"""
import ctypes, sys
sys.path.insert(0, {sys.path[0]!r})
import penstock
memory = penstock.Memory.alloc("host", 4096)
capsule = memory.__dlpack__()
get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
address = get(capsule, b"dltensor")
# DLManagedTensor's deleter follows its DLTensor of 48 bytes and a pointer.
deleter = ctypes.c_void_p.from_address(address + 56)
at_exit = ctypes.CDLL(None).__cxa_atexit
at_exit.argtypes = [ctypes.c_void_p] * 3
at_exit(deleter, address, None)
rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi))
used = b"used_dltensor"
ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))
rename(capsule, used)
del capsule, memory
print("good")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          check=False)
    eq((done.returncode, done.stdout, done.stderr), (0, "good\n", ""))


@case
def the_software_device_refuses():
    memory = Memory.alloc("soft:0", 100)
    memory.copy_in(data(100))
    for call in (memory.__dlpack_device__, memory.__dlpack__,
                 lambda: memory.__dlpack__(dl_device=(12, 0)),
                 lambda: memory.__dlpack__(dl_device=(1, 0), copy=False)):
        e = gives(BufferError, call)
        true("soft:0" in str(e), str(e))
    consumer = Consumer(memory.__dlpack__(dl_device=(1, 0), **VERSIONED), True)
    eq((consumer.device, consumer.flags), ((1, 0), 2))
    eq(ctypes.string_at(consumer.data, 100), data(100))
    consumer.delete()
    memory.close()


@case
def streams_of_the_host():
    with Memory.alloc("host", 100) as memory:
        for stream in (0, 1, -1):
            gives(ValueError, memory.__dlpack__, stream=stream)
        gives(BufferError, memory.__dlpack__, dl_device=(2, 0))


class Other:
    """An object with DLPack only."""

    def __init__(self, capsule, device):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


class Waits:
    """Counts calls of Memory.sync()."""

    def __enter__(self):
        self.sync, self.count = Memory.sync, 0

        def sync(memory):
            self.count += 1
            self.sync(memory)
        Memory.sync = sync
        return self

    def __exit__(self, *_):
        Memory.sync = self.sync


@case
def tensors_of_cuda():
    for number in range(2):
        try:
            memory = Memory.alloc(f"cuda:{number}", 10000)
        except OSError as e:
            raise Skip(f"no GPU: {e}") from None
        memory.copy_in(data(10000))
        eq(memory.__dlpack_device__(), (2, number))
        for how, waits in (({}, 1), ({"stream": 1}, 1), ({"stream": 1 << 40}, 1),
                           ({"stream": -1}, 0), ({"stream": -1, "dl_device": (2, number)}, 0)):
            with Waits() as counted:
                consumer = Consumer(memory.__dlpack__(**how))
            eq((how, counted.count), (how, waits))
            eq((consumer.data, consumer.nbytes, consumer.device),
               (memory.address, 10000, (2, number)))
            gives(BufferError, memory.close)
            consumer.delete()
        for stream in (0, -2):
            gives(ValueError, memory.__dlpack__, stream=stream)
        gives(BufferError, memory.__dlpack__, dl_device=(2, 1 - number))
        gives(BufferError, memory.__dlpack__, dl_device=(1, 0), copy=False)
        # Copy to the host, and to other memory of the same device.
        consumer = Consumer(memory.__dlpack__(dl_device=(1, 0), **VERSIONED), True)
        eq((consumer.device, consumer.flags), ((1, 0), 2))
        eq(ctypes.string_at(consumer.data, 10000), data(10000))
        consumer.delete()
        # An object of another library, accepted by Memory.of().
        with Memory.of(Other(memory.__dlpack__(copy=True, **VERSIONED), (2, number))) as copy:
            true(copy.address != memory.address)
            eq((copy.device, copy.copy_out()), (memory.device, data(10000)))
        memory.close()


@without_collector
def arrays_of_numpy():
    np = numpy()
    memory = Memory.alloc("host", 4096)
    array = np.from_dlpack(memory)
    eq((array.dtype, array.shape, array.ctypes.data), (np.uint8, (4096,), memory.address))
    floats = array.view(np.float32)
    del array
    with penstock.File(file("source", np.arange(1024, dtype=np.float32).tobytes())) as f:
        f.read(memory)
    eq(float(floats[1000]), 1000.0)
    gives(BufferError, memory.close)
    gone = weakref.ref(memory)
    del memory
    eq(float(floats[1023]), 1023.0)
    del floats
    _exports.sweep()
    true(gone() is None)
    # numpy refuses after taking the capsule; its message must be kept.
    memory = Memory.alloc("soft:0", 100)
    e = gives((BufferError, RuntimeError), np.from_dlpack, memory)
    true("soft:0" in str(e), str(e))
    memory.close()


@without_collector
def a_refusal_of_numpy_keeps_nothing():
    np = numpy()
    try:
        memory = Memory.alloc("cuda:0", 4096)
    except OSError as e:
        raise Skip(f"no GPU: {e}") from None
    e = gives((RuntimeError, BufferError), np.from_dlpack, memory)
    true("device" in str(e).lower(), str(e))
    memory.close()


@without_collector
def tensors_of_torch():
    t = torch()
    memory = Memory.alloc("host", 4096)
    tensor = t.from_dlpack(memory).view(t.bfloat16)
    tensor[0] = 1.0
    eq(memory.copy_out(2), b"\x80\x3f")
    gives(BufferError, memory.close)
    try:
        # The temporary tensor is freed while the exception propagates.
        t.from_dlpack(memory) + gone  # noqa: F821 # pylint: disable=undefined-variable
    except NameError as e:
        true("gone" in str(e), str(e))
    del tensor
    memory.close()
    gives(BufferError, t.from_dlpack, Memory.alloc("soft:0", 100))


@case
def no_leaks():
    memory = Memory.alloc("host", 4096)
    for _ in range(3000):
        Consumer(memory.__dlpack__()).delete()
        memory.view().release()
        memory.__dlpack__()
    true(len(_exports._tensors) < 200, len(_exports._tensors))
    true(len(memory.held.leases) < 200, len(memory.held.leases))
    memory.close()


run()
