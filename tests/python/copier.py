# SPDX-License-Identifier: MIT
"""The copier for fastsafetensors, and its reads, which need no other package."""
import errno
import importlib
import itertools
import os
import sys
import threading

from tap import Skip, case, data, eq, file, gives, run, torch, true, work

import penstock
from penstock._reads import Job, Reads, split


@case
def runs_are_split():
    eq(split([(8, 20), (30, 31)], 5), [(8, 13), (13, 18), (18, 20), (30, 31)])
    eq(split([], 5), [])
    job = Job(None, None, split([(8, 20), (30, 31)], 5))
    eq(job.covering(8, 20), [0, 1, 2])
    eq(job.covering(13, 14), [1])
    eq(job.covering(30, 31), [3])
    for begin, end in ((0, 9), (19, 21), (20, 30), (30, 32), (12, 31), (31, 40)):
        eq(job.covering(begin, end), None)


def start(reads, path, device, size, piece):
    memory = penstock.Memory.alloc(device, size)
    return memory, reads.start(penstock.File(path), memory, split([(0, size)], piece), 0)


@case
def many_files_share_a_queue_that_is_too_small_for_one():
    reads, jobs = Reads(depth=4), []
    for number, device in enumerate(("host", "soft:0", "cuda:0")):
        want = data(100_000, number)
        memory, job = start(reads, file(f"reads{number}", want), device, len(want), 3000)
        jobs.append((want, memory, job))
    for want, memory, job in reversed(jobs):
        reads.wait(job, job.covering(50_000, 60_000))
        true(memory.copy_out(10_000, 50_000) == want[50_000:60_000])
    for want, memory, job in jobs:
        reads.wait(job, range(len(job.pieces)))
        true(memory.copy_out() == want)
        reads.finish(job)
        reads.finish(job)
        true(memory.closed and job.file.closed)


