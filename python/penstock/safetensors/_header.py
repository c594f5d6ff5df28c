# SPDX-License-Identifier: MIT
"""The header of a safetensors file, which is hostile until it has been checked.

A file begins with 8 bytes, the length of a JSON object, little endian.  The object follows, then
the tensors' bytes, without a gap up to the end of the file.
"""
import json
import operator
import re
from itertools import accumulate

HEADER_MAX = 100_000_000  # bytes, the format's own limit
# Limit of the fast parser, in bytes of the header: it takes memory for every piece of the text at
# once.  Longer headers, or those with tensors of more dimensions, are parsed by json.
_PLAIN_MAX = 16 << 20
_DIMS_PLAIN = 64
_COST_MAX = 512 << 20     # most bytes of memory for reading a header

# Bits of an element.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


# Magic bytes of other formats: (bytes, the format and a cure).
_OTHERS = (
    (b"version ", "this is the pointer that Git LFS leaves in place of the file: run 'git lfs "
                  "pull' in the repository"),
    (b"PK\3\4", "this is a zip file, as torch.save() and numpy.savez() write it: read it by "
                "torch.load() or numpy.load(), and save its tensors by save_file()"),
    (b"GGUF", "this is a GGUF file, which llama.cpp reads: take the model's safetensors files"),
    (b"\x93NUMPY", "this is a .npy file: read it by numpy.load()"),
    (b"\x89HDF", "this is an HDF5 file: read it by h5py or keras"),
    (b"\x1f\x8b\x08", "this is compressed by gzip: unpack it by gunzip"),
    (b"\x28\xb5\x2f\xfd", "this is compressed by zstd: unpack it by unzstd"),
    (b"\xfd7zXZ", "this is compressed by xz: unpack it by unxz"),
    (b"<!", "this is a web page: download the file itself"),
    (b"<html", "this is a web page: download the file itself"),
    (b"{", "this is JSON: name the safetensors file, or for an index a file *.index.json to "
           "load_file()"),
    (b"\x80\2", "this is a pickle, as old versions of torch.save() write it: read it by "
                "torch.load(), and save its tensors by save_file()"),
)


class AnySafetensorError(ValueError):
    """The class that replaces the package's SafetensorError in programs in a block of patched().  A
    separate class, so that the end of the block can tell which programs get theirs back."""


class SafetensorError(AnySafetensorError):
    """The file is not a safetensors file, or lacks what was requested."""


class Entry:
    """One tensor of a file.

    name, dtype: in the format, such as "BF16"
    shape:  a tuple; () is a single value
    begin:  its first byte, counted from the first byte of all tensors
    nbytes: bytes
    """

    __slots__ = ("name", "dtype", "shape", "begin", "nbytes")

    def __init__(self, name, dtype, shape, begin, nbytes):
        self.name, self.dtype, self.shape = name, dtype, shape
        self.begin, self.nbytes = begin, nbytes


class Header:
    """The content of a header.

    names:    names of tensors, in the order of their bytes
    metadata: a dict or None
    data:     the file offset of the first tensor's first byte
    end:      bytes of all tensors
    tensors:  {name: Entry} in the same order, made at the first use
    """

    __slots__ = ("names", "metadata", "data", "end", "tensors", "_make")

    def __init__(self, names, metadata, data, end, make):
        self.names, self.metadata, self.data, self.end = names, metadata, data, end
        self._make = make

    def __getattr__(self, name):
        # Python calls this only while tensors is not set.
        if name != "tensors":
            raise AttributeError(name)
        self.tensors = self._make()
        return self.tensors


def _short(name):
    return name if len(name) <= 80 else name[:80] + "..."


