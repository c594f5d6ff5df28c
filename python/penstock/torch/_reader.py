# SPDX-License-Identifier: MIT
"""Read checkpoints of torch.distributed.checkpoint, and folders of safetensors files as
checkpoints."""
import io
import json
import logging
import os
import re
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties,
    TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType
from torch.futures import Future

from .._abi import PST_PIECES_MAX, PST_SEGS_MAX
from .._file import File, ShortRead
from .._lib import patience
from .._queue import Queue
from .._types import Path
from ..safetensors import SafetensorError
from ..safetensors._folder import models_of, shards_of
from ..safetensors._frames import Torch
from ..safetensors._load import _open as open_model
from . import _metadata
from ._archive import CheckpointError, Foreign, Stored, parse
from ._metadata import Place, place_of
from ._models import folder_of

_WINDOW = 1024         # bytes at an archive's begin and end, read together for many archives
_BATCH = 1 << 30       # most bytes in flight
_BATCH_COPIES = 256 << 20
_DEPTH = 256
_RANGES_MAX, _PIECES_MAX = PST_SEGS_MAX, PST_PIECES_MAX
# If at least _RUN_MIN consecutive pieces of less than _PIECE_MIN bytes are close together, they are
# read with the gaps between them, _STEP_MAX bytes at a time.
_RUN_MIN, _PIECE_MIN, _STEP_MAX, _GAPS = 256, 512, 2048, 16 << 20
_SHARDING = "DCP_SHARDING_INFO"     # key of torch's writer of safetensors files


class _Windows:
    """The begin and the end of items of a file, read by few calls."""

    def __init__(self, file, places):
        self.file, offsets, sizes = file, [], []
        for place in places:
            size = min(place.nbytes, _WINDOW)
            offsets += [place.begin, place.begin + place.nbytes - size]
            sizes += [size, size]
        self.at, where = {}, []
        for offset, size in zip(offsets, sizes):
            where.append(self.at.setdefault((offset, size), len(self.at) * _WINDOW))
        self.data = bytearray(max(len(self.at) * _WINDOW, 1))
        pairs = list(self.at)
        for first in range(0, len(pairs), _RANGES_MAX):
            part = pairs[first:first + _RANGES_MAX]
            file.readv(self.data, [offset for offset, _ in part],
                       [self.at[pair] for pair in part], [size for _, size in part])

    def of(self, place):
        """Return the function at(offset, nbytes) for an item."""
        size = min(place.nbytes, _WINDOW)
        head = self.at[place.begin, size]
        tail = self.at[place.begin + place.nbytes - size, size]

        def at(offset, nbytes):
            if offset + nbytes <= size:
                return bytes(self.data[head + offset:head + offset + nbytes])
            back = offset - (place.nbytes - size)
            if back >= 0:
                return bytes(self.data[tail + back:tail + back + nbytes])
            data = bytearray(nbytes)
            if data:
                self.file.read(data, place.begin + offset)
            return bytes(data)
        return at


def _merged(shape, offsets, lengths):
    """Merge dimensions: one that is read completely is merged into the one before it."""
    merged = []
    for length, offset, count in zip(shape, offsets, lengths):
        if merged and count == length:
            merged[-1] = tuple(value * length for value in merged[-1])
        else:
            merged.append((length, offset, count))
    return tuple(zip(*merged)) or ((), (), ())


def ranges(stored, offsets, lengths):
    """Return the place of a tensor's part: (file offsets, memory offsets, bytes, strides or None).

    A range has count pieces with strides (in the file, in memory, count).
    """
    shape, itemsize = stored.shape, stored.dtype.itemsize
    shape, offsets, lengths = _merged(shape, offsets, lengths)
    partial = [dim for dim, (part, all_) in enumerate(zip(lengths, shape)) if part != all_]
    steps, step = [], itemsize      # bytes from one element of a dimension to the next
    for length in reversed(shape):
        steps.insert(0, step)
        step *= length
    begin = stored.begin + sum(a * b for a, b in zip(offsets, steps))
    if not partial:
        return [begin], [0], step, None
    last = partial[-1]
    nbytes = lengths[last] * steps[last]
    runs = list(lengths[:last])
    strides = None
    if runs:
        count = runs.pop()
        strides = (steps[last - 1], nbytes, count)
    found = [begin]
    for dim, count in enumerate(runs):
        found = [offset + i * steps[dim] for offset in found for i in range(count)]
    size = nbytes * (strides[2] if strides else 1)
    return found, range(0, len(found) * size, size), nbytes, strides


