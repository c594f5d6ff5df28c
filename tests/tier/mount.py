#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mount.py PENSTOCK: a set of tiers as a file system, while its files move without pause.

A random checker works on the mount and compares names, bytes, sizes and inode numbers with a model;
PST_SOAK=1 makes 100,000 operations.
"""
import errno
import fcntl
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

PENSTOCK = sys.argv[1]
SOAK = bool(os.environ.get("PST_SOAK"))
CLASSES = ("nvme", "ssd", "hdd")


class Wrong(AssertionError):
    pass


class Skip(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Wrong(" ".join(map(str, what)))


def fails(err, fn, *args, **kwargs):
    try:
        fn(*args, **kwargs)
    except OSError as e:
        check(e.errno == err, fn.__name__, args, "failed with", errno.errorcode[e.errno], "not",
              errno.errorcode[err])
        return
    raise Wrong(f"{fn.__name__} {args} did not fail with {errno.errorcode[err]}")


class Set:
    """A mounted set of three directories."""

    def __init__(self, scratch):
        self.base = scratch
        self.dir = os.path.join(scratch, "mnt")
        self.env = dict(os.environ, PST_TIER_DIR=os.path.join(scratch, "state"))
        self.moves = 0
        for name in (*CLASSES, "mnt"):
            os.mkdir(os.path.join(scratch, name))
        self.run("tier", "init", "m", "--same-filesystem",
                 *(f"--{c}={os.path.join(scratch, c)}" for c in CLASSES))

    def run(self, *args, may_fail=False):
        run = subprocess.run([PENSTOCK, *args], env=self.env, capture_output=True, text=True,
                             check=False)
        check(run.returncode == 0 or may_fail, args, run.stderr)
        return run

    def mount(self):
        self.run("mount", self.dir, "--source", "tier:m", "--metrics", "none")

    def umount(self):
        self.run("umount", self.dir)

    def move(self, name, to):
        """Move a file.  Some moves are refused, such as those of open files; only successful ones
        count."""
        run = self.run("tier", "migrate", "m", name, "--to", to, may_fail=True)
        self.moves += run.returncode == 0 and bool(run.stdout)
        return run

    def path(self, name):
        return os.path.join(self.dir, name)

    def where(self, name):
        return [c for c in CLASSES if os.path.lexists(os.path.join(self.base, c, name))]

    def put_at(self, where, name, data):
        path = os.path.join(self.base, where, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


# --------------------------------------------------------------- the cases

def shows_all_roots(s):
    s.put_at("hdd", "d/one", b"1" * 5000)
    s.put_at("nvme", "e/two", b"2")
    s.put_at("ssd", "three", b"3")
    s.mount()
    check(sorted(os.listdir(s.dir)) == ["d", "e", "three"], os.listdir(s.dir))
    check(read(s.path("d/one")) == b"1" * 5000, "bytes")
    check(read(s.path("e/two")) == b"2" and os.listdir(s.path("e")) == ["two"], "e")
    # Make a file below the mount, in a directory that the mount shows.
    s.put_at("ssd", "d/later", b"x")
    check(sorted(os.listdir(s.path("d"))) == ["later", "one"], os.listdir(s.path("d")))


def numbers_survive_moves(s):
    s.put_at("hdd", "d/f", os.urandom(300000))
    s.mount()
    data, st = read(s.path("d/f")), os.stat(s.path("d/f"))
    for to in ("nvme", "ssd", "hdd"):
        check(s.move("d/f", to).returncode == 0, "the move to", to)
        check(s.where("d/f") == [to], s.where("d/f"))
        now = os.stat(s.path("d/f"))
        check((now.st_ino, now.st_size, now.st_mtime_ns) == (st.st_ino, st.st_size, st.st_mtime_ns),
              now)
        check(read(s.path("d/f")) == data, "bytes on", to)
        entry = next(e for e in os.scandir(s.path("d")))
        check(entry.inode() == st.st_ino, "the number in the directory")
    s.umount()
    s.mount()
    check(os.stat(s.path("d/f")).st_ino == st.st_ino, "the number after a new mount")


def open_files_stay(s):
    s.mount()
    with open(s.path("f"), "wb", buffering=0) as f:
        f.write(b"a" * 100)
        check("open through a mount" in s.move("f", "hdd").stderr or
              "open for writing" in s.move("f", "hdd").stderr, "a writer")
        f.write(b"b")
    with open(s.path("f"), "rb") as f:
        check("open through a mount" in s.move("f", "hdd").stderr, "a reader")
    # The kernel tells the server of the last close a moment later.
    for _ in range(6000):
        if s.move("f", "hdd").returncode == 0:
            break
        time.sleep(0.01)
    check(s.where("f") == ["hdd"], s.where("f"))
    with open(s.path("f"), "ab") as f:
        f.write(b"c")
    check(read(os.path.join(s.base, "hdd", "f")) == b"a" * 100 + b"bc", "bytes after a move")


def names(s):
    s.mount()
    os.mkdir(s.path("d"))
    write(s.path("d/f"), b"f")
    number = os.stat(s.path("d/f")).st_ino
    fails(errno.EXDEV, os.rename, s.path("d"), s.path("e"))
    fails(errno.EPERM, os.link, s.path("d/f"), s.path("l"))
    fails(errno.EPERM, os.symlink, "d/f", s.path("l"))
    fails(errno.EPERM, os.mkfifo, s.path("p"))
    fails(errno.ENOTEMPTY, os.rmdir, s.path("d"))
    fails(errno.ENOENT, os.stat, s.path(".tier"))
    os.mkdir(s.path("i"))
    fails(errno.EISDIR, os.rename, s.path("d/f"), s.path("i"))
    os.rename(s.path("d/f"), s.path("g"))
    check(os.stat(s.path("g")).st_ino == number and read(s.path("g")) == b"f", "after a rename")
    check(os.listdir(s.path("d")) == [], "the old name")
    os.rename(s.path("d"), s.path("e"))
    os.rmdir(s.path("e"))
    check(s.where("d") == [] and s.where("e") == [], "directories on roots")
    # Rename onto a file of the same root, and of another root.
    write(s.path("h"), b"h")
    os.replace(s.path("g"), s.path("h"))
    check(read(s.path("h")) == b"f" and len(s.where("h")) == 1, "replaced")
    write(s.path("g"), b"g")
    for _ in range(6000):
        if s.move("h", "hdd").returncode == 0:
            break
        time.sleep(0.01)
    fails(errno.EXDEV, os.rename, s.path("g"), s.path("h"))
    check(read(s.path("g")) == b"g" and read(s.path("h")) == b"f", "both stay")
    os.unlink(s.path("h"))
    check(s.where("h") == [], "an unlinked file on", s.where("h"))
    fails(errno.ENOENT, os.stat, s.path("h"))
    os.chmod(s.path("g"), 0o600)
    check(os.stat(s.path("g")).st_mode & 0o777 == 0o600, "mode")
    with open(s.path("g"), "rb") as f:
        os.unlink(s.path("g"))
        write(s.path("g"), b"another")
        check(f.read() == b"g", "an open file without a name")
    check(read(s.path("g")) == b"another", "a new file of that name")


def a_lock_stops_nobody_else(s):
    """Only callers that need the locked file wait; other file types are refused at once."""
    s.mount()
    write(s.path("g"), b"g")
    # The kernel locks the directory of a file that is being unlinked.
    os.mkdir(s.path("d"))
    os.mkfifo(os.path.join(s.base, "ssd", "pipe"))
    fails(errno.EEXIST, os.rename, s.path("g"), s.path("pipe"))
    check(read(s.path("g")) == b"g", "what was not renamed")
    # On a busy machine the lock may be held for longer than the mount waits, and unlink() fails.
    for _ in range(3):
        s.put_at("nvme", "f", b"f")
        waits = []

        def unlink(waits=waits):
            try:
                os.unlink(s.path("f"))
            except OSError as e:
                waits.append(e.errno)

        with open(os.path.join(s.base, "nvme", "f"), "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            thread = threading.Thread(target=unlink)
            thread.start()
            time.sleep(0.3)
            write(s.path("d/other"), b"o")
            os.unlink(s.path("d/other"))
        thread.join()
        if not waits:
            break
    check(not waits, "unlink failed with", *waits)
    check(s.where("f") == [], "f is on", s.where("f"))


def a_failed_unlink_keeps_the_file(s):
    s.mount()
    write(s.path("f"), b"f")
    where = s.where("f")
    catalog = catalogue(s)
    catalog.execute("CREATE TRIGGER no BEFORE DELETE ON file "
                    "BEGIN SELECT RAISE(FAIL, 'planted'); END")
    try:
        os.unlink(s.path("f"))
        raise Wrong("unlink without the catalogue")
    except OSError:
        pass
    check(s.where("f") == where, "f is on", s.where("f"))
    catalog.execute("DROP TRIGGER no")
    catalog.close()
    check(read(s.path("f")) == b"f", "what was not unlinked")
    os.unlink(s.path("f"))
    check(s.where("f") == [], "f is on", s.where("f"))


def a_rename_takes_all_copies(s):
    """A mover that died left the file on two roots."""
    s.mount()
    write(s.path("a"), b"a")
    s.put_at("hdd", "a", b"a")
    write(s.path("c"), b"c")
    s.put_at("hdd", "c", b"c")
    os.rename(s.path("a"), s.path("b"))
    check(s.where("a") == [] and len(s.where("b")) == 1, s.where("a"), s.where("b"))
    fails(errno.ENOENT, os.stat, s.path("a"))
    os.replace(s.path("b"), s.path("c"))
    check(s.where("b") == [] and len(s.where("c")) == 1, s.where("b"), s.where("c"))
    check(read(s.path("c")) == b"a", "what was renamed")


def catalogue(s):
    for found in (os.path.join(at, n) for at, _, names_ in os.walk(os.path.join(s.base, "state"))
                  for n in names_ if n == "catalog.db"):
        return sqlite3.connect(found, isolation_level=None)
    raise Wrong("there is no catalogue")


def a_held_catalogue_stops_nobody_else(s):
    """While another process changes the catalogue, only callers that create files wait."""
    for i in range(4):
        s.put_at(CLASSES[i % 3], f"e/f{i}", b"e")
    os.makedirs(os.path.join(s.base, "hdd", "d"))
    s.mount()
    for i in range(3):
        says = []

        def create(name=s.path(f"d/new{i}"), says=says):
            try:
                write(name, b"n")
                says.append(0)
            except OSError as e:
                says.append(e.errno)

        held = catalogue(s)
        held.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=create)
        thread.start()
        # Opens are counted in the catalogue, but do not wait for it.
        for k in range(4):
            check(read(s.path(f"e/f{k}")) == b"e", "bytes meanwhile")
        check(len(os.listdir(s.path("e"))) == 4, "names meanwhile")
        os.statvfs(s.dir)
        waits = not says
        held.execute("COMMIT")
        held.close()
        thread.join()
        # On a busy machine, the catalogue may have been held for longer than the mount waits.
        if waits and says == [0]:
            break
    check(waits, "others waited for the one who creates", *says)
    check(says == [0], "create failed with", *says)
    check(read(s.path(f"d/new{i}")) == b"n", "what was created")
    # The server, which ends after the mount, finally counts the opens.
    s.umount()
    end, nr = time.monotonic() + 60, 0
    while nr < 5 and time.monotonic() < end:
        nr = catalogue(s).execute("SELECT sum(accesses) FROM file").fetchone()[0]
        time.sleep(0.01)
    check(nr >= 5, nr, "accesses are counted")


def attributes_wait(s):
    """A change of attributes waits for the mover without a thread, and delays nobody else."""
    s.mount()
    write(s.path("f"), b"f")
    write(s.path("g"), b"g")
    done = []

    def change():
        os.chmod(s.path("f"), 0o600)
        os.setxattr(s.path("f"), "user.a", b"1")
        done.append(True)

    where = s.where("f")[0]
    for _ in range(6000):
        with open(os.path.join(s.base, where, "f"), "rb") as f:
            try:
                # The kernel tells the server of the last close a moment later.
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            thread = threading.Thread(target=change)
            thread.start()
            for _ in range(3):
                os.chmod(s.path("g"), 0o640)
            check(read(s.path("g")) == b"g" and not done, "others, or it did not wait")
            break
    thread.join()
    check(done and os.stat(s.path("f")).st_mode & 0o777 == 0o600, "the change of attributes")


def directories_have_times(s):
    """A file made or removed on a root other than the tree changes its directory's times."""
    s.mount()
    os.mkdir(s.path("d"))
    os.mkdir(s.path("e"))

    def changes(what, fn, *dirs):
        for d in dirs:
            os.utime(s.path(d), (1000, 1000))
        fn()
        for d in dirs:
            check(os.stat(s.path(d)).st_mtime > 1000, what, "left the time of", d)

    changes("create", lambda: write(s.path("d/f"), b"f"), "d")
    check(s.where("d/f") == ["nvme"], s.where("d/f"))
    changes("rename", lambda: os.rename(s.path("d/f"), s.path("e/f")), "d", "e")
    changes("unlink", lambda: os.unlink(s.path("e/f")), "e")


