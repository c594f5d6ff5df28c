# SPDX-License-Identifier: MIT
"""vLLM's load format, and the read-ahead that it uses.

If VLLM_FILES names a folder with vLLM's own files, as tests/upstream/vllm unpacks them, the loader
runs on these, and only their other imports are replaced.  Otherwise a few lines here stand in for
vLLM, with what the loader calls.
"""
import _thread
import contextlib
import dataclasses
import importlib
import io
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
import types

from tap import case, eq, gives, numpy, run, torch, true, work

import penstock
from penstock._ahead import Ahead, natural, size_of
from penstock.safetensors import SafetensorError, safe_open, save_file

FILES = os.environ.get("VLLM_FILES", "")


# ------------------------------------------------------------------------- reading ahead

def shards():
    np = numpy()
    want, paths = {}, []
    for number in (2, 10, 1):
        some = {f"{number}.t{n}": np.full(1000, 100 * number + n) for n in range(20)}
        some[f"{number}.none"] = np.zeros((0, 4))
        paths.append(f"{work}/shard-{number}.safetensors")
        save_file(some, paths[-1])
        want.update(some)
    return want, sorted(paths, key=natural)


@case
def order_and_sizes():
    want, paths = shards()
    eq([os.path.basename(path) for path in paths],
       [f"shard-{number}.safetensors" for number in (1, 2, 10)])
    with safe_open(paths[0], "np") as model:
        for name in model.keys():
            eq(size_of(model.get_slice(name)), want[name].nbytes)

    class Part:
        def __init__(self, dtype, *shape):
            self.get_dtype, self.get_shape = lambda: dtype, lambda: list(shape)
    eq([size_of(Part(*p)) for p in (("BOOL", 3), ("F8_E4M3", 3), ("BF16", 3), ("F4", 6, 2),
                                    ("F6_E2M3", 4), ("C64", 2), ("I64",), ("F32", 0, 9))],
       [3, 3, 6, 6, 3, 16, 8, 0])


@case
def budgets_hold():
    want, paths = shards()
    largest = sum(array.nbytes for name, array in want.items() if name.startswith("1."))
    for budget in (None, 1, 7999, 8000, 20_000, 1 << 30):
        got, most = {}, 0
        with Ahead(paths, "cpu", budget, framework="np") as reading:
            eq(reading.total, sum(array.nbytes for array in want.values()))
            eq(reading.budget, largest if budget is None else budget)
            for name, array, nbytes in reading:
                eq(nbytes, array.nbytes)
                got[name] = array
                if len(got) % 7 == 0:
                    time.sleep(0.005)      # let the thread get ahead as far as it may
                most = max(most, reading._reader.held)
        true(most <= max(reading.budget, 8000), f"{most} bytes of {budget}")
        eq(list(got), [name for path in paths for name in safe_open(path, "np").offset_keys()])
        true(all((got[name] == want[name]).all() for name in want))


@case
def what_is_not_wanted_is_not_read():
    want, paths = shards()
    with Ahead(paths, "cpu", skip=lambda name: not name.endswith("t3"), framework="np") as reading:
        eq(reading.total, 24_000)
        eq([name for name, _, _ in reading], ["1.t3", "2.t3", "10.t3"])
    with Ahead([], "cpu", framework="np") as reading:
        eq(list(reading), [])
    true(want)


@case
def who_leaves_early_leaves_nothing_behind():
    _, paths = shards()
    before = _thread._count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with Ahead(paths, "cpu", 1, framework="np") as reading:
            for _ in reading:
                break
    try:
        with Ahead(paths, "cpu", framework="np") as reading:
            for _ in reading:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    gives(FileNotFoundError, Ahead, paths + [f"{work}/nothing"], "cpu", framework="np")
    eq((_thread._count(), len(os.listdir("/proc/self/fd"))), before)


