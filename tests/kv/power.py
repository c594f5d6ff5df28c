#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""power.py LAZYFS: what a power loss leaves of a store of blocks, and a disk that hangs.

A store works on lazyfs, which logs each change and each sync.  For points of the log, directories
that a power loss may leave are built and opened: each block is right or a miss, the budget holds,
and the bytes that are counted are those on the disk.  PST_SOAK=1 checks all points.
"""
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tier"))

from lazy import MARK, Disk, read_log  # noqa: E402 pylint: disable=wrong-import-position
from penstock import kv  # noqa: E402 pylint: disable=wrong-import-position

LAZYFS = sys.argv[1]
SOAK = bool(os.environ.get("PST_SOAK"))
BUDGET = 1 << 20
KEYS = [f"key {n}".encode() for n in range(24)]


class Skip(Exception):
    pass


def block(key):
    """Return the bytes of a key, which never change."""
    return random.Random(key).randbytes(30000 + 777 * KEYS.index(key))


class Mount:
    def __init__(self, scratch):
        self.dir = os.path.join(scratch, "mnt")
        self.log = os.path.join(scratch, "log")
        os.mkdir(self.dir)
        if not os.path.exists(LAZYFS):
            raise Skip("the program lazyfs (libfuse3-dev)")
        if not os.path.exists("/dev/fuse"):
            raise Skip("/dev/fuse")
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen([LAZYFS, self.dir, self.log], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.process.wait()
            raise Skip("the right to mount by FUSE")

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=60)


def on_disk(root):
    """Return the bytes of the files of blocks, as the budget counts them."""
    total = 0
    for at, _, names in os.walk(root):
        if "/b/" in at[len(root):] + "/" or "/tmp" in at[len(root):]:
            total += sum((os.path.getsize(os.path.join(at, n)) + 4095) // 4096 * 4096
                         for n in names)
    return total


def judge(root):
    """Open what is left.  Return the number of blocks that still exist."""
    there = 0
    with kv.Store([root], BUDGET, threads=1) as store:
        space = store.space("m", "t")
        stat = store.stat()
        assert stat["used"] <= BUDGET, stat
        assert stat["used"] == on_disk(root), (stat, on_disk(root))
        for key in KEYS:
            want = block(key)
            room = bytearray(80000)
            got, = store.get(space, [key], [room])
            assert got in (-errno.ENOENT, -errno.EBADMSG, len(want)), (key, got)
            assert got < 0 or room[:got] == want, f"{key} has wrong bytes"
            assert got >= 0 or not any(room), f"{key} left bytes of a failed get"
            there += got >= 0
        assert store.set(space, KEYS[:1], [block(KEYS[0])]) == [0]
    return there


def work(root):
    rng = random.Random(3)
    for sync in (False, True, False):
        with kv.Store([root], BUDGET, threads=2, sync=sync) as store:
            space = store.space("m", "t")
            for _ in range(30):
                keys = rng.sample(KEYS, 3)
                if rng.random() < 0.2:
                    store.delete(space, keys)
                else:
                    assert store.set(space, keys, [block(key) for key in keys]) == [0] * 3
                room = bytearray(80000)
                store.get(space, keys[:1], [room])


def after_a_power_loss(scratch):
    mount = Mount(scratch)
    try:
        root = os.path.join(mount.dir, "root")
        os.mkdir(root)
        fd = os.open(mount.dir, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        work(root)
    finally:
        mount.close()
    log = [rec for rec in read_log(mount.log) if rec[0] != MARK]
    rng, disk, seen, kept = random.Random(5), Disk(), set(), 0
    points = set(range(3, len(log)))
    if not SOAK:
        points = set(range(3, 40, 4)) | set(rng.sample(range(40, len(log)), 12))
    for at, rec in enumerate(log):
        disk.apply(rec)
        if at not in points:
            continue
        for state in disk.states(rng, 4 if SOAK else 1):
            key = disk.key(state)
            if key in seen:
                continue
            seen.add(key)
            to = os.path.join(scratch, "state")
            disk.build(state, to, mount.dir)
            if os.path.isdir(os.path.join(to, "root")):
                kept += judge(os.path.join(to, "root"))
            shutil.rmtree(to)
    # Some blocks must survive: otherwise nothing was tested.
    assert len(seen) > 50 and kept > len(seen), (len(seen), kept)
    print(f"# {len(seen)} states, {kept} blocks of them found whole")


def a_disk_that_hangs(scratch):
    """While the file system's server is stopped, batches end; they work again when it continues."""
    mount = Mount(scratch)
    try:
        root = os.path.join(mount.dir, "root")
        os.mkdir(root)
        store = kv.Store([root], BUDGET, threads=2)
        space = store.space("m")
        assert store.set(space, KEYS[:2], [block(key) for key in KEYS[:2]]) == [0, 0]
        mount.process.send_signal(signal.SIGSTOP)
        # End the test if it hangs.
        end = threading.Timer(60, mount.process.kill)
        end.start()
        room = [bytearray(80000), bytearray(80000)]
        for _ in range(2):
            assert store.get(space, KEYS[:2], room, timeout=0.2) == [-errno.ETIMEDOUT] * 2
        assert store.set(space, KEYS[2:3], [block(KEYS[2])], timeout=0.2) == [-errno.ETIMEDOUT]
        assert store.lookup(space, KEYS[:1]) == [len(block(KEYS[0]))]
        assert not any(room[0]) and not any(room[1])
        mount.process.send_signal(signal.SIGCONT)
        for key in KEYS[:2]:
            assert store.get(space, [key], room[:1]) == [len(block(key))]
            assert room[0].startswith(block(key))
        end.cancel()
        store.close()
    finally:
        mount.process.send_signal(signal.SIGCONT)
        mount.close()


def main():
    failed = 0
    cases = [after_a_power_loss, a_disk_that_hangs]
    for nr, case in enumerate(cases, 1):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                case(scratch)
                print(f"ok {nr} {case.__name__}")
            except Skip as e:
                print(f"ok {nr} {case.__name__} # SKIP {e}")
            except AssertionError as e:
                failed += 1
                print(f"not ok {nr} {case.__name__}\n# {e!r}")
    print(f"1..{len(cases)}")
    return failed > 0


sys.exit(main())
