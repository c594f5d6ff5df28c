# SPDX-License-Identifier: MIT
"""The generated module matches the headers and the compiler."""
import ctypes
import os
import shlex
import subprocess
import sys

from tap import case, eq, file, run, true, work

from penstock import _abi
from penstock._lib import lib

ROOT = os.environ["ROOT"]


def generate(*args):
    return subprocess.run([sys.executable, f"{ROOT}/python/generate.py", *args], check=True,
                          capture_output=True, text=True).stdout


@case
def generated_file_is_up_to_date():
    with open(f"{ROOT}/python/penstock/_abi.py", encoding="utf-8") as f:
        true(f.read() == generate(f"{ROOT}/include"), "run python/generate.py include --write")


@case
def compiler_agrees():
    source = file("abi.c", generate(f"{ROOT}/include", "--c").encode())
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PST_TEST_CASE")}
    subprocess.run([*shlex.split(os.environ["CC"]), f"-I{ROOT}/include", source, "-o",
                    f"{work}/abi", os.environ["PST_LIBPENSTOCK"]], check=True, env=env)
    told = subprocess.run([f"{work}/abi"], check=True, capture_output=True, text=True, env={
        **env, "LD_LIBRARY_PATH": os.path.dirname(os.environ["PST_LIBPENSTOCK"])}).stdout
    constants = structures = members = 0
    for line in told.splitlines():
        name, *numbers = line.split()
        if "." in name:
            kind, member = name.split(".")
            field = getattr(getattr(_abi, kind), member)
            eq((name, [str(field.offset), str(field.size)]), (name, numbers))
            members += 1
        elif name.startswith("pst_"):
            eq((name, [str(ctypes.sizeof(getattr(_abi, name)))]), (name, numbers))
            structures += 1
        else:
            eq((name, [str(getattr(_abi, name))]), (name, numbers))
            constants += 1
    eq(structures, len(_abi.STRUCTURES))
    eq(members, sum(len(kind._fields_) for kind in _abi.STRUCTURES))
    eq(constants, sum(name.startswith("PST_") for name in vars(_abi)))
    true(constants > 80 and structures > 15)


@case
def headers_that_are_not_understood_end_the_run():
    os.makedirs(f"{work}/include/penstock", exist_ok=True)
    with open(f"{ROOT}/include/penstock/types.h", encoding="utf-8") as f:
        text = f.read()
    for number, bad in enumerate(("#define PST_X sizeof(int)\n", "PST_API float pst_x(void);\n",
                                  "struct pst_x {\n\tdouble a;\n};\n")):
        with open(f"{work}/include/penstock/types.h", "w", encoding="utf-8") as f:
            f.write(text)
        with open(f"{work}/include/penstock.h", "w", encoding="utf-8") as f:
            f.write(bad)
        status = subprocess.run([sys.executable, f"{ROOT}/python/generate.py", f"{work}/include"],
                                check=False, capture_output=True).returncode
        eq((number, status), (number, 1))


@case
def every_call_is_bound():
    for name, (gives, takes) in _abi.CALLS.items():
        call = getattr(lib, name)
        eq((name, call.restype, call.argtypes), (name, gives, takes))
    with open(f"{ROOT}/src/api/penstock.map", encoding="utf-8") as f:
        exported = {word.rstrip(";") for word in f.read().split() if word.startswith("pst_")}
    eq(set(_abi.CALLS), exported)


run()
