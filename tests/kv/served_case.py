# SPDX-License-Identifier: MIT
"""Shared by the tests of a store behind a server: the server, and a client without the library."""
import base64
import errno
import glob
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [TESTS, os.path.join(TESTS, "serve")]

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import eq, true  # noqa: E402
from penstock import kv  # noqa: E402

MISS = -errno.ENOENT
NEW = c.O_WRITE | c.O_CREATE | c.O_EXCL
work = tempfile.mkdtemp(prefix="kv-served-", dir="/dev/shm")


def fresh():
    shutil.rmtree(work, ignore_errors=True)
    os.mkdir(work)


class Server:
    def __init__(self, *options, budget="64m", listen="127.0.0.1:0", write=True):
        self.root = f"{work}/store"
        os.makedirs(self.root, exist_ok=True)
        self.process = subprocess.Popen(
            [os.environ["PENSTOCK"], "serve", "--kv", self.root, "--budget", budget, "--listen",
             listen, *(["--write"] if write else []), *options], stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        match = re.search(r"listening on (?:unix:(.*)|(.*):(\d+))$", line)
        true(match, line)
        self.address = match[1] or (match[2], int(match[3]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)
        eq(self.process.returncode, 0)

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(60)
        self.process.stderr.close()

    def again(self):
        """Start another server at the same address."""
        return Server(listen=":".join(map(str, self.address)))

    def store(self, scheme="pst", who="", **options):
        return kv.Store(f"{scheme}://{who}{self.address[0]}:{self.address[1]}", **options)

    def disk(self, removed=True):
        """Return the bytes of blocks and temporary files.  removed: include deleted files that the
        server still has open; only valid while nothing changes them."""
        total = 0
        for fd in glob.glob(f"/proc/{self.process.pid}/fd/*") if removed else ():
            try:
                link, st = os.readlink(fd), os.stat(fd)
            except FileNotFoundError:
                continue
            if self.root in link and link.endswith(" (deleted)"):
                total += (st.st_size + 4095) // 4096 * 4096
        for path in self.files("b") + self.files("tmp"):
            try:
                total += (os.path.getsize(path) + 4095) // 4096 * 4096
            except FileNotFoundError:
                pass
        return total

    def files(self, at="b"):
        return [os.path.join(folder, name) for folder, _, names in os.walk(f"{self.root}/{at}")
                for name in names]


def get(store, space, key, size, timeout=None):
    """Return the block's bytes, or a negative errno."""
    room = bytearray(size)
    result = store.get(space, [key], [room], timeout)[0]
    if result < 0:
        true(not any(room), "a miss changed the buffer")
        return result
    return bytes(room[:result])


def soon(now):
    end = time.monotonic() + 60
    while not now():
        true(time.monotonic() < end, "not within a minute")
        time.sleep(0.01)


def text(value):
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def name(key, size=None, identity=b"m", tenant=b"", salt=b""):
    fields = [text(identity), text(tenant), text(salt), text(key)]
    return "/".join(["kv1", *fields, *([str(size)] if size is not None else [])])


def tail(key, block, space=0, hashed=0, crc=None):
    """Make a block's end, key and foot, as in docs/KV.md."""
    foot = struct.pack("<QQQQIII36s8sI", len(block), space, hashed, 0,
                       c.crc32c(block) if crc is None else crc, len(key), 1, b"", b"PSTKVB\r\n", 0)
    return key + foot + struct.pack("<I", c.crc32c(key + foot))


def fails(number, client, op, payload=b"", **fields):
    eq(client.ask(op, payload, **fields).err, number)


def put(client, key, block, **fields):
    """Publish a block with the second client.  Return the error number of the publication."""
    handle = client.open(name(key, len(block), **fields), NEW)
    whole = block + tail(key, block)
    eq(client.ask(c.WRITE, whole, handle=handle, count=len(whole)).err, 0)
    err = client.ask(c.SYNC, handle=handle).err
    client.ask(c.CLOSE, handle=handle)
    return err
