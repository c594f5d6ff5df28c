#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""probes.py ROOT FILE...: the probes in the notes of these ELF files are those of docs/PROBES.md,
with the same number of arguments; each is a nop without a semaphore, and tracers can read its
arguments."""
import os
import re
import shutil
import subprocess
import sys

ROOT, *FILES = sys.argv[1:]
if not shutil.which("readelf") or not shutil.which("objdump"):
    print("1..0 # SKIP readelf is not installed")
    sys.exit(0)

NOPS = {"x86-64": bytes([0x90]), "AArch64": bytes([0x1f, 0x20, 0x03, 0xd5])}
# Registers, constants, and memory at an offset from a register.
PLACES = {
    "x86-64": r"%\w+|\$-?\d+|-?\d*\(%\w+(,%\w+(,\d)?)?\)|-?\d*\(,%\w+,\d\)",
    "AArch64": r"[wx]\d+|wzr|xzr|sp|-?\d+|\[(x\d+|sp)(, ?-?\d+)?\]",
}


def documented():
    table = {}
    with open(f"{ROOT}/docs/PROBES.md", encoding="utf-8") as page:
        for line in page:
            match = re.fullmatch(r"\| `([^`]+)` \| `([^`]+)` \| (.*) \|\n", line)
            if match:
                table.setdefault(match[1], {})[match[2]] = match[3].split(", ")
    return table


def tool(*args):
    # Older readelf fails on types of notes that it does not know.
    return subprocess.run(args, check=False, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def notes(path):
    """Return (name, address, semaphore, arguments) of each probe."""
    found = re.findall(r"Provider: (\S+)\s+Name: (\S+)\s+Location: (\w+), Base: \w+, "
                       r"Semaphore: (\w+)\s+Arguments:[ ]?(.*)", tool("readelf", "-nW", path))
    return [(f"{provider}:{name}", int(at, 16), int(semaphore, 16), args.strip())
            for provider, name, at, semaphore, args in found]


def machine(path):
    text = tool("readelf", "-hW", path)
    return "x86-64" if "X86-64" in text else "AArch64" if "AArch64" in text else "other"


def code_at(path, address, length):
    text = tool("objdump", "-s", f"--start-address={address}",
                f"--stop-address={address + length}", "-j", ".text", path)
    words = re.search(r"^ [0-9a-f]+ ([0-9a-f ]{1,36})", text, re.M)[1]
    return bytes.fromhex(words.replace(" ", ""))


def problems_of(path, want):
    kind = machine(path)
    have = {}
    for name, address, semaphore, args in notes(path):
        provider, name = name.split(":")
        # Blanks separate arguments, and follow the comma in an address of arm64.
        args = re.findall(r"-?\d+@(?:\[[^]]*\]|\S+)", args)
        have.setdefault(name, set()).add(len(args))
        if provider != "penstock":
            yield f"{name} is of the provider {provider}"
        if semaphore:
            yield f"{name} has a semaphore, which is a branch"
        for arg in args:
            if kind in PLACES and not re.fullmatch(rf"-?[1248]@({PLACES[kind]})", arg):
                yield f"{name}: no tracer reads {arg}"
        nop = NOPS.get(kind)
        if nop and code_at(path, address, len(nop)) != nop:
            yield f"{name} is no nop at {address:#x}"
    for name in sorted(set(have) | set(want)):
        counts, names = have.get(name, set()), want.get(name)
        if not names:
            yield f"{name} is not in docs/PROBES.md"
        elif counts != {len(names)}:
            yield f"{name} has {sorted(counts) or 'no'} arguments, and {len(names)} in the docs"


TABLE = documented()
failed = False
number = 0


def result(name, problems):
    global failed, number
    number += 1
    problems = list(problems)
    print(f"{'not ' if problems else ''}ok {number} {name}")
    for problem in problems:
        print(f"# {problem}")
    failed |= bool(problems)


# libpenstock.so.0.2.0 is documented as libpenstock.so.
BY_NAME = {re.sub(r"(\.so)(\.\d+)+$", r"\1", os.path.basename(path)): path for path in FILES}
for name, path in BY_NAME.items():
    result(name, problems_of(path, TABLE.get(name, {})))
result("each_file_is_there", [f"{name} was not looked at" for name in TABLE if name not in BY_NAME])
# A missing probe, and one with other arguments, must be detected.
name, path = next(iter(BY_NAME.items()))
wrong = {probe: args + ["more"] for probe, args in TABLE[name].items()} | {"none__such": ["a"]}
result("differences_are_found",
       [] if len(list(problems_of(path, wrong))) == len(wrong) else ["not all of them"])
print(f"1..{number}")
sys.exit(1 if failed else 0)
