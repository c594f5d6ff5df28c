#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""checkpoint.py FOLDER [DEVICE]: save and restore a model, as a state dict and as a checkpoint.

DEVICE is "cpu" or "cuda:0".  With several processes, by torchrun say, each writes and reads its own
part of a checkpoint.
"""
import os
import sys
import time

import torch
import torch.distributed.checkpoint as dcp

import penstock.torch


def rate(begin, nbytes):
    return f"{nbytes / 1e9 / (time.perf_counter() - begin):.2f} GB/s"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    folder = sys.argv[1]
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)    # all processes have the same model, as in data-parallel training
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(16))).to(device)
    state = model.state_dict()
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    want = {name: tensor.clone() for name, tensor in state.items()}

    if os.environ.get("RANK", "0") == "0":
        # A folder of safetensors files, which other programs can read.
        begin = time.perf_counter()
        penstock.torch.save(state, f"{folder}/model", shard_bytes=32 << 20)
        print(f"saved {nbytes} bytes with {rate(begin, nbytes)}")
        begin = time.perf_counter()
        loaded = penstock.torch.load(f"{folder}/model", device)
        print(f"loaded them with {rate(begin, nbytes)}")
        if not all(torch.equal(loaded[name], tensor) for name, tensor in want.items()):
            sys.exit("the loaded tensors differ")

    # A checkpoint that also contains values that are no tensors.
    path = f"{folder}/checkpoint"
    begin = time.perf_counter()
    dcp.save({"model": state, "step": 7}, storage_writer=penstock.torch.StorageWriter(path))
    print(f"wrote a checkpoint with {rate(begin, nbytes)}")
    for tensor in state.values():
        tensor.zero_()
    restored = {"model": state, "step": 0}
    begin = time.perf_counter()
    dcp.load(restored, storage_reader=penstock.torch.StorageReader(path))
    print(f"restored step {restored['step']} with {rate(begin, nbytes)}")
    if not all(torch.equal(model.state_dict()[name], tensor) for name, tensor in want.items()):
        sys.exit("the restored tensors differ")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
