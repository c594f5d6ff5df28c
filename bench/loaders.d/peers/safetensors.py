# SPDX-License-Identifier: MIT
"""safetensors by its own functions: load_file() for each file, and from 0.9 on prefetch().

On the host, arrays of NumPy are loaded: tensors of torch would be views of the mapped file, whose
bytes nobody has read yet.
"""
NAMES = ("safetensors", "safetensors-prefetch")
INSTALL = "pip install safetensors torch; on the host: safetensors numpy ml_dtypes"


def modules(device):
    if device == "host":
        return {"safetensors": ("safetensors",), "numpy": ("numpy",),
                "ml_dtypes": ("ml_dtypes",)}
    return {"safetensors": ("safetensors",), "torch": ("torch",)}


def why_not(name, device):
    if device == "host":
        return "prefetch() is for CUDA" if name == "safetensors-prefetch" else ""
    return "" if device.startswith("cuda") else "it knows no such device"


class Loader:
    def __init__(self, name, device):
        self.device = device
        self.open = []
        if device == "host":
            import ml_dtypes
            import safetensors.numpy
            self.types = ml_dtypes  # types that NumPy lacks, such as bfloat16
            self.load_file = safetensors.numpy.load_file
            return
        import safetensors
        import safetensors.torch
        import torch
        self.torch = torch
        torch.cuda.set_device(device)
        torch.empty(1, device=device)
        torch.cuda.synchronize(device)
        self.safe_open = safetensors.safe_open
        self.load_file = lambda path: safetensors.torch.load_file(path, device=device)
        self.prefetch = name == "safetensors-prefetch"
        if self.prefetch and not hasattr(self.safe_open, "prefetch"):
            raise RuntimeError("safetensors has no prefetch() before 0.9; take a later one")

    def load(self, files, tools):
        if self.device == "host":
            return {name: tensor for path in files
                    for name, tensor in self.load_file(path).items()}
        tensors = self.load_ahead(files, tools) if self.prefetch else {}
        if not self.prefetch:
            for path in files:
                tensors.update(self.load_file(path))
        self.torch.cuda.synchronize(self.device)
        return tensors

    def load_ahead(self, files, tools):
        """Start to read all files before the first tensor is taken."""
        tensors, loaders = {}, []
        for path in files:
            self.open.append(self.safe_open(path, framework="pt", device=self.device))
            loaders.append(self.open[-1].__enter__().prefetch(device=self.device))
        for loader in loaders:
            for name, tensor in loader:
                tools.first()
                tensors[name] = tensor
            loader.close()
        return tensors

    def drop(self):
        for file in self.open:
            file.__exit__(None, None, None)
        self.open = []
