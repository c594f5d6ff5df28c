# SPDX-License-Identifier: MIT
"""Penstock's Python package; bench/load measures the calls in C.

"penstock-python" is penstock.safetensors.load_files(): arrays of NumPy on the host, with the plain
bits of types that NumPy lacks, and tensors of torch on a GPU. "penstock-python-file" is a
File.read_into() for each file, into memory of Penstock's own, on any device.
"""
import importlib.util
import os
import sys

OURS = True
NAMES = ("penstock-python", "penstock-python-file")
INSTALL = "pip install the wheel that ./dev wheel makes, and numpy or torch"

# The package's folder in a checkout; an installed package takes precedence.
_TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python")
if os.path.isdir(os.path.join(_TREE, "penstock")) and not importlib.util.find_spec("penstock"):
    sys.path.append(os.path.realpath(_TREE))


def modules(device):
    found = {"penstock": ("penstock",)}
    if device == "host":
        found["numpy"] = ("numpy",)
    if device.startswith("cuda"):
        found["torch"] = ("torch",)
    return found


def why_not(name, device):
    library = os.environ.get("PST_LIBPENSTOCK", "")
    if os.path.isfile(library):
        with open(library, "rb") as file:
            content = file.read()
            if b"__asan_init" in content or b"__tsan_init" in content:
                return "its library has a sanitizer, which has to come before Python"
    if name == "penstock-python" and device != "host" and not device.startswith("cuda"):
        return "load_files() has tensors on the host and on GPUs of NVIDIA"
    return ""


class Loader:
    def __init__(self, name, device):
        import penstock
        self.penstock, self.device = penstock, device
        self.load = self.load_tensors if name == "penstock-python" else self.load_memory
        self.kept, self.path, self.torch = [], "", None
        if device.startswith("cuda"):
            import torch
            self.torch = torch
            torch.empty(1, device=device)
            torch.cuda.synchronize(device)
        elif name == "penstock-python":
            importlib.import_module("numpy")
        # Create the device's context.
        penstock.Memory.alloc(device, 4096).close()

    def load_tensors(self, files, _tools):
        if self.torch:
            return self.penstock.safetensors.load_files(files, self.device, framework="pt")
        return self.penstock.safetensors.load_files(files, raw=True)

    def load_memory(self, files, tools):
        tensors = {}
        for path in files:
            entries = [entry for entry in tools.contents(path) if entry[2]]
            memory = [self.penstock.Memory.alloc(self.device, size) for _, _, size in entries]
            with self.penstock.File(path) as file:
                done = file.read_into(memory, [offset for _, offset, _ in entries])
            self.path = done.path
            self.kept += memory
            tensors.update((name, memory) for (name, _, _), memory in zip(entries, memory))
        return tensors

    def drop(self):
        for memory in self.kept:
            memory.close()
        self.kept = []
