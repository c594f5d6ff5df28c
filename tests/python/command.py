# SPDX-License-Identifier: MIT
"""python -m penstock, and the wheel's command when libpenstock's own is installed."""
import json
import os
import shutil
import subprocess
import sys

from tap import case, data, eq, file, run, true, work

import penstock


def command(*arguments, status=0):
    done = subprocess.run([sys.executable, "-m", "penstock", *arguments], capture_output=True,
                          text=True, check=False)
    eq((done.returncode, done.stdout if status else done.stderr), (status, ""))
    return done.stderr if status else done.stdout


@case
def version_of_the_package():
    eq(penstock.__version__, penstock.version())
    eq(command("--version"), f"penstock {penstock.__version__}\n")


@case
def info():
    said = command("info").splitlines()
    true(said[0].startswith(f"penstock {penstock.__version__}, Python 3."), said)
    eq(said[1], f"libpenstock {penstock.version()}, {penstock.library_path}")
    eq([line.partition(": ")[0] for line in said[2:]],
       [f"device {device['name']}" for device in penstock.devices()])


@case
def doctor():
    eq(sorted(json.loads(command("doctor", "--json"))), ["devices", "io", "library", "version"])
    path = file("model", data(5000))
    eq(json.loads(command("doctor", "--json", path))["file"]["size"], 5000)
    said = command("doctor", path)
    for text in ("\nthreads: ok", "\nhost cached: ", "\nsoft:0 staged: ", "\nlibrary: "):
        true(text in said, said)
    said = command("doctor", f"{work}/nothing", status=1)
    true(said.startswith("penstock: ") and "nothing" in said and "Traceback" not in said, said)


def content(path):
    with open(path, "rb") as f:
        return f.read()


@case
def cp():
    os.mkdir(f"{work}/folder")
    for size in (0, 1, 5000, (64 << 20) + 4097):
        want = bytes(data(min(size, 8191)) * (size // 8191 + 1))[:size]
        path = file("from", want)
        os.chmod(path, 0o640)
        for target, name in ((f"{work}/to", f"{work}/to"), (f"{work}/folder",
                                                           f"{work}/folder/from")):
            said = command("cp", "--verify", path, target)
            true(said.startswith(f"{size} bytes to {os.path.realpath(name)}: read by ") and
                 said.endswith(", verified\n"), said)
            true(content(name) == want, "the bytes differ")
            eq(os.stat(name).st_mode & 0o777, 0o640)
    eq(sorted(os.listdir(f"{work}/folder")), ["from"])
    # A link stays, and its target keeps its mode.
    os.symlink("to", f"{work}/link")
    os.chmod(f"{work}/to", 0o600)
    command("cp", file("other", b"other"), f"{work}/link")
    eq(os.stat(f"{work}/to").st_mode & 0o777, 0o600)
    eq((os.readlink(f"{work}/link"), content(f"{work}/to")), ("to", b"other"))


@case
def cp_that_fails_leaves_what_was():
    path = file("kept", b"kept")
    before = sorted(os.listdir(work))
    for source, target, text in ((f"{work}/nothing", path, "nothing"), (work, path, "directory"),
                                 (path, path, "same file"), (path, "/dev/null", "regular file"),
                                 (path, f"{work}/nowhere/x", "nowhere")):
        said = command("cp", source, target, status=1)
        true(said.startswith("penstock: ") and text in said and "Traceback" not in said, said)
    # Writing fails after memory was allocated and both files were opened.
    env = {**os.environ, "TEXT": "no room"}
    text = ("import os, sys, penstock.__main__ as m\n"
            "def fail(*_): raise OSError(28, os.environ['TEXT'])\n"
            "m.File.sync = fail\n"
            f"sys.exit(m.main('penstock', ['cp', {path!r}, {work + '/new'!r}]))")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          check=False, env=env)
    eq((done.returncode, done.stdout, done.stderr), (1, "", "penstock: no room\n"))
    eq((sorted(os.listdir(work)), content(path)), (before, b"kept"))


@case
def cp_that_finds_other_bytes_says_so():
    path = file("changed", data(5000))
    text = ("import sys, penstock.__main__ as m\n"
            "real, calls = m._crc, []\n"
            "def crc(*args): calls.append(1); return real(*args) + (len(calls) == 2)\n"
            "m._crc = crc\n"
            f"sys.exit(m.main('penstock', ['cp', '--verify', {path!r}, {work + '/copy'!r}]))")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          check=False)
    eq((done.returncode, done.stdout), (1, ""))
    true("has other bytes than were read" in done.stderr, done.stderr)
    true(not os.path.exists(f"{work}/copy"), "the copy is still there")


@case
def wrong_use():
    for arguments in ((), ("copy",), ("cp", "one"), ("info", "--json")):
        true("usage: python -m penstock" in command(*arguments, status=2), arguments)


@case
def script_leaves_the_name_to_the_installed_command():
    """PATH has the wheel's script first, then a script and a program of the same name."""
    folders = [f"{work}/{name}" for name in ("venv", "scripts", "programs")]
    for folder in folders:
        os.mkdir(folder)
    with open(f"{folders[0]}/penstock", "w", encoding="utf-8") as f:
        f.write(f"#!{sys.executable}\nfrom penstock.__main__ import script\nscript()\n")
    shutil.copy(f"{folders[0]}/penstock", folders[1])
    for folder in folders[:2]:
        os.chmod(f"{folder}/penstock", 0o755)

    def say():
        done = subprocess.run(["penstock", "--version"], capture_output=True, text=True,
                              check=False, env={**os.environ, "PATH": ":".join(folders)})
        return done.returncode, done.stdout, done.stderr
    eq(say(), (0, f"penstock {penstock.__version__}\n", ""))
    shutil.copy("/bin/echo", f"{folders[2]}/penstock")
    status, out, err = say()
    eq((status, err), (0, ""))
    true("echo" in out and not out.startswith("penstock "), out)


run()
