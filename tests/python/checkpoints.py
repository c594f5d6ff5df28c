# SPDX-License-Identifier: MIT
"""penstock.torch's StorageReader and StorageWriter for torch.distributed.checkpoint."""
import enum
import importlib
import io
import logging
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import warnings
import zipfile

from tap import Skip, case, eq, gives, run, torch, true, work

RANK = f"{os.path.dirname(os.path.abspath(__file__))}/checkpoint_rank.py"


class Parts:
    """torch, its checkpoints, and our classes."""

    def __init__(self):
        self.t = torch()
        try:
            self.dcp = importlib.import_module("torch.distributed.checkpoint")
            self.dcp.save, self.dcp.load, self.dcp.api
        except (ImportError, AttributeError):
            raise Skip("torch.distributed.checkpoint as of torch 2.3") from None
        self.pt = importlib.import_module("penstock.torch")
        self.R, self.W = self.pt.StorageReader, self.pt.StorageWriter
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)

    def _call(self, call, *args, **options):
        try:
            return call(*args, **options)
        except self.dcp.api.CheckpointException as e:
            # CheckpointException is a BaseException; raise an Exception.
            raise Failed(e) from None

    def save(self, *args, **options):
        return self._call(self.dcp.save, *args, **options)

    def load(self, *args, **options):
        return self._call(self.dcp.load, *args, **options)


class Failed(Exception):
    """A rank failed; errors has the exceptions."""

    def __init__(self, error):
        super().__init__(str(error))
        self.errors = [failure[0] for failure in error.failures.values()]


def state(t, seed=1):
    t.manual_seed(seed)
    want = {"a": t.randn(300, 400), "gaps": t.randn(6, 8).t(), "one": t.tensor(3.5),
            "none": t.empty(0, 3), "large": t.randn(70000).bfloat16(),
            "model": {"w": t.arange(24).reshape(2, 3, 4), "lr": 0.1}, "step": seed,
            "text": "x" * 100}
    for kind in ("bool", "uint8", "int16", "int64", "float16", "float64", "complex64",
                 "complex128", "float8_e4m3fn", "uint16"):
        if hasattr(t, kind):
            want[kind] = t.arange(12).reshape(3, 4).to(getattr(t, kind))
    return want


def empty(t, want):
    return {name: t.zeros_like(value) if isinstance(value, t.Tensor) else
            empty(t, value) if isinstance(value, dict) else None for name, value in want.items()}


def same(t, got, want):
    eq(sorted(got), sorted(want))
    for name, value in want.items():
        if isinstance(value, dict):
            same(t, got[name], value)
        elif isinstance(value, t.Tensor):
            a, b = got[name], value
            true((a.dtype, a.shape) == (b.dtype, b.shape), name)
            true(t.equal(a.contiguous().reshape(-1).view(t.uint8),
                         b.contiguous().reshape(-1).view(t.uint8)), name)
        else:
            eq(got[name], value)


def load(p, reader, want):
    got = empty(p.t, want)
    p.load(got, storage_reader=reader)
    return got


def logged(function, *args, **options):
    """Call a function.  Return its result and the warnings in our log."""
    lines, log = [], logging.getLogger("penstock")
    log.warning = lambda text, *values: lines.append(text % values)
    try:
        return function(*args, **options), lines
    finally:
        del log.warning


def refused(p, path, target, word):
    """Loading must fail with this word; if torch hides the error, our log must have it."""
    e, lines = logged(gives, Failed, p.load, target, storage_reader=p.R(path))
    true(word in str(e) or "metadata is None" in str(e) and word in "\n".join(lines), str(e))


