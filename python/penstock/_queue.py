# SPDX-License-Identifier: MIT
"""Queues: many overlapping requests, awaited with or without asyncio.

A signal handler may raise an exception in these functions, as _handle.py describes.  So a request
is recorded before the library is told, completions are taken over in steps that can be repeated,
and each call ends in steps between which Python does not check for signals.
"""
import errno
import operator
import os
import time
from array import array
from collections import deque
from ctypes import byref, c_void_p
from functools import partial
from itertools import islice, starmap
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _abi
from ._arrays import Rows, address, interleave, longest
from ._file import File, readable, short_read, span
from ._handle import ONCE, Owner, spend
from ._lib import (Error, Result, again, check, deadline, failure, keywords, lib, policy_of, sized,
                   stream_of, text_of, unsigned)
from ._memory import Memory
from ._types import Offsets, Policy

if TYPE_CHECKING:
    import asyncio  # slow; a program with an event loop has imported it

_SLICE = 100_000_000    # longest wait without handling signals, ns

_BACKENDS = {"auto": _abi.PST_BACKEND_AUTO, "uring": _abi.PST_BACKEND_URING,
             "threads": _abi.PST_BACKEND_THREADS}


_NAMES = {_abi.PST_OP_READ: "read", _abi.PST_OP_WRITE: "write"}
_OPTIONS = ("strict", "policy", "timeout", "stream", "crc32c", "stream_wait")
_READ_ONLY: Dict[int, Tuple[str, ...]] = {_abi.PST_OP_READ: ("short", "verify"),
                                          _abi.PST_OP_WRITE: ()}


def _sums(verify: Any, count: int) -> "Optional[array[int]]":
    """Return the checksums of a request's pieces for the library."""
    if verify is None:
        return None
    try:
        sums = array("I", [verify] if isinstance(verify, int) else verify)
    except OverflowError:
        raise ValueError("a CRC-32C has 32 bits") from None
    if len(sums) != count:
        raise ValueError(f"{count} pieces need as many checksums, not {len(sums)}")
    return sums


class Completion:
    """The end of one request.

    id:     the number that read(), write() and so on returned
    tag:    the tag passed to them
    result: a Result
    error:  an Error, a ShortRead, or None
    """

    __slots__ = ("id", "tag", "result", "error")

    def __init__(self, number: int, tag: Any, result: Result,
                 error: Optional[Exception]) -> None:
        self.id, self.tag, self.result, self.error = number, tag, result, error

    def check(self) -> Result:
        """Return the result; raise the error if there is one."""
        if self.error is not None:
            raise again(self.error)
        return self.result

    def __repr__(self) -> str:
        return f"<Completion {self.id} {self.error or self.result!r}>"


class _Request:
    """Objects that must live until a request has completed."""

    __slots__ = ("file", "memory", "own", "rows", "sums", "wanted", "tag", "short", "unknown")

    def __init__(self, file: File, memory: Optional[Memory], own: bool, rows: Rows,
                 sums: "Optional[array[int]]", wanted: int, tag: Any, short: bool) -> None:
        self.file, self.memory, self.own, self.rows = file, memory, own, rows
        self.sums, self.wanted, self.tag, self.short = sums, wanted, tag, short
        self.unknown = False    # an interruption kept the program from getting the id

    def let_go(self) -> None:
        """Keep the request's objects until nothing uses its memory.  Called when the queue has
        ended."""
        memory = self.memory
        if memory is None:
            return
        if not memory.closed and (self.own or lib.pst_mem_drain(memory.handle, 0) < 0):
            # Keep the memory and not the request: a request would form a reference cycle with the
            # closure.
            held = memory.held
            held.keep = (held.keep, self.file, self.rows, self.sums)
        if self.own:
            memory.close()


def _free(box: List[c_void_p]) -> None:
    spend(box, lib.pst_queue_free)


