# SPDX-License-Identifier: MIT
"""Shared by the package's tests: their folder, and optional packages."""
import gc
import os
import shutil
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from cases import Skip, case, data, eq, gives, run_cases, true  # noqa: E402 # pylint: disable=C0413

__all__ = ["Skip", "case", "data", "eq", "file", "gives", "numpy", "run", "torch", "true", "work"]

work = tempfile.mkdtemp(prefix="python-")


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


def run():
    good = run_cases(after=gc.collect)
    shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if good else 1)
