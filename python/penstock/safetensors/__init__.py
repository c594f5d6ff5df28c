# SPDX-License-Identifier: MIT
"""Models in safetensors files.

    tensors = penstock.safetensors.load_file("model.safetensors", "cuda:0", framework="pt")

load_file(), load_files(), safe_open() and save_file() have the arguments of the package safetensors
where it has them.  The modules penstock.safetensors.numpy and penstock.safetensors.torch have
load_file() and save_file() for one framework, as that package has.
"""
from ._header import SafetensorError
from ._load import load_file, load_files, safe_open
from ._save import save_file

__all__ = ["SafetensorError", "load_file", "load_files", "safe_open", "save_file"]
