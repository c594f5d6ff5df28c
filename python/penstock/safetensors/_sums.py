# SPDX-License-Identifier: MIT
"""Checksums beside a file: written once, and compared with what arrived in memory.

MODEL.safetensors.crc32c is text.  Its first line is "penstock-crc32c 1 BYTES", with the length of
the file.  Each other line is "CRC OFFSET BYTES": the CRC-32C of a range, as eight hexadecimal
digits.  The ranges cover the file without a gap, in order, none is longer than 16 MiB, and none
reaches into two tensors.
"""
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .._file import File
from .._memory import Memory
from .._replace import Replacement
from .._sums import Range, sums
from ._header import Entry, SafetensorError, read

SUFFIX = ".crc32c"
_PART = 16 << 20        # bytes of the longest range
_HEAD = re.compile(r"penstock-crc32c 1 (\d{1,19})\n")
_LINE = re.compile(r"([0-9a-f]{8}) (\d{1,19}) (\d{1,19})\n")


class Sum(NamedTuple):
    """A range of the file, in bytes, and its checksum."""
    crc: int
    offset: int
    nbytes: int


def _cut(begin: int, end: int) -> Iterator[Tuple[int, int]]:
    for offset in range(begin, end, _PART):
        yield offset, min(_PART, end - offset)


def _ranges(file: File) -> List[Tuple[int, int]]:
    """(offset, bytes) of the header, of parts of each tensor, and of what lies between."""
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
    """Compute the checksums of a safetensors file and write them beside it; return their path."""
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


def read_sums(filename: Any, size: int) -> List[Sum]:
    """The checksums beside a file of size bytes.  Raises SafetensorError."""
    path = os.fspath(filename) + SUFFIX
    try:
        with open(path, encoding="ascii") as file:
            lines = file.readlines()
    except FileNotFoundError:
        raise SafetensorError(f"{path}: there are no checksums; python3 -m penstock sum "
                              f"{os.fspath(filename)} writes them") from None
    except UnicodeDecodeError:
        lines = []
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise SafetensorError(f"{path}: these are no checksums of a file")
    if int(head[1]) != size:
        raise SafetensorError(f"{path}: the checksums are of a file of {head[1]} bytes, and this "
                              f"one has {size}")
    found, at = [], 0
    for number, line in enumerate(lines[1:], 2):
        match = _LINE.fullmatch(line)
        if match is None or int(match[2]) != at or not 0 < int(match[3]) <= _PART:
            raise SafetensorError(f"{path}: line {number} is no checksum of what follows")
        found.append(Sum(int(match[1], 16), at, int(match[3])))
        at += found[-1].nbytes
    if at != size:
        raise SafetensorError(f"{path}: the checksums end after {at} of {size} bytes")
    return found


def check_sums(filename: Any) -> None:
    """Read a file and compare it with the checksums beside it.  Raises SafetensorError."""
    with File(filename) as file:
        expected = read_sums(filename, file.size)
        for crc, one in zip(_of_file(file, [(one.offset, one.nbytes) for one in expected]),
                            expected):
            if crc != one.crc:
                raise SafetensorError(f"{os.fspath(filename)}: bytes {one.offset} to "
                                      f"{one.offset + one.nbytes - 1} have the checksum "
                                      f"{crc:08x}, and {one.crc:08x} is expected")


class Verified:
    """The tensors of a call that loads them, and the checksums that they must have."""

    def __init__(self) -> None:
        self._wanted: List[Tuple[str, Entry, List[Sum]]] = []

    def add(self, path: Any, file: File, data: int, entries: Sequence[Entry]) -> None:
        """Read the checksums of a file's tensors; data: where the first begins."""
        expected = read_sums(path, file.size)
        place = {one.offset: index for index, one in enumerate(expected)}
        for entry in entries:
            begin, end = data + entry.begin, data + entry.begin + entry.nbytes
            if begin == end:
                continue
            parts = []
            while begin < end and begin in place:
                parts.append(expected[place[begin]])
                begin += parts[-1].nbytes
            if begin != end:
                raise SafetensorError(f"{os.fspath(path)}{SUFFIX}: the checksums are of other "
                                      f"tensors; none begins and ends as '{entry.name}' does")
            self._wanted.append((os.fspath(path), entry, parts))

    def check(self, tensors: Dict[str, Any], frame: Any) -> None:
        """Compare what lies in memory, once it is there.  Raises SafetensorError.

        frame: which made the tensors
        """
        ranges: List[Range] = []
        owners: List[Tuple[str, str, Sum]] = []
        for path, entry, parts in self._wanted:
            # A Memory for each would take longer than the device does.
            address = frame.address(tensors[entry.name]) - parts[0].offset
            for one in parts:
                ranges.append((None, address + one.offset, one.nbytes))
                owners.append((path, entry.name, one))
        for crc, (path, name, one) in zip(sums(ranges), owners):
            if crc != one.crc:
                raise SafetensorError(f"{path}: tensor '{name}' has the checksum {crc:08x} in "
                                      f"memory from byte {one.offset} of the file on, and "
                                      f"{one.crc:08x} is expected")