class Checker:
    """Random operations, compared with a model of bytes and inode numbers."""

    def __init__(self, s, seed):
        self.s, self.rng = s, random.Random(seed)
        self.files = {}  # name -> [bytes, inode number]
        self.dirs = [""] + [f"d{i}" for i in range(3)]
        for name in self.dirs[1:]:
            os.mkdir(s.path(name))

    def name(self):
        return os.path.join(self.rng.choice(self.dirs), f"f{self.rng.randrange(6)}")

    def some(self):
        return self.rng.choice(sorted(self.files)) if self.files else None

    def write(self, name):
        new = name not in self.files
        data = self.files.get(name, [b""])[0]
        off, payload = self.rng.randrange(0, 70000), self.rng.randbytes(self.rng.randrange(1, 9000))
        with open(self.s.path(name), "r+b" if not new else "x+b", buffering=0) as f:
            f.seek(off)
            f.write(payload)
            if self.rng.random() < 0.1:
                os.fsync(f.fileno())
            number = os.fstat(f.fileno()).st_ino
        if not new:
            check(number == self.files[name][1], name, "has another number")
        data = data.ljust(off, b"\0")
        self.files[name] = [data[:off] + payload + data[off + len(payload):], number]

    def truncate(self, name):
        size = self.rng.randrange(0, 70000)
        os.truncate(self.s.path(name), size)
        self.files[name][0] = self.files[name][0][:size].ljust(size, b"\0")

    def look(self, name):
        data, number = self.files[name]
        st = os.stat(self.s.path(name))
        check(st.st_ino == number and st.st_size == len(data), name, "is", st, len(data), number)
        check(read(self.s.path(name)) == data, name, "has other bytes")

    def rename(self, name):
        to = self.name()
        if to == name:
            return
        try:
            os.rename(self.s.path(name), self.s.path(to))
        except OSError as e:
            # Renames onto a file on another root are refused.
            check(e.errno == errno.EXDEV and to in self.files, "rename", name, to, e)
            return
        self.files[to] = self.files.pop(name)

    def unlink(self, name):
        os.unlink(self.s.path(name))
        del self.files[name]
        check(self.s.where(name) == [], name, "is on", self.s.where(name))

    def list(self):
        where = self.rng.choice(self.dirs)
        found = {e.name: e.inode() for e in os.scandir(self.s.path(where)) if e.is_file()}
        want = {os.path.basename(n): f[1] for n, f in self.files.items()
                if os.path.dirname(n) == where}
        check(found == want, where, "has", found, "not", want)

    def step(self):
        if not self.files or self.rng.random() < 0.15:
            self.write(self.name())
            return
        act = self.rng.choices([self.write, self.truncate, self.look, self.rename, self.unlink,
                                None], [4, 1, 5, 1, 1, 2])[0]
        if act:
            act(self.some())
        else:
            self.list()


