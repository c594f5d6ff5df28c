# SPDX-License-Identifier: MIT
"""Tensors of a model's files in order, read ahead by a thread within a budget."""
import atexit
import contextlib
import os
import re
import weakref
from queue import SimpleQueue
from typing import (Any, Callable, ContextManager, Dict, Iterable, Iterator, List, Optional, Tuple,
                    Union)

from ._lib import again, plain_name
from ._worker import Worker
from .safetensors import SafetensorError, safe_open

_BATCH = 256 << 20      # most bytes of one call
_OPEN_MAX = 64          # files kept open; with more, each is opened again when it is read


def natural(path: Any) -> List[Union[int, str]]:
    """Return a sort key that puts model-2 before model-10."""
    parts: List[Union[int, str]] = list(re.split(r"([0-9]+)", os.path.basename(path)))
    parts[1::2] = [int(part) for part in parts[1::2]]
    return parts


def size_of(part: Any) -> int:
    """Return the bytes of a tensor, given as the result of get_slice()."""
    bits = re.search("[0-9]+", part.get_dtype())
    size = int(bits.group()) if bits else 8     # BOOL
    for length in part.get_shape():
        size *= length
    return (size + 7) // 8


class Plan:
    """What to read from one file: names and bytes of tensors, in the order of the file.

    reopen: function that opens the file
    """

    def __init__(self, path: str, reopen: Callable[[], Any], skip: Callable[[str], bool]) -> None:
        self.path, self.reopen = path, reopen
        self.model = reopen()
        self.names = [name for name in self.model.offset_keys() if not skip(name)]
        self.sizes = [size_of(self.model.get_slice(name)) for name in self.names]
        try:
            self.model.check_types(self.names)
        except SafetensorError as error:
            raise SafetensorError(f"{plain_name(path)}: {error}") from None

    def opened(self) -> Any:
        """Return the file, open.  If it was closed, open it again and check that its header is
        unchanged."""
        before, self.model = self.model, None
        if not before.closed:
            return before
        model = self.reopen()
        if not model.same_header(before):
            model.close()
            raise SafetensorError(f"{self.path}: the file was replaced after its header was read")
        return model

    def batches(self, most: int) -> Iterator[Tuple[List[str], int]]:
        """Yield ([names], bytes) of at most that many bytes, or of one larger tensor."""
        names: List[str] = []
        nbytes = 0
        for name, size in zip(self.names, self.sizes):
            if names and nbytes + size > most:
                yield names, nbytes
                names, nbytes = [], 0
            names.append(name)
            nbytes += size
        if names:
            yield names, nbytes


