# SPDX-License-Identifier: MIT
"""A store of blocks by key on disks: libpenstock-kv.  docs/KV.md explains it.

    with Store(["/nvme/kv"], budget=1 << 40) as store:
        space = store.space("llama-3 r7 bf16 layout=NHD block=16 tp=0/4")
        store.set(space, [b"key"], [memoryview(block)])
        store.get(space, [b"key"], [memoryview(room)])      # [bytes], -errno for a miss

Any thread may make any call.  A buffer is a contiguous object with the buffer protocol, a pair
(address, bytes), or a list of such pairs, which are consecutive in the block.  Results are bytes,
0, or a negative errno; a miss raises no exception.
"""
import ctypes
import errno
import itertools
import os
import threading
from ctypes import (POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint,
                    c_uint32, c_uint64, c_void_p)
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _lib
from ._lib import deadline, failure, name_of, sized
from ._memory import _Buffer, _get_buffer, _release_buffer
from ._types import Path

NAME = "libpenstock-kv.so.0"
VARIABLE = "PST_LIBPENSTOCK_KV"

READER, SYNC, BOUNCE = 1, 2, 4
GET, SET, EXISTS, DELETE = 1, 2, 3, 4
BATCH_MAX = 65536
_BUSY = 1   # PST_KV_BUSY
NO_DEADLINE = 2**64 - 1
STORED, REMOVED, DROPPED = 1, 2, 3
_ANY_SPACE = 2**32 - 1

MISSES = (-errno.ENOENT, -errno.EBADMSG)

Buffer = Union[Tuple[int, int], List[Tuple[int, int]], Any]


class _Opts(Structure):
    _fields_ = [("sz", c_size_t), ("budget", c_uint64), ("reserve", c_uint64),
                ("policy", c_char_p), ("flags", c_uint32), ("threads", c_uint32),
                ("timeout_ms", c_uint32), ("touch_s", c_uint32), ("max_blocks", c_uint64)]


class _SpaceOpts(Structure):
    _fields_ = [("sz", c_size_t), ("identity", c_char_p), ("tenant", c_char_p),
                ("salt", c_char_p), ("quota", c_uint64)]


class _Seg(Structure):
    _fields_ = [("file_off", c_uint64), ("mem_off", c_uint64), ("len", c_uint64),
                ("file_stride", c_uint64), ("mem_stride", c_uint64), ("count", c_uint64)]


class _Item(Structure):
    _fields_ = [("key", c_char_p), ("key_len", c_uint64), ("mem", c_void_p),
                ("mem_off", c_uint64), ("len", c_uint64), ("segs", c_void_p),
                ("nr_segs", c_uint64), ("reserved", c_uint64)]


class _Batch(Structure):
    _fields_ = [("sz", c_size_t), ("op", c_uint32), ("space", c_uint32),
                ("items", POINTER(_Item)), ("nr", c_uint64), ("results", POINTER(c_int64)),
                ("deadline_ns", c_uint64), ("user_data", c_uint64)]


class _Done(Structure):
    _fields_ = [("user_data", c_uint64), ("bytes", c_uint64), ("good", c_uint32),
                ("flags", c_uint32), ("op", c_uint32), ("err", c_int32)]


_NUMBERS = ("budget", "used", "blocks", "index_bytes", "gets", "hits", "sets", "set_bytes",
            "written", "got_bytes", "evicted", "corrupt", "timeouts", "errors", "no_room",
            "scanned", "loaded", "max_blocks", "removed", "events_lost")
_GAUGES = ("budget", "used", "blocks", "index_bytes", "scanned", "loaded", "max_blocks")


class _Stat(Structure):
    _fields_ = [("sz", c_size_t)] + [(name, c_uint64) for name in _NUMBERS]


class _EventsOpts(Structure):
    _fields_ = [("sz", c_size_t), ("bytes", c_uint64), ("space", c_uint32), ("reserved", c_uint32)]