def _once(pairs):
    """Return a JSON object; refuse duplicate names."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen = set()
        for name, _ in pairs:
            if name in seen:
                raise SafetensorError(f"the header has '{_short(name)}' twice")
            seen.add(name)
    return result


def _integer(text):
    # No valid size has more digits, and Python converts long numbers slowly.
    return int(text) if len(text) <= 20 else float("inf")


def _no_number(text):
    raise SafetensorError(f"the header is not valid JSON: it has {text[:40]}")


def _size(value, most=2**63 - 1):
    """Return whether value is a non-negative integer; bool does not count."""
    return type(value) is int and 0 <= value <= most


def _text(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SafetensorError(f"the name {_short(ascii(name))} in the header has half of a "
                              "character") from None


def _other(first, least=1, otherwise="this is no safetensors file"):
    """Describe a file that begins with these bytes and is not a safetensors file.

    least: bytes of a magic number that suffice, because the first 8 bytes may be a valid length
    """
    if not any(first):
        return "it begins with zeros: its download or copy did not come to its end"
    return next((text for begin, text in _OTHERS
                 if len(begin) >= least and first.startswith(begin)), otherwise)


def header_length(first, file_size):
    """Return the length of the header from the first 8 bytes of a file."""
    if not file_size:
        raise SafetensorError("the file is empty: its download or copy did not come to its end")
    if len(first) < 8:
        raise SafetensorError(f"the file has {file_size} bytes, less than the 8 that a safetensors "
                              "file begins with")
    length = int.from_bytes(first[:8], "little")
    if length > HEADER_MAX:
        raise SafetensorError(f"the header would be {length} bytes long, the limit is "
                              f"{HEADER_MAX}: {_other(first)}")
    if length > file_size - 8:
        raise SafetensorError(f"the header of {length} bytes is longer than the file of "
                              f"{file_size}: {_other(first, 3, 'the file is truncated')}")
    if length < 2:
        raise SafetensorError(f"the header is empty: {_other(first)}")
    return length


# Python stores a text with 4 bytes per character if a UTF-8 character in it begins with one of
# these bytes.
_WIDE = re.compile(rb"[\xf0-\xff]")
_COST_FIXED = 4 << 20   # bytes, of the parser itself
# Names that every tensor has: the parser keeps one copy of each.
_COMMON = (b'"dtype":', b'"shape":', b'"data_offsets":')


def _cost(raw):
    """Return an upper bound of the memory for reading a header, in bytes, measured for the most
    expensive content: the bytes, their text, the texts in it, and the object for each value."""
    text = 1 if raw.isascii() else 4 if _WIDE.search(raw) else 2
    # A text with an escape may become wide; it is built in a copy that grows in steps.
    texts = 6 if b"\\u" in raw else 2 * text if b"\\" in raw else text
    names = raw.count(b":")
    common = sum(map(raw.count, _COMMON))
    return (_COST_FIXED + (1 + text + texts) * len(raw) + 280 * (names - common) +
            80 * common + 90 * raw.count(b",") + 150 * raw.count(b"{") + 100 * raw.count(b"["))


def _cheap(raw):
    """Refuse a header that would take too much memory."""
    if _COST_FIXED + 300 * len(raw) <= _COST_MAX:
        return      # such a header cannot be too expensive, even if all its bytes were ":"
    if _cost(raw) > _COST_MAX:
        raise SafetensorError("the header holds too many values, or too long texts: to read it "
                              f"would take more than {_COST_MAX >> 20} MiB")


_BEGIN = re.compile(rb"[ \t\r\n]*\{")


def _values(raw):
    """Parse the header's JSON, after bounding the memory for its values."""
    if not _BEGIN.match(raw):
        raise SafetensorError("the header does not begin with '{': this is no safetensors file")
    _cheap(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise SafetensorError(f"the header is not valid UTF-8 at byte {e.start}") from None
    try:
        return json.loads(text, object_pairs_hook=_once, parse_int=_integer,
                          parse_constant=_no_number)
    except json.JSONDecodeError as e:
        raise SafetensorError(f"the header is not valid JSON at character {e.pos}: "
                              f"{e.msg}") from None
    except RecursionError:
        raise SafetensorError("the header is nested too deeply") from None


def _entry(name, facts, data_size):
    _text(name)
    name_is = f"tensor '{_short(name)}'"
    if type(facts) is not dict:
        raise SafetensorError(f"{name_is} is described by something else than an object")
    if not facts.keys() >= {"dtype", "shape", "data_offsets"}:
        raise SafetensorError(f"{name_is} does not have dtype, shape and data_offsets")
    dtype, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
    if type(dtype) is not str or dtype not in BITS:
        raise SafetensorError(f"{name_is} has the unknown dtype {str(dtype)[:40]!r}")
    if type(shape) is not list:
        raise SafetensorError(f"the shape of {name_is} is no array")
    elements = 1
    for length in shape:
        if not _size(length):
            raise SafetensorError(f"a dimension of {name_is} is no size")
        elements *= length
        if elements >= 2**63:
            raise SafetensorError(f"the shape of {name_is} overflows")
    nbytes, rest = divmod(elements * BITS[dtype], 8)
    if rest:
        raise SafetensorError(f"{name_is} does not end at a whole byte")
    if (type(offsets) is not list or len(offsets) != 2 or not all(map(_size, offsets)) or
            offsets[0] > offsets[1]):
        raise SafetensorError(f"the data_offsets of {name_is} are no begin and end")
    begin, end = offsets
    if end > data_size:
        raise SafetensorError(f"{name_is} ends {end - data_size} bytes past the end of the file: "
                              "the file is truncated or its header is wrong")
    if end - begin != nbytes:
        raise SafetensorError(f"{name_is} has {end - begin} bytes, but its shape and dtype need "
                              f"{nbytes}")
    return Entry(name, dtype, tuple(shape), begin, nbytes)


def _metadata(values):
    if type(values) is not dict:
        raise SafetensorError("__metadata__ is no object")
    for name, value in values.items():
        _text(name)
        if type(value) is not str:
            raise SafetensorError(f"__metadata__ has '{_short(name)}', which is no text")
        _text(value)
    return values


# Text between the quotation marks of a tensor's description, if written without blanks: (place,
# text).  Names, types, shapes and offsets are at places 1, 5, 8 and 10.
_PLAIN = ((2, ":{"), (3, "dtype"), (4, ":"), (6, ","), (7, "shape"), (9, "data_offsets"))
_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_int=_integer, parse_float=_no_number,
                            parse_constant=_no_number)


