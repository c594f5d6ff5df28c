# SPDX-License-Identifier: MIT
"""Rings of file requests over shared memory, for programs written for 3FS's usrbio.

Calls, classes and their arguments are those of 3FS's module of this name.  The module is a thin
layer over libhf3fs_api_shared.so; <hf3fs_usrbio.h> documents the calls and their errors.
HF3FS_LIBRARY_PATH, the path of the library or of its directory, overrides the loader's search.

    ring = ioring("/mnt", entries=64, for_read=True)
    ring.prepare(iov[0:4096], True, fd, 0, userdata="first")
    for done in ring.submit().wait(min_results=1):
        print(done.userdata, done.result)      # bytes, or -errno

Any thread may use any object.  One thread at a time prepares requests of a ring, and one takes
completions; other threads wait.  Calls that fail raise OSError.
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
_SLICE = 0.1  # longest single wait, s: Python handles signals between two waits
_EARLY = 0.001  # a wait that ends at least this much before its deadline, s, was cut short


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
                # 3FS's own library does not export this function.
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
    """Encode a path for C.  ValueError for a null byte, which C takes for the end."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"{value!r} contains a null byte")
    return data


def _number(value, low, high, name):
    """Return an integer of any type.  ValueError out of range: ctypes would truncate it."""
    n = operator.index(value)
    if not low <= n <= high:
        raise ValueError(f"{name} {n} is not in {low}..{high}")
    return n


def _int(value, name):
    return _number(value, -(1 << 31), (1 << 31) - 1, name)


def _unsigned(value, name):
    return _number(value, 0, (1 << 64) - 1, name)


def _address(view):
    """Return the address of a buffer, which must be writable and contiguous."""
    return ctypes.addressof((ctypes.c_char * 0).from_buffer(view))


# --------------------------------------------------------------------- files


def extract_mount_point(path):
    """Return the mount point of an existing path, or None if it is not on a mount of 3FS."""
    name = ctypes.create_string_buffer(_MOUNT_MAX)
    length = _lib.hf3fs_extract_mount_point(name, _MOUNT_MAX, _path(path))
    if length > _MOUNT_MAX:
        raise _error(errno.ENAMETOOLONG, f"the mount point of {path!r} has {length} bytes")
    return os.fsdecode(name.value) if length > 0 else None


def register_fd(fd, flags=0):
    """Let rings use an open file until deregister_fd(), in the mode that it is open in now."""
    err = _lib.hf3fs_reg_fd(_int(fd, "fd"), _unsigned(flags, "flags"))
    if err == errno.EBADF:
        raise _error(err, f"fd {fd} is not open on a mount of 3FS or in a directory that was "
                     "prepared with `penstock mount --plain`")
    if err == errno.EINVAL:
        raise _error(err, f"fd {fd} is registered already")
    if err > 0:
        raise _error(err, f"fd {fd} cannot be registered")


def deregister_fd(fd):
    """End a registration.  Requests that were already prepared complete normally."""
    _lib.hf3fs_dereg_fd(_int(fd, "fd"))


def force_fsync(fd):
    """Make stat() show the file size that writes of rings made.  Return 0 or -1; never raise.

    Nothing to do in a plain directory, where stat() always shows it.
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
    """Free the byte ranges start[i]..end[i] of a file, given by name or by descriptor."""
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
    """An array element whose buffer has format "B".  An array of c_uint8 has "<B", which
    memoryview can neither index nor copy to."""
    _fields_ = [("value", ctypes.c_uint8)]


class iovec(ctypes.Array):
    """Shared memory that requests read into and write from, or a slice of it.

    iovec(base, id, hf3fs_mount_point, block_size=0, numa=-1) wraps a writable buffer that is
    published under the UUID id.  The iovec supports the buffer protocol: memoryview(iov),
    numpy.frombuffer(iov) and bytes(iov) are its bytes.  iov[a:b] is a slice.

    The memory belongs to the buffer's owner.  A SharedMemory cannot be closed while requests are
    in flight (BufferError).  After it was closed, requests raise ValueError, and the bytes of the
    iovec must not be accessed.
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
        # Keep the caller's view: a view of our own would prevent the owner from closing it.
        self._slice(None, base if isinstance(base, memoryview) else memoryview(base), 0)
        err = _lib.hf3fs_iovwrap(self._iov, ctypes.addressof(self), name.bytes,
                                 _path(hf3fs_mount_point), ctypes.sizeof(self),
                                 _unsigned(block_size, "block_size"), _int(numa, "numa"))
        if err < 0:
            raise _error(-err, f"{ctypes.sizeof(self)} bytes with a block size of {block_size} "
                         f"on {hf3fs_mount_point!r} cannot be used")
        # Unwrapping is not needed at exit.
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
        """Return the slice with the same addresses as a writable buffer within this memory."""
        view = memoryview(buf)
        start = _address(view) - ctypes.addressof(self)
        if start < 0 or start + view.nbytes > ctypes.sizeof(self):
            raise IndexError(f"{view.nbytes} bytes at {start} are not within an iovec of "
                             f"{ctypes.sizeof(self)}")
        return self._cut(start, view.nbytes)

    @property
    def result(self):
        """Bytes that the slice's request moved, or -errno; set by wait()."""
        return self._result

    @property
    def base_off(self):
        """Offset of the slice in the whole memory, in bytes."""
        return self._start

    @property
    def userdata(self):
        """The userdata passed to prepare(); set by wait()."""
        return self._userdata

    __hash__ = object.__hash__

    def __reduce__(self):
        raise TypeError("an iovec is memory of this process and cannot be pickled")


