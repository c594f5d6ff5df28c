# SPDX-License-Identifier: MIT
"""Random operations on objects, compared with a model: bytes, sizes, names and errors.

    model.py                                    the stubs: server.py, and PST_LIBRADOS if set
    model.py ROOT [OPERATIONS [SEED [WORKERS]]] a real server, which the environment names;
                                                ROOT is rados://POOL/ or s3://BUCKET/

Each worker is a thread with names of its own below ROOT, and with a model of them.  A reader that
is open while its object changes gives the bytes of its open, or ESTALE; if the object is gone,
S3 gives ENOENT.  Bytes around a read stay as they were.  Some files of Ceph get a layout of small
objects, by the command rados.  A run ends at the first wrong byte, and prints its counts.  PST_SOAK
makes the run on the stubs long.  PST_S3_DIRECTORIES: the server lists empty directories, as
rclone's does.
"""
import ctypes
import errno
import os
import random
import subprocess
import sys
import threading
import time

MIB = 1 << 20
KEYS = ["a", "dir/b", "dir/sub/c", "c d+e", "é/ü", "x=y&z#%41", "(f)!*'~", "dir-b", "dir/d.0"]
DIRECTORIES = bool(os.environ.get("PST_S3_DIRECTORIES"))
GUARD = 64      # bytes on each side of a read
PERIOD = 65521  # of the contents: a prime, so that a wrong offset gives wrong bytes
HELD_MAX = 6
# Layouts of striped files: bytes of an object, bytes of a stripe's unit, units of a stripe.
LAYOUTS = [(65536, 16384, 3), (16384, 16384, 2), (MIB, 65536, 5)]
FIRST = ".0000000000000000"


