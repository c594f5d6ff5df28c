# SPDX-License-Identifier: MIT
"""Models in memory: the bytes of a safetensors file, and tensors by their addresses."""
import ctypes
import operator
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._memory import Memory
from .._types import Path
from ._frames import dtype_names, frame_of
from ._header import BITS, Entry, SafetensorError, header_length, parse
from ._save import arrange, packed, tensors_of, write


class TensorSpec:
    """A tensor in host memory, by its address.

    dtype: numpy's or torch's name, "float32"; the attribute is the format's name, "F32"
    shape: lengths; of float4_e2m1fn_x2 in pairs of elements, the attribute in single elements
    data_ptr: address of its first byte.  The memory is read when the tensor is saved; the caller
              must keep it until then
    data_len: bytes
    """

    __slots__ = ("_dtype", "_shape", "_data_ptr", "_data_len")

    def __init__(self, *, dtype: str, shape: Any, data_ptr: int, data_len: int) -> None:
        found = dtype_names().get(dtype)
        if found is None:
            raise SafetensorError(f"the format has no type '{dtype}'")
        shape = [int(operator.index(length)) for length in shape]
        if found == "F4" and shape:
            shape[-1] *= 2
        if any(length < 0 for length in shape) or not 0 <= data_ptr < 2**64 or data_len < 0:
            raise SafetensorError("a tensor's lengths and address are not negative")
        nbytes = BITS[found]
        for length in shape:
            nbytes *= length
        if nbytes != data_len * 8:
            raise SafetensorError(f"{data_len} bytes are no tensor of {found} of shape {shape}")
        if data_len and not data_ptr:
            raise SafetensorError(f"{data_len} bytes are not at address 0")
        self._dtype, self._shape, self._data_ptr, self._data_len = found, shape, data_ptr, data_len

    dtype = property(lambda self: self._dtype)
    shape = property(lambda self: list(self._shape))
    data_ptr = property(lambda self: self._data_ptr)
    data_len = property(lambda self: self._data_len)

    def __repr__(self):
        return f"<TensorSpec {self._dtype} {self._shape} at {self._data_ptr:#x}>"


def _arranged(tensor_dict, metadata):
    found = []
    for name, spec in tensor_dict.items():
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"tensor '{name}' is a TensorSpec, not of '{type(spec).__name__}'")
        block = None
        if spec.data_len:
            block = (ctypes.c_ubyte * spec.data_len).from_address(spec.data_ptr)
        found.append((Entry(name, spec.dtype, tuple(spec.shape), 0, spec.data_len), block))
    return arrange(found, metadata)


def _joined(head, found):
    pieces = [head]
    memories = []
    try:
        for block, _, joined in packed(found, 0):
            if joined and not hasattr(block, "is_cpu"):
                pieces.append(block)
                continue
            memories.append(Memory.of(block))
            on_host = memories[-1].device == "host"
            pieces.append(memories[-1].view() if on_host else memories[-1].copy_out())
        return b"".join(pieces)
    finally:
        pieces.clear()
        for memory in memories:
            memory.close()


def serialize(tensor_dict: Mapping[str, TensorSpec],
              metadata: Optional[Mapping[str, str]] = None) -> bytes:
    """Return the bytes of a safetensors file with tensors that are given by their addresses."""
    return _joined(*_arranged(tensor_dict, metadata))


def serialize_file(tensor_dict: Mapping[str, TensorSpec], filename: Path,
                   metadata: Optional[Mapping[str, str]] = None) -> None:
    """Save tensors that are given by their addresses; the file appears whole or not at all."""
    write(filename, *_arranged(tensor_dict, metadata))


def _parsed(data):
    size = len(data)
    length = header_length(bytes(data[:8]), size)
    return parse(bytes(data[8:8 + length]), size)


def deserialize(data: Any) -> List[Tuple[str, Dict[str, Any]]]:
    """Return the tensors in the bytes of a safetensors file, in their order.

    Returns a list of (name, {"shape": list, "dtype": "F32", "data": bytearray}).
    """
    with memoryview(data) as raw, raw.cast("B") as view:
        header = _parsed(view)
        return [(entry.name, {
            "shape": list(entry.shape), "dtype": entry.dtype,
            "data": bytearray(view[header.data + entry.begin:][:entry.nbytes])})
            for entry in header.tensors.values()]


def save(tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None) -> bytes:
    """Return the bytes of a safetensors file; arguments as save_file()."""
    return _joined(*arrange(tensors_of(tensors), metadata))


def load(data: Any, *, framework: str = "np", raw: bool = False) -> Dict[str, Any]:
    """Return {name: array or tensor} from the bytes of a safetensors file, each in separate
    memory."""
    frame = frame_of(framework, "cpu", raw)
    result = {}
    with memoryview(data) as whole, whole.cast("B") as view:
        header = _parsed(view)
        for entry in header.tensors.values():
            result[entry.name], block = frame.empty(frame.shape(entry), frame.dtype(entry))
            if block is not None:
                with Memory.of(block) as memory:
                    memory.copy_in(view[header.data + entry.begin:][:entry.nbytes])
    return result
