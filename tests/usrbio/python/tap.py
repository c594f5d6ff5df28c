# SPDX-License-Identifier: MIT
"""Shared by the tests of the Python modules.

MOUNT is the directory under test: a daemon's mount if DAEMON is set, otherwise a plain directory.
What a case publishes there must be gone at its end.
"""
import atexit
import contextlib
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from multiprocessing.shared_memory import SharedMemory

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from cases import Skip, case, data, eq, gives, run_cases  # noqa: E402 # pylint: disable=C0413

__all__ = ["DAEMON", "IOVS", "MOUNT", "Skip", "case", "data", "eq", "file", "gives", "memory",
           "published", "published_memory", "registered", "run", "work"]

MOUNT = os.environ["MOUNT"]
DAEMON = "DAEMON" in os.environ
IOVS = f"{MOUNT}/3fs-virt/iovs"


def published():
    """Return names of published memory and rings, without the daemon's own links."""
    # List in another process: daemons think that a process ended when its listing ends.
    names = subprocess.run(["ls", IOVS], check=True, capture_output=True, text=True).stdout
    return [name for name in names.split() if not name.startswith("submit-ios")]


def published_memory():
    return [name for name in published() if ".t" not in name]


def file(name, content=b""):
    """Make a file on the mount.  Return its path."""
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


def _nothing_is_left():
    gc.collect()
    eq(published(), [])


def run():
    sys.exit(0 if run_cases(after=_nothing_is_left) else 1)


work = tempfile.mkdtemp(prefix="test-", dir=MOUNT)
_pid = os.getpid()


@atexit.register
def _remove():
    if os.getpid() == _pid:
        shutil.rmtree(work, ignore_errors=True)