class Worker:
    """root: a prefix of names; layout(name, object, unit, count) makes an empty file."""

    def __init__(self, root, seed, layout=None):
        self.root, self.layout = root, layout
        self.in_place = root.startswith("rados:")
        self.choose = random.Random(seed)
        self.model, self.held, self.counts = {}, [], {}
        self.changes = dict.fromkeys(KEYS, 0)
        rows = [(self.read, 40), (self.several, 8), (self.stat, 6), (self.list, 2),
                (self.create, 12), (self.exclusive, 3), (self.unlink, 4), (self.rename, 1),
                (self.hold, 6), (self.read_held, 12), (self.truncate, 6 if self.in_place else 1),
                (self.patch, 10) if self.in_place else (self.discard, 3)]
        self.kinds, self.weights = zip(*rows)
        self.writes = (self.create, self.exclusive, self.unlink, self.truncate, self.patch)
        self.of_any_name = [self.create, self.exclusive, self.list, self.discard, self.read_held,
                            self.rename] + ([] if self.in_place else [self.truncate])

    def count(self, what, nr=1):
        self.counts[what] = self.counts.get(what, 0) + nr

    def step(self):
        kind = self.choose.choices(self.kinds, self.weights)[0]
        name = self.choose.choice(KEYS)
        if name in self.model or kind in self.of_any_name:
            self.changes[name] += kind in self.writes
            kind(name)
            self.count(kind.__name__)
        else:
            self.expect(errno.ENOENT, kind, name)
            self.count("missing")

    def close(self):
        while self.held:
            self.held.pop()[0].close()

    # ------------------------------------------------------------- contents

    def size(self):
        c = self.choose
        kind = c.random()
        if kind < 0.92:
            return c.choice((0, 1, c.randrange(5000), c.randrange(300000)))
        if kind < 0.998 or self.in_place:
            return c.randrange(6 * MIB)
        return 16 * MIB + c.randrange(-1, 20 * MIB)

    def bytes_of(self, size):
        return (self.choose.randbytes(min(size, PERIOD)) * (size // PERIOD + 1))[:size]

    def range(self, size):
        """Return offset and length of a read, which may reach or begin beyond the end."""
        c = self.choose
        off = c.randrange(size + 10)
        return off, c.choice((1, 100, 4096, 70000, c.randrange(1, size + 2)))

    def expect(self, number, function, *args):
        try:
            function(*args)
        except OSError as e:
            assert e.errno == number, (self.root, function, args, e)
        else:
            raise AssertionError((self.root, function, args, "no error", number))

    # ---------------------------------------------------------------- reads

    def check(self, f, content, off, length):
        whole = bytearray(b"\xa5" * (length + 2 * GUARD))
        view = memoryview(whole)[GUARD:GUARD + length]
        n = f.read(view, off, short=True).nbytes
        want = content[off:off + length]
        assert n == len(want), (f.name, off, length, n, len(want))
        assert view[:n] == want, (self.root, f.name, "wrong bytes", off, length)
        # A read may overwrite the memory from its result up to its end, but does not.
        assert whole.count(b"\xa5", 0, GUARD) == GUARD, (f.name, "bytes before a read")
        assert not whole[GUARD + n:].strip(b"\xa5"), (f.name, "bytes after a read")
        self.count("ranges")

    def read(self, name):
        with File(self.root + name) as f:
            content = self.model[name]
            assert f.size == len(content), (name, f.size, len(content))
            for _ in range(self.choose.randrange(1, 4)):
                self.check(f, content, *self.range(len(content)))

    def several(self, name):
        """Read several objects at once, whole and in part."""
        picked = [name] + self.choose.sample(sorted(self.model), min(3, len(self.model)))
        files = [File(self.root + n) for n in picked]
        rows = []
        with Queue(32) as q:
            for n, f in zip(picked, files):
                for _ in range(3):
                    off, length = self.range(len(self.model[n]))
                    buf = bytearray(length)
                    rows.append((n, off, buf))
                    q.read(f, buf, off, short=True, tag=len(rows) - 1)
            q.submit()
            left = len(rows)
            while left:
                for done in q.reap(1):
                    done.check()
                    n, off, buf = rows[done.tag]
                    want = self.model[n][off:off + len(buf)]
                    assert buf[:done.result.nbytes] == want, (n, off, len(buf), "wrong bytes")
                    left -= 1
        for f in files:
            f.close()
        self.count("ranges", len(rows))

    def hold(self, name):
        if len(self.held) >= HELD_MAX:
            self.held.pop(self.choose.randrange(HELD_MAX))[0].close()
        self.held.append((File(self.root + name), name, self.model[name], self.changes[name]))

    def read_held(self, _name):
        if not self.held:
            return
        f, name, content, changes = self.choose.choice(self.held)
        try:
            self.check(f, content, *self.range(len(content)))
        except OSError as e:
            assert e.errno == errno.ESTALE or (e.errno == errno.ENOENT and
                                               name not in self.model), (name, e)
            assert self.changes[name] > changes, (name, "nobody changed it", e)
            self.count("stale")

    def stat(self, name):
        e = names.stat(self.root + name)
        assert e.size == len(self.model[name]), (name, e.size, len(self.model[name]))

    def list(self, _name):
        if not self.model:
            if not DIRECTORIES:
                self.expect(errno.ENOENT, lambda: list(names.entries(self.root)))
            return
        got = {e.name: e.size for e in names.entries(self.root, recursive=True)}
        assert got == {k: len(v) for k, v in self.model.items()}, (got, sorted(self.model))
        top = {e.name for e in names.entries(self.root)}
        want = {k.split("/")[0] for k in self.model}
        # A server that keeps objects as files may list a directory without any.
        assert top == want or (DIRECTORIES and want < top <= want | {"dir", "é"}), top

    # --------------------------------------------------------------- writes

    def write_all(self, f, content):
        pieces, at = [], 0
        while at < len(content):
            n = self.choose.choice((4096, 200000, 9 * MIB))
            n = min(max(n, len(content) // 20), len(content) - at)
            pieces.append((at, n))
            at += n
        if self.in_place:
            self.choose.shuffle(pieces)
        for at, n in pieces:
            f.write(content[at:at + n], at)

    def create(self, name):
        if self.layout and name not in self.model and self.choose.random() < 0.05:
            self.layout(self.root + name, *self.choose.choice(LAYOUTS))
            self.count("layouts")
        content = self.bytes_of(self.size())
        with File(self.root + name, "w") as f:
            self.write_all(f, content)
            if not self.in_place or self.choose.random() < 0.5:
                f.sync()
        self.model[name] = content

    def exclusive(self, name):
        content = self.bytes_of(self.choose.randrange(5000))
        if name in self.model:
            self.expect(errno.EEXIST, File, self.root + name, "x")
            return
        with File(self.root + name, "x") as f:
            self.write_all(f, content)
            f.sync()
        self.model[name] = content

    def discard(self, name):
        """Discard unsynced writes: the object stays as it was."""
        with File(self.root + name, "w") as f:
            self.write_all(f, self.bytes_of(self.choose.randrange(300000)))
        if name in self.model:
            self.read(name)
        else:
            self.expect(errno.ENOENT, File, self.root + name)

    def patch(self, name):
        with File(self.root + name, "r+") as f:
            content = bytearray(self.model[name])
            for _ in range(self.choose.randrange(1, 4)):
                off = self.choose.randrange(len(content) + 200000)
                new = self.bytes_of(self.choose.choice((1, 4096, 100000)))
                f.write(new, off)
                content.extend(bytes(max(off + len(new) - len(content), 0)))
                content[off:off + len(new)] = new
                self.check(f, content, *self.range(len(content)))
            if self.choose.random() < 0.5:
                f.sync()
        self.model[name] = bytes(content)

    def truncate(self, name):
        size = self.size()
        if not self.in_place:
            self.expect(errno.EOPNOTSUPP, names.truncate, self.root + name, size)
            return
        names.truncate(self.root + name, size)
        old = self.model[name]
        self.model[name] = old[:size] + bytes(max(size - len(old), 0))

    def unlink(self, name):
        if name not in self.model and not self.in_place:
            raise FileNotFoundError(errno.ENOENT, name)     # S3 does not tell
        names.unlink(self.root + name)
        del self.model[name]

    def rename(self, name):
        self.expect(errno.EOPNOTSUPP, names.rename, self.root + name, self.root + "new")

    def last(self):
        """Read every object once more, as a whole."""
        self.close()
        self.list("")
        for name, content in self.model.items():
            with File(self.root + name) as f:
                self.check(f, content, 0, len(content) + 1)
            names.unlink(self.root + name)


def go(root, operations, seed, workers=1, layout=None):
    """Run all workers.  Return their counts; raise the exception of the first that failed."""
    failed, all_workers = [], [Worker(f"{root}w{i}/", f"{seed}/{i}", layout)
                               for i in range(workers)]

    def work_off(w):
        try:
            for _ in range(operations // workers):
                if failed:
                    return
                w.step()
                w.count("operations")
            w.last()
        except BaseException as e:
            failed.append(e)
        finally:
            w.close()
    threads = [threading.Thread(target=work_off, args=(w,)) for w in all_workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]
    counts = {}
    for w in all_workers:
        for what, nr in w.counts.items():
            counts[what] = counts.get(what, 0) + nr
    return counts


def layout_by_rados(name, *layout):
    pool, _, key = name[len("rados://"):].partition("/")

    def rados(*words):
        subprocess.run(["rados", "-p", pool, *words], check=True, stdout=subprocess.DEVNULL)
    rados("create", key + FIRST)
    for attr, value in zip(("object_size", "stripe_unit", "stripe_count"), layout):
        rados("setxattr", key + FIRST, "striper.layout." + attr, str(value))
    rados("setxattr", key + FIRST, "striper.size", "0")


def make_bucket(root):
    bucket = root[len("s3://"):].split("/")[0]
    subprocess.run(["curl", "-sS", "-o", "/dev/null", "-X", "PUT", "--aws-sigv4",
                    f"aws:amz:{os.environ.get('AWS_REGION', 'us-east-1')}:s3", "--user",
                    f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}",
                    "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
                    f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}"], check=True)


def real(root, operations=1000, seed=1, workers=4):
    rados = root.startswith("rados:")
    if not rados:
        make_bucket(root)
    begun = time.monotonic()
    counts = go(root, int(operations), seed, int(workers), layout_by_rados if rados else None)
    print(f"{root} seed {seed}: {counts}, none wrong, {time.monotonic() - begun:.1f} s")


def doubles():
    from server import Server
    from tap import case, run
    operations = 20000 if os.environ.get("PST_SOAK") else 300
    server = Server()
    os.environ.update(server.environ())

    @case
    def objects_of_s3():
        print("#", go("s3://bucket/", operations, 1, 2))

    if "PST_LIBRADOS" in os.environ:
        stub = ctypes.CDLL(os.environ["PST_LIBRADOS"])

        def layout_by_stub(name, *layout):
            pool, _, key = name[len("rados://"):].partition("/")
            first = (key + FIRST).encode()
            stub.stub_rados_put(pool.encode(), first, b"", ctypes.c_size_t(0))
            for attr, value in zip(("layout.object_size", "layout.stripe_unit",
                                    "layout.stripe_count", "size"), (*layout, 0)):
                stub.stub_rados_set(pool.encode(), first, b"striper." + attr.encode(),
                                    str(value).encode())

        @case
        def objects_of_ceph():
            print("#", go("rados://pool/", operations, 1, 2, layout_by_stub))

    run()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from penstock import File, Queue, names
    if len(sys.argv) == 1:
        doubles()
    else:
        real(*sys.argv[1:])
