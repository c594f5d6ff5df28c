# SPDX-License-Identifier: MIT
"""The harness of the tests in Python: cases that print TAP, and what they share.

    @case
    def reads_past_the_end():
        eq(ring.wait(), [])

    run()

MOUNT is the directory under test, a mount of a daemon where DAEMON is set, else a plain one. What a
case publishes there must be gone when it has ended.
"""
import atexit
import contextlib
import errno
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from multiprocessing.shared_memory import SharedMemory

MOUNT = os.environ["MOUNT"]
DAEMON = "DAEMON" in os.environ
IOVS = f"{MOUNT}/3fs-virt/iovs"

_cases = []


class Skip(Exception):
    """What is missing."""


def case(function):
    _cases.append(function)
    return function


def eq(got, want):
    if got != want:
        raise AssertionError(f"got {_short(got)}, not {_short(want)}")


def _short(value):
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}..., {len(text)} characters"


def gives(err, function, *args, **kwargs):
    """It raises OSError with that errno, or that class; the exception is returned."""
    try:
        result = function(*args, **kwargs)
    except Exception as e:
        if isinstance(err, int):
            if not isinstance(e, OSError) or e.errno != err:
                raise
        elif type(e) is not err:
            raise
        return e
    name = errno.errorcode[err] if isinstance(err, int) else err.__name__
    raise AssertionError(f"{name} was to be raised, and {_short(result)} was returned")


def published():
    """Names of memory and rings; those of the daemon itself are others."""
    # By another process: daemons take the end of a listing for the end of who made it.
    names = subprocess.run(["ls", IOVS], check=True, capture_output=True, text=True).stdout
    return [name for name in names.split() if not name.startswith("submit-ios")]


def published_memory():
    return [name for name in published() if ".t" not in name]


def data(size, seed=1):
    """Bytes without a short period."""
    return b"".join((seed * 1000003 + i * 2654435761).to_bytes(8, "little")
                    for i in range((size + 7) // 8))[:size]


def file(name, content=b""):
    """A new file on the mount."""
    path = f"{work}/{name}"
    with open(path, "wb") as f:
        f.write(content)
    return path


@contextlib.contextmanager
def registered(path, flags=os.O_RDONLY):
    import hf3fs_py_usrbio
    fd = os.open(path, flags)
    try:
        hf3fs_py_usrbio.register_fd(fd)
        try:
            yield fd
        finally:
            hf3fs_py_usrbio.deregister_fd(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def memory(size):
    shm = SharedMemory(create=True, size=size)
    try:
        yield shm
    finally:
        shm.close()
        with contextlib.suppress(FileNotFoundError):
            shm.unlink()


def _run(function):
    try:
        function()
        gc.collect()
        eq(published(), [])
        return "ok", "", ""
    except Skip as e:
        return "ok", f" # SKIP {e}", ""
    except Exception:
        return "not ok", "", traceback.format_exc()


def run():
    only = os.environ.get("PST_TEST_CASE", "")
    cases = [c for c in _cases if not only or c.__name__ in only.split(",")]
    if not cases:
        print(f"1..0 # SKIP a case called {only}")
        return
    failed = 0
    for number, function in enumerate(cases, 1):
        what, note, text = _run(function)
        failed += what != "ok"
        print(f"{what} {number} {function.__name__}{note}")
        for line in text.splitlines():
            print(f"# {line}")
        sys.stdout.flush()
    print(f"1..{len(cases)}")
    sys.exit(1 if failed else 0)


work = tempfile.mkdtemp(prefix="test-", dir=MOUNT)
_pid = os.getpid()


@atexit.register
def _remove():
    if os.getpid() == _pid:
        shutil.rmtree(work, ignore_errors=True)
