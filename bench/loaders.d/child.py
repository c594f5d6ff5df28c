#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
One loader in a process of its own: child.py FILE NAME DEVICE MODEL...

FILE is one of peers/, and defines class Loader.  Lines of JSON go to standard output, as
bench/load prints them.  A line on standard input, "load" or "load verify", asks for a load.

The clock runs from the call of Loader.load() until it returns, which it does when all tensors
are in the device's memory.  Importing and the device's context come before.
"""
import concurrent.futures
import ctypes
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import zlib

PR_SET_PDEATHSIG = 1
READERS = 16  # threads that read tensors back


def module_of(path):
    spec = importlib.util.spec_from_file_location("loader_" + str(abs(hash(path))), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def processor_seconds():
    """Return CPU seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def resident(key):
    """Return resident bytes, including mapped files: "VmRSS" now, "VmHWM" since restart()."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


def restart():
    """Reset the maximum; return False if the kernel cannot tell it."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def sum_of(tensor):
    """Return [bytes, CRC-32] of plain bytes, of a tensor of torch, CuPy or NumPy on any device, or
    of Penstock's memory.
    """
    if hasattr(tensor, "copy_out"):
        tensor = tensor.copy_out()
    if isinstance(tensor, (bytes, bytearray)):
        return [len(tensor), zlib.crc32(tensor)]
    if hasattr(tensor, "data_ptr"):
        tensor = tensor.detach().cpu().contiguous()
        length = tensor.numel() * tensor.element_size()
        data = (ctypes.c_char * length).from_address(tensor.data_ptr()) if length else b""
    else:
        if hasattr(tensor, "__cuda_array_interface__"):
            tensor = tensor.get()
        data = tensor.reshape(-1).view("u1")
        length = data.nbytes
    return [length, zlib.crc32(data)]


def sums_of(tensors):
    with concurrent.futures.ThreadPoolExecutor(min(READERS, os.cpu_count() or 1)) as pool:
        return dict(zip(tensors, pool.map(sum_of, tensors.values())))


class Tools:
    """Helpers for loaders."""

    def __init__(self):
        self.begun = self.first_at = None
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model.py")
        self.contents = module_of(path).contents  # [(name, offset, bytes)] of a file

    def first(self):
        """Called by loaders that return tensors one by one, at the first tensor."""
        if self.first_at is None:
            self.first_at = time.monotonic() - self.begun


def load_once(loader, files, tools, verify):
    tools.first_at = None
    restarted, before = restart(), resident("VmRSS")
    cpu = processor_seconds()
    tools.begun = time.monotonic()
    tensors = loader.load(list(files), tools)
    answer = {"event": "load", "seconds": time.monotonic() - tools.begun,
              "cpu_s": processor_seconds() - cpu, "first_s": tools.first_at,
              "path": getattr(loader, "path", "")}
    if restarted:
        answer["host_bytes"] = max(resident("VmHWM") - before, 0)
    if verify:
        answer["tensors"] = sums_of(tensors)
    # Free the memory for the next load, as far as the framework does not cache it.
    del tensors
    loader.drop()
    return answer


def serve(out, file, name, device, files):
    loader = module_of(file).Loader(name, device)
    out({"event": "ready"})
    tools = Tools()
    for line in sys.stdin:
        out(load_once(loader, files, tools, "verify" in line))


def first_line(error):
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def main():
    # Die with the parent, which waits for this process.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Do not search this file's folder for modules that a peer imports.
    if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        sys.path.pop(0)
    # Standard output carries the answers; what a peer prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def out(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        serve(out, *sys.argv[1:4], sys.argv[4:])
    except Exception as error:
        out({"event": "error", "text": first_line(error)})
        raise


if __name__ == "__main__":
    main()
