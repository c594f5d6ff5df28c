# SPDX-License-Identifier: MIT
"""The table of contents of a checkpoint of torch.distributed.checkpoint: a pickle, .metadata.

Plain unpickling executes what the file says.  Here it may only make the classes of such a table,
and the result is checked.
"""
import dataclasses
import enum
import importlib
import io
import os
import pickle
import stat
from typing import Any

from torch.distributed.checkpoint import metadata as of_torch

from ..safetensors._folder import encodable
from ._archive import CheckpointError, bounded

_METADATA_MAX = 1 << 30
_CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch": {"Size", "device"},
    "torch.serialization": {"_get_layout"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "pathlib._local": {"PosixPath", "PurePosixPath", "Path"},
    "builtins": {"set", "frozenset", "complex", "slice"},
}


def _bytearray(*values):
    """Refuse a number: it would allocate bytes that the file does not have."""
    if values and isinstance(values[0], int):
        raise CheckpointError("its table of contents wants memory that it has no bytes for")
    return bytearray(*values)


def _member(kind, name):
    """Replaces getattr(), which pickles of Python 3.11.0 to 3.11.3 (Debian 12's is one) call."""
    if not (isinstance(kind, type) and issubclass(kind, enum.Enum) and isinstance(name, str) and
            name in kind.__members__):
        raise CheckpointError(f"its table of contents wants '{str(name)[:80]}' of {str(kind)[:80]}")
    return kind.__members__[name]


@bounded
class _Unpickler(pickle._Unpickler):  # in Python, because the C one trusts memo indexes
    dispatch = dict(pickle._Unpickler.dispatch)

    def load_build(self):
        # Attributes of a class or a function would outlive this call.
        if not dataclasses.is_dataclass(self.stack[-2]) or isinstance(self.stack[-2], type):
            raise CheckpointError("its table of contents wants to change "
                                  f"{str(self.stack[-2])[:80]}")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module, name):
        if (module, name) == ("builtins", "bytearray"):
            return _bytearray
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name in _CLASSES.get(module, ()):
            return getattr(importlib.import_module(module), name)
        if module == "torch":
            found = getattr(importlib.import_module(module), name, None)
            if type(found).__module__ == "torch" and type(found).__name__ in ("dtype", "layout"):
                return found
        raise CheckpointError(f"its table of contents wants {module}.{name} to be called; if you "
                              "trust who wrote it, say trusted=True")


@dataclasses.dataclass
class Place:
    """The place of an item in a file of the checkpoint.

    name, begin, nbytes: the file's name; the item's first byte and number of bytes
    stored: its content if known, else None: an archive or bytes
    seen: state of the file when stored became known
    """
    name: str
    begin: int
    nbytes: int
    stored: Any = None
    seen: Any = None


def _size(value):
    return type(value) is int and 0 <= value < 2**63


def _sizes(values):
    return isinstance(values, (tuple, list)) and all(map(_size, values))


def _check_facts(facts):
    if not isinstance(facts, dict):
        raise CheckpointError("its table of contents is damaged: there are no facts of tensors")
    for name, fact in facts.items():
        if isinstance(fact, of_torch.BytesStorageMetadata):
            continue
        try:
            good = (isinstance(fact, of_torch.TensorStorageMetadata) and _sizes(fact.size) and
                    isinstance(fact.properties, of_torch.TensorProperties) and all(
                        isinstance(chunk, of_torch.ChunkStorageMetadata) and
                        _sizes(chunk.offsets) and _sizes(chunk.sizes) and
                        len(chunk.offsets) == len(chunk.sizes) == len(fact.size) and
                        all(a + b <= c for a, b, c in zip(chunk.offsets, chunk.sizes, fact.size))
                        for chunk in fact.chunks))
        except (AttributeError, TypeError):
            good = False
        if not good:
            raise CheckpointError(f"its table of contents is damaged at '{str(name)[:80]}'")


def place_of(index, info):
    """Return a Place from the record of torch's writer or ours for an item."""
    if isinstance(info, Place):
        return info
    name, begin, nbytes = (getattr(info, key, None) for key in ("relative_path", "offset",
                                                                "length"))
    text = f"its table of contents is damaged at '{str(getattr(index, 'fqn', index))[:80]}'"
    if not (isinstance(name, str) and _size(begin) and _size(nbytes)):
        raise CheckpointError(text)
    parts = name.split("/")
    if (name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts) or
            not encodable(name)):
        raise CheckpointError(f"{text}: the file '{name[:80]}' is not in its folder")
    if getattr(info, "transform_descriptors", None):
        raise CheckpointError(f"'{index.fqn}' was written with the extensions "
                              f"{info.transform_descriptors}, which are not served; torch's "
                              "FileSystemReader reads it")
    return Place(name, begin, nbytes)


def read(path, trusted=False):
    """Return the checked Metadata of a file.  Raises CheckpointError, FileNotFoundError."""
    # Do not block on a pipe.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        facts = os.fstat(file.fileno())
        size = facts.st_size
        if not stat.S_ISREG(facts.st_mode):
            raise CheckpointError(f"{path}: this is no regular file")
        if size > _METADATA_MAX and not trusted:
            raise CheckpointError(f"{path}: its table of contents has {size} bytes; the limit is "
                                  f"{_METADATA_MAX}, or trusted=True")
        raw = file.read(size)
    try:
        found = pickle.loads(raw) if trusted else _Unpickler(io.BytesIO(raw)).load()
        if not isinstance(found, of_torch.Metadata):
            raise CheckpointError("this is no table of contents of a checkpoint")
        _check_facts(found.state_dict_metadata)
        if not isinstance(found.storage_data, dict):
            raise CheckpointError("its table of contents does not say where the items are")
        for index, info in found.storage_data.items():
            if not isinstance(index, of_torch.MetadataIndex):
                raise CheckpointError("its table of contents is damaged")
            place_of(index, info)
    except CheckpointError as e:
        raise CheckpointError(f"{path}: {e}") from None
    except Exception as e:
        raise CheckpointError(f"{path}: its table of contents is damaged or cut: "
                              f"{type(e).__name__}: {e}") from None
    return found
