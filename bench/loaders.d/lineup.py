# SPDX-License-Identifier: MIT
"""The loaders that are measured: Penstock and the plain loop, both in bench/load, and those in
peers/, including Penstock's Python package."""
import importlib.util
import os
import sys
from importlib import metadata

HERE = os.path.dirname(os.path.abspath(__file__))


class Loader:
    """A loader as a command that loads a model for each line it receives."""

    def __init__(self, name, command, ours=False, versions=None):
        self.name = name
        self.command = command
        self.ours = ours
        self.versions = versions or {}  # {package: version}


class Absent:
    """A loader that cannot take part, with the reason, and what to install if that helps."""

    def __init__(self, name, text, install=""):
        self.name = name
        self.text = text
        self.install = install


def module_of(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location("peer_" + name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own(load, device, threads):
    """Return bench/load's loaders: Penstock's, and the plain loop."""
    steps = [load, "--steps", "--device", device]
    pinned = steps + ["--by", "pinned", "--threads", str(threads)]
    found = [Loader("penstock", steps, ours=True),
             Loader("penstock-per-file", steps + ["--per", "file"], ours=True),
             Loader("by-hand", pinned)]
    if device.startswith("cuda"):
        found.append(Loader("by-hand-direct", pinned + ["--direct"]))
    return found


def missing(module, device):
    """Return the modules that are not installed, without importing any."""
    return [name for name in module.modules(device) if importlib.util.find_spec(name) is None]


def versions(module, device):
    """Return the versions of the installed packages; a module's package may have several names."""
    found = {}
    for names in module.modules(device).values():
        for name in names:
            try:
                found[name] = metadata.version(name)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def of_file(path, device):
    """Return the loaders in one file of peers/, and those that cannot take part."""
    module = module_of(path)
    child = [sys.executable, os.path.join(HERE, "child.py"), path]
    found, absent = [], []
    for name in module.NAMES:
        why = module.why_not(name, device)
        lacks = missing(module, device)
        if why:
            absent.append(Absent(name, why))
        elif lacks:
            absent.append(Absent(name, "not installed: " + ", ".join(lacks), module.INSTALL))
        else:
            found.append(Loader(name, child + [name, device], getattr(module, "OURS", False),
                                versions(module, device)))
    return found, absent


def peer_files(added):
    folder = os.path.join(HERE, "peers")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))
            if name.endswith(".py")] + [os.path.abspath(path) for path in added]


def use_library(load):
    """Let the Python package use the library that bench/load uses, in a build folder."""
    library = os.path.join(os.path.dirname(load), "..", "src", "libpenstock.so.0")
    if os.path.isfile(library):
        os.environ.setdefault("PST_LIBPENSTOCK", os.path.realpath(library))


def everybody(load, device, threads, added):
    use_library(load)
    found, absent = own(load, device, threads), []
    for path in peer_files(added):
        some, others = of_file(path, device)
        found += some
        absent += others
    return found, absent