def random_while_moving(s):
    s.mount()
    c, ends, wrong = Checker(s, 11), threading.Event(), []

    def moves():
        rng = random.Random(12)
        try:
            while not ends.is_set():
                s.move(os.path.join(rng.choice(c.dirs), f"f{rng.randrange(6)}"),
                       rng.choice(CLASSES))
        except (Wrong, OSError) as e:
            wrong.append(e)

    thread = threading.Thread(target=moves)
    thread.start()
    nr, most = 0, 100000 if SOAK else 1500
    try:
        # Make at least most operations, and continue until some files have moved.
        while not wrong and (nr < most or s.moves < 10):
            c.step()
            nr += 1
    finally:
        ends.set()
        thread.join()
    check(not wrong, *wrong)
    for name in list(c.files):
        c.look(name)
    s.umount()
    s.run("tier", "scrub", "m")
    print(f"# {nr} operations, {s.moves} moves meanwhile: 0 different")


def main():
    cases = [shows_all_roots, numbers_survive_moves, open_files_stay, names,
             a_lock_stops_nobody_else, a_held_catalogue_stops_nobody_else, attributes_wait,
             directories_have_times, a_failed_unlink_keeps_the_file, a_rename_takes_all_copies,
             random_while_moving]
    only = [c for c in os.environ.get("PST_TEST_CASE", "").split(",") if c]
    nr = failed = 0
    for case in cases:
        if only and case.__name__ not in only:
            continue
        nr += 1
        with tempfile.TemporaryDirectory() as scratch:
            s = Set(scratch)
            try:
                if not os.access("/dev/fuse", os.W_OK) or os.geteuid() != 0:
                    raise Skip("/dev/fuse, and root to mount")
                case(s)
                print(f"ok {nr} {case.__name__}", flush=True)
            except Skip as e:
                print(f"ok {nr} {case.__name__} # SKIP {e}")
            except (Wrong, OSError) as e:
                failed += 1
                print(f"not ok {nr} {case.__name__}\n# {e}", flush=True)
            finally:
                if os.path.ismount(s.dir):
                    subprocess.run(["umount", "-l", s.dir], check=False)
    print(f"1..{nr}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
