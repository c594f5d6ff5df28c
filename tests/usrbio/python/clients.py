# SPDX-License-Identifier: MIT
"""Sequences of calls by which programs use the modules; each case is one program."""
import array
import concurrent.futures
import datetime
import errno
import importlib
import os
import subprocess
import sys
import threading
import time
from multiprocessing.shared_memory import SharedMemory

import tap
from hf3fs_fuse import io
from hf3fs_fuse.io import deregister_fd, extract_mount_point, make_ioring, make_iovec, register_fd
from tap import MOUNT, case, data, eq, file, gives, run

MIB = 1 << 20


@case
def C3_smoke():
    """3FS's own tests: a file read whole; a write ring whose size stat() shows; force_fsync()."""
    path = f"{tap.work}/smoke"
    doubles = array.array("d", range(MIB // 2))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    content = doubles.tobytes()
    eq(os.write(fd, content), len(content))
    os.close(fd)
    eq(io.read_file(path), content)

    path = f"{tap.work}/smoke-write"
    size = MIB
    shm = SharedMemory(create=True, size=size)
    iov = make_iovec(shm, extract_mount_point(tap.work))
    shm.unlink()
    ior = make_ioring(MOUNT, 100, for_read=False)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    register_fd(fd)
    iov[:] = data(size)
    ior.prepare(iov[:], False, fd, 0)
    eq(ior.submit().wait(min_results=1)[0].result, size)
    end = time.monotonic() + 10
    while os.stat(path).st_size != size and time.monotonic() < end:
        time.sleep(0.1)
    eq(os.stat(path).st_size, size)
    ior.prepare(iov[:], False, fd, size)
    eq(ior.submit().wait(min_results=1)[0].result, size)
    eq(io.force_fsync(fd), 0)
    eq(os.stat(path).st_size, 2 * size)
    deregister_fd(fd)
    os.close(fd)
    with open(path, "rb") as f:
        eq(f.read() == bytes(shm.buf) * 2, True)

    fd = os.open(path, os.O_RDONLY)
    register_fd(fd)
    gives(13, ior.prepare, iov[:], False, fd, 0)
    deregister_fd(fd)
    os.close(fd)
    del iov
    shm.close()


class PageStore:
    """SGLang's HiCache and vLLM's connector: pages of one large file, two rings, and two memories
    whose names are unlinked at once."""

    def __init__(self, path, size, page, entries):
        # These programs use the module that hf3fs_fuse.io has imported.
        shared = importlib.import_module("multiprocessing").shared_memory.SharedMemory
        self.page = page
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self.fd, size)
        register_fd(self.fd)
        mount = extract_mount_point(path)
        self.shm_r = shared(size=page * entries, create=True)
        self.shm_w = shared(size=page * entries, create=True)
        self.ior_r = make_ioring(mount, entries, for_read=True, timeout=1, numa=-1)
        self.ior_w = make_ioring(mount, entries, for_read=False, timeout=1, numa=-1)
        self.iov_r = make_iovec(self.shm_r, mount)
        self.iov_w = make_iovec(self.shm_w, mount)
        self.shm_r.unlink()
        self.shm_w.unlink()
        self.lock_r, self.lock_w = threading.RLock(), threading.RLock()

    def read(self, offsets):
        with self.lock_r:
            at = 0
            for off in offsets:
                self.ior_r.prepare(self.iov_r[at:at + self.page], True, self.fd, off)
                at += self.page
            done = self.ior_r.submit().wait(min_results=len(offsets),
                                            timeout=datetime.timedelta(seconds=20))
            return [d.result for d in done], bytes(self.shm_r.buf[:at])

    def write(self, offsets, pages):
        with self.lock_w:
            at = 0
            for off, content in zip(offsets, pages):
                self.shm_w.buf[at:at + self.page] = content
                self.ior_w.prepare(self.iov_w[at:at + self.page], False, self.fd, off)
                at += self.page
            done = self.ior_w.submit().wait(min_results=len(offsets),
                                            timeout=datetime.timedelta(seconds=20))
            return [d.result for d in done]

    def close(self):
        deregister_fd(self.fd)
        os.close(self.fd)
        del self.ior_r, self.ior_w, self.iov_r, self.iov_w
        self.shm_r.close()
        self.shm_w.close()


@case
def C4_sglang_pages():
    page, entries, pages = 16384, 32, 256
    store = PageStore(f"{tap.work}/pages", page * pages, page, entries)
    wanted = {i: data(page, i + 1) for i in range(pages)}
    order = sorted(wanted, key=lambda i: i * 97 % pages)
    for at in range(0, pages, entries):
        some = order[at:at + entries]
        eq(store.write([i * page for i in some], [wanted[i] for i in some]), [page] * len(some))
    os.fsync(store.fd)
    for at in range(0, pages, entries):
        some = order[-at - entries:len(order) - at]
        results, content = store.read([i * page for i in some])
        eq(results, [page] * len(some))
        eq(content == b"".join(wanted[i] for i in some), True)
    # One page beyond the end of the file, in a batch with others.
    eq(store.read([0, pages * page, page])[0], [page, 0, page])
    store.close()


@case
def C4_sglang_threads():
    page, entries = 4096, 16
    store = PageStore(f"{tap.work}/threads", page * 1024, page, entries)

    def work(number):
        for turn in range(8):
            at = [(number * 128 + turn * entries + i) * page for i in range(entries)]
            content = [data(page, off + 1) for off in at]
            eq(store.write(at, content), [page] * entries)
            results, got = store.read(at)
            eq(results, [page] * entries)
            eq(got == b"".join(content), True)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    store.close()


class ThreadClient:
    """LMCache: a client per thread, named memory, one request at a time."""

    def __init__(self, size):
        name = f"3FSClient_{os.getpid()}_{threading.get_ident()}"
        self.size = size
        self.shm_r = SharedMemory(name=f"{name}_rd", size=size, create=True)
        self.shm_w = SharedMemory(name=f"{name}_wt", size=size, create=True)
        self.iov_r = make_iovec(shm=self.shm_r, hf3fs_mount_point=MOUNT, numa=-1)
        self.iov_w = make_iovec(shm=self.shm_w, hf3fs_mount_point=MOUNT, numa=-1)
        self.ior_r = make_ioring(MOUNT, 256, for_read=True, timeout=200, numa=-1)
        self.ior_w = make_ioring(MOUNT, 256, for_read=False, timeout=200, numa=-1)

    def move(self, fd, length, write):
        """Move all bytes in pieces of at most the memory's size; yield the next piece's offset."""
        iov, ior = (self.iov_w, self.ior_w) if write else (self.iov_r, self.ior_r)
        for off in range(0, length, self.size):
            n = min(self.size, length - off)
            if write:
                yield off, self.shm_w.buf[:n]
            ior.prepare(iov[:n], not write, fd, off)
            eq(ior.submit().wait(min_results=1)[0].result, n)
            if not write:
                yield off, self.shm_r.buf[:n]

    def put(self, path, content):
        fd = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        register_fd(fd)
        for off, view in self.move(fd, len(content), True):
            view[:] = content[off:off + len(view)]
        os.rename(f"{path}.tmp", path)
        deregister_fd(fd)
        os.close(fd)

    def get(self, path, length):
        fd = os.open(path, os.O_RDONLY)
        register_fd(fd)
        content = bytearray(length)
        for off, view in self.move(fd, length, False):
            content[off:off + len(view)] = view
        deregister_fd(fd)
        os.close(fd)
        return content

    def close(self):
        self.ior_r = self.ior_w = self.iov_r = self.iov_w = None
        for shm in (self.shm_r, self.shm_w):
            shm.close()
            shm.unlink()


@case
def C4_lmcache_client_per_thread():
    eq(extract_mount_point(MOUNT), MOUNT)

    def work(number):
        client = ThreadClient(64 << 10)
        for turn in range(5):
            path = f"{tap.work}/chunk-{number}-{turn}"
            content = data((150 << 10) + number, number * 10 + turn)
            client.put(path, content)
            eq(client.get(path, len(content)) == content, True)
        client.close()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@case
def C4_vllm_release():
    """vLLM frees memory before rings, by setting names to None, and twice."""
    store = PageStore(f"{tap.work}/release", MIB, 4096, 8)
    store.write([0], [data(4096)])
    for name in ("iov_r", "iov_w", "ior_r", "ior_w"):
        setattr(store, name, None)
    store.shm_r.close()
    store.shm_w.close()
    deregister_fd(store.fd)
    deregister_fd(store.fd)
    os.close(store.fd)
    gives(errno.EBADF, os.fstat, store.fd)


@case
def C4_checkpoint_writer():
    """A writer of tensors: memoryview(iov.iov) to write through, userdata for each piece, polling,
    a large ring of depth -1, memory that is never closed."""
    pieces = [data(3000 + i * 7, i) for i in range(50)]
    path = f"{tap.work}/tensors"

    def save():
        shm = SharedMemory(name=f"hf3fs-iovs-{os.getpid()}", create=True, size=MIB)
        iov = make_iovec(shm, MOUNT, block_size=0, numa=-1)
        view = memoryview(iov.iov)
        ior = make_ioring(MOUNT, 100 << 10, for_read=False, io_depth=-1, numa=-1)
        shm.unlink()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_SYNC)
        register_fd(fd)
        at = 0
        for content in pieces:
            view[at:at + len(content)] = content
            ior.prepare(iov[at:at + len(content)], False, fd, at, userdata=[at, len(content)])
            at += len(content)
        ring, done = ior.submit(), []
        while len(done) < len(pieces):
            done += ring.wait(max_results=1000, min_results=0, timeout=datetime.timedelta(0))
            time.sleep(0.001)
        eq([d.result for d in done], [d.userdata[1] for d in done])
        os.truncate(fd, at)
        deregister_fd(fd)
        os.close(fd)

    save()
    with open(path, "rb") as f:
        eq(f.read() == b"".join(pieces), True)


@case
def script_that_closes_nothing():
    """3FS's example leaves everything to the interpreter's exit, which must print nothing."""
    path = file("script", data(1024))
    script = """
from hf3fs_fuse.io import make_iovec, make_ioring, register_fd, deregister_fd
from multiprocessing.shared_memory import SharedMemory
import os, sys
shm = SharedMemory(size=1024, create=True)
iov = make_iovec(shm, sys.argv[1], 0, -1)
shm.unlink()
ior = make_ioring(sys.argv[1], 100, True, 0)
fd = os.open(sys.argv[2], os.O_RDONLY)
register_fd(fd)
for part, off in (iov[:512], 512), (iov[512:], 0):
    ior.prepare(part, True, fd, off, userdata=len(memoryview(part)))
resv = ior.submit().wait(min_results=2)
for res in resv:
    assert res.result == res.userdata
ior.prepare(iov[:512], True, fd, 0).submit()
"""
    got = subprocess.run([sys.executable, "-c", script, MOUNT, path], capture_output=True,
                         text=True, timeout=60)
    eq((got.returncode, got.stdout, got.stderr), (0, "", ""))


run()
