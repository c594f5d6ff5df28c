# SPDX-License-Identifier: MIT
"""A plug-in of pytest: vLLM's own tests of tiers without torch, from its source archive.

vllm_fake.py finds vLLM's classes (PST_VLLM_SOURCE).  torch is numpy here, as far as those tests
make and compare tensors."""
import types

import numpy as np
import vllm_fake


class Tensor(np.ndarray):
    """An array with the methods of a tensor that the tests call."""

    def view(self, *shape):
        if len(shape) == 1 and isinstance(shape[0], (type, np.dtype)):
            return super().view(shape[0])
        return self.reshape(*shape)

    def numpy(self):
        return np.ndarray.view(self, np.ndarray)

    def data_ptr(self):
        return self.ctypes.data

    def element_size(self):
        return self.itemsize

    def clone(self):
        return self.copy()

    def zero_(self):
        self[...] = 0
        return self


def _tensor(array):
    return np.ndarray.view(array, Tensor)


def _zeros(*shape, dtype=np.float32):
    return _tensor(np.zeros(shape, dtype))


def _rand(*shape, dtype=np.float32):
    return _tensor(np.random.default_rng().random(shape, dtype))


TORCH = {
    "Tensor": Tensor, "dtype": np.dtype, "float32": np.dtype(np.float32),
    "uint8": np.dtype(np.uint8), "zeros": _zeros, "rand": _rand,
    "tensor": lambda values, dtype=None: _tensor(np.array(values, dtype)),
    "allclose": np.allclose, "equal": np.array_equal,
}

assert vllm_fake.install(), "name vLLM's unpacked source archive in PST_VLLM_SOURCE"
import torch  # noqa: E402  pylint: disable=C0413,E0401

assert isinstance(torch, types.ModuleType)
torch.__dict__.update(TORCH)
