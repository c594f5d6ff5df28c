# SPDX-License-Identifier: MIT
"""Transfers larger than one request may be, or longer than one usually takes."""
import importlib
import io
import os
import pickle
import resource
import subprocess
import sys

from tap import Skip, case, eq, gives, numpy, run, torch, true, work

from penstock import _abi

SLOW = """
import numpy as np
from penstock import Queue
from penstock.safetensors import _into, load_file, save_file
_into._OVERLAPS = 1
_into.Queue = lambda depth: Queue(depth, backend="threads", timeout=0.05)
want = {f"t{n}": np.full(1 << 20, n, np.uint8) for n in range(16)}
save_file(want, "slow", sync=False)
got = load_file("slow")
assert all(np.array_equal(got[name], want[name]) for name in want)
"""


class Calls:
    """Stands in for a queue and a file, and records requests."""

    def __init__(self):
        self.calls = []

    def readv(self, *args, **options):
        self.calls.append((args[-3:], options.get("strides")))

    read = readv

    def submit(self):
        pass

    def reap(self, *_):
        return []


def reader():
    """Return torch and our module of checkpoints."""
    module = torch()
    try:
        return module, importlib.import_module("penstock.torch._reader")
    except ImportError:
        raise Skip("torch.distributed.checkpoint as of torch 2.3") from None


@case
def reads_have_time_for_their_bytes():
    numpy()
    done = subprocess.run([sys.executable, "-c", SLOW], cwd=work, check=False, text=True,
                          env={**os.environ, "PST_FAULT": "file.read:0:20ms"}, stderr=-1)
    eq((done.returncode, done.stderr), (0, ""))


@case
def a_small_pickle_takes_little_memory():
    _, _reader = reader()
    path = f"{work}/.metadata"
    number = (256 << 20).to_bytes(8, "little")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for content in (b"\x80\x02cbuiltins\nbytearray\n\x8a\x04\0\0\0\x10\x85R.",
                    b"\x80\x05\x96" + number + b"."):
        with open(path, "wb") as file:
            file.write(content)
        gives(_reader.CheckpointError, _reader.StorageReader(work).read_metadata)
    archive = importlib.import_module("penstock.torch._archive")
    gives(_reader.CheckpointError, archive._described, b"\x80\x05\x96" + number + b".")
    true(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10)
    for protocol in range(3, 6):
        found = _reader._metadata._Unpickler(io.BytesIO(pickle.dumps(
            [bytearray(b"abc"), bytearray()], protocol))).load()
        eq(found, [bytearray(b"abc"), bytearray()])


@case
def a_file_of_a_checkpoint_may_have_very_many_tensors():
    _, _reader = reader()
    count, before = _abi.PST_VECS_MAX // 2 + 1, _reader._WINDOW
    _reader._WINDOW = 1
    try:
        file = Calls()
        _reader._Windows(file, [_reader.Place("x", 2 * n, 2) for n in range(count)])
    finally:
        _reader._WINDOW = before
    eq([len(offsets) for (offsets, _, _), _ in file.calls], [_abi.PST_VECS_MAX, 2])
    eq([offset for (offsets, _, _), _ in file.calls for offset in offsets], list(range(2 * count)))
    eq([place for (_, places, _), _ in file.calls for place in places], list(range(2 * count)))


def requests(shape, lengths):
    """Return (bytes, pieces) of each request for the first part of a tensor."""
    t, _reader = reader()
    batch = _reader._Batch(None, None, False)
    batch.queue.close()
    batch.queue = Calls()
    # Memory that is never written takes no pages.
    batch._read(_reader.Stored(t.uint8, shape, 0), (0,) * len(shape), lengths,
                t.empty(lengths, dtype=t.uint8))
    found = []
    at = 0
    for (offsets, places, nbytes), strides in batch.queue.calls:
        pieces = strides[2] if strides else 1
        true(len(offsets) == len(places) <= _abi.PST_SEGS_MAX)
        true(len(offsets) * pieces <= _abi.PST_PIECES_MAX, (len(offsets), pieces))
        eq((places[0], places[-1]), (at, at + (len(places) - 1) * nbytes * pieces))
        at += len(offsets) * nbytes * pieces
        found.append((offsets[0], len(offsets), pieces))
    size = 1
    for length in lengths:
        size *= length
    eq(at, size)
    return found


@case
def parts_of_very_many_pieces():
    many = 1 << 24
    eq(requests((many, 4096), (many, 8)), [(0, 1, many)])
    eq(requests((many + 5, 4096), (many + 5, 8)), [(0, 1, many), (many * 4096, 1, 5)])
    eq(requests((2, many + 1, 4096), (2, many, 8)), [(0, 1, many), ((many + 1) * 4096, 1, many)])
    most = many // 17
    eq(requests((most + 3, 18, 2), (most + 3, 17, 1)), [(0, most, 17), (most * 36, 3, 17)])


run()
