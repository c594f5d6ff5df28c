#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""crash.py DRIVE LAZYFS [--quick]: what a power loss leaves of a set, compared with a model.

A workload runs on lazyfs, which logs each change and each sync.  For each point of the log, this
builds directories that a power loss there may leave: synced changes are present; of the others
none, all, names without bytes, or a random part with torn writes.  The driver recovers each
directory.  By the operations acknowledged before that point, each file must exist, once, whole, and
where it was or where it was being moved.  The store of objects is not on lazyfs: it is another
machine, which loses nothing.

PST_SOAK=1 tries longer sequences and more random states.
"""
import hashlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile

from lazy import MARK, Disk, read_log

DRIVE, LAZYFS = sys.argv[1:3]
QUICK = "--quick" in sys.argv
SOAK = bool(os.environ.get("PST_SOAK"))
CLASSES = ("nvme", "ssd", "hdd")


class Skip(Exception):
    pass


class Lost(AssertionError):
    pass


def clear(env):
    """Empty the directory where the driver shows the content of objects."""
    if "DRIVE_SHOW" in env:
        shutil.rmtree(env["DRIVE_SHOW"], ignore_errors=True)
        os.mkdir(env["DRIVE_SHOW"])


def places(path, name, env):
    """Return the paths of a file, by class."""
    found = {c: os.path.join(path, c, name) for c in CLASSES}
    if "DRIVE_SHOW" in env:
        found["object"] = os.path.join(env["DRIVE_SHOW"], name.replace("/", "%"))
    return {c: p for c, p in found.items() if os.path.exists(p)}


# ------------------------------------------------------------ the workload

class Mount:
    """lazyfs on a new directory, and its log."""

    def __init__(self, scratch, store=None):
        self.dir = os.path.join(scratch, "mnt")
        self.log = os.path.join(scratch, "log")
        os.makedirs(self.dir, exist_ok=True)
        if not os.path.exists(LAZYFS):
            raise Skip("the program lazyfs (libfuse3-dev)")
        if not os.path.exists("/dev/fuse"):
            raise Skip("/dev/fuse")
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen([LAZYFS, self.dir, self.log], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.process.wait()
            raise Skip("the right to mount by FUSE")
        self.env = dict(os.environ, PST_TIER_DIR=os.path.join(self.dir, "state"))
        if store:
            os.mkdir(store)
            self.env.update(DRIVE_STORE=store, DRIVE_SHOW=os.path.join(scratch, "show"))
        self.model = {}

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=60)

    def mark(self, *words):
        fd = os.open(os.path.join(self.dir, "mark"), os.O_WRONLY)
        os.write(fd, " ".join(words).encode())
        os.close(fd)

    def drive(self, *words, check=True, **env):
        return subprocess.run([DRIVE, *words], env={**self.env, **env}, check=check,
                              capture_output=True, text=True)

    def init(self):
        for name in CLASSES:
            os.mkdir(os.path.join(self.dir, name))
        fd = os.open(self.dir, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.mark("begin", "init")
        self.drive("init", "m", *(os.path.join(self.dir, name) for name in CLASSES))
        self.mark("end", "init")

    def put(self, name, where, data):
        """Replace a file durably, as careful programs do."""
        path = os.path.join(self.dir, where, name)
        digest = hashlib.sha256(data).hexdigest()
        self.mark("begin", "put", name, where, digest)
        parts = os.path.dirname(name)
        if parts:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self.sync(os.path.join(self.dir, where))
        fd = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.rename(path + ".part", path)
        self.sync(os.path.dirname(path))
        self.mark("end", "put", name, where, digest)
        self.model[name] = where

    def sync(self, path):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def move(self, name, where):
        self.mark("begin", "move", name, where)
        run = self.drive("move", "m", name, where, check=False)
        if run.returncode:
            raise Lost(f"a move failed: {run.stderr}")
        self.mark("end", "move", name, where)
        self.model[name] = where

    def disturbed_move(self, name, where, data, **env):
        """Kill a move, or append a byte to the file during it; then recover."""
        # A byte appended without a sync may be lost on any file system: it may be there, be
        # missing, or be 0.  Once its writer was told that it is synced, it must be there.
        digests = [hashlib.sha256(d).hexdigest() for d in (data, data + b"!", data + b"\0")]
        here = self.model[name]
        how = "written" if "DRIVE_WRITE_AT" in env else "killed"
        if how == "killed":
            del digests[1:]
        if "DRIVE_MARK" in env:
            env["DRIVE_MARK_TEXT"] = f"end any {name} {here},{where} {digests[1]} {how}"
        self.mark("begin", "any", name, ",".join((here, where)), ",".join(digests), how)
        done = self.drive("move", "m", name, where, check=False, **env).returncode == 0
        clear(self.env)
        self.drive("recover", "m")
        paths = places(self.dir, name, self.env)
        there = list(paths)
        if len(there) != 1:
            raise Lost(f"{name} is on {there} after a recovery with {env}")
        # A moved file is synced: its content is fixed now.
        with open(paths[there[0]], "rb") as f:
            now = hashlib.sha256(f.read()).hexdigest()
        if now not in digests:
            raise Lost(f"{name} is different after a recovery with {env}")
        if there[0] == where or "DRIVE_MARK" in env:
            digests = [now]
        self.mark("end", "any", name, there[0], ",".join(digests), how)
        self.model[name] = there[0]
        return done

    def delete(self, name):
        if self.model[name] == "object":
            self.move(name, "hdd")
        path = os.path.join(self.dir, self.model.pop(name), name)
        self.mark("begin", "delete", name)
        os.unlink(path)
        self.sync(os.path.dirname(path))
        self.mark("end", "delete", name)


# -------------------------------------------------------------- the judge

class Model:
    """The possible content of each file, by the acknowledged operations; None: no file."""

    def __init__(self):
        self.files = {}   # name -> set of (class, digest) or None
        self.ready = False
        self.unsynced = {}    # name -> digest

    def mark(self, text):
        when, what, *args = text.split(" ")
        if what == "init":
            self.ready = when == "end"
            return
        name = args[0]
        was = self.files.get(name, {None})
        if what == "put":
            new = {tuple(args[1:])}
        elif what == "any":
            new = set(itertools.product(args[1].split(","), args[2].split(",")))
        elif what == "unsynced":
            # Any content is possible until a copy of the file is whole.
            self.unsynced[name] = args[2]
            return
        elif what == "move" and name in self.unsynced:
            return
        elif what == "move":
            new = {(args[1], digest) for _, digest in filter(None, was)}
        else:
            new = {None}
        self.files[name] = new if when == "end" else was | new
        if when == "end":
            self.unsynced.pop(name, None)


def digest_of(path):
    try:
        with open(path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except OSError as e:
        raise Lost(f"{path} is unreadable: {e}") from e


def has_whole(path, name, digest):
    there = [os.path.join(path, c, name) for c in CLASSES]
    return any(digest_of(p) == digest for p in there if os.path.exists(p))


def judge(model, path, store):
    """Recover the set at path, and compare it with the model."""
    whole = [n for n, d in model.unsynced.items() if has_whole(path, n, d)]
    env = dict(os.environ, PST_TIER_DIR=os.path.join(path, "state"))
    if store:
        env.update(DRIVE_STORE=store, DRIVE_SHOW=path + "-show")
        clear(env)
    run = subprocess.run([DRIVE, "recover", "m"], env=env, capture_output=True, text=True,
                         check=False)
    if run.returncode:
        if not model.ready:
            return
        raise Lost(f"recovery failed: {run.stderr.strip()}")
    for name in whole:
        if not has_whole(path, name, model.unsynced[name]):
            raise Lost(f"{name} was whole, and recovery took the one that is not")
    listed = {}
    for line in run.stdout.splitlines():
        where, name = line.split(" ", 1)
        listed[name] = where
    for name, legal in model.files.items():
        paths = places(path, name, env)
        there = list(paths)
        if not there:
            if None not in legal:
                raise Lost(f"{name} is lost")
            continue
        found = [(c, digest_of(p)) for c, p in paths.items()]
        if len(there) > 1:
            raise Lost(f"{name} is there twice: {found}")
        for where, digest in found:
            if (where, digest) not in legal:
                known = any(l and l[1] == digest for l in legal)
                raise Lost(f"{name} is {'on ' + where if known else 'different'}, legal: {legal}")
        if listed.get(name) != there[0]:
            raise Lost(f"{name} is on {there[0]}, the catalogue says {listed.get(name)}")
    for c in CLASSES:
        tmp = os.path.join(path, c, ".tier", "tmp")
        if os.path.isdir(tmp) and os.listdir(tmp):
            raise Lost(f"{c} has {os.listdir(tmp)} in .tier/tmp")


def crash_everywhere(log, mount_dir, scratch, rng, nr_random, store=None):
    """Check each point of a log.  Return the number of different states."""
    disk, model, seen = Disk(), Model(), set()
    for at, rec in enumerate(log):
        if rec[0] == MARK:
            model.mark(rec[4].decode())
        else:
            disk.apply(rec)
        # Nothing was promised before the set exists.
        if not model.ready:
            continue
        legal = repr(sorted((n, sorted(map(str, l))) for n, l in model.files.items()))
        for state in disk.states(rng, nr_random):
            key = (disk.key(state), legal)
            if key in seen:
                continue
            seen.add(key)
            path = os.path.join(scratch, "after")
            disk.build(state, path, mount_dir)
            try:
                judge(model, path, store)
            except Lost as e:
                raise Lost(f"a crash after record {at} of {len(log)} ({rec[:4]}): {e}") from e
            shutil.rmtree(path)
    return len(seen)


# -------------------------------------------------------------- the cases

BYTES = random.Random(7).randbytes(9000)

# Operations on the set of files a and d/b, which are on hdd at first.
OPERATIONS = {
    "a_to_nvme": lambda m: "a" in m.model and m.move("a", "nvme"),
    "a_to_ssd": lambda m: "a" in m.model and m.move("a", "ssd"),
    "b_to_nvme": lambda m: m.move("d/b", "nvme"),
    "a_to_object": lambda m: "a" in m.model and m.move("a", "object"),
    "b_to_object": lambda m: m.move("d/b", "object"),
    "put_a": lambda m: m.put("a", m.model.get("a", "hdd"), BYTES[3000:7000]),
    "delete_a": lambda m: "a" in m.model and m.delete("a"),
}


def sequence(names, rng, nr_random, objects=False):
    # Use memory: recovery syncs, which takes no time there.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory(dir=memory) as fast:
        store = os.path.join(fast, "bucket") if objects else None
        mount = Mount(scratch, store)
        try:
            mount.init()
            mount.put("a", "hdd", BYTES[:5000])
            mount.put("d/b", "hdd", BYTES[2000:])
            for name in names:
                OPERATIONS[name](mount)
        finally:
            mount.close()
        log = read_log(mount.log)
        try:
            return crash_everywhere(log, mount.dir, fast, rng, nr_random, store)
        except Lost as e:
            raise Lost(f"{'+'.join(names)}: {e}") from e


def sequences(longest, nr_random):
    rng, nr, states = random.Random(3), 0, 0
    for length in range(1, longest + 1):
        on_disks = [n for n in OPERATIONS if "object" not in n]
        for names in itertools.product(on_disks, repeat=length):
            states += sequence(names, rng, nr_random)
            nr += 1
    print(f"# {nr} sequences, {states} states after a power loss: "
          "0 lost, 0 different, 0 unreadable")


def one_move():
    states = sequence(["a_to_nvme"], random.Random(5), 4)
    print(f"# {states} states after a power loss of one move")
    if states < 50:
        raise Lost("too few states: does lazyfs log what the mover does?")


def directory_move():
    sequence(["b_to_nvme", "a_to_ssd"], random.Random(6), 2)


def object_moves():
    """Move files to the store and back."""
    states = 0
    for names in (["a_to_object"], ["a_to_object", "a_to_nvme"],
                  ["b_to_object", "b_to_nvme", "b_to_object"]):
        states += sequence(names, random.Random(8), 4 if SOAK else 1, objects=True)
    print(f"# {states} states after a power loss of moves to and from the store")
    if states < 100:
        raise Lost("too few states")


def disturbed(variable, step, synced=False, to="nvme"):
    """Disturb a move at each step-th of its calls, and check each point of the whole log."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory(dir=memory) as fast:
        store = os.path.join(fast, "bucket") if to == "object" else None
        mount = Mount(scratch, store)
        try:
            mount.init()
            for n in range(1, 1000, step):
                # Use a new file each time, and only one: a scan makes calls for each file.
                name, data = f"f{n}", BYTES[n:5000 + n]
                mount.put(name, "hdd", data)
                path = os.path.join(mount.dir, "hdd", name)
                env = {variable: str(n), "DRIVE_WRITE": path}
                if synced:
                    env["DRIVE_MARK"] = os.path.join(mount.dir, "mark")
                done = mount.disturbed_move(name, to, data, **env)
                mount.delete(name)
                if done and n > 60:
                    break
            else:
                raise Lost("no move of 1000 ran to its end without a disturbance")
        finally:
            mount.close()
        states = crash_everywhere(read_log(mount.log), mount.dir, fast, random.Random(9), 0, store)
        print(f"# {states} states after a power loss, with moves disturbed at {n} calls")


