# SPDX-License-Identifier: MIT
"""Load and save tensors and models of torch, with the calls of safetensors.torch."""
from typing import Any, Dict, Mapping, Optional

from .._types import Device, Path
from . import _bytes
from ._load import load_file as _load_file
from ._save import save_file as _save_file
from ._shared import end_ptr as _end_ptr
from ._shared import find_shared_tensors as _find_shared_tensors
from ._shared import is_complete as _is_complete
from ._shared import load_model, refuse_shared, save_model, storage_ptr, storage_size
from ._shared import remove_duplicate_names as _remove_duplicate_names

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model", "storage_ptr",
           "storage_size", "_end_ptr", "_find_shared_tensors", "_is_complete",
           "_remove_duplicate_names"]


def load_file(filename: Path, device: Device = "cpu", **options: Any) -> Dict[str, Any]:
    """Return {name: tensor}; options as penstock.safetensors.load_file()."""
    return _load_file(filename, device, framework="pt", **options)


def load(data: Any, *, raw: bool = False) -> Dict[str, Any]:
    """Return {name: tensor} from the bytes of a safetensors file."""
    return _bytes.load(data, framework="pt", raw=raw)


def save(tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None) -> bytes:
    """Return the bytes of a safetensors file; arguments as save_file()."""
    refuse_shared(tensors)
    return _bytes.save(tensors, metadata)


def save_file(tensors: Mapping[str, Any], filename: Path,
              metadata: Optional[Mapping[str, str]] = None, *, sync: bool = True) -> None:
    """As penstock.safetensors.save_file(), but raise RuntimeError for tensors that share memory."""
    refuse_shared(tensors)
    _save_file(tensors, filename, metadata, sync=sync)
