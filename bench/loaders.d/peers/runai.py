# SPDX-License-Identifier: MIT
"""Run:ai model streamer: returns tensors as they arrive.

Before 0.17, tensors on the host are views of its buffer, which it reuses if the model does not fit.
So the buffer gets no limit there, and the views stay valid.
"""
import inspect
import os

NAMES = ("runai-streamer",)
INSTALL = "pip install runai-model-streamer torch"


def modules(_device):
    return {"runai_model_streamer": ("runai-model-streamer",), "torch": ("torch",)}


def why_not(_name, device):
    return "" if device == "host" or device.startswith("cuda") else "it knows no such device"


class Loader:
    def __init__(self, _name, device):
        import runai_model_streamer
        import torch
        self.make = runai_model_streamer.SafetensorsStreamer
        owns = "owned" in inspect.signature(self.make.stream_files).parameters
        if device == "host" and not owns:
            os.environ.setdefault("RUNAI_STREAMER_MEMORY_LIMIT", "-1")
        self.device = "cpu" if device == "host" else device
        self.cuda = torch.cuda if device != "host" else None
        if self.cuda:
            self.cuda.set_device(device)
        torch.empty(1, device=self.device)
        if self.cuda:
            self.cuda.synchronize(device)

    def load(self, files, tools):
        tensors = {}
        with self.make() as streamer:
            streamer.stream_files(files, device=self.device)
            for name, tensor in streamer.get_tensors():
                tools.first()
                tensors[name] = tensor
        if self.cuda:
            self.cuda.synchronize(self.device)
        return tensors

    def drop(self):
        pass