class _Event(Structure):
    _fields_ = [("nr", c_uint64), ("key", c_void_p), ("key_len", c_uint64), ("len", c_uint64),
                ("space", c_uint32), ("type", c_uint32)]


_CALLS = {
    "pst_kv_error_text": (c_char_p, []),
    "pst_kv_open": (c_int, [POINTER(c_char_p), c_uint, POINTER(_Opts), POINTER(c_void_p)]),
    "pst_kv_close": (c_void_p, [c_void_p]),
    "pst_kv_space": (c_int, [c_void_p, POINTER(_SpaceOpts), POINTER(c_uint32)]),
    "pst_kv_drop": (c_int, [c_void_p, c_char_p, c_char_p]),
    "pst_kv_submit": (c_int, [c_void_p, POINTER(_Batch)]),
    "pst_kv_reap": (c_int, [c_void_p, POINTER(_Done), c_uint, c_uint64]),
    "pst_kv_fd": (c_int, [c_void_p]),
    "pst_kv_run": (c_int, [c_void_p, POINTER(_Batch), POINTER(_Done)]),
    "pst_kv_lookup": (c_int64, [c_void_p, c_uint32, POINTER(_Item), c_uint64, POINTER(c_int64)]),
    "pst_kv_drain": (c_int, [c_void_p, c_uint64]),
    "pst_kv_stat": (c_int, [c_void_p, POINTER(_Stat)]),
    "pst_kv_events_new": (c_int, [c_void_p, POINTER(_EventsOpts), POINTER(c_void_p)]),
    "pst_kv_events_free": (c_void_p, [c_void_p]),
    "pst_kv_events_take": (c_int, [c_void_p, POINTER(_Event), c_uint, c_uint64,
                                   POINTER(c_uint64)]),
}


def _load() -> Any:
    beside = os.path.join(os.path.dirname(_lib.library_path), NAME)
    path = os.environ.get(VARIABLE) or (beside if os.path.exists(beside) else NAME)
    try:
        # The loader uses the libpenstock that is already loaded for this library's dependency.
        library = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"penstock.kv: {path} cannot be loaded: {e}; install Penstock, or name "
                          f"its {NAME} in {VARIABLE}") from None
    for name, (gives, takes) in _CALLS.items():
        call = getattr(library, name)
        call.restype, call.argtypes = gives, takes
    return library


_kv = _load()
# Batches that outlived their store.  They are never freed, because the kernel might still use their
# buffers.
_kept: "List[_Call]" = []


def _check(status: int) -> int:
    if status < 0:
        raise failure(status, _kv.pst_kv_error_text().decode("utf-8", "replace"))
    return status


class Completion(NamedTuple):
    """The end of a batch.  results: one per block, as Store.run() returns them; lengths: bytes of
    each block's buffer."""

    number: int
    op: int
    results: List[int]
    lengths: List[int]
    nbytes: int
    good: int
    busy: bool
    err: int


class Event(NamedTuple):
    """A change of a store.

    kind:   STORED: the block was stored, or stored again; REMOVED: it was evicted or deleted, or
            its file is damaged or missing; DROPPED: all blocks of the space were, and key is b""
    nbytes: STORED: bytes of the block
    number: counts from 1 in each queue; missing numbers are lost events
    """

    kind: int
    space: int
    key: bytes
    nbytes: int
    number: int


