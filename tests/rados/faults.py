# SPDX-License-Identifier: MIT
"""An OSD of three dies, and one hangs, while readers and a writer are at work; no test of CI.

    ceph-run --osds 3 --size 2 -- faults.py POOL [SECONDS]

CEPH_RUN names a program that has the verbs kill, restart, freeze, thaw, wait-up and wait-down for
an OSD.  Each request has a deadline of a second.  It ends by then, with the right bytes or with
ETIMEDOUT.  A write that is late may have been carried out: its range holds old bytes or new ones,
in pieces of one object, until it is written again.  Prints what was counted.
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
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 10
ROOT = f"rados://{POOL}/"
SIZE = 24 * MIB
SLOT = MIB              # what a write replaces
DEADLINE = 1.0
LATE = 5.0              # seconds: the machine is busy, the request is not
counts, failed, worst = {}, [], [0.0]
lock = threading.Lock()
end = threading.Event()


def count(what):
    with lock:
        counts[what] = counts.get(what, 0) + 1


def osd(verb, which):
    subprocess.run([os.environ["CEPH_RUN"], verb, which], check=True, stdout=subprocess.DEVNULL)


WHOLE = """
import json, os, rados, sys, time
c = rados.Rados(conffile=os.environ["CEPH_CONF"], name="client.admin")
c.connect(timeout=60)
pool = c.pool_lookup(sys.argv[1])
until = time.monotonic() + 120
for nr in range(16):
    pg = f"{pool}.{nr:x}"
    while True:
        r, out, _ = c.pg_command(pg, json.dumps({"prefix": "query", "pgid": pg}), b"", timeout=10)
        if r == 0 and json.loads(out)["state"] == "active+clean":
            break
        if time.monotonic() > until:
            sys.exit(f"{pg} does not become clean: {r} {out[:200]}")
        time.sleep(0.1)
"""


def whole_again():
    """Wait until each placement group has both copies: the next OSD that dies takes one."""
    subprocess.run(["/usr/bin/python3", "-c", WHOLE, POOL], check=True)


def thread(function):
    def run():
        try:
            function()
        except BaseException as e:      # the main thread raises it
            failed.append(e)
            end.set()
    t = threading.Thread(target=run)
    t.start()
    return t


def timed(what, q):
    """Submit a prepared request, and wait for its completion, which must come at most LATE after
    the deadline.  Return True if the request succeeded."""
    begun = time.monotonic()
    q.submit()
    done = q.reap(1, timeout=60)
    took = time.monotonic() - begun
    worst[0] = max(worst[0], took)
    assert done, (what, "no completion in a minute")
    assert took < DEADLINE + LATE, (what, took)
    e = done[0].error
    assert e is None or e.errno == errno.ETIMEDOUT, (what, e)
    count(what + (" late" if e else " in time"))
    return e is None


def read():
    """Read bytes that nobody changes."""
    choose = random.Random(1)
    with File(ROOT + "still") as f, Queue(8) as q:
        while not end.is_set():
            off = choose.randrange(SIZE)
            buf = bytearray(choose.choice((1, 4096, 300000, 6 * MIB)))
            q.read(f, buf, off, short=True, timeout=DEADLINE)
            if timed("read", q):
                n = min(len(buf), SIZE - off)
                assert buf[:n] == still[off:off + n], ("wrong bytes", off, len(buf))
            else:
                old = bytes(buf)
                late.append((buf, old))


def write():
    """Write slots, each with one byte value.  After a late write, a slot may have one of several
    values."""
    choose = random.Random(2)
    doubt = {}
    with File(ROOT + "busy", "r+") as f, Queue(8) as q:
        while not end.is_set():
            i, value = choose.randrange(SIZE // SLOT), choose.randrange(256)
            q.write(f, bytes([value]) * SLOT, i * SLOT, timeout=DEADLINE)
            good = timed("write", q)
            busy[i] = {value} if good and i not in doubt else busy[i] | {value}
            if not good:
                # The write may be carried out at any time, even after later ones.
                doubt[i] = True
            check_slot(f, q, choose.randrange(SIZE // SLOT))


def check_slot(f, q, i):
    buf = bytearray(SLOT)
    q.read(f, buf, i * SLOT, timeout=DEADLINE)
    if timed("read of the writer", q):
        assert set(buf) <= busy[i], ("wrong bytes", i, set(buf), busy[i])


still = random.Random(3).randbytes(SIZE)
busy = [{0} for _ in range(SIZE // SLOT)]
late = []
for name, content in (("still", still), ("busy", bytes(SIZE))):
    with File(ROOT + name, "w") as file:
        file.write(content)
        file.sync()
begun = time.monotonic()
threads = [thread(read), thread(read), thread(write)]
try:
    for verb, undo in (("freeze", "thaw"), ("kill", "restart")):
        for which in ("osd.0", "osd.1", "osd.2"):
            end.wait(SECONDS / 10)
            before = dict(counts)
            osd(verb, which)
            # I/O is in flight; now the monitor notices, and the other copies serve.
            osd("wait-down", which)
            end.wait(SECONDS / 5)
            after = dict(counts)
            osd(undo, which)
            osd("wait-up", which)
            served = sum(after.get(k, 0) - before.get(k, 0) for k in after if k.endswith("time"))
            assert served, (verb, which, "nothing was served")
            count(verb)
            if failed:
                break
            whole_again()
finally:
    end.set()
    for t in threads:
        t.join()
if failed:
    raise failed[0]
for buf, old in late:
    assert buf == old, "memory of a late read was written to"
    count("buffer that stayed quiet")
with File(ROOT + "still") as file:
    got = bytearray(SIZE)
    file.read(got, timeout=60)
    assert got == still
with File(ROOT + "busy") as file:
    file.read(got, timeout=60)
    for nr in range(SIZE // SLOT):
        assert set(got[nr * SLOT:(nr + 1) * SLOT]) <= busy[nr], ("wrong bytes", nr)
for name in ("still", "busy"):
    names.unlink(ROOT + name)
print(counts, f"longest {worst[0]:.2f} s, {time.monotonic() - begun:.1f} s")
