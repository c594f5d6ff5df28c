# SPDX-License-Identifier: MIT
"""The wheel: made of this build's library, installed where nothing else is."""
import hashlib
import os
import re
import subprocess
import sys
import zipfile

from tap import Skip, case, eq, run, true, work

ROOT = os.environ["ROOT"]
sys.path.insert(0, f"{ROOT}/python")
import wheel  # noqa: E402

LIBRARY = os.environ["PST_LIBPENSTOCK"]


def environment():
    """Without what leads to the tree."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PST_LIBPENSTOCK", "LD_PRELOAD", "LD_LIBRARY_PATH")}


def plain_library():
    symbols = wheel.readelf("--dyn-syms", LIBRARY)
    if os.uname().machine != "x86_64":
        raise Skip("a wheel is for x86-64")
    if "__asan_init" in symbols:
        raise Skip("a sanitizer's library")
    return LIBRARY


def make(out=work):
    return wheel.write(plain_library(), out)


@case
def versions_of_glibc():
    lines = "  5: 0 FUNC GLOBAL DEFAULT UND {}@GLIBC_{} (3)\n"
    eq(wheel.too_new(lines.format("open", "2.2.5") + lines.format("dlsym", "2.34")), [])
    eq(wheel.too_new(lines.format("arc4random", "2.36") + lines.format("x", "3.0")),
       ["arc4random (GLIBC_2.36)", "x (GLIBC_3.0)"])


@case
def library_fits():
    wheel.check(plain_library())


@case
def others_libraries_are_refused():
    done = subprocess.run([sys.executable, f"{ROOT}/python/wheel.py", sys.executable, work],
                          capture_output=True, text=True, check=False, env=environment())
    eq(done.returncode, 1)
    true("wheel.py: " in done.stderr, done.stderr)
    eq([name for name in os.listdir(work) if name.endswith(".whl")], [])


@case
def content_is_as_recorded():
    path = make()
    true(re.search(r"/penstock-[0-9.]+-py3-none-manylinux_2_34_x86_64\.whl$", path), path)
    with open(path, "rb") as file:
        first = file.read()
    os.mkdir(f"{work}/again")
    with open(make(f"{work}/again"), "rb") as file:
        true(file.read() == first, "the bytes differ the second time")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        record = archive.read([n for n in names if n.endswith("/RECORD")][0]).decode()
        lines = [line.split(",") for line in record.splitlines()]
        eq([line[0] for line in lines], names)
        for name, digest, size in lines[:-1]:
            content = archive.read(name)
            eq((name, int(size)), (name, len(content)))
            want = hashlib.sha256(content).digest()
            eq(wheel.base64.urlsafe_b64decode(digest.partition("=")[2] + "="), want)
    for name in ("penstock/__init__.py", "penstock/safetensors/__init__.py", "penstock/py.typed",
                 "penstock/vllm.py", "penstock/fastsafetensors.py",
                 "penstock/lib/libpenstock.so.0"):
        true(name in names, f"{name} is missing")


@case
def installs_into_an_empty_environment():
    path = make()
    place = f"{work}/environment"
    done = subprocess.run([sys.executable, "-m", "venv", place], capture_output=True, text=True,
                          check=False, env=environment())
    if done.returncode:
        raise Skip("python3-venv")
    python = f"{place}/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--no-index", "--quiet",
                    "--disable-pip-version-check", path], check=True, env=environment())
    points = ("import importlib.metadata as m; p = m.entry_points(); "
              "p = p.select(group='vllm.general_plugins') if hasattr(p, 'select') else "
              "p['vllm.general_plugins']; print(*[x.load().__module__ for x in p])")
    eq(subprocess.run([python, "-c", points], capture_output=True, text=True, check=True,
                      env=environment(), cwd=work).stdout, "penstock.vllm\n")
    text = ("import penstock, sys; f = penstock.File(sys.argv[1]); b = bytearray(4); "
            "f.read(b); print(penstock.library_path, penstock.version(), bytes(b).hex(), "
            "len(penstock.doctor()['devices']))")
    told = subprocess.run([python, "-c", text, path], capture_output=True, text=True, check=True,
                          env=environment(), cwd=work).stdout.split()
    true(told[0].startswith(place) and told[0].endswith("/penstock/lib/libpenstock.so.0"), told[0])
    eq(told[1:3], [wheel.version(), "504b0304"])
    subprocess.run([python, "-m", "pip", "uninstall", "--yes", "--quiet",
                    "--disable-pip-version-check", "penstock"], check=True, env=environment())
    left = [name for name in os.listdir(os.path.dirname(os.path.dirname(
        os.path.dirname(told[0])))) if name.startswith("penstock")]
    eq(left, [])


run()
