# SPDX-License-Identifier: MIT
"""Tensors of torch in files.

load() and save() are for state dicts in safetensors files, one file or a folder of shards.  File
reads and writes any contiguous tensor, on the host or a device.  StorageReader and StorageWriter
are for torch.distributed.checkpoint:

    dcp.save(state_dict, storage_writer=penstock.torch.StorageWriter("checkpoint"))
    dcp.load(state_dict, storage_reader=penstock.torch.StorageReader("checkpoint"))

torch is not imported before the first use of this module.
"""
import importlib

from ._files import File
from ._models import load, save

__all__ = ["CheckpointError", "File", "StorageReader", "StorageWriter", "load", "save"]

_LATER = {"CheckpointError": "_archive", "StorageReader": "_reader", "StorageWriter": "_writer"}


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
