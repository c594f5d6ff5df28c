# SPDX-License-Identifier: MIT
"""The replacement for the package safetensors: bytes, addresses, models, prefetch, patched()."""
import os
import subprocess
import sys
import threading
import types

from tap import case, eq, gives, numpy, run, torch, true, work

from penstock import safetensors as st
from penstock.safetensors import SafetensorError, TensorSpec


@case
def bytes_are_those_of_a_file():
    np = numpy()
    want = {"b": np.arange(6, dtype=np.int16).reshape(2, 3), "a": np.zeros((0, 2)),
            "one": np.array(2.5)}
    raw = st.save(want, {"k": "v"})
    st.save_file(want, f"{work}/same", {"k": "v"})
    with open(f"{work}/same", "rb") as f:
        eq(f.read(), raw)
    got = st.load(raw)
    eq(sorted(got), sorted(want))
    for name, array in want.items():
        eq((got[name].dtype, got[name].shape), (array.dtype, array.shape))
        true((got[name] == array).all())
    got["b"] += 1   # the tensor has its own memory
    eq(st.load(memoryview(raw))["b"].tolist(), want["b"].tolist())
    found = dict(st.deserialize(raw))
    eq(found["b"]["shape"], [2, 3])
    eq(bytes(found["b"]["data"]), want["b"].tobytes())
    for bad in (b"", raw[:7], raw[:-1], raw + b"x", raw[:30]):
        gives(SafetensorError, st.load, bad)
        gives(SafetensorError, st.deserialize, bad)
    gives(TypeError, st.load, "text")
    gives(SafetensorError, st.save, [want["b"]])


@case
def what_cannot_be_saved_is_refused():
    np = numpy()
    gives(SafetensorError, st.save, {"x": np.ma.array([1, 2, 3], mask=[0, 1, 0])})
    eq(st.load(st.save({"x": np.ma.array([1, 2])}))["x"].tolist(), [1, 2])
    eq(st.load(st.save({"x": np.asmatrix([[1, 2]])}))["x"].tolist(), [[1, 2]])
    t = torch()
    gives(RuntimeError, st.save, {"x": t.zeros(3, device="meta")})
    if hasattr(t, "float4_e2m1fn_x2"):
        pair = t.zeros(1, dtype=t.uint8).view(t.float4_e2m1fn_x2)
        gives(SafetensorError, st.save, {"x": pair.reshape(())})


@case
def files_are_named_by_bytes_too_and_their_folder_is_synced():
    np = numpy()
    path = f"{work}/by-bytes"
    synced, fsync = [], os.fsync

    def noted(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)
    os.fsync = noted
    try:
        st.save_file({"x": np.ones(3)}, path.encode(), sync=False)
        eq(synced, [])
        st.save_file({"x": np.ones(3)}, path.encode())
    finally:
        os.fsync = fsync
    eq(synced, [os.path.realpath(work)])
    eq(st.load_file(path.encode())["x"].tolist(), [1, 1, 1])


@case
def tensors_by_their_addresses():
    np = numpy()
    array = np.arange(10, dtype=np.float32)
    spec = TensorSpec(dtype="float32", shape=(2, 5), data_ptr=array.ctypes.data, data_len=40)
    eq((spec.dtype, spec.shape, spec.data_len), ("F32", [2, 5], 40))
    raw = st.serialize({"a": spec})
    eq(raw, st.save({"a": array.reshape(2, 5)}))
    st.serialize_file({"a": spec}, f"{work}/spec")
    with open(f"{work}/spec", "rb") as f:
        eq(f.read(), raw)
    pairs = TensorSpec(dtype="float4_e2m1fn_x2", shape=[4], data_ptr=array.ctypes.data, data_len=4)
    eq((pairs.dtype, pairs.shape), ("F4", [8]))
    for bad in ({"dtype": "nonsense"}, {"data_len": 39}, {"data_ptr": 0}, {"data_ptr": -1},
                {"shape": [-2, -5]}, {"shape": [2**40, 2**40]}):
        gives(SafetensorError, TensorSpec, **{"dtype": "float32", "shape": (2, 5),
                                              "data_ptr": array.ctypes.data, "data_len": 40, **bad})
    gives(TypeError, st.serialize, {"a": {"dtype": "float32", "shape": [0]}})


