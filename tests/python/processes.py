# SPDX-License-Identifier: MIT
"""Forks, workers of multiprocessing and of torch's DataLoader, subinterpreters, and exit."""
import asyncio
import copy
import errno
import gc
import importlib
import multiprocessing
import os
import pathlib
import pickle
import pkgutil
import subprocess
import sys
import textwrap

from tap import Skip, case, data, eq, file, gives, numpy, run, torch, true

import penstock
from penstock import File, Memory, Queue, _lib
from penstock.safetensors import load_file, safe_open, save_file

CONTENT = data(1 << 16)
PATH = file("content", CONTENT)


def in_child(function):
    """Run a function in a fork; raise its exception here."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            gc.collect()
            status = 0
        except BaseException as e:  # pylint: disable=broad-except
            os.write(theirs, f"{type(e).__name__}: {e}".encode()[:4000])
        os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, "rb") as told:
        words = told.read().decode()
    true(os.waitpid(pid, 0)[1] == 0, words)


def program(text, **how):
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(text), PATH],
                          capture_output=True, text=True, timeout=60, check=False, **how)
    eq((done.returncode, done.stderr), (0, ""))
    return done.stdout


@case
def a_child_is_refused():
    target, size = bytearray(100), len(CONTENT)
    with File(PATH) as f, Memory.alloc("soft:0", 100) as memory, Queue() as queue, \
            Memory.of(target) as wrapped:
        number = queue.read(f, memory)

        def child():
            for call in (lambda: f.read(bytearray(10)), lambda: f.size, f.sync, queue.submit,
                         lambda: queue.read(f, bytearray(10)), lambda: queue.reap(1),
                         lambda: queue.cancel(number), queue.fileno, memory.copy_out,
                         lambda: wrapped.copy_in(b"x"), lambda: File(PATH), Queue,
                         lambda: Memory.alloc("host", 10), lambda: Memory.of(bytearray(10)),
                         penstock.doctor):
                e = gives(errno.EOWNERDEAD, call)
                true("fork" in str(e) and "spawn" in str(e), str(e))
            for thing in (f, memory, queue, wrapped):
                repr(thing)
        in_child(child)
        # The parent's objects are unchanged.
        queue.submit()
        eq([c.check().nbytes for c in queue.reap(1)], [100])
        eq((memory.copy_out(), f.size), (CONTENT[:100], size))
    target.extend(b"not locked")


@case
def finalisers_in_a_child_do_no_harm():
    async def main():
        box = {"queue": Queue(), "file": File(PATH), "memory": Memory.alloc("host", 1 << 16)}
        loop = asyncio.get_running_loop()
        loose = box["queue"].read(box["file"], box["memory"])
        future = box["queue"].future(loose)
        watched = box["queue"]._loop

        def child():
            with box.pop("queue") as queue:
                queue.close()
            box.pop("file").close()
            box.pop("memory")
        in_child(child)
        # Parent and child share the loop's epoll: the child must not have removed our descriptor
        # from it.
        eq(await asyncio.wait_for(future, 30), future.result())
        true(watched in (None, loop))
        for _ in range(20):
            result = await asyncio.wait_for(
                box["queue"].run(box["queue"].read, box["file"], box["memory"]), 30)
            eq(result.nbytes, 1 << 16)
        for thing in box.values():
            thing.close()
    asyncio.run(main())


@case
def a_fork_while_a_thread_is_in_a_call():
    import threading
    stop = threading.Event()
    queue, f = Queue(), File(PATH)

    def reads():
        while not stop.is_set():
            queue.read(f, bytearray(1000))
            queue.submit()
            queue.reap(1)
    thread = threading.Thread(target=reads)
    thread.start()
    try:
        for _ in range(20):
            in_child(lambda: gives(errno.EOWNERDEAD, queue.submit))
    finally:
        stop.set()
        thread.join()
    queue.close()
    f.close()


@case
def before_the_first_use_both_may():
    eq(program("""
        import os, sys, penstock
        pid = os.fork()
        with penstock.File(sys.argv[1]) as f:
            f.read(bytearray(10))
        if pid == 0:
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        """), "0\n")


def worker(path):
    with File(path) as f:
        target = bytearray(100)
        f.read(target, 50)
        return bytes(target)


@case
def workers_of_multiprocessing():
    File(PATH).close()
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            eq(pool.map(worker, [PATH] * 4), [CONTENT[50:150]] * 4)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        e = gives(OSError, pool.map, worker, [PATH])
        true("spawn" in str(e), str(e))


@case
def nothing_is_pickled_or_copied():
    with File(PATH) as f, Queue() as queue, Memory.alloc("host", 10) as memory:
        for thing in (f, queue, memory):
            for call in (pickle.dumps, copy.copy, copy.deepcopy):
                true("process" in str(gives(TypeError, call, thing)))
        f.read(memory)


# ------------------------------------------------------------------- exceptions

def raise_it(error):
    raise error


def open_it(path):
    File(path)


def read_too_much(path):
    with File(path) as f:
        f.read(bytearray(100), len(CONTENT) - 40)


def facts(value):
    """Return what must be equal after a copy; for a Result, its attributes."""
    if isinstance(value, penstock.Result):
        return {name: getattr(value, name) for name in value.__slots__}
    result = getattr(value, "result", None)
    return (type(value), str(value), repr(value), value.args, result and facts(result),
            [getattr(value, name, None)
             for name in ("errno", "strerror", "filename", "filename2", "winerror")])


def classes():
    """Return all exceptions of the package's modules, except those that need missing packages."""
    found = set()
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        try:
            names = vars(importlib.import_module(module.name))
        except ImportError:
            continue
        found |= {value for value in names.values() if isinstance(value, type) and
                  issubclass(value, BaseException) and value.__module__.startswith("penstock")}
    return sorted(found, key=lambda kind: kind.__name__)


