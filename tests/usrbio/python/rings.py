# SPDX-License-Identifier: MIT
"""ioring: requests, completions, timeouts, errors."""
import contextlib
import ctypes
import datetime
import errno
import os
import signal
import sys
import tempfile
import time

import hf3fs_py_usrbio as usrbio
from hf3fs_fuse import io
from tap import MOUNT, case, data, eq, file, gives, memory, registered, run

PAGE = 4096


@case
def reads():
    content = data(10 * PAGE)
    with registered(file("reads", content)) as fd, memory(len(content)) as shm:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 16)
        eq((ring.ior.entries, ring.size_for_entries(16) > 16 * 96), (16, True))
        for i in range(10):
            part = iov[i * PAGE:(i + 1) * PAGE]
            ring.prepare(part, True, fd, (9 - i) * PAGE, userdata=("page", 9 - i))
        done = ring.submit().wait(min_results=10)
        eq([d.result for d in done], [PAGE] * 10)
        for d in done:
            at = d.userdata[1] * PAGE
            eq(bytes(d), content[at:at + PAGE])
            eq(d.base_off, 9 * PAGE - at)


@case
def writes():
    content = data(10 * PAGE + 1)
    path = file("writes")
    with registered(path, os.O_RDWR) as fd, memory(len(content)) as shm:
        shm.buf[:] = content
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4, for_read=False)
        ring.prepare(iov[:PAGE], False, fd, 0).prepare(iov[PAGE:], False, fd, PAGE)
        done = ring.submit().wait(min_results=2)
        eq(sorted(d.result for d in done), [PAGE, 9 * PAGE + 1])
        eq(io.force_fsync(fd), 0)
        eq(os.stat(path).st_size, len(content))
    with open(path, "rb") as f:
        eq(f.read(), content)


@case
def short_reads_and_holes():
    path = file("holes", b"begin")
    with open(path, "r+b") as f:
        f.seek(3 * PAGE - 3)
        f.write(b"end")
    with registered(path) as fd, memory(PAGE) as shm:
        shm.buf[:] = b"x" * PAGE
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4)

        def read(size, off):
            return ring.prepare(iov[:size], True, fd, off).submit().wait(min_results=1)[0].result

        eq(read(100, 3 * PAGE - 10), 10)
        eq(bytes(shm.buf[:11]), bytes(7) + b"endx")
        eq((read(100, 3 * PAGE), read(1, 1 << 40)), (0, 0))


@case
def the_slice_itself_comes_back():
    with registered(file("same", data(PAGE))) as fd, memory(PAGE) as shm:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4)
        part = iov[:100]
        eq(ring.prepare(part, True, fd, 0).submit().wait(min_results=1)[0] is part, True)
        eq(part.userdata, None)
        # prepare() accepts a whole iovec of either module.
        eq(ring.prepare(iov, True, fd, 0).submit().wait(min_results=1)[0] is iov.iov, True)
        eq(ring.prepare(iov.iov, True, fd, 0, None).submit().wait(min_results=1)[0].result, PAGE)


@case
def how_many_wait_returns():
    with registered(file("many", data(PAGE))) as fd, memory(PAGE) as shm:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 8)
        eq(ring.wait(), [])
        eq(ring.wait(max_results=5), [])
        for i in range(8):
            ring.prepare(iov[i:i + 1], True, fd, i, userdata=i)
        ring.submit()
        eq(len(ring.wait(min_results=1, max_results=1)), 1)
        eq(len(ring.wait(max_results=1, min_results=3)), 3)
        got = ring.wait(max_results=100, min_results=2)
        eq(2 <= len(got) <= 4, True)
        while len(got) < 4:
            one = ring.wait()
            eq(len(one) <= 1, True)
            got += one
        eq(ring.wait(max_results=100), [])
        gives(TypeError, ring.wait, 1)


@case
def ring_full():
    with registered(file("full", data(PAGE))) as fd, memory(PAGE) as shm:
        iov = io.make_iovec(shm, MOUNT)
        # No request starts before 4 are prepared.
        ring = io.make_ioring(MOUNT, 4, io_depth=4)
        for i in range(4):
            ring.prepare(iov[i:i + 1], True, fd, i)
        gives(errno.EAGAIN, ring.prepare, iov[8:9], True, fd, 0, userdata=[])
        eq([d.result for d in ring.submit().wait(min_results=4)], [1] * 4)
        ring.prepare(iov[:1], True, fd, 0)
        eq(ring.submit().wait(min_results=1, timeout=datetime.timedelta(milliseconds=50)), [])
        ring.destroy()


