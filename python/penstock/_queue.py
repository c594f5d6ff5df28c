# SPDX-License-Identifier: MIT
"""Queues: many requests that overlap, waited for by hand or by asyncio."""
import asyncio
import contextlib
import threading
from ctypes import byref, c_void_p
from typing import Any, List, Optional, Tuple

from . import _abi
from ._arrays import address, interleave, longest
from ._file import File, ShortRead, readable, span
from ._lib import (Result, check, deadline, failure, lib, policy_of, sized, stream_of, text_of,
                   unsigned)
from ._memory import Memory
from ._types import Offsets

_BACKENDS = {"auto": _abi.PST_BACKEND_AUTO, "uring": _abi.PST_BACKEND_URING,
             "threads": _abi.PST_BACKEND_THREADS}


class Completion:
    """The end of one request.

    id:     the number that read(), write() and so on gave
    tag:    what was handed to them
    result: a Result
    error:  an Error, a ShortRead, or None
    """

    __slots__ = ("id", "tag", "result", "error")

    def __init__(self, number, tag, result, error):
        self.id, self.tag, self.result, self.error = number, tag, result, error

    def check(self) -> Result:
        """The result; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.result

    def __repr__(self):
        return f"<Completion {self.id} {self.error or self.result!r}>"


class _Request:
    """What must stay until a request has completed."""

    __slots__ = ("file", "memory", "own", "rows", "wanted", "tag", "short")

    def __init__(self, file, memory, own, rows, wanted, tag, short):
        self.file, self.memory, self.own, self.rows = file, memory, own, rows
        self.wanted, self.tag, self.short = wanted, tag, short


class Queue:
    """Requests in flight; a context manager.

    depth:   requests in flight, 1 to 4096
    backend: "auto", "uring" or "threads", for file operations
    timeout: seconds until a request ends with ETIMEDOUT; None: 300

    One thread at a time may be in a call of a queue: another gets a RuntimeError.  Calls release
    the interpreter's lock.  Files, memory and offsets of requests are kept until they complete.
    """

    def __init__(self, depth: int = 128, *, backend: str = "auto",
                 timeout: Optional[float] = None) -> None:
        self._handle = None
        self._requests = {}     # id: _Request
        self._ready = []        # completions that nobody has taken yet
        self._futures = {}      # id: asyncio.Future
        self._loop = None       # whose reader calls _pump()
        self._last = 0
        self._busy = threading.Lock()
        if backend not in _BACKENDS:
            raise ValueError(f"'{backend}' is no back end; there are {', '.join(_BACKENDS)}")
        options = sized(_abi.pst_queue_opts, depth=depth, backend=_BACKENDS[backend])
        if timeout is not None:
            if not 0.001 <= timeout <= 4e6:
                raise ValueError("a timeout is 0.001 to 4,000,000 seconds")
            options.timeout_ms = int(timeout * 1000)
        handle = c_void_p()
        check(lib.pst_queue_new(byref(options), byref(handle)))
        self._handle = handle.value
        self._done = (_abi.pst_done * min(depth or 128, 4096))()

    @property
    def handle(self) -> int:
        """The struct pst_queue *; ValueError after close()."""
        if self._handle is None:
            raise ValueError("the queue is closed")
        return self._handle

    @property
    def in_flight(self) -> int:
        """Requests that have not completed, those that are not submitted yet too."""
        return len(self._requests)

    @contextlib.contextmanager
    def _mine(self):
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("another thread is in a call of this queue")
        try:
            yield self.handle
        finally:
            self._busy.release()

    # -------------------------------------------------------------------- prepare

    def read(self, file: File, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
             mem_offset: int = 0, short: bool = False, tag: Any = None, **options: Any) -> int:
        """Prepare a read; arguments as File.read().

        tag: anything; comes back in the completion
        strict, policy, timeout, stream: as File.readv()
        crc32c:      give the CRC-32C of the bytes in the result
        stream_wait: later work on the stream waits for the bytes

        Returns the request's id.  Raises BlockingIOError where the queue holds its depth of
        requests (submit, reap and try again), else Error and ValueError.
        """
        return self._one(_abi.PST_OP_READ, file, memory, offset, nbytes, mem_offset, short, tag,
                         options)

    def write(self, file: File, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
              mem_offset: int = 0, tag: Any = None, **options: Any) -> int:
        """Prepare a write, as read()."""
        return self._one(_abi.PST_OP_WRITE, file, memory, offset, nbytes, mem_offset, True, tag,
                         options)

    def readv(self, file: File, memory: Any, offsets: Offsets, mem_offsets: Offsets,
              nbytes: Offsets, *, strides: Optional[Tuple[Offsets, Offsets, Offsets]] = None,
              short: bool = False, tag: Any = None, **options: Any) -> int:
        """Prepare one request for many ranges.

        offsets, mem_offsets, nbytes: arrays of 64-bit integers, sequences, or numbers
        strides: (file_stride, mem_stride, count), each as those: a range is count pieces of nbytes

        At most 1,048,576 ranges of 16,777,216 pieces.  The rest is as in read().
        """
        return self._many(_abi.PST_OP_READ, file, memory, offsets, mem_offsets, nbytes, strides,
                          short, tag, options)

    def writev(self, file: File, memory: Any, offsets: Offsets, mem_offsets: Offsets,
               nbytes: Offsets, *, strides: Optional[Tuple[Offsets, Offsets, Offsets]] = None,
               tag: Any = None, **options: Any) -> int:
        """Prepare one request for many ranges, as readv()."""
        return self._many(_abi.PST_OP_WRITE, file, memory, offsets, mem_offsets, nbytes, strides,
                          True, tag, options)

    def sync(self, file: File, *, data: bool = False, tag: Any = None,
             timeout: Optional[float] = None) -> int:
        """Prepare: make earlier writes of this queue to the file durable; data: by fdatasync."""
        io = _abi.pst_io(op=_abi.PST_OP_SYNC, flags=_abi.PST_IO_DATASYNC if data else 0,
                         deadline_ns=deadline(timeout))
        return self._prepare(io, _Request(file, None, False, None, 0, tag, True))

    def _one(self, op, file, obj, offset, nbytes, mem_offset, short, tag, options):
        memory = Memory.of(obj)
        try:
            mem_offset, nbytes = span(memory, mem_offset, nbytes)
            io = self._io(op, memory, **options)
            io.file_off, io.mem_off, io.len = unsigned(offset), mem_offset, nbytes
            return self._prepare(io, _Request(file, memory, memory is not obj, None, nbytes, tag,
                                              short))
        except BaseException:
            if memory is not obj:
                memory.close()
            raise

    def _many(self, op, file, obj, offsets, mem_offsets, nbytes, strides, short, tag, options):
        memory = Memory.of(obj)
        try:
            steps = strides or (None, None, None)
            count = longest(offsets, mem_offsets, nbytes, *(strides or ()))
            if not 1 <= count <= _abi.PST_SEGS_MAX:
                raise ValueError(f"a request has 1 to {_abi.PST_SEGS_MAX} ranges, not {count}")
            rows = interleave(count, (offsets, mem_offsets, nbytes) + tuple(steps))
            if strides:
                wanted = sum(a * max(b, 1) for a, b in zip(rows[2::6], rows[5::6]))
            else:
                wanted = sum(rows[2::6])
            io = self._io(op, memory, **options)
            io.segs, io.nr_segs = address(rows), count
            return self._prepare(io, _Request(file, memory, memory is not obj, rows, wanted, tag,
                                              short))
        except BaseException:
            if memory is not obj:
                memory.close()
            raise

    @staticmethod
    def _io(op, memory, *, strict=False, policy=None, timeout=None, stream=None, crc32c=False,
            stream_wait=False):
        if op == _abi.PST_OP_READ:
            readable(memory)
        if timeout is not None and timeout <= 0:
            raise ValueError("a request needs some time")
        io = _abi.pst_io(op=op, policy=policy_of(policy), deadline_ns=deadline(timeout))
        io.flags = ((_abi.PST_IO_STRICT if strict else 0) | (_abi.PST_IO_CRC32C if crc32c else 0) |
                    (_abi.PST_IO_STREAM_WAIT if stream_wait else 0))
        io.mem = memory.handle
        io.stream = stream_of(stream)
        return io

    def _prepare(self, io, request):
        with self._mine() as handle:
            io.file = request.file.handle
            io.user_data = self._last + 1
            check(lib.pst_queue_prep(handle, byref(io)))
            self._last += 1
            self._requests[self._last] = request
            return self._last

    # ------------------------------------------------------------- submit and reap

    def submit(self) -> int:
        """Start what was prepared; never waits for a disk.  Returns how many were started."""
        with self._mine() as handle:
            return check(lib.pst_queue_submit(handle))

    def reap(self, min: int = 0, max: Optional[int] = None,
             timeout: Optional[float] = None) -> List[Completion]:
        """Take completions, and wait until there are at least min or nothing is in flight.

        timeout: seconds; None: for ever, which ends, because every request does

        Returns a list of at most max Completions, max being the queue's depth without one.  A
        completion that a future waits for is the future's too.
        """
        most = len(self._done) if max is None else max
        if not 0 <= min <= most or most < 1:
            raise ValueError("min is 0 to max, and max at least 1")
        taken, self._ready = self._ready[:most], self._ready[most:]
        if len(taken) < most:
            until = deadline(timeout, _abi.PST_NO_DEADLINE)
            taken += self._take(_at_least(min - len(taken)), most - len(taken), until)
        for completion in taken:
            future = self._futures.pop(completion.id, None)
            if future is not None:
                # This may be another thread than the event loop's.
                future.get_loop().call_soon_threadsafe(self._tell, future, completion)
        return taken

    def _tell(self, future, completion):
        if not future.done():
            _settle(future, completion)
        if not self._futures:
            self._unwatch()

    def _take(self, least, most, until):
        found = []
        with self._mine() as handle:
            while True:
                room = most - len(found) if most - len(found) < len(self._done) else len(self._done)
                if not room:
                    break
                count = check(lib.pst_queue_reap(
                    handle, self._done, least if least < room else room, room, until))
                found += [self._completion(self._done[i]) for i in range(count)]
                least = _at_least(least - count)
                if count < room or not least:
                    break
        return found

    def _completion(self, done):
        request = self._requests.pop(done.user_data)
        result = Result(done)
        error = None
        if done.res < 0:
            error = failure(done.res, text_of(lib.pst_done_text, byref(done)),
                            getattr(request.file, "name", None), result)
        elif done.res < request.wanted and not request.short:
            error = ShortRead(request.wanted, result, request.file.name)
        if request.own:
            request.memory.close()
        return Completion(done.user_data, request.tag, result, error)

    def cancel(self, number: int) -> bool:
        """End a request early: it completes with ECANCELED, or with its result if it was done.

        Returns False if there is no such request any more.
        """
        with self._mine() as handle:
            return lib.pst_queue_cancel(handle, unsigned(number)) > 0

    # --------------------------------------------------------------------- asyncio

    def fileno(self) -> int:
        """A descriptor that is readable when reap() has something to do; never read or close it."""
        with self._mine() as handle:
            return check(lib.pst_queue_fd(handle))

    def future(self, number: int) -> "asyncio.Future[Result]":
        """An asyncio.Future with the Result of a request, or with its error.

        number: the id, of a request whose completion was not taken yet

        From the running event loop, which must be the same for all futures of a queue.  What is
        prepared is submitted.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("another event loop waits for this queue")
        if number in self._futures:
            return self._futures[number]
        future = loop.create_future()
        for place, completion in enumerate(self._ready):
            if completion.id == number:
                del self._ready[place]
                _settle(future, completion)
                return future
        if number not in self._requests:
            raise ValueError(f"{number} is no request that is under way")
        self.submit()
        if self._loop is None:
            loop.add_reader(self.fileno(), self._pump)
            self._loop = loop
        self._futures[number] = future
        self._pump()
        return future

    async def wait(self, *numbers: int) -> List[Result]:
        """Wait for requests; a list of their Results.  Raises the error of the first that failed.

        Without ids it waits for all that are in flight.  A task that is cancelled here cancels no
        request.
        """
        futures = [self.future(number) for number in numbers or list(self._requests)]
        return await asyncio.gather(*(asyncio.shield(future) for future in futures))

    def _pump(self):
        try:
            self.submit()
            found = self._take(0, len(self._done), 0)
        except RuntimeError:
            # A thread is in a call; its reap() arms the descriptor anew.
            return
        for completion in found:
            future = self._futures.pop(completion.id, None)
            if future is None:
                self._ready.append(completion)
            elif not future.done():
                _settle(future, completion)
        if not self._futures:
            self._unwatch()

    def _unwatch(self):
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self.fileno())

    # ------------------------------------------------------------------------- end

    def close(self) -> None:
        """End it: requests in flight are cancelled, which takes 100 ms at most.

        Memory that one of them may still touch is kept until it does not.  May be called again.
        """
        if self._handle is None:
            return
        self._unwatch()
        with self._mine() as handle:
            self._handle = None
            lib.pst_queue_free(handle)
        for request in self._requests.values():
            if request.memory is not None:
                keep_quiet(request)
        self._requests.clear()
        for future in self._futures.values():
            if not future.done():
                future.cancel()
        self._futures.clear()

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self._loop = None
            self.close()

    def __repr__(self):
        return f"<Queue {self.in_flight} in flight{' closed' if self._handle is None else ''}>"


def keep_quiet(request):
    """What a request of a closed queue needs stays until nothing touches its memory."""
    memory = request.memory
    if memory.closed or lib.pst_mem_drain(memory.handle, 0) == 0:
        if request.own:
            memory.close()
        return
    # The memory's own handle is given up here too, so that it is free when it is quiet.
    if request.own:
        memory._keep = (memory._keep, request)  # pylint: disable=protected-access
        memory.close()
    else:
        _kept.append(request)
        _kept[:] = [r for r in _kept
                    if not r.memory.closed and lib.pst_mem_drain(r.memory.handle, 0) < 0]


_kept = []


def _settle(future, completion):
    if completion.error is not None:
        future.set_exception(completion.error)
    else:
        future.set_result(completion.result)


def _at_least(number):
    return number if number > 0 else 0
