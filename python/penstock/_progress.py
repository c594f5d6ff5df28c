# SPDX-License-Identifier: MIT
"""Progress of long calls: a function of the program, tqdm, or a line on standard error."""
import contextlib
import importlib
import sys
from typing import Any, Callable, Iterator, Optional

from ._types import Progress


def _text(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"


class _Line:
    """One line: rewritten on a terminal, otherwise printed once at the end."""

    def __init__(self, total: int) -> None:
        self._stream, self._total, self._so_far = sys.stderr, total, 0
        self._terminal = self._stream is not None and self._stream.isatty()

    def _write(self, text: str) -> None:
        if self._stream is not None:
            print(text, end="", file=self._stream, flush=True)

    def update(self, nbytes: int) -> None:
        self._so_far += nbytes
        if self._terminal:
            self._write(f"\r\033[Kpenstock: {_text(self._so_far)} of {_text(self._total)}")

    def close(self) -> None:
        self._write("\n" if self._terminal else
                    f"penstock: {_text(self._so_far)} of {_text(self._total)}\n")


def _bar(total: int) -> Any:
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return _Line(total)
    return tqdm(total=total, unit="B", unit_scale=True, desc="penstock")


def checked(progress: Progress) -> Progress:
    """Return the argument progress= of a call; TypeError for an invalid one."""
    if progress is None or isinstance(progress, bool) or callable(progress):
        return progress
    raise TypeError("progress is True, False, None or a function of (bytes so far, bytes in all), "
                    f"and no '{type(progress).__name__}'")


@contextlib.contextmanager
def reports(progress: Progress, total: int) -> Iterator[Optional[Callable[[int], Any]]]:
    """Yield a function to call with each number of moved bytes, or None.

    progress: a function of (bytes so far, total bytes); True for tqdm, or a line on standard error
              if tqdm is not installed; False or None for nothing
    """
    if not progress:
        yield None
    elif callable(progress):
        function, so_far = progress, 0

        def done(nbytes: int) -> None:
            nonlocal so_far
            so_far += nbytes
            function(so_far, total)
        yield done
    else:
        bar = _bar(total)
        try:
            yield bar.update
        finally:
            bar.close()
