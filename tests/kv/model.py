#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""model.py PENSTOCK: random operations on a store, compared with a model; and the command.

The model has everything that was set.  A block of the store equals the model's or is a miss;
without evictions it is never a miss.  The bytes that the store counts are those on the disk, and
never above the budget.
"""
import errno
import os
import random
import subprocess
import sys
import tempfile
import threading

from penstock import Error, kv

PENSTOCK = sys.argv[1]
SOAK = bool(os.environ.get("PST_SOAK"))
MISS = -errno.ENOENT


def on_disk(root):
    total = 0
    for at, _, names in os.walk(os.path.join(root, "b")):
        total += sum((os.path.getsize(os.path.join(at, n)) + 4095) // 4096 * 4096 for n in names)
    return total


class Machine:
    """A store and its model; a step is a random operation on both."""

    def __init__(self, seed, root):
        self.rng = random.Random(seed)
        self.root = root
        self.budget = self.rng.choice([1 << 20, 1 << 26])
        self.options = {"policy": self.rng.choice(["lru", "arc", "s3fifo"]),
                        "bounce": self.rng.random() < 0.5, "threads": self.rng.randint(1, 4)}
        self.model = {}
        self.names = [("m", ""), ("m", "t"), ("n", "t")]
        self.open()

    def open(self):
        self.store = kv.Store([self.root], self.budget, **self.options)
        self.spaces = [self.store.space(*name) for name in self.names]

    def keys(self):
        return [b"%d" % self.rng.randrange(40) for _ in range(self.rng.randint(1, 4))]

    def step(self):
        which = self.rng.randrange(len(self.spaces))
        getattr(self, self.rng.choice(["set", "set", "set", "get", "get", "get", "look", "delete",
                                       "drop", "reopen", "crash"]))(which)
        stat = self.store.stat()
        assert stat["used"] == on_disk(self.root), stat
        assert stat["used"] <= self.budget and stat["corrupt"] == 0, stat

    def kept(self, got, want, there):
        """Return True if a get may return this.  With a small budget, any block may be a miss."""
        if want is None or got < 0:
            assert got == MISS and (want is None or self.budget < 1 << 26 or not there), got
            return False
        assert got == len(want), (got, len(want))
        return True

    def set(self, which):
        keys = list(dict.fromkeys(self.keys()))
        blocks = [self.rng.randbytes(self.rng.choice([1, 500, 4000, 60000])) for _ in keys]
        for key, block, r in zip(keys, blocks, self.store.set(self.spaces[which], keys, blocks)):
            assert r == 0, r
            self.model[which, key] = block

    def get(self, which):
        keys = self.keys()
        rooms = [bytearray(65536) for _ in keys]
        for key, room, got in zip(keys, rooms, self.store.get(self.spaces[which], keys, rooms)):
            want = self.model.get((which, key))
            if self.kept(got, want, True):
                assert room[:got] == want and not any(room[got:])

    def look(self, which):
        keys = self.keys()
        for key, got in zip(keys, self.store.lookup(self.spaces[which], keys)):
            self.kept(got, self.model.get((which, key)), True)

    def delete(self, which):
        key = self.keys()[0]
        got, = self.store.delete(self.spaces[which], [key])
        self.kept(got if got < 0 else len(self.model.get((which, key), b"")),
                  self.model.pop((which, key), None), True)

    def drop(self, which):
        if self.rng.random() < 0.7:
            return
        identity, tenant = self.names[which]
        by_tenant = self.rng.random() < 0.5 and tenant
        gone = [i for i, (a, b) in enumerate(self.names)
                if (b == tenant if by_tenant else a == identity)]
        assert self.store.drop(None if by_tenant else identity,
                               tenant if by_tenant else None) == len(gone)
        self.model = {k: v for k, v in self.model.items() if k[0] not in gone}

    def reopen(self, _which):
        self.store.close()
        self.open()

    def crash(self, _which):
        """Lose the index, as when the owner is killed."""
        self.store.close()
        os.unlink(os.path.join(self.root, "index"))
        self.open()


def agrees_with_the_model():
    for seed in range(200 if SOAK else 12):
        with tempfile.TemporaryDirectory() as root:
            machine = Machine(seed, root)
            try:
                for _ in range(60):
                    machine.step()
            except AssertionError as e:
                raise AssertionError(f"seed {seed}: {e!r}") from e
            finally:
                machine.store.close()


def batches_complete_once():
    with tempfile.TemporaryDirectory() as root, kv.Store([root], 1 << 26) as store:
        space, seen = store.space("m"), {}
        blocks = [random.Random(n).randbytes(5000) for n in range(8)]
        started = []

        def start(n):
            for _ in range(20):
                started.append(store.submit(kv.SET, space, [b"%d" % n], [blocks[n]]))

        threads = [threading.Thread(target=start, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        while len(seen) < 160:
            for done in store.reap(timeout=60):
                assert done.number not in seen and done.results == [0] and not done.busy
                seen[done.number] = done
        for thread in threads:
            thread.join()
        assert sorted(seen) == sorted(started)
        assert store.reap() == [] and store.drain()


class Late:
    """The library, whose batches complete while the kernel may still use their buffers."""

    def __init__(self, library):
        self.library, self.quiet = library, False

    def __getattr__(self, name):
        return getattr(self.library, name)

    def pst_kv_run(self, handle, batch, done):
        status = self.library.pst_kv_run(handle, batch, done)
        if done is not None:
            done._obj.flags |= 1    # pylint: disable=protected-access
        return status

    def pst_kv_reap(self, handle, done, most, deadline):
        nr = self.library.pst_kv_reap(handle, done, most, deadline)
        for one in done[:nr]:
            one.flags |= 1
        return nr

    def pst_kv_drain(self, handle, deadline):
        return self.library.pst_kv_drain(handle, deadline) if self.quiet else -errno.EBUSY


def is_held(buffer):
    try:
        buffer.append(0)
    except BufferError:
        return True
    return False


def busy_buffers_are_held():
    rooms = [bytearray(100) for _ in range(3)]
    late = kv._kv = Late(kv._kv)    # pylint: disable=protected-access
    try:
        with tempfile.TemporaryDirectory() as root, kv.Store([root], 1 << 26) as store:
            space = store.space("m")
            assert store.set(space, [b"k"], [b"5" * 100]) == [0]
            assert store.get(space, [b"k"], rooms[:1]) == [100] and rooms[0] == b"5" * 100
            store.submit(kv.GET, space, [b"k"], rooms[1:2])
            done, = store.reap(timeout=60)
            assert done.busy and done.results == [100]
            assert not store.drain() and is_held(rooms[0]) and is_held(rooms[1])
            late.quiet = True
            assert store.drain() and not is_held(rooms[0]) and not is_held(rooms[1])
            late.quiet = False
            store.get(space, [b"k"], rooms[2:])
        # A closed store cannot be drained any more, so the memory of its late get stays in use.
        assert is_held(rooms[2])
    finally:
        kv._kv = late.library   # pylint: disable=protected-access


def says_what_is_wrong():
    with tempfile.TemporaryDirectory() as root, kv.Store([root], 1 << 26) as store:
        for call, number in ((lambda: kv.Store([root], 1 << 26), errno.EBUSY),
                             (lambda: kv.Store([root], 5), errno.EINVAL),
                             (lambda: store.space(""), errno.EINVAL),
                             (lambda: store.get(0, [b"k"], [bytearray(1)]), errno.EINVAL),
                             (store.drop, errno.EINVAL)):
            try:
                call()
            except Error as e:
                assert e.errno == number and e.strerror, e
            else:
                raise AssertionError(f"{number} was not raised")
        space = store.space("m")
        try:
            store.get(space, [b"k"], [b"a constant"])
        except BufferError:
            pass
        else:
            raise AssertionError("a get into bytes was taken")


def command(*words):
    done = subprocess.run([PENSTOCK, "kv", *words], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def the_command_looks():
    with tempfile.TemporaryDirectory() as root:
        assert command("stat", root)[0] == 1
        with kv.Store([root], 1 << 26) as store:
            space, other = store.space("m", "t"), store.space("n")
            store.set(space, [b"a", b"b\0"], [b"12345", b"1"])
            store.set(other, [b"c"], [b"1" * 5000])
            # The command also works while the store has an owner.
            status, out, _ = command("stat", root)
            assert status == 0 and "3 blocks" in out and "tenant 't'  identity 'm'" in out, out
            status, out, err = command("drop", root, "--tenant", "t")
            assert status == 1 and "owns the store" in err, err
        status, out, _ = command("ls", root)
        assert status == 0 and len(out.splitlines()) == 3 and " a\n" in out and "0x6200" in out, out
        assert command("verify", root)[0] == 0
        paths = [os.path.join(at, n) for at, _, names in os.walk(os.path.join(root, "b"))
                 for n in names if os.path.getsize(os.path.join(at, n)) > 5000]
        with open(paths[0], "r+b") as f:
            f.write(b"2")
        status, out, err = command("verify", root)
        assert status == 1 and paths[0] in out and "1 blocks are wrong" in err, out + err
        assert command("drop", root, "--tenant", "t")[0] == 0
        status, out, _ = command("stat", root)
        assert "1 blocks" in out and "'t'" not in out, out
        assert "bounds of the last owner: 64" in out, out
        status, out, _ = command("stat", root, "--prometheus")
        assert status == 0 and 'penstock_kv_blocks{tenant="",identity="n"} 1\n' in out, out
        with kv.Store([root], 1 << 26) as store:
            text = store.metrics()
            assert "# TYPE penstock_kv_gets_total counter\npenstock_kv_gets_total 0\n" in text, text
            assert "# TYPE penstock_kv_budget gauge\npenstock_kv_budget 67108864\n" in text, text
        for words in (["verify", root, "--prometheus"], ["drop", root],
                      ["ls", root, "--tenant", "t"], ["look", root], ["ls"]):
            assert command(*words)[0] == 2, words


def events_are_told():
    with tempfile.TemporaryDirectory() as root:
        with kv.Store([root], 1 << 22, max_blocks=16, policy="lru") as store:
            one, two = store.space("one"), store.space("two")
            events, all_events = store.events(one), store.events(nbytes=1 << 16)
            assert events.take() == [] and events.take(timeout=0.01) == []
            store.set(one, [b"\0key"], [b"bytes"])
            store.set(two, [b"k"], [b"bytes"])
            assert events.take(timeout=None) == [kv.Event(kv.STORED, one, b"\0key", 5, 1)]
            store.delete(one, [b"\0key"])
            store.drop("two")
            assert [tuple(e)[:3] for e in all_events.take()] == [
                (kv.STORED, one, b"\0key"), (kv.STORED, two, b"k"),
                (kv.REMOVED, one, b"\0key"), (kv.DROPPED, two, b"")]
            for i in range(2000):
                store.set(one, [b"%0100d" % i], [b"bytes"])
            while all_events.take(100):
                assert all_events.lost == 0
            assert all_events.lost > 0 and store.stat()["events_lost"] >= all_events.lost
            assert store.stat()["removed"] == 2
            events.close()
            for closed in (events.take, lambda: store.events(99)):
                try:
                    closed()
                except (ValueError, OSError):
                    continue
                raise AssertionError("no exception")
            with kv.Store([root]) as reader:
                try:
                    reader.events()
                except OSError as e:
                    assert e.errno == errno.EOPNOTSUPP, e
                else:
                    raise AssertionError("a reader has events")
        try:
            all_events.take()
        except ValueError:
            return
        raise AssertionError("the queue outlived its store")


def main():
    failed = 0
    cases = [agrees_with_the_model, batches_complete_once, busy_buffers_are_held,
             says_what_is_wrong, the_command_looks, events_are_told]
    for nr, case in enumerate(cases, 1):
        try:
            case()
            print(f"ok {nr} {case.__name__}")
        except AssertionError as e:
            failed += 1
            print(f"not ok {nr} {case.__name__}\n# {e!r}")
    print(f"1..{len(cases)}")
    return failed > 0


sys.exit(main())
