# SPDX-License-Identifier: MIT
"""Files by their names: paths, a storage service and a set of tiers."""
import errno
import os
import re
import subprocess

from tap import case, eq, gives, run, true, work

from penstock import names

PENSTOCK = os.environ["PENSTOCK"]


class Service:
    """A served directory; name is its address."""

    def __init__(self, root):
        os.mkdir(root)
        self.name = f"pst+unix://{work}/socket:/"
        self.process = subprocess.Popen(
            [PENSTOCK, "serve", "--root", root, "--listen", f"unix:{work}/socket", "--write"],
            stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        true(re.search("listening on", line), line)

    def __enter__(self):
        return self.name

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.process.stderr.close()


def put(path, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"x" * size)


def listed(name, **options):
    return sorted((e.name, e.kind, e.size) for e in names.entries(name, **options))


def look(root, name):
    """Checks that hold for a path and for a service."""
    put(f"{root}/a", 3)
    put(f"{root}/d/b", 5)
    put(f"{root}/d/deep/er/c", 7)
    os.symlink("d/b", f"{root}/link")
    os.symlink("d", f"{root}/loop")
    os.symlink("nowhere", f"{root}/broken")
    with open(os.fsencode(f"{root}/d/") + b"odd \xff\n", "wb"):
        pass
    eq(listed(name), [("a", "file", 3), ("broken", "other", None), ("d", "directory", None),
                      ("link", "file", 3 + 2), ("loop", "other", None)])
    true(all(e.mtime_ns for e in names.entries(name + "d")))
    eq({e.size for e in names.entries(name, facts=False)} - {None}, set())
    eq(listed(name, recursive=True),
       [("a", "file", 3), ("broken", "other", None), ("d/b", "file", 5),
        ("d/deep/er/c", "file", 7), ("d/odd \udcff\n", "file", 0), ("link", "file", 5),
        ("loop", "other", None)])
    true(all(e.mtime_ns is None for e in names.entries(name + "d", facts=False)))
    eq(names.stat(name + "d/b")[1:], ("file", 5, os.stat(f"{root}/d/b").st_mtime_ns))
    eq(names.stat(name)[1], "directory")
    eq(names.stat(name + "loop")[1], "directory")
    eq(names.stat(name + "d/odd \udcff\n").kind, "file")
    gives(FileNotFoundError, names.stat, name + "none")
    gives(FileNotFoundError, names.entries, name + "none")
    gives(NotADirectoryError, names.entries, name + "a")


def change(root, name):
    names.truncate(name + "a", 10)
    eq(open(f"{root}/a", "rb").read(), b"xxx" + bytes(7))
    names.truncate(name + "a", 1)
    names.rename(name + "a", name + "d/b")
    eq(open(f"{root}/d/b", "rb").read(), b"x")
    gives(FileNotFoundError, names.rename, name + "a", name + "z")
    gives(FileNotFoundError, names.truncate, name + "a", 1)
    gives(FileNotFoundError, names.unlink, name + "a")
    gives(IsADirectoryError, names.unlink, name + "d")
    gives(IsADirectoryError, names.truncate, name + "d", 1)
    gives(errno.EFBIG, names.truncate, name + "d/b", 1 << 63)
    names.unlink(name + "d/b")
    names.unlink(name + "link")
    eq([e[0] for e in listed(name)], ["broken", "d", "loop"])


@case
def paths():
    root = f"{work}/paths"
    os.mkdir(root)
    look(root, root + "/")
    change(root, root + "/")
    here = os.getcwd()
    os.chdir(root)
    eq([e[0] for e in listed(".")], ["broken", "d", "loop"])
    os.chdir(here)
    gives(FileNotFoundError, names.stat, "")
    gives(errno.ENAMETOOLONG, names.stat, "x" * 5000)
    gives(ValueError, names.stat, "x\0y")


@case
def a_service():
    root = f"{work}/served"
    with Service(root) as name:
        look(root, name)
        change(root, name)
        # Make more entries than fit into one answer.
        for i in range(3000):
            put(f"{root}/many/{'n' * 40}{i}", 0)
        eq(len({e.name for e in names.entries(name + "many")}), 3000)
        gives(errno.EXDEV, names.rename, name + "d/odd", f"pst+unix://{work}/other:/x")
        gives(errno.EXDEV, names.rename, name + "d/odd", f"{work}/x")
        gives(errno.EXDEV, names.stat, name + "../x")
    gives(FileNotFoundError, names.stat, name)


@case
def what_an_entry_raises_is_raised():
    for i in range(10):
        put(f"{work}/raise/{i}", 0)
    real = names.Entry
    seen = []

    def broken(*members):
        seen.append(members)
        raise KeyError("entry")

    names.Entry = broken
    try:
        gives(KeyError, names.entries, f"{work}/raise")
    finally:
        names.Entry = real
    eq(len(seen), 1)


@case
def a_set_of_tiers():
    os.environ["PST_TIER_DIR"] = f"{work}/state"
    os.mkdir(f"{work}/state")

    def tier(*words):
        subprocess.run([PENSTOCK, "tier", *words], check=True, capture_output=True)

    put(f"{work}/fast/d/a", 3)
    put(f"{work}/slow/d/deep/b", 5)
    put(f"{work}/slow/top", 7)
    tier("init", "S", "--nvme", f"{work}/fast", "--hdd", f"{work}/slow", "--same-filesystem")
    tier("migrate", "S")
    for name in ("tier://S", "tier://S/"):
        eq(listed(name), [("d", "directory", None), ("top", "file", 7)])
        eq(names.stat(name).kind, "directory")
    eq(listed("tier://S/d"), [("a", "file", 3), ("deep", "directory", None)])
    eq(listed("tier://S", recursive=True),
       [("d/a", "file", 3), ("d/deep/b", "file", 5), ("top", "file", 7)])
    eq(names.stat("tier://S/d/deep/b")[1:3], ("file", 5))
    eq(names.stat("tier://S/d/deep").kind, "directory")
    gives(FileNotFoundError, names.stat, "tier://S/dee")
    gives(FileNotFoundError, names.entries, "tier://S/d/x")
    gives(NotADirectoryError, names.entries, "tier://S/top")
    gives(errno.EINVAL, names.stat, "tier://S/../x")
    gives(errno.EINVAL, names.unlink, "tier://S")
    names.truncate("tier://S/top", 100)
    names.rename("tier://S/top", "tier://S/d/deep/t")
    eq(os.path.getsize(f"{work}/slow/d/deep/t"), 100)
    # The target exists in another root than the source: the rename is refused, and the target
    # stays.
    gives(errno.EXDEV, names.rename, "tier://S/d/deep/t", "tier://S/d/a")
    gives(IsADirectoryError, names.unlink, "tier://S/d")
    for name in ("d/a", "d/deep/t", "d/deep/b"):
        names.unlink(f"tier://S/{name}")
    eq(listed("tier://S"), [])
    eq([f for _, _, files in os.walk(f"{work}/slow") for f in files if f != "id"], [])


run()
