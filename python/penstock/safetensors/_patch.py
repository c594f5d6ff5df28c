# SPDX-License-Identifier: MIT
"""Let programs that use the package safetensors use this one, within a block."""
import contextlib
import functools
import importlib
import sys
import threading
import types
from typing import Iterator

from ._frames import served
from ._header import AnySafetensorError
from ._load import safe_open

# For each module, the names to replace: {name: position of the argument device, or None}.
_NAMES = {
    "safetensors.torch": {"load_file": 1, "save_file": None, "load_model": 3, "save_model": None},
    "safetensors.numpy": {"load_file": None, "save_file": None},
}
_lock = threading.Lock()
_depth = 0
_ours = []  # pairs of the package's object and ours


# Each block makes a new class, so that the end of the block recognises its own replacements.

def _opens(theirs):
    class Choice(type):
        """Return a class, because safe_open is one: programs use it in isinstance() and in hints.
        """

        def __call__(cls, filename, framework, device="cpu", **options):
            call = safe_open if served(framework, device) else theirs
            return call(filename, framework, device, **options)

        def __instancecheck__(cls, obj):
            return isinstance(obj, (safe_open, theirs))
    return Choice(safe_open.__name__, (), {"__doc__": safe_open.__doc__})


def _calls(theirs, ours, place):
    """Return a function that chooses.  place: position of the device among the arguments, or None.
    """
    @functools.wraps(ours)
    def call(*args, **options):
        device = options.get("device", args[place] if place and len(args) > place else "cpu")
        return (ours if not place or served("pt", device) else theirs)(*args, **options)
    return call


def _pairs():
    try:
        package = importlib.import_module("safetensors")
    except ImportError:
        raise ImportError("there is nothing to patch: the package safetensors is not installed"
                          ) from None
    pairs = [(package.safe_open, _opens(package.safe_open)),
             (package.SafetensorError, AnySafetensorError)]
    for module, names in _NAMES.items():
        try:
            theirs = importlib.import_module(module)
        except ImportError:
            continue  # torch or numpy is not installed
        ours = importlib.import_module(f"penstock.{module}")
        for name, place in names.items():
            old = getattr(theirs, name)
            pairs.append((old, _calls(old, getattr(ours, name), place)))
    return pairs


def _rebind(pairs):
    """In every module, replace the first object of each pair by the second."""
    wanted = {id(old): (old, new) for old, new in pairs}
    here = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or name.partition(".")[0] == here:
            continue
        for key, value in list(vars(module).items()):
            found = wanted.get(id(value))
            if found is not None and found[0] is value:
                setattr(module, key, found[1])


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """Within this block, programs that use the package safetensors use penstock.safetensors.

        with penstock.safetensors.patched():
            model = transformers.AutoModel.from_pretrained(...)

    Replaces safe_open() and the file functions of safetensors.torch and safetensors.numpy, in that
    package and in every module that has imported them, such as transformers and accelerate, until
    the end of the block.  Also replaces SafetensorError, for programs that catch it.  Calls for
    unsupported frameworks and devices go to the package, which raises its own errors.  The block
    affects all threads.
    """
    global _depth, _ours
    with _lock:
        if not _depth:
            _ours = _pairs()
            _rebind(_ours)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                _rebind([(new, old) for old, new in _ours])
                _ours = []