@case
def ours_and_torchs_read_each_other():
    p = Parts()
    want = state(p.t)
    ours, theirs = f"{work}/ours", f"{work}/theirs"
    p.save(want, storage_writer=p.W(ours))
    p.save(want, storage_writer=p.dcp.FileSystemWriter(theirs))
    for path in (ours, theirs):
        same(p.t, load(p, p.R(path), want), want)
        same(p.t, load(p, p.dcp.FileSystemReader(path), want), want)
        same(p.t, load(p, p.R(path, trusted=True), want), want)
    same(p.t, load(p, p.R(ours), {"step": 0, "a": want["a"]}), {"step": 1, "a": want["a"]})
    # Save over an earlier checkpoint, twice: the earlier one's files are removed.
    for seed in (2, 3):
        p.save(state(p.t, seed), storage_writer=p.W(theirs))
        same(p.t, load(p, p.R(theirs), want), state(p.t, seed))
        eq(len(os.listdir(theirs)), 2)
    gives(Failed, p.save, want, storage_writer=p.W(theirs, overwrite=False))
    same(p.t, load(p, p.R(theirs), want), state(p.t, 3))
    p.save(want, checkpoint_id=f"{work}/by-id", storage_writer=p.W(f"{work}/not-this"))
    same(p.t, load(p, p.R(f"{work}/by-id"), want), want)
    true(not os.path.exists(f"{work}/not-this"))
    gives(93, p.W, "s3://bucket/name")      # EPROTONOSUPPORT
    gives(93, p.R, "s3://bucket/name")
    # Many tensors: no step may take time that grows with the square of their number.
    many = {f"t{n}": p.t.full((n % 30,), float(n)) for n in range(2000)}
    p.save(many, storage_writer=p.W(f"{work}/many"))
    same(p.t, load(p, p.R(f"{work}/many"), many), many)


@case
def targets_with_gaps_and_of_other_types():
    p = Parts()
    t, path = p.t, f"{work}/targets"
    want = {"a": t.randn(30, 40), "b": t.arange(1000.0)}
    p.save(want, storage_writer=p.W(path))
    block = t.zeros(40, 60)
    got = {"a": block[:, :30].t(), "b": t.zeros(1000, dtype=t.float64)}
    p.load(got, storage_reader=p.R(path))
    true(t.equal(block[:, :30].t(), want["a"]) and not block[:, 30:].any())
    true(t.equal(got["b"], want["b"].double()))
    parameter = t.nn.Parameter(t.zeros(30, 40))
    p.load({"a": parameter}, storage_reader=p.R(path))
    true(t.equal(parameter, want["a"]))
    gives(Failed, p.load, {"a": t.zeros(31, 40)}, storage_reader=p.R(path))
    gives(Failed, p.load, {"nothing": t.zeros(3)}, storage_reader=p.R(path))


@case
def tensors_of_gpus():
    p = Parts()
    t, path = p.t, f"{work}/gpus"
    if not t.cuda.is_available():
        raise Skip("torch with a GPU")
    want = state(t)
    on_gpu = {name: value.cuda() if isinstance(value, t.Tensor) else value
              for name, value in want.items()}
    # Work that was submitted to the GPU last is in the checkpoint too.
    on_gpu["late"] = t.zeros(1 << 24, device="cuda")
    want["late"] = t.zeros(1 << 24) + 100
    for _ in range(100):
        on_gpu["late"] += 1
    p.save(on_gpu, storage_writer=p.W(path))
    same(t, load(p, p.R(path), want), want)
    same(t, load(p, p.dcp.FileSystemReader(path), want), want)
    got = {name: t.full_like(value, 0, device="cuda") if isinstance(value, t.Tensor) else value
           for name, value in want.items()}
    p.load(got, storage_reader=p.R(path))
    same(t, {name: value.cpu() if isinstance(value, t.Tensor) else value
             for name, value in got.items()}, want)
    with t.cuda.stream(t.cuda.Stream()):
        block = t.zeros(400, 600, device="cuda")
        p.load({"a": block[:, :300].t()}, storage_reader=p.R(path))
    true(t.equal(block[:, :300].t().cpu(), want["a"]))


@case
def parts_of_tensors_are_where_numpy_says():
    p = Parts()
    t = p.t
    from penstock.torch._archive import Stored
    from penstock.torch._reader import ranges
    rng = random.Random(1)
    for _ in range(300):
        shape = [rng.randrange(1, 5) for _ in range(rng.randrange(0, 5))]
        offsets = [rng.randrange(length) for length in shape]
        lengths = [rng.randrange(1, length - at + 1) for length, at in zip(shape, offsets)]
        whole = t.arange(max(t.Size(shape).numel(), 1), dtype=t.int16).reshape(shape)
        data = bytes(10) + whole.reshape(-1).view(t.uint8).numpy().tobytes()
        found, places, nbytes, strides = ranges(Stored(t.int16, shape, 10), offsets, lengths)
        part = whole[tuple(slice(a, a + b) for a, b in zip(offsets, lengths))]
        got = bytearray(part.numel() * 2)
        for at, place in zip(found, places):
            step, gap, count = strides or (0, 0, 1)
            for n in range(count):
                got[place + n * gap:][:nbytes] = b""
                got[place + n * gap:place + n * gap] = data[at + n * step:][:nbytes]
                del got[part.numel() * 2:]
        eq(bytes(got), part.contiguous().reshape(-1).view(t.uint8).numpy().tobytes())


