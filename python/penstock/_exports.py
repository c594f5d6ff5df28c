# SPDX-License-Identifier: MIT
"""Views and DLPack tensors of memory that other code holds.

A consumer of DLPack may call the deleter from any thread, without the interpreter's lock, with an
exception pending, or after the interpreter's end.  A ctypes callback would then lose the exception,
or crash.  So the deleter is libc's sigemptyset(), which clears the first word of the structure
passed to it.  That word is the address of the bytes, or the version, so it is never 0 before.
sweep() looks for cleared words.

Exports have no finalizers either.  An export is over when only its Lease references an object: a
token that a view keeps, or a capsule that no consumer has taken.
"""
import ctypes
import gc
import itertools
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p, py_object, pythonapi
from sys import getrefcount
from typing import Any, Dict, Optional, Tuple

# Separate prototypes: other code may change those of pythonapi.
capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, c_char_p)(
    ("PyCapsule_IsValid", pythonapi))
capsule_get = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", pythonapi))
_capsule_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", pythonapi))


class DLTensor(Structure):
    """DLTensor."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


# Older versions of glibc clear all of a sigset_t.
_SIGSET = 128


class _Unversioned(Structure):
    """DLManagedTensor, and the objects to which it points."""
    _fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", c_void_p),
                ("room", c_uint8 * _SIGSET), ("shape", c_int64), ("stride", c_int64)]


class DLVersioned(Structure):
    """DLManagedTensorVersioned, and the objects to which ours points."""
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("tensor", DLTensor),
                ("room", c_uint8 * _SIGSET), ("shape", c_int64), ("stride", c_int64)]


DL_READ_ONLY = 1
_DL_COPIED = 2
DL_CPU = (1, 0)     # kDLCPU and its only device
DL_CUDA = 2         # kDLCUDA
_DL_UINT = 1        # kDLUInt

NAME, NAME_VERSIONED = b"dltensor", b"dltensor_versioned"
_DELETER = ctypes.cast(ctypes.CDLL(None).sigemptyset, c_void_p).value


class Lease:
    """An export of memory.

    thing: a token that a view keeps, or the capsule of a tensor
    name:  the capsule's name while no consumer has taken the tensor; None for a view
    tensor: the structure to which the capsule points
    """

    __slots__ = ("thing", "name", "tensor")

    def __init__(self, thing: Any, name: Optional[bytes] = None, tensor: Any = None) -> None:
        self.thing, self.name, self.tensor = thing, name, tensor

    def live(self) -> bool:
        """Return true if the memory may still be used.  Once false, it stays false."""
        if self.tensor is not None:
            if not c_uint64.from_address(ctypes.addressof(self.tensor)).value:
                return False    # the consumer called the deleter
            if not capsule_is(self.thing, self.name):
                return True     # a consumer renamed the capsule and has the tensor
        return _references(self) > _ALONE


def _references(lease: Lease) -> int:
    return getrefcount(lease.thing)


_ALONE = _references(Lease(object()))

_numbers = itertools.count()
# Leases of one piece of memory, by number.
Leases = Dict[int, Lease]
# Exported tensors with their Memory.  Never freed, not even at the interpreter's end, because a
# consumer may outlive it.
_tensors: Dict[int, Tuple[Lease, Any]] = {}
for _kept in (_tensors, NAME, NAME_VERSIONED):
    pythonapi.Py_IncRef(py_object(_kept))


def _crowded(table: Dict[int, Any]) -> bool:
    """Return true for 64, 128, 256, ... entries: checking all entries then costs little per entry.
    """
    return len(table) >= 64 and not len(table) & (len(table) - 1)


def outstanding(leases: Leases) -> int:
    """Drop ended exports.  Return the number of the remaining ones."""
    for number, lease in leases.copy().items():
        if not lease.live():
            leases.pop(number, None)
    return len(leases)


def sweep() -> None:
    """Release memory whose exported tensors are gone."""
    for number, (lease, _) in _tensors.copy().items():
        if not lease.live():
            _tensors.pop(number, None)


def _collected(phase: str, info: Dict[str, int]) -> None:
    """Sweep at garbage collections, except those of the youngest generation."""
    if phase == "stop" and info["generation"]:
        sweep()


def token(leases: Leases) -> Any:
    """Return a new object; while it is referenced, the memory counts as exported."""
    if _crowded(leases):
        outstanding(leases)
    thing = object()
    leases[next(_numbers)] = Lease(thing)
    return thing


def capsule(memory: Any, leases: Leases, device: Tuple[int, int], *, versioned: bool,
            copied: bool) -> Any:
    """Return a capsule with a DLPack tensor of the memory's bytes, which keeps the memory."""
    if _crowded(_tensors):
        sweep()
    if _crowded(leases):
        outstanding(leases)
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)
    managed: Any = DLVersioned() if versioned else _Unversioned()
    if versioned:
        managed.major = 1
        managed.flags = (0 if memory.writable else DL_READ_ONLY) | (_DL_COPIED if copied else 0)
    managed.deleter = _DELETER
    managed.shape, managed.stride = memory.nbytes, 1
    tensor, kind = managed.tensor, type(managed)
    tensor.data, (tensor.device_type, tensor.device_id) = memory.address, device
    tensor.ndim, tensor.code, tensor.bits, tensor.lanes = 1, _DL_UINT, 8, 1
    start = ctypes.addressof(managed)
    for member in ("shape", "stride"):
        place = start + getattr(kind, member).offset
        setattr(tensor, "shape" if member == "shape" else "strides",
                ctypes.cast(place, POINTER(c_int64)))
    name = NAME_VERSIONED if versioned else NAME
    made = _capsule_new(start, name, None)
    lease, number = Lease(made, name, managed), next(_numbers)
    leases[number] = lease
    _tensors[number] = (lease, memory)
    return made