def _kind(fact):
    """Return (dtype, shape, bytes) for a text such as "F32:[2,3],"; None for others."""
    dtype, _, text = fact.partition(":")
    lengths = text[1:-2].split(",") if len(text) > 3 else []
    if dtype not in BITS or len(lengths) > _DIMS_PLAIN or not all(map(str.isdecimal, lengths)):
        return None
    shape = tuple(map(int, lengths)) if len(text) < 200 else ()
    if text != f"[{','.join(map(str, shape))}],":
        return None
    elements = 1
    for length in shape:
        elements *= length
        if elements >= 2**60:
            return None
    nbytes, rest = divmod(elements * BITS[dtype], 8)
    return None if rest else (dtype, shape, nbytes)


def _parse_plain(raw, file_size):
    """Return the same Header as parse(), without a Python call per tensor.

    Returns None for a header that is not written as usual, valid or not.
    """
    # Each piece between quotation marks becomes objects.  The metadata's objects are made before
    # they are checked.
    if len(raw) > _PLAIN_MAX or 120 * raw.count(b'"') + 100 * raw.count(b"[") + \
            150 * raw.count(b"{") + 12 * len(raw) > _COST_MAX:
        return None
    try:
        text = raw.decode("utf-8")
        begin, metadata = 1, None
        if text.startswith('{"__metadata__":{'):
            metadata, begin = _DECODER.raw_decode(text, 16)
            metadata = _metadata(metadata)
            begin += 1
    except (ValueError, RecursionError):
        return None
    tokens = text[begin:].rstrip(" ").split('"')
    count, rest = divmod(len(tokens) - 1, 10)
    before = "{" if metadata is None else ","
    if not count or rest or text[begin - 1:begin] != before or tokens[0] or \
            tokens[-1][-2:] != "}}" or any(tokens[place::10].count(fixed) != count
                                           for place, fixed in _PLAIN):
        return None
    names = tokens[1::10]
    unique, joined = set(names), "".join(names)
    if len(unique) != count or "__metadata__" in unique or "\\" in joined or \
            not joined.isprintable():
        return None
    # Use strings: the garbage collector would visit tuples.
    facts = list(map(operator.add, tokens[5::10], tokens[8::10]))
    kinds = {fact: _kind(fact) for fact in set(facts)}
    if None in kinds.values():
        return None
    kinds = list(map(kinds.__getitem__, facts))
    ends = list(accumulate(nbytes for _, _, nbytes in kinds))
    begins = [0] + ends[:-1]
    tokens[-1] = tokens[-1][:-1] + ","
    data = 8 + len(raw)
    if ends[-1] != file_size - data or \
            tokens[10::10] != [f":[{a},{b}]}}," for a, b in zip(begins, ends)]:
        return None
    return Header(names, metadata, data, ends[-1], lambda: {
        name: Entry(name, dtype, shape, begin, nbytes)
        for name, begin, (dtype, shape, nbytes) in zip(names, begins, kinds)})


