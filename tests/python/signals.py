# SPDX-License-Identifier: MIT
"""Signal handlers raise at any moment: nothing is left behind, and objects remain usable.

Cases "at each step" raise KeyboardInterrupt, like the handler of Ctrl-C, at the first place where
Python checks for signals, then at the second, and so on.  Other cases repeat one operation while a
timer's handler raises it.
"""
import _thread
import asyncio
import dis
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings

from tap import case, data, eq, file, numpy, run, torch, true, work

import penstock
from penstock import File, Memory, Queue, _handle, _memory

CONTENT = data(1 << 20)
PATH = file("content", CONTENT)
SECONDS = float(os.environ.get("PST_SOAK") or 0.7)
RANDOM = random.Random(20261123)


PACKAGE = os.path.dirname(penstock.__file__)
armed = False


def on_alarm(_number, _frame):
    if armed:
        raise KeyboardInterrupt


signal.signal(signal.SIGALRM, on_alarm)


def left():
    """Return counts: descriptors of our files, all descriptors, threads, memory, handles."""
    File(PATH).close()      # handles what an interrupted finalizer left
    gc.collect()
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass            # listdir()'s own
    return (sum(link.startswith(work) for link in links), len(links), _thread._count(),
            _memory.sweep(), len(_handle._boxes))