class _Reader:
    """State of the reading thread.  Does not reference the Ahead, so that dropping the Ahead ends
    the thread."""

    def __init__(self, plans: List[Plan], budget: int,
                 context: Callable[[], ContextManager[Any]]) -> None:
        self.plans, self.budget, self.context = plans, budget, context
        # Entries are (name, tensor, bytes), the last one is (None, an error or None, 0).
        self.found: "SimpleQueue[Tuple[Optional[str], Any, int]]" = SimpleQueue()
        # The caller puts numbers of bytes that it has used; any other object ends the thread.
        self.used: "SimpleQueue[Any]" = SimpleQueue()
        self.held = 0           # bytes that were read and not used yet
        self.stop = False
        self.ahead: Any = None  # weak reference to the Ahead

    def _room(self, nbytes: int) -> bool:
        """Wait until nbytes may be read.  Return False if the thread must end."""
        while self.held and self.held + nbytes > self.budget and not self.stop:
            used = self.used.get()
            if isinstance(used, int):
                self.held -= used
            else:
                self.stop = True
        self.held += nbytes
        return not self.stop

    def _read(self) -> None:
        # Read half of the budget while the other half is used.
        most = max(min(_BATCH, self.budget // 2), 1)
        for plan in self.plans:
            sizes = dict(zip(plan.names, plan.sizes))
            with plan.opened() as model:
                for names, nbytes in plan.batches(most):
                    if not self._room(nbytes):
                        return
                    try:
                        tensors = model.get_tensors(names)
                    except Exception as error:
                        if plan.path in str(error):
                            raise
                        raise SafetensorError(f"{plan.path}: {error}") from error
                    for name in names:
                        self.found.put((name, tensors.pop(name), sizes[name]))

    def work(self) -> None:
        failed: Optional[BaseException] = None
        try:
            with self.context():
                if not _ended:
                    self._read()
        except BaseException as error:  # pylint: disable=broad-except # the caller gets it
            failed = again(error)
        self.found.put((None, failed, 0))
        _readers.pop(self, None)

    def end(self) -> None:
        """Tell the thread to end."""
        self.stop = True
        self.used.put(None)


_readers: Dict[_Reader, Worker] = {}    # readers whose threads run
_ended: List[bool] = []                 # not empty once the interpreter is ending


@atexit.register
def _end_all() -> None:
    """End all threads: the interpreter would end them inside of torch, and the process with
    SIGABRT.
    """
    _ended.append(True)
    for reader, worker in list(_readers.items()):
        reader.end()
        worker.join()


class Ahead:
    """Reads tensors on a thread while earlier ones are used; a context manager.

    paths:    files, read in this order; all headers are checked first
    device:   as safe_open()
    budget: most bytes of tensors that are in flight or read but not yet used by the caller.
              A larger tensor is read alone.  None: the bytes of the largest file.
    skip:     function of a name: True if the tensor is not wanted
    strict:   as safe_open()
    context:  function that makes a context manager for the thread's work
    framework: as safe_open()

    Iterating yields (name, tensor, bytes).  A tensor counts as used when the next one is requested.
    """

    def __init__(self, paths: Iterable[str], device: str, budget: Optional[int] = None,
                 skip: Callable[[str], bool] = lambda name: False, strict: bool = False,
                 context: Callable[[], ContextManager[Any]] = contextlib.nullcontext,
                 framework: str = "pt") -> None:
        plans: List[Plan] = []
        self._open = contextlib.ExitStack()
        try:
            for path in paths:
                def reopen(path: str = path) -> Any:
                    return safe_open(path, framework, device, strict=strict)
                plan = Plan(path, reopen, skip)
                self._open.callback(plan.model.close)
                if len(plans) >= _OPEN_MAX:
                    plan.model.close()
                plans.append(plan)
        except BaseException:
            self._open.close()
            raise
        files = [sum(plan.sizes) for plan in plans]
        self.total = sum(files)
        self.budget = max(files, default=0) if budget is None else budget
        self._reader = reader = _Reader(plans, self.budget, context)
        # If the caller is interrupted before __exit__(), this object's end stops the thread.
        reader.ahead = weakref.ref(self, reader.used.put)
        # The worker references the reader; the reverse would be a cycle.
        self._worker = Worker(reader.work)

    def __enter__(self) -> "Ahead":
        _readers[self._reader] = self._worker
        try:
            self._worker.start()
        except BaseException:
            if not self._worker.started:
                _readers.pop(self._reader, None)
            raise
        return self

    def __iter__(self) -> Iterator[Tuple[str, Any, int]]:
        reader = self._reader
        while True:
            if not self._worker.here:
                raise SafetensorError("tensors are read in the process that was forked, and not "
                                      "here")
            name, found, nbytes = reader.found.get()
            if name is None:
                reader.found.put((None, found, 0))      # so that another iteration finds it too
                break
            yield name, found, nbytes
            del found
            reader.used.put(nbytes)
        if found is not None:
            raise again(found)

    def __exit__(self, *_: Any) -> None:
        """Wait for the read in flight, if any."""
        reader = self._reader
        reader.end()
        self._worker.join()
        self._open.close()
        while not reader.found.empty():
            reader.found.get()
        reader.found.put((None, None, 0))
