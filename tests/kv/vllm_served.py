#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vLLM's tier over a store on a server, whose server is killed and hangs, and the tier's events.

Without vLLM: tests/engines/vllm_fake.py has its classes, or finds them in PST_VLLM_SOURCE."""
import os
import shutil
import signal
import sys
import time
import types

from served_case import Server, fresh, true, work
from cases import case, data, eq, run_cases

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engines"))
import vllm_fake  # pylint: disable=C0413

THEIRS = vllm_fake.install()
# pylint: disable=C0413
from penstock import kv, vllm_tier  # noqa: E402
from vllm.v1.kv_offload.base import LookupResult  # noqa: E402

BLOCK, BLOCKS = 70000, 8
SOCKET = f"{work}/socket"


def spec():
    parallel = types.SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0,
                                     is_parallelism_agnostic=False)
    config = types.SimpleNamespace(
        groups=(), parallel=parallel, replicated_layout=False, canonical_layout=False,
        model=types.SimpleNamespace(name="test-model", dtype="float32"),
        cache=types.SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1))
    return types.SimpleNamespace(
        config=config, blocks_per_chunk=1,
        kv_events_config=types.SimpleNamespace(enable_kv_cache_events=True))


class Engine:
    """A scheduler of vLLM with memory for blocks."""

    def __init__(self, dirs=(f"pst+unix://{SOCKET}:",), budget=None, timeout=30.0, events=True,
                 **options):
        self.memory = bytearray(BLOCK * BLOCKS)
        view = memoryview(self.memory).cast("B", (BLOCKS, BLOCK))
        self.tier = vllm_tier.PenstockTier(
            spec(), view, "PenstockTier", dirs=list(dirs), budget=budget, timeout=timeout,
            enable_kv_events=events, **options)
        self.request = types.SimpleNamespace(req_id="r")
        self.jobs = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tier.shutdown()

    def fill(self, chunk, value):
        self.memory[chunk * BLOCK:(chunk + 1) * BLOCK] = value

    def block(self, chunk):
        return bytes(self.memory[chunk * BLOCK:(chunk + 1) * BLOCK])

    def submit(self, load, keys, chunks):
        self.jobs += 1
        job = types.SimpleNamespace(job_id=self.jobs, keys=keys, chunk_ids=chunks)
        (self.tier.submit_load if load else self.tier.submit_store)(job)
        return self.jobs

    def finished(self):
        """Wait for all jobs: {number: whether it succeeded, the keys that did}."""
        self.tier.drain_jobs()
        found = [(r.job_id, (r.success, r.successful_keys)) for r in self.tier.get_finished_jobs()]
        eq(len({number for number, _ in found}), len(found))
        return dict(found)

    def store(self, keys, chunks):
        number = self.submit(False, keys, chunks)
        return self.finished()[number][0]

    def load(self, keys, chunks):
        number = self.submit(True, keys, chunks)
        return self.finished()[number]

    def lookup(self, keys):
        """Ask in each step until each key has an answer."""
        end = time.monotonic() + 120
        while True:
            found = [self.tier.lookup(key, self.request) for key in keys]
            if LookupResult.RETRY not in found:
                self.tier.on_request_finished(self.request)
                return [one is LookupResult.HIT for one in found]
            true(time.monotonic() < end, "a look-up has no answer")
            self.tier.on_schedule_end(None)
            time.sleep(0.002)

    def events(self):
        return [(list(e.keys), e.removed) for e in self.tier.take_events()]


def keys_of(*numbers):
    return [b"%032d" % n + bytes(4) for n in numbers]


def blocks_of(engine, first=0):
    for chunk in range(BLOCKS):
        engine.fill(chunk, data(BLOCK, first + chunk))


@case
def two_engines_share_a_server():
    with Server(listen=f"unix:{SOCKET}"), Engine() as one, Engine() as two:
        keys = keys_of(*range(BLOCKS))
        blocks_of(one)
        eq(one.lookup(keys), [False] * BLOCKS)
        true(one.store(keys, range(BLOCKS)))
        eq(two.lookup(keys + keys_of(99)), [True] * BLOCKS + [False])
        # Load in another order, with a missing block.
        eq(two.load(keys[::-1], range(BLOCKS)), (True, None))
        eq([two.block(i) for i in range(BLOCKS)], [data(BLOCK, 7 - i) for i in range(BLOCKS)])
        eq(two.load(keys_of(1, 99), [0, 1]), (False, tuple(keys_of(1))))
        eq(two.lookup(keys_of(1, 99)), [True, False])
        eq([one.events(), two.events()], [[(keys, False)], [(keys_of(99), True)]])
        # With a server's store, the tier only knows its own stores and failed loads.
        # pylint: disable=W0212
        eq(two.tier._store.delete(two.tier._space, keys_of(0)), [0])
        eq(one.load(keys_of(0, 1), [0, 1]), (False, tuple(keys_of(1))))
        eq(one.events(), [(keys_of(0), True)])


@case
def a_server_that_is_killed_in_the_middle():
    server = Server(listen=f"unix:{SOCKET}", budget="256m")
    keys = keys_of(*range(64))
    with Engine(timeout=5.0, threads=2) as engine:
        blocks_of(engine)
        true(engine.store(keys[:BLOCKS], range(BLOCKS)))
        jobs = []
        for i in range(0, 64, 4):
            if i == 32:
                server.process.send_signal(signal.SIGSTOP)
            jobs += [engine.submit(load, keys[i:i + 4], range(4)) for load in (False, True)]
        server.end(signal.SIGKILL)
        done = engine.finished()
        # Each job ends once, and what failed is a miss.
        eq(sorted(done), jobs)
        true(not all(ok for ok, _ in done.values()))
        eq(engine.lookup(keys[:BLOCKS]), [False] * BLOCKS)
        eq(engine.load(keys[:1], [0]), (False, None))
        told = {key for some, removed in engine.events() for key in some if not removed}
        true(set(keys[:BLOCKS]) <= told)
        with Server(listen=f"unix:{SOCKET}", budget="256m"):
            # Suspect keys stay misses for a minute; another engine finds the stored blocks.
            with Engine() as fresh_one:
                eq(fresh_one.lookup(keys[:BLOCKS]), [True] * BLOCKS)
                eq(fresh_one.load(keys[:BLOCKS], range(BLOCKS)), (True, None))
                for i in range(BLOCKS):
                    # The second store of keys 4 to 7, from blocks 0 to 3, may have replaced the
                    # first one.
                    true(fresh_one.block(i) in (data(BLOCK, i), data(BLOCK, i % 4)), i)
            true(engine.store(keys_of(500), [3]))
            eq(engine.lookup(keys_of(500)), [True])


@case
def a_server_that_hangs():
    with Server(listen=f"unix:{SOCKET}") as server:
        keys = keys_of(*range(BLOCKS))
        with Engine() as patient:
            blocks_of(patient)
            true(patient.store(keys, range(BLOCKS)))
        with Engine(timeout=1.0) as engine:
            server.process.send_signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                jobs = [engine.submit(load, keys[:4], range(4)) for load in (True, False, True)]
                done = engine.finished()
                eq(done, {number: (False, None) for number in jobs})
                true(time.monotonic() - began >= 0.9, "not at the deadline")
                eq(engine.lookup(keys), [False] * BLOCKS)
                # The engine uses this memory again: loads that end after their deadline must not
                # write to it.
                engine.fill(0, b"n" * BLOCK)
            finally:
                server.process.send_signal(signal.SIGCONT)
            # Give the server time to answer the requests whose deadline has passed.
            with Engine() as patient:
                eq(patient.load(keys[4:], range(4, 8)), (True, None))
            eq(engine.block(0), b"n" * BLOCK)
        # The end of an engine does not wait for the server.
        with Engine(timeout=1.0) as engine:
            engine.submit(True, keys, range(BLOCKS))
            server.process.send_signal(signal.SIGSTOP)
        server.process.send_signal(signal.SIGCONT)


def directory():
    root = f"{work}/own"
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    return {"dirs": [root], "budget": 1 << 20, "policy": "lru"}


@case
def events_of_directories():
    with Engine(**directory()) as engine:
        keys = keys_of(*range(30))
        blocks_of(engine)
        true(engine.store(keys[:BLOCKS], range(BLOCKS)))
        eq(engine.events(), [(keys[:BLOCKS], False)])
        # The budget has room for 14 blocks.
        for i in range(8, 30):
            true(engine.store([keys[i]], [0]))
        there = set()
        for some, removed in engine.events():
            there = there - set(some) if removed else there | set(some)
        eq(there, set(keys[16:]))
        eq(engine.lookup(keys), [False] * 16 + [True] * 14)
        # Damage a block.
        path = next(os.path.join(at, name) for at, _, names in os.walk(f"{work}/own/b")
                    for name in names)
        with open(path, "r+b") as file:
            file.truncate(100)
        ok, good = engine.load(keys[16:], [0] * 14)
        eq([ok, len(good)], [False, 13])
        eq(engine.events(), [(sorted(set(keys[16:]) - set(good)), True)])
        eq(engine.events(), [])


@case
def many_events_at_once():
    """The tier reports many changes by one event with sorted keys, in a time proportional to their
    number."""
    with Engine(**directory()) as engine:
        keys = keys_of(*range(30000))
        changes = [kv.Event(kv.STORED, 0, key, 1, at + 1) for at, key in enumerate(keys[::-1])]
        take, kv.Events.take = kv.Events.take, lambda self, most: [
            changes.pop() for _ in range(min(most, len(changes)))]
        try:
            eq(engine.events(), [(sorted(keys), False)])
        finally:
            kv.Events.take = take


@case
def events_that_are_lost():
    was, vllm_tier.EVENT_BYTES = vllm_tier.EVENT_BYTES, 1 << 16
    try:
        with Engine(**directory()) as engine:
            first, keys = keys_of(0)[0], keys_of(*range(1, 700))
            blocks_of(engine)
            true(engine.store([first], [0]))
            eq(engine.events(), [([first], False)])
            for key in keys:
                engine.submit(False, [key], [0])
            engine.finished()
            there = {first}
            for some, removed in engine.events():
                there = there - set(some) if removed else there | set(some)
            # Every block that exists according to the events does exist, and a later store gives an
            # event again.
            true(all(engine.lookup(sorted(there))), len(there))
            true(engine.tier.report()["events_lost"] > 0)
            true(engine.store(keys_of(900), [0]))
            true((keys_of(900), False) in engine.events())
    finally:
        vllm_tier.EVENT_BYTES = was


@case
def events_that_nobody_wants():
    with Engine(**directory(), events=False) as engine:
        true(engine.store(keys_of(1), [0]))
        eq(engine.events(), [])
        eq(engine.tier.events, None)


GOOD = run_cases(after=fresh)
shutil.rmtree(work, ignore_errors=True)
sys.exit(0 if GOOD else 1)