class Queue(Owner):
    """Requests in flight; a context manager.

    depth:   most requests in flight, 1 to 4096
    backend: "auto", "uring" or "threads", for file operations
    timeout: seconds until a request ends with ETIMEDOUT; None: 300

    Only one thread at a time may call a queue: another one gets a RuntimeError.  Calls release the
    interpreter's lock.  Files, memory and offsets of requests are kept until they complete.  Raises
    Error, and ValueError for an option out of range.
    """

    _noun = "queue"

    def __init__(self, depth: int = 128, *, backend: str = "auto",
                 timeout: Optional[float] = None) -> None:
        self._requests: Dict[int, _Request] = {}
        self._finished: Dict[int, Completion] = {}  # completions that were not returned yet
        self._futures: "Dict[int, asyncio.Future[Result]]" = {}
        self._waiters: "Deque[asyncio.Future[None]]" = deque()     # tasks that wait for room
        self._loop: "Optional[asyncio.AbstractEventLoop]" = None    # the loop that calls _pump()
        self._fd = -1           # the descriptor that the loop watches
        self._late = False      # a timer will call _pump()
        self._last = 0
        self._doubt = 0         # id of a request that may or may not have been prepared
        self._dirty = False     # _done may contain completions
        self._turn = [None]     # empty during a call
        self._pid = os.getpid()
        if backend not in _BACKENDS:
            raise ValueError(f"'{backend}' is no back end; there are {', '.join(_BACKENDS)}")
        depth = unsigned(depth)
        # Clamp a depth that does not fit; the library refuses it.
        options = sized(_abi.pst_queue_opts, depth=min(depth, 2**32 - 1),
                        backend=_BACKENDS[backend])
        if timeout is not None:
            if not 0.001 <= timeout <= 4e6:
                raise ValueError("a timeout is 0.001 to 4,000,000 seconds")
            options.timeout_ms = int(timeout * 1000)
        self.depth = min(depth or 128, 4096)
        self._done = (_abi.pst_done * self.depth)()
        super().__init__([c_void_p()], _free)
        check(lib.pst_queue_new(byref(options), byref(self._box[0])))

    @property
    def in_flight(self) -> int:
        """Number of requests that have not completed, including those that are not submitted."""
        return len(self._requests)

    @property
    def _foreign(self) -> bool:
        """True in a fork of the process that made the queue."""
        return self._pid != os.getpid()

    def _begin(self, turn: List[None]) -> None:
        """Take the turn.  The caller must always return it, by self._turn += turn.

        This is not a call, so no signal handler runs between it and the program's use of the
        result.
        """
        try:
            turn += starmap(self._turn.pop, ONCE)
        except IndexError:
            if self._foreign:
                check(lib.pst_queue_submit(self.handle))    # fails with a text about forks
            raise RuntimeError("another call of this queue is under way, in another thread or in "
                               "what a handler of a signal has interrupted") from None

    # -------------------------------------------------------------------- prepare

    def read(self, file: File, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
             mem_offset: int = 0, short: bool = False, tag: Any = None,
             verify: Optional[int] = None, **options: Any) -> int:
        """Prepare a read; arguments as File.read().

        tag: any object; returned in the completion
        verify: expected CRC-32C of the bytes in memory; if they differ, the completion has an Error
                with EBADMSG
        strict, policy, timeout, stream: as File.readv()
        crc32c:      put the CRC-32C of the bytes into the result
        stream_wait: later work on the stream waits for the bytes

        Returns the request's id.  Raises BlockingIOError if the queue is full (submit, reap and try
        again), otherwise Error and ValueError.
        """
        return self._one(_abi.PST_OP_READ, file, memory, offset, nbytes, mem_offset, short, tag,
                         verify, options)

    def write(self, file: File, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
              mem_offset: int = 0, tag: Any = None, **options: Any) -> int:
        """Prepare a write; arguments as read()."""
        return self._one(_abi.PST_OP_WRITE, file, memory, offset, nbytes, mem_offset, True, tag,
                         None, options)

    def readv(self, file: File, memory: Any, offsets: Offsets, mem_offsets: Offsets,
              nbytes: Offsets, *, strides: Optional[Tuple[Offsets, Offsets, Offsets]] = None,
              short: bool = False, tag: Any = None, verify: Any = None, **options: Any) -> int:
        """Prepare one request for many ranges.

        offsets, mem_offsets, nbytes: arrays of 64-bit integers, sequences, or numbers
        strides: (file_stride, mem_stride, count), in the same forms: a range has count pieces of
                 nbytes

        verify: a CRC-32C per piece, in order: a sequence or array of integers; on EBADMSG,
                result.wrong_piece is the first piece that differs

        At most 1,048,576 ranges of 16,777,216 pieces.  Other arguments as read().
        """
        return self._many(_abi.PST_OP_READ, file, memory, offsets, mem_offsets, nbytes, strides,
                          short, tag, verify, options)

    def writev(self, file: File, memory: Any, offsets: Offsets, mem_offsets: Offsets,
               nbytes: Offsets, *, strides: Optional[Tuple[Offsets, Offsets, Offsets]] = None,
               tag: Any = None, **options: Any) -> int:
        """Prepare one request for many ranges; arguments as readv()."""
        return self._many(_abi.PST_OP_WRITE, file, memory, offsets, mem_offsets, nbytes, strides,
                          True, tag, None, options)

    def sync(self, file: File, *, data: bool = False, tag: Any = None,
             timeout: Optional[float] = None) -> int:
        """Prepare a sync of this queue's earlier writes to the file; data: by fdatasync."""
        io = _abi.pst_io(op=_abi.PST_OP_SYNC, flags=_abi.PST_IO_DATASYNC if data else 0,
                         deadline_ns=deadline(timeout))
        return self._prepare(io, _Request(file, None, False, None, None, 0, tag, True))

    def _one(self, op: int, file: File, obj: Any, offset: int, nbytes: Optional[int],
             mem_offset: int, short: bool, tag: Any, verify: Any,
             options: Dict[str, Any]) -> int:
        keywords(_NAMES[op], options, _OPTIONS, ("offset", "nbytes", "mem_offset", "tag") +
                 _READ_ONLY[op])
        memory = Memory.of(obj, sync=options.get("stream") is None)
        try:
            mem_offset, nbytes = span(memory, mem_offset, nbytes)
            io = self._io(op, memory, **options)
            io.file_off, io.mem_off, io.len = unsigned(offset), mem_offset, nbytes
            sums = self._verify(io, verify, 1)
            return self._prepare(io, _Request(file, memory, memory is not obj, None, sums, nbytes,
                                              tag, short))
        except BaseException:
            if memory is not obj:
                memory.close()
            raise

    def _many(self, op: int, file: File, obj: Any, offsets: Offsets, mem_offsets: Offsets,
              nbytes: Offsets, strides: Optional[Tuple[Offsets, Offsets, Offsets]], short: bool,
              tag: Any, verify: Any, options: Dict[str, Any]) -> int:
        keywords(f"{_NAMES[op]}v", options, _OPTIONS, ("offsets", "mem_offsets", "nbytes",
                                                       "strides", "tag") + _READ_ONLY[op])
        memory = Memory.of(obj, sync=options.get("stream") is None)
        try:
            steps: Tuple[Any, ...] = strides or (None, None, None)
            count = longest(offsets, mem_offsets, nbytes, *(strides or ()))
            if not 1 <= count <= _abi.PST_SEGS_MAX:
                raise ValueError(f"a request has 1 to {_abi.PST_SEGS_MAX} ranges, not {count}")
            rows = interleave(count, (offsets, mem_offsets, nbytes) + steps)
            pieces = count
            if strides:
                wanted = sum(a * max(b, 1) for a, b in zip(rows[2::6], rows[5::6]))
                pieces = sum(max(b, 1) for b in rows[5::6])
            else:
                wanted = sum(rows[2::6])
            io = self._io(op, memory, **options)
            io.segs, io.nr_segs = address(rows), count
            sums = self._verify(io, verify, pieces)
            return self._prepare(io, _Request(file, memory, memory is not obj, rows, sums, wanted,
                                              tag, short))
        except BaseException:
            if memory is not obj:
                memory.close()
            raise

    @staticmethod
    def _io(op: int, memory: Memory, *, strict: bool = False, policy: Policy = None,
            timeout: Optional[float] = None, stream: Optional[int] = None, crc32c: bool = False,
            stream_wait: bool = False) -> Any:
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

    @staticmethod
    def _verify(io: Any, verify: Any, pieces: int) -> "Optional[array[int]]":
        sums = _sums(verify, pieces)
        if sums is not None:
            io.flags |= _abi.PST_IO_VERIFY
            io.crc32cs = sums.buffer_info()[0]
        return sums

    def _prepare(self, io: Any, request: _Request) -> int:
        turn: List[None] = []
        try:
            self._begin(turn)
            handle = self.handle
            self._settle_doubt(handle)
            io.file = request.file.handle
            number = self._last = io.user_data = self._last + 1
            self._requests[number] = request
            self._doubt = number
            try:
                check(lib.pst_queue_prep(handle, byref(io)))
            except Error:
                self._requests.pop(number, None)
                self._last = number - 1
                self._doubt = 0
                raise
            self._doubt = 0
            return number
        finally:
            self._turn += turn

    def _settle_doubt(self, handle: int) -> None:
        """End a request whose prepare was interrupted, so that the program does not have its id."""
        if not self._doubt:
            return
        if lib.pst_queue_cancel(handle, self._doubt) < 0:
            self._requests.pop(self._doubt, None)
        elif self._doubt in self._requests:
            self._requests[self._doubt].unknown = True
        self._doubt = 0

    # ------------------------------------------------------------- submit and reap

    def submit(self) -> int:
        """Start prepared requests; never waits for a disk.  Returns the number of started requests.
        """
        turn: List[None] = []
        try:
            self._begin(turn)
            handle = self.handle
            self._settle_doubt(handle)
            return check(lib.pst_queue_submit(handle))
        finally:
            self._turn += turn

    def reap(self, min: int = 0, max: Optional[int] = None,
             timeout: Optional[float] = None) -> List[Completion]:
        """Take completions; wait until there are at least min, or nothing is in flight.

        min:     completions; fewer are returned at the timeout or if nothing more is in flight
        max:     most completions; None: the queue's depth
        timeout: seconds; None: no limit, but every request ends

        Returns a list of at most max Completions.  A completion with a future also completes the
        future.  In the main thread signal handlers run within 0.1 s; if one raises, such as that of
        Ctrl-C, the next call returns the completions.  Raises RuntimeError while another thread is
        in a call, ValueError after close().
        """
        min = operator.index(min)
        most = self.depth if max is None else operator.index(max)
        if not 0 <= min <= most or most < 1:
            raise ValueError("min is 0 to max, and max at least 1")
        turn: List[None] = []
        try:
            self._begin(turn)
            self._collect(self.handle, min, most, deadline(timeout, _abi.PST_NO_DEADLINE))
            taken = list(islice(self._finished.values(), most))
            rest = dict(islice(self._finished.items(), len(taken), None))
            for completion in taken:
                future = self._futures.pop(completion.id, None)
                if future is not None:
                    # Let the loop complete the future: this thread may be another one than the
                    # loop's.
                    self._soon(future.get_loop(), self._tell, future, completion)
            loop = self._loop
            if self._waiters and loop is not None:
                self._soon(loop, self._wake)
            # Until this line, an interruption loses no completion.
            self._finished = rest
            return taken
        finally:
            self._turn += turn

    def _collect(self, handle: int, least: int, most: int, until: int) -> None:
        """Move completions to _finished until it has at least least entries, or until the
        deadline."""
        if self._dirty:
            self._harvest(self.depth)
        self._settle_doubt(handle)
        while len(self._finished) < most:
            room = min(most - len(self._finished), self.depth)
            want = max(0, min(least - len(self._finished), room))
            limit = min(until, time.monotonic_ns() + _SLICE) if want else 0
            self._dirty = True
            count = check(lib.pst_queue_reap(handle, self._done, want, room, limit))
            self._harvest(count)
            if count < want:
                if limit == until or time.monotonic_ns() < limit:
                    break   # deadline, or nothing is in flight
            elif count < room or len(self._finished) >= least:
                break

    def _harvest(self, count: int) -> None:
        """Take over the first slots of _done.  After an interruption, start again."""
        for slot in islice(self._done, count):
            number = slot.user_data
            request = self._requests.get(number)
            if request is None:
                continue    # already done before an interruption
            if not request.unknown:
                self._finished[number] = self._completion(request, slot)
            if request.own and request.memory is not None:
                request.memory.close()
            self._requests.pop(number, None)
        self._dirty = False

    @staticmethod
    def _completion(request: _Request, done: Any) -> Completion:
        result = Result(done)
        error: Optional[Exception] = None
        if done.res < 0:
            error = failure(done.res, text_of(lib.pst_done_text, byref(done)), request.file.name,
                            result)
        elif done.res < request.wanted and not request.short:
            error = short_read(request.wanted, result, request.file.name)
        return Completion(done.user_data, request.tag, result, error)

    def cancel(self, number: int) -> bool:
        """End a request early: it completes with ECANCELED, or normally if it was done.

        number: the request's id

        The request completes within 100 ms.  Returns False if the request does not exist any more.
        """
        turn: List[None] = []
        try:
            self._begin(turn)
            asked: int = lib.pst_queue_cancel(self.handle, unsigned(number))
            return asked != -errno.ENOENT and check(asked) > 0
        finally:
            self._turn += turn

    # --------------------------------------------------------------------- asyncio

    def fileno(self) -> int:
        """Return a descriptor that is readable when reap() has work; never read or close it."""
        turn: List[None] = []
        try:
            self._begin(turn)
            return check(lib.pst_queue_fd(self.handle))
        finally:
            self._turn += turn

    async def run(self, prepare: Callable[..., int], *args: Any, **options: Any) -> Result:
        """Prepare a request, submit it and wait for its end: await queue.run(queue.read, file, x).

        prepare: read, write, readv, writev or sync of this queue
        args, options: its arguments

        Any number of tasks may call this: while the queue is full, further tasks wait for room, in
        order.  Cancelling the task cancels the request; the await ends when the request has
        completed, within 100 ms, and the memory then belongs to the program again.

        Returns a Result.  Raises the exceptions of prepare, the request's Error or ShortRead, and
        CancelledError if the queue is closed.
        """
        import asyncio
        call = partial(prepare, **options)
        numbers: List[int] = []     # the request's id, stored by one call of C
        first = False
        while True:
            try:
                numbers += starmap(call, (args,))
                break
            except BlockingIOError:
                await self._room(first)
                first = True
        number = numbers[0]
        futures: "List[asyncio.Future[Result]]" = []
        try:
            futures.append(self.future(number))
            await asyncio.wait(futures)
            return futures[0].result()
        except asyncio.CancelledError:
            self._hurry(number)
            while not futures[0].done():
                try:
                    await asyncio.wait(futures)
                except asyncio.CancelledError:
                    pass
            if not futures[0].cancelled():
                futures[0].exception()  # marks its exception as retrieved
            raise
        except BaseException:
            self._give_up(number)
            raise
        finally:
            futures.clear()     # its exception's traceback references this frame

    def _hurry(self, number: int) -> None:
        """Cancel a request if it is in flight."""
        try:
            if number in self._requests:
                self.cancel(number)
        except RuntimeError:
            pass    # a thread is in a call: the request ends by itself

    def _give_up(self, number: int) -> None:
        """Mark a request so that its completion is dropped."""
        self._futures.pop(number, None)
        self._finished.pop(number, None)
        request = self._requests.get(number)
        if request is not None:
            request.unknown = True
            self._hurry(number)

    async def _room(self, first: bool) -> None:
        """Wait until the queue has room for a request.  A task that waited before goes first."""
        loop = self._watch()
        waiter: "asyncio.Future[None]" = loop.create_future()
        (self._waiters.appendleft if first else self._waiters.append)(waiter)
        try:
            self._pump()
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:
                self._wake()    # wake another task if this one does not use the room
            self._unwatch()

    def _wake(self) -> None:
        """Wake as many tasks as there is room for."""
        free = self.depth - len(self._requests)
        for waiter in list(self._waiters):
            if free < 1:
                break
            if not waiter.done():
                waiter.set_result(None)
                free -= 1
            self._waiters.remove(waiter)

    def future(self, number: int) -> "asyncio.Future[Result]":
        """Return an asyncio.Future for a request's Result or error.

        number: id of a request whose completion was not taken yet

        Call this in the running event loop, which must be the same for all pending futures of a
        queue.  Submits prepared requests.  Cancelling a future does not cancel its request.

        Raises ValueError for another id, RuntimeError without a running loop.
        """
        loop = self._watch()
        try:
            if number in self._futures:
                return self._futures[number]
            future: "asyncio.Future[Result]" = loop.create_future()
            if number not in self._finished and number not in self._requests:
                raise ValueError(f"{number} is no request that is under way")
            self._futures[number] = future
            self._pump()
            return future
        finally:
            self._unwatch()

    async def wait(self, *numbers: int) -> List[Result]:
        """Wait for requests.  Return a list of their Results.  Raises the error of the first that
        failed.

        numbers: their ids; none: all requests in flight

        Cancelling the task does not cancel the requests.
        """
        import asyncio
        futures = [self.future(number) for number in numbers or list(self._requests)]
        try:
            return list(await asyncio.gather(*[asyncio.shield(f) for f in futures]))
        finally:
            futures.clear()     # its exception's traceback references this frame

    def _watch(self) -> "asyncio.AbstractEventLoop":
        """Make the running loop call _pump() when the descriptor is readable."""
        import asyncio
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return loop
        if self._loop is not None:
            if self._loop.is_running():
                raise RuntimeError("another event loop waits for this queue")
            self._leave_loop(self._loop)
        self._fd = self.fileno()
        loop.add_reader(self._fd, self._pump)
        self._loop = loop
        return loop

    def _leave_loop(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Leave a loop that has ended, or was stopped by Ctrl-C at its end: cancel its waiters."""
        self._loop = None
        waiting: "List[asyncio.Future[Any]]" = [*self._futures.values(), *self._waiters]
        for number in list(self._futures):
            self._give_up(number)
        self._waiters.clear()
        if not loop.is_closed():
            loop.remove_reader(self._fd)
            for future in waiting:
                self._soon(loop, future.cancel)

    def _unwatch(self) -> None:
        """Stop watching if nobody waits any more."""
        if self._futures or self._waiters or self._foreign:
            return
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._fd)

    def _pump(self) -> None:
        if self._foreign:
            return  # the child of a fork shares its parent's epoll
        turn: List[None] = []
        try:
            self._begin(turn)
            handle = self.handle
            self._settle_doubt(handle)
            check(lib.pst_queue_submit(handle))
            self._collect(handle, 0, len(self._finished) + self.depth, 0)
            for number in [number for number in self._finished if number in self._futures]:
                future = self._futures[number]
                if not future.done():
                    _settle(future, self._finished[number])
                self._finished.pop(number, None)
                self._futures.pop(number, None)
        except RuntimeError:
            self._pump_later()
            return
        finally:
            self._turn += turn
        self._wake()
        self._unwatch()

    def _pump_later(self) -> None:
        """Call _pump() again in 10 ms, because a thread is in a call."""
        def again() -> None:
            self._late = False
            if self._loop is not None:
                self._pump()
        if self._loop is not None and not self._late:
            self._late = True
            self._loop.call_later(0.01, again)

    def _tell(self, future: "asyncio.Future[Result]", completion: Completion) -> None:
        if not future.done():
            _settle(future, completion)
        self._unwatch()

    @staticmethod
    def _soon(loop: "asyncio.AbstractEventLoop", function: Callable[..., Any],
              *args: Any) -> None:
        try:
            loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            pass    # the loop was closed, so nobody waits in it

    # ------------------------------------------------------------------------- end

    def close(self) -> None:
        """Close the queue: cancel requests in flight, which takes up to 100 ms.

        Memory that one of them may still use is kept until it ends.  Waiting futures and tasks are
        cancelled.  May be called again.  Raises RuntimeError while another thread is in a call.
        """
        if self._foreign:
            # The loop and the requests belong to the parent process.
            super().close()
            self._requests.clear()
            return
        turn: List[None] = []
        try:
            self._begin(turn)
            waiting: "List[asyncio.Future[Any]]" = [*self._futures.values(), *self._waiters]
            for future in waiting:
                self._soon(future.get_loop(), future.cancel)
            self._futures.clear()
            self._waiters.clear()
            self._unwatch()
            super().close()
            self._doubt = 0
            for number, request in list(self._requests.items()):
                request.let_go()
                self._requests.pop(number, None)
        finally:
            self._turn += turn

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_box", None) or getattr(self, "_requests", None):
            self.close()

    def __repr__(self) -> str:
        return f"<Queue {self.in_flight} in flight{' closed' if self.closed else ''}>"


def _settle(future: "asyncio.Future[Result]", completion: Completion) -> None:
    if completion.error is not None:
        future.set_exception(again(completion.error))
    else:
        future.set_result(completion.result)
