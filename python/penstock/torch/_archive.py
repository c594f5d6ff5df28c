# SPDX-License-Identifier: MIT
"""The format of torch.save() for one tensor, without torch.save(): find its bytes, and make the
bytes before and after them.

The format is a zip file with uncompressed members: data.pkl, a pickle that describes the tensor,
and data/0, its bytes.
Input is hostile until it has been checked: a pickle is a program, and this one may call nothing.
"""
import functools
import io
import pickle
import struct
import zlib

import torch

_PICKLE_MAX = 64 << 10
_MEMBERS_MAX = 64
_LOCAL, _CENTRAL, _END, _END64, _LOCATOR = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7")
_FOUR = 0xffffffff

_STORAGES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool, "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}


class CheckpointError(RuntimeError):
    """The checkpoint is incomplete or invalid, or does not fit the tensors to load."""


class Foreign(Exception):
    """Not a plain tensor of a form known here; torch.load() may be able to read it."""


class Stored:
    """A tensor in a file.

    dtype, shape: of torch; the elements are in C order
    begin: the first byte, counted from the begin of the file
    """

    __slots__ = ("dtype", "shape", "begin")

    def __init__(self, dtype, shape, begin):
        self.dtype, self.shape, self.begin = dtype, tuple(shape), begin

    @property
    def nbytes(self):
        count = self.dtype.itemsize
        for length in self.shape:
            count *= length
        return count


# ---------------------------------------------------------------------------- writing

class _Storage:
    """Pickled as the storage with the key 0."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


class _Tensor:
    def __init__(self, dtype, shape, nbytes):
        strides, step = [], 1
        for length in reversed(shape):
            strides.insert(0, step)
            step *= max(length, 1)
        self.facts = (_Storage(nbytes), 0, tuple(shape), tuple(strides), False, {}, dtype)

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v3, self.facts


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, _Storage):
            return ("storage", torch.storage.UntypedStorage, "0", "cpu", obj.nbytes)
        return None


def _local(name, data, extra=b"", nbytes=None):
    crc = zlib.crc32(data)
    size = len(data) if nbytes is None else _FOUR
    return struct.pack("<4s5H3I2H", _LOCAL, 45, 0x800, 0, 0, 0x21, crc, size, size, len(name),
                       len(extra)) + name + extra + data


def _central(name, data, at, nbytes=None):
    size, extra = len(data), b""
    if nbytes is not None:
        size, extra = _FOUR, struct.pack("<2H2Q", 1, 16, nbytes, nbytes)
    return struct.pack("<4s6H3I5H2I", _CENTRAL, 45, 45, 0x800, 0, 0, 0x21, zlib.crc32(data), size,
                       size, len(name), len(extra), 0, 0, 0, 0, at) + name + extra


def build(dtype, shape, nbytes, at, align):
    """Return (bytes before, bytes after) a tensor's bytes in an archive that begins at "at".

    The tensor's bytes begin at a multiple of align, a power of two, in the file.  The archive has
    no CRC of them; torch does not need it.
    """
    described = io.BytesIO()
    _Pickler(described, 2).dump(_Tensor(dtype, shape, nbytes))
    members = [(b"archive/data.pkl", described.getvalue()), (b"archive/byteorder", b"little"),
               (b"archive/version", b"3\n")]
    before, central = b"", b""
    for name, data in members:
        central += _central(name, data, len(before))
        before += _local(name, data)
    name = b"archive/data/0"
    central += _central(name, b"", len(before), nbytes)
    sizes = struct.pack("<2H2Q", 1, 16, nbytes, nbytes)
    gap = -(at + len(before) + 30 + len(name) + len(sizes) + 4) % align
    before += _local(name, b"", sizes + struct.pack("<2H", 0x4246, gap) + bytes(gap), nbytes)
    place, count = len(before) + nbytes, len(members) + 1
    behind = central + struct.pack("<4sQ2H2I4Q", _END64, 44, 45, 45, 0, 0, count, count,
                                   len(central), place)
    behind += struct.pack("<4sIQI", _LOCATOR, 0, place + len(central), 1)
    behind += struct.pack("<4s4H2IH", _END, 0, 0, count, count, len(central), min(place, _FOUR), 0)
    return before, behind


# ---------------------------------------------------------------------------- reading

def _rebuilt(storage, offset, shape, strides, _grad=False, _hooks=None, metadata=None):
    # Metadata may say, for example, that the tensor is the conjugate or the negative of the bytes.
    if metadata or storage[0] is None:
        raise Foreign
    return storage[0], storage[1], offset, shape, strides


def _rebuilt_untyped(storage, offset, shape, strides, _grad, _hooks, dtype, metadata=None):
    if metadata or storage[0] is not None or not isinstance(dtype, torch.dtype):
        raise Foreign
    return dtype, storage[1], offset, shape, strides


def bounded(unpickler):
    """Return Python's unpickler, limited to allocations that the pickle's bytes justify."""
    def load_bytearray8(self):
        size, = struct.unpack("<Q", self.read(8))
        data = self.read(size)
        if len(data) < size:
            raise EOFError("it ends within bytes")
        self.append(bytearray(data))
    unpickler.dispatch[0x96] = load_bytearray8
    return unpickler


@bounded
class _Unpickler(pickle._Unpickler):  # in Python, because the C one trusts memo indexes
    """Understands descriptions of plain tensors, and calls nothing of torch."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def load_build(self):
        # BUILD would set attributes of functions, which would outlive this call.
        raise Foreign("BUILD")

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module, name):
        if module == "torch._utils" and name == "_rebuild_tensor_v2":
            return _rebuilt
        if module == "torch._utils" and name == "_rebuild_tensor_v3":
            return _rebuilt_untyped
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch.storage", "UntypedStorage"):
            return "untyped"
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise Foreign(f"{module}.{name}")

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage" or pid[2] != "0":
            raise Foreign
        kind, count = pid[1], pid[4]
        if kind == "untyped":
            return None, count
        if not isinstance(kind, torch.dtype) or not _size(count):
            raise Foreign
        return kind, count * kind.itemsize


