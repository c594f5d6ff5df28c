# SPDX-License-Identifier: MIT
"""Build backend for pip and build (PEP 517): makes the wheel of ./dev wheel, and a source archive
that makes the same wheel.

The build needs packages that are not on PyPI: ./dev names missing ones, and installs none.
"""
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile

import wheel

ROOT = wheel.ROOT


def _stop(what):
    sys.exit(f"penstock: {what}")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Make the wheel.  Return its name."""
    if not os.access(ROOT, os.W_OK):
        _stop(f"{ROOT} cannot be written, and the build is made in it: copy it to a folder of "
              "yours")
    # pip sets PYTHONPATH, which hides the system's packages, including meson, from Python.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([f"{ROOT}/dev", "wheel"], env={**env, "PST_DEV_INSTALL": "no"},
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        _stop("the wheel was not built, for the reason above; docs/DEPENDENCIES.md has what the "
              "build needs")
    path = done.stdout.splitlines()[-1]
    shutil.copy(os.path.join(ROOT, path), wheel_directory)
    return os.path.basename(path)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the wheel's metadata without building it.  Return the folder's name."""
    folder = None
    for name, content in wheel.information():
        path = os.path.join(metadata_directory, name)
        folder = os.path.dirname(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    return folder


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Refuse editable installs: a checkout has several builds of the library."""
    _stop("an editable install is not served, as the library has to be built; for work on the "
          f"package run ./dev build, then set PYTHONPATH={ROOT}/python and "
          f"PST_LIBPENSTOCK={ROOT}/build/default/src/libpenstock.so.0")


def _tree():
    """Return the source files: those known to git, or all files of an unpacked archive except built
    ones."""
    if os.path.exists(f"{ROOT}/.git"):
        try:
            done = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True,
                                  check=False)
        except FileNotFoundError:
            _stop(f"git is not installed, and only git tells which files of {ROOT} belong to the "
                  "source; install git")
        if done.returncode:
            _stop(f"git cannot list the files of {ROOT}: {done.stderr.decode().strip()}")
        return sorted(name for name in done.stdout.decode().split("\0")
                      if name and os.path.lexists(f"{ROOT}/{name}"))
    names = []
    for place, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name != "__pycache__" and not (
            place == ROOT and name.startswith("build"))]
        names += [os.path.relpath(os.path.join(place, name), ROOT) for name in files]
    return sorted(name for name in names if name != "PKG-INFO")


def build_sdist(sdist_directory, config_settings=None):
    """Make a source archive with reproducible bytes.  Return its name."""
    base = f"penstock-{wheel.version()}"
    path = os.path.join(sdist_directory, f"{base}.tar.gz")
    names = _tree()

    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            archive.add(f"{ROOT}/{name}", f"{base}/{name}", recursive=False, filter=plain)
        entry, content = tarfile.TarInfo(f"{base}/PKG-INFO"), wheel.metadata()
        entry.size = len(content)
        archive.addfile(plain(entry), io.BytesIO(content))
    return os.path.basename(path)
