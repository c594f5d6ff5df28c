# SPDX-License-Identifier: MIT
"""fastsafetensors: one buffer for each file, and tensors that are views of it.

"fastsafetensors" has the default, cuFile; "-nogds" has the package's threads with a bounce buffer.
"""
NAMES = ("fastsafetensors", "fastsafetensors-nogds")
INSTALL = "pip install fastsafetensors torch"


def modules(_device):
    return {"fastsafetensors": ("fastsafetensors",), "torch": ("torch",)}


def why_not(name, device):
    if device == "host":
        return "cuFile is for GPUs" if name == "fastsafetensors" else ""
    return "" if device.startswith("cuda") else "it knows no such device"


class Loader:
    def __init__(self, name, device):
        import fastsafetensors
        import torch
        self.make = fastsafetensors.SafeTensorsFileLoader
        self.nogds = name == "fastsafetensors-nogds"
        self.cuda = torch.cuda if device != "host" else None
        self.device = "cpu" if device == "host" else device
        self.kept = ()
        if self.cuda:
            self.cuda.set_device(device)
        torch.empty(1, device=self.device)
        if self.cuda:
            self.cuda.synchronize(device)

    def load(self, files, _tools):
        loader = self.make(None, self.device, nogds=self.nogds)
        loader.add_filenames({0: files})
        buffer = loader.copy_files_to_device()
        # In some versions, tensors are only valid as long as their buffer.
        self.kept = (buffer, loader)
        tensors = {name: buffer.get_tensor(name) for name in loader.get_keys()}
        if self.cuda:
            self.cuda.synchronize(self.device)
        return tensors

    def drop(self):
        for each in self.kept:
            each.close()
        self.kept = ()
