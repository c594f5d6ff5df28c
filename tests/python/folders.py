# SPDX-License-Identifier: MIT
"""Folders with models: which files count, and errors about other files."""
import json
import os

from tap import case, eq, file, gives, numpy, run, torch, true, work

import penstock
from penstock.safetensors import (SafetensorError, _frames, load_file, load_files, safe_open,
                                  save_file)

ONE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
APPLE = bytes.fromhex("0005160700020000") + bytes(4088)     # macOS' metadata file for another file


def raw_file(name, header, data=b"abcd"):
    raw = json.dumps(header).encode()
    return file(name, len(raw).to_bytes(8, "little") + raw + data)


def folder(name, *files):
    np = numpy()
    path = f"{work}/{name}"
    os.mkdir(path)
    for number, name in enumerate(files):
        save_file({f"t{number}": np.full(3, number)}, f"{path}/{name}")
    return path


def index(path, weights, name="model.safetensors.index.json"):
    with open(f"{path}/{name}", "w", encoding="utf-8") as f:
        json.dump({"weight_map": weights}, f)
    return f"{path}/{name}"


def refused(path, *words):
    e = gives(SafetensorError, load_file, path)
    for word in words + (os.fspath(path),):
        true(word in str(e), f"{e}, and not {word}")


@case
def hidden_names_and_what_is_no_file_do_not_count():
    path = folder("hidden", "model.safetensors")
    for name in ("._model.safetensors", ".model.safetensors", "._model.safetensors.index.json"):
        with open(f"{path}/{name}", "wb") as f:
            f.write(APPLE)
    os.mkdir(f"{path}/more.safetensors")
    os.mkfifo(f"{path}/pipe.safetensors")
    os.symlink("more.safetensors", f"{path}/link.safetensors")
    eq(list(load_file(path)), ["t0"])
    eq(list(load_files([path.encode()])), ["t0"])
    # A missing part of the model is detected.
    os.symlink("../blobs/gone", f"{path}/dead.safetensors")
    refused(path, "dead.safetensors", "model.safetensors")
    os.unlink(f"{path}/model.safetensors")
    e = gives(FileNotFoundError, load_file, path)
    true("symbolic link to ../blobs/gone, where no file is" in str(e), str(e))


@case
def folders_of_several_models_are_refused():
    for name, files, words in (
            ("mistral", ["model.safetensors", "consolidated.safetensors"], []),
            ("stray", ["model.safetensors", "adapter_model.safetensors", "optimizer.safetensors"],
             []),
            ("both", ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                      "model.safetensors"], ["model-*-of-00002.safetensors"]),
            ("two-sets", ["model-00001-of-00001.safetensors",
                          "consolidated-00001-of-00001.safetensors"], ["model-*-of-00001"])):
        path = folder(name, *files)
        refused(path, "no index", "load_files()", *(words or files))
        e = gives(SafetensorError, load_file, path, names=["t0"])
        true("no index" in str(e), str(e))
        # The message says that files can be named, and naming all of them works.
        eq(len(load_files([f"{path}/{name}" for name in files])), len(files))
        eq(list(load_file(f"{path}/{files[0]}")), ["t0"])
        index(path, {"t0": files[0]})
        eq(list(load_file(path)), ["t0"])
    path = folder("many", *(f"part{n:02}.safetensors" for n in range(20)))
    refused(path, "part00.safetensors", "and 12 more")