def errors():
    """Return exceptions of each class with all of their attributes."""
    with File(PATH) as f, Queue() as queue:
        queue.read(f, bytearray(100), crc32c=True)
        queue.submit()
        result = queue.reap(1)[0].check()
        yield gives(penstock.ShortRead, f.read, bytearray(100), len(CONTENT) - 40)
        queue.read(f, bytearray(100), len(CONTENT) - 40)
        queue.submit()
        yield queue.reap(1)[0].error
    yield gives(FileNotFoundError, File, "/none")
    yield gives(FileNotFoundError, File, b"/none")
    yield gives(FileNotFoundError, File, pathlib.Path("/none"))
    for number in sorted(errno.errorcode) + [9999]:
        for name in (None, "name", b"name", pathlib.Path("name"), 7, Odd()):
            yield _lib.failure(-number, "cause; cure", name, result)
        yield _lib.failure(number, "")
    for kind in classes():
        yield kind("a text")
        yield kind()
        error = kind("a text")
        error.result = result
        yield error


class Odd:
    """A name that cannot exist in another process."""

    def __reduce__(self):
        raise TypeError("not to be pickled")


@case
def exceptions_are_copied():
    kinds = classes()
    bases = {type(OSError(number, "")) for number in errno.errorcode}
    # The package has a class for each of Python's, and at least ShortRead and SafetensorError
    # besides.
    true(len(kinds) >= len(bases) + 2 and len(bases) > 10, kinds)
    count = 0
    for error in errors():
        count += 1
        for twin in [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(6)] + [
                copy.copy(error), copy.deepcopy(error)]:
            eq(facts(twin), facts(error))
            true(twin is not error)
    true(count > 500, count)
    for number in errno.errorcode:
        error = _lib.failure(number, "cause; cure")
        true(isinstance(error, (penstock.Error,)) and isinstance(error, type(OSError(number, ""))))
    gives(NotADirectoryError, File, f"{PATH}/below")


@case
def exceptions_reach_other_processes():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        e = gives(FileNotFoundError, pool.apply, open_it, ("/none",))
        eq((e.errno, e.filename), (errno.ENOENT, "/none"))
        true(isinstance(e, penstock.Error) and e.strerror in str(e), repr(e))
        e = gives(penstock.ShortRead, pool.apply, read_too_much, (PATH,))
        eq(e.result.nbytes, 40)
        for error in list(errors())[::7]:
            eq(facts(gives(type(error), pool.apply, raise_it, (error,))), facts(error))


class Missing:
    """A data set whose workers fail."""

    def __init__(self, call, path):
        self.call, self.path = call, path

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.call(self.path) if index == 2 else index


@case
def exceptions_of_a_data_loader():
    torch()
    from torch.utils.data import DataLoader
    for call, path, kind in ((open_it, "/none", penstock.Error),
                             (read_too_much, PATH, penstock.ShortRead)):
        loader = DataLoader(Missing(call, path), num_workers=2, multiprocessing_context="spawn",
                            timeout=60)
        true(path in str(gives(kind, list, loader)))


