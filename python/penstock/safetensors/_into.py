# SPDX-License-Identifier: MIT
"""Read files into blocks of memory."""
import contextlib

from .._file import ShortRead
from .._lib import patience
from .._memory import Idle
from .._queue import Queue
from ._frames import SMALL
from ._header import SafetensorError

_BATCH = 1 << 30            # most bytes in flight
_BATCH_TENSORS = 65536
_PACK = 4 << 20             # bytes of small tensors read by one call
_PROGRESS = 128 << 20       # bytes between two reports of progress
_LARGE = 1 << 20            # blocks from this size on are separate requests
_GO = 16 << 20              # bytes of these that are submitted together
_OVERLAPS = 256 << 20       # bytes for which a queue is worth its setup
_DEPTH = 1024


def shorter(name, error):
    raise SafetensorError(f"{name}: the file became shorter while it was read") from error


class Reads(contextlib.ExitStack):
    """Reads of several files; a context manager, whose end also ends requests in flight.

    frame:  framework of the memory
    total:  estimated bytes: if there are many, large blocks are read while the next are allocated
    strict: as load_file()
    done:   called with numbers of bytes read, about every 128 MiB; or None
    """

    def __init__(self, frame, total, strict, done=None):
        super().__init__()
        self.frame, self.strict, self.done = frame, strict, done
        self.queue = self.enter_context(Queue(_DEPTH)) if total >= _OVERLAPS else None
        self.file, self.blocks, self.offsets, self.nbytes = None, [], [], 0
        self.prepared = self.under_way = self.told = 0

    def add(self, file, data, entries, result):
        """Add tensors to result, a dict; their bytes are complete after finish().

        file: the file with the tensors, from offset data on
        """
        frame = self.frame
        result.update((entry.name, None) for entry in entries)      # in this order
        small, nbytes = [], 0
        for entry in entries:
            if frame.copies and entry.nbytes < SMALL:
                small.append(entry)
                nbytes += entry.nbytes
                if nbytes >= _PACK or len(small) >= _BATCH_TENSORS:
                    self._pack(file, data, small, nbytes, result)
                    small, nbytes = [], 0
                continue
            offset = data + entry.begin
            result[entry.name], block = frame.empty(frame.shape(entry), frame.dtype(entry), offset)
            if block is not None:
                self._add(file, block, offset, entry.nbytes)
        if small:
            self._pack(file, data, small, nbytes, result)

    def _pack(self, file, data, entries, nbytes, result):
        """Read small tensors by one call, then copy each: faster than one call for each."""
        block = self.frame.block(nbytes)
        offsets, places, sizes = [], [], []
        place, end = 0, None
        for entry in entries:
            if entry.begin != end:
                offsets.append(data + entry.begin)
                places.append(place)
                sizes.append(0)
            sizes[-1] += entry.nbytes
            place += entry.nbytes
            end = entry.begin + entry.nbytes
        if nbytes:
            if 0 in sizes:
                rows = (row for row in zip(offsets, places, sizes) if row[2])
                offsets, places, sizes = zip(*rows)
            try:
                file.readv(block, offsets, places, sizes, strict=self.strict)
            except ShortRead as e:
                shorter(file.name, e)
        views = self.frame.views(block, 0, entries)
        result.update(zip((entry.name for entry in entries), map(self.frame.copy, views)))
        self._tell(nbytes, _PROGRESS)

    def _add(self, file, block, offset, nbytes):
        """Read a block, at any time before finish() returns."""
        if self.queue is not None and nbytes >= _LARGE:
            self._start(file, block, offset, nbytes)
            return
        if file is not self.file:
            self._flush()
        self.file = file
        self.blocks.append(block)
        self.offsets.append(offset)
        self.nbytes += nbytes
        if self.nbytes >= (_PROGRESS if self.done else _BATCH) or \
                len(self.blocks) >= _BATCH_TENSORS:
            self._flush()

    def finish(self):
        """Wait until all blocks have their bytes."""
        self._flush()
        self._go()
        self._take(0)
        if self.told:
            self._tell(0, 1)

    def _tell(self, nbytes, least):
        self.told += nbytes
        if self.done and self.told >= least:
            told, self.told = self.told, 0
            self.done(told)

    def _flush(self):
        """Read the small blocks by one call."""
        if not self.blocks:
            return
        self.frame.wait()
        try:
            self.file.read_into([Idle(block) for block in self.blocks], self.offsets,
                                strict=self.strict)
        except ShortRead as e:
            shorter(self.file.name, e)
        nbytes = self.nbytes
        self.blocks, self.offsets, self.nbytes = [], [], 0
        self._tell(nbytes, 1)

    def _start(self, file, block, offset, nbytes):
        # Transfers in flight come first, so allow time for them.
        timeout = patience(self.under_way + self.prepared + nbytes)
        while True:
            try:
                # _go() waits for earlier work that uses the block's memory.
                self.queue.read(file, Idle(block), offset, strict=self.strict, timeout=timeout,
                                tag=(file.name, nbytes))
                break
            except BlockingIOError:
                self._go()
                if not self.under_way:
                    raise  # no completion could make room
                self._take(self.under_way - 1)
        self.prepared += nbytes
        if self.prepared >= _GO:
            self._go()
            self._take(_BATCH)

    def _go(self):
        if self.prepared:
            self.frame.wait()
            self.queue.submit()
            self.under_way += self.prepared
            self.prepared = 0

    def _take(self, most):
        """Wait until at most most bytes are in flight."""
        while self.under_way > most:
            for completion in self.queue.reap(1):
                name, nbytes = completion.tag
                if isinstance(completion.error, ShortRead):
                    shorter(name, completion.error)
                completion.check()
                self.under_way -= nbytes
                self._tell(nbytes, _PROGRESS if self.under_way else 1)