def _size(value):
    return type(value) is int and 0 <= value < 2**63


def _sizes(values):
    return isinstance(values, tuple) and len(values) <= 64 and all(map(_size, values))


def _zip64(extra, size, packed, at):
    """Return sizes and place of a member; large values are in its extra field."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        field, extra = extra[4:4 + length], extra[4 + length:]
        if kind != 1:
            continue
        numbers = list(struct.unpack(f"<{len(field) // 8}Q", field[:len(field) // 8 * 8]))
        if size == _FOUR and numbers:
            size = numbers.pop(0)
        if packed == _FOUR and numbers:
            packed = numbers.pop(0)
        if at == _FOUR and numbers:
            at = numbers.pop(0)
        break
    return size, packed, at


def _members(at, length):
    """Return {name: (first byte, bytes)} of an archive; at(offset, nbytes) returns its bytes."""
    if length < 22:
        raise CheckpointError("it is shorter than any archive")
    end = at(length - 22, 22)
    if end[:4] != _END:
        raise CheckpointError("there is no archive where one should end")
    count, size, place = struct.unpack("<H2I", end[10:20])
    if length >= 42 and at(length - 42, 4) == _LOCATOR:
        where, = struct.unpack("<Q", at(length - 34, 8))
        if where > length - 98 or at(where, 4) != _END64:
            raise CheckpointError("its archive's end is damaged")
        count, size, place = struct.unpack("<3Q", at(where + 32, 24))
    if not 0 < count <= _MEMBERS_MAX or size > _PICKLE_MAX or place + size > length:
        raise CheckpointError("its archive's table of contents is damaged")
    table, members = at(place, size), {}
    for _ in range(count):
        if len(table) < 46 or table[:4] != _CENTRAL:
            raise CheckpointError("its archive's table of contents is damaged")
        method, = struct.unpack_from("<H", table, 10)
        packed, size, lengths, begin = struct.unpack_from("<2I6s8xI", table, 20)
        named, extra, comment = struct.unpack("<3H", lengths)
        name = table[46:46 + named]
        size, packed, begin = _zip64(table[46 + named:46 + named + extra], size, packed, begin)
        table = table[46 + named + extra + comment:]
        if method or size != packed:
            # torch does not compress, and a small member could expand to any size.
            raise CheckpointError("its archive is compressed")
        if begin + 30 > length:
            raise CheckpointError("its archive's table of contents is damaged")
        local = at(begin, 30)
        if local[:4] != _LOCAL:
            raise CheckpointError("its archive's table of contents is damaged")
        data = begin + 30 + sum(struct.unpack("<2H", local[26:30]))
        if data + size > length:
            raise CheckpointError("a part of it ends behind its end")
        members[name.partition(b"/")[2]] = data, size
    return members


@functools.lru_cache(1024)
def _described(raw):
    """Return (dtype, bytes, offset, shape, strides) from a pickle; cached, because many tensors
    have the same."""
    try:
        found = _Unpickler(io.BytesIO(raw)).load()
    except Foreign:
        raise
    except Exception as e:
        raise CheckpointError(f"its description is damaged: {type(e).__name__}") from None
    if not isinstance(found, tuple) or len(found) != 5:
        raise Foreign
    dtype, nbytes, offset, shape, strides = found
    if not (isinstance(dtype, torch.dtype) and _size(nbytes) and _size(offset) and
            _sizes(shape) and _sizes(strides) and len(shape) == len(strides)):
        raise Foreign
    return found


def parse(at, begin, length):
    """Return the Stored of an archive; at(offset, nbytes) returns its bytes.

    begin: where it begins in the file
    length: its bytes

    Raises CheckpointError for a damaged archive, Foreign for one that torch.load() may understand.
    """
    members = _members(at, length)
    if b"data.pkl" not in members or members[b"data.pkl"][1] > _PICKLE_MAX:
        raise Foreign
    begin_order, order = members.get(b"byteorder", (0, 0))
    if order and (order != 6 or at(begin_order, order) != b"little"):
        raise Foreign
    dtype, nbytes, offset, shape, strides = _described(at(*members[b"data.pkl"]))
    data, there = members.get(b"data/0", (0, 0))
    if there != nbytes:
        raise CheckpointError(f"it has {there} bytes, and its description says {nbytes}")
    step = 1
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count != 1 and stride != step and 0 not in shape:
            raise Foreign
        step *= count
    stored = Stored(dtype, shape, begin + data + offset * dtype.itemsize)
    if stored.nbytes + offset * dtype.itemsize > nbytes:
        raise CheckpointError(f"a tensor of {dtype} of shape {list(shape)} needs more than its "
                              f"{nbytes} bytes")
    return stored
