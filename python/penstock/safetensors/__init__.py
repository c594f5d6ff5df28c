# SPDX-License-Identifier: MIT
"""Models in safetensors files.

    tensors = penstock.safetensors.load_file("model.safetensors", "cuda:0", framework="pt")

Calls that the package safetensors has, too, have the same arguments; the modules
penstock.safetensors.numpy and penstock.safetensors.torch correspond to that package's modules.  In
a block of patched(), programs that use that package use this one.
"""
from ._bytes import TensorSpec, deserialize, load, save, serialize, serialize_file
from ._header import SafetensorError
from ._load import Slice as PySafeSlice
from ._load import TensorMeta, load_file, load_files, safe_open
from ._patch import patched
from ._prefetch import PrefetchLoader
from ._save import save_file
from ._sums import check_sums, write_sums

# The package safetensors has this name.
_safe_open_handle = safe_open.of_handle

__all__ = ["PrefetchLoader", "PySafeSlice", "SafetensorError", "TensorMeta", "TensorSpec",
           "check_sums", "deserialize", "load", "load_file", "load_files", "patched", "safe_open",
           "save", "save_file", "serialize", "serialize_file", "write_sums"]
