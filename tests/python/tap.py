# SPDX-License-Identifier: MIT
"""The harness of the package's tests: cases that print TAP, and what they share."""
import gc
import os
import shutil
import sys
import tempfile
import traceback

_cases = []
work = tempfile.mkdtemp(prefix="python-")


class Skip(Exception):
    """What is missing."""


def case(function):
    _cases.append(function)
    return function


def eq(got, want):
    if got != want:
        raise AssertionError(f"got {_short(got)}, not {_short(want)}")


def true(what, text=""):
    if not what:
        raise AssertionError(text or "it is not so")


def _short(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}..., {len(text)} characters"


def gives(kind, function, *args, **kwargs):
    """It raises that class, or an OSError with that errno; the exception is returned."""
    try:
        result = function(*args, **kwargs)
    except Exception as e:
        if isinstance(kind, int):
            if not isinstance(e, OSError) or e.errno != kind:
                raise
        elif not isinstance(e, kind):
            raise
        return e
    raise AssertionError(f"{kind} was to be raised, and {_short(result)} was returned")


def data(size, seed=1):
    """Bytes without a short period."""
    return b"".join((seed * 1000003 + i * 2654435761).to_bytes(8, "little")
                    for i in range((size + 7) // 8))[:size]


def file(name, content=b""):
    path = f"{work}/{name}"
    with open(path, "wb") as f:
        f.write(content)
    return path


def numpy():
    try:
        import numpy as module
    except ImportError:
        raise Skip("numpy") from None
    return module


def torch():
    if os.environ.get("PST_TEST_SANITIZED"):
        raise Skip("a sanitizer's checks of torch itself")
    try:
        import torch as module
    except ImportError:
        raise Skip("torch") from None
    return module


def _run(function):
    try:
        function()
        gc.collect()
        return "ok", "", ""
    except Skip as e:
        return "ok", f" # SKIP {e}", ""
    except Exception:
        return "not ok", "", traceback.format_exc()


def run():
    only = os.environ.get("PST_TEST_CASE", "")
    cases = [c for c in _cases if not only or c.__name__ in only.split(",")]
    if not cases:
        print(f"1..0 # SKIP a case called {only}")
        return
    failed = 0
    for number, function in enumerate(cases, 1):
        what, note, text = _run(function)
        failed += what != "ok"
        print(f"{what} {number} {function.__name__}{note}")
        for line in text.splitlines():
            print(f"# {line}")
        sys.stdout.flush()
    print(f"1..{len(cases)}")
    shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failed else 0)
