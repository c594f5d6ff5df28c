# SPDX-License-Identifier: MIT
"""Tensors of a file that are read in the background, and returned as they arrive."""
import atexit
import functools
import os
import threading
import weakref
from typing import Any, Iterator, List, Mapping, Optional, Tuple

from .._lib import again
from .._worker import Bell, Worker
from ._header import BITS, Entry, SafetensorError
from ._into import Reads

Plan = Mapping[str, Optional[slice]]

_BATCH = 128 << 20  # bytes of one call


def rows_of(entry, rows):
    """Return (begin, end) of the first dimension for a plan's value, None for all.  Raises
    SafetensorError."""
    if rows is None:
        return None
    name_is = f"tensor '{entry.name}'"
    if not isinstance(rows, slice):
        raise SafetensorError(f"a plan has None or a slice for {name_is}, not {rows!r}")
    if not entry.shape:
        raise SafetensorError(f"{name_is} is 0-d and has no rows")
    if rows.step == 0:
        raise SafetensorError(f"invalid prefetch plan slice for {name_is}: its step is 0")
    if rows.step not in (None, 1):
        raise SafetensorError(f"a plan's slices have step 1; that of {name_is} has {rows.step}")
    length = entry.shape[0]
    for end in (rows.start, rows.stop):
        # A range outside of the tensor is an error here, not a shorter range.
        if end is not None and not -length <= end <= length:
            raise SafetensorError(f"{end} is out of range for the {length} rows of {name_is}")
    begin, end, _ = rows.indices(length)
    return begin, max(begin, end)


def _part(entry, rows):
    """Return an Entry for some rows of a tensor."""
    if rows is None:
        return entry
    begin, end = rows
    bits = BITS[entry.dtype]
    for length in entry.shape[1:]:
        bits *= length
    if bits % 8:
        raise SafetensorError(f"rows of tensor '{entry.name}' are no whole bytes")
    return Entry(entry.name, entry.dtype, (end - begin,) + entry.shape[1:],
                 entry.begin + begin * bits // 8, (end - begin) * bits // 8)


class _State:
    """State shared by the reading thread and the loader; the thread does not reference the loader.
    """

    def __init__(self, shared, names):
        self.shared, self.lock, self.change = shared, threading.RLock(), Bell()
        self.ready = {}                      # loaded tensors that were not taken
        self.left = dict.fromkeys(names)     # names that were not taken
        self.error, self.closed = None, False

    def put(self, tensors):
        with self.lock:
            if not self.closed:
                self.ready.update(tensors)
            self.change.ring()

    def fail(self, error):
        with self.lock:
            self.error = error
            self.change.ring()


def _batches(parts):
    batch, nbytes = [], 0
    for part in parts:
        batch.append(part)
        nbytes += part.nbytes
        if nbytes >= _BATCH:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _load(state, data, parts, frame, strict):
    try:
        file = state.shared.file
        for batch in _batches(parts):
            if state.closed:
                break
            tensors = {}
            with Reads(frame, 0, strict) as reads:
                reads.add(file, data, batch, tensors)
                reads.finish()
            state.put(tensors)
            del tensors, reads
    except BaseException as e:  # pylint: disable=broad-except # for take() to raise
        state.fail(again(e))
    finally:
        state.shared.drop()
        _threads.pop(state, None)


_threads = {}   # state: thread, for loaders that read


@atexit.register
def _stop_all():
    """End all threads: the interpreter would end them inside of torch, and the process with
    SIGABRT.
    """
    for state, thread in list(_threads.items()):
        _stop(state)
        thread.join()


def _after_fork():
    # A forked child has no threads, and one of them may have held the lock.
    for state in _threads:
        state.lock = threading.RLock()
        state.change = Bell()
        state.fail(SafetensorError("the loader reads in the process that was forked, and not here"))
    _threads.clear()


os.register_at_fork(after_in_child=_after_fork)


def _stop(state):
    with state.lock:
        state.closed = True
        state.ready.clear()
        state.change.ring()


class PrefetchLoader:
    """Tensors of one file that are being read, made by safe_open.prefetch(); a context manager.

    Each tensor is returned once, by take() or by iterating.  It has its own memory and is ready on
    any stream.  Any thread may use the loader.
    """

    def __init__(self, shared, header, parts, frame, strict):
        self._thread = None
        try:
            if not parts:
                raise SafetensorError("the plan selects no tensors")
            found = [_part(entry, rows) for entry, rows in parts]
            for part in found:
                frame.dtype(part)
                frame.shape(part)
        except BaseException:
            shared.drop()
            raise
        self._names = [part.name for part in found]
        self._state = _State(shared, self._names)
        self._stop = weakref.finalize(self, _stop, self._state)
        self._thread = Worker(functools.partial(_load, self._state, header.data, found, frame,
                                                strict))
        try:
            _threads[self._state] = self._thread
            self._thread.start()
        except BaseException:
            if not self._thread.started:
                _threads.pop(self._state, None)
                shared.drop()
            raise

    def names(self) -> List[str]:
        """Return all names of the plan, in the order of their bytes."""
        return list(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _taken(self, which):
        """Wait until which() returns a name, and return (name, tensor); None if none is left."""
        state = self._state
        while True:
            with state.lock:
                if state.closed:
                    raise SafetensorError("the loader is closed")
                name = which()
                if name is not None:
                    del state.left[name]
                    return name, state.ready.pop(name)
                if not state.left:
                    return None
                if state.error is not None:
                    raise again(state.error)
                sleeper = state.change.sleeper()
            sleeper.acquire()

    def take(self, name: str) -> Any:
        """Wait for one tensor and return it.  Raises SafetensorError if it was already taken."""
        state = self._state

        def there():
            if name not in self._names:
                raise SafetensorError(f"tensor '{name}' is not in the prefetch plan")
            if name not in state.left:
                raise SafetensorError(f"tensor '{name}' was already delivered")
            return name if name in state.ready else None
        return self._taken(there)[1]

    def __iter__(self) -> Iterator[Tuple[str, Any]]:
        """Yield (name, tensor) of those not taken yet, as they arrive."""
        state = self._state
        while True:
            found = self._taken(lambda: next(iter(state.ready), None))
            if found is None:
                return
            yield found
            del found

    def close(self) -> None:
        """Stop, and free tensors that were not taken.  Waits for at most one call of 128 MiB."""
        self._stop()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> "PrefetchLoader":
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<PrefetchLoader {len(self._state.left)} of {len(self)} tensors left>"