@case
def errors_come_to_the_caller_and_name_the_file():
    _, paths = shards()
    size = os.path.getsize(paths[1])
    with Ahead(paths, "cpu", framework="np") as reading:
        os.truncate(paths[1], size - 1)
        got = []
        e = gives(SafetensorError, lambda: [got.append(name) for name, _, _ in reading])
        true(paths[1] in str(e), str(e))
        # Tensors that arrived before the error were returned.
        true(21 <= len(got) < 42, f"{len(got)} tensors")
    e = gives(SafetensorError, Ahead, paths, "cpu", framework="np")
    true(paths[1] in str(e), str(e))

    class Model(contextlib.nullcontext):
        closed = False

        def __enter__(self):
            return self

        def get_tensors(self, names):
            raise MemoryError("out of memory")
    with Ahead(paths[:1], "cpu", framework="np") as reading:
        pass
    reading = Ahead(paths[:1], "cpu", framework="np")
    reading._reader.plans[0].model = Model()
    with reading:
        e = gives(SafetensorError, list, reading)
        eq(str(e), f"{paths[0]}: out of memory")


@case
def names_with_other_digits():
    names = ["m1", "m2", "\u00b21", "m10", "\u0661x"]
    eq(sorted(reversed(names), key=natural), ["m1", "m2", "m10", "\u00b21", "\u0661x"])


@case
def more_files_than_descriptors():
    np, paths = numpy(), []
    for n in range(150):
        paths.append(f"{work}/many-{n}.safetensors")
        save_file({f"t{n}": np.full(10, n)}, paths[-1], sync=False)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 160, limit[1]))
    try:
        with Ahead(paths, "cpu", framework="np") as reading:
            eq([int(array[3]) for _, array, _ in reading], list(range(150)))
        reading = Ahead(paths, "cpu", 1, framework="np")
        save_file({"t140": np.full((1, 10), 7)}, paths[140], sync=False)
        with reading:
            e = gives(SafetensorError, list, reading)
        true(paths[140] in str(e) and "replaced" in str(e), str(e))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@case
def types_are_looked_at_before_the_first_tensor_is_read():
    numpy()
    path = f"{work}/types.safetensors"
    header = json.dumps({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
                         "b": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [8, 11]}})
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header.encode() + bytes(11))
    e = gives(SafetensorError, Ahead, [path], "cpu", framework="np")
    true(path in str(e) and "F6_E2M3" in str(e), str(e))
    with Ahead([path], "cpu", skip=lambda name: name == "b", framework="np") as reading:
        eq([name for name, _, _ in reading], ["a"])


@case
def a_child_is_told_that_nobody_reads_there():
    _, paths = shards()
    with Ahead(paths, "cpu", 1, framework="np") as reading:
        going = iter(reading)
        next(going)
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            try:
                next(going)
            except SafetensorError as e:
                os._exit(0 if "forked" in str(e) else 1)
            os._exit(1)
        eq(os.waitpid(pid, 0)[1], 0)
        next(going)


@case
def the_interpreters_end():
    t = torch()
    path = f"{work}/end.safetensors"
    save_file({f"t{n}": t.zeros(2000) for n in range(5000)}, path, sync=False)
    # An iterator that is still referenced at exit, as after a failed load.
    code = ("import builtins, sys; from penstock._ahead import Ahead\n"
            "builtins.going = iter(Ahead([sys.argv[1]] * 9, 'cpu', 1 << 22).__enter__())\n"
            "for _ in range(int(sys.argv[2])): next(builtins.going)")
    for count in (100, 3000, 9000):
        done = subprocess.run([sys.executable, "-c", code, path, str(count)], timeout=100,
                              check=False, capture_output=True, text=True)
        eq((done.returncode, done.stderr), (0, ""))


# ------------------------------------------------------------------------------- vLLM

def module(name, package=False, **members):
    made = types.ModuleType(name)
    if package:
        made.__path__ = [os.path.join(FILES, *name.split("."))] if FILES else []
    made.__dict__.update(members)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


class Platform:
    def is_cuda(self):
        return False


class Log:
    def __init__(self, *_):
        self.lines = []

    def __getattr__(self, name):
        if not name.startswith(("info", "warning", "debug", "error", "exception")):
            raise AttributeError(name)
        return lambda *what: self.lines.append(what)


