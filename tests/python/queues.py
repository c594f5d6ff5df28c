# SPDX-License-Identifier: MIT
"""Queues, with and without asyncio."""
import array
import asyncio
import errno
import gc
import os
import sys
import threading
import time

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
def pieces_are_compared_with_checksums():
    offsets, sizes = [5000, 100, 30000], [2000, 1500, 500]
    for device in ("host", "soft:0"):
        with Queue() as queue, File(PATH) as f, Memory.alloc(device, 4000) as memory:
            sums = []
            for offset, size in zip(offsets, sizes):
                f.read(memory, offset, size)
                sums += penstock.crc32c([memory.copy_out()[:size]])
            queue.readv(f, memory, offsets, [0, 2000, 3500], sizes, verify=sums)
            gc.collect()
            queue.read(f, memory, 5000, 2000, verify=sums[0])
            queue.submit()
            eq([c.error for c in queue.reap(2)], [None, None])
            sums[1] ^= 1 << 31
            queue.readv(f, memory, offsets, [0, 2000, 3500], sizes, verify=tuple(sums))
            queue.submit()
            done, = queue.reap(1)
            gives(errno.EBADMSG, done.check)
            eq((done.result.wrong_piece, done.result.prefix), (1, 2000))
            gives(ValueError, queue.readv, f, memory, offsets, 0, 10, verify=sums[:2])
            gives(ValueError, queue.read, f, memory, verify=1 << 32)
            gives(ValueError, queue.read, f, memory, verify=-1)
            gives(TypeError, queue.write, f, memory, verify=1)
            eq(queue.in_flight, 0)


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
    for depth in (2**32, 2**32 + 1, 2**64 - 1):
        gives(errno.EINVAL, Queue, depth)
    for depth in (-1, 2**64):
        gives(ValueError, Queue, depth)


@case
def waiting_for_ever():
    with Queue() as queue, File(PATH) as f:
        for timeout in (float("inf"), 1e300, 4e9):
            queue.read(f, bytearray(100), timeout=timeout)
            queue.submit()
            eq(queue.reap(1, timeout=timeout)[0].check().nbytes, 100)
            eq(f.read(bytearray(100), timeout=timeout).nbytes, 100)
        gives(ValueError, queue.reap, timeout=float("nan"))
        for most in (1.0, "1"):
            gives(TypeError, queue.reap, 1, most)
            gives(TypeError, queue.reap, most)


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
    target.extend(b"not locked")
    # Drop a queue without close().
    queue = Queue()
    with File(PATH) as f:
        queue.read(f, target)
    del queue
    gc.collect()
    target.extend(b"not locked")


@case
def one_thread_at_a_time():
    with Queue() as queue, File(PATH) as f:
        told = []

        def other():
            told.append(gives(RuntimeError, queue.submit))
            told.append(gives(RuntimeError, queue.close))
        # Lock the queue, as during a call.
        turn = queue._turn
        queue._turn = []
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        gives(RuntimeError, queue.read, f, bytearray(5))
        queue._turn = turn
        eq(len(told), 2)
        # Sequential use by several threads is allowed.
        thread = threading.Thread(target=lambda: queue.read(f, bytearray(5)))
        thread.start()
        thread.join()
        queue.submit()
        eq(len(queue.reap(1)), 1)


@case
def interpreter_goes_on_while_a_call_waits():
    """Without forced switches, another thread runs only if a call releases the interpreter's lock.
    """
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
            # Futures may be awaited in any order, mixed with reap().
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
            # A wait may be cancelled.
            d = queue.read(f, targets[3])
            task = asyncio.ensure_future(queue.wait(d))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.05)
            queue.reap(queue.in_flight)
            eq(queue.in_flight, 0)
            # A completion taken by reap() also completes its future.
            future = queue.future(queue.read(f, targets[4]))
            while not future.done():
                queue.reap(1)
                await asyncio.sleep(0)
            eq(future.result().nbytes, 10000)
    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    true(len(os.listdir("/proc/self/fd")) <= before + 4)


async def many(queue, f, count, targets):
    async def one(number):
        return (await queue.run(queue.read, f, targets[number], number * 1000)).nbytes
    return await asyncio.gather(*(one(n) for n in range(count)))


@case
def more_tasks_than_the_queue_has_room():
    targets = [bytearray(1000) for _ in range(1000)]
    for depth in (1, 7, 128):
        with Queue(depth) as queue, File(PATH) as f:
            before = time.process_time()
            eq(asyncio.run(many(queue, f, 1000, targets)), [1000] * 1000)
            # A task that waits for room does not poll.
            true(time.process_time() - before < 20)
            eq((queue.in_flight, queue._loop, len(queue._waiters)), (0, None, 0))
    eq(b"".join(targets), CONTENT[:1000000])
    targets[0].extend(b"not locked")


