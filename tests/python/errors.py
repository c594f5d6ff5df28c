# SPDX-License-Identifier: MIT
"""Errors, and where the library is found."""
import asyncio
import errno
import os
import shutil
import subprocess
import sys
import typing

from tap import case, eq, gives, run, true, work

import penstock


@case
def classes():
    e = gives(errno.ENOENT, penstock.File, f"{work}/nothing")
    true(isinstance(e, penstock.Error) and isinstance(e, FileNotFoundError))
    eq(e.filename, f"{work}/nothing")
    true("nothing" in str(e) and len(e.strerror) > 20, str(e))
    e = gives(errno.EISDIR, penstock.File, work)
    true(isinstance(e, IsADirectoryError))
    e = gives(errno.ENXIO, penstock.File, "/dev/null")
    true(type(e) is penstock.Error)
    e = gives(errno.ENODEV, penstock.Memory.alloc, "soft:99", 4096)
    true(isinstance(e, OSError))
    gives(ValueError, penstock.File, "a\0b")
    gives(errno.EPROTONOSUPPORT, penstock.File, "scheme://rest")


def python(text, **env):
    env = {**os.environ, **env}
    return subprocess.run([sys.executable, "-c", text], env=env, check=False, capture_output=True,
                          text=True)


@case
def library_that_is_named_is_the_one():
    out = python("import penstock; print(penstock.library_path, penstock.version())")
    eq(out.stdout.split(), [os.environ["PST_LIBPENSTOCK"], penstock.version()])
    out = python("import penstock", PST_LIBPENSTOCK=f"{work}/missing.so")
    eq(out.returncode, 1)
    true("PST_LIBPENSTOCK" in out.stderr and "ImportError" in out.stderr, out.stderr)
    libc = python("import penstock", PST_LIBPENSTOCK="libc.so.6")
    true("is no libpenstock" in libc.stderr, libc.stderr)


@case
def library_beside_the_package():
    place = f"{work}/package"
    shutil.copytree(f"{os.environ['MODULES']}/penstock", f"{place}/penstock")
    os.mkdir(f"{place}/penstock/lib")
    shutil.copy(os.environ["PST_LIBPENSTOCK"], f"{place}/penstock/lib/libpenstock.so.0")
    out = python("import penstock; print(penstock.library_path)", PST_LIBPENSTOCK="",
                 PYTHONPATH=place)
    eq(out.stdout.strip(), f"{place}/penstock/lib/libpenstock.so.0")


@case
def imports_nothing_of_others():
    out = python("import sys, penstock, asyncio; "
                 "print([m for m in ('numpy', 'torch', 'cupy', 'jax') if m in sys.modules])")
    eq(out.stdout.strip(), "[]")


@case
def hints_can_be_read():
    from penstock import safetensors
    from penstock.safetensors import numpy as for_numpy
    from penstock.safetensors import torch as for_torch
    calls = [penstock.doctor, penstock.devices, safetensors.load_file, safetensors.load_files,
             safetensors.save_file, for_numpy.load_file, for_torch.load_file]
    for kind in (penstock.File, penstock.Queue, penstock.Completion, safetensors.safe_open):
        calls += [call for name, call in vars(kind).items()
                  if callable(call) and not name.startswith("_")]
    calls += [penstock.Memory.of, penstock.Memory.alloc, penstock.Memory.copy_out]
    for call in calls:
        if call is not safetensors.safe_open.read_part:
            # Which asyncio is, is known only where it is imported.
            true("return" in typing.get_type_hints(call, localns={"asyncio": asyncio}),
                 call.__qualname__)
            true(call.__doc__, call.__qualname__)
    true(len(calls) > 30)


@case
def child_after_fork_gets_an_error():
    memory = penstock.Memory.alloc("host", 4096)
    pid = os.fork()
    if pid == 0:
        try:
            memory.copy_in(b"x")
        except OSError as e:
            os._exit(0 if e.errno == errno.EOWNERDEAD else 1)
        os._exit(2)
    eq(os.waitpid(pid, 0)[1], 0)


run()
