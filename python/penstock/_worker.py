# SPDX-License-Identifier: MIT
"""Threads that read ahead, and bells that wake who waits for them.

threading's Thread, Condition and Event are written in Python: a handler of a signal that raises
within one leaves its lock taken, and somebody waits for ever.  Here each step is one of C.
"""
import _thread
import operator
import os
from collections import deque
from itertools import repeat, starmap
from typing import Any, Callable, List

_release = operator.methodcaller("release")


class Worker:
    """A thread for one function, which should let nothing be raised; the process may end before."""

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
        """Was it?"""
        return bool(self._started)

    @property
    def here(self) -> bool:
        """Is this the process that made it?"""
        return self._pid == os.getpid()

    def join(self) -> None:
        """Wait for its end, if it was started and by this process.  May be called again."""
        if self._started and self.here:
            with self._running:
                pass


class Bell:
    """Wakes all that wait; sleeper() and ring() want a lock that is the same for all."""

    def __init__(self) -> None:
        self._sleepers: List[Any] = []

    def sleeper(self) -> Any:
        """A lock that is taken until the next ring(): acquire() it without the other one."""
        sleeper = _thread.allocate_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        return sleeper

    def ring(self) -> None:
        sleepers = self._sleepers
        deque(map(_release, starmap(sleepers.pop, repeat((), len(sleepers)))), 0)
