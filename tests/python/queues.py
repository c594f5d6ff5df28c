# SPDX-License-Identifier: MIT
"""Queues, by hand and by asyncio."""
import array
import asyncio
import errno
import gc
import os
import sys
import threading

from tap import case, data, eq, file, gives, run, true, work

import penstock
from penstock import File, Memory, Queue, _memory, _queue

CONTENT = data(1 << 20)
PATH = file("content", CONTENT)


@case
def by_hand():
    for backend in ("auto", "threads"):
        with Queue(16, backend=backend) as queue, File(PATH) as f:
            targets = {}
            for number in range(16):
                target = bytearray(1000)
                tag = queue.read(f, target, number * 1000, tag=number)
                targets[tag] = target
            eq(queue.in_flight, 16)
            gives(BlockingIOError, queue.read, f, bytearray(5))
            eq(queue.in_flight, 16)
            eq(queue.submit(), 16)
            found = queue.reap(16)
            eq(sorted(c.tag for c in found), list(range(16)))
            for c in found:
                eq(c.check().nbytes, 1000)
                eq(targets[c.id], CONTENT[c.tag * 1000:][:1000])
                targets[c.id].extend(b"not locked")
            eq((queue.in_flight, queue.reap()), (0, []))


@case
def reap_takes_what_is_asked():
    with Queue(8) as queue, File(PATH) as f, Memory.alloc("host", 100) as memory:
        for _ in range(8):
            queue.read(f, memory)
        queue.submit()
        eq(len(queue.reap(3, 3)), 3)
        eq(len(queue.reap(5)), 5)
        eq(queue.reap(1), [])
        gives(ValueError, queue.reap, 2, 1)
        gives(ValueError, queue.reap, -1)
        gives(ValueError, queue.reap, 0, 0)


@case
def many_ranges_in_one_request():
    for device in ("host", "soft:0"):
        with Queue() as queue, File(PATH) as f, Memory.alloc(device, 4000) as memory:
            queue.readv(f, memory, array.array("q", [5000, 100]), array.array("q", [0, 2000]),
                        array.array("q", [2000, 2000]), crc32c=True)
            gc.collect()
            queue.submit()
            done, = queue.reap(1)
            eq(done.check().nbytes, 4000)
            eq(memory.copy_out(), CONTENT[5000:7000] + CONTENT[100:2100])
            true(isinstance(done.result.crc32c, int))
            # Two runs of pieces with strides.
            queue.readv(f, memory, [0, 50000], [0, 2000], 10, strides=(1000, 20, [100, 50]))
            queue.submit()
            eq(queue.reap(1)[0].check().nbytes, 1500)
            got = memory.copy_out()
            for start, base, count in ((0, 0, 100), (50000, 2000, 50)):
                for i in range(count):
                    at = base + 20 * i
                    eq(got[at:at + 10], CONTENT[start + 1000 * i:][:10])


@case
def writes_and_sync():
    path = f"{work}/written"
    with Queue() as queue, File(path, "w+") as f:
        queue.write(f, CONTENT[:5000])
        queue.writev(f, CONTENT, [5000, 10000], [0, 5000], 5000)
        queue.submit()
        eq([c.error for c in queue.reap(2)], [None, None])
        queue.sync(f, data=True)
        queue.sync(f)
        queue.submit()
        eq([c.error for c in queue.reap(2)], [None, None])
    with open(path, "rb") as f:
        eq(f.read(), CONTENT[:5000] + CONTENT[:10000])


