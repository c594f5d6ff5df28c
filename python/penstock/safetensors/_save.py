# SPDX-License-Identifier: MIT
"""Save tensors."""
import math
import sys
from typing import Any, Mapping, Optional

from .._replace import Replacement
from .._types import Path
from ._frames import SMALL, dtype_names
from ._header import BITS, Entry, SafetensorError, build

_BATCH = 4096
_PACK = 4 << 20     # bytes of small tensors that are joined


def _of_numpy(name, array, names):
    np = sys.modules["numpy"]
    dtype = names.get(array.dtype)
    if dtype is None:
        # Look up each type's name once.
        dtype = names[array.dtype] = names.get(array.dtype.name)
    if dtype is None:
        raise SafetensorError(f"tensor '{name}': the format has no {array.dtype}; " +
                              _cure(array.dtype))
    shape = array.shape
    if type(array) is np.ndarray and array.dtype.isbuiltin == 1 and array.flags.c_contiguous and \
            array.nbytes < SMALL and sys.byteorder == "little":
        # A small contiguous array can be joined as it is.
        return dtype, shape, array if array.size else None
    # Subclasses such as matrix interpret their shape in their own way.
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise SafetensorError(f"tensor '{name}' is masked; call its filled() first")
    array = array.view(np.ndarray)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return dtype, shape, array.reshape(-1).view(np.uint8) if array.size else None


def _cure(dtype):
    if "complex" in str(dtype):
        return "save torch.view_as_real() or numpy's .view() of it, or cast it to complex64"
    return "cast it to a type of numbers that the format has"


def _has_storage(tensor):
    """Return whether the tensor has its own storage, rather than being composed of other tensors.
    """
    try:
        return bool(tensor.data_ptr() or not tensor.numel())
    except RuntimeError:
        return False


def refuse_without_bytes(name_is, tensor, error):
    """Raise error for a torch tensor that is not an array of elements in memory."""
    torch = sys.modules["torch"]
    if tensor.device.type == "meta":
        raise error(f"{name_is} is on the device 'meta' and has no bytes; load the model first")
    # A nested tensor claims to be strided.
    if tensor.is_nested:
        raise error(f"{name_is} is nested; save what its unbind() gives, or call its "
                    "to_padded_tensor() first")
    if tensor.layout != torch.strided:
        kind = "of mkldnn" if tensor.is_mkldnn else "sparse"
        raise error(f"{name_is} is {kind}; call its to_dense() first")


def _of_torch(name, tensor, names):
    torch = sys.modules["torch"]
    if not tensor.is_cpu and tensor.device.type == "meta":
        # In the package safetensors torch raises this: use the same class and text.
        raise RuntimeError(f"Cannot copy out of meta tensor; tensor '{name}' has no bytes")
    if not tensor.is_cpu or tensor.layout != torch.strided or tensor.is_nested:
        refuse_without_bytes(f"tensor '{name}'", tensor, SafetensorError)
    if tensor.is_quantized:
        raise SafetensorError(f"tensor '{name}': the format has no {tensor.dtype}; call its "
                              "dequantize() or int_repr() first")
    dtype = names.get(tensor.dtype)
    if dtype is None:
        dtype = names[tensor.dtype] = names.get(str(tensor.dtype).partition(".")[2])
    if dtype is None:
        raise SafetensorError(f"tensor '{name}': the format has no {tensor.dtype}; " +
                              _cure(tensor.dtype))
    if not _has_storage(tensor):
        full = "full_tensor()" if hasattr(tensor, "full_tensor") else "plain tensors"
        raise SafetensorError(f"tensor '{name}' is of '{type(tensor).__name__}', whose bytes are "
                              f"elsewhere; save its {full}")
    if not tensor.is_contiguous():
        raise SafetensorError(f"tensor '{name}' is not contiguous; call its contiguous() first")
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if not tensor.is_cpu and tensor.device.type != "cuda":
        # Only torch can access this memory.
        tensor = tensor.cpu()
    shape = tuple(tensor.shape)
    if dtype == "F4":
        if not shape:
            raise SafetensorError(f"tensor '{name}' is 0-d and has two elements; reshape it to "
                                  "one dimension")
        # One item of torch's type is two elements of the format.
        shape = shape[:-1] + (shape[-1] * 2,)
    return dtype, shape, tensor.reshape(-1).view(torch.uint8) if tensor.numel() else None


