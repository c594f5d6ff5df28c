# SPDX-License-Identifier: MIT
"""Shared memory and rings under the names that programs written for 3FS import.

    from hf3fs_fuse.io import make_iovec, make_ioring, register_fd, deregister_fd

A layer over hf3fs_py_usrbio that publishes the memory of a SharedMemory.
"""
import contextlib
import errno
# Programs rely on this import: they use multiprocessing.shared_memory without importing it.
import multiprocessing.shared_memory
import os
import uuid
import weakref

import hf3fs_py_usrbio as h3fio
from hf3fs_py_usrbio import (deregister_fd, extract_mount_point, force_fsync, hardlink,
                             punch_hole, register_fd)

__all__ = ["IorPriority", "deregister_fd", "extract_mount_point", "force_fsync", "hardlink",
           "iovec", "ioring", "make_iovec", "make_ioring", "punch_hole", "read_file",
           "register_fd"]


class IorPriority:
    HIGH = -1
    NORMAL = 0
    LOW = 1


class iovec:
    """Published memory: iov is hf3fs_py_usrbio's object, link the path of the link.

    The link is removed at exit, or before, with the last of this object, iov and its slices.
    shm, the memory's owner if any, is kept until then.
    """

    def __init__(self, iov, link, shm=None):
        self.iov = iov
        self.link = link
        weakref.finalize(iov, _withdraw, link, os.getpid(), shm)

    def __getitem__(self, index):
        return self.iov[index]

    def __setitem__(self, index, value):
        self.iov[index] = value


def _withdraw(link, pid, shm):
    # After a fork the link belongs to the parent process.
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.unlink(link)


class ioring:
    """A wrapper of hf3fs_py_usrbio's ring ior that also accepts iovecs of this module."""

    def __init__(self, ior):
        self.ior = ior

    @staticmethod
    def size_for_entries(entries):
        return h3fio.ioring.size_for_entries(entries)

    def prepare(self, iov, *args, **kwargs):
        return self.ior.prepare(iov.iov if isinstance(iov, iovec) else iov, *args, **kwargs)

    def submit(self):
        return self.ior.submit()

    def wait(self, *args, **kwargs):
        return self.ior.wait(*args, **kwargs)

    def destroy(self):
        self.ior.destroy()


def make_iovec(shm, hf3fs_mount_point, block_size=0, numa=-1):
    """Publish the memory of a multiprocessing.shared_memory.SharedMemory.

    All pages are allocated: without room in shared memory this call raises OSError, and
    later accesses cannot raise SIGBUS.  The caller may call shm.unlink() right after this.
    It may call shm.close() when no requests are in flight; the iovec is unusable after that.
    """
    _allocate(shm)
    name = str(uuid.uuid4())
    block = f".b{block_size}" if block_size > 0 else ""
    link = f"{os.fspath(hf3fs_mount_point)}/3fs-virt/iovs/{name}{block}"
    os.symlink(f"/dev/shm/{shm.name}", link)
    try:
        iov = h3fio.iovec(shm.buf, name, hf3fs_mount_point, block_size, numa)
    except BaseException:
        os.unlink(link)
        raise
    return iovec(iov, link, shm)


def make_ioring(hf3fs_mount_point, entries, for_read=True, io_depth=0, priority=None,
                timeout=None, numa=-1, flags=0):
    """Make a ring, with the arguments of hf3fs_py_usrbio.ioring."""
    return ioring(h3fio.ioring(hf3fs_mount_point, entries, for_read, io_depth, priority, timeout,
                               numa, flags))


def read_file(fn, hf3fs_mount_point=None, block_size=1 << 30, off=0, priority=None, cb=None):
    """Read a file from an offset to its end, in blocks of block_size bytes.

    Without cb, return the bytes.  Otherwise call cb(view, offset) for each block; the memoryview
    is valid during the call.  If cb returns an int, reading continues at that offset; any other
    true value ends the reading.
    """
    with contextlib.ExitStack() as last:
        fd = os.open(fn, os.O_RDONLY | os.O_CLOEXEC)
        last.callback(os.close, fd)
        register_fd(fd)
        last.callback(deregister_fd, fd)
        if hf3fs_mount_point is None:
            hf3fs_mount_point = extract_mount_point(fn)
        # Allocate no more memory than the file has bytes.
        shm = multiprocessing.shared_memory.SharedMemory(
            create=True, size=min(block_size, max(os.fstat(fd).st_size, 1)))
        last.callback(shm.close)
        try:
            iov = make_iovec(shm, hf3fs_mount_point)
        finally:
            shm.unlink()
        ior = make_ioring(hf3fs_mount_point, 1, priority=priority)
        last.callback(ior.destroy)

        parts = []
        while True:
            done = ior.prepare(iov[:], True, fd, off).submit().wait(min_results=1)[0].result
            if done < 0:
                raise OSError(-done, os.strerror(-done), fn)
            if done == 0:
                break
            if cb is None:
                parts.append(bytes(shm.buf[:done]))
            else:
                with shm.buf[:done] as view:
                    said = cb(view, off)
                if type(said) is int:
                    off = said
                    continue
                if said:
                    break
            if done < shm.size:
                break
            off += done
        return b"".join(parts) if cb is None else None


def _allocate(shm):
    try:
        fd = os.open(f"/dev/shm/{shm.name}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # already unlinked: no other process can open it
        return
    size = len(shm.buf)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as e:
        if e.errno == errno.ENOSPC:
            e.strerror = (f"shared memory has no room for {size} bytes: see 'df /dev/shm'; a "
                          "container takes --shm-size, a machine 'mount -o remount,size='")
        raise
    finally:
        os.close(fd)
