# SPDX-License-Identifier: MIT
"""Find out which part of a file the page cache holds, and change it."""
import ctypes
import mmap
import os

PAGE = mmap.PAGESIZE
MOST = 0.99  # least part in memory of files that count as in memory
LEAST = 0.01  # largest part in memory of files that count as on the disk

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def pages_of(path):
    """Return how many pages of the file are cached, and how many it has."""
    size = os.path.getsize(path)
    pages = (size + PAGE - 1) // PAGE
    if not pages:
        return 0, 0
    state = ctypes.create_string_buffer(pages)
    with open(path, "rb") as file:
        # Python's own mmap has no PROT_NONE before 3.13.
        at = libc.mmap(None, size, 0, mmap.MAP_SHARED, file.fileno(), 0)
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"cannot map {path}")
    failed = libc.mincore(at, size, state)
    libc.munmap(at, size)
    if failed:
        raise OSError(ctypes.get_errno(), f"mincore of {path}")
    raw = state.raw
    # Only the lowest bit has a meaning; the others are reserved.
    return pages - raw.count(b"\0"), pages


def resident(files):
    """Return the part of the files that is in memory, 0.0 to 1.0."""
    found = [pages_of(path) for path in files]
    return sum(there for there, _ in found) / max(sum(pages for _, pages in found), 1)


def warm(files):
    """Read everything once, unless it is in memory already."""
    buffer = bytearray(4 << 20)
    for path in files:
        there, pages = pages_of(path)
        if there == pages:
            continue
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def drop(files):
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())  # because only clean pages can be dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def prepare(state, files):
    """Bring the files into a state.  Return the part that is in memory then."""
    if state == "memory":
        warm(files)
    else:
        drop(files)
    return resident(files)


def held(state, part):
    """Return true if files are in that state when this part of them is cached."""
    return part >= MOST if state == "memory" else part <= LEAST


def why_not(state, part):
    if state == "memory":
        return f"only {part:.0%} of the files fits into memory"
    return f"{part:.0%} of the files was in memory although they had been dropped from there"
