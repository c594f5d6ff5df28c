# SPDX-License-Identifier: MIT
"""load_file() and save_file() for arrays of numpy."""
from typing import Any, Dict

from .._types import Path
from ._load import load_file as _load_file
from ._save import save_file

__all__ = ["load_file", "save_file"]


def load_file(filename: Path, **options: Any) -> Dict[str, Any]:
    """{name: array}; options as penstock.safetensors.load_file()."""
    return _load_file(filename, framework="np", **options)