STEP = 1 if SOAK else 14


def killed_and_recovered():
    disturbed("DRIVE_DIE_AT", STEP)


def written_meanwhile():
    disturbed("DRIVE_WRITE_AT", STEP)


def synced_meanwhile():
    disturbed("DRIVE_WRITE_AT", STEP, synced=True)


def killed_on_the_way_to_the_store():
    disturbed("DRIVE_DIE_AT", STEP, to="object")


def written_on_the_way_to_the_store():
    disturbed("DRIVE_WRITE_AT", STEP, to="object")


def moved_before_it_is_synced():
    """A file that was never synced: once its copy is whole on a disk, older content must not
    return."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory(dir=memory) as fast:
        mount = Mount(scratch)
        try:
            mount.init()
            data = BYTES[:5000]
            digest = hashlib.sha256(data).hexdigest()
            path = os.path.join(mount.dir, "hdd", "u")
            mount.mark("begin", "unsynced", "u", "hdd", digest)
            with open(path, "wb") as f:
                f.write(data)
            mount.sync(os.path.dirname(path))
            mount.mark("begin", "move", "u", "nvme")
            mount.drive("move", "m", "u", "nvme")
            mount.mark("end", "put", "u", "nvme", digest)
        finally:
            mount.close()
        states = crash_everywhere(read_log(mount.log), mount.dir, fast, random.Random(9), 2)
        print(f"# {states} states after a power loss, of a file that nobody synced")


def every_sequence():
    sequences(3 if SOAK else 1, 4 if SOAK else 1)


def main():
    cases = [one_move, directory_move, killed_and_recovered, written_meanwhile,
             synced_meanwhile, moved_before_it_is_synced, object_moves,
             killed_on_the_way_to_the_store, written_on_the_way_to_the_store]
    cases += [] if QUICK else [every_sequence]
    only = [c for c in os.environ.get("PST_TEST_CASE", "").split(",") if c]
    nr = failed = 0
    for case in cases:
        if only and case.__name__ not in only:
            continue
        nr += 1
        try:
            case()
            print(f"ok {nr} {case.__name__}", flush=True)
        except Skip as e:
            print(f"ok {nr} {case.__name__} # SKIP {e}")
        except Lost as e:
            failed += 1
            print(f"not ok {nr} {case.__name__}\n# {e}", flush=True)
            if QUICK:
                break
    print(f"1..{nr}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
