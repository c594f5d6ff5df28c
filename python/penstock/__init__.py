# SPDX-License-Identifier: MIT
"""Move bytes between files and host or accelerator memory by the shortest path.

    with penstock.File("model.bin") as file:
        result = file.read(tensor)          # any object with DLPack, a buffer, ...
        print(result.nbytes, result.path, result.why)

File reads and writes, Queue overlaps requests, Memory represents memory of either kind, and
doctor() reports what this machine can do.  penstock.safetensors loads and saves models.  Offsets
and lengths are in bytes, times in seconds.  Only Python's standard library is imported.
"""
from ._doctor import devices, doctor
from ._file import File, ShortRead
from ._lib import VERSION as __version__
from ._lib import Error, Result, library_path, version
from ._memory import Memory
from ._peer import Listener, Peer, Share
from ._queue import Completion, Queue
from ._sums import crc32c
from . import names, safetensors

__all__ = ["Completion", "Error", "File", "Listener", "Memory", "Peer", "Queue", "Result", "Share",
           "ShortRead", "__version__", "crc32c", "devices", "doctor", "library_path", "names",
           "safetensors", "version"]
