# SPDX-License-Identifier: MIT
"""Rings of file requests over shared memory, for programs written for 3FS's usrbio.

Calls, classes and their arguments are those of 3FS's module of this name.  It is a thin layer
over libhf3fs_api_shared.so: <hf3fs_usrbio.h> says what the calls do and which errors they
give.  HF3FS_LIBRARY_PATH, the library or its folder, comes before the loader's own choice.

    ring = ioring("/mnt", entries=64, for_read=True)
    ring.prepare(iov[0:4096], True, fd, 0, userdata="first")
    for done in ring.submit().wait(min_results=1):
        print(done.userdata, done.result)      # bytes, or -errno

Any thread may use any object: requests of one ring are prepared by one thread at a time, and
their completions taken by one at a time; others wait their turn.  Calls that fail raise OSError.
"""
import atexit
import contextlib
import ctypes
import datetime
import errno
import fcntl
import functools
import itertools
import mmap
import operator
import os
import threading
import time
import uuid
import weakref

__all__ = ["deregister_fd", "extract_mount_point", "force_fsync", "hardlink", "iovec", "ioring",
           "punch_hole", "register_fd"]

_SO = "libhf3fs_api_shared.so"
_IOC_FSYNC = 0x8004680B
_PUNCH_RANGES = 1000
_MOUNT_MAX = 4096
_CQES = 1024  # completions taken by one call
_SLICE = 0.1  # seconds that a thread is out of Python: signals are handled in between
_EARLY = 0.001  # seconds by which a call that did not wait to its end ends before it, at least


# ------------------------------------------------------------------- library


class _Iov(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("iovh", ctypes.c_void_p),
                ("id", ctypes.c_uint8 * 16), ("mount_point", ctypes.c_char * 256),
                ("size", ctypes.c_size_t), ("block_size", ctypes.c_size_t),
                ("numa", ctypes.c_int)]


class _Ior(ctypes.Structure):
    _fields_ = [("iov", _Iov), ("iorh", ctypes.c_void_p), ("mount_point", ctypes.c_char * 256),
                ("for_read", ctypes.c_bool), ("io_depth", ctypes.c_int),
                ("priority", ctypes.c_int), ("timeout", ctypes.c_int),
                ("flags", ctypes.c_uint64)]


class _Cqe(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("result", ctypes.c_int64), ("userdata", ctypes.c_void_p)]


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def _prototypes():
    iov, ior = ctypes.POINTER(_Iov), ctypes.POINTER(_Ior)
    i, size, u64, text = ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_char_p
    sizes = ctypes.POINTER(size)
    return {
        "hf3fs_is_hf3fs": (ctypes.c_bool, i),
        "hf3fs_extract_mount_point": (i, text, i, text),
        "hf3fs_iovwrap": (i, iov, ctypes.c_void_p, text, text, size, size, i),
        "hf3fs_iovdestroy": (None, iov),
        "hf3fs_ior_size": (size, i),
        "hf3fs_io_entries": (i, ior),
        "hf3fs_iorcreate3": (i, ior, text, i, ctypes.c_bool, i, i, i, i),
        "hf3fs_iorcreate4": (i, ior, text, i, ctypes.c_bool, i, i, i, u64),
        "hf3fs_iorwrap": (i, ior, ctypes.c_void_p, text, size, ctypes.c_bool, i, i, i, u64),
        "hf3fs_iordestroy": (None, ior),
        "hf3fs_reg_fd": (i, i, u64),
        "hf3fs_dereg_fd": (None, i),
        "hf3fs_prep_io": (i, ior, iov, ctypes.c_bool, ctypes.c_void_p, i, size, u64,
                          ctypes.c_void_p),
        "hf3fs_submit_ios": (i, ior),
        "hf3fs_wait_for_ios": (i, ior, ctypes.POINTER(_Cqe), i, i, ctypes.POINTER(_Timespec)),
        "hf3fs_hardlink": (i, text, text),
        "hf3fs_punchhole": (i, i, i, sizes, sizes, size),
    }