@case
def threads_wait_for_pieces_of_one_job():
    want, failed = data(1 << 20), []
    reads = Reads(depth=8)
    memory, job = start(reads, file("threads", want), "host", len(want), 4096)

    def look(first):
        for place in range(first, 256, 8):
            reads.wait(job, [place])
            if memory.copy_out(4096, 4096 * place) != want[4096 * place:4096 * (place + 1)]:
                failed.append(place)
    threads = [threading.Thread(target=look, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eq(failed, [])
    reads.finish(job)


@case
def failures_name_the_file_and_let_go_of_the_memory():
    reads = Reads(depth=8)
    path = file("short", data(5000))
    memory = penstock.Memory.alloc("host", 20_000)
    job = reads.start(penstock.File(path), memory, split([(0, 20_000)], 1000), 0)
    e = gives(penstock.ShortRead, reads.wait, job, [19])
    true(path in str(e), str(e))
    true(path in str(gives(penstock.ShortRead, reads.finish, job)))
    true(memory.closed)
    gives(penstock.ShortRead, reads.finish, job)
    # The next file is read correctly.
    memory, job = start(reads, path, "host", 5000, 1000)
    reads.finish(job)
    # Too small a memory is refused at the start.
    memory = penstock.Memory.alloc("host", 100)
    gives((penstock.Error, ValueError), reads.start, penstock.File(path), memory, [(0, 200)], 0)
    true(memory.closed)


@case
def a_device_that_fails():
    reads = Reads()
    path = file("closed", data(5000))
    opened = penstock.File(path)
    opened.close()
    gives(ValueError, reads.start, opened, penstock.Memory.alloc("host", 5000), [(0, 5000)], 0)
    late = Reads(timeout=1e-6)
    memory = penstock.Memory.alloc("host", 5000)
    try:
        job = late.start(penstock.File(path), memory, [(0, 5000)], 0)
        e = gives(errno.ETIMEDOUT, late.finish, job)
    except penstock.Error as error:
        e = error
    eq((e.errno, e.filename), (errno.ETIMEDOUT, path))


# -------------------------------------------------------------------- the package itself

def package():
    torch()
    try:
        import fastsafetensors
    except ImportError:
        raise Skip("fastsafetensors") from None
    import penstock.fastsafetensors as ours
    return fastsafetensors, ours


def model():
    """Make two files with all types of tensors.  Return ({name: tensor}, paths)."""
    t = torch()
    t.manual_seed(1)
    paths, tensors = [], {}
    for number in range(2):
        some = {f"{number}.layer{n}": t.randn(30 + n, 129) for n in range(30)}
        some.update({f"{number}.empty": t.empty(0, 3), f"{number}.one": t.tensor(3.0 + number),
                     f"{number}.bf16": t.randn(100_003).bfloat16(),
                     f"{number}.f8": t.randn(64, 3).to(t.float8_e4m3fn)})
        paths.append(f"{work}/model{number}.safetensors")
        penstock.safetensors.save_file(some, paths[-1])
        tensors.update(some)
    return tensors, paths


def same(got, want):
    true(got.dtype == want.dtype and got.shape == want.shape and
         (got.float() == want.float()).all())


@case
def whole_files():
    _, ours = package()
    want, paths = model()
    loader = ours.FileLoader(None, "cpu")
    eq(loader.copier_class, ours.Copier)
    loader.add_filenames({0: paths})
    for inflight, block in itertools.product((False, True), (1000, 16 << 30)):
        buffer = loader.copy_files_to_device(max_copy_block_size=block, allow_inflight=inflight)
        eq(sorted(loader.get_keys()), sorted(want))
        tensors = {name: buffer.get_tensor(name) for name in reversed(list(want))}
        buffer.close()
        for name, tensor in tensors.items():
            same(tensor, want[name])
    gives(ValueError, loader.copy_files_to_device, max_copy_block_size=0)
    loader.close()


@case
def chunks_ranges_and_readiness_in_the_parallel_loader():
    _, ours = package()
    from fastsafetensors.parallel_loader import PipelineParallel
    want, paths = model()
    for options in ({}, {"max_batch_bytes": 300_000}, {"overlap_io": False},
                    {"max_batch_bytes": 300_000, "use_chunk_budget_as_allocation_size": True},
                    {"device_memory_budget": 4 << 20}, {"queue_size": -1},
                    {"tensor_filter": lambda name: "layer1" in name}):
        keep = options.get("tensor_filter", lambda name: True)
        loader = PipelineParallel(None, ours.FileLoader(None, "cpu"), paths,
                                  use_tqdm_on_load=False, **options)
        got = 0
        for name, tensor in loader.iterate_weights():
            same(tensor, want[name])
            got += 1
        loader.close()
        eq((options, got), (options, sum(map(keep, want))))


@case
def bytes_that_were_not_asked_for_are_not_read():
    package()
    want, paths = model()
    with_filter = copier_of(paths[0])
    metadata = with_filter.metadata
    with_filter.set_byte_ranges(metadata.select_byte_ranges(lambda name: name == "0.layer3", 0))
    buffer = with_filter.submit_io(False, 1 << 30)
    views = with_filter.prepare_tensors(buffer)
    with_filter.wait_tensor("0.layer3")
    with_filter.wait_tensor("0.empty")
    same(views["0.layer3"].get_raw(), want["0.layer3"])
    e = gives(ValueError, with_filter.wait_tensor, "0.layer5")
    true(paths[0] in str(e) and "0.layer5" in str(e), str(e))
    with_filter.finish_io()
    with_filter.finish_io()
    with_filter.framework.free_tensor_memory(buffer, with_filter.device)
    for ranges in ([(0, 8)], [(metadata.header_length, metadata.size_bytes + 1)], [("a", 1)]):
        gives(ValueError, copier_of(paths[0]).set_byte_ranges, ranges)
    gives(ValueError, copier_of(paths[0]).set_chunk, None, set())


def copier_of(path, framework=None, device="cpu"):
    _, ours = package()
    from fastsafetensors.common import SafeTensorsMetadata
    from fastsafetensors.frameworks import get_framework_op
    from fastsafetensors.st_types import Device
    pytorch = get_framework_op("pytorch")
    metadata = SafeTensorsMetadata.from_file(path, pytorch)
    place = Device.from_str(device)
    return ours.new_copier(place, set_numa=False)(metadata, place, framework or pytorch)


class Framework:
    """Gives memory of a device that torch does not have."""

    def __init__(self):
        self.live = {}

    def alloc_tensor_memory(self, nbytes, device):
        from fastsafetensors import cpp
        memory = penstock.Memory.alloc("cuda:0", nbytes)
        self.live[memory.address] = memory
        return cpp.gds_device_buffer(memory.address, nbytes, False)

    def free_tensor_memory(self, buffer, device):
        self.live.pop(buffer.get_base_address()).close()


@case
def memory_of_a_device():
    package()
    _, paths = model()
    framework = Framework()
    copier = copier_of(paths[1], framework, "cuda:0")
    header = copier.metadata.header_length
    copier.set_chunk([(header + 1000, header + 2001), (header + 9000, header + 50_000)], set(),
                     60_000)
    buffer = copier.submit_io(False, 7000)
    eq(buffer.get_length(), 60_000)
    copier.finish_io()
    got = framework.live[buffer.get_base_address()].copy_out()
    with open(paths[1], "rb") as f:
        content = f.read()
    true(got[:1001] == content[header + 1000:header + 2001])
    true(got[8000:49_000] == content[header + 9000:header + 50_000])
    framework.free_tensor_memory(buffer, None)
    # An address that the device does not know is refused; the error names the file.
    class Lies(Framework):
        def alloc_tensor_memory(self, nbytes, device):
            from fastsafetensors import cpp
            self.live[4096] = penstock.Memory.alloc("host", 1)
            return cpp.gds_device_buffer(4096, nbytes, False)
    lies = Lies()
    e = gives(penstock.Error, copier_of(paths[1], lies, "cuda:0").submit_io, False, 7000)
    eq((e.filename, lies.live), (paths[1], {}))


@case
def files_that_are_not_as_they_should_be():
    _, ours = package()
    from fastsafetensors.allocation import live_allocation_count
    _, paths = model()
    e = gives(FileNotFoundError, gone, paths[0])
    true(paths[0] + ".gone" in str(e), str(e))
    for inflight in (False, True):
        loader = ours.FileLoader(None, "cpu")
        _, paths = model()
        loader.add_filenames({0: paths})
        os.truncate(paths[1], os.path.getsize(paths[1]) - 100_000)
        buffer = None
        try:
            buffer = loader.copy_files_to_device(max_copy_block_size=5000, allow_inflight=inflight)
            last = max(loader.meta[paths[1]][0].tensors.items(),
                       key=lambda item: item[1].data_offsets)[0]
            buffer.get_tensor(last)
        except penstock.ShortRead as error:
            true(paths[1] in str(error), str(error))
        else:
            raise AssertionError("the end of the file was not there")
        try:
            if buffer:
                buffer.close()
        except penstock.ShortRead as error:
            true(paths[1] in str(error), str(error))
        loader.close()
    eq(live_allocation_count(), 0)


@case
def a_model_without_bytes():
    _, ours = package()
    path = f"{work}/none.safetensors"
    penstock.safetensors.save_file({"a": torch().empty(0, 3)}, path)
    for inflight in (False, True):
        loader = ours.FileLoader(None, "cpu")
        loader.add_filenames({0: [path]})
        buffer = loader.copy_files_to_device(allow_inflight=inflight)
        eq(tuple(buffer.get_tensor("a").shape), (0, 3))
        buffer.close()
        loader.close()


@case
def files_that_are_no_models_are_told_as_elsewhere():
    _, ours = package()
    good = f"{work}/good.safetensors"
    penstock.safetensors.save_file({"a": torch().ones(3)}, good)
    os.symlink("../blobs/abc", f"{work}/dead.safetensors")
    lfs = file("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    for path, words in ((lfs, "git lfs pull"), (f"{work}/dead.safetensors", "../blobs/abc")):
        loader = ours.FileLoader(None, "cpu")
        e = gives(Exception, loader.add_filenames, {0: [good, path]})
        true(words in str(e) and path in str(e), str(e))
        loader.close()


@case
def mistyped_arguments_are_named():
    fst, ours = package()
    for wrong, meant in (("stirct", "strict"), ("time_out", "timeout"), ("set_num", "set_numa"),
                         ("something", "")):
        e = gives(TypeError, ours.FileLoader, None, "cpu", **{wrong: 1})
        true(f"'{wrong}'" in str(e) and (not meant or f"did you mean '{meant}'?" in str(e)), str(e))
    ours.FileLoader(None, "cpu", strict=False, set_numa=False, timeout=5, max_threads=3).close()
    # Options of other copiers are ignored, unless they look like a misspelled one of ours.
    ours.new_copier("cpu", bbuf_size_kb=5, set_numa=True, framework=None, cache_dir="x")
    e = gives(TypeError, ours.new_copier, "cpu", polcy=None)
    true("did you mean 'policy'?" in str(e) and fst is not None, str(e))


@case
def who_stops_in_the_middle():
    _, ours = package()
    from fastsafetensors.parallel_loader import PipelineParallel
    want, paths = model()
    loader = PipelineParallel(None, ours.FileLoader(None, "cpu"), paths, 1, 2, False,
                              max_batch_bytes=250_000)
    got = 0
    for name, tensor in loader.iterate_weights():
        same(tensor, want[name])
        got += 1
        if got == len(want) // 2:
            break
    loader.close()


def gone(path):
    os.link(path, path + ".gone")
    from fastsafetensors.common import SafeTensorsMetadata
    from fastsafetensors.frameworks import get_framework_op
    from fastsafetensors.st_types import Device
    metadata = SafeTensorsMetadata.from_file(path + ".gone", get_framework_op("pytorch"))
    os.unlink(path + ".gone")
    import penstock.fastsafetensors as ours
    device = Device.from_str("cpu")
    ours.new_copier(device)(metadata, device, get_framework_op("pytorch"))


@case
def without_the_package():
    sys.modules.pop("penstock.fastsafetensors", None)
    sys.modules["fastsafetensors"] = None
    for name in [name for name in sys.modules if name.startswith("fastsafetensors.")]:
        sys.modules[name] = None
    e = gives(ImportError, importlib.import_module, "penstock.fastsafetensors")
    true("fastsafetensors 0.5 or newer" in str(e), str(e))


run()
