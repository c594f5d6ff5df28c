# SPDX-License-Identifier: MIT
"""Tensors of a model's files one after the other, read ahead by a thread within a budget."""
import collections
import contextlib
import os
import re
import threading
from typing import (Any, Callable, ContextManager, Deque, Iterable, Iterator, List, Optional,
                    Tuple, Union)

from .safetensors import SafetensorError, safe_open

_BATCH = 256 << 20      # bytes that are read by one call at most


def natural(path: Any) -> List[Union[int, str]]:
    """A key that sorts model-2 before model-10."""
    return [int(part) if part.isdigit() else part
            for part in re.split(r"([0-9]+)", os.path.basename(path))]


def size_of(part: Any) -> int:
    """Bytes of a tensor, of what get_slice() gives."""
    bits = re.search("[0-9]+", part.get_dtype())
    size = int(bits.group()) if bits else 8     # BOOL
    for length in part.get_shape():
        size *= length
    return (size + 7) // 8


class Plan:
    """What is read of one file: names and their bytes in the order of the file."""

    def __init__(self, path: str, model: Any, skip: Callable[[str], bool]) -> None:
        self.path, self.model = path, model
        self.names = [name for name in model.offset_keys() if not skip(name)]
        self.sizes = [size_of(model.get_slice(name)) for name in self.names]

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


class Ahead:
    """Reads tensors on a thread of its own while others are used; a context manager.

    paths:    files, which are read in this order; all are opened, and their headers checked, first
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
        # Signals come into the `with` of a Condition, and not into that of its lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._found: Deque[Tuple[str, Any, int]] = collections.deque()  # name, tensor, bytes
        self._held = 0          # bytes that count
        self._stop = self._end = False
        self._error: Optional[BaseException] = None
        self._thread: Optional[threading.Thread] = None
        self._context = context
        self._plans: List[Plan] = []
        self._open = contextlib.ExitStack()
        try:
            for path in paths:
                model = self._open.enter_context(safe_open(path, framework, device,
                                                                    strict=strict))
                self._plans.append(Plan(path, model, skip))
        except BaseException:
            self._open.close()
            raise
        files = [sum(plan.sizes) for plan in self._plans]
        self.total = sum(files)
        self.budget = max(files, default=0) if budget is None else budget

    # --------------------------------------------------------------------- its thread

    def _room(self, nbytes: int) -> bool:
        """Wait until so many bytes may be read.  False: nobody wants them any more."""
        with self._lock:
            while self._held and self._held + nbytes > self.budget and not self._stop:
                self._changed.wait()
            if not self._stop:
                self._held += nbytes
            return not self._stop

    def _read(self) -> None:
        # Half of the budget is read while the other half is used.
        most = max(min(_BATCH, self.budget // 2), 1)
        for plan in self._plans:
            sizes = dict(zip(plan.names, plan.sizes))
            for names, nbytes in plan.batches(most):
                if not self._room(nbytes):
                    return
                try:
                    tensors = plan.model.get_tensors(names)
                except Exception as error:
                    if plan.path in str(error):
                        raise
                    raise SafetensorError(f"{plan.path}: {error}") from error
                with self._lock:
                    for name in names:
                        self._found.append((name, tensors.pop(name), sizes[name]))
                    self._changed.notify_all()

    def _work(self) -> None:
        try:
            with self._context():
                self._read()
        except BaseException as error:  # pylint: disable=broad-except # the caller gets it
            self._error = error
        with self._lock:
            self._end = True
            self._changed.notify_all()

    # --------------------------------------------------------------------- its caller

    def __enter__(self) -> "Ahead":
        self._thread = threading.Thread(target=self._work, name="penstock-ahead", daemon=True)
        self._thread.start()
        return self

    def __iter__(self) -> Iterator[Tuple[str, Any, int]]:
        used = 0
        while True:
            with self._lock:
                self._held -= used
                self._changed.notify_all()
                while not self._found and not self._end:
                    self._changed.wait()
                if not self._found:
                    break
                name, tensor, used = self._found.popleft()
            yield name, tensor, used
            del tensor
        if self._error is not None:
            raise self._error

    def __exit__(self, *_: Any) -> None:
        """Waits for the read that is under way, if there is one."""
        with self._lock:
            self._stop = True
            self._found.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._open.close()
