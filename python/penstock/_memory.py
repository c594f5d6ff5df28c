# SPDX-License-Identifier: MIT
"""Memory of the host and of devices, of Penstock's own or of other libraries' objects."""
import ctypes
import errno
from collections import deque
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_ssize_t, c_uint16
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p, py_object, pythonapi
from typing import Any, Deque, List, Optional, Sequence, Tuple

from . import _abi
from ._handle import Owner, each, settle, spend
from ._lib import Error, check, lib, name_of, sized, unsigned


# ------------------------------------------------------------ other libraries' objects

class _Buffer(Structure):
    """Py_buffer."""
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t),
                ("itemsize", c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", c_void_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


# Prototypes of our own: others may set pythonapi's.
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, POINTER(_Buffer), ctypes.c_int)(
    ("PyObject_GetBuffer", pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, POINTER(_Buffer))(("PyBuffer_Release", pythonapi))
_capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, c_char_p)(
    ("PyCapsule_IsValid", pythonapi))
_capsule_get = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", pythonapi))


class _DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _DLVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _DLTensor)]


_DL_READ_ONLY = 1
_DL_HOST = (1, 3)    # kDLCPU, kDLCUDAHost
_DL_CUDA = (2, 13)   # kDLCUDA, kDLCUDAManaged


# Where an object's bytes are: address, size, are they writable, a device's; what keeps them.
_Place = Tuple[int, int, bool, bool, Any]


class _Held:
    """Memory of the library's, and the object below it.

    cell:   the library's handle, in a list that is empty when it was given back
    buffer: what the object has exported, if it has the buffer protocol
    keep:   what must stay as long as the memory
    """

    __slots__ = ("cell", "buffer", "keep")

    def __init__(self) -> None:
        self.cell = [c_void_p()]
        self.buffer: Any = None
        self.keep: Any = None

    def quiet(self) -> bool:
        """Give it back; False if a request may still touch it.  May be called again."""
        for cell in self.cell:
            if cell.value and lib.pst_mem_drain(cell, 0) == -errno.EBUSY:
                return False
            spend(self.cell, lib.pst_mem_free)
        if self.buffer is not None:
            _release_buffer(byref(self.buffer))     # a second time does nothing
        return True


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Do strides, in elements, describe an array without gaps in C's order?"""
    step = 1
    if 0 in shape:
        return True
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count != 1 and stride != step:
            return False
        step *= count
    return True


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _gap(what: str) -> ValueError:
    return ValueError(f"the {what} is not contiguous in C's order; make a contiguous copy of it")