def _unwrap(iov):
    if iov.iovh:
        _lib.hf3fs_iovdestroy(iov)


@functools.lru_cache(maxsize=256)
def _of_size(size):
    """Return the class for slices of a size: in ctypes an array's length belongs to its class."""
    return type(iovec)("iovec", (iovec,), {"_length_": size, "__slots__": ()})


# --------------------------------------------------------------------- rings


class ioring:
    """A ring of requests that read, or write, files of a mount.

    entries   requests in flight
    io_depth  above 0: requests start in batches of exactly io_depth; 0: when they are submitted;
              below 0: in batches of at most -io_depth
    priority  below 0 high, 0 or None normal, above 0 low
    timeout   milliseconds that a partial batch waits for more requests, if io_depth is below 0
    numa      NUMA node of the ring's memory; below 0: any
    flags     1: read uncommitted data; 2: -ENODATA instead of zeros for a hole
    """

    _alive = False

    def __init__(self, hf3fs_mount_point, entries, for_read=True, io_depth=0, priority=None,
                 timeout=None, numa=-1, flags=0):
        self._ior = _Ior()
        self._keys = itertools.count(1)
        self._pending = {}  # key: the slice, its userdata, and a view that holds the memory
        self._ready = {}  # key: the slice; completed, not yet returned by wait()
        # Lock order: _preparing before _waiting.  destroy() takes both.
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
        """Make the C ring.  Return its link and memory, or None for each that C owns."""
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
        """Return the bytes of shared memory that a ring of that many entries needs."""
        return _lib.hf3fs_ior_size(_int(entries, "entries"))

    @property
    def entries(self):
        """Number of requests that can be in flight."""
        return self._entries

    def prepare(self, iov, read, fd, off, userdata=None):
        """Put a request for all bytes of a slice into the ring; it may start at once.

        fd must be registered; off is the file offset in bytes.  The ring keeps slice and userdata
        until wait() returns the slice.  BlockingIOError if the ring is full.  Return the ring.
        """
        if not isinstance(iov, iovec):
            raise TypeError(f"prepare() takes an iovec, not {type(iov).__name__}")
        fd, off = _int(fd, "fd"), _unsigned(off, "off")
        root = iov if iov._root is None else iov._root
        with self._preparing:
            # Add the request first: another thread may take its completion before the call returns.
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
        """Return the error for a ring that was destroyed, or belongs to the parent process."""
        if err == errno.EOWNERDEAD:
            return _error(err, "the ring is of the process that this one was forked from")
        if _exiting and threading.current_thread() is not threading.main_thread():
            # _exit() destroyed the ring under a running thread: block until the process ends.
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
        """Start the prepared requests.  Return the ring."""
        with self._preparing:
            err = _lib.hf3fs_submit_ios(self._ior)
        if err < 0:
            raise self._ended(-err)
        return self

    def wait(self, *, max_results=0, min_results=0, timeout=None):
        """Take completions.  Return slices whose result and userdata are set.

        Wait until there are min_results completions, or for timeout, a datetime.timedelta or
        seconds.  Then take up to max_results.  If both are 0, take at most one without waiting.
        If the daemon has ended and nothing is in flight, return fewer, or none, at once.
        """
        least = _int(min_results, "min_results")
        most = max(_int(max_results, "max_results"), least) or 1
        end = None if timeout is None else time.monotonic() + _seconds(timeout)
        if not _acquire(self._waiting, least > 0, end):
            return []
        try:
            # Completions left in _ready by an exception are returned by the next call.
            err = self._harvest(least, most, end)
            done = list(self._ready.values())
            self._ready = dict(itertools.islice(self._ready.items(), most, None))
        finally:
            self._waiting.release()
        if err and not done:
            raise self._ended(err)
        return done[:most]

    def _harvest(self, least, most, end):
        """Fill _ready.  Return 0, or the errno for a ring that was destroyed or is the parent's."""
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
        """Call C once.  Return the number of completions or -errno, and whether the call ended
        before its deadline.  Without completions only a dead ring ends early: signals do not."""
        if not self._alive:
            return -errno.EINVAL, True
        room = min(room, len(self._cqes))
        pause = _SLICE if end is None else max(min(_SLICE, end - time.monotonic()), 0)
        until = time.time() + pause if missing > 0 else 0
        try:
            got = _lib.hf3fs_wait_for_ios(self._ior, self._cqes, room, min(missing, room),
                                          _Timespec(int(until), int(until % 1 * 1e9)))
            # The call measures by the real-time clock, which may have been set during the wait.
            return got, time.time() < until - _EARLY
        finally:
            # A signal handler may have raised before got was assigned.
            self._settle()

    def _settle(self):
        """Move completions from self._cqes to self._ready.  If an exception interrupts this, the
        next call continues, and no completion is moved twice."""
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
        """End the ring, once.  On a daemon's mount, wait() for all requests before."""
        if not self._alive:
            return
        self._alive = False
        if os.getpid() != self._pid:
            # Take no lock: threads of the parent may have held it at the fork.
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
    """Destroy all rings at exit: requests must not access memory that the interpreter frees."""
    global _exiting
    _exiting = True
    for ring in list(_rings):
        ring.destroy()


def _publish_ring(mount, entries, for_read, io_depth, priority, timeout, flags):
    """Publish memory for a ring by a name that describes it.  Return link and memory."""
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