class Step:
    """Raises at the given place of the package where Python checks for signals.

    Python checks at the begin of a function, after a call and at the end of a loop's turn; after a
    call of a Python function only if arguments were passed by * or **.
    """

    def __init__(self, number):
        self.left, self.last, self.back = number, {}, set()

    def __call__(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            self.last[frame] = "RESUME"
        elif event == "return":
            self.last.pop(frame, None)
            self.back.add(frame.f_back)
        elif event == "opcode":
            last = self.last.get(frame, "")
            self.last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            looks = last.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME"))
            if looks and (frame not in self.back or last == "CALL_FUNCTION_EX"):
                self.left -= 1
                if not self.left:
                    raise KeyboardInterrupt
            self.back.discard(frame)
        return self


def steps(least=20):
    """Yield functions that call a function and interrupt it at one step.

    The first and last are not interrupted.  At the end there must be no more objects than after the
    first.
    """
    number, before = -1, None
    while True:
        number += 1
        step = Step(number)

        def call(function, step=step):
            sys.settrace(step)
            try:
                function()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
                step.last, step.back = {}, set()    # drops frames with their variables
        yield call
        if step.left > 0:
            break
        before = before or left()
    true(number > least, f"{number} steps")
    no_more_than(before)


def no_more_than(before):
    deadline = time.monotonic() + 10
    # Descriptors that the library keeps for its next queue may be gone already.
    while any(now > then for now, then in zip(left(), before)):
        true(time.monotonic() < deadline, f"left {left()}, before it was {before}")
        time.sleep(0.01)


def interrupted(function, longest=0.002):
    """Call function() repeatedly and interrupt it at random moments.  Return the number of
    interruptions."""
    global armed
    count = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            # Repeat the signal: Python swallows one that comes during a finalizer.
            signal.setitimer(signal.ITIMER_REAL, RANDOM.uniform(1e-6, longest), 0.005)
            armed = True
            while True:
                function()
        except KeyboardInterrupt:
            armed = False
            count += 1
        finally:
            armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    true(count > 5, f"{count} rounds")


def nothing_left(function, **how):
    function()
    function()
    before = left()
    interrupted(function, **how)
    no_more_than(before)


def in_a_thread(function):
    """Call a function in a new thread and wait for it.  Return its result."""
    told = []
    thread = threading.Thread(target=lambda: told.append(function()))
    thread.start()
    thread.join()
    eq(len(told), 1)
    return told[0]


def drained(queue):
    """Return the completions of all requests in the queue."""
    queue.submit()
    found = queue.reap()
    deadline = time.monotonic() + 10
    while queue.in_flight:
        true(time.monotonic() < deadline, f"{queue.in_flight} requests got lost")
        found += queue.reap(1)
    return found


@case
def a_read_at_each_step():
    """Each completion comes once; an interrupted read() returns no bytes."""
    with File(PATH) as f:
        for call in steps(100):
            target, ids, taken = bytearray(100), [], []

            def once():
                ids.append(queue.read(f, target, 10))
                queue.submit()
                taken.extend(queue.reap(1))
            with Queue(4) as queue:
                call(once)
                taken += in_a_thread(lambda: drained(queue))
                eq([completion.id for completion in taken], ids)
                eq(target, CONTENT[10:110] if ids else bytes(100))
                eq((queue.in_flight, queue._finished, queue._turn), (0, {}, [None]))
            target.extend(b"not locked")


@case
def an_end_at_each_step():
    for call in steps(10):
        target, keep = bytearray(100), []

        def once():
            keep.append(File(PATH))
            keep.append(Queue(4))
            for _ in range(2):
                keep[1].read(keep[0], target)
            keep[1].submit()
            keep[1].read(keep[0], target)
            while keep:
                keep[-1].close()
                keep.pop()
        call(once)
        for thing in keep:
            in_a_thread(thing.close)
        target.extend(b"not locked")


@case
def memory_at_each_step():
    with File(PATH) as f:
        for call in steps(100):
            target, source = bytearray(100), bytearray(b"abc")

            def once():
                f.read(target, 5)
                f.read_into([target, target], [0, 10])
                f.readv(target, [0, 70], [0, 20], 10)
                with Memory.alloc("soft:0", 100) as memory:
                    memory.copy_in(source, 5)
                    memory.copy_out()
                Memory.of(source)
            call(once)
            gc.collect()
            for thing in (target, source):
                File(PATH).close()
                thing.extend(b"not locked")


@case
def tasks_at_each_step():
    with File(PATH) as f:
        for call in steps(100):
            targets = [bytearray(100) for _ in range(4)]
            ended = []

            async def main():
                async def one(target):
                    await queue.run(queue.read, f, target, 10)
                    ended.append(target)
                await asyncio.gather(*map(one, targets))
            with Queue(2) as queue:
                call(lambda: asyncio.run(main()))
                eq(in_a_thread(lambda: drained(queue)), [])
                for target in targets:
                    eq(target, CONTENT[10:110] if target in ended or any(target) else bytes(100))
                eq(asyncio.run(asyncio.wait_for(several(queue, f), 60)), 40)
            gc.collect()    # failed tasks with their frames
            for target in targets:
                target.extend(b"not locked")


async def several(queue, f):
    ends = await asyncio.gather(*(queue.run(queue.read, f, bytearray(10), n) for n in range(4)))
    return sum(end.nbytes for end in ends)


def threads_end(count):
    """Wait for the end of threads that were told to end."""
    deadline = time.monotonic() + 60
    while _thread._count() > count:
        true(time.monotonic() < deadline, "a thread does not end")
        time.sleep(0.001)


def model(framework):
    from penstock.safetensors import save_file
    path = file("steps.safetensors")
    save_file({f"t{i}": framework.zeros(1000 + i) for i in range(3)}, path, sync=False)
    return path


@case
def reads_of_a_file_at_each_step():
    from penstock._reads import Reads, split
    pieces = split([(0, 6000)], 1000)
    for call in steps(100):
        reads, f, target, started = Reads(4), File(PATH), bytearray(6000), []
        memory = Memory.of(target)

        def once():
            started.append(reads.start(f, memory, pieces, 0))
            reads.wait(started[0], range(6))
            reads.finish(started[0])
        call(once)
        for job in started:
            in_a_thread(lambda: reads.finish(job))
            eq(target, CONTENT[:6000])
        # Without a queue nothing is in flight.
        eq(in_a_thread(lambda: drained(reads._queue)), [])
        eq(reads._bytes, 0)
        memory.close()
        f.close()
        target.extend(b"not locked")


@case
def tensors_ahead_at_each_step():
    from penstock._ahead import Ahead
    path, threads = model(numpy()), _thread._count()

    def once():
        with Ahead([path], "cpu", 1, framework="np") as reading:
            for _ in reading:
                pass
    for call in steps(100):
        call(once)
        threads_end(threads)


@case
def reads_of_many_files_at_each_step():
    from penstock._reads import Reads, split
    size, pieces = 1 << 16, split([(0, 1 << 16)], 10000)
    for call in steps(100):
        reads, memories, jobs = Reads(depth=4), [Memory.alloc("host", size) for _ in range(2)], []

        def once(reads=reads, memories=memories, jobs=jobs):
            for memory in memories:
                jobs.append(reads.start(File(PATH), memory, pieces, 0))
            reads.wait(jobs[0], range(3))
            reads.finish(jobs[1])
        call(once)
        for job in jobs:
            reads.finish(job)
        true(all(memory.closed for memory in memories[:len(jobs)]), "memory was not closed")
        with Memory.alloc("host", size) as memory:
            job = reads.start(File(PATH), memory, pieces, 0)
            reads.wait(job, range(len(pieces)))
            true(memory.copy_out() == CONTENT[:size])
            reads.finish(job)
        eq(reads._bytes, 0)


@case
def a_loader_at_each_step():
    from penstock.safetensors import safe_open
    path, threads = model(torch()), _thread._count()

    def once():
        with safe_open(path, "pt") as opened, opened.prefetch() as loader:
            loader.take("t1")
            dict(loader)
    for call in steps(100):
        call(once)
        threads_end(threads)


@case
def files_are_opened_and_closed():
    def once():
        with File(PATH) as f:
            f.info()
        File(PATH).close()
    nothing_left(once)


@case
def reads_and_writes():
    target = bytearray(5000)
    written = file("written", bytes(10000))
    with File(PATH) as f, File(written, "r+") as w:
        def once():
            f.read(target, 100)
            f.readv(target, [0, 7000], [0, 2000], 1000)
            f.read_into([target, memoryview(bytearray(10))], [5, 6])
            w.write(target, 1000)
            w.writev(target, [0, 5000], [0, 10], 50)
        nothing_left(once)
        f.read(target, 100)
        eq(target, CONTENT[100:5100])
    target.extend(b"not locked")


@case
def memory_is_copied():
    source = bytearray(b"abc" * 1000)
    with Memory.alloc("soft:0", 1 << 16) as memory:
        def once():
            memory.copy_in(source, 5)
            memory.copy_out(3000, 5)
            memory.sync()
            Memory.alloc("host", 4096).close()
            with Memory.of(source) as wrapped:
                wrapped.copy_out(10)
        nothing_left(once)
        memory.copy_in(source)
        eq(memory.copy_out(3000), source)
    source.extend(b"not locked")


@case
def queues_are_made_and_closed():
    target = bytearray(100000)

    def once():
        with Queue(4) as queue, File(PATH) as f:
            queue.read(f, target)
            queue.submit()
    nothing_left(once, longest=0.01)
    target.extend(b"not locked")


@case
def a_queue_goes_on():
    """Whatever was interrupted, each request completes once, with its bytes."""
    targets = [bytearray(1000) for _ in range(8)]
    seen, given = {}, {}
    with Queue(8) as queue, File(PATH) as f:
        def once():
            for place, target in enumerate(targets):
                try:
                    number = queue.read(f, target, place * 1000, tag=place)
                    given[number] = place
                except BlockingIOError:
                    break
            queue.submit()
            # The list is taken over in steps that can also be interrupted.
            for completion in queue.reap(1):
                seen[completion.id] = seen.get(completion.id, 0) + 1
                eq(completion.check().nbytes, 1000)
        interrupted(once)
        queue.submit()
        # An interrupted reap() keeps its completions for the next call; they are no longer in
        # flight.
        while queue.in_flight or queue._finished:
            for completion in queue.reap(1):
                seen[completion.id] = 1
        eq(queue._finished, {})
        eq(set(seen.values()), {1})
        # At most one completion per interruption was announced and never returned.
        eq((queue.in_flight, queue.reap()), (0, []))
        again = threading.Thread(target=lambda: queue.read(f, targets[0]))
        again.start()
        again.join()
        eq(queue.in_flight, 1)
    gc.collect()
    for place, target in enumerate(targets):
        eq(target, CONTENT[place * 1000:][:1000])
        target.extend(b"not locked")


@case
def models_are_loaded():
    np = numpy()
    from penstock.safetensors import load_file, safe_open, save_file
    path = file("model.safetensors")
    tensors = {f"t{i}": np.arange(1000 + i, dtype=np.float32) for i in range(20)}
    save_file(tensors, path, sync=False)

    def once():
        load_file(path)
        with safe_open(path, "np") as model:
            model.get_slice("t5")[10:20]
    nothing_left(once, longest=0.01)
    eq(sorted(load_file(path)), sorted(tensors))


@case
def event_loops():
    target = bytearray(1000)
    with File(PATH) as f, Queue(2) as queue:
        async def several():
            await asyncio.gather(*(queue.run(queue.read, f, target if n == 3 else bytearray(100), n)
                                   for n in range(8)))
        # Ending a loop removes handlers that were half made: their descriptors may stay until
        # Python's next collection.
        interrupted(lambda: asyncio.run(several()), longest=0.02)
        queue.submit()
        while queue.in_flight:
            queue.reap(1)
        asyncio.run(several())
    gc.collect()
    target.extend(b"not locked")


logging.getLogger("asyncio").setLevel(logging.CRITICAL)
warnings.simplefilter("ignore")


def unraisable(told):
    """Record what finalizers swallow, and event loops that were interrupted during their creation.
    """
    if told.exc_type is not KeyboardInterrupt and "EventLoop" not in repr(told.object):
        sys.__unraisablehook__(told)
        os._exit(1)


sys.unraisablehook = unraisable
run()