def _candidates():
    told = os.environ.get("HF3FS_LIBRARY_PATH")
    if told:
        return [os.path.join(told, _SO) if os.path.isdir(told) else told]
    here = os.path.dirname(os.path.realpath(__file__))
    return [_SO, os.path.join(os.path.dirname(here), _SO)]


def _load():
    tried = []
    for path in _candidates():
        try:
            lib = ctypes.CDLL(path)
            for name, (result, *arguments) in _prototypes().items():
                # 3FS's own does not export this one.
                if name == "hf3fs_iorwrap" and not hasattr(lib, name):
                    continue
                function = getattr(lib, name)
                function.restype = result
                function.argtypes = arguments
            return lib
        except (OSError, AttributeError) as e:
            tried.append(str(e) if path in str(e) else f"{path}: {e}")
    raise ImportError(f"{_SO} cannot be loaded ({'; '.join(tried)}): start the program with "
                      "`penstock run`, or have HF3FS_LIBRARY_PATH name the library or its folder")


_lib = _load()


# ----------------------------------------------------------------- arguments


def _error(err, text):
    return OSError(err, f"{os.strerror(err)}: {text}")


def _path(value):
    """What C gets for a path.  It would take a 0 for its end."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"{value!r} contains a null byte")
    return data


def _number(value, low, high, name):
    """An integer of any type, in a range: C would cut it silently."""
    n = operator.index(value)
    if not low <= n <= high:
        raise ValueError(f"{name} {n} is not in {low}..{high}")
    return n


def _int(value, name):
    return _number(value, -(1 << 31), (1 << 31) - 1, name)


def _unsigned(value, name):
    return _number(value, 0, (1 << 64) - 1, name)


def _address(view):
    """Where a buffer begins; it must be writable and in one piece."""
    return ctypes.addressof((ctypes.c_char * 0).from_buffer(view))


# --------------------------------------------------------------------- files


def extract_mount_point(path):
    """The mount point that an existing path lies beneath, or None."""
    name = ctypes.create_string_buffer(_MOUNT_MAX)
    length = _lib.hf3fs_extract_mount_point(name, _MOUNT_MAX, _path(path))
    if length > _MOUNT_MAX:
        raise _error(errno.ENAMETOOLONG, f"the mount point of {path!r} has {length} bytes")
    return os.fsdecode(name.value) if length > 0 else None


def register_fd(fd, flags=0):
    """Let rings use an open file, as it is open now, until deregister_fd()."""
    err = _lib.hf3fs_reg_fd(_int(fd, "fd"), _unsigned(flags, "flags"))
    if err == errno.EBADF:
        raise _error(err, f"fd {fd} is not open on a mount of 3FS or in a directory that was "
                     "prepared with `penstock mount --plain`")
    if err == errno.EINVAL:
        raise _error(err, f"fd {fd} is registered already")
    if err > 0:
        raise _error(err, f"fd {fd} cannot be registered")


def deregister_fd(fd):
    """End a registration; requests that were prepared end as they would have."""
    _lib.hf3fs_dereg_fd(_int(fd, "fd"))


def force_fsync(fd):
    """Have stat() tell the length that writes of rings made.  0, or -1; it does not raise.

    In a plain directory it always does.
    """
    fd = _int(fd, "fd")
    try:
        fcntl.ioctl(fd, _IOC_FSYNC, bytes(4))
    except ValueError:
        return -1
    except OSError as e:
        return 0 if e.errno == errno.ENOTTY and _lib.hf3fs_is_hf3fs(fd) else -1
    return 0


def hardlink(target, link_name):
    """Give a file another name on the same mount."""
    err = _lib.hf3fs_hardlink(_path(target), _path(link_name))
    if err:
        raise OSError(err, os.strerror(err), target, None, link_name)


def punch_hole(filename=None, start=(), end=(), flags=0, *, fd=None):
    """Free the ranges start[i]..end[i] of a file, given by name or by descriptor."""
    if len(start) != len(end) or len(start) > _PUNCH_RANGES:
        raise RuntimeError(f"{len(start)} starts and {len(end)} ends: as many of each, "
                           f"at most {_PUNCH_RANGES}")
    if isinstance(filename, (str, bytes, os.PathLike)):
        opened = os.open(filename, os.O_RDWR | os.O_CLOEXEC)
        try:
            return punch_hole(None, start, end, flags, fd=opened)
        finally:
            os.close(opened)
    fd = _int(filename if fd is None else fd, "fd")
    if not len(start):
        return None
    starts, ends = ((ctypes.c_size_t * len(edge))(*(_unsigned(at, "offset") for at in edge))
                    for edge in (start, end))
    err = _lib.hf3fs_punchhole(fd, len(start), starts, ends, _unsigned(flags, "flags"))
    if err:
        raise _error(err, f"{len(start)} ranges of fd {fd} cannot be freed")
    return None


# -------------------------------------------------------------------- memory


class _Byte(ctypes.Union):
    """What an array of bytes is made of whose buffer has the format "B": that of c_uint8 has
    "<B", which memoryview neither indexes nor copies to."""
    _fields_ = [("value", ctypes.c_uint8)]


class iovec(ctypes.Array):
    """Shared memory that requests read into and write from, or a slice of it.

    iovec(base, id, hf3fs_mount_point, block_size=0, numa=-1) wraps a writable buffer that is
    published under the UUID id.  It exports the buffer protocol: memoryview(iov),
    numpy.frombuffer(iov) and bytes(iov) are its bytes.  iov[a:b] is a slice.

    The memory stays the buffer's owner's.  Requests in flight keep it: closing a SharedMemory
    then raises BufferError.  It may be closed at other times; later requests raise ValueError, and
    the bytes of the iovec must not be touched any more.
    """
    _type_ = _Byte
    _length_ = 0
    __slots__ = ("_root", "_view", "_start", "_iov", "_result", "_userdata", "__weakref__")

    def __new__(cls, base, id, hf3fs_mount_point, block_size=0, numa=-1):
        view = memoryview(base)
        return _of_size(view.nbytes).from_address(_address(view))

    def __init__(self, base, id, hf3fs_mount_point, block_size=0, numa=-1):
        name = uuid.UUID(id)
        if str(name) != id.lower():
            raise ValueError(f"{id!r} is not a UUID with its hyphens")
        self._iov = _Iov()
        # Not another view: it would keep the owner from closing it.
        self._slice(None, base if isinstance(base, memoryview) else memoryview(base), 0)
        err = _lib.hf3fs_iovwrap(self._iov, ctypes.addressof(self), name.bytes,
                                 _path(hf3fs_mount_point), ctypes.sizeof(self),
                                 _unsigned(block_size, "block_size"), _int(numa, "numa"))
        if err < 0:
            raise _error(-err, f"{ctypes.sizeof(self)} bytes with a block size of {block_size} "
                         f"on {hf3fs_mount_point!r} cannot be used")
        # At exit there is nothing to give back.
        weakref.finalize(self, _unwrap, self._iov).atexit = False

    def _slice(self, root, view, start):
        self._root = root
        self._view = view
        self._start = start
        self._result = 0
        self._userdata = None
        return self

    def _cut(self, start, size):
        part = _of_size(size).from_address(ctypes.addressof(self) + start)
        root = self if self._root is None else self._root
        return part._slice(root, self._view, self._start + start)

    def __getitem__(self, index):
        if not isinstance(index, slice):
            raise TypeError(f"an iovec has slices, not items by {type(index).__name__}")
        start, stop, step = index.indices(ctypes.sizeof(self))
        if step != 1:
            raise ValueError("slices of an iovec have step 1")
        return self._cut(start, max(stop - start, 0))

    def __setitem__(self, index, value):
        view = memoryview(self._view).cast("B")
        view[self._start:self._start + ctypes.sizeof(self)][index] = value

    def slice_by(self, buf):
        """The slice that has the addresses of a writable buffer within this memory."""
        view = memoryview(buf)
        start = _address(view) - ctypes.addressof(self)
        if start < 0 or start + view.nbytes > ctypes.sizeof(self):
            raise IndexError(f"{view.nbytes} bytes at {start} are not within an iovec of "
                             f"{ctypes.sizeof(self)}")
        return self._cut(start, view.nbytes)

    @property
    def result(self):
        """Bytes that the request moved, or -errno; wait() sets it."""
        return self._result

    @property
    def base_off(self):
        """Where in the whole memory it begins."""
        return self._start

    @property
    def userdata(self):
        """As given to prepare(); wait() sets it."""
        return self._userdata

    __hash__ = object.__hash__

    def __reduce__(self):
        raise TypeError("an iovec is memory of this process and cannot be pickled")


def _unwrap(iov):
    if iov.iovh:
        _lib.hf3fs_iovdestroy(iov)


@functools.lru_cache(maxsize=256)
def _of_size(size):
    """The class of slices of a size: ctypes has the length of an array in its class."""
    return type(iovec)("iovec", (iovec,), {"_length_": size, "__slots__": ()})


# --------------------------------------------------------------------- rings


class ioring:
    """A ring of requests that read, or write, files of a mount.

    entries   requests in flight
    io_depth  above 0: requests start in batches of exactly so many; 0: as they come; below 0:
              in batches of at most -io_depth
    priority  below 0 high, 0 or None normal, above 0 low
    timeout   milliseconds that a batch which is not full waits, where io_depth is below 0
    numa      node of the ring's own memory; below 0: none
    flags     1 to read what is not committed, 2 for -ENODATA instead of zeros from a hole
    """

    _alive = False

    def __init__(self, hf3fs_mount_point, entries, for_read=True, io_depth=0, priority=None,
                 timeout=None, numa=-1, flags=0):
        self._ior = _Ior()
        self._keys = itertools.count(1)
        self._pending = {}  # key: the slice, its userdata, and a view that holds the memory
        self._ready = {}  # key: the slice; taken from the ring, and not yet returned
        # In this order where both are taken.
        self._preparing = threading.RLock()
        self._waiting = threading.RLock()
        self._pid = os.getpid()
        self._for_read = bool(for_read)
        self._link, self._memory = self._create(
            _path(hf3fs_mount_point), _int(entries, "entries"), self._for_read,
            _int(io_depth, "io_depth"), _int(priority or 0, "priority"),
            _int(timeout or 0, "timeout"), _int(numa, "numa"), _unsigned(flags, "flags"))
        self._alive = True
        _rings.add(self)
        self._entries = _lib.hf3fs_io_entries(self._ior)
        self._cqes = (_Cqe * min(self._entries, _CQES))()

    def _create(self, mount, entries, for_read, io_depth, priority, timeout, numa, flags):
        """Returns the link and the memory, where they are ours."""
        link = memory = None
        if priority and flags:
            if numa >= 0 or not hasattr(_lib, "hf3fs_iorwrap"):
                raise _error(errno.EOPNOTSUPP, "no call makes a ring with a priority and flags"
                             + (" on a node" if numa >= 0 else ""))
            link, memory = _publish_ring(mount, entries, for_read, io_depth, priority, timeout,
                                         flags)
            err = _lib.hf3fs_iorwrap(self._ior, _address(memory), mount, len(memory), for_read,
                                     io_depth, priority, timeout, flags)
            if err < 0:
                os.unlink(link)
        elif priority:
            err = _lib.hf3fs_iorcreate3(self._ior, mount, entries, for_read, io_depth, priority,
                                        timeout, numa)
        else:
            err = _lib.hf3fs_iorcreate4(self._ior, mount, entries, for_read, io_depth, timeout,
                                        numa, flags)
        mount = os.fsdecode(mount)
        if err == -errno.ENOENT:
            raise _error(-err, f"{mount!r} is not a mount point of 3FS; `penstock mount --plain` "
                         "prepares a directory to be one")
        if err == -errno.EOWNERDEAD:
            raise _error(-err, "the process that this one was forked from used the library before: "
                         "start workers by spawn, or earlier")
        if err < 0:
            raise _error(-err, f"a ring of {entries} entries on {mount!r} cannot be made")
        return link, memory

    @staticmethod
    def size_for_entries(entries):
        """Bytes of shared memory that a ring takes."""
        return _lib.hf3fs_ior_size(_int(entries, "entries"))

    @property
    def entries(self):
        """Requests that it takes."""
        return self._entries

    def prepare(self, iov, read, fd, off, userdata=None):
        """Put a request for all of a slice into the ring; it may start at once.

        fd is registered, off the offset in the file.  Slice and userdata are kept until
        wait() returns them.  BlockingIOError when the ring is full.  Returns the ring.
        """
        if not isinstance(iov, iovec):
            raise TypeError(f"prepare() takes an iovec, not {type(iov).__name__}")
        fd, off = _int(fd, "fd"), _unsigned(off, "off")
        root = iov if iov._root is None else iov._root
        with self._preparing:
            # It may complete, and be asked for by another thread, before the call returns.
            key = next(self._keys)
            self._pending[key] = iov, userdata, memoryview(iov._view)
            index = _lib.hf3fs_prep_io(self._ior, root._iov, bool(read), ctypes.addressof(iov),
                                       fd, off, ctypes.sizeof(iov), key)
            if index < 0:
                del self._pending[key]
        if index < 0:
            raise self._refused(-index, bool(read), fd)
        return self

    def _ended(self, err):
        """The error of a ring that was destroyed, or is the parent's."""
        if err == errno.EOWNERDEAD:
            return _error(err, "the ring is of the process that this one was forked from")
        if _exiting and threading.current_thread() is not threading.main_thread():
            # At exit that is no mistake of a thread's.  It goes with the process.
            threading.Event().wait()
        return _error(err, "the ring was destroyed")

    def _refused(self, err, read, fd):
        if not self._alive or err == errno.EOWNERDEAD:
            return self._ended(err if self._alive else errno.EINVAL)
        verb = "read" if read else "write"
        if err == errno.EINVAL and read != self._for_read:
            return _error(err, f"a ring that {'reads' if self._for_read else 'writes'} cannot "
                          f"{verb}")
        return _error(err, {
            errno.EAGAIN: f"all {self._entries} entries are in use: wait() for some first",
            errno.EBADF: f"fd {fd} is not registered: register_fd() first",
            errno.EACCES: f"fd {fd} was not open to {verb} when it was registered",
            errno.EINVAL: "the slice is empty",
        }.get(err, f"a request on fd {fd} cannot be prepared"))

    def submit(self):
        """Have what was prepared started.  Returns the ring."""
        with self._preparing:
            err = _lib.hf3fs_submit_ios(self._ior)
        if err < 0:
            raise self._ended(-err)
        return self

    def wait(self, *, max_results=0, min_results=0, timeout=None):
        """Take completions: slices whose result and userdata are set.

        Waits until there are min_results, or for timeout, a datetime.timedelta or seconds, and
        then takes what is there up to max_results.  With both 0 it looks for one.  There are fewer,
        or none, at once when the daemon has ended and nothing is in flight any more.
        """
        least = _int(min_results, "min_results")
        most = max(_int(max_results, "max_results"), least) or 1
        end = None if timeout is None else time.monotonic() + _seconds(timeout)
        if not _acquire(self._waiting, least > 0, end):
            return []
        try:
            # The next call gets completions that an exception leaves there.
            err = self._harvest(least, most, end)
            done = list(self._ready.values())
            self._ready = dict(itertools.islice(self._ready.items(), most, None))
        finally:
            self._waiting.release()
        if err and not done:
            raise self._ended(err)
        return done[:most]

    def _harvest(self, least, most, end):
        """Returns the errno of a ring that was destroyed meanwhile or is the parent's, or 0."""
        self._settle()
        while len(self._ready) < most:
            missing = least - len(self._ready)
            got, early = self._take(most - len(self._ready), missing, end)
            if got < 0:
                return -got
            if got == 0 and (missing <= 0 or early or _is_past(end)):
                break
        return 0

    def _take(self, room, missing, end):
        """One call.  How many completions there were, or -errno; and whether it ended before its
        time.  With none, that is a ring to which nothing comes any more: signals end no call."""
        if not self._alive:
            return -errno.EINVAL, True
        room = min(room, len(self._cqes))
        pause = _SLICE if end is None else max(min(_SLICE, end - time.monotonic()), 0)
        until = time.time() + pause if missing > 0 else 0
        try:
            got = _lib.hf3fs_wait_for_ios(self._ior, self._cqes, room, min(missing, room),
                                          _Timespec(int(until), int(until % 1 * 1e9)))
            # By the clock that the call goes by, which may have been set.
            return got, time.time() < until - _EARLY
        finally:
            # The handler of a signal that came meanwhile may raise before got is known.
            self._settle()

    def _settle(self):
        """Move what the last call left in self._cqes to self._ready.  Wherever an exception ends
        it, the next time does what is left to do, and nothing twice."""
        for cqe in self._cqes:
            key = cqe.userdata
            if not key:
                break
            if key in self._pending:
                iov, userdata = self._pending[key][:2]
                iov._result, iov._userdata = cqe.result, userdata
                self._ready[key] = iov
                del self._pending[key]
        if self._cqes[0].userdata:
            ctypes.memset(self._cqes, 0, ctypes.sizeof(self._cqes))

    def destroy(self):
        """End the ring; again does nothing.  With a daemon, wait for its requests first."""
        if not self._alive:
            return
        self._alive = False
        if os.getpid() != self._pid:
            # Locks may be held by threads that are not in this process.
            _lib.hf3fs_iordestroy(self._ior)
            return
        with self._preparing, self._waiting:
            _lib.hf3fs_iordestroy(self._ior)
            self._pending.clear()
        if self._link:
            with contextlib.suppress(OSError):
                os.unlink(self._link)

    def __del__(self):
        self.destroy()


