#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wheel.py BINARY... OUT: make a wheel with the package, which needs no compiler.

The wheel contains the files of BINARIES, built for release, each given by its path in any order.
Refuses a file that needs other libraries than its row names, a glibc newer than MOST, or a library
from a fixed folder.  The wheel's bytes depend only on the bytes of its files.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from typing import FrozenSet, NamedTuple

MOST = (2, 34)
LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}


class Binary(NamedTuple):
    """A binary of the wheel.  Binaries find each other by their folders in the wheel."""
    folder: str
    symbol: str  # identifies the file
    needs: FrozenSet[str] = frozenset()  # libraries besides libc and libpenstock


# Modules are loaded by the first open of their scheme, which fails with a sentence that names the
# missing library; import penstock needs only libc.
BINARIES = {
    "libpenstock.so.0": Binary("penstock/lib", "pst_version"),
    "penstock-gds-probe": Binary("penstock/lib", "dlopen"),
    "libpenstock_streamer.so": Binary("penstock/lib/penstock/compat", "runai_file_streamer_start"),
    "libpenstock-kv.so.0": Binary("penstock/lib", "pst_kv_open"),
    "libpenstock-rados.so": Binary("penstock/lib", "pst_file_module"),  # librados by dlopen
    "libpenstock-s3.so": Binary("penstock/lib", "pst_file_module",
                                frozenset({"libcurl.so.4", "libcrypto.so.3"})),
    "libpenstock-tier.so": Binary("penstock/lib", "pst_file_module",
                                  frozenset({"libsqlite3.so.0"})),
    "libpenstock-tls.so": Binary("penstock/lib", "pst_tls_module",
                                 frozenset({"libssl.so.3", "libcrypto.so.3"})),
}
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def stop(what):
    sys.exit(f"wheel.py: {what}")


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], check=True, capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def too_new(symbols):
    """Return the symbols in lines of readelf --dyn-syms that need a newer glibc than MOST."""
    found = []
    for name, version in re.findall(r"\b(\w+)@+GLIBC_([0-9.]+)", symbols):
        if tuple(map(int, version.split("."))) > MOST:
            found.append(f"{name} (GLIBC_{version})")
    return sorted(set(found))


def fixed(dynamic):
    """Return the absolute folders of run paths in the output of readelf -d."""
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    return [path for line in paths for path in line.split(":") if not path.startswith("$ORIGIN/")]


def check(path):
    """Check a binary of the wheel by the row of its name.  Stop if the wheel must not have it."""
    binary = BINARIES[os.path.basename(path)]
    if "X86-64" not in readelf("-h", path):
        stop(f"{path} is not for x86-64")
    symbols = readelf("--dyn-syms", path)
    if "GLIBC_" not in symbols or not re.search(rf"\b{binary.symbol}\b", symbols):
        stop(f"{path} does not use glibc, or has no {binary.symbol}")
    new = too_new(symbols)
    if new:
        stop(f"{path} needs a newer glibc than {MOST[0]}.{MOST[1]} for {', '.join(new)}: build it "
             "on an older system, or without these calls")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path)))
    needed -= LIBC | {"libpenstock.so.0"} | binary.needs
    if needed:
        stop(f"{path} needs {', '.join(sorted(needed))}, which not every system has")


def version():
    with open(f"{ROOT}/meson.build", encoding="utf-8") as file:
        return re.search(r"version: '([0-9.]+)'", file.read()).group(1)


METADATA = """Metadata-Version: 2.1
Name: penstock
Version: {version}
Summary: Move bytes between files and host or accelerator memory by the shortest path
Author: The Penstock authors
License: MIT
Keywords: io_uring,O_DIRECT,GPUDirect Storage,CUDA,safetensors,checkpoint,vLLM
Classifier: Development Status :: 4 - Beta
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: Science/Research
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Programming Language :: Python :: Implementation :: CPython
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Topic :: Software Development :: Libraries :: Python Modules
Classifier: Typing :: Typed
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{text}"""

WHEEL = """Wheel-Version: 1.0
Generator: penstock ({version})
Root-Is-Purelib: false
Tag: {tag}
"""

# Commands that pip installs, and entry points that other packages look up.
ENTRY_POINTS = """[console_scripts]
penstock = penstock.__main__:script

[vllm.general_plugins]
penstock = penstock.vllm:register
"""


def metadata():
    with open(f"{HERE}/README.md", encoding="utf-8") as file:
        return METADATA.format(version=version(), text=file.read()).encode()


def information():
    """Return (name in the wheel, bytes) of the wheel's metadata."""
    info = f"penstock-{version()}.dist-info"
    yield f"{info}/METADATA", metadata()
    yield f"{info}/WHEEL", WHEEL.format(version=version(), tag=TAG).encode()
    yield f"{info}/entry_points.txt", ENTRY_POINTS.encode()
    with open(f"{ROOT}/LICENSE", "rb") as file:
        yield f"{info}/LICENSE", file.read()


def place_of(path):
    """Return the name in the wheel of a binary."""
    name = os.path.basename(path)
    return f"{BINARIES[name].folder}/{name}"


def files(binaries):
    """Return (name in the wheel, bytes, executable)."""
    for place, folders, names in os.walk(f"{HERE}/penstock"):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "lib"))
        for name in sorted(names):
            if name.endswith((".py", ".typed")):
                path = os.path.join(place, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, HERE), file.read(), False
    for path in sorted(binaries, key=place_of):
        with open(path, "rb") as file:
            yield place_of(path), file.read(), True
    for name, content in information():
        yield name, content, False


TAG = f"py3-none-manylinux_{MOST[0]}_{MOST[1]}_x86_64"


def write(binaries, out):
    path = f"{out}/penstock-{version()}-{TAG}.whl"
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, content, executable):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, content)
        for name, content, executable in files(binaries):
            add(name, content, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{name},sha256={digest.decode()},{len(content)}\n"
        name = f"penstock-{version()}.dist-info/RECORD"
        add(name, f"{record}{name},,\n".encode(), False)
    return path


def main():
    *binaries, out = sys.argv[1:] or [""]
    if sorted(map(os.path.basename, binaries)) != sorted(BINARIES):
        stop(f"BINARY... OUT are wanted, with {', '.join(BINARIES)}")
    for path in binaries:
        check(path)
    for path in binaries:
        folders = fixed(readelf("-d", path))
        if folders:
            stop(f"{path} looks for libraries in {', '.join(folders)}, which another machine may "
                 "not have, or may have from somebody else")
    os.makedirs(out, exist_ok=True)
    print(write(binaries, out))


if __name__ == "__main__":
    main()
