#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""missing.py WHAT: succeed if this machine lacks WHAT, for the conditions in tests/skips."""
import ctypes
import errno
import os
import shutil
import struct
import sys
import tempfile

LIBC = ctypes.CDLL(None, use_errno=True)
CAP_SETUID, CAP_SYS_ADMIN = 7, 21
CLONE_FS = 0x200


def refused(number, *args):
    """Return whether the kernel, or a filter of system calls, refuses this call."""
    return (LIBC.syscall(number, *args) == -1 and
            ctypes.get_errno() in (errno.EPERM, errno.ENOSYS, errno.EACCES))


def has_right(bit, of="CapEff"):
    with open("/proc/self/status", encoding="ascii") as status:
        caps = [int(line.split()[1], 16) for line in status if line.startswith(of + ":")]
    return bool(caps[0] >> bit & 1)


def in_scratch(how):
    """Return whether how fails with a file in the tests' directory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as place:
        try:
            return not how(place)
        except OSError:
            return True


def direct(place):
    os.close(os.open(place + "/file", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    # File systems in memory accept the flag since Linux 6.6, but have no disk.
    return os.popen(f"stat -f -c %T {place}").read().strip() not in ("tmpfs", "ramfs")


def unnamed(place):
    os.close(os.open(place, os.O_RDWR | os.O_TMPFILE))
    return True


def acl(place):
    # An ACL: only the owner reads and writes.
    entries = (1, 6, 0xffffffff, 4, 0, 0xffffffff, 0x20, 0, 0xffffffff)
    os.setxattr(place, "system.posix_acl_default", struct.pack("<I" + "HHI" * 3, 2, *entries))
    return True


def holes(place):
    with open(place + "/file", "wb") as file:
        file.truncate(1 << 20)
        return os.fstat(file.fileno()).st_blocks == 0


def ptrace():
    pid = os.fork()
    if pid == 0:
        os._exit(0 if LIBC.ptrace(0, 0, None, None) == 0 else 1)
    return os.waitpid(pid, 0)[1] != 0


def fuse():
    if not os.access("/dev/fuse", os.W_OK):
        return True
    # A set-uid program gets no capability that the bounding set lacks, as in a container.
    return not (has_right(CAP_SYS_ADMIN) or
                (shutil.which("fusermount3") and has_right(CAP_SYS_ADMIN, "CapBnd")))


# Numbers of system calls are the same on all machines, except mbind's.
WHAT = {
    "io_uring": lambda: refused(425, 0, None),
    "mbind": lambda: os.uname().machine != "x86_64" or refused(237, None, 0, 0, None, 0, 0),
    "fuse": fuse,
    "ptrace": ptrace,
    "admin": lambda: not has_right(CAP_SYS_ADMIN),
    "unshare": lambda: LIBC.unshare(CLONE_FS) != 0,
    "setuid": lambda: not has_right(CAP_SETUID),
    "O_DIRECT": lambda: in_scratch(direct),
    "O_TMPFILE": lambda: in_scratch(unnamed),
    "ACL": lambda: in_scratch(acl),
    "holes": lambda: in_scratch(holes),
}

sys.exit(0 if WHAT[sys.argv[1]]() else 1)
