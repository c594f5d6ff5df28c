#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""policies.py TIERS: compare each policy, hit by hit, with a model in Python.

The models search lists from end to end: slow, but short enough to be verified by reading.
"""
import os
import random
import subprocess
import sys
import tempfile

TIERS = sys.argv[1]


class Queue:
    """Numbers with sizes, oldest first."""

    def __init__(self):
        self.items = []

    def __contains__(self, key):
        return any(k == key for k, _ in self.items)

    @property
    def bytes(self):
        return sum(size for _, size in self.items)

    def push(self, key, size):
        self.items.append((key, size))

    def pop(self):
        return self.items.pop(0)

    def remove(self, key):
        self.items = [(k, s) for k, s in self.items if k != key]


def lru(trace, capacity):
    q, hits = Queue(), []
    for key, size in trace:
        hits.append(key in q)
        q.remove(key)
        if size > capacity:
            continue
        while q.bytes + size > capacity:
            q.pop()
        q.push(key, size)
    return hits


def arc(trace, capacity, early=False):
    """Model ARC.  early: evict before looking the new file up."""
    once, often, gone_once, gone_often = Queue(), Queue(), Queue(), Queue()
    queues, target, hits = (once, often, gone_once, gone_often), capacity // 2, []
    for key, size in trace:
        hits.append(key in once or key in often)
        was = next((q for q in queues if key in q), None)
        if size > capacity:
            for q in queues:
                q.remove(key)
            continue
        while early and not hits[-1] and once.bytes + often.bytes + size > capacity:
            if (once.bytes and once.bytes > target) or not often.bytes:
                gone_once.push(*once.pop())
            else:
                gone_often.push(*often.pop())
            for ghosts in gone_once, gone_often:
                while ghosts.bytes // 2 > capacity:
                    ghosts.pop()
        was = next((q for q in queues if key in q), None)
        if was:
            old = next(s for k, s in was.items if k == key)
            if was is gone_once:
                target = min(capacity, target + max(old, old * gone_often.bytes // gone_once.bytes))
            if was is gone_often:
                target -= min(target, max(old, old * gone_once.bytes // gone_often.bytes))
            was.remove(key)
        while once.bytes + often.bytes + size > capacity:
            full = once.bytes > target or (was is gone_often and once.bytes >= target)
            if (once.bytes and full) or not often.bytes:
                gone_once.push(*once.pop())
            else:
                gone_often.push(*often.pop())
        (often if was else once).push(key, size)
        for ghosts in gone_once, gone_often:
            while ghosts.bytes // 2 > capacity:
                ghosts.pop()
    return hits


def s3fifo(trace, capacity):
    small, main, ghost, uses, hits = Queue(), Queue(), Queue(), {}, []
    for key, size in trace:
        here = next((q for q in (small, main) if key in q), None)
        if here and (key, size) in here.items:
            uses[key] = min(uses[key] + 1, 3)
            hits.append(True)
            continue
        was_ghost = key in ghost
        for q in small, main, ghost:
            q.remove(key)
        # A file with another size counts as another file.
        hits.append(size > capacity and here is not None)
        if size > capacity:
            continue
        while small.bytes + main.bytes + size > capacity:
            if small.bytes > capacity // 10 or not main.items:
                old = small.pop()
                if uses[old[0]] > 1:
                    uses[old[0]] = 0
                    main.push(*old)
                    continue
                ghost.push(*old)
                while ghost.bytes > capacity - capacity // 10:
                    ghost.pop()
            else:
                old = main.pop()
                if uses[old[0]]:
                    uses[old[0]] -= 1
                    main.push(*old)
        (main if was_ghost else small).push(key, size)
        uses[key] = 0
    return hits


def literal(trace, capacity):
    count, hits = {}, []
    for key, _ in trace:
        hits.append(count.get(key, 0) >= 100)
        count[key] = count.get(key, 0) + 1
    return hits


MODELS = {"lru": lru, "arc": arc, "s3fifo": s3fifo, "literal": literal}


def traces():
    rng = random.Random(1)
    sizes = {key: rng.choice([1, 1, 3, 10, 40]) for key in range(400)}
    zipf = [min(399, int(rng.paretovariate(0.9)) - 1) for _ in range(3000)]
    yield "skewed", [(key, 1) for key in zipf]
    yield "sizes", [(key, sizes[key]) for key in zipf]
    yield "scans", [(key, 1) for _ in range(8) for key in [*range(50), *zipf[:100], *range(200)]]
    yield "sizes_change", [(key, rng.choice([1, 2, 5, 90])) for key in zipf[:1500]]
    yield "one_file", [(7, 1)] * 300


def evicted_first(name, trace, path):
    """Policies that are told to evict: LRU matches itself, ARC matches its model."""
    sizes = {}
    trace = [(key, sizes.setdefault(key, size)) for key, size in trace]
    with open(path, "w", encoding="ascii") as f:
        f.writelines(f"{key} {size}\n" for key, size in trace)
    out = subprocess.run([TIERS, "--evict", "--each", path, "1", "3", "10", "30"], check=True,
                         capture_output=True, text=True).stdout.splitlines()
    assert len(out) == 4 * len(MODELS), out
    for line in out:
        policy, capacity, got = line.split(" ")
        if policy in ("lru", "arc"):
            model = lru if policy == "lru" else lambda t, c: arc(t, c, True)
            want = "".join("01"[hit] for hit in model(trace, int(capacity)))
            assert got == want, f"{name}: {policy} of {capacity} bytes that evicts first differs"


def check(name, trace, path):
    with open(path, "w", encoding="ascii") as f:
        f.writelines(f"{key} {size}\n" for key, size in trace)
    out = subprocess.run([TIERS, "--each", path, "1", "3", "10", "30", "100"], check=True,
                         capture_output=True, text=True).stdout.splitlines()
    assert len(out) == 5 * len(MODELS), out
    for line in out:
        policy, capacity, got = line.split(" ")
        want = "".join("01"[hit] for hit in MODELS[policy](trace, int(capacity)))
        at = next((i for i in range(len(trace)) if got[i] != want[i]), None)
        assert at is None, f"{name}: {policy} of {capacity} bytes differs at access {at}"
        assert len(got) == len(want)


def main():
    nr = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, trace in traces():
            nr += 1
            try:
                check(name, trace, os.path.join(scratch, "trace"))
                evicted_first(name, trace, os.path.join(scratch, "trace"))
                print(f"ok {nr} {name}")
            except AssertionError as e:
                failed += 1
                print(f"not ok {nr} {name}\n# {e}")
    print(f"1..{nr}")
    return failed > 0


sys.exit(main())
