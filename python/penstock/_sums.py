# SPDX-License-Identifier: MIT
"""Checksums of memory, computed where the memory is."""
from ctypes import byref, c_uint32
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from . import _abi
from ._arrays import address, interleave
from ._lib import check, deadline, lib, sized, stream_of
from ._memory import Memory

# (handle of a memory, offset in it, bytes), or (None, address, bytes).
Range = Tuple[Optional[int], int, int]


def sums(ranges: Sequence[Range], *, stream: Optional[int] = None,
         timeout: Optional[float] = None) -> List[int]:
    """Return the CRC-32C of each range."""
    found: List[int] = []
    for first in range(0, len(ranges), _abi.PST_VECS_MAX):
        part = ranges[first:first + _abi.PST_VECS_MAX]
        rows = interleave(len(part), ([handle or 0 for handle, _, _ in part],
                                      [offset for _, offset, _ in part], [0] * len(part),
                                      [nbytes for _, _, nbytes in part], None))
        how = sized(_abi.pst_call_opts)
        how.deadline_ns = deadline(timeout)
        how.stream = stream_of(stream)
        values = (c_uint32 * len(part))()
        check(lib.pst_mem_crc32c(address(rows), len(part), byref(how), values))
        found.extend(values)
    return found


def crc32c(objects: Iterable[Any], *, stream: Optional[int] = None,
           timeout: Optional[float] = None) -> List[int]:
    """Return the CRC-32C of each object's bytes, computed by the device that has them.

    objects: objects that Memory.of() accepts, each with at least one byte
    stream: number of a stream: the checksums are of the bytes after the stream's work; all objects
            must be on its device
    timeout: seconds; None: 300, and one more for each 10 MB

    Returns a list of numbers as defined by RFC 3720.  Raises Error: EOPNOTSUPP for a device that
    cannot compute them, ETIMEDOUT.
    """
    memories: List[Memory] = []
    objects = list(objects)
    try:
        Memory.of_each(objects, memories, stream is None)
        return sums([(memory.handle, 0, memory.nbytes) for memory in memories], stream=stream,
                    timeout=timeout)
    finally:
        for memory, obj in zip(memories, objects):
            if memory is not obj:
                memory.close()
