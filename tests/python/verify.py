# SPDX-License-Identifier: MIT
"""Checksum files of models, and comparison of tensors in memory with them."""
import json
import os
import random
import struct
import subprocess

from tap import Skip, case, eq, gives, numpy, run, torch, true, work

import penstock
from penstock.__main__ import main
from penstock.safetensors import (SafetensorError, check_sums, load_file, load_files, save_file,
                                  write_sums)
from penstock.safetensors import _into
from penstock.safetensors._sums import read_sums


def slow_crc(data):
    """Compute a CRC-32C bit by bit, as RFC 3720 defines it."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def model(name, **more):
    np = numpy()
    path = f"{work}/{name}"
    tensors = {"a": np.arange(1000, dtype=np.float32), "b": np.zeros((0, 4), np.int8),
               "c": np.frombuffer(random.Random(5).randbytes(33333), np.uint8)}
    tensors.update(more)
    save_file(tensors, path)
    return path, tensors


@case
def numbers_of_memory():
    data = random.Random(1).randbytes(300)
    eq(penstock.crc32c([b"123456789", data, data[7:]]),
       [0xe3069283, slow_crc(data), slow_crc(data[7:])])
    with penstock.Memory.alloc("soft:0", 4096) as memory:
        memory.copy_in(data, 100)
        with penstock.Memory.alloc("host", 4096) as same:
            same.copy_in(data, 100)
            memory.copy_in(same.copy_out())
            eq(penstock.crc32c([memory]), penstock.crc32c([same]))
    eq(penstock.crc32c([]), [])
    gives(ValueError, penstock.crc32c, [b""])
    gives(TypeError, penstock.crc32c, [1])


def frameworks():
    yield "np"
    try:
        torch()
        yield "pt"
    except Skip:
        pass


@case
def a_good_file_is_loaded():
    np = numpy()
    path, tensors = model("good.safetensors", big=np.arange(5 << 20, dtype=np.int64))
    eq(write_sums(path), path + ".crc32c")
    for framework in frameworks():
        loaded = load_file(path, framework=framework, verify=True)
        eq(sorted(loaded), sorted(tensors))
        eq(list(load_file(path, framework=framework, names=["c"], verify=True)), ["c"])
    check_sums(path)


@case
def each_wrong_byte_is_found():
    path, _ = model("wrong.safetensors")
    write_sums(path)
    with open(path, "rb") as file:
        data = bytearray(file.read())
    header, = struct.unpack_from("<Q", data)
    rng = random.Random(3)
    # Each file has one more wrong byte than the previous one.
    for at in [header + 8, len(data) - 1] + [rng.randrange(header + 8, len(data))
                                             for _ in range(40)]:
        data[at] ^= 1 << rng.randrange(8)
        with open(path, "wb") as file:
            file.write(data)
        error = gives(SafetensorError, load_file, path, verify=True)
        true("tensor '" in str(error) and "expected" in str(error), str(error))
        gives(SafetensorError, check_sums, path)
        load_file(path)     # no comparison
    true(main(arguments=["sum", "--check", path]) == 1)


@case
def wrong_bytes_of_queued_reads_are_found():
    """Read with a queue, like models of 256 MiB and more, and parts of 16 MiB."""
    np = numpy()
    path, tensors = model("large.safetensors", big=np.frombuffer(
        random.Random(8).randbytes((32 << 20) + 99), np.uint8), small=np.zeros(900, np.uint8))
    write_sums(path)
    with open(path, "rb") as file:
        header, = struct.unpack("<Q", file.read(8))
    places = {name: header + 8 + entry["data_offsets"][0]
              for name, entry in json.loads(open(path, "rb").read()[8:8 + header]).items()}
    kept = _into._OVERLAPS, _into._LARGE
    _into._OVERLAPS, _into._LARGE = 0, 1000
    try:
        for framework in frameworks():
            loaded = load_file(path, framework=framework, verify=True)
            true(all(bytes(np.asarray(loaded[name]).data) == tensor.tobytes()
                     for name, tensor in tensors.items() if tensor.size))
        for name, at in (("big", 0), ("big", 16 << 20), ("big", (32 << 20) + 98), ("a", 5),
                         ("small", 7)):
            with open(path, "r+b") as file:
                file.seek(places[name] + at)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 8]))
                file.flush()
                error = gives(SafetensorError, load_file, path, verify=True)
                true(f"tensor '{name}'" in str(error), str(error))
                true(f" byte {places[name] + (at & -(16 << 20))} of" in str(error), str(error))
                load_file(path)
                file.seek(places[name] + at)
                file.write(bytes([byte]))
        load_file(path, verify=True)
    finally:
        _into._OVERLAPS, _into._LARGE = kept


@case
def checksums_that_do_not_fit():
    path, _ = model("fits.safetensors")
    sums = path + ".crc32c"
    error = gives(SafetensorError, load_file, path, verify=True)
    true("python3 -m penstock sum" in str(error), str(error))
    write_sums(path)
    with open(sums, encoding="ascii") as file:
        good = file.readlines()
    for bad in (good[:-1], good[:1], [], good + [good[-1]], ["penstock-crc32c 2 9\n"] + good[1:],
                [good[0]] + good[2:], [good[0], "x\n"] + good[2:], good[:-1] + [good[-1][:-1]],
                [good[0], good[1].replace(" 0 ", " 1 ")] + good[2:], ["\xff\n"],
                ["penstock-crc32c 1 1\n"] + good[1:]):
        with open(sums, "w", encoding="latin-1") as file:
            file.writelines(bad)
        gives(SafetensorError, load_file, path, verify=True)
        gives(SafetensorError, check_sums, path)
    # Name a range larger than any memory.
    with open(sums, "w", encoding="ascii") as file:
        file.write(f"penstock-crc32c 1 {1 << 50}\n00000000 0 {1 << 50}\n")
    gives(SafetensorError, read_sums, path, 1 << 50)
    # Checksums of another file of the same length, whose tensors are at other places.
    np = numpy()
    other, _ = model("other.safetensors")
    size = os.path.getsize(path)
    save_file({"a": np.zeros(1000, np.float32), "b": np.zeros((0, 4), np.int8),
               "c": np.zeros(33333, np.uint8)}, other)
    eq(os.path.getsize(other), size)
    write_sums(other)
    os.replace(other + ".crc32c", sums)
    gives(SafetensorError, load_file, path, verify=True)
    write_sums(path)
    load_file(path, verify=True)


@case
def several_files():
    np = numpy()
    one, _ = model("one.safetensors")
    two = f"{work}/two.safetensors"
    save_file({"z": np.arange(77, dtype=np.int16)}, two)
    eq(main(arguments=["sum", one, two]), 0)
    eq(main(arguments=["sum", "--check", one, two]), 0)
    eq(sorted(load_files([one, two], verify=True)), ["a", "b", "c", "z"])
    eq(main(arguments=["sum", f"{work}/none.safetensors"]), 1)


def command(*arguments, status=0):
    done = subprocess.run([os.environ["PENSTOCK"], "sum", *arguments], capture_output=True,
                          text=True, check=False)
    eq((done.returncode, done.stderr if not status else ""), (status, ""))
    return done.stderr


@case
def the_command_agrees():
    np = numpy()
    big = np.frombuffer(random.Random(9).randbytes((33 << 20) + 5), np.uint8)
    paths = [model("same.safetensors", big=big)[0], f"{work}/none.safetensors",
             f"{work}/long header.safetensors", f"{work}/empty.safetensors"]
    save_file({}, paths[1])
    save_file({"a": np.arange(3)}, paths[2], metadata={"text": "x" * (17 << 20)})
    save_file({"a": np.zeros((0, 3)), "b": np.zeros(0)}, paths[3])
    for path in paths:
        write_sums(path)
        command("--check", path)
        with open(path + ".crc32c", "rb") as file:
            sums = file.read()
        os.remove(path + ".crc32c")
        command(path)
        with open(path + ".crc32c", "rb") as file:
            eq(file.read(), sums)
        check_sums(path)


@case
def both_refuse_the_same():
    """Change single bytes of the text, and of the model's header."""
    path, _ = model("refused.safetensors")
    sums, rng = path + ".crc32c", random.Random(11)
    write_sums(path)
    with open(sums, "rb") as file:
        good = file.read()
    with open(path, "rb") as file:
        data = file.read()
    header, = struct.unpack_from("<Q", data)
    for n in range(60):
        bad = bytearray(good)
        at = rng.randrange(len(bad))
        bad[at:at + rng.randrange(2)] = rng.choice([b"", b"0", b"a", b" ", b"\n", b"\r\n", b"\xff"])
        with open(sums, "wb") as file:
            file.write(bad)
        try:
            check_sums(path)    # an additional leading 0 is harmless
            command("--check", path)
        except SafetensorError:
            command("--check", path, status=1)
    for n in range(60):
        bad = bytearray(data)
        bad[rng.randrange(8 + header)] ^= 1 << rng.randrange(7)
        with open(path, "wb") as file:
            file.write(bad)
        try:
            write_sums(path)
        except SafetensorError:
            command(path, status=1)
            continue
        with open(sums, "rb") as file:
            wanted = file.read()
        command(path)
        with open(sums, "rb") as file:
            eq(file.read(), wanted)


run()
