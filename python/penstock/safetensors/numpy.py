# SPDX-License-Identifier: MIT
"""Load and save arrays of numpy, with the calls of safetensors.numpy."""
from typing import Any, Dict

from .._types import Path
from ._bytes import load as _load
from ._bytes import save
from ._load import load_file as _load_file
from ._save import save_file

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(filename: Path, **options: Any) -> Dict[str, Any]:
    """Return {name: array}; options as penstock.safetensors.load_file()."""
    return _load_file(filename, framework="np", **options)


def load(data: Any, *, raw: bool = False) -> Dict[str, Any]:
    """Return {name: array} from the bytes of a safetensors file."""
    return _load(data, framework="np", raw=raw)
