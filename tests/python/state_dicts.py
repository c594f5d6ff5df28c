# SPDX-License-Identifier: MIT
"""penstock.torch: state dicts in files and folders, and files of tensors."""
import json
import os
import resource
import subprocess
import sys
import threading
import time

from tap import Skip, case, eq, gives, run, torch, true, work

import penstock
from penstock import safetensors as st


@case
def torch_is_imported_by_nobody_who_does_not_ask():
    code = ("import sys, penstock, penstock.torch, penstock.safetensors.torch\n"
            "assert 'torch' not in sys.modules and 'numpy' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)


def state(t):
    return {"a": t.arange(1000).reshape(10, 100), "b": t.ones(3, dtype=t.bfloat16),
            "c": t.arange(7, dtype=t.uint8), "one": t.tensor(2.5), "none": t.empty(0, 3)}


def same(t, got, want):
    eq(sorted(got), sorted(want))
    for name, tensor in want.items():
        true(got[name].dtype == tensor.dtype and t.equal(got[name], tensor), name)


@case
def files_and_folders():
    t = torch()
    from penstock import torch as pt
    want = state(t)
    pt.save(want, f"{work}/one.safetensors")
    same(t, pt.load(f"{work}/one.safetensors"), want)
    eq(list(pt.load(f"{work}/one.safetensors", names=["c"])), ["c"])
    folder = f"{work}/folder"
    told = []
    pt.save(want, folder, shard_bytes=1000, metadata={"k": "v"})
    shards = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    eq((len(shards), len(os.listdir(folder))), (2, 3))
    same(t, pt.load(folder, progress=lambda *args: told.append(args)), want)
    eq(told[-1], (8017, 8017))
    index = f"{folder}/model.safetensors.index.json"
    same(t, pt.load(index), want)
    same(t, pt.load(index, names=["one", "a", "one"]), {"a": want["a"], "one": want["one"]})
    eq(pt.load(folder, names=[]), {})
    with open(index, encoding="utf-8") as file:
        eq(json.load(file)["metadata"], {"total_size": 8017})
    # A second save removes the first one's files, and keeps foreign ones.
    with open(f"{folder}/config.json", "w", encoding="ascii"):
        pass
    pt.save({"z": want["a"]}, folder, shard_bytes=1)
    same(t, pt.load(folder), {"z": want["a"]})
    eq(len(os.listdir(folder)), 3)
    # Without an index all files are read.
    os.unlink(index)
    same(t, pt.load(folder), {"z": want["a"]})
    gives(RuntimeError, pt.save, {"x": want["a"], "y": want["a"]}, folder, shard_bytes=1)
    gives(ValueError, pt.save, want, folder, shard_bytes=0)
    gives(FileNotFoundError, pt.load, f"{work}/nothing")
    os.mkdir(f"{work}/empty")
    gives(st.SafetensorError, pt.load, f"{work}/empty")


@case
def shards_of_a_save_that_did_not_end():
    t = torch()
    from penstock import torch as pt
    folder, want = f"{work}/partly", {name: t.ones(100) for name in "abc"}
    for tensor in want.values():
        tensor += 1
    pt.save(want, folder, shard_bytes=400)
    os.unlink(f"{folder}/model.safetensors.index.json")
    same(t, pt.load(folder), want)
    os.unlink(f"{folder}/{sorted(os.listdir(folder))[1]}")
    e = gives(st.SafetensorError, pt.load, folder)
    true("did not come to its end" in str(e), str(e))
    eq(list(pt.load(folder, names=["a"])), ["a"])
    # Another save in the same folder, with other names.
    pt.save({"z": t.ones(3)}, f"{work}/partly-two", shard_bytes=400)
    name, = [name for name in os.listdir(f"{work}/partly-two") if name.endswith("rs")]
    os.rename(f"{work}/partly-two/{name}", f"{folder}/{name}")
    e = gives(st.SafetensorError, pt.load, folder, names=["a"])
    true("several saves" in str(e), str(e))


@case
def more_files_than_descriptors():
    t = torch()
    from penstock import torch as pt
    folder = f"{work}/hundreds"
    want = {f"t{n}": t.full((3,), float(n)) for n in range(150)}
    pt.save(want, folder, shard_bytes=1, sync=False)
    used = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 140, limits[1]))
    try:
        same(t, pt.load(folder), want)
        eq(len(os.listdir("/proc/self/fd")), used)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    paths = [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith("rs")]
    last = paths[-1]

    def replaced(*_):
        st.save_file({"t149": t.ones(9)}, last)
    e = gives(st.SafetensorError, st.load_files, paths, framework="pt", progress=replaced)
    true("replaced" in str(e), str(e))


