# SPDX-License-Identifier: MIT
"""Saving."""
import errno
import os
import secrets
import stat
import sys
from typing import Any, Mapping, Optional

from .._file import File
from .._lib import failure
from .._types import Path
from ._frames import dtype_names
from ._header import BITS, Entry, SafetensorError, build

_BATCH = 4096
_NAME_MAX = 255     # bytes of a name in a folder


def _of_numpy(name, array, names):
    np = sys.modules["numpy"]
    dtype = names.get(array.dtype.name)
    if dtype is None:
        raise SafetensorError(f"tensor '{name}': the format has no {array.dtype}")
    shape = array.shape
    # What subclasses, such as a matrix, do with their shape is theirs.
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise SafetensorError(f"tensor '{name}' is masked; call its filled() first")
    array = array.view(np.ndarray)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return dtype, shape, array.reshape(-1).view(np.uint8) if array.size else None


def _of_torch(name, tensor, names):
    torch = sys.modules["torch"]
    dtype = names.get(str(tensor.dtype).partition(".")[2])
    if dtype is None:
        raise SafetensorError(f"tensor '{name}': the format has no {tensor.dtype}")
    if tensor.layout != torch.strided:
        raise SafetensorError(f"tensor '{name}' is sparse; call its to_dense() first")
    if not tensor.is_contiguous():
        raise SafetensorError(f"tensor '{name}' is not contiguous; call its contiguous() first")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.device.type == "meta":
        # torch's own class and words, which callers of the package safetensors get.
        raise RuntimeError(f"Cannot copy out of meta tensor; tensor '{name}' has no bytes")
    if tensor.device.type not in ("cpu", "cuda"):
        # Memory that only torch reaches.
        tensor = tensor.cpu()
    shape = tuple(tensor.shape)
    if dtype == "F4":
        if not shape:
            raise SafetensorError(f"tensor '{name}' is 0-d and has two elements; reshape it to "
                                  "one dimension")
        # One element of torch's is two.
        shape = shape[:-1] + (shape[-1] * 2,)
    return dtype, shape, tensor.reshape(-1).view(torch.uint8) if tensor.numel() else None


def _bytes_of(name, value, names):
    if not isinstance(name, str):
        raise SafetensorError(f"a tensor's name is a text, not {name!r}")
    for module, kind, of in (("numpy", "ndarray", _of_numpy), ("torch", "Tensor", _of_torch)):
        if module in sys.modules and isinstance(value, getattr(sys.modules[module], kind)):
            return of(name, value, names)
    raise SafetensorError(f"tensor '{name}' is neither an array of numpy nor a tensor of torch, "
                          f"but of '{type(value).__name__}'")


def tensors_of(tensors):
    """A list of (Entry, bytes) of {name: array or tensor}; the bytes are None where there are none.
    """
    if not isinstance(tensors, Mapping):
        raise SafetensorError(f"tensors are a dict of names, not of '{type(tensors).__name__}'")
    names = dtype_names()
    found = []
    for name, value in tensors.items():
        dtype, shape, block = _bytes_of(name, value, names)
        elements = 1
        for length in shape:
            elements *= length
        found.append((Entry(name, dtype, tuple(shape), 0, elements * BITS[dtype] // 8), block))
    return found


def arrange(found, metadata):
    """Give (Entry, bytes) pairs their order and places; returns (what comes before them, pairs).

    Sorted by the size of elements, largest first, then by name.
    """
    found = sorted(found, key=lambda pair: (-BITS[pair[0].dtype], pair[0].name))
    at = 0
    for entry, _ in found:
        entry.begin = at
        at += entry.nbytes
    return build([entry for entry, _ in found], metadata), found


def sync_folder(folder):
    """Wait until the disk has the names in a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _target(filename):
    """The file that is to be there; Error for what no file may take the place of."""
    if not filename:
        raise failure(errno.ENOENT, "a file's name is empty", filename)
    target = os.path.realpath(os.fsdecode(filename))
    try:
        mode = os.stat(target).st_mode
    except OSError:
        return target       # none, or what making the other one tells
    if stat.S_ISDIR(mode):
        raise failure(errno.EISDIR, "this is a folder; name a file in it", filename)
    if not stat.S_ISREG(mode):
        raise failure(errno.EINVAL, "this is a device, pipe or socket, which a file would replace; "
                      "name a regular file", filename)
    return target


def _beside(target):
    """Another name in its folder, which may not be longer than names are."""
    folder, name = os.path.split(target)
    end = f".{secrets.token_hex(8)}.tmp"
    while len(os.fsencode(name)) > _NAME_MAX - len(end):
        name = name[:-1]
    return os.path.join(folder, name + end)


def write(filename, head, found, sync=True):
    """Write beside filename under another name, then rename."""
    target = _target(filename)
    temporary = _beside(target)
    try:
        with File(temporary, "x") as file:
            file.write(head)
            work = [(block, len(head) + entry.begin) for entry, block in found
                    if block is not None]
            for first in range(0, len(work), _BATCH):
                blocks, offsets = zip(*work[first:first + _BATCH])
                file.write_from(blocks, list(offsets))
            if sync:
                file.sync()
        os.replace(temporary, target)
        if sync:
            sync_folder(os.path.dirname(target))
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass    # there is none, or what is raised says why
        raise


def save_file(tensors: Mapping[str, Any], filename: Path,
              metadata: Optional[Mapping[str, str]] = None, *, sync: bool = True) -> None:
    """Save tensors as a safetensors file, which appears whole or not at all.

    tensors:  {name: array of numpy or tensor of torch, on any device}.  Arrays with gaps are
              copied, tensors with gaps are refused.  Those that share memory are written as often.
    metadata: a dict of texts by texts, or None
    sync:     wait until the disk has it

    Tensors are sorted by the size of their elements, largest first, then by name.  It is written
    beside filename under another name, then renamed.  Raises SafetensorError, Error.
    """
    head, found = arrange(tensors_of(tensors), metadata)
    write(filename, head, found, sync)
