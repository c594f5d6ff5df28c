#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wheel.py LIBRARY OUT: a wheel with the package and libpenstock.so.0, which needs no compiler.

LIBRARY is a libpenstock.so.0 that was built for release.  Refused is a library that needs more than
libc, or a libc newer than MOST.  The bytes of the wheel depend on those of its files alone.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile

MOST = (2, 34)
LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def stop(what):
    sys.exit(f"wheel.py: {what}")


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], check=True, capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def too_new(symbols):
    """Of lines of readelf --dyn-syms, the symbols that want a newer glibc than MOST."""
    found = []
    for name, version in re.findall(r"\b(\w+)@+GLIBC_([0-9.]+)", symbols):
        if tuple(map(int, version.split("."))) > MOST:
            found.append(f"{name} (GLIBC_{version})")
    return sorted(set(found))


def check(library):
    if "X86-64" not in readelf("-h", library):
        stop(f"{library} is not for x86-64")
    symbols = readelf("--dyn-syms", library)
    if "GLIBC_" not in symbols or "pst_version" not in symbols:
        stop(f"{library} is no libpenstock that uses glibc")
    new = too_new(symbols)
    if new:
        stop(f"{library} needs a newer glibc than {MOST[0]}.{MOST[1]} for {', '.join(new)}: build "
             "it on an older system, or without these calls")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library))) - LIBC
    if needed:
        stop(f"{library} needs {', '.join(sorted(needed))}, and only libc is everywhere")


def version():
    with open(f"{ROOT}/meson.build", encoding="utf-8") as file:
        return re.search(r"version: '([0-9.]+)'", file.read()).group(1)


METADATA = """Metadata-Version: 2.1
Name: penstock
Version: {version}
Summary: Move bytes between files and host or accelerator memory by the shortest path
License: MIT
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{text}"""

WHEEL = """Wheel-Version: 1.0
Generator: penstock ({version})
Root-Is-Purelib: false
Tag: {tag}
"""

# What other packages look for among those that are installed.
ENTRY_POINTS = """[vllm.general_plugins]
penstock = penstock.vllm:register
"""


def files(library):
    """(name in the wheel, bytes, may it be executed?)"""
    for place, folders, names in os.walk(f"{HERE}/penstock"):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "lib"))
        for name in sorted(names):
            if name.endswith((".py", ".typed")):
                path = os.path.join(place, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, HERE), file.read(), False
    with open(library, "rb") as file:
        yield "penstock/lib/libpenstock.so.0", file.read(), True
    info = f"penstock-{version()}.dist-info"
    with open(f"{ROOT}/docs/PYTHON.md", encoding="utf-8") as file:
        text = file.read()
    yield f"{info}/METADATA", METADATA.format(version=version(), text=text).encode(), False
    yield f"{info}/WHEEL", WHEEL.format(version=version(), tag=TAG).encode(), False
    yield f"{info}/entry_points.txt", ENTRY_POINTS.encode(), False
    with open(f"{ROOT}/LICENSE", "rb") as file:
        yield f"{info}/LICENSE", file.read(), False


TAG = f"py3-none-manylinux_{MOST[0]}_{MOST[1]}_x86_64"


def write(library, out):
    path = f"{out}/penstock-{version()}-{TAG}.whl"
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, content, executable):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, content)
        for name, content, executable in files(library):
            add(name, content, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{name},sha256={digest.decode()},{len(content)}\n"
        name = f"penstock-{version()}.dist-info/RECORD"
        add(name, f"{record}{name},,\n".encode(), False)
    return path


def main():
    library, out = sys.argv[1:]
    check(library)
    os.makedirs(out, exist_ok=True)
    print(write(library, out))


if __name__ == "__main__":
    main()
