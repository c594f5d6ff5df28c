# SPDX-License-Identifier: MIT
"""Memory of the host and of devices, allocated by Penstock or owned by other libraries' objects."""
import ctypes
import errno
import os
from collections import deque
from ctypes import POINTER, Structure, byref, c_ssize_t, c_void_p, py_object, pythonapi
from typing import Any, Deque, List, Optional, Sequence, Tuple

from . import _abi, _exports
from ._exports import DL_CPU, DL_CUDA, DL_READ_ONLY, DLTensor, DLVersioned, capsule_get, capsule_is
from ._handle import Owner, each, settle, spend
from ._lib import Error, check, lib, name_of, sized, unsigned


# ------------------------------------------------------------ other libraries' objects

class _Buffer(Structure):
    """Py_buffer."""
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t),
                ("itemsize", c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", c_void_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


# Separate prototypes: other code may change those of pythonapi.
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, POINTER(_Buffer), ctypes.c_int)(
    ("PyObject_GetBuffer", pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, POINTER(_Buffer))(("PyBuffer_Release", pythonapi))


_DL_HOST = (1, 3)    # kDLCPU, kDLCUDAHost
_DL_CUDA = (2, 13)   # kDLCUDA, kDLCUDAManaged


# The place of an object's bytes: address, size, whether they are writable, whether they are on a
# device, and the object that keeps them.
_Place = Tuple[int, int, bool, bool, Any]


class _Held:
    """The library's memory, and the object that owns the bytes.

    cell:   the library's handle, in a list that is empty after its release
    buffer: the object's export, if it has the buffer protocol
    keep:   objects that must live as long as the memory
    leases: exports of the memory to other code
    """

    __slots__ = ("cell", "buffer", "keep", "leases")

    def __init__(self) -> None:
        self.cell = [c_void_p()]
        self.buffer: Any = None
        self.keep: Any = None
        self.leases: _exports.Leases = {}

    def quiet(self) -> bool:
        """Release the memory.  Return False if a request or a view may still use it.  May be called
        again."""
        if self.leases and _exports.outstanding(self.leases):
            return False
        for cell in self.cell:
            if cell.value and lib.pst_mem_drain(cell, 0) == -errno.EBUSY:
                return False
            spend(self.cell, lib.pst_mem_free)
        if self.buffer is not None:
            _release_buffer(byref(self.buffer))     # a second release does nothing
        return True


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides, in elements, describe an array in C order without gaps."""
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
    # Keep the dictionary, too: it may be what keeps a temporary array alive.
    return addr or 0, _elements(shape) * itemsize, not read_only, True, (obj, facts)


def _of_buffer(obj: Any, held: _Held) -> _Place:
    """Lock the object's bytes until held.quiet()."""
    held.buffer = buffer = _Buffer()
    # PyBUF_SIMPLE: bytes in C order, also read-only ones.
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
    # -1: no stream order.  Memory.of() waits for the device instead.
    capsule = _capsule(obj, **({"stream": -1} if device in _DL_CUDA else {}))
    writable = True
    if capsule_is(capsule, b"dltensor_versioned"):
        managed = DLVersioned.from_address(capsule_get(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise ValueError(f"DLPack's version {managed.major} is not known")
        tensor, writable = managed.tensor, not managed.flags & DL_READ_ONLY
    elif capsule_is(capsule, b"dltensor"):
        tensor = DLTensor.from_address(capsule_get(capsule, b"dltensor"))
    else:
        raise ValueError("__dlpack__() gave no DLPack tensor")
    if tensor.bits * tensor.lanes % 8:
        raise ValueError("elements that are no whole bytes are not served")
    shape = tensor.shape[:tensor.ndim]
    if tensor.strides and not _contiguous(shape, tensor.strides[:tensor.ndim]):
        raise _gap("tensor")
    # Do not consume the capsule: its destructor frees the tensor.
    return ((tensor.data or 0) + tensor.byte_offset,
            _elements(shape) * (tensor.bits * tensor.lanes // 8), writable,
            tensor.device_type in _DL_CUDA, (obj, capsule))


def _find(obj: Any, held: _Held) -> _Place:
    """Use the first interface that the object has."""
    try:
        facts = getattr(obj, "__cuda_array_interface__", None)
    except Exception:  # pylint: disable=broad-except # some types have no typestr there
        facts = None
    if facts is not None:
        return _of_cuda_array(obj, facts)
    # Bytes of a file read as pointers would crash the process.
    if getattr(getattr(obj, "dtype", None), "hasobject", False):
        raise ValueError("an array of Python's objects has pointers and no bytes for files")
    try:
        return _of_buffer(obj, held)
    except (TypeError, BufferError, ValueError) as e:
        held.buffer = None  # nothing was exported
        if not hasattr(obj, "__dlpack__"):
            if not isinstance(e, TypeError):
                raise
            raise TypeError(f"'{type(obj).__name__}' has neither the buffer protocol nor "
                            "__cuda_array_interface__ nor __dlpack__") from None
    return _of_dlpack(obj)


# --------------------------------------------------------------------- what lingers

# Released memory that a request or a view may still use.  The code below uses this deque without a
# lock: a finalizer may run at any point, and would wait for the lock for ever.
_lingering: Deque[_Held] = deque()
# Never free it, even at the interpreter's end: hardware may still write to it.
ctypes.pythonapi.Py_IncRef(py_object(_lingering))


def sweep() -> int:
    """Free released memory that nothing uses any more.  Return the number of the remaining ones."""
    if _lingering:
        each(_lingering, _Held.quiet)
    return len(_lingering)


def _give_back(box: List[_Held]) -> None:
    settle(box.pop, _Held.quiet, _lingering)


# --------------------------------------------------------------------------- memory

# Options of pst_mem_wrap(), by (pinned, device).
_OPTIONS = {(pinned, device): byref(sized(_abi.pst_mem_opts,
                                          flags=_abi.PST_MEM_PINNED if pinned else 0,
                                          kind=_abi.PST_KIND_CUDA if device else 0))
            for pinned in (False, True) for device in (False, True)}


def _dmabuf_size(fd: int) -> int:
    """Return the size of a dma-buf; for another file OSError or 1, without changing its position.
    """
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return os.lseek(fd, 0, os.SEEK_END)    # a dma-buf has a size and no position
    return 1


_COPY = 64 << 20    # bytes of host memory for copying a device's memory


class Idle:
    """An object whose memory no kernel uses: Memory.of() does not wait for its device."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj


class Memory(Owner):
    """A range of bytes on one device.

    Made by Memory.of(), Memory.alloc() or Memory.of_dmabuf().  A context manager; close() or
    dropping the last reference releases it.  May be used from any thread.

    Host memory supports the buffer protocol through view(), and with Python 3.12 or newer itself.
    Memory of the host and of CUDA supports DLPack: torch.from_dlpack(memory) is a tensor of its
    bytes.  Views and tensors keep the memory.

    nbytes:   size in bytes
    writable: requests may read from files into it
    """

    _noun = "memory"

    def __init__(self, held: _Held, size: int = 0, writable: bool = True) -> None:
        self.nbytes = size
        self.writable = writable
        self.wrapped = False    # True for another library's device memory
        super().__init__([held], _give_back)

    @classmethod
    def of_each(cls, objects: Sequence[Any], into: "List[Memory]", sync: bool) -> None:
        """Append the memory of each object to the list into.  As of(), but wait only once for each
        device, because waiting takes as long as the program's work on the device."""
        devices = set()
        new = []
        for obj in objects:
            into.append(cls.of(obj, sync=False))
            if not isinstance(obj, (cls, Idle)):
                new.append(into[-1])
        for memory in new:
            if not sync or not memory.wrapped:
                continue
            if memory.device not in devices:
                devices.add(memory.device)
                memory.sync()

    @classmethod
    def of(cls, obj: Any, *, sync: bool = True, pinned: bool = False) -> "Memory":
        """Return the memory of another library's object, which is kept alive.

        obj:    any object with __cuda_array_interface__, the buffer protocol or DLPack (tensors of
                torch, arrays of numpy, cupy and jax, bytearray, mmap, ctypes, ...), contiguous in
                C order and not empty
        sync:   for device memory: wait until the device has finished its work, so that no kernel
                uses the memory any more
        pinned: the caller promises not to unmap host memory, which makes requests cheaper

        A buffer is locked while the memory is open: a bytearray cannot be resized.

        Raises TypeError for an object without such an interface, ValueError for one with gaps or
        without bytes, Error with EFAULT for an address that no device knows.
        """
        if isinstance(obj, Memory):
            return obj
        if isinstance(obj, Idle):
            obj, sync = obj.obj, False
        held = _Held()
        memory = cls(held)
        try:
            addr, size, memory.writable, device, held.keep = _find(obj, held)
            if not size:
                raise ValueError("the object has no bytes")
            memory.nbytes = size
            check(lib.pst_mem_wrap(addr, size, _OPTIONS[bool(pinned), device],
                                   byref(held.cell[0])))
            memory.wrapped = device
            if device and sync:
                memory.sync()
        except BaseException:
            memory.close()
            raise
        return memory

    @classmethod
    def alloc(cls, device: str, size: int, *, shared: bool = False) -> "Memory":
        """Allocate memory.

        device: "host", "soft:0", "cuda:0", a PCI address or a UUID
        size:   bytes, at least 1
        shared: the memory can be exported to other processes

        Host memory is zeroed and page aligned.

        Raises Error: ENODEV without such a device, ENOMEM, EINVAL.
        """
        _exports.sweep()
        options = sized(_abi.pst_mem_opts)
        options.flags = _abi.PST_MEM_SHARED if shared else 0
        size = unsigned(size)
        held = _Held()
        memory = cls(held, size)
        check(lib.pst_mem_alloc(name_of(device), size, byref(options), byref(held.cell[0])))
        return memory

    @classmethod
    def of_dmabuf(cls, fd: Any, *, offset: int = 0, length: Optional[int] = None,
                  writable: bool = True) -> "Memory":
        """Return the memory of a dma-buf that another driver exports: of an AMD, Intel or Gaudi
        accelerator, of /dev/udmabuf or /dev/dma_heap.

        fd:       the dma-buf's descriptor, or an object with fileno(); may be closed afterwards
        offset:   first byte of the memory in the buffer
        length:   bytes; None: to the end of the buffer
        writable: False for a buffer that was exported read-only

        Files are read into the memory and written from it through a CPU mapping.  If the exporter
        allows no mapping, such calls raise Error with EOPNOTSUPP, and only devices can access the
        memory.

        Raises Error: EINVAL for a descriptor of another kind or a range outside the buffer, EBADF
        for a closed descriptor, EACCES for a right that the buffer lacks.
        """
        fd = fd if isinstance(fd, int) else fd.fileno()
        grant = sized(_abi.pst_grant)
        grant.kind, grant.fd = _abi.PST_KIND_DMABUF, fd
        grant.rights = _abi.PST_RIGHT_READ | (_abi.PST_RIGHT_WRITE if writable else 0)
        try:
            grant.size = _dmabuf_size(fd)
        except OSError:
            grant.size = 1    # not a dma-buf; the library reports that
        grant.off = unsigned(offset)
        grant.len = unsigned(max(grant.size - grant.off, 1) if length is None else length)
        held = _Held()
        memory = cls(held, grant.len, writable)
        check(lib.pst_mem_import(byref(grant), byref(held.cell[0])))
        return memory

    @property
    def handle(self) -> int:
        """The library's pointer.  Raises ValueError after close()."""
        try:
            value: int = self._box[0].cell[0].value
        except IndexError:
            raise ValueError("the memory is closed") from None
        return value

    @property
    def held(self) -> _Held:
        """The object that lives until no request uses it.  Raises ValueError after close()."""
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
        """The name of the memory's device: "host", "soft:0", "cuda:0"."""
        return str(self._info().device.decode())

    @property
    def address(self) -> int:
        """The address of the first byte, in the device's API."""
        return int(self._info().addr)

    def view(self) -> memoryview:
        """Return a memoryview of host memory with nbytes bytes; read-only if the memory is.

        Until it is released, close() raises BufferError.  Raises ValueError for device memory.
        """
        pointer = lib.pst_mem_ptr(self.handle)
        if not pointer:
            raise ValueError(f"memory of {self.device} has no address for the CPU; copy_out() it")
        array: Any = (ctypes.c_char * self.nbytes).from_address(pointer)
        array.memory, array.lease = self, _exports.token(self.held.leases)
        view = memoryview(array).cast("B")
        return view if self.writable else view.toreadonly()

    def __buffer__(self, flags: int) -> memoryview:
        # Called by Python 3.12 and newer; the memoryview refuses flags that do not fit.
        try:
            return self.view()
        except ValueError as e:
            raise BufferError(str(e)) from None

    def _dlpack_device(self) -> Optional[Tuple[int, int]]:
        """Return DLPack's device; None if frameworks must not access the memory's addresses."""
        info = self._info()
        if info.kind == _abi.PST_KIND_HOST:
            return DL_CPU
        if info.kind == _abi.PST_KIND_CUDA:
            return DL_CUDA, int(info.device.rpartition(b":")[2])
        return None

    def _not_exported(self) -> BufferError:
        return BufferError(f"memory of {self.device} has addresses that no framework may touch; "
                           "copy_out() it, or pass dl_device=(1, 0) for a copy in host memory")

    def __dlpack_device__(self) -> Tuple[int, int]:
        """Return DLPack's type and number of the memory's device; BufferError for soft:0."""
        device = self._dlpack_device()
        if device is None:
            raise self._not_exported()
        return device

    def __dlpack__(self, *, stream: Optional[int] = None,
                   max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any:
        """Return a capsule with a DLPack tensor of the bytes: uint8, one dimension.

        stream:      the consumer's, for CUDA memory: None, or 1 or more.  The call waits until the
                     device has finished its work; with -1 the caller must do that.
        max_version: from (1, 0) on, return a versioned capsule; read-only memory needs one
        dl_device:   the memory's own device, or (1, 0) for a copy in host memory
        copy:        True: always copy, on the device; False: error if a copy is needed

        The tensor keeps the memory.  Raises BufferError if such an export is impossible.
        """
        own = self._dlpack_device()
        device = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if device is None:
            raise self._not_exported()
        if device not in (own, DL_CPU):
            raise BufferError(f"memory of {self.device} is not exported to DLPack's device "
                              f"{device}, but to (1, 0), the host, and its own")
        on_gpu = own is not None and own[0] == DL_CUDA
        if stream is not None and (not on_gpu or stream == 0 or stream < -1):
            raise ValueError(f"{stream} is no stream of {self.device}; " + (
                "the legacy default stream is 1, and -1 waits for nothing" if on_gpu else
                "pass None"))
        if device != own and copy is False:
            raise BufferError(f"memory of {self.device} comes to the host by a copy alone, and "
                              "copy=False forbids it")
        if on_gpu and stream != -1:
            self.sync()
        copied = bool(copy) or device != own
        memory = self._copy("host" if device == DL_CPU else self.device) if copied else self
        versioned = max_version is not None and max_version[0] >= 1
        if not memory.writable and not versioned:
            raise BufferError("the memory is read-only, which DLPack can say from version 1.0 on; "
                              "pass copy=True, or use a consumer that asks for that version")
        return _exports.capsule(memory, memory.held.leases, device, versioned=versioned,
                                copied=copied)

    def _copy(self, device: str) -> "Memory":
        """Return new memory with the same bytes, on the host or this memory's device."""
        memory = Memory.alloc(device, self.nbytes)
        to = lib.pst_mem_ptr(memory.handle)
        if to:
            check(lib.pst_mem_copy_out(self.handle, 0, to, self.nbytes))
        else:
            for offset in range(0, self.nbytes, _COPY):
                memory.copy_in(self.copy_out(min(_COPY, self.nbytes - offset), offset), offset)
        return memory

    def copy_in(self, data: Any, offset: int = 0) -> None:
        """Copy host memory (a contiguous buffer) to offset, and wait."""
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
        """Return a bytearray with size bytes from offset on; None: to the end."""
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
        """Wait until the memory's device has finished its work."""
        check(lib.pst_mem_sync(self.handle))

    def close(self) -> None:
        """Release the memory.  A request in flight keeps it, with the object that owns the bytes,
        until it ends.

        May be called again.  Raises BufferError while a view or a DLPack tensor of it exists.
        """
        exported = sum(_exports.outstanding(held.leases) for held in self._box)
        if exported:
            raise BufferError(f"the memory has {exported} views or DLPack tensors; drop them "
                              "before close(), or drop the Memory instead, which they keep")
        self._release()

    def _release(self) -> None:
        super().close()
        if _lingering:
            sweep()

    def __del__(self) -> None:
        # Views of the same garbage cycle may still use the memory: it is then freed later.
        if getattr(self, "_box", None):
            self._release()

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