@case
def failures():
    with Queue() as queue, File(PATH) as f:
        target = bytearray(100)
        gives(errno.EBADF, queue.write, f, target)
        gives(ValueError, queue.readv, f, target, [], [], [])
        gives(errno.ERANGE, queue.readv, f, target, [0], [50], [51])
        gives(ValueError, queue.read, f, target, timeout=0)
        gives(ValueError, queue.read, f, target, stream=0)
        eq(queue.in_flight, 0)
        target.extend(b"not locked")
        queue.read(f, target, len(CONTENT) - 10)
        queue.read(f, target, len(CONTENT) - 10, short=True)
        number = queue.read(f, target, policy="window", strict=True)
        queue.submit()
        by_id = {c.id: c for c in queue.reap(3)}
        eq(by_id[1].error.result.nbytes, 10)
        gives(penstock.ShortRead, by_id[1].check)
        eq(by_id[2].check().nbytes, 10)
        eq(by_id[number].error.errno, errno.EOPNOTSUPP)
        gives(penstock.Error, by_id[number].check)
        eq(queue.cancel(number), False)
    gives(ValueError, queue.submit)
    gives(ValueError, Queue, backend="quick")
    gives(ValueError, Queue, timeout=0)
    gives(errno.EINVAL, Queue, 5000)


@case
def cancelled():
    with Queue() as queue, File(PATH) as f:
        number = queue.read(f, bytearray(100))
        eq(queue.cancel(number), True)
        queue.submit()
        done, = queue.reap(1)
        true(done.error is None or done.error.errno == errno.ECANCELED)


@case
def closing_with_requests_prepared():
    target, other = bytearray(100), Memory.alloc("host", 100)
    queue = Queue()
    with File(PATH) as f:
        queue.read(f, target)
        queue.readv(f, other, [0], [0], [5])
    queue.close()
    queue.close()
    eq(_memory.sweep(), 0)
    eq(_queue._kept, [])
    target.extend(b"not locked")
    # Without close().
    queue = Queue()
    with File(PATH) as f:
        queue.read(f, target)
    del queue
    gc.collect()
    target.extend(b"not locked")


@case
def one_thread_at_a_time():
    with Queue() as queue, File(PATH) as f:
        with queue._mine():
            told = []

            def other():
                try:
                    queue.submit()
                except RuntimeError as e:
                    told.append(e)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            eq(len(told), 1)
        # After one another is fine.
        thread = threading.Thread(target=lambda: queue.read(f, bytearray(5)))
        thread.start()
        thread.join()
        queue.submit()
        eq(len(queue.reap(1)), 1)


@case
def interpreter_goes_on_while_a_call_waits():
    """Without a switch by force, another thread runs only when a call releases the lock."""
    go, ran = threading.Event(), []

    def other():
        go.wait()
        ran.append(True)
    thread = threading.Thread(target=other)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        with File(PATH) as f, Memory.alloc("host", len(CONTENT)) as memory:
            go.set()
            turns = 0
            while not ran and turns < 10000:
                f.read(memory)
                turns += 1
        told = bool(ran)
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    true(told)


@case
def by_asyncio():
    async def main():
        with Queue() as queue, File(PATH) as f:
            targets = [bytearray(10000) for _ in range(100)]

            async def one(number):
                result = await queue.future(queue.read(f, targets[number], number * 10000))
                return result.nbytes
            eq(await asyncio.gather(*(one(n) for n in range(100))), [10000] * 100)
            eq(b"".join(targets), CONTENT[:1000000])
            # In any order, and those of reap() too.
            a = queue.read(f, targets[0])
            b = queue.read(f, targets[1], len(CONTENT) - 5)
            c = queue.read(f, targets[2], tag="left")
            await queue.wait(a)
            try:
                await queue.wait(b)
            except penstock.ShortRead as e:
                eq(e.result.nbytes, 5)
            else:
                raise AssertionError("no ShortRead")
            eq([x.tag for x in queue.reap(1)], ["left"])
            gives(ValueError, queue.future, c)
            eq(await queue.wait(), [])
            # Waiting may be given up.
            d = queue.read(f, targets[3])
            task = asyncio.ensure_future(queue.wait(d))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.05)
            queue.reap(queue.in_flight)
            eq(queue.in_flight, 0)
            # Of a completion that reap() takes the future learns too.
            future = queue.future(queue.read(f, targets[4]))
            while not future.done():
                queue.reap(1)
                await asyncio.sleep(0)
            eq(future.result().nbytes, 10000)
    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    true(len(os.listdir("/proc/self/fd")) <= before + 4)


run()
