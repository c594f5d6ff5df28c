# SPDX-License-Identifier: MIT
"""Headers of safetensors files: valid ones, and errors for hostile ones."""
import json
import os
import resource
import struct
import subprocess
import sys

from tap import case, eq, file, gives, run, true

from penstock.safetensors import SafetensorError
from penstock.safetensors import _header

ROOT = os.environ["ROOT"]
ONE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def content(header, data=b"abcd", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def parse(header, data=b"abcd"):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return _header.parse(raw, 8 + len(raw) + len(data))


def refused(text, *args):
    e = gives(SafetensorError, parse, *args)
    true(text in str(e), f"{e}, and not {text}")


@case
def accepted():
    header = parse({"__metadata__": {"a": "b"}, "x": ONE})
    eq((header.metadata, list(header.tensors)), ({"a": "b"}, ["x"]))
    entry = header.tensors["x"]
    eq((entry.dtype, entry.shape, entry.begin, entry.nbytes), ("U8", (4,), 0, 4))
    eq(parse({}, b"").tensors, {})
    eq(parse(b"{}      ", b"").metadata, None)
    # Sorted by their bytes, empty ones first.
    header = parse({"b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]},
                    "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                    "e": {"dtype": "F32", "shape": [0, 9], "data_offsets": [2, 2]}})
    eq(list(header.tensors), ["a", "e", "b"])
    eq(parse({"x": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}).tensors["x"].nbytes, 4)
    eq(parse({"x": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}).tensors["x"].shape, ())
    eq(list(parse({"\u00e9\U0001f600": ONE}).tensors), ["\u00e9\U0001f600"])


@case
def lengths():
    for text, raw in (("is empty", b""), ("less than the 8", b"1234567"),
                      ("is empty", struct.pack("<Q", 0)), ("is empty", content(b"{")),
                      ("the limit is", content({}, length=100_000_001)),
                      ("the limit is", content({}, length=2**64 - 1)),
                      ("longer than the file", content({}, b"", length=3)),
                      ("longer than the file", content({}, b"x" * 90, length=99_999_999))):
        e = gives(SafetensorError, _header.header_length, raw[:8], len(raw))
        true(text in str(e), f"{e}, and not {text}")


@case
def json_that_is_none():
    refused("does not begin", b"[]")
    refused("does not begin", b" []")
    refused("does not begin", b"\xef\xbb\xbf{}")
    refused("not valid UTF-8", b'{"\xff": 1}')
    refused("not valid UTF-8", b'{"\xed\xa0\x80": 1}')
    refused("not valid JSON", b"{} {}")
    refused("not valid JSON", b'{"a": 1')
    refused("not valid JSON", b"{'a': 1}")
    refused("not valid JSON", b'{"a\nb": 1}')
    refused("half of a character", b'{"\\ud800": 1}')
    refused("not valid JSON: it has NaN", b'{"a": NaN}')
    refused("something else than an object", b'{"a": 1e3}')
    refused("something else than an object", b'{"a": ' + b"9" * 100000 + b"}")


@case
def what_the_package_safetensors_reads():
    eq(list(parse(b" \n" + json.dumps({"x": ONE}).encode()).tensors), ["x"])
    eq(list(parse({"a\0b": ONE}).tensors), ["a\0b"])
    eq(list(parse({"": ONE}).tensors), [""])
    eq(parse({"x": ONE, "__metadata__": {"k\0": "v\0"}}).metadata, {"k\0": "v\0"})
    eq(parse({"x": ONE, "__metadata__": None}).metadata, None)
    more = {"scale": 0.5, "n": [1e3, None, {"deep": [True]}], "device": "cpu"}
    eq(parse({"x": {**ONE, **more}}).tensors["x"].nbytes, 4)
    eq(len(parse({"x": {**ONE, "shape": [1] * 99 + [4]}}).tensors["x"].shape), 100)


@case
def other_files_are_told_apart():
    import penstock
    zeros = bytes(4096)
    for begin, text in ((b"version https://git-lfs.github.com/spec/v1\noid sha256:1",
                         "git lfs pull"),
                        (b"PK\3\4\0\0\10\10" + zeros, "torch.load()"),
                        (b"GGUF\3\0\0\0" + zeros, "GGUF"), (b"\x93NUMPY\1\0", "numpy.load()"),
                        (b"\x89HDF\r\n\x1a\n", "HDF5"), (b"\x1f\x8b\x08\0\0\0\0\0", "gunzip"),
                        (b"\x80\2\x8a\nl\xfc\x9cF", "pickle"), (b"<!DOCTYPE html>", "web page"),
                        (b'{"weight_map": {}}', "*.index.json"), (zeros, "begins with zeros"),
                        (b"something else", "this is no safetensors file"), (b"", "is empty")):
        with penstock.File(file("other", begin)) as f:
            e = gives(SafetensorError, _header.read, f)
        true(text in str(e), f"{e}, and not {text}")


@case
def nesting_and_memory_are_bounded():
    refused("too many values", b'{"a":' + b"[" * 20_000_000)
    refused("too many values", b"{" + b'"":0,' * 10_000_000)
    refused("", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    refused("", b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    true(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20)


READER = """
import sys
import penstock
from penstock.safetensors import SafetensorError, _header
def peak():
    with open("/proc/self/status", encoding="ascii") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmHWM")))
before = peak()
result = "accepted"
try:
    with penstock.File(sys.argv[1]) as f:
        _header.read(f)
except SafetensorError as e:
    result = str(e)
print((peak() - before) << 10, result)
"""


def peak(raw, nbytes):
    """Read a header in a new process.  Return the bytes of memory that it took, and its result."""
    path = file("peak", struct.pack("<Q", len(raw)) + raw)
    os.truncate(path, 8 + len(raw) + nbytes)
    took, _, result = subprocess.run([sys.executable, "-c", READER, path], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout.strip().partition(" ")
    return int(took), result


def most(make, least):
    """Find the longest header make(count) that is not refused for its memory."""
    fixed = _header._COST_FIXED
    count = int(least * (_header._COST_MAX - fixed) / (_header._cost(make(least)) - fixed))
    while _header._cost(make(count)) > _header._COST_MAX:
        count = count * 99 // 100
    return count, make(count)


@case
def memory_is_what_the_documents_say():
    limit = _header._COST_MAX
    with open(os.path.join(ROOT, "SECURITY.md"), encoding="utf-8") as text:
        true(f"{limit >> 20} MiB of memory at most" in " ".join(text.read().split()))
    wide = "\U0001f600"

    def long_text(count):
        return f'{{"__metadata__":{{"a":"{wide}{"x" * count}"}}}}'.encode()

    def texts(count):
        pairs = ",".join(f'"{i}{wide}":"{wide}"' for i in range(count))
        return f'{{"__metadata__":{{{pairs}}}}}'.encode()

    def tensors(count):
        return ("{" + ", ".join(f'"{i}": {{"dtype": "U8", "shape": [1], "data_offsets": '
                                f"[{i},{i + 1}]}}" for i in range(count)) + "}").encode()
    for make, least in ((long_text, 1_000_000), (texts, 100_000), (tensors, 100_000)):
        count, raw = most(make, least)
        took, result = peak(raw, count if make is tensors else 0)
        eq(result, "accepted")
        true(took <= limit, f"{make.__name__}: {took >> 20} MiB")
    for make, count in ((long_text, 98_000_000), (texts, 3_000_000)):
        took, result = peak(make(count), 0)
        true("would take more than" in result, result)
        true(took <= limit, f"{make.__name__}: {took >> 20} MiB")


@case
def plain_headers_keep_to_the_limit_too():
    def plain(count, name=str, shape="[0,{}]", more=""):
        return ("{" + more + ",".join(f'"{name(i)}":{{"dtype":"U8","shape":{shape.format(i)},'
                                      '"data_offsets":[0,0]}' for i in range(count)) + "}").encode()
    nested = "[" * 900 + "]" * 900
    lists = '"__metadata__":{"a":[' + ",".join([nested] * 8900) + "]},"
    objects = '"__metadata__":{"a":[' + ",".join(['{"":0}'] * 1_500_000) + "]},"
    for what, raw, text in (
            ("names", plain(260_000), "accepted"),
            ("wide names", plain(245_000, lambda i: f"{i}\U0001f600"), "accepted"),
            ("nested lists", plain(1, more=lists), "would take more than"),
            ("objects", plain(1, more=objects), "would take more than")):
        true(len(raw) <= _header._PLAIN_MAX, f"{what}: {len(raw)}")
        took, result = peak(raw, 0)
        true(text in result, f"{what}: {result}")
        true(took <= _header._COST_MAX, f"{what}: {took >> 20} MiB")


@case
def what_is_built_can_be_read():
    def entry(name, shape=(4,)):
        return _header.Entry(name, "U8", shape, 0, 4)

    def unbuilt(text, entries, metadata=None):
        e = gives(SafetensorError, _header.build, entries, metadata)
        true(text in str(e), f"{e}, and not {text}")
    raw = _header.build([entry("x")], {"a": "b"})
    eq(list(_header.parse(raw[8:], len(raw) + 4).tensors), ["x"])
    raw = _header.build([entry("a\0", (1,) * 99 + (4,))], {"k\0": "v\0"})
    header = _header.parse(raw[8:], len(raw) + 4)
    eq((list(header.tensors), header.metadata), (["a\0"], {"k\0": "v\0"}))
    unbuilt("half of a character", [entry("\ud800")])
    unbuilt("half of a character", [], {"a": "\ud800"})
    unbuilt("too many values", [entry("{" * 5_000_000)])


@case
def twice():
    one = json.dumps(ONE)
    refused("'x' twice", f'{{"x": {one}, "x": {one}}}'.encode())
    refused("'dtype' twice", f'{{"x": {{"dtype": "I8", {one[1:]}}}'.encode())
    refused("'a' twice", b'{"__metadata__": {"a": "1", "a": "2"}}')
    # The same name, spelled with JSON escapes.
    refused("'x' twice", f'{{"x": {one}, "\\u0078": {one}}}'.encode())


@case
def fields():
    refused("something else than an object", {"x": 1})
    refused("something else than an object", {"x": None})
    for name in ONE:
        refused("does not have", {"x": {k: v for k, v in ONE.items() if k != name}})
    for dtype in ("F5", "u8", "", None, 3, ["U8"]):
        refused("unknown dtype", {"x": {**ONE, "dtype": dtype}})
    for shape in (4, None, "4", {"a": 1}):
        refused("is no array", {"x": {**ONE, "shape": shape}})
    for shape in ([-4], ["4"], [True], [None], [2**63], [[4]]):
        refused("no size", {"x": {**ONE, "shape": shape}})
    refused("overflows", {"x": {**ONE, "shape": [2**32, 2**32]}})
    refused("overflows", {"x": {**ONE, "shape": [2**62, 2]}})
    refused("overflows", {"x": {**ONE, "shape": [2**62, 2, 0]}})
    refused("whole byte", {"x": {**ONE, "dtype": "F4", "shape": [7]}})
    for offsets in (4, [0], [0, 4, 4], [4, 0], [-1, 3], ["0", "4"], [False, 4], [0, None]):
        refused("no begin and end", {"x": {**ONE, "data_offsets": offsets}})


@case
def places():
    refused("past the end", {"x": ONE}, b"abc")
    refused("past the end", {"x": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}})
    refused("need 4", {"x": {**ONE, "data_offsets": [0, 3]}})
    refused("need 16", {"x": {**ONE, "dtype": "F32"}})
    refused("end of the file belong", {"x": ONE}, b"abcde")
    refused("end of the file belong", {}, b"a")
    two = {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}
    refused("before tensor 'x' belong", {"x": two})
    refused("overlap", {"x": ONE, "y": two})
    refused("overlap", {"x": ONE, "y": ONE})
    refused("overlap", {"x": ONE, "e": {"dtype": "U8", "shape": [0], "data_offsets": [2, 2]}})


@case
def metadata():
    for bad in (1, [], "a"):
        refused("is no object", {"__metadata__": bad})
    for bad in (1, [], {}, None):
        refused("no text", {"__metadata__": {"a": bad}})


@case
def every_cut_of_a_file_is_refused():
    import penstock
    whole = content({"x": ONE, "__metadata__": {"a": "b"}})
    for length in range(len(whole)):
        with penstock.File(file("cut", whole[:length])) as f:
            gives(SafetensorError, _header.read, f)
    with penstock.File(file("cut", whole)) as f:
        eq(list(_header.read(f).tensors), ["x"])


@case
def every_changed_byte_gives_a_header_or_the_error():
    whole = json.dumps({"x": ONE, "y": {"dtype": "F16", "shape": [1, 1], "data_offsets": [4, 6]}})
    whole = whole.encode()
    good = 0
    for place in range(len(whole)):
        for value in (0, 10, 34, 45, 48, 57, 91, 123, 125, 255, whole[place] ^ 1):
            raw = whole[:place] + bytes([value]) + whole[place + 1:]
            try:
                header = _header.parse(raw, 8 + len(raw) + 6)
            except SafetensorError:
                continue
            good += 1
            at = 0
            for entry in header.tensors.values():
                eq(entry.begin, at)
                at += entry.nbytes
            eq(at, 6)
    true(good > 10)


@case
def built_headers_can_be_read():
    entries = [_header.Entry("a", "F64", (2,), 0, 16), _header.Entry("\u00e9", "U8", (), 16, 1)]
    raw = _header.build(entries, {"k": "v"})
    eq(len(raw) % 8, 0)
    header = _header.parse(raw[8:], len(raw) + 17)
    eq([(e.name, e.shape) for e in header.tensors.values()], [("a", (2,)), ("\u00e9", ())])
    gives(SafetensorError, _header.build, [], {"k": 1})
    gives(SafetensorError, _header.build, [_header.Entry("__metadata__", "U8", (), 0, 1)], None)
    gives(SafetensorError, _header.build, [_header.Entry("\ud800", "U8", (), 0, 1)], None)


run()
