# SPDX-License-Identifier: MIT
"""Load and save tensors of numpy and, if it is installed, torch."""
import contextlib
import errno
import gc
import itertools
import json
import os
import stat
import struct
import threading

from tap import case, eq, file, gives, numpy, run, torch, true, work

import penstock
from penstock.safetensors import (SafetensorError, _frames, _into, load_file, load_files, safe_open,
                                  save_file)

TYPES = ["bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32",
         "uint64", "int64", "float64", "complex64"]
SHAPES = [(), (1,), (3,), (0,), (2, 0, 3), (1, 1, 1), (5, 7), (2, 3, 4, 5), (70000,)]


def raw_file(name, tensors, align=True):
    """Write a file without the package: tensors is {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for key, (dtype, shape, content) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape,
                       "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8 + (0 if align else 3))
    return file(name, struct.pack("<Q", len(head)) + head + data)


def models():
    np = numpy()
    rng = np.random.default_rng(1)
    return {f"{kind}/{list(shape)}": np.asarray(rng.random(shape) * 100).astype(kind)
            for kind, shape in itertools.product(TYPES, SHAPES)}


def same(got, want):
    np = numpy()
    eq(list(sorted(got)), sorted(want))
    for name, array in want.items():
        eq((name, got[name].dtype, got[name].shape), (name, array.dtype, array.shape))
        true(np.array_equal(got[name], array), name)


@case
def round_trip():
    path = f"{work}/round"
    want = models()
    save_file(want, path, {"format": "np", "\u00e9": ""})
    same(load_file(path), want)
    with safe_open(path, "numpy") as f:
        eq(f.metadata(), {"format": "np", "\u00e9": ""})
        eq(f.keys(), sorted(want))
        same(f.get_tensors(), want)
        same({name: f.get_tensor(name) for name in f.offset_keys()}, want)
        offsets = [f._header.tensors[name].begin for name in f.offset_keys()]
        eq(offsets, sorted(offsets))
    eq(os.listdir(work).count("round"), 1)
    true(not [name for name in os.listdir(work) if name.endswith(".tmp")])
    # The arrays belong to the caller: writable, and with memory of their own.
    array = load_file(path)["float32/[5, 7]"]
    array += 1
    save_file({}, path)
    eq(load_file(path), {})


@case
def large_tensors_agree_with_the_file_in_their_last_bits():
    np = numpy()
    path = f"{work}/large"
    save_file({"a": np.arange(100001, dtype=np.float32), "b": np.arange(300000)}, path)
    with safe_open(path, "np") as f:
        for name, entry in f._header.tensors.items():
            array = f.get_tensor(name)
            eq((array.ctypes.data - f._header.data - entry.begin) % 4096, 0)
            true(np.array_equal(array, np.arange(array.size)))


@case
def misaligned_files():
    np = numpy()
    want = np.arange(100000, dtype=np.float64)
    path = raw_file("odd", {"c": ("U8", [3], b"abc"), "a": ("F64", [100000], want.tobytes())},
                    align=False)
    got = load_file(path)
    true(np.array_equal(got["a"], want))
    eq(got["c"].tobytes(), b"abc")


@case
def types_that_numpy_lacks():
    np = numpy()
    tensors = {"bf16": ("BF16", [2, 2], b"\x80\x3f\x00\x40" * 2),
               "f8": ("F8_E4M3", [4], b"\x01\x02\x03\x04"), "e5": ("F8_E5M2", [1], b"\x01"),
               "e8": ("F8_E8M0", [1], b"\x01"), "f4": ("F4", [4, 2], b"\x01\x02\x03\x04"),
               "f6": ("F6_E2M3", [4], b"\x01\x02\x03"), "f32": ("F32", [1], bytes(4))}
    path = raw_file("few-bits", tensors)
    got = load_file(path, raw=True)
    eq((got["bf16"].dtype.name, got["bf16"].tolist()), ("uint16", [[0x3f80, 0x4000]] * 2))
    eq((got["f8"].dtype.name, got["f8"].tolist()), ("uint8", [1, 2, 3, 4]))
    eq((got["f4"].shape, got["f6"].tolist()), ((4,), [1, 2, 3]))
    eq(got["f32"].dtype.name, "float32")
    e = gives(SafetensorError, load_file, path)
    true("raw=True" in str(e), str(e))
    with safe_open(path, "np", raw=True) as f:
        eq(f.get_slice("bf16")[1].tolist(), [0x3f80, 0x4000])
        eq(f.get_slice("f4")[...].tolist(), [1, 2, 3, 4])
        gives(SafetensorError, f.get_slice("f4").__getitem__, 0)
    try:
        import ml_dtypes
    except ImportError:
        with safe_open(path, "np") as f:
            gives(SafetensorError, f.get_tensor, "bf16")
            eq(f.get_tensor("f32").tolist(), [0.0])
        return
    with safe_open(path, "np") as f:
        array = f.get_tensor("bf16")
        eq((array.dtype, array.tolist()), (np.dtype(ml_dtypes.bfloat16), [[1.0, 2.0]] * 2))


@case
def slices_are_those_of_numpy():
    np = numpy()
    arrays = {"a": np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.int16),
              "one": np.array(7.0), "empty": np.zeros((3, 0)), "row": np.arange(10)}
    path = f"{work}/slices"
    save_file(arrays, path)
    items = [0, -1, 1, slice(None), slice(1, None), slice(1, 2), slice(0, 0), slice(-2, None),
             slice(None, None, 2), slice(1, 100, 3)]
    with safe_open(path, "np") as f:
        part = f.get_slice("a")
        eq((part.get_shape(), part.get_dtype()), ([2, 3, 4, 5], "I16"))
        indexes = [(i, j, k) for i in items for j in items for k in items]
        indexes += [(), ..., (..., 1), (0, ..., slice(1, 3)), (0, 0, 0, 0), (..., slice(1, 4, 2))]
        for index in indexes:
            got, want = part[index], arrays["a"][index]
            eq((index, got.shape, got.dtype), (index, want.shape, want.dtype))
            true(np.array_equal(got, want), f"{index}")
        eq(f.get_slice("one")[...].item(), 7.0)
        eq(f.get_slice("one")[()].item(), 7.0)
        eq(f.get_slice("empty")[1:].shape, (2, 0))
        eq(f.get_slice("row")[3:5].tolist(), [3, 4])
        for index in (2, -3, (0, 0, 0, 0, 0), (..., ...), None, True, "a", 1.0, [0, 1],
                      slice(None, None, -1), slice(None, None, 0)):
            gives((SafetensorError, ValueError), part.__getitem__, index)
        gives(SafetensorError, f.get_slice, "nothing")
        gives(SafetensorError, f.get_tensor, "nothing")
    gives(SafetensorError, f.get_tensor, "a")
    gives(SafetensorError, part.__getitem__, 0)


@case
def slices_with_very_many_pieces():
    np = numpy()
    path = f"{work}/pieces"
    array = np.arange(600000, dtype=np.int32).reshape(100000, 3, 2)
    save_file({"a": array}, path)
    with safe_open(path, "np") as f:
        part = f.get_slice("a")
        for index in ((..., 1), (slice(None), 1), (slice(5, 90000), slice(0, 2), slice(1, 2)),
                      (slice(0, 60000), 2, 0)):
            true(np.array_equal(part[index], array[index]), f"{index}")


@case
def several_files_at_once():
    np = numpy()
    for number in range(3):
        save_file({f"t{number}": np.full(100000, number)}, f"{work}/shard{number}")
    paths = [f"{work}/shard{number}" for number in range(3)]
    got = load_files(paths)
    eq([int(got[f"t{n}"].sum()) for n in range(3)], [0, 100000, 200000])
    eq(list(load_files(paths, names=["t1"])), ["t1"])
    gives(SafetensorError, load_files, paths, names=["t9"])
    e = gives(SafetensorError, load_files, [paths[0], paths[0]])
    true("t0" in str(e))
    gives(FileNotFoundError, load_files, [paths[0], f"{work}/nothing"])
    gives(SafetensorError, load_files, [paths[0], file("bad", b"12345678")])


@case
def progress_is_told():
    np = numpy()
    path = f"{work}/progress"
    save_file({"a": np.zeros(100), "b": np.zeros(5, np.uint8)}, path)
    told = []
    load_file(path, progress=lambda *args: told.append(args))
    eq(told[-1], (805, 805))

    def stop(so_far, total):
        raise KeyboardInterrupt
    try:
        load_file(path, progress=stop)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it went on")


@contextlib.contextmanager
def small_limits():
    """Lower the limits, so that files of some KiB are read like files of many GiB."""
    names = {"_OVERLAPS": 1, "_LARGE": 4096, "_GO": 20000, "_BATCH": 60000, "_PROGRESS": 30000,
             "_DEPTH": 4, "SMALL": 4096, "_PACK": 20000}
    before = {name: getattr(_into, name) for name in names}
    for name, value in names.items():
        setattr(_into, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(_into, name, value)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@case
def large_tensors_are_read_while_others_are_allocated():
    np = numpy()
    rng = np.random.default_rng(2)
    want = [{f"{k}.{n}": rng.integers(0, 255, int(rng.choice([0, 5, 700, 4096, 9000, 25000])),
                                      np.uint8) for n in range(60)} for k in range(3)]
    paths = [f"{work}/large-{k}" for k in range(3)]
    for path, tensors in zip(paths, want):
        save_file(tensors, path)
    everything = {name: array for tensors in want for name, array in tensors.items()}
    nbytes = sum(array.nbytes for array in everything.values())
    with small_limits():
        load_files(paths)
        before, told = descriptors(), []
        same(load_files(paths, progress=lambda *args: told.append(args)), everything)
        eq(told[-1], (nbytes, nbytes))
        true(len(told) > 5 and told == sorted(told), told)

        def stop(so_far, total):
            raise ZeroDivisionError
        gives(ZeroDivisionError, load_files, paths, progress=stop)
        # The second file is truncated while memory for the first one's tensors is allocated.
        empty, calls = _frames.Numpy.empty, []

        def cut(*args):
            calls.append(args)
            if len(calls) == 50:
                os.truncate(paths[1], 2000)
            return empty(*args)
        _frames.Numpy.empty = cut
        try:
            e = gives(SafetensorError, load_files, paths)
        finally:
            _frames.Numpy.empty = empty
        true(paths[1] in str(e) and "became shorter" in str(e), str(e))
        gc.collect()
        eq(descriptors(), before)


@case
def no_other_memory_grows_with_the_file():
    np = numpy()
    path = f"{work}/memory"
    save_file({f"t{n}": np.full(1 << 19, n) for n in range(32)}, path)

    def peak():
        with open("/proc/self/status", encoding="ascii") as f:
            return int([line for line in f if line.startswith("VmHWM")][0].split()[1]) << 10

    def now():
        with open("/proc/self/status", encoding="ascii") as f:
            return int([line for line in f if line.startswith("VmRSS")][0].split()[1]) << 10
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")
    before = now()
    got = load_file(path)
    eq(int(got["t31"][-1]), 31)
    used = peak() - before
    true(used < (128 << 20) + (32 << 20), f"{used} bytes for 128 MiB of tensors")


@case
def what_cannot_be_loaded():
    np = numpy()
    path = f"{work}/simple"
    save_file({"a": np.zeros(3)}, path)
    gives(FileNotFoundError, load_file, f"{work}/nothing")
    gives(FileNotFoundError, safe_open, f"{work}/nothing", "np")
    gives(IsADirectoryError, safe_open, work, "np")
    os.mkdir(f"{work}/no-models")
    e = gives(SafetensorError, load_file, f"{work}/no-models")
    true(f"{work}/no-models: there are no safetensors files" in str(e), str(e))
    gives(SafetensorError, load_file, path, framework="tf")
    gives(SafetensorError, load_file, path, "cuda:0")
    e = gives(SafetensorError, load_file, file("text", b"this is a text and no model"))
    true(f"{work}/text" in str(e), str(e))


@case
def what_cannot_be_saved():
    np = numpy()
    path = f"{work}/unsaved"
    for bad in ({"a": 1}, {"a": [1]}, {1: np.zeros(1)}, {"__metadata__": np.zeros(1)},
                {"a": np.array(["text"])}, {"a": np.zeros(1, np.complex128)},
                {"\ud800": np.zeros(1)}):
        gives(SafetensorError, save_file, bad, path)
    gives(SafetensorError, save_file, {}, path, {"a": 1})
    gives(FileNotFoundError, save_file, {}, f"{work}/no/such/folder")
    eq([name for name in os.listdir(work) if name.startswith("unsaved")], [])


@case
def no_file_takes_the_place_of_what_is_none():
    np = numpy()
    pipe, folder = f"{work}/place-pipe", f"{work}/place-folder"
    os.mkfifo(pipe)
    os.mkdir(folder)
    for path, kind in ((pipe, OSError), (folder, IsADirectoryError), ("", FileNotFoundError)):
        e = gives(kind, save_file, {"a": np.zeros(3)}, path)
        true(isinstance(e, penstock.Error) and e.filename == path, repr(e))
    true(stat.S_ISFIFO(os.stat(pipe).st_mode))
    os.symlink(pipe, f"{work}/place-link")
    gives(OSError, save_file, {"a": np.zeros(3)}, f"{work}/place-link")
    true(stat.S_ISFIFO(os.stat(pipe).st_mode))


@case
def names_of_files_may_be_as_long_as_any():
    np = numpy()
    for name in ("n" * 255, "n" * 240, "\u00e9" * 127, os.fsdecode(b"\xff" * 255)):
        save_file({"a": np.arange(3)}, f"{work}/{name}")
        eq(load_file(f"{work}/{name}")["a"].tolist(), [0, 1, 2])
    true(not [name for name in os.listdir(work) if name.endswith(".tmp")])


@case
def why_a_file_cannot_be_made_is_told():
    np = numpy()
    path = file("no-folder") + "/file"
    e = gives(penstock.Error, save_file, {"a": np.zeros(3)}, path)
    eq(e.errno, errno.ENOTDIR)


@case
def arrays_with_gaps_and_other_orders():
    np = numpy()
    array = np.arange(12).reshape(3, 4)
    read_only = np.arange(3)
    read_only.flags.writeable = False
    want = {"t": array.T, "gap": array[:, ::2], "big": array.astype(">i4"), "ro": read_only}
    path = f"{work}/gaps"
    save_file(want, path)
    got = load_file(path)
    for name, value in want.items():
        true(np.array_equal(got[name], value), name)


@case
def threads_share_an_open_file():
    np = numpy()
    path = f"{work}/shared"
    want = {f"t{n}": np.full((100, 100), n) for n in range(20)}
    save_file(want, path)
    failed = []
    with safe_open(path, "np") as f:
        def work_on(first):
            for number in range(200):
                n = (first + number) % 20
                if not (f.get_slice(f"t{n}")[5:50, 7] == n).all() or \
                        not (f.get_tensor(f"t{n}") == n).all():
                    failed.append(n)
        threads = [threading.Thread(target=work_on, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    eq(failed, [])


@case
def modules_for_one_framework():
    np = numpy()
    from penstock.safetensors import numpy as for_numpy
    for_numpy.save_file({"a": np.arange(3)}, f"{work}/module")
    eq(for_numpy.load_file(f"{work}/module")["a"].tolist(), [0, 1, 2])


@case
def strict():
    np = numpy()
    path = f"{work}/strict"
    save_file({"a": np.arange(3)}, path)
    try:
        eq(load_file(path, strict=True)["a"].tolist(), [0, 1, 2])
    except penstock.Error as e:
        true(e.result is not None)


@case
def tensors_of_torch():
    t = torch()
    kinds = [t.bfloat16, t.float32, t.uint8, t.bool, t.int64]
    kinds += [t.float8_e4m3fn] if hasattr(t, "float8_e4m3fn") else []   # torch 2.1
    want = {f"{kind}/{shape}": t.arange(24).reshape(2, 3, 4).to(kind)
            for kind in kinds for shape in ("a", "b")}
    want.update(one=t.tensor(3.0), empty=t.empty(0, 4), large=t.arange(100000))
    path = f"{work}/torch"
    save_file(want, path, {"format": "pt"})
    got = load_file(path, framework="pt")
    eq(sorted(got), sorted(want))
    for name, tensor in want.items():
        eq((name, got[name].dtype, got[name].shape), (name, tensor.dtype, tensor.shape))
        true((got[name].float() == tensor.float()).all(), name)
    with safe_open(path, "pt") as f:
        part = f.get_slice("torch.bfloat16/a")
        for index in (0, slice(1, None), (..., 1), (0, slice(None, None, 2))):
            true((part[index] == want["torch.bfloat16/a"][index]).all())
    gives(SafetensorError, save_file, {"a": t.zeros(3, 4).t()}, path)
    if t.cuda.is_available():
        for name, tensor in load_file(path, 0, framework="pt").items():
            true(tensor.is_cuda and (tensor.cpu().float() == want[name].float()).all(), name)


run()