class Events:
    """A queue of later changes of a store, made by Store.events().  For one thread at a time."""

    def __init__(self, store: "Store", space: Optional[int], nbytes: int) -> None:
        self._handle: Optional[c_void_p] = None
        handle = c_void_p()
        opts = sized(_EventsOpts, bytes=nbytes, space=_ANY_SPACE if space is None else space)
        _check(_kv.pst_kv_events_new(store._open(), byref(opts), byref(handle)))
        self._handle = handle
        #: Number of events that were lost until the last take().
        self.lost = 0

    def take(self, most: int = 1024, timeout: Optional[float] = 0) -> List[Event]:
        """Take up to most of the oldest events.  Wait for the first one, at most timeout seconds;
        None: without limit.  If lost has grown, first look up all blocks again, then use these
              events.

        Raises ValueError after close()."""
        if self._handle is None:
            raise ValueError("the queue of events is closed")
        found, lost = (_Event * most)(), c_uint64()
        nr = _check(_kv.pst_kv_events_take(self._handle, found, most,
                                           deadline(timeout, NO_DEADLINE), byref(lost)))
        self.lost = lost.value
        return [Event(e.type, e.space, ctypes.string_at(e.key, e.key_len), e.len, e.nr)
                for e in found[:nr]]

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            _kv.pst_kv_events_free(handle)


class _Call:
    """A batch with the objects that must live during it."""

    __slots__ = ("items", "results", "batch", "held", "views")

    def __init__(self, op: int, space: int, keys: Sequence[bytes],
                 buffers: Optional[Sequence[Buffer]], timeout: Optional[float]) -> None:
        nr = len(keys)
        if buffers is not None and len(buffers) != nr:
            raise ValueError(f"{nr} keys and {len(buffers)} buffers")
        self.items = (_Item * nr)()
        self.results = (c_int64 * nr)()
        self.held: List[Any] = [keys]
        self.views: List[_Buffer] = []
        try:
            for i, key in enumerate(keys):
                item = self.items[i]
                item.key, item.key_len = key, len(key)
                if buffers is None:
                    continue
                buffer = buffers[i]
                if isinstance(buffer, list):
                    self._place_pieces(item, buffer)
                else:
                    item.mem_off, item.len = self._place(buffer, op == GET)
        except BaseException:
            self.release()
            raise
        self.batch = sized(_Batch, op=op, space=space, items=self.items, nr=nr,
                           results=self.results, deadline_ns=deadline(timeout))

    def _place_pieces(self, item: _Item, pieces: List[Tuple[int, int]]) -> None:
        base = min(where for where, _ in pieces)
        segs = (_Seg * len(pieces))()
        for seg, (where, size) in zip(segs, pieces):
            seg.mem_off, seg.len = where - base, size
        self.held.append(segs)
        item.mem_off, item.len = base, sum(size for _, size in pieces)
        item.segs, item.nr_segs = ctypes.addressof(segs), len(pieces)

    def _place(self, buffer: Buffer, writable: bool) -> Tuple[int, int]:
        if isinstance(buffer, tuple):
            where, size = buffer
            return int(where), int(size)
        view = _Buffer()
        # PyBUF_WRITABLE is 1, so a get into a bytes object is refused.
        _get_buffer(buffer, byref(view), 1 if writable else 0)
        self.views.append(view)
        self.held.append(buffer)
        return view.buf, view.len

    def release(self) -> None:
        while self.views:
            _release_buffer(byref(self.views.pop()))


def buffer_address(buffer: Any) -> int:
    """Return the address of an object with the buffer protocol; the caller must keep the object."""
    view = _Buffer()
    # PyBUF_STRIDES: any shape is accepted.
    _get_buffer(buffer, byref(view), 0x18)
    where = view.buf
    _release_buffer(byref(view))
    return int(where)


def _is_served(names: Sequence[bytes]) -> bool:
    return len(names) == 1 and b"://" in names[0]


