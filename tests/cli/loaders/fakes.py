# SPDX-License-Identifier: MIT
"""Fake loaders: one is right, the others fail in different ways."""
import os
import time

NAMES = ("right", "wrong", "lacks", "cuts", "raises", "dies", "hangs")
INSTALL = "pip install nothing"


def modules(_device):
    return {"json": ("json",)}


def why_not(_name, _device):
    return ""


class Loader:
    def __init__(self, name, _device):
        self.name = name
        print("peers print on standard output")

    def load(self, files, tools):
        if self.name == "raises":
            raise RuntimeError("the first line\nand the second")
        if self.name == "dies":
            os.abort()
        if self.name == "hangs":
            with open(os.path.join(os.path.dirname(files[0]), "hangs"), "w"):
                pass
            time.sleep(600)
        tensors = {}
        for path in files:
            with open(path, "rb") as file:
                for name, offset, length in tools.contents(path):
                    file.seek(offset)
                    tensors[name] = bytearray(file.read(length))
                    tools.first()
        self.spoil(tensors, sorted(tensors)[len(tensors) // 2])
        return tensors

    def spoil(self, tensors, name):
        if self.name == "wrong":
            tensors[name][-1] ^= 1
        elif self.name == "lacks":
            del tensors[name]
        elif self.name == "cuts":
            del tensors[name][-1]

    def drop(self):
        pass