@case
def kinds_of_tensors_that_torch_alone_describes():
    p = Parts()
    t, path = p.t, f"{work}/kinds"

    class Mine(t.Tensor):
        pass
    sub = t.arange(6.0).reshape(2, 3).as_subclass(Mine)
    want = {"conj": t.randn(3, dtype=t.complex64).conj(), "part": t.arange(100)[10:20]}
    p.save({**want, "sub": sub.as_subclass(t.Tensor)}, storage_writer=p.W(path))
    same(t, load(p, p.R(path), want), {"conj": want["conj"].resolve_conj(), "part": want["part"]})
    eq(load(p, p.dcp.FileSystemReader(path), want)["part"].tolist(), list(range(10, 20)))
    # A checkpoint by torch with a transposed tensor.
    p.save({"x": t.arange(12).reshape(3, 4).t()}, storage_writer=p.dcp.FileSystemWriter(path))
    eq(load(p, p.R(path), {"x": t.zeros(4, 3, dtype=t.int64)})["x"].tolist(),
       t.arange(12).reshape(3, 4).t().tolist())


@case
def what_no_reader_could_read_is_not_saved():
    p = Parts()
    t, path = p.t, f"{work}/unreadable"

    class Own(t.Tensor):
        pass
    for tensor, word in ((t.eye(3).to_sparse(), "'x' is sparse; call its to_dense()"),
                         (t.ones(3).as_subclass(Own), "'x' is of 'Own', which no reader"),
                         (t.zeros(3, device="meta"), "'x' is on the device 'meta'")):
        e = gives(Failed, p.save, {"good": t.ones(3), "x": tensor}, storage_writer=p.W(path))
        true(word in str(e), str(e))
        eq(os.listdir(path), [])
    # torch itself refuses these tensors before a writer sees them.
    for tensor in (t.eye(3).to_sparse_csr(), t.ones(3).to_mkldnn(),
                   t.nested.nested_tensor([t.ones(2), t.ones(3)])):
        gives(Failed, p.save, {"x": tensor}, storage_writer=p.W(path))
        eq(os.listdir(path) if os.path.exists(path) else [], [])
    # The error also names an object that is not a tensor.
    e = gives(Failed, p.save, {"x": lambda: 0}, storage_writer=p.W(path))
    true("'x'" in str(e), str(e))
    # Views, and tensors that only look like views.
    want = {"expand": t.ones(1).expand(5), "overlap": t.arange(6.).as_strided((3, 3), (1, 1)),
            "none": t.zeros(0, 3), "one": t.tensor(1.), "c": t.ones(2, dtype=t.complex128),
            "dims": t.ones([1] * 65), "param": t.nn.Parameter(t.ones(2)), "\ud800": t.ones(1),
            "a\0": t.ones(1), "": t.ones(1), "../x": t.ones(1)}
    p.save(want, storage_writer=p.W(path))
    for reader in (p.R(path), p.dcp.FileSystemReader(path)):
        got = {name: t.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in want.items()}
        p.load(got, storage_reader=reader)
        for name, tensor in want.items():
            true(t.equal(got[name], tensor), repr(name))


@case
def files_of_a_checkpoint_keep_their_modes():
    p = Parts()
    t, path = p.t, f"{work}/modes"
    for _ in range(2):
        p.save({"w": t.ones(10)}, storage_writer=p.W(path))
        for name in os.listdir(path):
            os.chmod(f"{path}/{name}", 0o640 if name == ".metadata" else 0o600)
    p.save({"w": t.ones(10)}, storage_writer=p.W(path))
    eq({name[:2]: oct(os.stat(f"{path}/{name}").st_mode) for name in os.listdir(path)},
       {".m": "0o100640", "__": "0o100600"})


@case
def bytes_that_are_conjugates():
    p = Parts()
    t, path = p.t, f"{work}/conjugates"
    x = t.randn(3, dtype=t.complex64)
    # torch's writer stores the bytes unchanged and records their kind.
    p.save({"c": x.conj()}, storage_writer=p.dcp.FileSystemWriter(path))
    got = {"c": t.zeros_like(x)}
    p.load(got, storage_reader=p.R(path))
    eq(got["c"].tolist(), x.conj().tolist())


