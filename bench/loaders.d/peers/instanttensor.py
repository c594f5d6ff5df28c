# SPDX-License-Identifier: MIT
"""InstantTensor: all files in one list; tensors own their memory, which is the default.

"instanttensor" chooses its I/O path by itself, "-buffered" uses the page cache.
"""
NAMES = ("instanttensor", "instanttensor-buffered")
INSTALL = "pip install instanttensor torch"


def modules(_device):
    return {"instanttensor": ("instanttensor",), "torch": ("torch",)}


def why_not(_name, device):
    return "" if device.startswith("cuda") else "it is for CUDA"


class Loader:
    def __init__(self, name, device):
        import instanttensor
        import torch
        self.torch = torch
        self.safe_open = instanttensor.safe_open
        self.device = device
        self.options = {}
        if name == "instanttensor-buffered":
            self.options["backend"] = instanttensor.BackendPolicy.BUFFERED
        torch.cuda.set_device(device)
        torch.empty(1, device=device)
        torch.cuda.synchronize(device)

    def load(self, files, tools):
        tensors = {}
        with self.safe_open(files, framework="pt", device=self.device, **self.options) as file:
            for name, tensor in file.tensors():
                tools.first()
                tensors[name] = tensor
            self.path = getattr(getattr(file, "backend", None), "name", "")
        self.torch.cuda.synchronize(self.device)
        return tensors

    def drop(self):
        pass
