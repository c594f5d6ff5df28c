# SPDX-License-Identifier: MIT
"""Threads that read ahead, and bells that wake waiting threads.

threading's Thread, Condition and Event are written in Python: a signal handler that raises within
one leaves its lock taken, and another thread waits for ever.  Here each step is one call of C.
"""
import _thread
import operator
import os
from collections import deque
from itertools import repeat, starmap
from typing import Any, Callable, List

_release = operator.methodcaller("release")


class Worker:
    """A thread for one function, which should not raise; the process may end before the thread."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self._pid = function, os.getpid()
        self._running: Any = _thread.allocate_lock()
        self._running.acquire()
        self._started: List[int] = []

    def _work(self) -> None:
        try:
            self._function()
        finally:
            self._running.release()

    def start(self) -> None:
        self._started += starmap(_thread.start_new_thread, ((self._work, ()),))

    @property
    def started(self) -> bool:
        """Return whether the thread was started."""
        return bool(self._started)

    @property
    def here(self) -> bool:
        """Return whether this process started it."""
        return self._pid == os.getpid()

    def join(self) -> None:
        """Wait for the thread's end, if this process started it.  May be called again."""
        if self._started and self.here:
            with self._running:
                pass


class Bell:
    """Wakes all waiting threads.  All calls of sleeper() and ring() must hold one common lock."""

    def __init__(self) -> None:
        self._sleepers: List[Any] = []

    def sleeper(self) -> Any:
        """Return a lock that is taken until the next ring(); acquire() it without the common lock.
        """
        sleeper = _thread.allocate_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        return sleeper

    def ring(self) -> None:
        sleepers = self._sleepers
        deque(map(_release, starmap(sleepers.pop, repeat((), len(sleepers)))), 0)