class Rows:
    """A data set for torch's DataLoader; each worker opens the model itself."""

    def __init__(self, path):
        self.path, self.model = path, None

    def __len__(self):
        return 16

    def __getitem__(self, index):
        if self.model is None:
            self.model = safe_open(self.path, "pt")
        return self.model.get_slice("rows")[index]

    def __getstate__(self):
        return {"path": self.path, "model": None}


@case
def workers_of_a_data_loader():
    t = torch()
    from torch.utils.data import DataLoader
    path = file("rows.safetensors")
    rows = t.arange(64, dtype=t.float32).reshape(16, 4)
    save_file({"rows": rows}, path, sync=False)
    for method in ("spawn", "forkserver"):
        loader = DataLoader(Rows(path), batch_size=4, num_workers=2,
                            multiprocessing_context=method)
        true(t.equal(t.cat(list(loader)), rows))
    loader = DataLoader(Rows(path), batch_size=4, num_workers=1, multiprocessing_context="fork")
    e = gives(Exception, list, loader)
    true("spawn" in str(e), str(e))


# ------------------------------------------------------------------------ the end

@case
def the_end_with_open_objects():
    eq(program("""
        import sys, penstock
        f, q = penstock.File(sys.argv[1]), penstock.Queue()
        m, t = penstock.Memory.alloc("soft:0", 60000), bytearray(1000)
        w = penstock.Memory.of(t)
        for n in range(50):
            q.read(f, m)
            q.read(f, bytearray(60000))
        q.submit()
        cycle = [f, q, m, w]
        cycle.append(cycle)
        sys.kept = cycle
        print("end")
        """), "end\n")


@case
def the_end_with_threads():
    for _ in range(5):
        eq(program("""
            import sys, threading, time, penstock
            f = penstock.File(sys.argv[1])
            def reads():
                queue = penstock.Queue()
                while True:
                    queue.read(f, bytearray(50000))
                    queue.submit()
                    queue.reap(1)
                    f.read(bytearray(1000))
            for _ in range(3):
                threading.Thread(target=reads, daemon=True).start()
            time.sleep(0.05)
            """), "")


@case
def the_end_of_a_loop_with_tasks():
    program("""
        import asyncio, sys, penstock
        async def main():
            queue, f = penstock.Queue(2), penstock.File(sys.argv[1])
            for _ in range(20):
                asyncio.ensure_future(queue.run(queue.read, f, bytearray(60000)))
            await asyncio.sleep(0)
        asyncio.run(main())
        """)


@case
def constructors_that_fail_leave_no_garbage():
    program("""
        import gc, penstock
        for make in (lambda: penstock.File("/none"), lambda: penstock.File("/none", "z"),
                     lambda: penstock.Queue(5000), lambda: penstock.Queue(backend="x"),
                     lambda: penstock.Memory.alloc("none", 5), lambda: penstock.Memory.of(5),
                     lambda: penstock.Memory.of(b""), lambda: penstock.File(),
                     lambda: penstock.Memory()):
            try:
                make()
            except Exception:
                pass
            gc.collect()
        for kind in (penstock.File, penstock.Queue, penstock.Memory):
            kind.__new__(kind)
        """)


@case
def subinterpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            raise Skip("subinterpreters") from None
    del interpreters
    # The package works in a subinterpreter that shares the interpreter lock.  Python itself refuses
    # to import the package into other subinterpreters.
    told = program("""
        import sys, penstock
        try:
            import _interpreters as i
            make = lambda: i.create("legacy")
            run = i.exec
        except ImportError:
            import _xxsubinterpreters as i
            make, run = (lambda: i.create(isolated=False)), i.run_string
        with penstock.File(sys.argv[1]) as f:
            one = make()
            failed = run(one, "import penstock; f = penstock.File(%r); b = bytearray(9); "
                         "f.read(b); q = penstock.Queue(); q.read(f, b); q.submit(); "
                         "q.reap(1)" % sys.argv[1])
            i.destroy(one)
            f.read(bytearray(5))
        print(failed)
        """)
    eq(told, "None\n")


@case
def a_worker_loads_a_model():
    np = numpy()
    path = file("model.safetensors")
    save_file({"a": np.arange(10)}, path, sync=False)
    load_file(path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        eq(pool.apply(load_file, (path,))["a"].tolist(), list(range(10)))


if __name__ == "__main__":
    run()