@case
def handles_and_facts():
    np = numpy()
    path = f"{work}/handle"
    st.save_file({"a": np.arange(3), "b": np.arange(4, dtype=np.uint8)}, path)
    with open(path, "rb") as f, st._safe_open_handle(f, framework="np", device="cpu") as g:
        f.close()
        eq(g.get_tensor("a").tolist(), [0, 1, 2])
        eq(tuple(g.get_tensor_meta("b")), ("U8", [4], (24, 28)))
        e = gives(SafetensorError, g.get_tensor_meta, "c")
        true("does not contain" in str(e))
    for backend in ("mmap", "pread"):
        eq(st.load_file(path, backend=backend)["a"].tolist(), [0, 1, 2])
        with st.safe_open(path, "np", backend=backend) as g:
            eq(g.get_slice("a")[[]].shape, (0,))
            gives(SafetensorError, g.get_slice("a").__getitem__, [0])
    gives(SafetensorError, st.load_file, path, backend="tape")
    gives(SafetensorError, st.safe_open, path, "np", backend="tape")


def big_file(t, count=6):
    path = f"{work}/prefetch"
    want = {f"t{n}": t.full((64, 1 << 17), n, dtype=t.float32) for n in range(count)}
    want["one"] = t.tensor(7.0)
    want["none"] = t.zeros(0, 3)
    st.save_file(want, path)
    return path, want


@case
def tensors_in_the_background():
    t = torch()
    path, want = big_file(t)
    loader = st.safe_open(path, "pt").prefetch()    # the loader outlives its handle
    eq((len(loader), sorted(loader.names())), (8, sorted(want)))
    true((loader.take("t3") == 3).all())
    gives(SafetensorError, loader.take, "t3")
    gives(SafetensorError, loader.take, "t9")
    rest = dict(loader)
    eq(sorted(rest), sorted(set(want) - {"t3"}))
    for name, tensor in rest.items():
        true(t.equal(tensor, want[name]), name)
    eq(dict(loader), {})
    loader.close()
    gives(SafetensorError, loader.take, "t1")
    true((rest["t5"] == 5).all())
    with st.safe_open(path, "pt") as f:
        with f.prefetch({"t1": slice(3, 5), "t2": slice(-1, 64), "t0": slice(7, 7), "one": None}
                        ) as parts:
            eq({name: tuple(x.shape) for name, x in parts},
               {"t0": (0, 1 << 17), "t1": (2, 1 << 17), "t2": (1, 1 << 17), "one": ()})
        for plan in ({"no": None}, {"t0": slice(0, 3, 2)}, {"t0": slice(0, 3, 0)},
                     {"t0": slice(0, 65)}, {"one": slice(0, 1)}, {"t0": 3}, {}, ["t0"]):
            gives(SafetensorError, f.prefetch, plan)
        gives(SafetensorError, f.prefetch, threads=0)
    gives(SafetensorError, f.prefetch)
    with st.safe_open(path, "np") as f:
        gives(SafetensorError, f.prefetch)


@case
def a_loader_that_nobody_empties_ends():
    t = torch()
    path, _ = big_file(t)
    for _ in range(3):
        loader = st.safe_open(path, "pt").prefetch()
        next(iter(loader))
        thread = loader._thread
        del loader
        thread.join()
    # Many threads take tensors, and one closes the loader.
    loader = st.safe_open(path, "pt").prefetch()
    seen, lock = [], threading.Lock()

    def take():
        try:
            for name, _ in loader:
                with lock:
                    seen.append(name)
        except SafetensorError as e:
            true("closed" in str(e))
    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not seen and any(thread.is_alive() for thread in threads):
        pass
    loader.close()
    for thread in threads:
        thread.join()
    true(seen)
    eq(len(seen), len(set(seen)))


@case
def a_program_that_ends_while_it_prefetches():
    t = torch()
    path, _ = big_file(t)
    code = ("import sys, penstock.safetensors as st\n"
            "loader = st.safe_open(sys.argv[1], 'pt').prefetch()\n")
    forks = ("import os\nif os.fork() == 0:\n    try:\n        dict(loader)\n"
             "    except st.SafetensorError as e:\n        assert 'forked' in str(e)\n"
             "    del loader\n"
             "else:\n    sys.exit(os.wait()[1])\n")
    for rest in ("", "loader.take('t0')\n", forks):
        done = subprocess.run([sys.executable, "-c", code + rest, path], check=False,
                              capture_output=True, text=True, timeout=100)
        eq((done.returncode, done.stderr), (0, ""))


@case
def a_file_that_shrinks_while_it_is_prefetched():
    t = torch()
    path, _ = big_file(t)
    f = st.safe_open(path, "pt")
    os.truncate(path, 1 << 20)
    with f.prefetch() as loader:
        gives(SafetensorError, loader.take, "t5")
        gives(SafetensorError, dict, loader)


