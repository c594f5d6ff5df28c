# SPDX-License-Identifier: MIT
"""kvikio: has no safetensors parser, so each tensor is one pread() into an array of CuPy.

The default is one thread; here there is one per CPU, at most 16.
"""
import os

NAMES = ("kvikio",)
INSTALL = "pip install kvikio-cu13 (or kvikio-cu12)"
THREADS = 16


def modules(device):
    found = {"kvikio": ("kvikio-cu13", "kvikio-cu12", "kvikio")}
    if device == "host":
        found["numpy"] = ("numpy",)
    else:
        found["cupy"] = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
    return found


def why_not(_name, device):
    return "" if device == "host" or device.startswith("cuda") else "it knows no such device"


class Loader:
    def __init__(self, _name, device):
        import kvikio
        import kvikio.defaults
        self.open = kvikio.CuFile
        self.threads = min(THREADS, len(os.sched_getaffinity(0)))
        self.path = f"{self.threads} threads"
        kvikio.defaults.set("num_threads", self.threads)
        if device == "host":
            import numpy
            self.empty, self.cuda = numpy.empty, None
            return
        import cupy
        self.empty, self.cuda = cupy.empty, cupy.cuda.Device(int(device.split(":")[1]))
        self.cuda.use()
        cupy.empty(1, "u1")
        self.cuda.synchronize()

    def load(self, files, tools):
        tensors, open_files, reads = {}, [], []
        for path in files:
            file = self.open(path, "r")
            open_files.append(file)
            for name, offset, length in tools.contents(path):
                tensors[name] = self.empty(length, "u1")
                if length:
                    reads.append((file.pread(tensors[name], length, offset), length, name))
        for future, length, name in reads:
            got = future.get()
            if got != length:
                raise OSError(f"{got} of {length} bytes of {name} came")
        for file in open_files:
            file.close()
        if self.cuda:
            self.cuda.synchronize()
        return tensors

    def drop(self):
        pass