def unavailable(*_, **__):
    raise AssertionError("this was not to be called")


def theirs():
    """Import vLLM's own files, with stand-ins for their other imports."""
    importlib.import_module("safetensors")  # vLLM reads headers with it
    nothing = dict.fromkeys
    module("transformers", package=True)
    module("transformers.utils", SAFE_WEIGHTS_INDEX_NAME="model.safetensors.index.json")
    for name in ("vllm", "vllm.config", "vllm.model_executor", "vllm.model_executor.layers",
                 "vllm.utils", "vllm.transformers_utils"):
        module(name, package=True)
    module("vllm.envs", VLLM_USE_MODELSCOPE=False, VLLM_PLUGINS=None)
    module("vllm.logger", init_logger=Log)
    module("vllm.utils.hashing", safe_hash=unavailable)
    importlib.import_module("vllm.config.load")
    sys.modules["vllm.config"].__dict__.update(
        ModelConfig=object, VllmConfig=object, get_current_vllm_config=unavailable,
        get_current_vllm_config_or_none=lambda: None)
    module("vllm.distributed", **nothing(("get_tensor_model_parallel_rank", "get_world_group",
                                          "get_tensor_model_parallel_world_size"), unavailable))
    module("vllm.model_executor.layers.quantization", package=True, QuantizationConfig=object,
           get_quantization_config=unavailable)
    module("vllm.model_executor.layers.quantization.kv_cache", BaseKVCacheMethod=object)
    module("vllm.model_executor.layers.quantization.torchao",
           torchao_version_at_least=lambda version: True)
    module("vllm.platforms", current_platform=Platform())
    module("vllm.tracing", instrument=lambda **_: lambda function: function)
    module("vllm.transformers_utils.repo_utils",
           **nothing(("hf_api", "hf_fs", "list_filtered_repo_files"), unavailable))
    module("vllm.utils.mem_utils", format_gib=unavailable)
    module("vllm.utils.torch_utils", set_default_torch_dtype=unavailable)

    class PlaceholderModule:
        def __init__(self, name):
            self.name = name

        def placeholder_attr(self, name):
            return unavailable
    module("vllm.utils.import_utils", PlaceholderModule=PlaceholderModule)
    # Other loaders, needed only by name.
    loaders = "vllm.model_executor.model_loader"
    kept = importlib.util.spec_from_file_location(
        loaders, f"{FILES}/vllm/model_executor/model_loader/__init__.py",
        submodule_search_locations=[f"{FILES}/vllm/model_executor/model_loader"])
    package = importlib.util.module_from_spec(kept)
    sys.modules[loaders] = package
    for name, names in (("dummy_loader", ["DummyModelLoader"]),
                        ("modelexpress_loader", ["ModelExpressModelLoader"]),
                        ("runai_streamer_loader", ["RunaiModelStreamerLoader"]),
                        ("sharded_state_loader", ["ShardedStateLoader"]),
                        ("tensorizer_loader", ["TensorizerLoader"]),
                        ("utils", ["get_architecture_class_name", "get_model_architecture",
                                   "get_model_cls", "initialize_model",
                                   "process_weights_after_loading"]),
                        ("reload", ["finalize_layerwise_processing"])):
        module(f"{loaders}.{name}", **nothing(names, unavailable))
    module(f"{loaders}.weight_cache", package=True)
    module(f"{loaders}.weight_cache.ipc_loader", IpcModelLoader=unavailable)
    kept.loader.exec_module(package)
    return importlib.import_module("vllm.config.load").LoadConfig