class Model:
    """Made on demand: tests that skip must not import torch."""

    def __new__(cls, t, shared=True):
        class Net(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = t.nn.Linear(5, 7)
                self.b = self.a if shared else t.nn.Linear(5, 7)
        return Net()


@case
def models_that_share_memory():
    t = torch()
    from penstock.safetensors import torch as st_torch
    model, path = Model(t), f"{work}/model"
    e = gives(RuntimeError, st_torch.save_file, model.state_dict(), path)
    true(isinstance(e, SafetensorError) and "save_model" in str(e))
    st_torch.save_model(model, path)
    with st.safe_open(path, "pt") as f:
        eq((f.keys(), f.metadata()),
           (["a.bias", "a.weight"], {"b.bias": "a.bias", "b.weight": "a.weight"}))
    other = Model(t)
    eq(st_torch.load_model(other, path), ([], []))
    true(t.equal(other.b.weight, model.a.weight))
    e = gives(RuntimeError, st_torch.load_model, Model(t, shared=False), path)
    true('"b.bias", "b.weight"' in str(e))
    eq(st_torch.load_model(Model(t, shared=False), path, strict=False),
       (["b.bias", "b.weight"], []))
    a = t.arange(10)
    # One tensor that covers several others, and parts that none covers.
    eq(sorted(map(sorted, st_torch._find_shared_tensors({"w": a, "x": a[:2], "y": a[5:]}))),
       [["w", "x", "y"]])
    gives(RuntimeError, st_torch.save_file, {"w": a, "x": a[:2], "y": a[5:]}, path)
    gives(RuntimeError, st_torch._remove_duplicate_names, {"x": a[:5], "y": a[3:]})
    st_torch.save_file({"x": a[:5], "y": a[5:]}, path)
    eq(st_torch.load_file(path)["y"].tolist(), [5, 6, 7, 8, 9])
    eq(st_torch.load(st_torch.save({"x": a}))["x"].tolist(), a.tolist())
    gives(RuntimeError, st_torch.save, {"w": a, "x": a[:2]})
    e = gives(SafetensorError, st_torch.save_file, {"s": t.eye(3).to_sparse()}, path)
    true("to_dense" in str(e))


@case
def the_default_device_is_not_asked():
    t = torch()
    if not hasattr(t, "set_default_device"):
        return
    path = f"{work}/default"
    st.save_file({"a": t.arange(100000)}, path)
    t.set_default_device("meta")
    try:
        tensor = st.load_file(path, framework="pt")["a"]
        eq((tensor.device.type, int(tensor[-1])), ("cpu", 99999))
    finally:
        t.set_default_device("cpu")


@case
def programs_of_the_package():
    np = numpy()
    path = f"{work}/patched"
    st.save_file({"a": np.arange(3)}, path)
    gone = {name: sys.modules.pop(name) for name in list(sys.modules)
            if name.partition(".")[0] == "safetensors"}
    # Make a package of that name with the real one's layout, and a program that has imported it.
    package, for_numpy = types.ModuleType("safetensors"), types.ModuleType("safetensors.numpy")

    class safe_open:
        def __init__(self, filename, framework, device="cpu", **options):
            self.told = (filename, framework, device, options)

    def theirs(*args, **options):
        return "theirs"
    class TheirError(Exception):
        pass
    package.SafetensorError = TheirError
    package.safe_open, for_numpy.load_file, for_numpy.save_file = safe_open, theirs, lambda: None
    package.__path__ = []
    program = types.ModuleType("program")
    program.opens, program.loads = safe_open, theirs
    # Run another program, which itself uses our package, before and afterwards.
    from penstock.safetensors.numpy import save_file
    program.ours = (st.SafetensorError, st.safe_open, save_file)
    program.error, program.our_opens, program.our_saves = program.ours
    sys.modules.update({"safetensors": package, "safetensors.numpy": for_numpy,
                        "program": program})
    try:
        with st.patched():
            with st.patched():
                pass
            with program.opens(path, framework="np") as f:
                true(isinstance(f, package.safe_open) and not isinstance(1, package.safe_open))
                true(isinstance(package.safe_open, type))
                eq(f.get_tensor("a").tolist(), [0, 1, 2])
            eq(program.loads(path)["a"].tolist(), [0, 1, 2])
            gives(package.SafetensorError, program.opens(path, "np").get_tensor, "nothing")
            eq(program.opens(path, "flax").told, (path, "flax", "cpu", {}))
            eq(program.opens(path, "pt", device="mps", backend="pread").told[2:],
               ("mps", {"backend": "pread"}))
            late = types.ModuleType("late")
            late.opens = package.safe_open
            sys.modules["late"] = late
        true(program.opens is safe_open and late.opens is safe_open)
        true(package.SafetensorError is TheirError)
        eq((program.error, program.our_opens, program.our_saves), program.ours)
        true(package.safe_open is safe_open and for_numpy.load_file is theirs)
        gives(ZeroDivisionError, fails_inside)
        true(program.opens is safe_open)
    finally:
        for name in ("safetensors", "safetensors.numpy", "program", "late"):
            sys.modules.pop(name, None)
        sys.modules.update(gone)


def fails_inside():
    with st.patched():
        raise ZeroDivisionError


run()
