# SPDX-License-Identifier: MIT
"""The files that are loaded: generated with the shapes of a transformer, or given."""
import concurrent.futures
import json
import os
import random
import shutil
import struct
import tempfile
import zlib

POOL = 64 << 20  # bytes of random data, from which all content is cut
PIECE = 1 << 20  # bytes cut at a time
STEP = 4099  # bytes between two cuts, so that no two pieces are equal
HEADER_MAX = 100_000_000  # the format's own limit
SIZES = {"U8": 1, "I8": 1, "BOOL": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}


class Failure(Exception):
    """An error whose sentence has cause and cure."""


def place(entry):
    """Return a tensor's begin and end, relative to the data; raise ValueError."""
    begin, end = entry["data_offsets"]
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end < 1 << 62:
        raise ValueError("data_offsets are no begin and end")
    return begin, end


def contents(path):
    """Return a file's tensors: [(name, offset in the file, bytes)]."""
    try:
        if not os.path.isfile(path):
            os.stat(path)  # raises the proper error for a missing file
            raise ValueError("no regular file")  # a pipe would be waited for
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            if length > HEADER_MAX:
                raise ValueError("a header that is too long")
            header = json.loads(file.read(length))
        found = []
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = place(entry)
                found.append((name, 8 + length + begin, end - begin))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error):
        raise Failure(f"{path} is no safetensors file; give files of that format") from None
    return sorted(found, key=lambda entry: entry[1:])


def shapes(size, tensors):
    """Return [(name, type, shape)] of a number of tensors with about this many bytes."""
    layers = max((tensors - 4) // 9, 1)
    if tensors < 13 or size < 64 << 10:
        raise Failure("a model has at least 13 tensors and 64k bytes; see --size and --tensors")
    # A layer has 13 times hidden squared weights, and each end of the model about 8 times hidden
    # squared.
    hidden = int((size / 2 / (13 * layers + 16)) ** 0.5)
    hidden = max(hidden // 64 * 64 if hidden >= 512 else hidden // 8 * 8, 8)
    wide = hidden * 7 // 2
    # Adjust the number of words to make up for the rounding.
    words = max(int(size / 2 - 13 * layers * hidden ** 2) // (2 * hidden) // 8 * 8, 8)
    found = [("model.embed_tokens.weight", "BF16", [words, hidden])]
    for layer in range(layers):
        for name, shape in (("input_layernorm", [hidden]),
                            ("self_attn.q_proj", [hidden, hidden]),
                            ("self_attn.k_proj", [hidden // 4, hidden]),
                            ("self_attn.v_proj", [hidden // 4, hidden]),
                            ("self_attn.o_proj", [hidden, hidden]),
                            ("post_attention_layernorm", [hidden]),
                            ("mlp.gate_proj", [wide, hidden]),
                            ("mlp.up_proj", [wide, hidden]),
                            ("mlp.down_proj", [hidden, wide])):
            found.append((f"model.layers.{layer}.{name}.weight", "BF16", shape))
    found.append(("model.norm.weight", "BF16", [hidden]))
    found.append(("lm_head.weight", "BF16", [words, hidden]))
    for extra in range(tensors - len(found)):
        found.append((f"model.rotary.{extra}.inv_freq", "F32", [hidden // 8]))
    return found


def bytes_of(kind, shape):
    length = SIZES[kind]
    for dimension in shape:
        length *= dimension
    return length


def split(tensors, shards):
    """Divide the tensors, in their order, into files of about the same size."""
    total = sum(bytes_of(kind, shape) for _, kind, shape in tensors)
    files, done = [[] for _ in range(shards)], 0
    for tensor in tensors:
        files[min(done * shards // total, shards - 1)].append(tensor)
        done += bytes_of(*tensor[1:])
    return [file for file in files if file]


class Content:
    """Bytes that are equal in each run, but differ everywhere."""

    def __init__(self, size):
        length = min(POOL, size) + PIECE
        self.pool = random.Random(1).getrandbits(length * 8).to_bytes(length, "little")
        self.at = 0

    def write(self, file, length):
        view = memoryview(self.pool)
        for begin in range(0, length, PIECE):
            file.write(view[self.at:self.at + min(PIECE, length - begin)])
            self.at = (self.at + STEP) % (len(self.pool) - PIECE)


def write_shard(path, tensors, content):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, shape in tensors:
        length = bytes_of(kind, shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + length]}
        offset += length
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        content.write(file, offset)
        file.flush()
        os.fsync(file.fileno())


def files_in(folder):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder)
                  if name.endswith(".safetensors"))


def make(folder, size, tensors, shards):
    """Make a model in a folder, or find the one that an earlier run left there."""
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, f"model-{size}-{tensors}-{shards}")
    if os.path.isdir(kept):
        return files_in(kept)
    wanted = split(shapes(size, tensors), shards)
    free = shutil.disk_usage(folder).free
    if free < size * 1.05:
        raise Failure(f"{folder} has {free / 1e9:.1f} GB free, and the model takes "
                      f"{size / 1e9:.1f} GB; give another folder with --dir, or a --size")
    work = tempfile.mkdtemp(prefix="model-", dir=folder)
    try:
        content = Content(size)
        for index, part in enumerate(wanted):
            name = f"model-{index + 1:05}-of-{len(wanted):05}.safetensors"
            write_shard(os.path.join(work, name), part, content)
        os.rename(work, kept)  # last, so that an interrupted run leaves nothing under this name
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return files_in(kept)


def sums_of(path):
    """Return {name: [bytes, CRC-32]} of a file's tensors."""
    found, places = {}, contents(path)
    with open(path, "rb") as file:
        for name, offset, length in places:
            file.seek(offset)
            crc, left = 0, length
            while left:
                data = file.read(min(left, 4 << 20))
                if not data:
                    raise Failure(f"{path} ends within {name}; get the file again")
                crc = zlib.crc32(data, crc)
                left -= len(data)
            found[name] = [length, crc]
    return found


def sums(files):
    """Return {name: [bytes, CRC-32]} of the tensors of all files, as a loader must deliver them."""
    found = {}
    with concurrent.futures.ThreadPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
        for path, part in zip(files, pool.map(sums_of, files)):
            for name in part:
                if name in found:
                    raise Failure(f"{path} has {name}, as another file does; give files of one "
                                  "model, whose tensors have different names")
            found.update(part)
    if not found:
        raise Failure("there is no tensor in these files")
    if not any(length for length, _ in found.values()):
        raise Failure("the tensors in these files have no bytes; give files of a model")
    return found