def few_lines():
    """Make a minimal vLLM for the loader."""
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.model_loader"):
        module(name, package=True)
    loaders = "vllm.model_executor.model_loader"

    @dataclasses.dataclass
    class LoadConfig:
        load_format: str = "auto"
        model_loader_extra_config: dict = dataclasses.field(default_factory=dict)
        safetensors_load_strategy: str = None
        device: str = None
        use_tqdm_on_load: bool = True

    class DefaultModelLoader:
        @dataclasses.dataclass
        class Source:
            model_or_path: str
            revision: str
            subfolder: str = None
            prefix: str = ""
            fall_back_to_pt: bool = True
            allow_patterns_overrides: list = None
            is_unused_weight: object = None

        counter_before_loading_weights = 0.0

        def __init__(self, load_config):
            eq(set(load_config.model_loader_extra_config) - {"enable_weights_track"}, set())
            self.load_config = load_config
            self.local_expert_ids = self._encoder_only_lm_prefixes = None
            self._encoder_only_weights_mapper = None

        def _prepare_weights(self, folder, _subfolder, _revision, _pt, patterns):
            eq(self.load_config.load_format, "safetensors")
            files = [f"{folder}/{name}" for name in os.listdir(folder)
                     if name.endswith(tuple(p[1:] for p in patterns or ["*.safetensors"]))]
            if not files:
                raise RuntimeError(f"Cannot find any model weights with `{folder}`")
            return folder, files, files[0].endswith(".safetensors"), "model.safetensors.index.json"

        def get_all_weights(self, config, model):
            yield from self._get_weights_iterator(self.Source(
                config.model, None,
                is_unused_weight=getattr(model, "is_unused_checkpoint_weight", None)))
            for source in getattr(model, "secondary_weights", ()):
                yield from self._get_weights_iterator(source)

    registered = {}

    def register_model_loader(name):
        return lambda kind: registered.setdefault(name, kind)
    sys.modules[loaders].__dict__.update(
        register_model_loader=register_model_loader,
        get_model_loader=lambda config: registered[config.load_format](config))
    module(f"{loaders}.default_loader", DefaultModelLoader=DefaultModelLoader)
    module(f"{loaders}.ep_weight_filter", should_skip_weight=lambda name, ids: ids is not None and
           ".experts." in name and int(name.split(".experts.")[1].split(".")[0]) not in ids)

    def without_unused(files, unused):
        return [f for f in files if not all(map(unused, safe_open(f, "np").keys()))]

    def without_language(files, folder, index, prefixes, weights_mapper):
        with open(f"{folder}/{index}", encoding="utf-8") as f:
            places = json.load(f)["weight_map"]
        return [f for f in files if not all(name.startswith(prefixes) for name in places
                                            if places[name] == os.path.basename(f))]
    module(f"{loaders}.weight_utils", enable_tqdm=lambda use: use,
           filter_mm_encoder_only_safetensors_files=without_language,
           filter_safetensors_files_by_weight_name=without_unused)
    module("vllm.platforms", current_platform=Platform())
    return LoadConfig


_vllm = []


def vllm():
    """Return (LoadConfig, get_model_loader) with the format registered."""
    torch()
    try:
        importlib.import_module("tqdm")
    except ImportError:
        module("tqdm", package=True)
        module("tqdm.auto", tqdm=Bar)
    if not _vllm:
        config = theirs() if FILES else few_lines()
        import penstock.vllm
        penstock.vllm.register()
        penstock.vllm.register()
        _vllm.extend((config, sys.modules["vllm.model_executor.model_loader"].get_model_loader))
    return _vllm


class Bar:
    """A minimal bar of tqdm's."""

    def __init__(self, total=0, desc="", disable=False, **_):
        self.disable, self.total, self.desc, self.done = disable, total, desc, 0

    def __enter__(self):
        return self

    def update(self, nbytes):
        self.done += nbytes

    def __exit__(self, *_):
        if not self.disable:
            print(f"# {self.desc}: {self.done} of {self.total}", file=sys.stderr)


def loader(strategy=None, tqdm=False, **extra):
    config, get = vllm()
    return get(config(load_format="penstock", model_loader_extra_config=extra,
                      safetensors_load_strategy=strategy, use_tqdm_on_load=tqdm))


