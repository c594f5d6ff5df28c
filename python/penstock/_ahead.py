# SPDX-License-Identifier: MIT
"""Tensors of a model's files one after the other, read ahead by a thread within a budget."""
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

_BATCH = 256 << 20      # bytes that are read by one call at most
_OPEN_MAX = 64          # files; of more each is opened again when it is read


def natural(path: Any) -> List[Union[int, str]]:
    """A key that sorts model-2 before model-10."""
    parts: List[Union[int, str]] = list(re.split(r"([0-9]+)", os.path.basename(path)))
    parts[1::2] = [int(part) for part in parts[1::2]]
    return parts


def size_of(part: Any) -> int:
    """Bytes of a tensor, of what get_slice() gives."""
    bits = re.search("[0-9]+", part.get_dtype())
    size = int(bits.group()) if bits else 8     # BOOL
    for length in part.get_shape():
        size *= length
    return (size + 7) // 8


class Plan:
    """What is read of one file: names and their bytes in the order of the file.

    reopen: opens it
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
        """The file, closed or not, as it was when its header was read."""
        before, self.model = self.model, None
        if not before.closed:
            return before
        model = self.reopen()
        if not model.same_header(before):
            model.close()
            raise SafetensorError(f"{self.path}: the file was replaced after its header was read")
        return model

    def batches(self, most: int) -> Iterator[Tuple[List[str], int]]:
        """([names], bytes): at most that many bytes, or one tensor."""
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
    """What the thread has to do; it does not hold the Ahead, whose end is its own."""

    def __init__(self, plans: List[Plan], budget: int,
                 context: Callable[[], ContextManager[Any]]) -> None:
        self.plans, self.budget, self.context = plans, budget, context
        # (name, tensor, bytes), and at the end (None, an error or None, 0).
        self.found: "SimpleQueue[Tuple[Optional[str], Any, int]]" = SimpleQueue()
        # Numbers of bytes that the caller has used.  Anything but a number ends the reading.
        self.used: "SimpleQueue[Any]" = SimpleQueue()
        self.held = 0           # bytes that count
        self.stop = False
        self.ahead: Any = None  # a reference

    def _room(self, nbytes: int) -> bool:
        """Wait until so many bytes may be read.  False: nobody wants them any more."""
        while self.held and self.held + nbytes > self.budget and not self.stop:
            used = self.used.get()
            if isinstance(used, int):
                self.held -= used
            else:
                self.stop = True
        self.held += nbytes
        return not self.stop

    def _read(self) -> None:
        # Half of the budget is read while the other half is used.
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
        """Nobody wants more."""
        self.stop = True
        self.used.put(None)


_readers: Dict[_Reader, Worker] = {}    # that are at work
_ended: List[bool] = []                 # the interpreter's end has begun


@atexit.register
def _end_all() -> None:
    """A thread that the interpreter ends inside of torch ends the process with SIGABRT."""
    _ended.append(True)
    for reader, worker in list(_readers.items()):
        reader.end()
        worker.join()


class Ahead:
    """Reads tensors on a thread of its own while others are used; a context manager.

    paths:    files, which are read in this order; the headers of all are checked first
    device:   as safe_open() takes it
    budget:   bytes of tensors that are read or being read and that the caller did not come to yet.
              A tensor that is larger is read when there is none.  None: the largest file's bytes.
    skip:     of a name: is the tensor not wanted?
    strict:   as safe_open()
    context:  makes a context manager that the thread works in
    framework: as safe_open() takes it

    Iterating gives (name, tensor, bytes).  A tensor counts as used when the next one is asked for.
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
        # If the caller is interrupted on the way to __exit__(), dropping the reference stops the
        # thread.
        reader.ahead = weakref.ref(self, reader.used.put)
        # Which knows the reader; the other way round it would be a cycle.
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
                reader.found.put((None, found, 0))      # for who iterates once more
                break
            yield name, found, nbytes
            del found
            reader.used.put(nbytes)
        if found is not None:
            raise again(found)

    def __exit__(self, *_: Any) -> None:
        """Waits for the read that is under way, if there is one."""
        reader = self._reader
        reader.end()
        self._worker.join()
        self._open.close()
        while not reader.found.empty():
            reader.found.get()
        reader.found.put((None, None, 0))