def parse(raw, file_size):
    """Parse raw, the JSON of a file of file_size bytes.  Return the Header.  Raises
    SafetensorError."""
    plain = _parse_plain(raw, file_size)
    if plain is not None:
        return plain
    values = _values(raw)
    data = 8 + len(raw)
    metadata = None
    if values.get("__metadata__") is not None:
        metadata = _metadata(values["__metadata__"])
    values.pop("__metadata__", None)
    entries = [_entry(name, facts, file_size - data) for name, facts in values.items()]
    # An empty tensor comes before the one that begins at the same place.
    entries.sort(key=lambda entry: (entry.begin, entry.nbytes))
    at, last = 0, ""
    for entry in entries:
        if entry.begin < at:
            raise SafetensorError(f"tensors '{_short(last)}' and '{_short(entry.name)}' overlap")
        if entry.begin > at:
            raise SafetensorError(f"{entry.begin - at} bytes before tensor '{_short(entry.name)}' "
                                  "belong to no tensor")
        at, last = at + entry.nbytes, entry.name
    if at != file_size - data:
        raise SafetensorError(f"{file_size - data - at} bytes at the end of the file belong to no "
                              "tensor")
    tensors = {entry.name: entry for entry in entries}
    return Header(list(tensors), metadata, data, at, lambda: tensors)


def read(file):
    """Read the Header of an open File."""
    size = file.size
    first = bytearray(min(size, 8))
    if first:
        file.read(first)
    raw = bytearray(header_length(first, size))
    file.read(raw, 8)
    return parse(raw, size)


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring


def build(entries, metadata):
    """Return the bytes of a file up to the first tensor's first byte.

    entries: Entries in the order of their bytes, with begin and nbytes set
    """
    parts, kinds = [], {}
    if metadata is not None:
        for name, value in metadata.items():
            if type(name) is not str or type(value) is not str:
                raise SafetensorError("metadata is a dict of texts by texts")
            _text(name)
            _text(value)
        parts.append('"__metadata__":' + _json(dict(metadata)))
    for entry in entries:
        name, begin, kind = entry.name, entry.begin, (entry.dtype, entry.shape)
        if name == "__metadata__":
            raise SafetensorError("no tensor can be called __metadata__")
        text = kinds.get(kind)
        if text is None:
            text = kinds[kind] = _json({"dtype": kind[0], "shape": kind[1]})[:-1]
        parts.append(f'{_quoted(name)}:{text},"data_offsets":[{begin},{begin + entry.nbytes}]}}')
    try:
        raw = f"{{{','.join(parts)}}}".encode()
    except UnicodeEncodeError:
        for entry in entries:
            _text(entry.name)
        raise
    raw += b" " * (-len(raw) % 8)
    if len(raw) > HEADER_MAX:
        raise SafetensorError(f"the header would be {len(raw)} bytes long, the limit is "
                              f"{HEADER_MAX}")
    _cheap(raw)     # the result must be readable
    return len(raw).to_bytes(8, "little") + raw
