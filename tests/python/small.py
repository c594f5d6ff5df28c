# SPDX-License-Identifier: MIT
"""Files of many small tensors: the work per tensor, and that each has its own memory."""
import importlib
import json
import os
import random
import sys
import threading
import weakref

from tap import Skip, case, eq, file, gives, numpy, run, torch, true, work

from penstock import File, Memory
from penstock.safetensors import (SafetensorError, _header, load, load_file, safe_open, save,
                                  save_file)
from penstock.safetensors._shared import storage_size

COUNT = 3000
_DTYPES = {"BOOL": "bool", "U8": "uint8", "I16": "int16", "F16": "float16", "F32": "float32",
           "F64": "float64", "C64": "complex64"}


def frames():
    """Return (framework, function that converts numpy's arrays to its own)."""
    found = [("np", lambda array: array)]
    numpy()
    try:
        t = torch()
        found.append(("pt", t.from_numpy))
    except Skip:
        pass
    return found


def many(of):
    np = numpy()
    return {f"block.{i:05d}.weight": of(np.full((4, 8), i, np.float32)) for i in range(COUNT)}


class Calls:
    """Counts calls of the library."""

    def __enter__(self):
        self.count, self.before = 0, (Memory.of, File._move)
        of, move = self.before

        def counted_of(obj, **options):
            self.count += 1
            return of(obj, **options)

        def counted_move(*args, **options):
            self.count += 1
            return move(*args, **options)
        Memory.of, File._move = counted_of, counted_move
        return self

    def __exit__(self, *_):
        Memory.of, File._move = self.before


@case
def calls_do_not_grow_with_tensors():
    for fw, of in frames():
        tensors, path = many(of), f"{work}/many-{fw}"
        module = "torch" if fw == "pt" else "numpy"
        for_it = importlib.import_module(f"penstock.safetensors.{module}")
        with Calls() as calls:
            for_it.save_file(tensors, path, sync=False)
        true(0 < calls.count < 20, f"save_file {fw}: {calls.count}")
        with Calls() as calls:
            raw = save(tensors)
        true(calls.count < 20 and raw == open(path, "rb").read(), f"save {fw}: {calls.count}")

        def opened(call, fw=fw, path=path):
            with safe_open(path, fw) as f:
                return call(f)
        for name, call in {
                "load_file": lambda: load_file(path, framework=fw),
                "get_tensors": lambda: opened(lambda f: f.get_tensors()),
                "get_tensor": lambda: opened(lambda f: {key: f.get_tensor(key)
                                                        for key in f.keys()}),
                "get_slice": lambda: opened(lambda f: {key: f.get_slice(key)[0:4]
                                                       for key in f.keys()}),
                "prefetch": lambda: opened(lambda f: dict(f.prefetch())) if fw == "pt" else tensors
                }.items():
            with Calls() as calls:
                found = call()
            true(calls.count < 40, f"{name} {fw}: {calls.count}")
            eq((sorted(found), len(found)), (sorted(tensors), COUNT))
            true(all((found[key] == tensors[key]).all() for key in tensors), f"{name} {fw}")


def mixed():
    """Return arrays of all types and sizes, with empty and large ones."""
    np, rng = numpy(), random.Random(3)
    found = {}
    for number in range(300):
        dtype = rng.choice(list(_DTYPES.values()))
        shape = rng.choice([(), (1,), (3,), (0,), (5, 0, 2), (7, 3), (2, 3, 5), (1, 1, 1, 9),
                            (300, 301), (63, 1024)])
        count = int(np.prod(shape))
        nbytes = count * np.dtype(dtype).itemsize
        array = np.frombuffer(rng.randbytes(count * 16), np.uint8)[:nbytes]
        array = array & 1 if dtype == "bool" else array
        found[f"{number}.{dtype}"] = array.view(dtype).reshape(shape)
    return found


def same(a, b):
    """Compare bits, because some values are NaN."""
    np = numpy()
    a, b = np.asarray(a), np.asarray(b)
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


