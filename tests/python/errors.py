# SPDX-License-Identifier: MIT
"""Errors, and how the library is found."""
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
            # The annotation's asyncio is only resolved where asyncio is imported.
            true("return" in typing.get_type_hints(call, localns={"asyncio": asyncio}),
                 call.__qualname__)
            true(call.__doc__, call.__qualname__)
    true(len(calls) > 30)


@case
def mistyped_arguments_are_named():
    path = f"{work}/arguments"
    with penstock.File(path, "w+") as f, penstock.Queue() as q:
        one, block = bytearray(9), [bytearray(9)]
        for call, wrong, meant in (
                (lambda **how: penstock.File(path, **how), "mod", ""),
                (lambda **how: penstock.Queue(**how), "dept", ""),
                (lambda **how: penstock.safetensors.load_file(path, **how), "devixe", ""),
                (lambda **how: f.read(one, **how), "strcit", "strict"),
                (lambda **how: f.read(one, **how), "mem_ofset", "mem_offset"),
                (lambda **how: f.read(one, **how), "memories", ""),
                (lambda **how: f.read(one, **how), "shrot", "short"),
                (lambda **how: f.write(one, **how), "time_out", "timeout"),
                (lambda **how: f.write(one, **how), "short", ""),
                (lambda **how: f.readv(one, 0, 0, 9, **how), "polcy", "policy"),
                (lambda **how: f.writev(one, 0, 0, 9, **how), "steam", "stream"),
                (lambda **how: f.writev(one, 0, 0, 9, **how), "short", ""),
                (lambda **how: f.read_into(block, 0, **how), "shorts", "short"),
                (lambda **how: f.write_from(block, 0, **how), "short", ""),
                (lambda **how: f.write_from(block, 0, **how), "memories", ""),
                (lambda **how: q.read(f, one, **how), "crc32", "crc32c"),
                (lambda **how: q.write(f, one, **how), "tags", "tag"),
                (lambda **how: q.readv(f, one, 0, 0, 9, **how), "stride", "strides"),
                (lambda **how: q.writev(f, one, 0, 0, 9, **how), "stream_wiat", "stream_wait"),
                (lambda **how: asyncio.run(q.run(q.read, f, one, **how)), "timeuot", "timeout")):
            text = str(gives(TypeError, lambda: call(**{wrong: 1})))
            true(f"'{wrong}'" in text and "_move" not in text, text)
            true(not meant or f"did you mean '{meant}'?" in text, text)
        eq((q.in_flight, f.size), (0, 0))
    from penstock import vllm
    text = str(gives(ValueError, vllm.extra, {"byte_ahead": 5}))
    true("'byte_ahead'" in text and "did you mean 'bytes_ahead'?" in text, text)


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
