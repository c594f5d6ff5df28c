#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Load a model of safetensors files, with progress.

    load-model.py [--device DEVICE] [FILE...]

Without files a small model is made and loaded.  On "cpu" tensors are arrays of numpy, on "cuda:0"
tensors of torch.  Bytes go from the files into the tensors' own memory.
"""
import argparse
import os
import sys
import tempfile
import time

import penstock
from penstock.safetensors import SafetensorError, load_files, save_file


def make(folder):
    """Make two files, like a model with several shards."""
    import numpy
    paths = []
    for number in range(2):
        tensors = {f"layers.{2 * number + n}.weight": numpy.full((512, 256), n, numpy.float16)
                   for n in range(2)}
        paths.append(os.path.join(folder, f"model-{number + 1}-of-2.safetensors"))
        save_file(tensors, paths[-1], {"format": "np"})
    return paths


def show(so_far, total):
    print(f"\r{so_far / 1e6:.0f} of {total / 1e6:.0f} MB", end="", file=sys.stderr, flush=True)


def load(files, device):
    framework = "pt" if device != "cpu" else "np"
    begun = time.perf_counter()
    # raw=True: types that numpy lacks, such as BF16, are loaded as unsigned integers with the same
    # bits.
    tensors = load_files(files, device, framework=framework, raw=framework == "np",
                         progress=show if sys.stderr.isatty() else None)
    seconds = time.perf_counter() - begun
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    for name, tensor in list(tensors.items())[:10]:
        print(f"{name}: {tensor.dtype} {list(tensor.shape)}")
    print(f"{len(tensors)} tensors, {nbytes / 1e6:.1f} MB, {nbytes / seconds / 1e9:.2f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("files", nargs="*", metavar="FILE")
    args = parser.parse_args()
    try:
        if args.files:
            load(args.files, args.device)
        else:
            with tempfile.TemporaryDirectory() as folder:
                load(make(folder), args.device)
    except (SafetensorError, penstock.Error) as error:
        sys.exit(f"load-model: {error}")


if __name__ == "__main__":
    main()
