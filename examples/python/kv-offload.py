#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Offload blocks of a KV cache to a file by a block table, and restore them to other blocks.

    kv-offload.py [--device DEVICE] [DIR]

In device memory each layer has an array of pieces, one for each block.  In the file a block is
contiguous.  So a block is one range with strides: its piece of the next layer lies LAYER bytes
further in memory and PIECE bytes further in the file.  A sequence of blocks is one request.
"""
import argparse
import array
import os
import sys
import tempfile

import penstock

LAYERS = 16
BLOCKS = 64                 # blocks in device memory
PIECE = 16384               # bytes of a block in one layer
LAYER = BLOCKS * PIECE
BLOCK = LAYERS * PIECE      # bytes of a block in the file


def ranges(blocks, slots):
    """Return the arguments of Queue.readv() and writev() for cache blocks and their slots."""
    in_file = array.array("Q", (BLOCK * slot for slot in slots))
    in_memory = array.array("Q", (PIECE * block for block in blocks))
    return {"offsets": in_file, "mem_offsets": in_memory, "nbytes": PIECE,
            "strides": (PIECE, LAYER, LAYERS)}


def take(queue):
    """Submit, and wait for all: return {tag: Result}.  Raise the error of the first that failed."""
    queue.submit()
    return {completion.tag: completion.check() for completion in queue.reap(queue.in_flight)}


def offload_and_restore(device, path):
    # Two sequences, whose blocks are wherever the engine put them.
    tables = {"first": [3, 14, 15, 9, 26, 5], "second": [58, 2, 7, 18, 28]}
    slots, free = {}, iter(range(BLOCKS))
    for name, blocks in tables.items():
        slots[name] = [next(free) for _ in blocks]
    with penstock.Memory.alloc(device, LAYERS * LAYER) as cache, penstock.Queue() as queue, \
            penstock.File(path, "w+") as file:
        filled = os.urandom(LAYERS * LAYER)
        cache.copy_in(filled)

        # Each write returns a checksum of its sequence, which is kept with the slots.
        for name, blocks in tables.items():
            queue.writev(file, cache, tag=name, crc32c=True, timeout=30,
                         **ranges(blocks, slots[name]))
        written = take(queue)
        for name, result in written.items():
            print(f"offloaded {name}: {result.nbytes} bytes by {result.path}")

        # The engine reuses the memory for other sequences; then the old ones are restored to other
        # blocks.
        cache.copy_in(bytes(LAYERS * LAYER))
        restored = {"first": [40, 41, 1, 0, 63, 33], "second": [8, 50, 51, 4, 20]}
        for name, blocks in restored.items():
            queue.readv(file, cache, tag=name, crc32c=True, timeout=30,
                        **ranges(blocks, slots[name]))
        for name, result in take(queue).items():
            if result.crc32c != written[name].crc32c:
                raise ValueError(f"{path}: the bytes of sequence '{name}' have changed")
            print(f"restored {name}: {result.nbytes} bytes by {result.path}")

        now = cache.copy_out()
        for name, blocks in tables.items():
            for old, new in zip(blocks, restored[name]):
                for layer in range(0, LAYERS * LAYER, LAYER):
                    before, after = layer + PIECE * old, layer + PIECE * new
                    if filled[before:before + PIECE] != now[after:after + PIECE]:
                        raise ValueError(f"block {old} is not in block {new}")
    print("every piece is where it belongs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="soft:0")
    parser.add_argument("folder", nargs="?", metavar="DIR")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            offload_and_restore(args.device, os.path.join(folder, "kv"))
    except (OSError, ValueError) as error:
        sys.exit(f"kv-offload: {error}")


if __name__ == "__main__":
    main()