@case
def tensors_without_bytes_are_not_saved():
    t = torch()
    path = f"{work}/meta.safetensors"
    e = gives(RuntimeError, st.save_file, {"x": t.zeros(2, device="meta")}, path)
    true("Cannot copy out of meta tensor" in str(e) and "'x'" in str(e), str(e))
    true(not os.path.exists(path), "a file was made")


@case
def names_in_an_old_index_that_are_no_models():
    t = torch()
    from penstock import torch as pt
    folder = f"{work}/old"
    os.mkdir(folder)
    for name, text in (("config.json", "{}"), ("model.safetensors.index.json",
                                               '{"weight_map": {"a": "config.json"}}')):
        with open(f"{folder}/{name}", "w", encoding="ascii") as file:
            file.write(text)
    pt.save({"a": t.ones(3)}, folder, shard_bytes=100)
    true(os.path.exists(f"{folder}/config.json"))


@case
def a_callback_may_close_the_file():
    t = torch()
    from penstock import torch as pt
    path = f"{work}/closes"
    with open(path, "wb") as file:
        file.write(bytes(100))
    used, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    closed = threading.Event()

    def close(_):
        f.close()
        closed.set()
    for _ in range(20):
        closed.clear()
        f = pt.File(path)
        future = f.pread_future(t.zeros(4))
        future.add_done_callback(close)
        eq(future.result(10), 16)
        true(closed.wait(10), "close() raised")
    end = time.monotonic() + 10
    while time.monotonic() < end and threading.active_count() > threads:
        time.sleep(0.01)
    eq((len(os.listdir("/proc/self/fd")), threading.active_count()), (used, threads))


@case
def indexes_that_lie():
    t = torch()
    from penstock import torch as pt
    folder = f"{work}/lies"
    pt.save(state(t), folder, shard_bytes=1000)
    index = f"{folder}/model.safetensors.index.json"
    with open(index, encoding="utf-8") as file:
        good = json.load(file)["weight_map"]
    file_of = good["a"]
    for bad in ({**good, "more": file_of}, {k: v for k, v in good.items() if k != "b"},
                {**good, "a": good["c"]}, {**good, "a": "../x"}, {**good, "a": "/etc/passwd"},
                {**good, "a": ".."}, {**good, "a": 1}, {**good, "a": ""}, [], 1,
                {"a": "x\0"}, {"a": "\ud800"}):
        with open(index, "w", encoding="utf-8") as file:
            json.dump({"weight_map": bad}, file)
        gives(st.SafetensorError, pt.load, folder)
    with open(index, "w", encoding="utf-8") as file:
        json.dump({"weight_map": {**good, "a": "no.safetensors"}}, file)
    gives(FileNotFoundError, pt.load, folder)
    same(t, pt.load(folder, names=["c"]), {"c": state(t)["c"]})
    gives(st.SafetensorError, pt.load, folder, names=["nothing"])
    for text in ("", "{", "[]", "{}", '{"weight_map": {"a": "x", "a": "y"}}', "[" * 100000):
        with open(index, "w", encoding="utf-8") as file:
            file.write(text)
        gives(st.SafetensorError, pt.load, folder)
    os.unlink(index)
    os.mkfifo(index)
    e = gives(st.SafetensorError, pt.load, folder)
    true("regular" in str(e), str(e))
    with open(f"{folder}/other.safetensors.index.json", "w", encoding="utf-8") as file:
        file.write("{}")
    e = gives(st.SafetensorError, pt.load, folder)
    true("several" in str(e))


