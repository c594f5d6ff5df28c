# SPDX-License-Identifier: MIT
"""Tests in Python: cases that print TAP, and checks for them.

    @case
    def reads_past_the_end():
        eq(ring.wait(), [])

    run()

PST_TEST_CASE has the names of the only cases to run, separated by commas.
"""
import errno
import os
import sys
import traceback

_cases = []


class Skip(Exception):
    """Something that the case needs is missing."""


def case(function):
    _cases.append(function)
    return function


def _short(value):
    text = repr(value)
    return text if len(text) < 1000 else f"{text[:1000]}..., {len(text)} characters"


def eq(got, want):
    if got != want:
        raise AssertionError(f"got {_short(got)}, not {_short(want)}")


def true(what, text=""):
    if not what:
        raise AssertionError(str(text)[:4000] or "it is not so")


def gives(kind, function, *args, **kwargs):
    """Check that a call raises that class, or an OSError with that errno.  Return the exception."""
    try:
        result = function(*args, **kwargs)
    except Exception as e:
        if isinstance(kind, int):
            if not isinstance(e, OSError) or e.errno != kind:
                raise
        elif not isinstance(e, kind):
            raise
        return e
    name = errno.errorcode[kind] if isinstance(kind, int) else kind.__name__
    raise AssertionError(f"{name} was to be raised, and {_short(result)} was returned")


def data(size, seed=1):
    """Return bytes without a short period."""
    return b"".join((seed * 1000003 + i * 2654435761).to_bytes(8, "little")
                    for i in range((size + 7) // 8))[:size]


def _run(function, after):
    try:
        function()
        after()
        return "ok", "", ""
    except Skip as e:
        return "ok", f" # SKIP {e}", ""
    except Exception:
        return "not ok", "", traceback.format_exc()


def run_cases(after=lambda: None, without=""):
    """Run all cases.  Return whether none failed.

    after:   called at the end of each case; may raise
    without: what is missing for all of them, or ""
    """
    only = os.environ.get("PST_TEST_CASE", "")
    chosen = [c for c in _cases if not only or c.__name__ in only.split(",")]
    if without or not chosen:
        print(f"1..0 # SKIP {without or f'a case called {only}'}")
        return True
    failed = 0
    for number, function in enumerate(chosen, 1):
        what, note, text = _run(function, after)
        failed += what != "ok"
        print(f"{what} {number} {function.__name__}{note}")
        for line in text.splitlines():
            print(f"# {line}")
        sys.stdout.flush()
    print(f"1..{len(chosen)}")
    return not failed