def model(name="model"):
    """Make a folder with three files of a multimodal mixture-of-experts model.  Return it with its
    tensors."""
    t = torch()
    folder = f"{work}/{name}"
    os.makedirs(folder, exist_ok=True)
    files = [{f"layers.{n}.attention.weight": t.randn(30, 10).bfloat16() for n in range(10)},
             {f"layers.0.experts.{n}.{part}": t.randn(100, 10) for n in range(8)
              for part in ("weight", "scale")},
             {f"vision.{n}.weight": t.randn(7) for n in range(5)}]
    for number, tensors in enumerate(files):
        save_file(tensors, f"{folder}/model-{number + 1}.safetensors")
    with open(f"{folder}/model.safetensors.index.json", "w", encoding="utf-8") as f:
        json.dump({"weight_map": {key: f"model-{number + 1}.safetensors"
                                  for number, tensors in enumerate(files) for key in tensors}}, f)
    return folder, {key: value for tensors in files for key, value in tensors.items()}


class Config:
    def __init__(self, folder):
        self.model, self.revision, self.quantization = folder, None, None


def weights(one, folder, **members):
    return one.get_all_weights(Config(folder), types.SimpleNamespace(**members))


def same(got, want):
    got = dict(got)
    eq(sorted(got), sorted(want))
    for name, tensor in want.items():
        true(got[name].dtype == tensor.dtype and torch().equal(got[name], tensor), name)


@case
def loads_a_model():
    vllm()
    folder, want = model()
    for extra in ({}, {"bytes_ahead": 1}, {"bytes_ahead": 1 << 40, "device": "cpu"},
                  {"enable_weights_track": True}):
        same(weights(loader(**extra), folder), want)
    if FILES:
        # Load everything into a model.
        class Model:
            def load_weights(self, tensors):
                self.got = dict(tensors)

        config = Config(folder)
        config.multimodal_config, config.is_moe = None, False
        parallel = types.SimpleNamespace(enable_expert_parallel=False,
                                         enable_ep_weight_filter=False)
        sys.modules["vllm.config"].get_current_vllm_config = \
            lambda: types.SimpleNamespace(parallel_config=parallel)
        taken = Model()
        loader().load_weights(taken, config)
        same(taken.got, want)
        loader().download_model(config)


@case
def filters():
    vllm()
    folder, want = model()
    one = loader()
    one.local_expert_ids = {1, 5}
    got = dict(weights(one, folder))
    for name in want:
        expert = name.split(".experts.")[1].split(".")[0] if "experts" in name else "1"
        needed = expert in "15" or (FILES and name.endswith("scale"))
        eq((name, name in got), (name, bool(needed)))
    one = loader()
    one._encoder_only_lm_prefixes = ("layers.",)
    eq(sorted(dict(weights(one, folder))), [f"vision.{n}.weight" for n in range(5)])
    got = dict(weights(loader(), folder,
                       is_unused_checkpoint_weight=lambda name: name.startswith("vision.")))
    eq(sorted(got), sorted(name for name in want if not name.startswith("vision.")))
    source = type(loader()).Source(folder, None, prefix="draft.",
                                   allow_patterns_overrides=["*-3.safetensors"])
    got = dict(weights(loader(), folder, secondary_weights=[source]))
    eq(sorted(set(got) - set(want)), [f"draft.vision.{n}.weight" for n in range(5)])


def files_that_no_index_has():
    vllm()
    folder, want = model("twice")
    save_file(want, f"{folder}/consolidated.safetensors")
    same(weights(loader(), folder), want)
    os.unlink(f"{folder}/model.safetensors.index.json")
    same(weights(loader(checkpoint="mistral"), folder), want)


if FILES:
    case(files_that_no_index_has)