def _of_cuda_array(obj: Any, facts: Any) -> _Place:
    shape = tuple(facts["shape"])
    itemsize = int(facts["typestr"][2:])
    strides = facts.get("strides")
    if strides is not None and (any(s % itemsize for s in strides) or not _contiguous(
            shape, [s // itemsize for s in strides])):
        raise _gap("array")
    if facts.get("mask") is not None:
        raise ValueError("an array with a mask is not served")
    addr, read_only = facts["data"]
    # The dictionary may be what keeps a temporary alive.
    return addr or 0, _elements(shape) * itemsize, not read_only, True, (obj, facts)


def _of_buffer(obj: Any, held: _Held) -> _Place:
    """Locks the object's bytes until held.quiet()."""
    held.buffer = buffer = _Buffer()
    # PyBUF_SIMPLE: bytes in C's order, read-only ones too.
    _get_buffer(obj, byref(buffer), 0)
    return buffer.buf or 0, buffer.len, not buffer.readonly, False, obj


def _capsule(obj: Any, **stream: Any) -> Any:
    try:
        return obj.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:
        return obj.__dlpack__(**stream)


def _of_dlpack(obj: Any) -> _Place:
    device = int(obj.__dlpack_device__()[0])
    if device not in _DL_HOST + _DL_CUDA:
        raise ValueError(f"DLPack's device type {device} is not served; the host's (1, 3) and "
                         "CUDA's (2, 13) are")
    # -1: no order of streams.  Memory.of() waits for the device instead.
    capsule = _capsule(obj, **({"stream": -1} if device in _DL_CUDA else {}))
    writable = True
    if _capsule_is(capsule, b"dltensor_versioned"):
        managed = _DLVersioned.from_address(_capsule_get(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise ValueError(f"DLPack's version {managed.major} is not known")
        tensor, writable = managed.tensor, not managed.flags & _DL_READ_ONLY
    elif _capsule_is(capsule, b"dltensor"):
        tensor = _DLTensor.from_address(_capsule_get(capsule, b"dltensor"))
    else:
        raise ValueError("__dlpack__() gave no DLPack tensor")
    if tensor.bits * tensor.lanes % 8:
        raise ValueError("elements that are no whole bytes are not served")
    shape = tensor.shape[:tensor.ndim]
    if tensor.strides and not _contiguous(shape, tensor.strides[:tensor.ndim]):
        raise _gap("tensor")
    # The capsule stays as it is: its destructor gives the tensor back.
    return ((tensor.data or 0) + tensor.byte_offset,
            _elements(shape) * (tensor.bits * tensor.lanes // 8), writable,
            tensor.device_type in _DL_CUDA, (obj, capsule))


def _find(obj: Any, held: _Held) -> _Place:
    """By the first way that the object has."""
    reasons: List[Exception] = []
    try:
        facts = getattr(obj, "__cuda_array_interface__", None)
    except Exception as e:  # pylint: disable=broad-except # some types have no typestr there
        facts = None
        reasons.append(e)
    if facts is not None:
        return _of_cuda_array(obj, facts)
    # A file's bytes as pointers would end the process.
    if getattr(getattr(obj, "dtype", None), "hasobject", False):
        raise ValueError("an array of Python's objects has pointers and no bytes for files")
    try:
        return _of_buffer(obj, held)
    except (TypeError, BufferError, ValueError) as e:
        held.buffer = None  # nothing was exported
        reasons.append(e)
    if hasattr(obj, "__dlpack__"):
        return _of_dlpack(obj)
    if isinstance(reasons[-1], TypeError):
        raise TypeError(f"'{type(obj).__name__}' has neither the buffer protocol nor "
                        "__cuda_array_interface__ nor __dlpack__")
    raise reasons[-1]


# --------------------------------------------------------------------- what lingers

# Memory that a request may still touch although its owner is done with it.  A deque and no lock: a
# finalizer may run inside any of these lines.
_lingering: Deque[_Held] = deque()
# Not even the end of the interpreter frees what hardware may write to.
ctypes.pythonapi.Py_IncRef(py_object(_lingering))


def sweep() -> int:
    """Give back what is quiet by now; return how much is not."""
    if _lingering:
        each(_lingering, _Held.quiet)
    return len(_lingering)


def _give_back(box: List[_Held]) -> None:
    settle(box.pop, _Held.quiet, _lingering)


# --------------------------------------------------------------------------- memory

# Of pst_mem_wrap(): by what Memory.of() was promised, and whether a device has the bytes.
_OPTIONS = {(pinned, device): byref(sized(_abi.pst_mem_opts,
                                          flags=_abi.PST_MEM_PINNED if pinned else 0,
                                          kind=_abi.PST_KIND_CUDA if device else 0))
            for pinned in (False, True) for device in (False, True)}


class Memory(Owner):
    """A range of bytes on one device.

    Made by Memory.of() or Memory.alloc().  It is a context manager; close() gives it back, and so
    does the end of its last reference.  May be used from any thread.

    nbytes:   bytes
    writable: may requests read from files into it?
    """

    _noun = "memory"

    def __init__(self, held: _Held, size: int = 0, writable: bool = True) -> None:
        self.nbytes = size
        self.writable = writable
        super().__init__([held], _give_back)

    @classmethod
    def of(cls, obj: Any, *, sync: bool = True, pinned: bool = False) -> "Memory":
        """The memory of another library's object, which is kept alive.

        obj:    anything with __cuda_array_interface__, the buffer protocol or DLPack (tensors of
                torch, arrays of numpy, cupy and jax, bytearray, mmap, ctypes, ...), contiguous in
                C's order and not empty
        sync:   for a device's memory: wait until the device has done what it was given, so that no
                kernel uses the memory any more
        pinned: you promise that pages of host memory stay, which makes requests cheaper

        A buffer is locked as long as the memory is open: a bytearray cannot be resized.

        Raises TypeError for an object of no such kind, ValueError for one with gaps or without
        bytes, Error with EFAULT for an address that no device knows.
        """
        if isinstance(obj, Memory):
            return obj
        held = _Held()
        memory = cls(held)
        try:
            addr, size, memory.writable, device, held.keep = _find(obj, held)
            if not size:
                raise ValueError("the object has no bytes")
            memory.nbytes = size
            check(lib.pst_mem_wrap(addr, size, _OPTIONS[bool(pinned), device],
                                   byref(held.cell[0])))
            if device and sync:
                memory.sync()
        except BaseException:
            memory.close()
            raise
        return memory

    @classmethod
    def alloc(cls, device: str, size: int, *, shared: bool = False) -> "Memory":
        """New memory.

        device: "host", "soft:0", "cuda:0", a PCI address or a UUID
        size:   bytes, at least 1
        shared: it may be exported to other processes

        Host memory is zeroed and page aligned; it has the buffer protocol by view().

        Raises Error: ENODEV without such a device, ENOMEM, EINVAL.
        """
        options = sized(_abi.pst_mem_opts)
        options.flags = _abi.PST_MEM_SHARED if shared else 0
        size = unsigned(size)
        held = _Held()
        memory = cls(held, size)
        check(lib.pst_mem_alloc(name_of(device), size, byref(options), byref(held.cell[0])))
        return memory

    @property
    def handle(self) -> int:
        """The library's pointer; ValueError after close()."""
        try:
            value: int = self._box[0].cell[0].value
        except IndexError:
            raise ValueError("the memory is closed") from None
        return value

    @property
    def held(self) -> _Held:
        """What stays until no request may touch it; ValueError after close()."""
        try:
            found: _Held = self._box[0]
        except IndexError:
            raise ValueError("the memory is closed") from None
        return found

    def _info(self) -> Any:
        info = sized(_abi.pst_mem_info)
        check(lib.pst_mem_info(self.handle, byref(info)))
        return info

    @property
    def device(self) -> str:
        """The name of its device: "host", "soft:0", "cuda:0"."""
        return str(self._info().device.decode())

    @property
    def address(self) -> int:
        """Of the first byte, as the device's API knows it."""
        return int(self._info().addr)

    def view(self) -> memoryview:
        """A writable memoryview of host memory, of nbytes bytes.

        It must not be used after close().  Raises ValueError for memory of a device.
        """
        pointer = lib.pst_mem_ptr(self.handle)
        if not pointer:
            raise ValueError(f"memory of {self.device} has no address for the CPU; copy_out() it")
        array: Any = (ctypes.c_char * self.nbytes).from_address(pointer)
        array.memory = self
        return memoryview(array).cast("B")

    def copy_in(self, data: Any, offset: int = 0) -> None:
        """Copy bytes of host memory (a buffer, contiguous) to offset, and wait."""
        if not self.writable:
            raise ValueError("the memory is read-only")
        held = _Held()
        source = Owner([held], _give_back)
        try:
            addr, size, _, _, held.keep = _of_buffer(data, held)
            if size:
                check(lib.pst_mem_copy_in(self.handle, unsigned(offset), addr, size))
        finally:
            source.close()

    def copy_out(self, size: Optional[int] = None, offset: int = 0) -> bytearray:
        """A bytearray with size bytes from offset on, or all from there to the end."""
        offset = unsigned(offset)
        size = max(self.nbytes - offset, 0) if size is None else unsigned(size)
        if offset + size > self.nbytes:
            raise ValueError(f"{size} bytes from {offset} on are more than the memory has")
        data = bytearray(size)
        if size:
            target = ctypes.c_char.from_buffer(data)
            check(lib.pst_mem_copy_out(self.handle, offset, byref(target), size))
        return data

    def sync(self) -> None:
        """Wait for what the memory's device was given to do."""
        check(lib.pst_mem_sync(self.handle))

    def close(self) -> None:
        """Give it back.  A request under way keeps it, and the object below it, until it is quiet.

        May be called again.
        """
        super().close()
        if _lingering:
            sweep()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        try:
            where = "closed" if self.closed else f"of {self.device}"
        except Error:
            where = "of the process that this one is a fork of"
        return f"<Memory {self.nbytes} bytes {where}>"