@case
def tensors_of_kinds_of_the_program():
    p = Parts()
    t, path = p.t, f"{work}/wrapped"

    class Wrapper(t.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            args = [arg.inner if isinstance(arg, cls) else arg for arg in args]
            result = function(*args, **(kwargs or {}))
            return cls(result) if isinstance(result, t.Tensor) else result
    p.save({"a": t.arange(10.0)}, storage_writer=p.W(path))
    target = Wrapper(t.zeros(10))
    p.load({"a": target}, storage_reader=p.R(path))
    eq(target.inner.tolist(), t.arange(10.0).tolist())


@case
def large_copies_are_made_in_parts():
    p = Parts()
    t, path = p.t, f"{work}/copies"
    want = {"a": t.randn(300, 100), "b": t.arange(1000)}
    p.save(want, storage_writer=p.W(path))
    from penstock.torch import _reader
    most, empty_, sizes = _reader._BATCH_COPIES, t.empty, []

    def noted(*args, **options):
        made = empty_(*args, **options)
        sizes.append(made.numel() * made.element_size())
        return made
    got = {"a": t.zeros(100, 300).t(), "b": t.zeros(1000)}
    t.empty, _reader._BATCH_COPIES = noted, 1000
    try:
        p.load(got, storage_reader=p.R(path))
    finally:
        t.empty, _reader._BATCH_COPIES = empty_, most
    true(t.equal(got["a"], want["a"]) and t.equal(got["b"], want["b"].float()))
    true(sizes and max(sizes) <= 1000, sizes)


@case
def small_pieces_with_gaps():
    p = Parts()
    t, path = p.t, f"{work}/pieces"
    want = {"w": t.randn(500, 1000, 2, 2), "x": t.arange(1 << 20).reshape(1 << 16, 16)}
    p.save(want, storage_writer=p.W(path))
    from penstock.torch import _reader
    from penstock.torch._archive import Stored
    found = _reader.ranges(Stored(t.float32, (500, 1000, 2, 2), 0), (0, 0, 0, 1),
                           (500, 1000, 2, 1))
    eq((list(found[0]), found[3]), ([4], (8, 4, 1000000)))
    calls, gaps = [], _reader._GAPS
    read = _reader.File.read

    def counted(self, memory, offset=0, nbytes=None, **options):
        calls.append(nbytes)
        return read(self, memory, offset, nbytes, **options)
    _reader.File.read = counted
    try:
        for _reader._GAPS in (1 << 24, 100000, 128):
            for name, index in (("w", (slice(None),) * 3 + (slice(1, 2),)),
                                ("w", (slice(3, 490), slice(7, 900), slice(None), slice(0, 1))),
                                ("x", (slice(None), slice(8, 16))),
                                ("x", (slice(5, 60000), slice(3, 4)))):
                if _reader._GAPS == 128 and name == "w":
                    continue
                part = want[name][index]
                got = t.zeros_like(part, memory_format=t.contiguous_format)
                reader = p.R(path)
                reader.set_up_storage_reader(reader.read_metadata(), True)
                place, = [i for i in reader.storage_data if i.fqn == name]

                class Item:
                    type, storage_index, lengths = None, place, part.shape
                    storage_offsets = [(s.start or 0) for s in index] + \
                        [0] * (part.dim() - len(index))

                class Planner:
                    resolve_tensor = staticmethod(lambda _: got)
                    commit_tensor = staticmethod(lambda *_: None)

                class Plan:
                    items = [Item]
                calls.clear()
                reader.read_data(Plan, Planner)
                true(t.equal(got, part), (name, index))
                true(calls, "pieces were read one by one")
    finally:
        _reader.File.read, _reader._GAPS = read, gaps


@case
def saving_while_the_program_goes_on():
    p = Parts()
    want, path = state(p.t), f"{work}/async"
    live = {**want, "a": want["a"].clone()}
    future = p.dcp.async_save(live, storage_writer=p.W(path))
    live["a"].zero_()
    future.result()
    same(p.t, load(p, p.R(path), want), want)


def child(*command):
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    true(done.returncode == 0, (done.stdout + done.stderr)[-3000:])


def ranks(world, *steps):
    child(sys.executable, RANK, "ranks", str(world), f"{work}/store-{random.random()}", *steps)


@case
def a_rank_that_fails_tells_the_others():
    if not Parts().t.distributed.is_available():
        raise Skip("torch.distributed")
    ranks(2, "save", f"{work}/loses", "lose", f"{work}/loses")


@case
def ranks_of_other_numbers():
    p = Parts()
    if not p.t.distributed.is_available():
        raise Skip("torch.distributed")
    path = f"{work}/ranks"
    ranks(4, "save", path)
    ranks(2, "load", path, "swap", "save", f"{work}/two")
    ranks(4, "load", f"{work}/two", "theirs", path)
    got = {"rows": p.t.zeros(7, 10), "step": 0}
    p.load(got, storage_reader=p.R(path))
    true(p.t.equal(got["rows"], p.t.arange(70.0).reshape(7, 10)))
    eq(got["step"], 42)


@case
def folders_of_safetensors_files():
    p = Parts()
    t, path = p.t, f"{work}/models"
    want = {"w": t.randn(40, 30), "b": t.arange(10, dtype=t.bfloat16), "u": t.arange(3).byte()}
    p.pt.save(want, path, shard_bytes=1000)
    same(t, load(p, p.R(path), want), want)
    # Parts of one tensor in several files, as torch's writer of such files records them.
    from penstock.safetensors import save_file
    shutil.rmtree(path)
    os.mkdir(path)
    for n in range(2):
        save_file({"w": want["w"][20 * n:20 * n + 20]},
                  f"{path}/shard-0000{n}-model-00001-of-00001.safetensors",
                  {"DCP_SHARDING_INFO": '{"w": {"saved_offsets": [%d, 0]}}' % (20 * n)})
    same(t, load(p, p.R(path), {"w": want["w"]}), {"w": want["w"]})
    for bad in ("{", '{"w": {"saved_offsets": [0]}}', '{"w": {"saved_offsets": [-1, 0]}}', "{}",
                '{"w": {"saved_offsets": [true, 0]}}', '{"w": {"saved_offsets": [20, 0]}}'):
        save_file({"w": want["w"][:20]}, f"{path}/shard-00000-model-00001-of-00001.safetensors",
                  {"DCP_SHARDING_INFO": bad})
        gives(Failed, p.load, {"w": t.zeros(40, 30)}, storage_reader=p.R(path))
    shutil.rmtree(path)
    os.mkdir(path)
    refused(p, path, {"w": t.zeros(1)}, "no whole checkpoint")
    # A missing part between others, and overlapping parts.
    for at, word in (((0, 40), "elements"), ((0, 10), "elements"), ((0, 10, 40), "overlap")):
        for n, first in enumerate(at):
            save_file({"w": want["w"][:20]},
                      f"{path}/shard-0000{n}-model-00001-of-00001.safetensors",
                      {"DCP_SHARDING_INFO": '{"w": {"saved_offsets": [%d, 0]}}' % first})
        if len(at) == 3:
            save_file({"w": want["w"][:10]}, f"{path}/shard-00002-model-00001-of-00001.safetensors",
                      {"DCP_SHARDING_INFO": '{"w": {"saved_offsets": [40, 0]}}'})
        refused(p, path, {"w": t.zeros(60, 30)}, word)


@case
def an_index_decides_which_files_count():
    p = Parts()
    t, path = p.t, f"{work}/indexed"
    p.pt.save({"a": t.ones(10), "b": t.ones(10)}, path, shard_bytes=40)
    # A save that is killed before its index leaves these files.
    p.pt.save({"a": t.zeros(10), "c": t.zeros(10)}, f"{work}/later", shard_bytes=40)
    for name in os.listdir(f"{work}/later"):
        if not name.endswith(".json"):
            shutil.copy(f"{work}/later/{name}", path)
    got = {"a": t.zeros(10)}
    p.load(got, storage_reader=p.R(path))
    eq(got["a"].tolist(), [1.0] * 10)
    gives(BaseException, p.load, {"c": t.ones(10)}, storage_reader=p.R(path))
    os.unlink(f"{path}/model.safetensors.index.json")
    refused(p, path, got, "several saves")


@case
def another_table_of_contents_is_not_taken_for_a_damaged_one():
    p = Parts()
    t, path = p.t, f"{work}/another"
    p.save({"w": t.ones(10)}, storage_writer=p.W(path))
    p.pt.save({"w": t.zeros(10)}, f"{path}/model.safetensors")
    shutil.copy(f"{path}/.metadata", f"{path}/__0.metadata")
    os.truncate(f"{path}/.metadata", 20)
    refused(p, path, {"w": t.zeros(10)}, "cut")
    os.unlink(f"{path}/__0.metadata")
    refused(p, path, {"w": t.zeros(10)}, "cut")
    reader = p.R(path)
    gives(p.pt.CheckpointError, reader.read_metadata)
    e, lines = logged(gives, p.pt.CheckpointError, reader.read_metadata, rank=0)
    true(lines == [str(e)] and f"{path}/.metadata: " in lines[0], lines)
    # A rank's own file has precedence over a model in the same folder.
    shutil.rmtree(path)
    try:
        p.save({"w": t.ones(10)}, storage_writer=p.W(path), use_collectives=False)
    except TypeError:
        return      # this torch has no per-rank checkpoints
    p.pt.save({"w": t.zeros(10)}, f"{path}/model.safetensors")
    same(t, load(p, p.R(path), {"w": t.zeros(10)}), {"w": t.ones(10)})


@case
def planners_of_the_program():
    p = Parts()
    t, path = p.t, f"{work}/planners"
    p.save({"w": t.ones(10)}, storage_writer=p.W(path))

    class Planner(p.dcp.DefaultLoadPlanner):
        def resolve_tensor(self, read_item):
            return t.empty(10, device="meta")
    e = gives(Failed, p.load, {"w": t.zeros(10)}, storage_reader=p.R(path), planner=Planner())
    true("'w' is on the device 'meta'" in str(e), str(e))


@case
def a_file_that_is_replaced_while_it_is_read():
    p = Parts()
    t, path = p.t, f"{work}/replaced"
    os.mkdir(path)
    p.pt.save({"w": t.ones(1000)}, f"{path}/m.safetensors")

    class Late(p.R):
        def read_data(self, *args):
            p.pt.save({"q": t.full((2000,), 9.0)}, f"{path}/m.safetensors")
            return super().read_data(*args)
    e = gives(Failed, p.load, {"w": t.zeros(1000)}, storage_reader=Late(path))
    true("replaced" in str(e), str(e))


def damaged(p, path, want):
    """Loading is refused, or gives what was saved, and has no other effect."""
    got = empty(p.t, want)
    try:
        p.load(got, storage_reader=p.R(path))
    except Failed as e:
        for error in e.errors:
            true(isinstance(error, OSError) or type(error).__name__ in (
                "CheckpointError", "RuntimeError", "ValueError", "AssertionError", "KeyError"),
                repr(error))
        return True
    return False


@case
def damaged_checkpoints():
    p = Parts()
    t, path, rng = p.t, f"{work}/damaged", random.Random(1)
    want = {"a": t.randn(20, 30), "b": t.arange(5), "n": {"x": 1}}
    for writer in (p.W(path), p.dcp.FileSystemWriter(path)):
        shutil.rmtree(path, ignore_errors=True)
        p.save(want, storage_writer=writer)
        data, = [f"{path}/{name}" for name in os.listdir(path) if name.endswith(".distcp")]
        for name in (data, f"{path}/.metadata"):
            with open(name, "rb") as file:
                good = file.read()
            for size in sorted({0, 1, 10, len(good) // 2, len(good) - 1}):
                with open(name, "wb") as file:
                    file.write(good[:size])
                true(damaged(p, path, want), f"{name} of {size} bytes was loaded")
            for _ in range(30):
                at = rng.randrange(len(good))
                with open(name, "wb") as file:
                    file.write(good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) +
                               good[at + 1:])
                damaged(p, path, want)
            with open(name, "wb") as file:
                file.write(good)
        same(t, load(p, p.R(path), want), want)
        os.unlink(data)
        true(damaged(p, path, want))


class Evil:
    def __reduce__(self):
        return os.mkdir, (f"{work}/evil",)


class Python3110(pickle._Pickler):
    """Pickles enumerations like Python 3.11.0 to 3.11.3."""

    def reducer_override(self, value):
        if isinstance(value, enum.Enum):
            return getattr, (type(value), value.name)
        return NotImplemented


class Asks:
    """Pickles the result of a getattr()."""

    def __init__(self, of, name):
        self.wanted = of, name

    def __reduce__(self):
        return getattr, self.wanted


@case
def enumerations_as_early_versions_of_python_3_11_write_them():
    p = Parts()
    want, path = {"b": p.t.arange(5)}, f"{work}/enumerations"
    p.save(want, storage_writer=p.W(path))
    with open(f"{path}/.metadata", "rb") as file:
        good = pickle.load(file)
    for kind in pickle._Pickler, Python3110:
        with open(f"{path}/.metadata", "wb") as file:
            kind(file).dump(good)
        with open(f"{path}/.metadata", "rb") as file:
            eq(b"getattr" in file.read(),
               kind is Python3110 or (3, 11) <= sys.version_info < (3, 11, 4))
        found = {"b": p.t.zeros(5, dtype=p.t.int64)}
        p.load(found, storage_reader=p.R(path))
        eq(found["b"].tolist(), [0, 1, 2, 3, 4])
    encoding = importlib.import_module("torch.distributed.checkpoint.metadata")._MEM_FORMAT_ENCODING
    # Refuse any other attribute of a class.
    for of, name in ((encoding, "__init__"), (encoding, "mro"), (encoding, "NOTHING"),
                     (type(good), "__init__"), (set, "pop"), (encoding, 1)):
        good.planner_data = Asks(of, name)
        with open(f"{path}/.metadata", "wb") as file:
            pickle.dump(good, file)
        e = gives(p.pt.CheckpointError, p.R(path).read_metadata)
        true("its table of contents wants" in str(e), str(e))


@case
def tables_of_contents_that_do_things():
    p = Parts()
    t, path = p.t, f"{work}/hostile"
    want = {"b": t.arange(5)}
    p.save(want, storage_writer=p.W(path))
    with open(f"{path}/.metadata", "rb") as file:
        good = pickle.load(file)

    def refused(**change):
        metadata = pickle.loads(pickle.dumps(good))
        for name, value in change.items():
            setattr(metadata, name, value)
        with open(f"{path}/.metadata", "wb") as file:
            pickle.dump(metadata, file)
        return gives(p.pt.CheckpointError, p.R(path).read_metadata)
    e = refused(planner_data=Evil())
    true("trusted=True" in str(e) and not os.path.exists(f"{work}/evil"), str(e))
    (index, info), = good.storage_data.items()
    kind = type(info)
    for bad in (kind("../x", 0, 1), kind("/etc/passwd", 0, 1), kind("a/../../x", 0, 1),
                kind("", 0, 1), kind("x\0", 0, 1), kind(b"x", 0, 1), kind("x", -1, 1),
                kind("\ud800", 0, 1), kind("x", 0, 2**64), kind("x", True, 1),
                kind("x", 0, 1.0), None, {}, kind("x", 0, 1, ["zstd"])):
        refused(storage_data={index: bad})
    refused(storage_data=[])
    refused(storage_data={"b": info})
    refused(state_dict_metadata=[])
    refused(state_dict_metadata={"b": 1})
    # A memo index so large that a C unpickler would allocate gigabytes for it.
    with open(f"{path}/.metadata", "wb") as file:
        file.write(b"\x80\x02Nr\xff\xff\xff\x7f.")
    gives(p.pt.CheckpointError, p.R(path).read_metadata)
    # Classes of the program that the pickle would change.
    for made in (b"cpathlib\nPosixPath\n", b"ctorch.serialization\n_get_layout\n",
                 b"ctorch.distributed.checkpoint.metadata\nMetadata\n"):
        with open(f"{path}/.metadata", "wb") as file:
            file.write(b"\x80\x04" + made + b"N}X\x04\0\0\0evilK\x01s\x86b.")
        gives(p.pt.CheckpointError, p.R(path).read_metadata)
    true(not hasattr(pathlib.PosixPath, "evil") and not hasattr(type(good), "evil"))
    from penstock.torch import _archive
    try:
        _archive._described(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
                            b"N}X\x04\0\0\0evilK\x01s\x86b.")
    except (_archive.Foreign, p.pt.CheckpointError):
        pass
    true(not hasattr(_archive._rebuilt, "evil"))
    # Endless input that is not a file.
    for target in ("/dev/zero", None):
        os.unlink(f"{path}/.metadata")
        if target:
            os.symlink(target, f"{path}/.metadata")
        else:
            os.mkfifo(f"{path}/.metadata")
        e = gives(p.pt.CheckpointError, p.R(path).read_metadata)
        true("regular" in str(e), str(e))
    os.unlink(f"{path}/.metadata")
    # Forge the description of one tensor.
    good.storage_data[index] = kind("evil.distcp", 0, 0)
    item = io.BytesIO()
    t.save(Evil(), item)
    with open(f"{path}/evil.distcp", "wb") as file:
        file.write(item.getvalue())
    good.storage_data[index] = kind("evil.distcp", 0, len(item.getvalue()))
    with open(f"{path}/.metadata", "wb") as file:
        pickle.dump(good, file)
    gives(Failed, p.load, {"b": t.arange(5)}, storage_reader=p.R(path))
    true(not os.path.exists(f"{work}/evil"))
    # A small file that would expand to a large one.
    bomb = io.BytesIO()
    t.save(t.zeros(5, dtype=t.int64), bomb)
    packed = io.BytesIO()
    with zipfile.ZipFile(bomb) as plain, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
        for name in plain.namelist():
            z.writestr(name, plain.read(name))
    with open(f"{path}/evil.distcp", "wb") as file:
        file.write(packed.getvalue())
    good.storage_data[index] = kind("evil.distcp", 0, len(packed.getvalue()))
    with open(f"{path}/.metadata", "wb") as file:
        pickle.dump(good, file)
    e = gives(Failed, p.load, {"b": t.arange(5)}, storage_reader=p.R(path))
    true("compressed" in str(e), str(e))
    # An object that is not a tensor: torch's planner would unpickle it.
    p.save({"x": Evil()}, storage_writer=p.W(path))
    e = gives(Failed, p.load, {"x": None}, storage_reader=p.R(path))
    true("trusted=True" in str(e) and not os.path.exists(f"{work}/evil"), str(e))
    p.load({"x": None}, storage_reader=p.R(path, trusted=True))
    true(os.path.exists(f"{work}/evil"))


@case
def a_save_that_fails_leaves_the_old_one():
    p = Parts()
    t, path = p.t, f"{work}/fails"
    want = state(t)
    p.save(want, storage_writer=p.W(path))
    before = sorted(os.listdir(path))

    class Fails:
        def __reduce__(self):
            raise OSError(28, "full")
    for wrong in ({"a": t.randn(10), "z": Fails()}, {"a": t.randn(10, device="meta")}):
        gives(Exception, p.save, wrong, storage_writer=p.W(path))
        eq(sorted(os.listdir(path)), before)
        same(t, load(p, p.R(path), want), want)


@case
def two_saves_at_once():
    p = Parts()
    t, path = p.t, f"{work}/two-saves"

    def second_at(owner, name):
        real = getattr(owner, name)

        def late(*args, **options):
            setattr(owner, name, real)
            p.save({"w": t.full((10,), 2.0)}, storage_writer=p.W(path))
            return real(*args, **options)
        setattr(owner, name, late)
    for owner, name in ((p.W, "finish"), (os, "replace")):
        p.save({"w": t.zeros(10)}, storage_writer=p.W(path))
        second_at(owner, name)
        e = gives(Failed, p.save, {"w": t.ones(10)}, storage_writer=p.W(path))
        true("another save into this folder" in str(e), str(e))
        same(t, load(p, p.R(path), {"w": t.zeros(10)}), {"w": t.full((10,), 2.0)})
        eq(len(os.listdir(path)), 2)
    # Many saves, some of which fail; one of the successful ones remains.
    futures = [p.dcp.async_save({"w": t.full((10,), float(n)), "n": n}, storage_writer=p.W(path))
               for n in range(8)]
    saved = []
    for n, future in enumerate(futures):
        try:
            future.result()
            saved.append(n)
        except BaseException as e:
            true("another save into this folder" in str(e), repr(e))
    got = load(p, p.R(path), {"w": t.zeros(10), "n": 0})
    true(got["n"] in saved and (got["w"] == got["n"]).all(), (got, saved))
    # Hold the lock that serialises the ends of saves: another save fails after a time limit.
    from penstock.torch import _models
    with _models.ending(path):
        most, _models._ENDING_MAX = _models._ENDING_MAX, 0.1
        try:
            e = gives(Failed, p.save, {"w": t.ones(10)}, storage_writer=p.W(path))
        finally:
            _models._ENDING_MAX = most
    eq([error.errno for error in e.errors], [110])


@case
def killed_at_any_time():
    p = Parts()
    t, path = p.t, f"{work}/killed"
    want = {"a": t.full((1 << 20,), 1.0), "step": 1}
    p.save(want, storage_writer=p.W(path))
    child(sys.executable, RANK, "die", path)


@case
def a_full_disk_loses_nothing():
    Parts()
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", work], check=False,
                      capture_output=True).returncode:
        raise Skip("this needs to mount a tmpfs")
    os.mkdir(f"{work}/small")
    child("unshare", "-rm", "sh", "-c",
          'mount -t tmpfs -o size=8m none "$1" && exec "$2" "$3" full "$1"', "sh",
          f"{work}/small", sys.executable, RANK)


run()