@case
def a_save_that_fails_leaves_the_old_one():
    t = torch()
    from penstock import torch as pt
    folder, want = f"{work}/stays", state(t)
    pt.save(want, folder, shard_bytes=1000)
    before = sorted(os.listdir(folder))
    wrong = {"a": want["a"], "g": t.arange(10)[::2]}
    gives(st.SafetensorError, pt.save, wrong, folder, shard_bytes=1)
    replaced = os.replace
    try:
        def fails(source, target):
            if target.endswith(".json"):
                raise OSError(28, "full")
            replaced(source, target)
        os.replace = fails
        gives(28, pt.save, {"z": want["a"], "y": want["b"]}, folder, shard_bytes=1)
    finally:
        os.replace = replaced
    eq(sorted(os.listdir(folder)), before)
    same(t, pt.load(folder), want)


@case
def two_saves_at_once():
    t = torch()
    from penstock import torch as pt
    from penstock.torch import _models
    path = f"{work}/two-saves"
    for name in ("ending", "write"):
        pt.save({"w": t.zeros(10)}, path, shard_bytes=100)
        real = getattr(_models, name)

        def late(*args, name=name, real=real):
            # Make the second save, from its beginning to its end.
            setattr(_models, name, real)
            if name == "write":
                real(*args)
            pt.save({"w": t.full((10,), 2.0)}, path, shard_bytes=100)
            return real(*args) if name == "ending" else None
        setattr(_models, name, late)
        e = gives(st.SafetensorError, pt.save, {"w": t.ones(10)}, path, shard_bytes=100)
        true("another save into this folder" in str(e), str(e))
        eq(pt.load(path)["w"].tolist(), [2.0] * 10)
        eq(len(os.listdir(path)), 2)


@case
def a_disk_that_fails_behind_the_index():
    t = torch()
    from penstock import torch as pt
    from penstock import _replace
    path, calls, sync = f"{work}/behind", [], _replace.sync_folder
    pt.save({"w": t.zeros(10)}, path, shard_bytes=100)

    def fails(folder):
        calls.append(folder)
        if len(calls) == 2:
            raise OSError(5, "input/output error")
        sync(folder)
    _replace.sync_folder = fails
    try:
        gives(5, pt.save, {"w": t.ones(10)}, path, shard_bytes=100)
    finally:
        _replace.sync_folder = sync
    eq(pt.load(path)["w"].tolist(), [1.0] * 10)
    pt.save({"w": t.ones(10)}, path, shard_bytes=100)
    eq(len(os.listdir(path)), 2)


