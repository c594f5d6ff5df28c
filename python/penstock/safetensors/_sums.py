# SPDX-License-Identifier: MIT
"""Checksum files of models: written once, and compared with the bytes that arrived in memory.

MODEL.safetensors.crc32c is text.  Its first line is "penstock-crc32c 1 BYTES", with the length of
the file.  Each other line is "CRC OFFSET BYTES": the CRC-32C of a range, as eight hexadecimal
digits.  The ranges cover the file without a gap, in order; no range is longer than 16 MiB or
extends into two tensors.
"""
import os
import re
from itertools import accumulate
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .._file import File
from .._memory import Memory
from .._replace import Replacement
from .._sums import Range, sums
from ._header import Entry, SafetensorError, read

SUFFIX = ".crc32c"
_PART = 16 << 20        # bytes of the longest range
_TEXT = 64 << 20        # bytes of the longest text
_HEAD = re.compile(rb"penstock-crc32c 1 ([0-9]{1,19})\n")
_LINE = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,19}) ([0-9]{1,19})\n")
_LINES = re.compile(rb"(?:[0-9a-f]{8} [0-9]{1,19} [0-9]{1,19}\n)*")


class Sums(NamedTuple):
    """Ranges of a file, in bytes, and their checksums: one column each."""
    crcs: List[int]
    offsets: List[int]
    sizes: List[int]

    def part(self, first: int, end: int) -> "Sums":
        """Return the ranges from first to end."""
        return Sums(self.crcs[first:end], self.offsets[first:end], self.sizes[first:end])


def _cut(begin: int, end: int) -> Iterator[Tuple[int, int]]:
    for offset in range(begin, end, _PART):
        yield offset, min(_PART, end - offset)


def _ranges(file: File) -> List[Tuple[int, int]]:
    """Return (offset, bytes) of the header, of parts of each tensor, and of gaps between them."""
    header = read(file)
    ranges, at = list(_cut(0, header.data)), header.data
    for entry in header.tensors.values():
        begin = header.data + entry.begin
        ranges += _cut(at, begin)
        ranges += _cut(begin, begin + entry.nbytes)
        at = begin + entry.nbytes
    return ranges + list(_cut(at, file.size))


def _of_file(file: File, ranges: Sequence[Tuple[int, int]]) -> Iterator[int]:
    with Memory.alloc("host", max([nbytes for _, nbytes in ranges] + [1])) as memory:
        for offset, nbytes in ranges:
            file.read(memory, offset, nbytes)
            yield sums([(memory.handle, 0, nbytes)])[0]


def write_sums(filename: Any) -> str:
    """Compute the checksums of a safetensors file and write them to a file next to it.  Return its
    path."""
    path = os.fspath(filename) + SUFFIX
    with File(filename) as file:
        size, ranges = file.size, _ranges(file)
        lines = [f"penstock-crc32c 1 {size}\n"]
        lines += [f"{crc:08x} {offset} {nbytes}\n"
                  for crc, (offset, nbytes) in zip(_of_file(file, ranges), ranges)]
    data = "".join(lines).encode()
    with Replacement(path, permissions=os.stat(filename).st_mode & 0o777) as new:
        new.file.write(data, 0)
        new.file.sync()
        new.publish(True)
    return path


def _first_wrong(lines: Sequence[bytes]) -> int:
    """Return the number of the first line, from 2 on, that is not a valid checksum of the next
    range."""
    at = 0
    for number, line in enumerate(lines, 2):
        match = _LINE.fullmatch(line)
        if match is None or int(match[2]) != at or not 0 < int(match[3]) <= _PART:
            return number
        at += int(match[3])
    return len(lines) + 2


def read_sums(filename: Any, size: int) -> Sums:
    """Read the checksums of a file of size bytes.  Raises SafetensorError."""
    path = os.fspath(filename) + SUFFIX
    try:
        with open(path, "rb") as file:
            text = file.read(_TEXT + 1)
    except FileNotFoundError:
        raise SafetensorError(f"{path}: there are no checksums; python3 -m penstock sum "
                              f"{os.fspath(filename)} writes them") from None
    head = _HEAD.match(text)
    if head is None or len(text) > _TEXT:
        raise SafetensorError(f"{path}: these are no checksums of a file")
    if int(head[1]) != size:
        raise SafetensorError(f"{path}: the checksums are of a file of {int(head[1])} bytes, and "
                              f"this one has {size}")
    # Match all lines at once: one by one takes longer than a device needs for the model.
    fits = _LINES.fullmatch(text, head.end()) is not None
    words = text[head.end():].split() if fits else []
    offsets, sizes = list(map(int, words[1::3])), list(map(int, words[2::3]))
    ends = list(accumulate(sizes, initial=0))
    if not fits or offsets != ends[:-1] or sizes and not 0 < min(sizes) <= max(sizes) <= _PART:
        number = _first_wrong(text[head.end():].splitlines(True))
        raise SafetensorError(f"{path}: line {number} is no checksum of what follows")
    if ends[-1] != size:
        raise SafetensorError(f"{path}: the checksums end after {ends[-1]} of {size} bytes")
    return Sums([int(word, 16) for word in words[::3]], offsets, sizes)


def check_sums(filename: Any) -> None:
    """Read a file and compare it with its checksums.  Raises SafetensorError."""
    with File(filename) as file:
        expected = read_sums(filename, file.size)
        ranges = list(zip(expected.offsets, expected.sizes))
        for crc, (offset, nbytes), wanted in zip(_of_file(file, ranges), ranges, expected.crcs):
            if crc != wanted:
                raise SafetensorError(f"{os.fspath(filename)}: bytes {offset} to "
                                      f"{offset + nbytes - 1} have the checksum {crc:08x}, and "
                                      f"{wanted:08x} is expected")


class Verified:
    """Tensors of a loading call, with their expected checksums."""

    def __init__(self) -> None:
        self._wanted: Dict[str, Tuple[str, Sums]] = {}

    def add(self, path: Any, file: File, data: int, entries: Sequence[Entry]) -> None:
        """Read the checksums of a file's tensors; data: file offset of the first one."""
        expected = read_sums(path, file.size)
        place = {offset: index for index, offset in enumerate(expected.offsets)}
        place[file.size] = len(expected.offsets)
        for entry in entries:
            if not entry.nbytes:
                continue
            first, end = place.get(data + entry.begin), place.get(data + entry.begin + entry.nbytes)
            if first is None or end is None:
                raise SafetensorError(f"{os.fspath(path)}{SUFFIX}: the checksums are of other "
                                      f"tensors; none begins and ends as '{entry.name}' does")
            self._wanted[entry.name] = os.fspath(path), expected.part(first, end)

    def check(self, tensors: Dict[str, Any], frame: Any) -> None:
        """Compare the loaded bytes in memory.  Raises SafetensorError.

        One call for all tensors: a device then computes all checksums by one kernel.

        frame: the framework of the tensors
        """
        ranges: List[Range] = []
        owners: List[Tuple[str, str, int, int]] = []
        for name, (path, parts) in self._wanted.items():
            # A Memory object per tensor would take longer than the device.
            address = frame.address(tensors[name]) - parts.offsets[0]
            for crc, offset, nbytes in zip(*parts):
                ranges.append((None, address + offset, nbytes))
                owners.append((path, name, crc, offset))
        for crc, (path, name, wanted, offset) in zip(sums(ranges), owners):
            if crc != wanted:
                raise SafetensorError(f"{path}: tensor '{name}' has the checksum {crc:08x} in "
                                      f"memory from byte {offset} of the file on, and "
                                      f"{wanted:08x} is expected")