class _Batch:
    """Reads into tensors that are in flight together."""

    def __init__(self, file, planner, strict):
        self.file, self.planner, self.strict = file, planner, strict
        self.parts, self.nbytes, self.copies, self.requests = [], 0, 0, 0
        self.asked = 0      # bytes of the requests
        self.queue = Queue(_DEPTH)

    def add(self, item, stored, target):
        lengths = tuple(item.lengths)
        # A subclass of tensor in the program may keep its bytes elsewhere.
        plain = type(target) in (torch.Tensor, torch.nn.Parameter)
        direct = (plain and target.dtype == stored.dtype and target.is_contiguous() and
                  target.layout == torch.strided and target.device.type in ("cpu", "cuda") and
                  not target.is_conj() and not target.is_neg())
        nbytes = target.numel() * stored.dtype.itemsize
        memory = target
        if plain and not direct and nbytes > _BATCH_COPIES and lengths[0] > 1:
            self._by_rows(stored, tuple(item.storage_offsets), lengths, target)
            self.planner.commit_tensor(item, target)
            return
        if not direct:
            memory = self._copy(stored, lengths, target)
        if nbytes:
            self._read(stored, tuple(item.storage_offsets), lengths, memory)
        self.parts.append((item, target, memory))
        self.nbytes += nbytes
        self.copies += 0 if direct else nbytes
        if self.nbytes >= _BATCH or self.copies >= _BATCH_COPIES:
            self.flush()

    @staticmethod
    def _copy(stored, lengths, target):
        device = target.device if target.device.type in ("cpu", "cuda") else "cpu"
        return torch.empty(lengths, dtype=stored.dtype, device=device)

    def _by_rows(self, stored, offsets, lengths, target):
        """Read a tensor that is too large to be copied at once."""
        self.flush()
        nbytes = target[0].numel() * stored.dtype.itemsize
        most = max(_BATCH_COPIES // nbytes, 1)
        for first in range(0, lengths[0], most):
            part = target[first:first + most]
            memory = self._copy(stored, part.shape, target)
            self._read(stored, (offsets[0] + first,) + offsets[1:], tuple(part.shape), memory)
            if self.requests:
                self._wait()
            part.copy_(memory)

    def _read(self, stored, offsets, lengths, memory):
        memory = memory.reshape(-1).view(torch.uint8)
        found, places, nbytes, strides = ranges(stored, offsets, lengths)
        if strides and nbytes < _PIECE_MIN and strides[0] <= _STEP_MAX and \
                strides[2] >= _RUN_MIN:
            for offset, place in zip(found, places):
                run = memory[place:place + nbytes * strides[2]].view(strides[2], nbytes)
                self._read_with_gaps(offset, strides[0], run)
            return
        count = strides[2] if strides else 1
        if count > _PIECES_MAX:
            for offset, place in zip(found, places):
                for first in range(0, count, _PIECES_MAX):
                    self._ask(memory, [offset + first * strides[0]], [place + first * nbytes],
                              nbytes, strides[:2] + (min(_PIECES_MAX, count - first),))
            return
        most = min(_RANGES_MAX, _PIECES_MAX // max(count, 1))
        for first in range(0, len(found), most):
            part = slice(first, first + most)
            self._ask(memory, found[part], places[part], nbytes, strides)

    def _ask(self, memory, found, places, nbytes, strides):
        """Submit one request."""
        if self.requests == _DEPTH:
            self._wait()
        self.asked += len(found) * nbytes * (strides[2] if strides else 1)
        self.queue.readv(self.file, memory, found, places, nbytes, strides=strides,
                         strict=self.strict, timeout=patience(self.asked))
        self.requests += 1

    def _read_with_gaps(self, offset, step, rows):
        """Read small pieces with the gaps between them, which is faster than one by one."""
        count, nbytes = rows.shape
        most = max(min(_GAPS // step, count), 1)
        block = torch.empty(most * step, dtype=torch.uint8, device=rows.device)
        for first in range(0, count, most):
            part = rows[first:first + most]
            size = (len(part) - 1) * step + nbytes      # no gap at the end of the file
            self.file.read(block, offset + first * step, size, strict=self.strict)
            part.copy_(block[:len(part) * step].view(-1, step)[:, :nbytes])

    def _wait(self):
        self.queue.submit()
        for completion in self.queue.reap(self.requests, _DEPTH):
            completion.check()
        self.requests = self.asked = 0

    def flush(self):
        if self.requests:
            self._wait()
        for item, target, memory in self.parts:
            if memory is not target:
                target.copy_(memory)
            self.planner.commit_tensor(item, target)
        self.parts, self.nbytes, self.copies = [], 0, 0


class StorageReader(FileSystemReader):
    """Reads a checkpoint from a folder, for dcp.load().

    path:    a folder written by StorageWriter, torch's FileSystemWriter or its
             HuggingFaceStorageWriter, or any folder of safetensors files
    trusted: objects and the table of contents may execute anything, as with torch's own reader;
             otherwise only plain values, tensors, and classes of torch.distributed.checkpoint are
             accepted
    strict:  fail with EOPNOTSUPP if a better path exists and is not taken

    The parts that a rank needs, also parts of parts, go from the files directly into the tensors.
    Only tensors with gaps or of another type need a copy.
    """

    def __init__(self, path: Path, *, trusted: bool = False, strict: bool = False) -> None:
        super().__init__(folder_of(path))
        self.trusted, self.strict = trusted, strict
        self._refused = ""      # why there is no table of contents for all ranks

    def reset(self, checkpoint_id: Any = None) -> None:
        super().reset(checkpoint_id and folder_of(checkpoint_id))
        self._refused = ""

    def _of_all(self):
        folder, path = os.fspath(self.path), os.path.join(os.fspath(self.path), ".metadata")
        if os.path.exists(path) or not os.path.isdir(folder):
            return _metadata.read(path, self.trusted)
        if any(re.fullmatch(r"__\d+\.metadata", name) for name in os.listdir(folder)):
            raise CheckpointError(f"{folder}: there is no .metadata, each rank has a checkpoint of "
                                  "its own here")
        names, wanted = _names_of_models(folder)
        if not names:
            raise CheckpointError(f"{folder}: there is no whole checkpoint: neither .metadata nor "
                                  "safetensors files")
        return _of_models(folder, names, wanted)

    def _of_rank(self, rank):
        path = os.path.join(os.fspath(self.path), f"__{rank}.metadata")
        refused = self._refused
        # If .metadata is damaged, torch falls back to the rank's file, which may be of another
        # save.
        if refused and (os.path.exists(os.path.join(os.fspath(self.path), ".metadata")) or
                        not os.path.exists(path)):
            raise CheckpointError(refused)
        return _metadata.read(path, self.trusted)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        rank = kwargs.get("rank")
        try:
            metadata = self._of_all() if rank is None else self._of_rank(rank)
        except (CheckpointError, OSError) as e:
            if rank is None:
                self._refused = str(e)
            else:
                # Log the error: some versions of torch only report "metadata is None".
                logging.getLogger("penstock").warning("%s", e)
            raise
        self._refused = ""
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def read_data(self, plan: Any, planner: Any) -> Any:
        by_file = {}
        for item in plan.items:
            if item.storage_index not in self.storage_data:
                raise CheckpointError(f"{self.path}: '{item.storage_index.fqn}' at "
                                      f"{item.storage_index.offset} is nowhere")
            place = place_of(item.storage_index, self.storage_data[item.storage_index])
            by_file.setdefault(place.name, []).append((item, place))
        for name, items in by_file.items():
            path = os.path.join(os.fspath(self.path), name)
            try:
                with File(path) as file:
                    if any(place.seen and place.seen != _seen(path) for _, place in items):
                        raise CheckpointError("it was replaced after its header was read")
                    self._read_file(file, items, planner)
            except (CheckpointError, ShortRead) as e:
                raise CheckpointError(f"{path}: {e}") from e
        future: Any = Future()
        future.set_result(None)
        return future

    def _read_file(self, file, items, planner):
        size = file.size
        for item, place in items:
            if place.begin + place.nbytes > size:
                raise CheckpointError(f"'{item.storage_index.fqn}' ends {place.begin} bytes and "
                                      f"{place.nbytes} more from the begin, and the file has "
                                      f"{size}: it was cut")
        tensors = [pair for pair in items if pair[0].type != LoadItemType.BYTE_IO]
        windows = _Windows(file, [place for _, place in tensors if place.stored is None])
        batch = _Batch(file, planner, self.strict)
        with batch.queue:
            for item, place in tensors:
                self._read_tensor(file, item, place, windows, batch)
            batch.flush()
        for item, place in items:
            if item.type == LoadItemType.BYTE_IO:
                data = _bytes(file, place)
                if not self.trusted:
                    _harmless(item.storage_index.fqn, data)
                planner.load_bytes(item, io.BytesIO(data))

    @staticmethod
    def _read_tensor(file, item, place, windows, batch):
        name = item.storage_index.fqn
        foreign = None
        try:
            stored = place.stored or parse(windows.of(place), place.begin, place.nbytes)
            shape = stored.shape
        except CheckpointError as e:
            raise CheckpointError(f"'{name}' is damaged: {e}") from None
        except Foreign:
            foreign = _foreign(file, name, place)
            shape = tuple(foreign.shape)
        offsets, lengths = tuple(item.storage_offsets), tuple(item.lengths)
        if not (len(offsets) == len(lengths) == len(shape)) or any(
                a < 0 or b < 0 or a + b > c for a, b, c in zip(offsets, lengths, shape)):
            raise CheckpointError(f"'{name}' has the shape {list(shape)} here, and {list(lengths)} "
                                  f"from {list(offsets)} on is asked for")
        target = batch.planner.resolve_tensor(item).detach()
        if target.device.type == "meta":
            raise CheckpointError(f"the tensor for '{name}' is on the device 'meta' and takes no "
                                  "bytes")
        if tuple(target.shape) != lengths:
            raise CheckpointError(f"'{name}' is asked for in the shape {list(lengths)}, and there "
                                  f"is a tensor of {list(target.shape)} for it")
        if foreign is None:
            batch.add(item, stored, target)
            return
        target.copy_(foreign[tuple(slice(a, a + b) for a, b in zip(offsets, lengths))])
        batch.planner.commit_tensor(item, target)


def _bytes(file, place):
    data = bytearray(place.nbytes)
    if data:
        file.read(data, place.begin)
    return data


def _harmless(name, data):
    """Refuse objects unless trusted: torch's planner unpickles them, and a pickle may execute
    anything."""
    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as e:
        raise CheckpointError(f"'{name}' is damaged, or more than tensors and plain values; if you "
                              "trust who wrote it, say trusted=True: "
                              f"{type(e).__name__}: {str(e).partition(chr(10))[0]}") from None


def _foreign(file, name, place):
    """Read a tensor that only torch can describe."""
    try:
        found = torch.load(io.BytesIO(_bytes(file, place)), map_location="cpu", weights_only=True)
    except Exception as e:
        raise CheckpointError(f"'{name}' is damaged, or no tensor: {type(e).__name__}: {e}"
                              ) from None
    if not isinstance(found, torch.Tensor):
        raise CheckpointError(f"'{name}' is no tensor but of '{type(found).__name__}'")
    return found


# ----------------------------------------------------------------- safetensors files

def _offsets(path, metadata, entries):
    """Return {name: offsets} of parts of tensors, as torch's writer records them."""
    if not (metadata or {}).get(_SHARDING):
        return {name: (0,) * len(entry.shape) for name, entry in entries.items()}
    found = {}
    try:
        noted = json.loads(metadata[_SHARDING])
        for name, entry in entries.items():
            found[name] = tuple(noted[name]["saved_offsets"])
            if len(found[name]) != len(entry.shape) or not all(
                    type(value) is int and 0 <= value < 2**62 for value in found[name]):
                raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{path}: its {_SHARDING} does not fit its tensors") from None
    return found


def _seen(path):
    """Return a value that differs for another file or another state of this file."""
    facts = os.stat(path)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _names_of_models(folder):
    """Return (names of files, {name of a tensor: its file} or None); the latter if there is an
    index."""
    try:
        index, names = models_of(folder, False)
        if index is None:
            return names, None
        wanted = shards_of(os.path.join(folder, index))
    except SafetensorError as e:
        raise CheckpointError(str(e)) from None
    return sorted(set(wanted.values())), wanted


def _check_tiles(name, fact):
    """Check that parts cover a tensor: other elements would silently keep their values."""
    parts = sorted((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in fact.chunks)
    covered = sum(torch.Size(sizes).numel() for _, sizes in parts)
    if covered != fact.size.numel():
        raise CheckpointError(f"the parts of '{name}' that are here have {covered} elements, and "
                              f"the tensor of shape {list(fact.size)} has {fact.size.numel()}")
    if not covered:
        return
    for number, (begin, sizes) in enumerate(parts):
        for other, others in parts[number + 1:]:
            if begin and other[0] >= begin[0] + sizes[0]:
                break
            if all(a < b + d and b < a + c for a, b, c, d in zip(begin, other, sizes, others)):
                raise CheckpointError(f"the parts of '{name}' at {list(begin)} and {list(other)} "
                                      "overlap")


def _of_models(folder, names, wanted):
    """Return the Metadata of a folder of safetensors files."""
    frame = Torch("cpu", False)
    facts, places = {}, {}
    for file_name in names:
        path = os.path.join(folder, file_name)
        try:
            seen = _seen(path)
            file, header = open_model(path)
            file.close()
            if seen != _seen(path):
                raise CheckpointError(f"{path}: it was replaced while its header was read")
            types = {name: frame.dtype(entry) for name, entry in header.tensors.items()}
        except SafetensorError as e:
            raise CheckpointError(str(e)) from None
        if wanted is not None and header.tensors.keys() != {
                name for name, its_file in wanted.items() if its_file == file_name}:
            raise CheckpointError(f"{path}: it does not have the tensors that the index says")
        offsets = _offsets(path, header.metadata, header.tensors)
        for name, entry in header.tensors.items():
            shape, at = torch.Size(frame.shape(entry)), torch.Size(offsets[name])
            end = torch.Size([a + b for a, b in zip(at, shape)])
            index = MetadataIndex(name, at)
            if index in places:
                raise CheckpointError(f"'{name}' at {list(at)} is in {places[index].name} and in "
                                      f"{file_name}")
            fact = facts.setdefault(name, TensorStorageMetadata(
                TensorProperties(dtype=types[name]), end, []))
            if len(fact.size) != len(end) or fact.properties.dtype != types[name]:
                raise CheckpointError(f"{path}: '{name}' has another type or another number of "
                                      "dimensions than in the file before")
            fact.size = torch.Size(map(max, fact.size, end))
            fact.chunks.append(ChunkStorageMetadata(at, shape))
            begin = header.data + entry.begin
            places[index] = Place(file_name, begin, entry.nbytes, Stored(types[name], shape, begin),
                                  seen)
    for name, fact in facts.items():
        _check_tiles(name, fact)
    return Metadata(facts, storage_data=places)