@case
def a_thousand_outstanding():
    """1,000 requests on one queue, from several files; some fail, some are cancelled, some have no
    waiter."""
    size, count = 50000, 1000
    kinds = ("whole", "short", "error", "cancelled", "left")

    async def main():
        paths = [file(f"many-{n}", CONTENT[n:]) for n in range(7)]
        files = [File(path) for path in paths]
        with Queue(count) as queue, Memory.alloc("soft:0", count * size) as memory:
            pumps = 0
            pump = queue._pump

            def counted():
                nonlocal pumps
                pumps += 1
                pump()
            queue._pump = counted
            numbers = []
            for n in range(count):
                kind = kinds[n % len(kinds)]
                offset = len(CONTENT) - 1000 if kind == "short" else n
                numbers.append(queue.read(files[n % 7], memory, offset, size, mem_offset=n * size,
                                          strict=kind == "error",
                                          policy="gds" if kind == "error" else None))
            eq(queue.in_flight, count)
            gives(BlockingIOError, queue.read, files[0], memory)
            for number in numbers[3::10]:
                true(queue.cancel(number))      # nothing is submitted yet
            futures = [queue.future(number) for number in numbers]
            for n in range(count):
                if kinds[n % len(kinds)] == "cancelled":
                    queue.cancel(numbers[n])
                elif kinds[n % len(kinds)] == "left":
                    futures[n].cancel()
            before = time.process_time()
            ends = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 60)
            while queue.in_flight:
                await asyncio.sleep(0.001)
                queue.reap()
            true(time.process_time() - before < 20)
            # One wake-up per future, and one for completed requests.
            true(pumps < 3 * count, pumps)
            cancelled = 0
            for n, end in enumerate(ends):
                kind = kinds[n % len(kinds)]
                if kind == "whole":
                    eq(end.nbytes, size)
                    eq(memory.copy_out(size, n * size), CONTENT[n % 7:][n:n + size])
                elif kind == "short":
                    eq((type(end), end.result.nbytes), (penstock.ShortRead, 1000 - n % 7))
                elif kind == "error":
                    eq(end.errno, errno.EOPNOTSUPP)
                elif kind == "left":
                    # The request may have completed before.
                    true(isinstance(end, (asyncio.CancelledError, penstock.Result)), end)
                elif isinstance(end, OSError):
                    cancelled += end.errno == errno.ECANCELED
            true(cancelled >= count // 10, cancelled)
            eq((queue._futures, queue._finished, queue._loop), ({}, {}, None))
        for f in files:
            f.close()
        eq(_memory.sweep(), 0)
    asyncio.run(main())


@case
def waiting_for_room_is_no_busy_loop():
    """Nothing completes, because nothing is submitted: the loop must sleep."""
    class Idle:
        """The library, but submits nothing."""

        def __getattr__(self, name):
            return (lambda handle: 0) if name == "pst_queue_submit" else getattr(lib, name)

    async def main():
        with Queue(1) as queue, File(PATH) as f:
            loop = asyncio.get_running_loop()
            turns = 0
            pump = queue._pump

            def counted():
                nonlocal turns
                turns += 1
                pump()
            queue._pump = counted
            number = queue.read(f, bytearray(10))
            task = loop.create_task(queue.run(queue.read, f, bytearray(10)))
            await asyncio.sleep(0.3)
            true(turns < 10, turns)
            true(not task.done())
            _queue.lib = lib
            queue.submit()
            eq((await task).nbytes, 10)
            eq([c.id for c in queue.reap(1)], [number])
    lib = _queue.lib
    _queue.lib = Idle()
    try:
        asyncio.run(main())
    finally:
        _queue.lib = lib


@case
def tasks_are_cancelled():
    async def main():
        # Copies of a device use another thread, so some are in flight.
        targets = [Memory.alloc("soft:0", 100000) for _ in range(100)]
        with Queue(8) as queue, File(PATH) as f:
            tasks = [asyncio.ensure_future(queue.run(queue.read, f, targets[n], n * 1000))
                     for n in range(100)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = [n for n in range(100) if isinstance(ends[n], asyncio.CancelledError)]
            true(len(cancelled) > 30 and not any(n % 2 for n in cancelled), cancelled)
            for end, target, n in zip(ends, targets, range(100)):
                # After the await, the memory belongs to the program.
                if n not in cancelled:
                    eq((end.nbytes, end.busy), (100000, False))
                    eq(target.copy_out(), CONTENT[n * 1000:][:100000])
                target.close()
            eq(_memory.sweep(), 0)
            eq((queue.in_flight, queue._futures, len(queue._waiters)), (0, {}, 0))
            # Cancel all at once, by a timeout.
            try:
                await asyncio.wait_for(many(queue, f, 100, [bytearray(1000)] * 100), 0)
            except asyncio.TimeoutError:
                pass
            eq(await many(queue, f, 100, [bytearray(1000) for _ in range(100)]), [1000] * 100)
    asyncio.run(main())


@case
def a_loop_that_has_ended_is_let_go():
    with Queue(2) as queue, File(PATH) as f:
        async def start():
            queue.future(queue.read(f, bytearray(10)))
        for _ in range(3):
            asyncio.run(start())
        queue.submit()
        queue.reap(queue.in_flight)
        eq(asyncio.run(many(queue, f, 5, [bytearray(10) for _ in range(5)])), [10] * 5)


@case
def a_loop_that_rests_gives_way():
    with Queue(2) as queue, File(PATH) as f:
        async def start():
            task = asyncio.ensure_future(queue.run(queue.read, f, bytearray(10)))
            await asyncio.sleep(0)
            return task

        async def ended(task):
            return await asyncio.wait([task], timeout=10)
        loop = asyncio.new_event_loop()
        queue._pump = lambda: None      # so that the task still waits when its loop rests
        task = loop.run_until_complete(start())
        del queue._pump
        true(not task.done() and queue._loop is loop, task)
        eq(asyncio.run(many(queue, f, 5, [bytearray(10) for _ in range(5)])), [10] * 5)
        loop.run_until_complete(ended(task))
        true(task.cancelled(), task)
        loop.close()


@case
def closed_while_tasks_wait():
    async def main():
        queue, f = Queue(1), File(PATH)
        tasks = [asyncio.ensure_future(queue.run(queue.read, f, bytearray(1000)))
                 for _ in range(5)]
        await asyncio.sleep(0)
        queue.close()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            # Requests that had not started find the queue closed.
            true(isinstance(end, (asyncio.CancelledError, ValueError, penstock.Result)), end)
        f.close()
    asyncio.run(main())


run()
