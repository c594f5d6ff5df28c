# SPDX-License-Identifier: MIT
"""Reference counting alone frees the arguments and results of a call, even if it fails.

The cyclic garbage collector is off during a call.  What it finds afterwards must include no
exception, no frame of the package and no object of the package.
"""
import asyncio
import gc
import importlib
import os
import types
import warnings
import weakref

from tap import Skip, case, data, eq, file, gives, numpy, run, torch, true, work

import penstock
from penstock import File, Memory, Queue, _ahead, _reads, safetensors
from penstock.safetensors import load_file, load_files, safe_open, save_file

SIZE = 4096
CONTENT = data(2 * SIZE)
PATH = file("content", CONTENT)
EMPTY = file("empty")
PACKAGE = os.path.dirname(penstock.__file__)


class Bytearray(bytearray):
    """A bytearray that supports weak references."""


def read_only():
    """Return a view of bytes: views support weak references, bytes do not."""
    return memoryview(bytes(SIZE))


class DLPack:
    """An object with DLPack only."""

    def __init__(self):
        self.array = numpy().zeros(SIZE, numpy().uint8)

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class CudaArray:
    """Memory of a device, by address."""

    def __init__(self):
        self.block = Memory.alloc("cuda:0", SIZE)

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.block.address, False), "shape": (SIZE,), "typestr": "|u1",
                "version": 3}