@case
def folders_of_one_model():
    path = folder("set", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    eq(sorted(load_file(path)), ["t0", "t1"])
    eq(list(load_file(path, names=["t1"])), ["t1"])
    e = gives(SafetensorError, load_file, path, names=["x"])
    true(path in str(e) and "'x'" in str(e), str(e))
    os.unlink(f"{path}/model-00002-of-00002.safetensors")
    refused(path, "did not come to its end")
    # torch's writer also numbers the ranks.
    path = folder("ranks", "shard-00001-model-00001-of-00002.safetensors",
                  "shard-00002-model-00001-of-00002.safetensors",
                  "shard-00002-model-00002-of-00002.safetensors")
    eq(sorted(load_file(path)), ["t0", "t1", "t2"])
    # Folders, indexes and files in one call.
    np = numpy()
    save_file({"more": np.ones(3)}, f"{work}/more")
    eq(sorted(load_files([path, f"{work}/more"])), ["more", "t0", "t1", "t2"])
    refused(folder("none"), "there are no safetensors files")
    gives(FileNotFoundError, load_file, f"{work}/nothing")
    e = gives(TypeError, load_files, path)
    true("load_file()" in str(e), str(e))


@case
def indexes():
    path = folder("indexed", "a.safetensors", "b.safetensors", "stray.safetensors")
    of_a_and_b = index(path, {"t0": "a.safetensors", "t1": "b.safetensors"})
    for name in (path, of_a_and_b, of_a_and_b.encode()):
        eq(sorted(load_file(name)), ["t0", "t1"])
        eq(list(load_file(name, names=["t1"])), ["t1"])
    os.unlink(f"{path}/a.safetensors")
    eq(list(load_file(path, names=["t1"])), ["t1"])
    gives(FileNotFoundError, load_file, path)
    index(path, {"t1": "b.safetensors", "x": "b.safetensors"})
    e = gives(SafetensorError, load_file, path)
    true("the index says that tensor 'x' is here" in str(e), str(e))
    index(path, {})
    eq(load_file(path), {})
    index(path, {"t1": "b.safetensors"}, "other.safetensors.index.json")
    refused(path, "several indexes")
    eq(list(load_file(f"{path}/other.safetensors.index.json")), ["t1"])
    refused(file("no.index.json", b"[]"), "no index of safetensors files")


@case
def dead_links_say_where_they_lead():
    os.makedirs(f"{work}/hub/snapshots/x")
    path = f"{work}/hub/snapshots/x/model.safetensors"
    os.symlink("../../blobs/abc", path)
    numpy()
    for call in (lambda: penstock.File(path), lambda: load_file(path),
                 lambda: load_files([path]), lambda: safe_open(path, "np"),
                 lambda: load_file(os.path.dirname(path))):
        e = gives(FileNotFoundError, call)
        true("a symbolic link to ../../blobs/abc, where no file is" in str(e), str(e))


@case
def devices_by_other_names():
    np = numpy()
    path = f"{work}/devices"
    save_file({"a": np.ones(3)}, path)
    for device, name in (("gpu", "cuda:0"), ("cuda", "cuda:0"), ("GPU:0", "cuda:0"),
                         ("cuda0", "cuda:0"), ("gpu:3", "cuda:3"), (1, "cuda:1")):
        e = gives(SafetensorError, load_file, path, device)
        true(f"take framework='pt' and device='{name}'" in str(e), str(e))
    for device in ("CPU", "mps", "tpu", -1):
        e = gives(SafetensorError, load_file, path, device)
        true("arrays of numpy are on 'cpu'" in str(e) and "cuda" not in str(e), str(e))
    torch()
    for device, name in (("gpu", "cuda:0"), ("GPU:0", "cuda:0"), ("cuda0", "cuda:0"),
                         ("CUDA:1", "cuda:1"), ("cuda:", "cuda:0"), ("CPU", "cpu"),
                         ("host", "cpu")):
        e = gives(SafetensorError, load_file, path, device, framework="pt")
        true(f"take '{name}'" in str(e), str(e))
    for device in ("mps", "tpu", -1):
        e = gives(SafetensorError, load_file, path, device, framework="pt")
        true("'cpu' and 'cuda:N' are" in str(e), str(e))


@case
def types_that_numpy_lacks_get_a_cure_that_works():
    numpy()
    for dtype, nbytes, words in (("F4", 4, "take framework='pt', or take raw=True"),
                                 ("F6_E2M3", 6, "; take raw=True"),
                                 ("F6_E3M2", 6, "; take raw=True")):
        path = raw_file("bits", {"x": {"dtype": dtype, "shape": [8], "data_offsets": [0, nbytes]}},
                        bytes(nbytes))
        e = gives(SafetensorError, load_file, path)
        true("'x'" in str(e) and words in str(e) and "ml_dtypes" not in str(e), str(e))
        eq(load_file(path, raw=True)["x"].nbytes, nbytes)
    path = raw_file("f8", {"x": {**ONE, "dtype": "F8_E8M0"}})
    # The package is missing, or too old.
    for found, words in ((ImportError, "; install ml_dtypes"), (AttributeError, "a newer one")):
        def missing(name, found=found, real=_frames.importlib.import_module):
            if name == "ml_dtypes":
                if found is ImportError:
                    raise ImportError
                return object()
            return real(name)
        real, _frames.importlib.import_module = _frames.importlib.import_module, missing
        try:
            e = gives(SafetensorError, load_file, path)
        finally:
            _frames.importlib.import_module = real
        true(words in str(e), str(e))


@case
def more_dimensions_than_numpy_has():
    np = numpy()
    most = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32
    path = raw_file("dimensions", {
        "few": ONE, "most": {"dtype": "U8", "shape": [1] * most, "data_offsets": [4, 5]},
        "more": {"dtype": "U8", "shape": [1] * (most + 1), "data_offsets": [5, 6]}}, b"abcdef")
    e = gives(SafetensorError, load_file, path)
    true(f"tensor 'more' has {most + 1} dimensions" in str(e) and str(most) in str(e), str(e))
    got = load_file(path, names=["few", "most"])
    eq((got["few"].tolist(), got["most"].ndim), ([97, 98, 99, 100], most))
    with safe_open(path, "np") as f:
        eq(f.get_tensor("few").tolist(), [97, 98, 99, 100])
        for read in (f.get_tensor, lambda name: f.get_slice(name)[...]):
            e = gives(SafetensorError, read, "more")
            true("'more'" in str(e), str(e))
    t = torch()
    eq(load_file(path, framework="pt")["more"].reshape(-1).tolist(), [102])
    raw_names = {"a\0b": t.ones(2)}
    save_file(raw_names, f"{work}/nul", {"k\0": "v\0"})
    with safe_open(f"{work}/nul", "pt") as f:
        eq((f.keys(), f.metadata()), (["a\0b"], {"k\0": "v\0"}))


@case
def tensors_that_nobody_could_read_are_not_saved():
    t = torch()
    path = f"{work}/unreadable"

    class Wrapper(t.Tensor):
        @staticmethod
        def __new__(cls, of):
            return t.Tensor._make_wrapper_subclass(cls, of.shape, dtype=of.dtype)

        @classmethod
        def __torch_dispatch__(cls, function, kinds, args=(), kwargs=None):
            raise NotImplementedError(str(function))
    for tensor, words in (
            (t.eye(3).to_sparse(), "is sparse; call its to_dense()"),
            (t.eye(3).to_sparse_csr(), "is sparse; call its to_dense()"),
            (t.nested.nested_tensor([t.ones(2), t.ones(3)]), "is nested; save what its unbind()"),
            (t.ones(3).to_mkldnn(), "is of mkldnn; call its to_dense()"),
            (t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8), "call its dequantize()"),
            (t.ones(3, dtype=t.complex128), "has no torch.complex128; save torch.view_as_real()"),
            (t.ones(6).expand(2, 6), "is not contiguous; call its contiguous()"),
            (Wrapper(t.ones(3)), "is of 'Wrapper', whose bytes are elsewhere")):
        e = gives(SafetensorError, save_file, {"good": t.ones(3), "x": tensor}, path)
        true("'x'" in str(e) and words in str(e), str(e))
        true(not os.path.exists(path), "a file was made")


run()