_rings = weakref.WeakSet()
_exiting = False


@atexit.register
def _exit():
    """Requests must not meet memory that the interpreter takes down."""
    global _exiting
    _exiting = True
    for ring in list(_rings):
        ring.destroy()


def _publish_ring(mount, entries, for_read, io_depth, priority, timeout, flags):
    """Memory for a ring, under the name from which a daemon learns what ring it is."""
    size = _lib.hf3fs_ior_size(entries)
    if size == 0 or timeout < 0:
        raise _error(errno.EINVAL, f"a ring of {entries} entries with a timeout of {timeout} ms")
    name = str(uuid.uuid4())
    path = f"/dev/shm/hf3fs-iov-{name}"
    link = (f"{os.fsdecode(mount)}/3fs-virt/iovs/{name}.{'r' if for_read else 'w'}{io_depth}"
            f".p{'h' if priority < 0 else 'l'}.t{timeout}.f{flags:b}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        memory = mmap.mmap(fd, size)
        os.symlink(path, link)
    finally:
        os.close(fd)
        os.unlink(path)
    return link, memory


def _seconds(timeout):
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)


def _is_past(end):
    return end is not None and time.monotonic() >= end


def _acquire(lock, block, end):
    if not block:
        return lock.acquire(blocking=False)
    if end is None:
        return lock.acquire()
    return lock.acquire(timeout=min(max(end - time.monotonic(), 0), threading.TIMEOUT_MAX))