class Store:
    """An open store.

    dirs:    the root: one or more directories; or the address of a server that has the store
             (penstock serve --kv): pst://HOST:PORT, psts://[KEY@]HOST:PORT, pst+unix://SOCKET:
    budget:  most bytes of all files; None: open a root of another process read-only, or a server's
             store
    reserve: bytes to leave free on the file systems
    max_blocks: most blocks, each of which takes at most 160 bytes of memory; 0: one for each 64 KiB
             of budget, at least 65,536
    policy: which blocks are evicted: "arc", "lru" or "s3fifo"
    bounce: buffers never get bytes that were not checked, and no I/O uses them after a completion;
            costs a copy
    timeout: seconds of a batch that is submitted without a timeout
    """

    def __init__(self, dirs: Iterable[Path], budget: Optional[int] = None, *, reserve: int = 0,
                 policy: Optional[str] = None, threads: int = 0, timeout: float = 30,
                 sync: bool = False, bounce: bool = True, max_blocks: int = 0) -> None:
        names = [name_of(d) for d in ([dirs] if isinstance(dirs, (str, bytes)) else dirs)]
        served = _is_served(names)
        flags = (READER if budget is None and not served else 0) | (SYNC if sync else 0) | (
            BOUNCE if bounce else 0)
        opts = sized(_Opts, budget=budget or 0, reserve=reserve, flags=flags, threads=threads,
                     policy=policy.encode() if policy else None, timeout_ms=int(timeout * 1000),
                     max_blocks=max_blocks)
        handle = c_void_p()
        #: True if the store is on a server, so that each look-up is a request.
        self.served = served
        self._handle: Optional[c_void_p] = None
        _check(_kv.pst_kv_open((c_char_p * len(names))(*names), len(names), byref(opts),
                               byref(handle)))
        self._handle = handle
        self._numbers = itertools.count(1)
        self._calls: Dict[int, _Call] = {}
        self._events: List[Events] = []
        self._busy: List[_Call] = []    # completed batches whose buffers the kernel may still use
        self._lock = threading.Lock()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _open(self) -> c_void_p:
        handle = self._handle
        if handle is None:
            raise ValueError("the store is closed")
        return handle

    def _end(self, call: _Call, busy: bool) -> None:
        """Release the buffers of a completed batch when the kernel does not use them any more."""
        if not busy:
            call.release()
        if busy or self._busy:
            with self._lock:
                self._busy += [call] if busy else []
            self.drain()

    def close(self) -> None:
        """End all I/O and write the index.  No other call may be running."""
        if self._handle is not None and self._busy:
            self.drain()
            _kept.extend(self._busy)
            self._busy = []
        handle, self._handle = self._handle, None
        if handle is not None:
            for events in self._events:
                events.close()
            _kv.pst_kv_close(handle)
            for call in self._calls.values():
                call.release()
            self._calls.clear()

    def space(self, identity: str, tenant: str = "", salt: str = "", quota: int = 0) -> int:
        """Return the number of a name space.  identity: weights, layout, dtype and everything else
        that must match before blocks fit."""
        number = c_uint32()
        opts = sized(_SpaceOpts, identity=identity.encode(), tenant=tenant.encode(),
                     salt=salt.encode(), quota=quota)
        _check(_kv.pst_kv_space(self._open(), byref(opts), byref(number)))
        return number.value

    def drop(self, identity: Optional[str] = None, tenant: Optional[str] = None) -> int:
        """Remove all blocks of a tenant, or of an identity.  Return the number of emptied spaces.
        """
        return _check(_kv.pst_kv_drop(self._open(), None if identity is None else identity.encode(),
                                      None if tenant is None else tenant.encode()))

    def submit(self, op: int, space: int, keys: Sequence[bytes],
               buffers: Optional[Sequence[Buffer]] = None,
               timeout: Optional[float] = None) -> int:
        """Start a batch.  Return its number, which reap() returns with the results."""
        call = _Call(op, space, keys, buffers, timeout)
        number = next(self._numbers)
        call.batch.user_data = number
        with self._lock:
            self._calls[number] = call
        try:
            _check(_kv.pst_kv_submit(self._open(), byref(call.batch)))
        except BaseException:
            with self._lock:
                del self._calls[number]
            call.release()
            raise
        return number

    def reap(self, most: int = 64, timeout: Optional[float] = 0) -> List[Completion]:
        """Return completions; wait for the first one up to timeout, None: no limit."""
        done = (_Done * most)()
        nr = _check(_kv.pst_kv_reap(self._open(), done, most, deadline(timeout, NO_DEADLINE)))
        found = []
        for d in done[:nr]:
            with self._lock:
                call = self._calls.pop(d.user_data)
            self._end(call, bool(d.flags & _BUSY))
            found.append(Completion(d.user_data, d.op, list(call.results),
                                    [item.len for item in call.items], d.bytes, d.good,
                                    bool(d.flags & _BUSY), d.err))
        return found

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are completions to reap."""
        return int(_kv.pst_kv_fd(self._open()))

    def run(self, op: int, space: int, keys: Sequence[bytes],
            buffers: Optional[Sequence[Buffer]] = None,
            timeout: Optional[float] = None) -> List[int]:
        """Run a batch and wait for it.  Return a result for each block."""
        call, done = _Call(op, space, keys, buffers, timeout), _Done()
        try:
            _check(_kv.pst_kv_run(self._open(), byref(call.batch), byref(done)))
        finally:
            self._end(call, bool(done.flags & _BUSY))
        return list(call.results)

    def get(self, space: int, keys: Sequence[bytes], buffers: Sequence[Buffer],
            timeout: Optional[float] = None) -> List[int]:
        return self.run(GET, space, keys, buffers, timeout)

    def set(self, space: int, keys: Sequence[bytes], buffers: Sequence[Buffer],
            timeout: Optional[float] = None) -> List[int]:
        return self.run(SET, space, keys, buffers, timeout)

    def delete(self, space: int, keys: Sequence[bytes]) -> List[int]:
        return self.run(DELETE, space, keys)

    def lookup(self, space: int, keys: Sequence[bytes]) -> List[int]:
        """Return the bytes of each block, or a negative errno, from the index."""
        call = _Call(EXISTS, space, keys, None, None)
        found = _kv.pst_kv_lookup(self._open(), space, call.items, len(keys), call.results)
        _check(0 if found >= 0 else found)
        return list(call.results)

    def events(self, space: Optional[int] = None, nbytes: int = 1 << 20) -> Events:
        """Return a queue of the changes of a space, or of all spaces, with that many bytes of
        memory; end it by its close().  Raises OSError (EOPNOTSUPP) for a reader and for a store on
        a server: only the process that owns a store has its events."""
        events = Events(self, space, nbytes)
        with self._lock:
            self._events = [e for e in self._events if e._handle is not None] + [events]
        return events

    def drain(self, timeout: Optional[float] = 0) -> bool:
        """Return True if the kernel does not use buffers of completed batches any more.  Until then
        the store keeps these buffers."""
        with self._lock:
            busy, self._busy = self._busy, []
        quiet = bool(_kv.pst_kv_drain(self._open(), deadline(timeout, NO_DEADLINE)) == 0)
        if quiet:
            for call in busy:
                call.release()
        else:
            with self._lock:
                self._busy += busy
        return quiet

    def stat(self) -> Dict[str, int]:
        st = sized(_Stat)
        _check(_kv.pst_kv_stat(self._open(), byref(st)))
        return {name: getattr(st, name) for name in _NUMBERS}

    def metrics(self) -> str:
        """Return the numbers of stat() in Prometheus' text format, for an engine's exporter."""
        lines = []
        for name, value in self.stat().items():
            gauge = name in _GAUGES
            name = f"penstock_kv_{name}" + ("" if gauge else "_total")
            lines += [f"# TYPE {name} {'gauge' if gauge else 'counter'}", f"{name} {value}"]
        return "\n".join(lines) + "\n"


def engine_store(dirs: Sequence[Path], budget: Optional[int], **options: Any) -> Store:
    """Open a store for an engine: in directories, or on a server."""
    if budget is None and not _is_served([name_of(d) for d in dirs]):
        raise ValueError("give the budget of the store in bytes; only a server's has its own")
    return Store(dirs, budget, **options)
