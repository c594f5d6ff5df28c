# SPDX-License-Identifier: MIT
"""Ownership of the library's handles by Python's objects.

A signal handler, such as that of Ctrl-C, may raise wherever Python checks for signals: at the begin
of a function, at the end of each turn of a loop, and after each call.  A handle must then be
neither lost nor freed twice.  Hence two rules:

  - The box for a handle is made, and known to an Owner, before the call that fills it.
  - A handle leaves its box within one call of C, which also puts it where it goes.
"""
import weakref
from collections import deque
from itertools import starmap
from typing import Any, Callable, Deque, Dict, List, NoReturn, Optional, Tuple, TypeVar

T = TypeVar("T")
ONCE = ((),)    # for starmap(): one call without arguments


def spend(box: List[T], function: Callable[[T], Any]) -> bool:
    """Call a C function with the content of a box.  Return False if the box is empty."""
    if not box:
        return False
    try:
        deque(map(function, starmap(box.pop, ONCE)), 0)
        return True
    except IndexError:
        return False  # another thread was faster


def settle(pop: Callable[[], T], done: Callable[[T], bool], rest: Any) -> bool:
    """Take an object by pop() and call done with it.  Return False if there is none.

    If done returns False, or is interrupted twice, the object is appended to rest, a list or deque.
    """
    mine: List[T] = []
    try:
        mine += starmap(pop, ONCE)
        if done(mine[0]):
            mine.clear()
        return True
    except IndexError:
        return False
    except BaseException:
        if mine and done(mine[0]):
            mine.clear()
        raise
    finally:
        rest.extend(mine)


def each(work: Deque[T], done: Callable[[T], bool]) -> None:
    """Call done with each element of a deque; those for which it returns False or raises stay."""
    for _ in range(len(work)):
        if not settle(work.popleft, done, work):
            break   # another thread was faster


_Box = List[Any]
_GiveBack = Callable[[_Box], Any]

# Non-empty boxes, by the id of the weak reference to their owner.
_boxes: "Dict[int, Tuple[weakref.ref[Any], _Box, _GiveBack]]" = {}
# Weak references to owners that ended while they had a full box.
_orphans: "Deque[weakref.ref[Any]]" = deque()


def _adopt(owner: "weakref.ref[Any]") -> bool:
    if id(owner) in _boxes:     # otherwise its __del__() completed
        _, box, give_back = _boxes[id(owner)]
        give_back(box)
        _boxes.pop(id(owner), None)
    return True


class Owner:
    """An object with a handle of the library, in a box that is empty after close().

    box:       a list of one c_void_p
    give_back: function that empties the box; may be called again after an interruption or its end
    """

    _noun = "object"

    def __init__(self, box: _Box, give_back: _GiveBack) -> None:
        # If __del__() is interrupted, C code alone appends the reference to _orphans.
        ref = weakref.ref(self, _orphans.append)
        _boxes[id(ref)] = (ref, box, give_back)
        self._ref: "Optional[weakref.ref[Owner]]" = ref
        self._end, self._box = give_back, box
        if _orphans:
            each(_orphans, _adopt)

    @property
    def handle(self) -> int:
        """The library's pointer.  Raises ValueError after close()."""
        try:
            value: int = self._box[0].value
        except IndexError:
            raise ValueError(f"the {self._noun} is closed") from None
        return value

    @property
    def closed(self) -> bool:
        """True after close()."""
        return not self._box

    def close(self) -> None:
        """Release the handle.  May be called again."""
        self._end(self._box)
        _boxes.pop(id(self._ref), None)
        self._ref = None

    def __del__(self) -> None:
        # __init__() may have failed before it made the box.
        if getattr(self, "_box", None):
            self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {self._noun} is of one process and can be neither pickled nor copied; "
                        "make one in each process")
