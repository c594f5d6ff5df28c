# SPDX-License-Identifier: MIT
"""Processes of the test checkpoints.  Each is forked from this one, which has only imported
modules.

ranks WORLD STORE {save PATH | load PATH | theirs PATH | lose PATH | swap}...   run that many ranks
die PATH        save over a checkpoint; killed at the first call that changes it, the second, ...
full DIR        a disk that becomes full
"""
import os
import signal
import sys
import traceback
import warnings

import torch
import torch.distributed.checkpoint as dcp

from penstock.torch import StorageReader, StorageWriter


def check(what, text="not as it was saved"):
    if not what:
        sys.exit(text)


def rank(number, world, store, *steps):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number,
                                         world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    whole = {"rows": torch.arange(70.0).reshape(7, 10), "columns": torch.arange(96).reshape(8, 12),
             "deep": torch.arange(5 * 6 * 7).reshape(5, 6, 7).bfloat16(),
             "copy": torch.arange(9.0), "large": torch.arange(1 << 17).reshape(512, 256)}
    places = {"rows": Shard(0), "columns": Shard(1), "deep": Shard(1), "copy": Replicate(),
              "large": Shard(0)}

    def sharded(tensors):
        return {name: distribute_tensor(tensor.clone(), mesh, [places[name]])
                for name, tensor in tensors.items()}
    steps = list(steps)
    while steps:
        step = steps.pop(0)
        if step == "swap":
            places.update(rows=Shard(1), columns=Shard(0), deep=Shard(2), large=Shard(1))
            continue
        path = steps.pop(0)
        if step == "save":
            dcp.save({**sharded(whole), "step": 42}, storage_writer=StorageWriter(path))
            continue
        if step == "lose":
            lose(number, path, sharded(whole))
            continue
        reader = {"load": StorageReader, "theirs": dcp.FileSystemReader}[step](path)
        got = {**sharded({name: torch.zeros_like(tensor) for name, tensor in whole.items()}),
               "step": 0}
        dcp.load(got, storage_reader=reader)
        check(got["step"] == 42)
        for name, tensor in whole.items():
            check(torch.equal(got[name].full_tensor(), tensor), f"{name} is not as it was saved")
    torch.distributed.destroy_process_group()


def lose(number, path, got):
    """The last rank's file is missing: each rank gets an error, and none leaves the others waiting.
    """
    torch.distributed.barrier()
    lost = [name for name in os.listdir(path) if name.startswith("__1_")]
    torch.distributed.barrier()
    if number == 1:
        os.unlink(f"{path}/{lost[0]}")
    torch.distributed.barrier()
    try:
        dcp.load(got, storage_reader=StorageReader(path))
    except dcp.api.CheckpointException as e:
        check(list(e.failures) == [1], f"{e.failures}")
        error = e.failures[1][0]
        check(isinstance(error, FileNotFoundError) and error.filename == f"{path}/{lost[0]}",
              repr(error))
    else:
        sys.exit("a file is missing, and all was loaded")


def forked(function, *args):
    """Call a function in a child.  Return its PID."""
    pid = os.fork()
    if pid:
        return pid
    try:
        function(*args)
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ranks(world, store, *steps):
    # Import before the forks, because it takes seconds.
    global init_device_mesh, Replicate, Shard, distribute_tensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    pids = [forked(rank, number, int(world), store, *steps) for number in range(int(world))]
    check([ended(pid) for pid in pids] == [0] * len(pids), "a rank failed")


def save_and_die(path, left):
    def counted(call):
        def step(*args, **options):
            nonlocal left
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*args, **options)
        return step
    from penstock import File
    for owner, name in ((File, "write_from"), (File, "sync"), (os, "link"), (os, "replace"),
                        (os, "fsync"), (os, "unlink")):
        setattr(owner, name, counted(getattr(owner, name)))
    dcp.save({"a": torch.full((1 << 20,), 2.0), "step": 2}, storage_writer=StorageWriter(path))


def is_whole(path, seen):
    got = {"a": torch.zeros(1 << 20), "step": 0}
    dcp.load(got, storage_reader=StorageReader(path))
    check(got["step"] in (1, 2) and bool((got["a"] == float(got["step"])).all()))
    with open(seen, "a", encoding="ascii") as file:
        file.write(f"{got['step']}\n")


def die(path):
    for number in range(100):
        status = ended(forked(save_and_die, path, number))
        check(status in (0, -signal.SIGKILL), f"it ended with {status}")
        check(ended(forked(is_whole, path, f"{path}.seen")) == 0)
        if status == 0:
            break
    # The complete save has removed what the killed ones left.
    check(len(os.listdir(path)) == 2, f"{os.listdir(path)}")
    with open(f"{path}.seen", encoding="ascii") as file:
        seen = file.read().split()
    check(number > 5 and set(seen) == {"1", "2"}, f"after {number} calls there was {seen}")


def full(folder):
    path = f"{folder}/checkpoint"
    small = {"a": torch.full((1 << 19,), 3.0), "step": 1}
    dcp.save(small, storage_writer=StorageWriter(path))
    try:
        dcp.save({"a": torch.zeros(1 << 21), "step": 2}, storage_writer=StorageWriter(path))
    except dcp.api.CheckpointException as e:
        errors = [error[0] for error in e.failures.values()]
        check([getattr(error, "errno", None) for error in errors] == [28], repr(errors))
    else:
        sys.exit("16 MiB were saved on 8")
    check(len(os.listdir(path)) == 2, f"something was left: {os.listdir(path)}")
    got = {"a": torch.zeros(1 << 19), "step": 0}
    dcp.load(got, storage_reader=StorageReader(path))
    check(got["step"] == 1 and bool((got["a"] == 3.0).all()))
    dcp.save({"a": torch.zeros(1 << 19), "step": 3}, storage_writer=StorageWriter(path))
    # Some of these sizes have room for the tensors but not for the table of contents.
    for pages in range(512, 525):
        before, left = sorted(os.listdir(path)), os.statvfs(folder)
        with open(f"{folder}/filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (left.f_bavail - pages) * left.f_frsize)
        try:
            dcp.save({"a": torch.zeros(1 << 19), "step": 4}, storage_writer=StorageWriter(path))
        except dcp.api.CheckpointException:
            check(sorted(os.listdir(path)) == before, f"{pages} left {os.listdir(path)}")
        else:
            break
        finally:
            os.unlink(f"{folder}/filler")
    check(pages > 512, "all was saved where there was no room")
    dcp.load(got, storage_reader=StorageReader(path))
    check(got["step"] == 4)


warnings.simplefilter("ignore")
torch.set_num_threads(1)
{"ranks": ranks, "die": die, "full": full}[sys.argv[1]](*sys.argv[2:])