def foreign(arrays, rng):
    """Return the bytes of a file whose tensors begin anywhere and are not sorted by type."""
    names = list(arrays)
    rng.shuffle(names)
    header, data = {}, b""
    back = {there: here for here, there in _DTYPES.items()}
    for name in names:
        raw = arrays[name].tobytes()
        header[name] = {"dtype": back[arrays[name].dtype.name], "shape": list(arrays[name].shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + data


@case
def all_types_at_all_places():
    arrays, rng = mixed(), random.Random(4)
    path = file("foreign", foreign(arrays, rng))
    for fw, _ in frames():
        whole = load_file(path, framework=fw)
        with safe_open(path, fw) as f:
            eq(list(whole), f.offset_keys())
            names = list(arrays)
            for order in (f.keys(), f.offset_keys(), list(reversed(f.offset_keys())),
                          rng.sample(names, 300), [name for name in names for _ in (0, 1)]):
                for name in order:
                    true(same(f.get_tensor(name), arrays[name]), name)
            for name in f.offset_keys():
                if arrays[name].ndim:
                    true(same(f.get_slice(name)[1:3], arrays[name][1:3]), name)
                    true(same(f.get_slice(name)[...], arrays[name]), name)
            some = rng.sample(names, 100)
            true(all(same(value, arrays[name]) for name, value in f.get_tensors(some).items()))
        true(all(same(whole[name], arrays[name]) for name in arrays))
        picked = load_file(path, framework=fw, names=some)
        true(sorted(picked) == sorted(some) and
             all(same(picked[name], arrays[name]) for name in some))
        true(all(same(value, arrays[name])
                 for name, value in load(open(path, "rb").read(), framework=fw).items()))


@case
def each_has_memory_of_its_own():
    for fw, of in frames():
        tensors, path = many(of), f"{work}/own"
        save_file(tensors, path, sync=False)
        with safe_open(path, fw) as f:
            found = [load_file(path, framework=fw), f.get_tensors(),
                     {key: f.get_tensor(key) for key in f.keys()},
                     {key: f.get_slice(key)[:] for key in f.keys()},
                     {key: f.get_tensor(key) for key in f.keys()}]
        for tensors_ in found:
            for value in tensors_.values():
                if fw == "pt":
                    eq(storage_size(value), 128)
                    true(value.is_contiguous())
                else:
                    true(value.base is None and value.flags.writeable and value.flags.c_contiguous)
                value += 1
        for tensors_ in found:
            true(all((tensors_[key] == tensors[key] + 1).all() for key in tensors))
        kept = found[0]["block.00007.weight"]
        gone = weakref.ref(found[0]["block.00008.weight"])
        found.clear()
        del tensors_, value
        true(gone() is None and (kept == 8).all())


@case
def what_a_handle_keeps():
    np = numpy()
    path = f"{work}/keeps"
    save_file({f"{i:05d}": np.zeros(4000, np.uint8) for i in range(1500)}, path, sync=False)
    with safe_open(path, "np") as f:
        sizes = []
        for name in f.keys():
            f.get_tensor(name)
            sizes.append(sum(view.nbytes for view in f._window.views.values()))
        true(max(sizes) <= 1 << 20 and max(sizes) > 1 << 19 and sizes[0] == 4000, sizes[:5])
        f.close()
        eq(f._window.views, {})
    with safe_open(path, "np") as f:
        # A reader that does not go in order gets only the requested tensor.
        for name in f.keys()[::-7]:
            f.get_tensor(name)
            eq(sum(view.nbytes for view in f._window.views.values()), 4000)


@case
def files_that_become_shorter():
    np = numpy()
    for fw, _ in frames():
        path = f"{work}/shorter"
        save_file({f"{i:03d}": np.full(1000, i, np.uint8) for i in range(200)}, path, sync=False)
        with safe_open(path, fw) as f:
            true((f.get_tensor("000") == 0).all())
            os.truncate(path, os.path.getsize(path) - 100 * 1000 - 500)
            for number in range(1, 99):
                true((f.get_tensor(f"{number:03d}") == number).all())
            for number in (99, 100, 199):
                e = gives(SafetensorError, f.get_tensor, f"{number:03d}")
                true("became shorter" in str(e) and path in str(e), str(e))
                gives(SafetensorError, f.get_slice(f"{number:03d}").__getitem__, slice(5))
            true((f.get_tensor("098") == 98).all())
        gives(SafetensorError, load_file, path, framework=fw)


@case
def threads_share_a_handle():
    np = numpy()
    path = f"{work}/threads"
    save_file({f"{i:05d}": np.full(500, i, np.int32) for i in range(2000)}, path, sync=False)
    wrong = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with safe_open(path, "np") as f:
            def take(first):
                for number in range(first, 2000):
                    if not (f.get_tensor(f"{number:05d}") == number).all():
                        wrong.append(number)
            threads = [threading.Thread(target=take, args=(first,)) for first in (0, 3, 500, 1000)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    eq(wrong, [])


# ---------------------------------------------------------------------------- headers

def outcome(raw, size):
    try:
        header = _header.parse(raw, size)
    except SafetensorError as e:
        return str(e)
    return (header.metadata, header.data, header.end, header.names,
            [tuple(getattr(entry, name) for name in entry.__slots__)
             for entry in header.tensors.values()], list(header.tensors))


def plain_or_not(raw, size):
    """Parse a header by both parsers, which must agree.  Return it, and whether it was plain."""
    found = outcome(raw, size)
    plain = _header._parse_plain
    _header._parse_plain = lambda raw, size: None
    try:
        eq(found, outcome(raw, size))
    finally:
        _header._parse_plain = plain
    return plain(raw, size) is not None


@case
def both_ways_of_headers_agree():
    text = (b'{"__metadata__":{"a":"b\\"c:{}\\u00e9"},"w":{"dtype":"F32","shape":[2,3],'
            b'"data_offsets":[0,24]},"\xc3\xa9":{"dtype":"F4","shape":[],"data_offsets":[24,24]},'
            b'"z":{"dtype":"U8","shape":[10],"data_offsets":[24,34]}}  ')
    text = text.replace(b'"F4","shape":[]', b'"F4","shape":[0]')
    size = 8 + len(text) + 34
    true(plain_or_not(text, size))
    true(not plain_or_not(text, size + 1))
    rng, plain = random.Random(5), 0
    for place in range(len(text)):
        for byte in rng.sample(range(256), 6) + list(b'"\\,:]}[{ 09-'):
            plain += plain_or_not(text[:place] + bytes([byte]) + text[place + 1:], size)
            true(not plain_or_not(text[:place] + bytes([byte]) + text[place:], size))
        plain_or_not(text[:place] + text[place + 1:], size - 1)
        plain_or_not(text[:place], 8 + place)
    true(plain > 20, plain)


@case
def headers_that_are_plain():
    """Headers as writers make them are plain; the other parser would be right but slower."""
    np = numpy()
    arrays = {"a:b.{weight}": np.zeros((2, 3), np.float32), "\u00e9 \u4e2d": np.zeros(3, np.uint8),
              "empty": np.zeros((0, 4), np.uint8), "single": np.zeros((), np.int64)}
    for metadata in (None, {}, {"format": "pt"}, {"ss_args": '{"a":"b\\n"}', "x": "\u4e2d"}):
        raw = save(arrays, metadata)
        length = int.from_bytes(raw[:8], "little")
        true(plain_or_not(raw[8:8 + length], len(raw)), metadata)
    for text in (b'{}', b'{"__metadata__":{}}', b'{"a":{"dtype":"U8","shape":[1],"data_offsets":'
                 b'[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
                 b'{"a\\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                 b'{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}',
                 b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1.0]}}',
                 b'{"a":{"shape":[1],"dtype":"U8","data_offsets":[0,1]}}',
                 b'{"__metadata__":{"a":1},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                 b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}',
                 b'{"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}'):
        for data in (0, 1, 2):
            true(not plain_or_not(text, 8 + len(text) + data), text[:80])


run()