@case
def what_it_is_not_told():
    vllm()
    for extra in ({"nothing": 1}, {"bytes_ahead": 0}, {"bytes_ahead": True}, {"bytes_ahead": "1"},
                  {"strict": 1}, {"device": 0}, {"checkpoint": "pt"}, {"num_threads": 4},
                  {"enable_weights_track": "yes"}):
        e = gives(ValueError, loader, **extra)
        true("load format penstock: " in str(e) and list(extra)[0] in str(e), str(e))
    gives(ValueError, penstock.vllm.extra, [1])
    e = gives(ValueError, loader, strategy="prefetch")
    true("prefetch" in str(e), str(e))
    folder, _ = model()
    one = loader()
    one.load_config.safetensors_load_strategy = "torchao"
    gives(ValueError, list, weights(one, folder))
    gives((SafetensorError, RuntimeError), list, weights(loader(device="mps"), folder))
    one = loader()
    one.load_config.device = "cpu"
    eq(one._device().type, "cpu")


@case
def models_that_are_not_as_they_should_be():
    vllm()
    empty = f"{work}/empty"
    os.makedirs(empty, exist_ok=True)
    gives(RuntimeError, list, weights(loader(), empty))
    with open(f"{empty}/model.bin", "wb") as f:
        f.write(b"pickled")
    source = type(loader()).Source(empty, None, allow_patterns_overrides=["*.bin"])
    e = gives(ValueError, list, loader()._get_weights_iterator(source))
    true("model.bin" in str(e), str(e))
    folder, _ = model("broken")
    path = f"{folder}/model-2.safetensors"
    going = weights(loader(bytes_ahead=1), folder)
    next(going)
    os.truncate(path, os.path.getsize(path) - 1)
    e = gives(SafetensorError, list, going)
    true(path in str(e), str(e))
    e = gives(SafetensorError, list, weights(loader(), folder))
    true(path in str(e), str(e))


@case
def progress_where_vllm_asks_for_it():
    vllm()
    folder, want = model()
    old, sys.stderr = sys.stderr, io.StringIO()
    try:
        dict(weights(loader(tqdm=False), folder))
        quiet = sys.stderr.getvalue()
        dict(weights(loader(tqdm=True), folder))
        loud = sys.stderr.getvalue()
    finally:
        sys.stderr = old
    eq(quiet, "")
    true("Loading safetensors by Penstock" in loud, loud)
    true(want)


@case
def a_vllm_that_lacks_something_starts_all_the_same():
    vllm()
    place = sys.modules["vllm.model_executor.model_loader.weight_utils"]
    kept, registered = place.enable_tqdm, list(penstock.vllm._registered)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("vllm.penstock").addHandler(handler)
    penstock.vllm._registered.clear()
    del place.enable_tqdm
    try:
        penstock.vllm.register()
        eq((len(lines), penstock.vllm._registered), (1, []))
        true("no load format penstock" in lines[0] and "enable_tqdm" in lines[0], lines[0])
    finally:
        place.enable_tqdm = kept
        penstock.vllm._registered.extend(registered)


@case
def vllm_finds_it_by_its_entry_point():
    place = f"{work}/site"
    os.makedirs(f"{place}/penstock-0.dist-info")
    sys.path.insert(0, f"{os.environ['ROOT']}/python")
    import wheel
    with open(f"{place}/penstock-0.dist-info/METADATA", "w", encoding="ascii") as f:
        f.write("Metadata-Version: 2.1\nName: penstock\nVersion: 0\n")
    with open(f"{place}/penstock-0.dist-info/entry_points.txt", "w", encoding="ascii") as f:
        f.write(wheel.ENTRY_POINTS)
    sys.path.insert(0, place)
    import importlib.metadata as metadata
    points = metadata.entry_points()
    points = points.select(group="vllm.general_plugins") if hasattr(points, "select") else \
        points["vllm.general_plugins"]
    import penstock.vllm
    found = [point for point in points if point.name == "penstock"]
    eq([point.load() for point in found], [penstock.vllm.register])
    if FILES:
        config, _ = vllm()
        kinds = sys.modules["vllm.model_executor.model_loader"]._LOAD_FORMAT_TO_MODEL_LOADER
        ours = kinds.pop("penstock")
        penstock.vllm._registered.clear()
        importlib.import_module("vllm.plugins").load_general_plugins()
        eq(kinds["penstock"].__name__, ours.__name__)
        eq(config(load_format="Penstock").load_format, "penstock")


run()
