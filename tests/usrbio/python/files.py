# SPDX-License-Identifier: MIT
"""Mount points, registered files, file sizes, links, holes, read_file()."""
import errno
import os
import tempfile

import tap
from hf3fs_fuse import io
from tap import DAEMON, MOUNT, Skip, case, data, eq, file, gives, run

MIB = 1 << 20


@case
def mount_points():
    path = file("found")
    for inside in (path, os.fsencode(path), tap.work, MOUNT):
        eq(io.extract_mount_point(inside), MOUNT)
    eq(io.extract_mount_point("/proc/self/status"), None)
    eq(io.extract_mount_point(f"{MOUNT}/no-such-file"), None)
    gives(ValueError, io.extract_mount_point, "a\0b")
    gives(TypeError, io.extract_mount_point, 3)


@case
def registration():
    path = file("registered", b"x")
    fd = os.open(path, os.O_RDONLY)
    eq(io.register_fd(fd, flags=0), None)
    gives(errno.EINVAL, io.register_fd, fd)
    io.deregister_fd(fd)
    io.register_fd(fd)
    io.deregister_fd(fd)
    io.deregister_fd(fd)
    os.close(fd)
    gives(errno.EBADF, io.register_fd, fd)
    gives(ValueError, io.register_fd, 1 << 32)
    with tempfile.TemporaryFile(dir="/dev/shm") as other:
        e = gives(errno.EBADF, io.register_fd, other.fileno())
        eq("penstock mount --plain" in str(e), True)


@case
def lengths():
    with open(file("length", b"abc"), "rb") as f:
        eq(io.force_fsync(f.fileno()), 0)
    eq(io.force_fsync(-1), -1)
    eq(io.force_fsync(1 << 20), -1)
    with tempfile.TemporaryFile(dir="/dev/shm") as other:
        eq(io.force_fsync(other.fileno()), -1)


@case
def hard_links():
    path = file("linked", b"content")
    io.hardlink(path, path + ".2")
    eq(os.path.samefile(path, path + ".2"), True)
    e = gives(errno.EEXIST, io.hardlink, path, path + ".2")
    eq((e.filename, e.filename2), (path, path + ".2"))
    gives(errno.ENOENT, io.hardlink, path + ".3", path + ".4")
    gives(FileNotFoundError, io.hardlink, path, f"{tap.work}/nowhere/x")


@case
def holes():
    path = file("punched", data(4 * MIB))
    try:
        io.punch_hole(path, [MIB], [2 * MIB])
    except OSError as e:
        if e.errno == errno.EOPNOTSUPP:
            raise Skip("a file system that frees ranges") from None
        raise
    with open(path, "r+b") as f:
        content = f.read()
        eq(content == data(MIB) + bytes(MIB) + data(4 * MIB)[2 * MIB:], True)
        io.punch_hole(f.fileno(), [0, 3 * MIB], [MIB, 4 * MIB], 0)
        io.punch_hole(fd=f.fileno(), start=[], end=[])
    with open(path, "rb") as f:
        eq(f.read() == bytes(2 * MIB) + content[2 * MIB:3 * MIB] + bytes(MIB), True)
        gives(errno.EBADF, io.punch_hole, f.fileno(), [0], [MIB])
    eq(os.stat(path).st_size, 4 * MIB)
    gives(RuntimeError, io.punch_hole, path, [0], [])
    gives(RuntimeError, io.punch_hole, path, [0] * 1001, [1] * 1001)
    gives(errno.ENOENT, io.punch_hole, path + ".no", [0], [MIB])
    gives(ValueError, io.punch_hole, path, [-1], [0])
    gives(TypeError, io.punch_hole)


@case
def whole_files():
    for size in (0, 1, 4096, 100_001):
        content = data(size)
        path = file("whole", content)
        eq(io.read_file(path), content)
        eq(io.read_file(path, MOUNT, block_size=4096), content)
        eq(io.read_file(path, block_size=1000, off=size // 2), content[size // 2:])
        eq(io.read_file(path, off=size, priority=io.IorPriority.HIGH), b"")
    eq(len(os.listdir("/proc/self/fd")) < 100, True)


@case
def blocks_for_a_callback():
    content = data(10_000)
    path = file("blocks", content)
    seen = []

    def take(view, off):
        seen.append((off, bytes(view)))

    eq(io.read_file(path, block_size=4096, cb=take), None)
    eq(seen, [(at, content[at:at + 4096]) for at in (0, 4096, 8192)])

    seen.clear()

    def jump(view, off):
        seen.append((off, len(view)))
        return 9_000 if off == 0 else 20_000

    eq(io.read_file(path, block_size=4096, cb=jump), None)
    eq(seen, [(0, 4096), (9_000, 1_000)])

    seen.clear()

    def stop(view, off):
        seen.append(off)
        return "enough"

    io.read_file(path, block_size=4096, cb=stop)
    eq(seen, [0])

    def fail(view, off):
        raise LookupError("the callback's own")

    gives(LookupError, io.read_file, path, cb=fail)


@case
def files_that_cannot_be_read():
    gives(errno.ENOENT, io.read_file, f"{MOUNT}/no-such-file")
    gives(errno.EBADF, io.read_file, "/proc/self/status")
    gives(errno.EINVAL if DAEMON else errno.EISDIR, io.read_file, tap.work)


run()
