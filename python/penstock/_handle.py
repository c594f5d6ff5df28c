# SPDX-License-Identifier: MIT
"""What Python's objects hold of the library's.

A handler of signals, that of Ctrl-C first of all, may raise where Python looks for signals: as a
function begins, at the end of each turn of a loop and after each call.  What the library gave must
then be neither lost nor given back twice.  Hence two rules:

  - The box that takes a handle is made, and known to an Owner, before the call that fills it.
  - What leaves a box does so within one call of C, which also takes it to where it goes.
"""
import weakref
from collections import deque
from itertools import starmap
from typing import Any, Callable, Deque, Dict, List, NoReturn, Optional, Tuple, TypeVar

T = TypeVar("T")
ONCE = ((),)    # for starmap(): the arguments of one call, none


def spend(box: List[T], function: Callable[[T], Any]) -> bool:
    """Call function, which is one of C, with what is in a box; False if the box is empty."""
    if not box:
        return False
    try:
        deque(map(function, starmap(box.pop, ONCE)), 0)
        return True
    except IndexError:
        return False  # another thread was faster


def settle(pop: Callable[[], T], done: Callable[[T], bool], rest: Any) -> bool:
    """Take a thing by pop() and call done with it.  False if there is none.

    If done returns False, or is interrupted and then once more, the thing comes into rest, a list
    or deque.
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
    """Call done with each of a deque; those of which it returns False, or raises, stay."""
    for _ in range(len(work)):
        if not settle(work.popleft, done, work):
            break   # another thread was faster


_Box = List[Any]
_GiveBack = Callable[[_Box], Any]

# Boxes that are not empty, by the id of the reference to their owner.
_boxes: "Dict[int, Tuple[weakref.ref[Any], _Box, _GiveBack]]" = {}
# References to owners that have gone while they had a box.
_orphans: "Deque[weakref.ref[Any]]" = deque()


def _adopt(owner: "weakref.ref[Any]") -> bool:
    if id(owner) in _boxes:     # else its __del__() came to an end
        _, box, give_back = _boxes[id(owner)]
        give_back(box)
        _boxes.pop(id(owner), None)
    return True


class Owner:
    """An object with a handle of the library's, in a box that is empty after close().

    box:       a list of one c_void_p
    give_back: empties the box; where that is interrupted, or was done, it may be called again
    """

    _noun = "object"

    def __init__(self, box: _Box, give_back: _GiveBack) -> None:
        # Should __del__() be interrupted: the reference comes into _orphans without Python's code.
        ref = weakref.ref(self, _orphans.append)
        _boxes[id(ref)] = (ref, box, give_back)
        self._ref: "Optional[weakref.ref[Owner]]" = ref
        self._end, self._box = give_back, box
        if _orphans:
            each(_orphans, _adopt)

    @property
    def handle(self) -> int:
        """The library's pointer; ValueError after close()."""
        try:
            value: int = self._box[0].value
        except IndexError:
            raise ValueError(f"the {self._noun} is closed") from None
        return value

    @property
    def closed(self) -> bool:
        """Was it closed?"""
        return not self._box

    def close(self) -> None:
        """Give it back.  May be called again."""
        self._end(self._box)
        _boxes.pop(id(self._ref), None)
        self._ref = None

    def __del__(self) -> None:
        # Of what failed in __init__() there may be nothing.
        if getattr(self, "_box", None):
            self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {self._noun} is of one process and can be neither pickled nor copied; "
                        "make one in each process")
