# SPDX-License-Identifier: MIT
"""progress=: a function, tqdm, or a line on standard error."""
import os
import pty
import subprocess
import sys

from tap import case, eq, file, gives, numpy, run, true, work

import penstock
from penstock.safetensors import load_file, load_files, save_file

TQDM = """
class tqdm:
    def __init__(self, **options):
        print("made", options["total"], options["unit"])
    def update(self, nbytes):
        print("update", nbytes)
    def close(self):
        print("close")
"""


def model(name="model"):
    np = numpy()
    path = f"{work}/{name}"
    save_file({"a": np.zeros(100), "b": np.zeros(5, np.uint8)}, path)
    return path


def load(text, path, stderr=subprocess.PIPE, **env):
    """Run code in a Python that finds no tqdm but ours."""
    text = (f"import sys; sys.modules.update(dict.fromkeys({env.pop('hide', ())!r}))\n"
            f"from penstock.safetensors import load_file, load_files; path = {path!r}\n{text}")
    return subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=stderr,
                          text=True, check=False, env={**os.environ, **env})


@case
def functions_and_nothing():
    path, told = model(), []
    load_file(path, progress=lambda *args: told.append(args))
    eq(told[-1], (805, 805))
    for nothing in (None, False):
        eq(sorted(load_file(path, progress=nothing)), ["a", "b"])
    for wrong in (1, "yes", [print]):
        e = gives(TypeError, load_file, path, progress=wrong)
        true("progress" in str(e), str(e))
        gives(TypeError, load_files, [f"{work}/nothing"], progress=wrong)


@case
def tqdm_where_it_is_installed():
    os.makedirs(f"{work}/site/tqdm", exist_ok=True)
    file("site/tqdm/__init__.py")
    file("site/tqdm/auto.py", TQDM.encode())
    path = model()
    there = f"{os.environ['PYTHONPATH']}:{work}/site"
    done = load("load_file(path, progress=True)", path, PYTHONPATH=there)
    eq((done.returncode, done.stderr), (0, ""))
    eq(done.stdout.splitlines(), ["made 805 B", "update 805", "close"])
    # The bar also ends with an exception.
    text = ("import penstock.safetensors._load as l\n"
            "class Reads(l.Reads):\n    def finish(self): raise ZeroDivisionError\n"
            "l.Reads = Reads\nload_file(path, progress=True)")
    done = load(text, path, PYTHONPATH=there)
    true("ZeroDivisionError" in done.stderr, done.stderr)
    eq(done.stdout.splitlines()[-1], "close")


@case
def a_line_where_it_is_not():
    hide = ("tqdm", "tqdm.auto")
    done = load("load_file(path, progress=True)", model(), hide=hide)
    eq((done.returncode, done.stdout, done.stderr),
       (0, "", "penstock: 805 bytes of 805 bytes\n"))
    done = load("sys.stderr = None; load_file(path, progress=True); print('good')", model(),
                hide=hide)
    eq((done.returncode, done.stdout), (0, "good\n"))


@case
def a_line_on_a_terminal():
    ours, theirs = pty.openpty()
    try:
        done = load("load_file(path, progress=True)", model(), stderr=theirs,
                    hide=("tqdm", "tqdm.auto"))
        eq((done.returncode, os.read(ours, 1000)),
           (0, b"\r\x1b[Kpenstock: 805 bytes of 805 bytes\r\n"))
    finally:
        os.close(ours)
        os.close(theirs)


@case
def numbers():
    for nbytes, text in ((0, "0 bytes"), (999999, "999999 bytes"), (1500000, "1.5 MB"),
                         (25300000000, "25.3 GB")):
        eq(penstock._progress._text(nbytes), text)


run()
