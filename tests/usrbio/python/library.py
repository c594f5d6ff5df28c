# SPDX-License-Identifier: MIT
"""Which library is loaded, and the error if there is none."""
import os
import shutil
import subprocess
import sys
import tempfile

import hf3fs_py_usrbio
from tap import Skip, case, eq, run

SO = "libhf3fs_api_shared.so"
MODULES = os.path.dirname(hf3fs_py_usrbio.__file__)
LIBRARY = os.path.realpath(f"{os.environ['USRBIO_DIR']}/{SO}")
SHOW = """
import hf3fs_fuse.io
print({line.split()[-1] for line in open("/proc/self/maps") if "libhf3fs_api" in line}.pop())
"""


def load(modules=MODULES, **settings):
    env = {k: v for k, v in os.environ.items()
           if k not in ("HF3FS_LIBRARY_PATH", "LD_LIBRARY_PATH", "PYTHONPATH")}
    got = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True,
                         env={**env, "PYTHONPATH": modules, **settings}, timeout=60)
    return got.stdout.strip() or got.stderr.strip().splitlines()[-1]


def copied(root):
    """Copy the installed modules, without the library, to a directory below the library's."""
    os.mkdir(f"{root}/python")
    for name in ("hf3fs_py_usrbio.py", "hf3fs_fuse"):
        copy = shutil.copytree if os.path.isdir(f"{MODULES}/{name}") else shutil.copy
        copy(f"{MODULES}/{name}", f"{root}/python/{name}")
    return f"{root}/python"


def need_no_other():
    with tempfile.TemporaryDirectory() as root:
        found = load(copied(root))
    if not found.startswith("ImportError: "):
        raise Skip(f"a machine whose loader finds no {SO}; it finds {found}")


@case
def by_setting():
    eq(load(HF3FS_LIBRARY_PATH=LIBRARY), LIBRARY)
    eq(load(HF3FS_LIBRARY_PATH=os.path.dirname(LIBRARY)), LIBRARY)


@case
def by_the_loader():
    eq(load(LD_LIBRARY_PATH=os.path.dirname(LIBRARY)), LIBRARY)


@case
def by_its_place():
    need_no_other()
    with tempfile.TemporaryDirectory() as root:
        modules = copied(root)
        shutil.copy(LIBRARY, f"{root}/{SO}")
        eq(load(modules, LD_LIBRARY_PATH=os.environ["PENSTOCK_DIR"]), f"{root}/{SO}")


@case
def beside_the_package_of_3fs():
    """If 3FS's package is installed, its other modules remain importable."""
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(f"{root}/hf3fs_fuse")
        for name in ("__init__", "io", "fuse"):
            with open(f"{root}/hf3fs_fuse/{name}.py", "w", encoding="ascii") as f:
                f.write(f"WHO = 'theirs {name}'\n")
        env = {**os.environ, "PYTHONPATH": f"{MODULES}:{root}"}
        code = ("import hf3fs_fuse.fuse, hf3fs_fuse.io; print(hf3fs_fuse.fuse.WHO, "
                "hasattr(hf3fs_fuse.io, 'make_iovec'))")
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             env=env, timeout=60)
        eq((got.stdout, got.stderr), ("theirs fuse True\n", ""))


@case
def none():
    need_no_other()
    with tempfile.TemporaryDirectory() as empty:
        # A setting that names no library must not be ignored.
        for settings in ({}, {"HF3FS_LIBRARY_PATH": empty, "LD_LIBRARY_PATH": MODULES},
                         {"HF3FS_LIBRARY_PATH": f"{empty}/other.so",
                          "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)}):
            said = load(**settings)
            eq(said.startswith("ImportError: "), True)
            eq(all(word in said for word in ("penstock run", "HF3FS_LIBRARY_PATH")), True)
            eq(settings.get("HF3FS_LIBRARY_PATH", SO) in said, True)


@case
def another_library():
    said = load(HF3FS_LIBRARY_PATH="libc.so.6")
    eq(said.startswith("ImportError: ") and "hf3fs_" in said, True)


run()