def _kinds():
    """Return (class, function that describes its tensors) for each imported framework."""
    known = ("numpy", "ndarray", _of_numpy), ("torch", "Tensor", _of_torch)
    return [(getattr(sys.modules[module], kind), of) for module, kind, of in known
            if module in sys.modules]


def tensors_of(tensors):
    """Return a list of (Entry, bytes) for {name: array or tensor}; bytes is None for an empty one.
    """
    if not isinstance(tensors, Mapping):
        raise SafetensorError(f"tensors are a dict of names, not of '{type(tensors).__name__}'")
    names, kinds, found = dtype_names(), _kinds(), []
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise SafetensorError(f"a tensor's name is a text, not {name!r}")
        for kind, of in kinds:
            if isinstance(value, kind):
                dtype, shape, block = of(name, value, names)
                break
        else:
            raise SafetensorError(f"tensor '{name}' is neither an array of numpy nor a tensor of "
                                  f"torch, but of '{type(value).__name__}'")
        nbytes = math.prod(shape) * BITS[dtype] // 8
        found.append((Entry(name, dtype, tuple(shape), 0, nbytes), block))
    return found


def arrange(found, metadata):
    """Sort (Entry, bytes) pairs and assign offsets.  Return (bytes before them, pairs).

    Order: size of elements, largest first, then name.
    """
    found = sorted(found, key=lambda pair: (-BITS[pair[0].dtype], pair[0].name))
    at = 0
    for entry, _ in found:
        entry.begin = at
        at += entry.nbytes
    return build([entry for entry, _ in found], metadata), found


def _join_of(block):
    """Return the function that joins small host blocks: cheaper than one piece of a write for each.
    """
    if not hasattr(block, "is_cpu"):
        return b"".join
    return sys.modules["torch"].cat if block.is_cpu else None


def packed(found, base):
    """Yield (block, file offset, bytes copied by joining) for the result of arrange()."""
    blocks, begin, nbytes, join = [], 0, 0, None
    kind = None     # type of the joined blocks
    for entry, block in found:
        if block is None:
            continue
        small = entry.nbytes < SMALL
        if blocks and not (small and type(block) is kind and nbytes < _PACK):
            yield join(blocks), base + begin, nbytes
            blocks, nbytes = [], 0
        if small and not blocks:
            join, kind = _join_of(block), type(block)
        if not small or join is None:
            yield block, base + entry.begin, 0
            continue
        if not blocks:
            begin = entry.begin
        blocks.append(block)
        nbytes += entry.nbytes
    if blocks:
        yield join(blocks), base + begin, nbytes


def batches(found, base):
    """Yield (blocks, offsets) for the result of arrange(), for one call of File.write_from() each.
    """
    blocks, offsets, held = [], [], 0
    for block, offset, nbytes in packed(found, base):
        blocks.append(block)
        offsets.append(offset)
        held += nbytes
        if held >= _PACK or len(blocks) >= _BATCH:
            yield blocks, offsets
            blocks, offsets, held = [], [], 0
    if blocks:
        yield blocks, offsets


def write(filename, head, found, sync=True, like=None):
    """Write a new file, then rename it to filename; like: as Replacement()."""
    with Replacement(filename, like) as new:
        new.file.write(head)
        for blocks, offsets in batches(found, len(head)):
            new.file.write_from(blocks, offsets)
        new.publish(sync)


def save_file(tensors: Mapping[str, Any], filename: Path,
              metadata: Optional[Mapping[str, str]] = None, *, sync: bool = True) -> None:
    """Save tensors as a safetensors file, which becomes visible only when it is complete.

    tensors:  {name: array of numpy or tensor of torch, on any device}.  Arrays with gaps are
              copied, tensors with gaps are refused.  Shared memory is written once per tensor.
    metadata: a dict of texts by texts, or None
    sync:     wait until the file is durable

    Tensors are sorted by the size of their elements, largest first, then by name.  The new file is
    written in the same folder, and replaces the old one, whose mode, owner and ACL it gets.  Raises
    SafetensorError, Error.
    """
    head, found = arrange(tensors_of(tensors), metadata)
    write(filename, head, found, sync)