class Unclear(Bytearray):
    """A buffer whose other interface raises."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("no typestr for this type")


def kinds(also_read_only=False):
    """Return {name: function that makes an object of SIZE bytes} for all installed packages."""
    found = {"bytearray": lambda: Bytearray(SIZE), "unclear": lambda: Unclear(SIZE),
             "memoryview": lambda: memoryview(bytearray(SIZE)),
             "ctypes": lambda: (importlib.import_module("ctypes").c_char * SIZE)()}
    if also_read_only:
        found["read-only"] = read_only
    try:
        np = numpy()
        found["numpy"] = lambda: np.zeros(SIZE, np.uint8)
        found["DLPack"] = DLPack
    except Skip:
        pass
    try:
        t = torch()
        found["torch"] = lambda: t.zeros(SIZE, dtype=t.uint8)
    except Skip:
        pass
    try:
        Memory.alloc("cuda:0", SIZE).close()
        found["cuda"] = CudaArray
    except OSError:
        pass
    return found


def _ours(thing):
    if isinstance(thing, (BaseException, types.TracebackType)):
        return True
    if isinstance(thing, types.FrameType):
        return thing.f_code.co_filename.startswith(PACKAGE)
    return not isinstance(thing, type) and type(thing).__module__.startswith("penstock")


def _values(result):
    if isinstance(result, dict):
        return [value for value in result.values() if hasattr(value, "dtype")]
    return [result] if hasattr(result, "dtype") or isinstance(result, Bytearray) else []


def _once(call, makes, gone):
    """Call once.  Return the name of the exception, or None."""
    given = [make() for make in makes]
    gone += [(type(thing).__name__, weakref.ref(thing)) for thing in given]
    try:
        result = call(*given)
        gone += [(type(value).__name__, weakref.ref(value)) for value in _values(result)]
    except Exception as e:
        return type(e).__name__
    return ""


def frees(name, call, *makes, fails=False):
    """Calling call with objects made by makes must leave nothing for the collector."""
    _once(call, makes, [])      # warm up: imports and caches
    gc.disable()
    gc.freeze()     # ignore existing objects
    gone = []
    try:
        raised = _once(call, makes, gone)
        kept = [kind for kind, ref in gone if ref() is not None]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        cycles = [repr(thing)[:200] for thing in gc.garbage if _ours(thing)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
    true(bool(raised) == fails, f"{name}: raised {raised or 'nothing'}")
    true(not kept and not cycles, f"{name}: still there {kept}, in cycles {cycles}")


def each_kind(calls, also_read_only=False, fails=False):
    """Test each kind of object with calls, {name: function of an object}."""
    found = kinds(also_read_only)
    true(len(found) >= 3)
    for name, call in calls.items():
        for kind, make in found.items():
            frees(f"{name} {kind}", call, make, fails=fails)


def reaped(queue, prepare, *args, **options):
    prepare(*args, **options)
    queue.submit()
    for completion in queue.reap(1):
        completion.check()


@case
def files_and_memory():
    with File(PATH) as f:
        each_kind({
            "read": f.read, "read part": lambda obj: f.read(obj, 5, 10, mem_offset=3),
            "readv": lambda obj: f.readv(obj, [0, 99], [0, 9], 9),
            "read_into": lambda obj: f.read_into([obj, obj], [0, 0]),
        })
        each_kind({
            "read past the end": lambda obj: f.read(obj, 2 * SIZE - 5),
            "readv past the end": lambda obj: f.readv(obj, [2 * SIZE - 5], [0], [10]),
            "read_into past the end": lambda obj: f.read_into([obj], [2 * SIZE - 5]),
            "read of too much": lambda obj: f.read(obj, 0, 2 * SIZE),
            "read by no path": lambda obj: f.read(obj, policy="none"),
            "read with a wrong option": lambda obj: f.read(obj, plicy="none"),
            "write of what is read": f.write, "writev": lambda obj: f.writev(obj, [0], [0], [1]),
            "write_from": lambda obj: f.write_from([obj], [0]),
            "write_from of others": lambda obj: f.write_from([obj, 5], [0, 0]),
        }, fails=True)
        for name, call in (("read", f.read), ("readv", lambda obj: f.readv(obj, 0, 0, 5)),
                           ("read_into", lambda obj: f.read_into([obj], [0]))):
            frees(f"{name} into read-only memory", call, read_only, fails=True)
    with File(f"{work}/written", "w+") as f:
        each_kind({
            "write": f.write, "writev": lambda obj: f.writev(obj, [0, 99], [0, 9], 9),
            "write_from": lambda obj: f.write_from([obj, obj], [0, SIZE]),
        }, also_read_only=True)

    def left_open(obj):
        memory = Memory.of(obj)
        true(memory.nbytes == SIZE)
    each_kind({"Memory.of": lambda obj: Memory.of(obj).close(), "Memory.of, left open": left_open,
               "pinned": lambda obj: Memory.of(obj, pinned=True).close()}, also_read_only=True)
    for make in (Bytearray, DLPack().array[::2].view, lambda: {1, 2}):
        frees("Memory.of what has no bytes, or gaps", Memory.of, make, fails=True)


@case
def copies():
    with Memory.alloc("host", SIZE) as memory:
        frees("copy_in", memory.copy_in, lambda: Bytearray(SIZE))
        frees("copy_in of too much", memory.copy_in, lambda: Bytearray(2 * SIZE), fails=True)

    def view(_):
        return bytes(Memory.alloc("host", SIZE).view())
    frees("view", view, Bytearray)


@case
def queues():
    with File(PATH) as f, Queue(4) as q, File(f"{work}/queued", "w+") as w:
        each_kind({
            "read": lambda obj: reaped(q, q.read, f, obj),
            "readv": lambda obj: reaped(q, q.readv, f, obj, [0, 99], [0, 9], 9),
        })
        each_kind({
            "write": lambda obj: reaped(q, q.write, w, obj, tag=obj),
            "writev": lambda obj: reaped(q, q.writev, w, obj, [0, 99], [0, 9], 9),
        }, also_read_only=True)
        each_kind({
            "read past the end": lambda obj: reaped(q, q.read, f, obj, 2 * SIZE - 5),
            "readv past the end": lambda obj: reaped(q, q.readv, f, obj, [2 * SIZE - 5], [0], 9),
            "write of what is read": lambda obj: reaped(q, q.write, f, obj, tag=obj),
            "read of too much": lambda obj: q.read(f, obj, 0, 2 * SIZE),
            "a wrong option": lambda obj: q.read(f, obj, plicy="none"),
        }, fails=True)

    def closed(obj):
        with File(PATH) as file_, Queue(4) as queue:
            queue.read(file_, obj)
            queue.submit()
            queue.read(file_, obj)

    def memory_that_stays(obj):
        with File(PATH) as file_:
            memory = Memory.of(obj)
            with Queue(4) as queue:
                for _ in range(4):
                    queue.read(file_, memory)
                queue.submit()
            memory.close()
    each_kind({"closed before the end": closed, "closed before the memory": memory_that_stays})


@case
def tasks():
    async def one(prepare, *args):
        await prepare.__self__.run(prepare, *args)

    async def several(queue, f, obj, offset):
        numbers = [queue.read(f, obj, at) for at in (0, offset)]
        await queue.wait(*numbers)

    async def future(queue, f, obj, offset):
        await queue.future(queue.read(f, obj, offset))

    async def cancelled(queue, f, obj):
        task = asyncio.ensure_future(queue.run(queue.read, f, obj))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    loop = asyncio.new_event_loop()

    async def raised_by(call):
        # The frame of run_until_complete() keeps an exception that leaves a task.
        try:
            await call
        except Exception as e:
            return type(e)
        return None

    def wait_for(call):
        kind = loop.run_until_complete(raised_by(call))
        if kind:
            raise kind
    try:
        with File(PATH) as f, Queue(4) as q:
            def runs(function, *args):
                return lambda obj: wait_for(
                    function(*(obj if arg is None else arg for arg in args)))
            each_kind({"run": runs(one, q.read, f, None), "wait": runs(several, q, f, None, 1),
                       "future": runs(future, q, f, None, 1), "cancel": runs(cancelled, q, f, None)
                       })
            late = 2 * SIZE - 5
            each_kind({"run past the end": runs(one, q.read, f, None, late),
                       "run of a write": runs(one, q.write, f, None),
                       "run of too much": runs(one, q.read, f, None, 0, 2 * SIZE),
                       "wait past the end": runs(several, q, f, None, late),
                       "future past the end": runs(future, q, f, None, late)}, fails=True)
    finally:
        loop.close()


@case
def reads_of_a_loader():
    """Read like a copier for fastsafetensors."""
    def load(obj, size):
        f, reads = File(PATH), _reads.Reads()
        job = reads.start(f, Memory.of(obj), [(0, 99), (99, size)], 0)
        reads.wait(job, [0, 1])
        reads.finish(job)

    def finish(obj):
        f, reads = File(PATH), _reads.Reads()
        reads.finish(reads.start(f, Memory.of(obj), [(2 * SIZE - 5, 2 * SIZE + 5)], 2 * SIZE - 5))
    each_kind({"load": lambda obj: load(obj, SIZE)})
    each_kind({"load past the memory": lambda obj: load(obj, 2 * SIZE), "finish": finish},
              fails=True)


# ----------------------------------------------------------------------------- models

def broken(path):
    """Truncate a file after it was opened."""
    save_file({"a": numpy().zeros(SIZE, "u1"), "b": numpy().zeros(SIZE, "u1")}, path, sync=False)
    return path


def frameworks():
    numpy()
    found = ["np"]
    try:
        torch()
        found.append("pt")
    except Skip:
        pass
    return found


def makers():
    np = numpy()
    made = {"np": lambda: np.ones(SIZE, np.uint8)}
    try:
        t = torch()
        made["pt"] = lambda: t.ones(SIZE, dtype=t.uint8)
    except Skip:
        pass
    return made


@case
def loading():
    path = broken(f"{work}/m.safetensors")
    large = f"{work}/large.safetensors"
    save_file({"c": numpy().zeros(300 << 10, "u1")}, large, sync=False)
    with open(f"{work}/bad.safetensors", "wb") as f:
        f.write(open(path, "rb").read()[:-1])

    def told(_done, _all):
        raise KeyError("who is told fails")
    for fw in frameworks():
        def read_by(call, fw=fw):
            def opened():
                with safe_open(path, fw) as f:
                    return call(f)
            return opened

        def cut(call, fw=fw):
            def opened():
                with safe_open(broken(f"{work}/cut.safetensors"), fw) as f:
                    os.truncate(f"{work}/cut.safetensors", 300)
                    return call(f)
            return opened
        for name, call in {
                "load_file": lambda: load_file(path, framework=fw),
                "load_file of a large one": lambda: load_file(large, framework=fw),
                "load_files": lambda: load_files([path, large], framework=fw),
                "names": lambda: load_file(path, framework=fw, names=["a"]),
                "load": lambda: safetensors.load(open(path, "rb").read(), framework=fw),
                "get_tensor": read_by(lambda f: f.get_tensor("a")),
                "get_tensors": read_by(lambda f: f.get_tensors()),
                "get_slice": read_by(lambda f: f.get_slice("a")[5:]),
                "get_slice with steps": read_by(lambda f: f.get_slice("a")[5::7])}.items():
            frees(f"{name} {fw}", call)
        for name, call in {
                "load_file": lambda: load_file(f"{work}/bad.safetensors", framework=fw),
                "load_file without one": lambda: load_file("/none", framework=fw),
                "load_files": lambda: load_files([path, path], framework=fw),
                "names": lambda: load_file(path, framework=fw, names=["z"]),
                "progress": lambda: load_file(path, framework=fw, progress=told),
                "get_tensor": cut(lambda f: f.get_tensor("b")),
                "get_tensors": cut(lambda f: f.get_tensors()),
                "get_slice": cut(lambda f: f.get_slice("b")[5:]),
                "no tensor": read_by(lambda f: f.get_tensor("z"))}.items():
            frees(f"{name} {fw}, failing", call, fails=True)
        if fw == "pt":
            frees("prefetch", read_by(lambda f: dict(f.prefetch())))
            frees("prefetch that is left", read_by(lambda f: f.prefetch().names()))
            frees("prefetch, failing", cut(lambda f: dict(f.prefetch())), fails=True)
            frees("take, failing", cut(lambda f: f.prefetch().take("b")), fails=True)

        def ahead(names, fw=fw):
            found = {}
            with _ahead.Ahead(names, "cpu", 100, framework=fw) as reading:
                for name, tensor, _ in reading:
                    found[name] = tensor
            return found

        def ahead_cut():
            name = broken(f"{work}/cut.safetensors")
            with _ahead.Ahead([name], "cpu", 100, framework=fw) as reading:
                os.truncate(name, 300)
                return list(reading)

        def ahead_left():
            _ahead.Ahead([path], "cpu", framework=fw)
        frees(f"read ahead {fw}", lambda: ahead([path, large]))
        frees(f"read ahead {fw}, left", ahead_left)
        frees(f"read ahead {fw}, without a file", lambda: ahead([path, "/none"]), fails=True)
        frees(f"read ahead {fw}, cut", ahead_cut, fails=True)


@case
def saving():
    path, made = f"{work}/saved.safetensors", makers()

    def callers(fw):
        module = importlib.import_module(f"penstock.safetensors.{fw}")
        return module.save_file, module.save

    def spec(obj):
        where = obj.ctypes.data if hasattr(obj, "ctypes") else obj.data_ptr()
        return {"a": safetensors.TensorSpec(dtype="uint8", shape=[SIZE], data_ptr=where,
                                            data_len=SIZE)}
    for fw, make in made.items():
        save_it, save_bytes = callers({"np": "numpy", "pt": "torch"}[fw])
        for name, call in {
                "save_file": lambda obj: save_file({"a": obj}, path, sync=False),
                "save_file of its module": lambda obj: save_it({"a": obj}, path, sync=False),
                "save_file of parts": lambda obj: save_file({"a": obj[:9], "b": obj[8:64]}, path,
                                                            sync=False),
                "save": lambda obj: safetensors.save({"a": obj}),
                "save of its module": lambda obj: save_bytes({"a": obj}),
                "serialize": lambda obj: safetensors.serialize(spec(obj)),
                "serialize_file": lambda obj: safetensors.serialize_file(spec(obj), path)}.items():
            frees(f"{name} {fw}", call, make)
        for name, call in {
                "save_file in no folder": lambda obj: save_file({"a": obj}, "/none/file"),
                "save_file over a folder": lambda obj: save_file({"a": obj}, work),
                "save_file of no array": lambda obj: save_file({"a": obj, "b": 5}, path),
                "metadata": lambda obj: save_file({"a": obj}, path, {"a": 5}),
                "save": lambda obj: safetensors.save({"a": obj, 5: obj})}.items():
            frees(f"{name} {fw}", call, make, fails=True)


@case
def state_dicts():
    t = torch()
    pt = importlib.import_module("penstock.torch")
    make = makers()["pt"]
    folder, path = f"{work}/shards", f"{work}/state.safetensors"

    def saved(obj):
        pt.save({"a": obj[:64], "b": obj[64:].clone()}, folder, shard_bytes=100, sync=False)
        return pt.load(folder)

    def futures(obj, offset):
        with pt.File(PATH) as f:
            # Python's futures keep their exceptions, and so does the frame that asks for one.
            waiting = [f.pread_future(obj, offset)]
            try:
                return waiting.pop().result()
            finally:
                waiting.clear()
    with pt.File(PATH) as f, pt.File(f"{work}/of-torch", "w+") as w:
        frees("pread", f.pread, make)
        frees("pwrite", w.pwrite, make)
        frees("pread_future", lambda obj: futures(obj, 5), make)
        frees("pread past the end", lambda obj: f.pread(obj, 2 * SIZE - 5), make, fails=True)
        frees("pread_future past the end", lambda obj: futures(obj, 2 * SIZE - 5), make, fails=True)
        frees("pwrite of what is read", f.pwrite, make, fails=True)
        frees("pread with gaps", lambda obj: f.pread(obj[::2]), make, fails=True)
    frees("save of shards", saved, make)
    frees("save", lambda obj: pt.save({"a": obj}, path, sync=False), make)
    frees("load", lambda: pt.load(path))
    frees("save of what shares", lambda obj: pt.save({"a": obj, "b": obj}, path), make, fails=True)
    frees("save in no folder", lambda obj: pt.save({"a": obj}, "/none/a"), make, fails=True)
    frees("load without a file", lambda: pt.load("/none"), fails=True)

    def model_saved(obj):
        model = t.nn.Module()
        model.register_buffer("a", obj)
        for_torch = importlib.import_module("penstock.safetensors.torch")
        for_torch.save_model(model, path)
        for_torch.load_model(model, path)
    frees("a model", model_saved, make)


@case
def checkpoints():
    torch()
    try:
        dcp = importlib.import_module("torch.distributed.checkpoint")
        planner = importlib.import_module("torch.distributed.checkpoint.default_planner")
        dcp.save, dcp.load
    except (ImportError, AttributeError):
        raise Skip("torch.distributed.checkpoint as of torch 2.3") from None
    warnings.simplefilter("ignore")
    pt = importlib.import_module("penstock.torch")
    make = makers()["pt"]
    folder = f"{work}/checkpoint"

    def write(obj, where):
        """Save in one process like dcp.save(), whose own frames have reference cycles."""
        writer, plans = pt.StorageWriter(where, sync=False), planner.DefaultSavePlanner()
        writer.reset()
        plans.set_up_planner({"a": obj}, writer.storage_meta(), True)
        writer.set_up_storage_writer(True)
        plan = writer.prepare_local_plan(plans.create_local_plan())
        everywhere, metadata = plans.create_global_plan([plan])
        plan = plans.finish_plan(writer.prepare_global_plan(everywhere)[0])
        writer.finish(metadata, [writer.write_data(plan, plans).wait()])

    def read(obj, where):
        reader, plans = pt.StorageReader(where), planner.DefaultLoadPlanner()
        reader.reset()
        metadata = reader.read_metadata()
        plans.set_up_planner({"a": obj}, metadata, True)
        reader.set_up_storage_reader(metadata, True)
        plan = reader.prepare_local_plan(plans.create_local_plan())
        plan = plans.finish_plan(reader.prepare_global_plan(plans.create_global_plan([plan]))[0])
        reader.read_data(plan, plans).wait()
    frees("StorageWriter", lambda obj: write(obj, folder), make)
    frees("StorageReader", lambda obj: read(obj, folder), make)
    frees("StorageReader, copied", lambda obj: read(obj.float(), folder), make)
    data_file = [name for name in os.listdir(folder) if name.endswith(".distcp")]
    os.truncate(f"{folder}/{data_file[0]}", 300)
    frees("StorageReader of what was cut", lambda obj: read(obj, folder), make, fails=True)
    frees("StorageReader of nothing", lambda obj: read(obj, "/none"), make, fails=True)
    frees("StorageWriter in no folder", lambda obj: write(obj, f"{PATH}/none"), make, fails=True)


@case
def the_test_itself():
    """The test detects kept objects."""
    kept = []

    def keeps(obj):
        kept.append(obj)

    def cycle(obj):
        try:
            raise ValueError("kept")
        except ValueError as e:
            found = e
        return found and None and obj
    for call in (keeps, cycle):
        true("still there ['Bytearray']" in str(gives(AssertionError, frees, "x", call, Bytearray)))
    eq(len(kept), 2)


run()