@case
def tensors_and_files():
    t = torch()
    from penstock import torch as pt
    path = f"{work}/raw"
    data = t.arange(1000, dtype=t.int32)
    with pt.File(path, "w+") as f:
        eq(f.pwrite(data), 4000)
        eq(f.pwrite(data, 4000, 40, tensor_offset=400), 40)
        f.sync()
        eq(f.size, 4040)
        got = t.zeros(10, 10, dtype=t.int32)
        eq(f.pread(got, 400), 400)
        true(t.equal(got.reshape(-1), data[100:200]))
        eq(f.pread(got, 4000, 40, tensor_offset=360), 40)
        true(t.equal(got[9], data[100:110]))
        for kind in (t.bfloat16, t.bool, t.complex64, t.int8):
            tensor = t.zeros(3, 4).to(kind)
            eq(f.pread(tensor, 0), tensor.numel() * tensor.element_size())
        eq(f.pread(t.nn.Parameter(t.zeros(2)), 8), 8)
        eq(f.pread(t.zeros(()), 4), 4)
        eq(f.pread(t.zeros(0), 4), 0)
        part = t.zeros(4, 4, dtype=t.int32)
        f.pread(part[1:3], 0)
        eq(part[1].tolist(), [0, 1, 2, 3])
        gives(penstock.ShortRead, f.pread, t.zeros(10), 4036)
        for call, wrong, meant in ((f.pread, "shrot", "short"), (f.pwrite, "polcy", "policy"),
                                   (f.pread_future, "tensor_ofset", "tensor_offset")):
            for size in (0, 10):
                e = gives(TypeError, call, t.zeros(size), **{wrong: 1})
                true(f"'{wrong}'" in str(e) and f"did you mean '{meant}'?" in str(e), str(e))
        eq(f.pread(t.zeros(10), 4036, short=True), 4)
        for bad in (part.t(), part[:, 1], t.zeros(2, dtype=t.complex64).conj(),
                    t.eye(3).to_sparse()):
            gives(ValueError, f.pread, bad)
        gives(ValueError, f.pread, t.zeros(2, device="meta"))
        gives(TypeError, f.pread, bytearray(4))
        gives(ValueError, f.pread, part, 0, 65)
        gives(ValueError, f.pread, part, 0, 64, tensor_offset=1)
        gives(ValueError, f.pread, part, -1)
        gives(ValueError, f.pread, part, stream=1)
        parts = [t.zeros(10, dtype=t.int32) for _ in range(100)]
        futures = [f.pread_future(tensor, 40 * n) for n, tensor in enumerate(parts)]
        eq(sum(future.result() for future in futures), 4000)
        true(t.equal(t.cat(parts), data))
        gives(penstock.ShortRead, f.pread_future(t.zeros(10), 5000).result)
        eq(f.pwrite_future(data, 8000).result(), 4000)
        pid = os.fork()
        if not pid:
            # The library belongs to the parent; the test is that nothing waits for the parent's
            # threads.
            try:
                f.pread_future(t.zeros(10)).result(100)
            except penstock.Error:
                os._exit(0)
            finally:
                os._exit(1)
        eq(os.waitpid(pid, 0)[1], 0)
        last = f.pwrite_future(data, 12000)
    eq(last.result(), 4000)     # close() waits
    gives(ValueError, f.pread, part)
    gives(ValueError, f.pread_future, part)
    f.close()


@case
def tensors_of_gpus_and_files():
    t = torch()
    from penstock import torch as pt
    if not t.cuda.is_available():
        raise Skip("torch with a GPU")
    want = state(t)
    pt.save({name: tensor.cuda() for name, tensor in want.items()}, f"{work}/gpu", shard_bytes=99)
    got = pt.load(f"{work}/gpu", 0)
    true(all(tensor.is_cuda for tensor in got.values()))
    same(t, {name: tensor.cpu() for name, tensor in got.items()}, want)
    stream = t.cuda.Stream()
    with pt.File(f"{work}/raw-gpu", "w+") as f, t.cuda.stream(stream):
        a = t.zeros(1 << 24, device="cuda")
        for _ in range(300):
            a += 1
        future = f.pwrite_future(a)     # after the work on the stream
        eq(future.result(), 4 << 24)
        b = t.empty_like(a)
        eq(f.pread(b), 4 << 24)
        true(t.equal(a, b) and int(b[-1]) == 300)
        for _ in range(300):
            a += 1
        eq(f.pwrite(a, stream=stream), 4 << 24)
        part = t.zeros(10, 10, device="cuda")
        eq(f.pread_future(part[5:], 40).result(), 200)
        eq((int(part[5, 0]), int(part[4, 0])), (600, 0))
    with st.safe_open(f"{work}/gpu/{sorted(os.listdir(f'{work}/gpu'))[0]}", "pt") as f:
        with f.prefetch(device="cuda:0") as loader:
            for name, tensor in loader:
                true(tensor.is_cuda and t.equal(tensor.cpu(), want[name]))


@case
def many_threads_share_a_file():
    t = torch()
    from penstock import torch as pt
    path, bad = f"{work}/threads", []
    data = t.arange(100000)
    with pt.File(path, "w+") as f:
        f.pwrite(data)

        def work_on(seed):
            for n in range(100):
                at = (seed * 7919 + n * 104729) % 99000
                got = t.zeros(1000, dtype=t.int64)
                f.pread_future(got, 8 * at).result()
                if not t.equal(got, data[at:at + 1000]):
                    bad.append(at)
        threads = [threading.Thread(target=work_on, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    eq(bad, [])


run()