@case
def timeouts():
    ring = io.make_ioring(MOUNT, 4)
    for timeout, least in ((datetime.timedelta(milliseconds=30), 0.03), (0.25, 0.25), (0, 0),
                           (datetime.timedelta(seconds=-5), 0)):
        begun = time.monotonic()
        eq(ring.wait(min_results=1, timeout=timeout), [])
        took = time.monotonic() - begun
        eq(least <= took < least + 60, True)
    gives(TypeError, ring.wait, min_results=1, timeout=[])


class Raised(Exception):
    """Raised by signal handlers."""


@case
def signals_end_a_wait():
    def raises(signum, frame):
        raise Raised

    with memory(PAGE) as shm, registered(file("signal", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4)
        old = signal.signal(signal.SIGALRM, raises)
        try:
            for i in range(3):
                ring.prepare(iov[i:i + 1], True, fd, 0, userdata=i)
            ring.submit()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                ring.wait(min_results=4)
                raise AssertionError("a wait for 4 of 3 ended")
            except Raised:
                pass
        finally:
            signal.signal(signal.SIGALRM, old)
        # The next call returns the completions that the interrupted call had taken.
        got = [ring.wait(min_results=n, timeout=5) for n in (1, 2)]
        eq([len(g) for g in got], [1, 2])
        eq(sorted(d.userdata for g in got for d in g), [0, 1, 2])


@contextlib.contextmanager
def interrupted_where_requests_end():
    """Let a signal whose handler raises arrive in the first call that takes a completion: Python
    runs the handler after the call, before its result is stored."""
    def raises(signum, frame):
        raise Raised

    call, calls = usrbio._lib.hf3fs_wait_for_ios, []

    def wait_for_ios(*arguments):
        got = call(*arguments)
        if got > 0 and not calls:
            calls.append(got)
            signal.raise_signal(signal.SIGALRM)
        return got

    old = signal.signal(signal.SIGALRM, raises)
    usrbio._lib.hf3fs_wait_for_ios = wait_for_ios
    try:
        yield calls
    finally:
        usrbio._lib.hf3fs_wait_for_ios = call
        signal.signal(signal.SIGALRM, old)


@case
def signals_lose_no_completion():
    with memory(PAGE) as shm, registered(file("lost", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4, io_depth=2)
        with interrupted_where_requests_end() as calls:
            ring.prepare(iov[:1], True, fd, 0, userdata=0)
            ring.prepare(iov[1:3], True, fd, 0, userdata=1).submit()
            gives(Raised, ring.wait, min_results=2, timeout=20)
            eq(calls, [2])
        done = ring.wait(min_results=2, timeout=5)
        eq([(d.userdata, d.result) for d in done], [(0, 1), (1, 2)])
        eq(ring.wait(max_results=4), [])
    # Leaving the block above closed the memory, so no request holds it any more.


@case
def signals_that_come_in_a_slice():
    def raises(signum, frame):
        raise Raised

    with memory(PAGE) as shm, registered(file("slice", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        # A partial batch starts after 60 ms, 40 ms after the signal.
        ring = io.make_ioring(MOUNT, 16, io_depth=-8, timeout=60)
        old = signal.signal(signal.SIGALRM, raises)
        try:
            ring.prepare(iov[:], True, fd, 0, userdata="one").submit()
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            gives(Raised, ring.wait, min_results=2, timeout=20)
        finally:
            signal.signal(signal.SIGALRM, old)
        done = ring.wait(min_results=1, timeout=5)
        eq([(d.userdata, d.result) for d in done], [("one", PAGE)])


@case
def completions_are_taken_once_wherever_it_ends():
    settle, lines = usrbio.ioring._settle.__code__, []

    def trace(frame, event, argument):
        if frame.f_code is not settle:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == stop:
                raise Raised
        return trace

    with memory(PAGE) as shm, registered(file("once", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4, io_depth=3)
        old = sys.gettrace()
        for stop in range(1, 100):
            for i in range(3):
                ring.prepare(iov[i:i + 1], True, fd, 0, userdata=i)
            ring.submit()
            lines.clear()
            got = []
            sys.settrace(trace)
            try:
                got = ring.wait(min_results=3, timeout=20)
            except Raised:
                pass
            finally:
                sys.settrace(old)
            whole = len(lines) < stop
            while len(got) < 3:
                some = ring.wait(min_results=1, timeout=5)
                eq(len(some), 1)
                got += some
            eq([d.userdata for d in got], [0, 1, 2])
            eq(ring.wait(max_results=4), [])
            if whole:
                break
        eq((whole, stop > 20), (True, True))


@contextlib.contextmanager
def errors_of_c():
    """Collect lines of standard error in a list, complete at the end of the block."""
    lines, kept = [], os.dup(2)
    with tempfile.TemporaryFile() as f:
        os.dup2(f.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            f.seek(0)
            lines += f.read().decode().splitlines()


@case
def ring_to_which_nothing_comes():
    with memory(PAGE) as shm, registered(file("dead", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4, io_depth=4)
        ring.prepare(iov[:], True, fd, 0, userdata="one")
        with errors_of_c() as lines:
            # Forge the marker that the server writes for completions.
            ctypes.c_int32.from_address(ring.ior._ior.iov.base + 8).value = -1
            done = ring.wait(min_results=2)
            eq([(d.userdata, d.result) for d in done], [("one", -errno.EREMOTEIO)])
            begun = time.monotonic()
            for timeout in (None, 60):
                eq(ring.wait(min_results=1, timeout=timeout), [])
            eq(time.monotonic() - begun < 30, True)
            for _ in range(100):
                eq(ring.wait(), [])
            gives(errno.ENOTCONN, ring.prepare, iov[:], True, fd, 0)
            ring.destroy()
        eq(len([line for line in lines if "nonsense" in line]), 1)


@case
def requests_refused():
    path = file("refused", data(PAGE))
    with memory(PAGE) as shm, registered(path) as fd:
        iov = io.make_iovec(shm, MOUNT)
        reads, writes = io.make_ioring(MOUNT, 4), io.make_ioring(MOUNT, 4, for_read=False)
        gives(errno.EINVAL, reads.prepare, iov[:], False, fd, 0)
        gives(errno.EINVAL, writes.prepare, iov[:], True, fd, 0)
        gives(errno.EINVAL, reads.prepare, iov[:0], True, fd, 0)
        gives(errno.EACCES, writes.prepare, iov[:], False, fd, 0)
        gives(PermissionError, writes.prepare, iov[:], False, fd, 0)
        gives(ValueError, reads.prepare, iov[:], True, fd, -1)
        gives(ValueError, reads.prepare, iov[:], True, 1 << 32 | fd, 0)
        gives(TypeError, reads.prepare, shm.buf, True, fd, 0)
        gives(TypeError, reads.prepare, iov[:], True, fd, 0.5)
        with open(path, "rb") as other:
            e = gives(errno.EBADF, reads.prepare, iov[:], True, other.fileno(), 0)
            eq("register_fd" in str(e), True)
        eq(reads.submit().wait(), [])


@case
def blocks_are_not_crossed():
    with memory(4 * PAGE) as shm, registered(file("blocks", data(4 * PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT, block_size=PAGE)
        ring = io.make_ioring(MOUNT, 4)
        ring.prepare(iov[:PAGE], True, fd, 0).prepare(iov[1:PAGE + 1], True, fd, 0)
        eq(sorted(d.result for d in ring.submit().wait(min_results=2)), [-errno.EINVAL, PAGE])


@case
def rings_refused():
    for arguments in ({"entries": 0}, {"entries": -1}, {"entries": 4, "timeout": -1},
                      {"entries": 4, "io_depth": 5}, {"entries": 4, "flags": 1 << 40}):
        gives(errno.EINVAL, usrbio.ioring, MOUNT, **arguments)
    e = gives(errno.ENOENT, io.make_ioring, "/proc/self", 4)
    eq("penstock mount --plain" in str(e), True)
    gives(ValueError, io.make_ioring, MOUNT, 1 << 32)


@case
def holes_can_be_refused():
    path = file("refuse-holes")
    with open(path, "wb") as f:
        f.seek(1 << 20)
        f.write(b"end")
    with memory(PAGE) as shm, registered(path) as fd:
        iov = io.make_iovec(shm, MOUNT)
        for flags, want in ((0, PAGE), (2, -errno.ENODATA)):
            ring = io.make_ioring(MOUNT, 4, flags=flags)
            ring.prepare(iov[:], True, fd, (1 << 20) - PAGE + 3)
            eq(ring.submit().wait(min_results=1)[0].result, want)


@case
def priorities():
    with memory(PAGE) as shm, registered(file("priority", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        for priority in (io.IorPriority.HIGH, io.IorPriority.NORMAL, io.IorPriority.LOW, None):
            for flags in (0, 2):
                ring = io.make_ioring(MOUNT, 4, priority=priority, timeout=1, flags=flags)
                eq(ring.ior._ior.priority, priority or 0)
                eq(ring.ior._ior.flags, flags)
                eq(ring.prepare(iov[:], True, fd, 0).submit().wait(min_results=1)[0].result, PAGE)
                ring.destroy()


@case
def destroyed():
    with memory(PAGE) as shm, registered(file("destroyed", data(PAGE))) as fd:
        iov = io.make_iovec(shm, MOUNT)
        ring = io.make_ioring(MOUNT, 4)
        ring.prepare(iov[:], True, fd, 0).submit()
        ring.destroy()
        ring.destroy()
        eq(ring.ior.entries, 4)
        gives(errno.EINVAL, ring.prepare, iov[:], True, fd, 0)
        gives(errno.EINVAL, ring.submit)
        gives(errno.EINVAL, ring.wait, min_results=1)
        gives(errno.EINVAL, ring.wait)


run()
