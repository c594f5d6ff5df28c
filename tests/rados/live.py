# SPDX-License-Identifier: MIT
"""Random operations on a real Ceph cluster, compared with a model; not run by CI.

    live.py POOL [OPERATIONS]

CEPH_CONF names the cluster.  The command rados must exist: it reads and writes the same files.  If
CEPH_RUN names a program that freezes osd.0 (freeze, thaw), deadlines are tested on a cluster that
hangs.  Prints the counts, and fails at the first wrong byte.
"""
import errno
import os
import random
import subprocess
import sys
import threading
import time

from penstock import File, Queue, names

MIB = 1 << 20
POOL = sys.argv[1]
TAKE = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
ROOT = f"rados://{POOL}/"
choose = random.Random(int(os.environ.get("SEED", "11")))
counts = {}
plain = set()       # names of files that are one object


def count(what):
    counts[what] = counts.get(what, 0) + 1


def rados(*words):
    r = subprocess.run(["rados", "-p", POOL, *words], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False).returncode
    # rados --striper of 16.2 sometimes crashes at its end, after its work.
    if r < 0 or r > 128:
        count("rados that crashed at its end")
    else:
        assert r == 0, words


def bytes_of(size):
    return choose.randbytes(size)


def key():
    return choose.choice(["a", "dir/b", "c d+e", "é/ü", "x.0", "(f)!*'~", "one", "dir/one"])


def put_by_rados(name, content):
    with open("live.tmp", "wb") as f:
        f.write(content)
    if name in plain:
        rados("put", name, "live.tmp")
    else:
        rados("--striper", "put", name, "live.tmp")


def a_size():
    return choose.choice([0, 1, 5000, MIB, 3 * MIB, 4 * MIB, 4 * MIB + 1, 13 * MIB + 7])


def one(model):
    name = key()
    what = choose.choice(["new", "patch", "read", "read", "read", "cut", "list", "remove",
                          "foreign", "foreign read"])
    if choose.random() < 0.7 and what in ("list", "foreign", "foreign read", "remove", "new"):
        what = "read"       # these take longest
    if what == "new":
        model[name] = bytes_of(a_size())
        with File(ROOT + name, "w") as f:
            at = 0
            while at < len(model[name]):
                n = min(len(model[name]) - at, choose.randrange(1, 6 * MIB))
                f.write(model[name][at:at + n], at)
                at += n
            assert f.size == len(model[name])
            if choose.random() < 0.5:
                f.sync()
    elif what == "foreign":
        if name not in model and choose.random() < 0.5:
            plain.add(name)
        model[name] = bytes_of(max(a_size(), 1))
        put_by_rados(name, model[name])
    elif what == "list":
        got = {e.name: e.size for e in names.entries(ROOT, recursive=True)}
        assert got == {k: len(v) for k, v in model.items()}, (got, list(model))
        top = {e.name for e in names.entries(ROOT)}
        assert top == {k.split("/")[0] for k in model}, top
    elif name not in model:
        what = "missing"
        try:
            File(ROOT + name).close()
            raise AssertionError(name)
        except FileNotFoundError:
            pass
    elif what == "remove":
        names.unlink(ROOT + name)
        del model[name]
        plain.discard(name)
    elif what == "cut":
        size = a_size()
        names.truncate(ROOT + name, size)
        model[name] = model[name][:size] + bytes(max(size - len(model[name]), 0))
        assert names.stat(ROOT + name).size == size
    elif what == "patch":
        content = bytearray(model[name])
        with File(ROOT + name, "r+") as f:
            for _ in range(3):
                at = choose.randrange(len(content) + 3 * MIB)
                new = bytes_of(choose.choice([1, 4096, 300000, 5 * MIB]))
                f.write(new, at)
                content.extend(bytes(max(at + len(new) - len(content), 0)))
                content[at:at + len(new)] = new
                got = bytearray(min(len(content), 70000))
                f.read(got, 0)
                assert got == content[:len(got)]
        model[name] = bytes(content)
    elif what == "foreign read":
        rados(*([] if name in plain else ["--striper"]), "get", name, "live.got")
        with open("live.got", "rb") as f:
            assert f.read() == model[name], name
    else:
        content = model[name]
        with File(ROOT + name) as f:
            assert f.size == len(content), (name, f.size, len(content))
            for _ in range(10):
                off = choose.randrange(len(content) + 10)
                got = bytearray(choose.choice([1, 100, 70000, 9 * MIB]))
                n = f.read(got, off, short=True).nbytes
                assert got[:n] == content[off:off + len(got)], (name, off, n)
                count("range")
    count(what)


def torn(name, replace):
    """Read 20 MiB during writes; each object has one byte value."""
    end = threading.Event()

    def write():
        i = 0
        while not end.is_set():
            i += 1
            replace(name, i % 251)
            time.sleep(random.uniform(0, 0.6))
    replace(name, 0)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        got = bytearray(20 * MIB)
        for _ in range(max(TAKE // 10, 20)):
            try:
                with File(ROOT + name) as f:
                    if f.size < len(got):
                        count("smaller beside a writer")
                        continue
                    f.read(got)
                assert got == bytes([got[0]]) * len(got), "torn"
                count("whole beside a writer")
            except OSError as e:
                assert e.errno in (errno.ESTALE, errno.ENOENT), e
                count("replaced beside a writer")
    finally:
        end.set()
        writer.join()


def by_striper(name, value):
    with open("live.tmp", "wb") as f:
        f.write(bytes([value]) * (20 * MIB))
    rados("--striper", "put", name, "live.tmp")


def by_put(name, value):
    with open("live.tmp", "wb") as f:
        f.write(bytes([value]) * (20 * MIB))
    rados("put", name, "live.tmp")


def frozen():
    """While the OSD hangs, requests end at their deadline, and their memory is not written later.
    """
    ceph = os.environ["CEPH_RUN"]
    content = bytes_of(8 * MIB)
    with File(ROOT + "frozen", "w") as f:
        f.write(content)
        f.sync()
    f, w, q = File(ROOT + "frozen"), File(ROOT + "frozen w", "w"), Queue(64)
    buffers = [bytearray(MIB) for _ in range(8)]
    subprocess.run([ceph, "freeze", "osd.0"], check=True)
    try:
        for i, b in enumerate(buffers):
            q.read(f, b, i * MIB, timeout=1)
        q.write(w, content, 0, timeout=1)
        q.submit()
        done = []
        while len(done) < 9:
            done += q.reap(1, timeout=30)
        for d in done:
            assert d.error is None or d.error.errno == errno.ETIMEDOUT, d
            count("late while the OSD hung" if d.error else "served by another OSD")
        for b in buffers:
            b[:] = b"\x77" * MIB
        # Closing needs no answer of an OSD.
        w.close()
    finally:
        subprocess.run([ceph, "thaw", "osd.0"], check=True)
    got = bytearray(8 * MIB)
    f.read(got, timeout=60)
    assert got == content
    time.sleep(1)
    for b in buffers:
        assert b == b"\x77" * MIB, "a canceled read was written to"
        count("buffer that stayed quiet")
    f.close()
    names.unlink(ROOT + "frozen")


begun = time.monotonic()
have = {}
for _ in range(TAKE):
    one(have)
torn("torn", by_striper)
torn("torn plain", by_put)
for n in ("torn", "torn plain"):
    names.unlink(ROOT + n)
if os.environ.get("CEPH_RUN"):
    frozen()
print(counts, f"{time.monotonic() - begun:.1f} s")
