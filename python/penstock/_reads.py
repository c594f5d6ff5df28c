# SPDX-License-Identifier: MIT
"""Reads of many files on one queue, piece by piece; any thread may wait for them."""
import bisect
import threading
from collections import deque
from functools import partial
from itertools import starmap
from typing import Any, Deque, Iterable, List, Optional, Sequence, Tuple

from . import _abi
from ._file import File
from ._handle import ONCE
from ._lib import Error, again, deadline, lib, patience
from ._memory import Memory
from ._queue import Completion, Queue

_LOOK = 1.0            # longest wait without handling signals, s


Range = Tuple[int, int]     # begin, end


class Restless(RuntimeError):
    """Hardware or kernel may still touch the memory of a job that ended."""


def split(runs: Iterable[Range], piece: int) -> List[Range]:
    """Return (begin, end) of pieces of at most piece bytes, for sorted disjoint runs."""
    pieces = []
    for begin, end in runs:
        for at in range(begin, end, piece):
            pieces.append((at, min(at + piece, end)))
    return pieces


class Job:
    """The reads of one file.

    pieces: (begin, end) in the file, sorted
    left:   number of pieces that have not completed
    error:  the first error, or None
    """

    def __init__(self, file: File, memory: Memory, pieces: Sequence[Range]) -> None:
        self.file, self.pieces = file, pieces
        self.memory: Optional[Memory] = memory
        self.ends = [end for _, end in pieces]
        self.done = bytearray(len(pieces))
        self.left = 0
        self.quiet = True       # True if nothing may touch the memory any more
        self.error: Optional[Exception] = None
        self.ending = threading.Lock()

    def covering(self, begin: int, end: int) -> Optional[List[int]]:
        """Return the pieces that cover begin to end; None if some bytes are not read."""
        places: List[int] = []
        at = begin
        for place in range(bisect.bisect_right(self.ends, begin), len(self.pieces)):
            if at >= end:
                break
            if self.pieces[place][0] > at:
                return None
            at = self.ends[place]
            places.append(place)
        return places if at >= end else None


class Reads:
    """One queue for reads of many files.  Any thread may call it.

    timeout: seconds per request; None: 300, and one more for each 10 MB in flight
    options: strict and policy, as File.readv()
    """

    def __init__(self, depth: int = 1024, timeout: Optional[float] = None,
                 **options: Any) -> None:
        self._queue = Queue(depth)
        self._lock = threading.Lock()
        self._timeout, self._options = timeout, options
        self._bytes = 0     # bytes in flight
        self._found: Deque[Completion] = deque()    # completions that belong to no job yet

    def start(self, file: File, memory: Memory, pieces: Sequence[Range], base: int) -> Job:
        """Read pieces of a file to their offsets less base in memory.  Return a Job.

        After a failure nothing is in flight, as after finish().
        """
        job = Job(file, memory, pieces)
        try:
            for place, (begin, end) in enumerate(pieces):
                self._prepare(job, place, begin, end - begin, begin - base)
            with self._lock:
                self._queue.submit()
        except BaseException as error:
            if isinstance(error, Error) and error.filename is None:
                error.filename = file.name
            self._abandon(job)
            raise
        return job

    def _prepare(self, job: Job, place: int, offset: int, nbytes: int, mem_offset: int) -> None:
        while True:
            with self._lock:
                timeout = self._timeout
                if timeout is None:
                    timeout = patience(self._bytes + nbytes)
                read = partial(self._queue.read, job.file, job.memory, offset, nbytes,
                               mem_offset=mem_offset, tag=(job, place), timeout=timeout,
                               **self._options)
                ids: List[int] = []
                try:
                    # Python does not check for signals between this call and the counting below.
                    ids += starmap(read, ONCE)
                except BlockingIOError:
                    # The queue is full of reads, also of other files.
                    self._queue.submit()
                    self._take()
                    continue
                job.left += 1
                self._bytes += nbytes
                return

    def _take(self) -> None:
        """Take the completions of at most a second, waiting for the first one.  The caller holds
        the lock."""
        if not self._found:
            self._found += self._queue.reap(1, timeout=_LOOK)
        if not self._found and not self._queue.in_flight:
            raise RuntimeError("a request of the queue got lost")
        while self._found:
            # If this is interrupted, the next call finds the same completion again, because
            # popleft() comes last.
            completion = self._found[0]
            job, place = completion.tag
            if not job.done[place]:
                begin, end = job.pieces[place]
                if completion.error is not None and job.error is None:
                    job.error = completion.error
                self._bytes -= end - begin
                job.done[place] = 1
                job.left -= 1
            self._found.popleft()

    def wait(self, job: Job, places: Iterable[int]) -> None:
        """Wait until these pieces are in memory.  Raises the job's first error."""
        for place in places:
            while not job.done[place] and job.error is None:
                with self._lock:
                    if not job.done[place] and job.error is None:
                        self._take()
        if job.error is not None:
            raise again(job.error)

    def finish(self, job: Job, patience: Optional[float] = None) -> None:
        """Wait until nothing of the job touches its memory; then close memory and file.

        patience: seconds to wait after the end of the last read; None: no limit

        Raises the first error, or Restless.  May be called again.
        """
        while job.left:
            with self._lock:
                if job.left:
                    self._take()
        with job.ending:
            self._let_go(job, patience)
        if job.error is not None:
            raise again(job.error)

    @staticmethod
    def _let_go(job: Job, patience: Optional[float]) -> None:
        memory = job.memory
        if memory is None:
            return
        if not memory.closed:
            until = deadline(patience, _abi.PST_NO_DEADLINE)
            job.quiet = lib.pst_mem_drain(memory.handle, until) == 0
            memory.close()
        job.file.close()
        job.memory = None
        if not job.quiet:
            raise Restless(f"{job.file.name}: hardware or kernel did not let go of the memory "
                           f"within {patience} s: {job.error}"
                           ) from (None if job.error is None else again(job.error))

    def _abandon(self, job: Job) -> None:
        try:
            with self._lock:
                self._queue.submit()
            self.finish(job)
        except Exception:  # pylint: disable=broad-except # finish() raises the first one
            pass
