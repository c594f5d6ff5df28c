# SPDX-License-Identifier: MIT
"""Objects through libpenstock_streamer.so, which vLLM and SGLang load by Run:ai's package."""
import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from server import Server
from tap import case, data, eq, run, work

os.environ["HOME"] = work
server = Server()
os.environ.update(server.environ())

lib = ctypes.CDLL(os.environ["STREAMER"])
BIG = data(9_000_001)
FINISHED, FILE_ACCESS, EOF = 1, 2, 3


class Device(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


LIST = ctypes.CFUNCTYPE(None, c_char_p, c_size_t, c_void_p)
lib.runai_file_streamer_end.argtypes = [c_void_p]
lib.runai_file_streamer_request.argtypes = [c_void_p, c_void_p, c_uint32, c_void_p, c_void_p,
                                            c_void_p, c_void_p, c_void_p, Device]
lib.runai_file_streamer_response.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
                                             c_uint32]
lib.runai_file_streamer_set_credentials.argtypes = [c_void_p, c_void_p, c_void_p, c_uint32]
lib.runai_file_streamer_list_files.argtypes = [c_void_p, c_char_p, c_int, c_void_p, c_uint32,
                                               c_void_p, c_uint32, LIST, c_void_p]


class Streamer:
    def __init__(self):
        self.handle = c_void_p()
        eq(lib.runai_file_streamer_start(byref(self.handle)), 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.runai_file_streamer_end(self.handle)

    def load(self, files):
        """Load {name: [(offset, size)]}.  Return {(name, offset): bytes or the range's error code}.
        """
        paths = [name.encode() for name in files]
        ranges = [r for each in files.values() for r in each]
        keys = [(name, off) for name, each in files.items() for off, _ in each]
        buffers = [ctypes.create_string_buffer(size) for _, size in ranges]
        nr = len(ranges)
        eq(lib.runai_file_streamer_request(
            self.handle, None, len(paths), (c_char_p * len(paths))(*paths),
            (c_uint32 * len(paths))(*[len(each) for each in files.values()]),
            (c_size_t * nr)(*[off for off, _ in ranges]),
            (c_size_t * nr)(*[size for _, size in ranges]),
            (c_void_p * nr)(*[ctypes.addressof(b) for b in buffers]), Device(0, 0)), 0)
        first, at = {}, 0
        for number, each in enumerate(files.values()):
            first[number] = at
            at += len(each)
        got = {}
        for _ in range(nr):
            submission, file, index, done = c_uint64(), c_uint32(), c_uint32(), c_int()
            code = lib.runai_file_streamer_response(self.handle, byref(submission), byref(file),
                                                    byref(index), byref(done), 0xFFFFFFFF)
            place = first[file.value] + index.value
            got[keys[place]] = code if code else buffers[place].raw
        eq(len(got), nr)
        return got


@case
def ranges():
    server.reset()
    server.put("bucket", "m/one", BIG)
    server.put("bucket", "m/two", BIG[::-1])
    one, two = "s3://bucket/m/one", "s3://bucket/m/two"
    with Streamer() as s:
        got = s.load({one: [(0, 1000), (1000, 5_000_000), (8_999_000, 1001)],
                      two: [(7, 3), (4_000_000, 300_000)]})
        eq({key: value == (BIG if key[0] == one else BIG[::-1])[key[1]:key[1] + len(value)]
            for key, value in got.items()}, dict.fromkeys(got, True))
        eq(s.load({one: [(8_999_000, 1002), (5, 5)], "s3://bucket/m/none": [(0, 1)],
                   "s3://nowhere/x": [(0, 1)]}),
           {(one, 8_999_000): EOF, (one, 5): BIG[5:10], ("s3://bucket/m/none", 0): FILE_ACCESS,
            ("s3://nowhere/x", 0): FILE_ACCESS})


@case
def a_replaced_object_is_no_mixture():
    server.reset()
    server.put("bucket", "m", b"a" * 1000)
    with Streamer() as s:
        eq(s.load({"s3://bucket/m": [(0, 10)]}), {("s3://bucket/m", 0): b"a" * 10})
        server.put("bucket", "m", b"b" * 1000)
        got = s.load({"s3://bucket/m": [(10, 10)]})
        # The old file may be kept open for a second, but its bytes are gone.
        eq(got[("s3://bucket/m", 10)] in (FILE_ACCESS, b"b" * 10), True)


@case
def keys_of_the_program_are_refused():
    server.reset()
    server.put("bucket", "m", b"x")
    with Streamer() as s:
        words = [(c_char_p * 1)(b"access_key_id"), (c_char_p * 1)(b"other")]
        eq(lib.runai_file_streamer_set_credentials(s.handle, *words, 1), 0)
        eq(s.load({"s3://bucket/m": [(0, 1)]}), {("s3://bucket/m", 0): FILE_ACCESS})


@case
def listings():
    server.reset()
    for key in ("m/a.safetensors", "m/deep/b.safetensors", "m/config.json", "other"):
        server.put("bucket", key, key.encode())
    found = []
    note = LIST(lambda path, size, _: found.append((path.decode(), size)))
    with Streamer() as s:
        def listed(name, recursive, allow=()):
            found.clear()
            patterns = (c_char_p * max(1, len(allow)))(*allow)
            code = lib.runai_file_streamer_list_files(s.handle, name, recursive, patterns,
                                                      len(allow), None, 0, note, None)
            return code, sorted(found)

        flat = [("s3://bucket/m/a.safetensors", 15), ("s3://bucket/m/config.json", 13)]
        eq(listed(b"s3://bucket/m", 0), (0, flat))
        eq(listed(b"s3://bucket/m/", 0), (0, flat))
        eq(listed(b"s3://bucket/m/", 1, [b"*.safetensors"]),
           (0, [flat[0], ("s3://bucket/m/deep/b.safetensors", 20)]))
        eq(listed(b"s3://bucket/none", 1), (FILE_ACCESS, []))


run()
