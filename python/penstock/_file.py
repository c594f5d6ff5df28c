# SPDX-License-Identifier: MIT
"""Open files, and blocking reads and writes."""
import os
from ctypes import byref, c_void_p
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _abi
from ._arrays import address, interleave, longest, uint64s
from ._handle import Owner, spend
from ._lib import (Result, check, deadline, failure, keywords, lib, name_of, plain_name, policy_of,
                   sized, stream_of, unsigned)
from ._memory import Memory
from ._types import Offsets, Path, Policy

_READ, _WRITE = _abi.PST_FILE_READ, _abi.PST_FILE_WRITE
_NEW = _WRITE | _abi.PST_FILE_CREATE
_MODES = {
    "r": _READ,
    "r+": _READ | _WRITE,
    "w": _NEW | _abi.PST_FILE_TRUNC,
    "w+": _NEW | _READ | _abi.PST_FILE_TRUNC,
    "x": _NEW | _abi.PST_FILE_EXCL,
    "x+": _NEW | _READ | _abi.PST_FILE_EXCL,
    "u": _NEW,
    "u+": _NEW | _READ,
}


# Options of all calls that move bytes; "short" is only for reads.
_OPTIONS = ("strict", "policy", "timeout", "stream")
_SHORT: Dict[bool, Tuple[str, ...]] = {False: ("short",), True: ()}


class ShortRead(EOFError):
    """The file ended before all bytes were read.  ``result`` is the Result with the number of
    bytes."""

    # pickle and multiprocessing require the text to be the only argument.
    result: Optional[Result] = None


def short_read(wanted: int, result: Result, path: Any) -> ShortRead:
    error = ShortRead(f"{plain_name(path)}: the file ends after {result.nbytes} of the {wanted} "
                      "bytes that were to be read")
    error.result = result
    return error


def readable(memory: Memory) -> None:
    if not memory.writable:
        raise ValueError("the memory is read-only: a read from a file would change it")


def span(memory: Memory, mem_offset: int, nbytes: Optional[int]) -> Tuple[int, int]:
    mem_offset = unsigned(mem_offset)
    if nbytes is None:
        nbytes = memory.nbytes - mem_offset
    if not 0 < nbytes <= memory.nbytes - mem_offset:
        raise ValueError(f"{nbytes} bytes from {mem_offset} on are not in a memory of "
                         f"{memory.nbytes}")
    return mem_offset, nbytes


def _close(box: List[c_void_p]) -> None:
    spend(box, lib.pst_file_close)


class File(Owner):
    """An open regular file or block device; a context manager.

    path:   a path
    mode:   "r" read, "r+" read and write, "w" and "w+" create or truncate, "x" and "x+" create, "u"
            and "u+" create if missing and keep existing bytes; those with + also read
    stable: nobody changes the file while it is open, so devices may read its page cache
    plain:  never use O_DIRECT
    permissions: mode of a new file; 0 means 0666 less umask

    Any thread may use it.  Raises Error, which is also a FileNotFoundError, PermissionError,
    IsADirectoryError and so on where one fits.
    """

    _noun = "file"
    name: Any

    def __init__(self, path: Path, mode: str = "r", *, stable: bool = False, plain: bool = False,
                 permissions: int = 0) -> None:
        super().__init__([c_void_p()], _close)
        self.name = path if isinstance(path, os.PathLike) else plain_name(path)
        if mode not in _MODES:
            raise ValueError(f"'{mode}' is no mode; there are {', '.join(_MODES)}")
        options = sized(_abi.pst_file_opts, mode=permissions)
        check(lib.pst_file_open(name_of(path), _MODES[mode] | self._flags(stable, plain),
                                byref(options), byref(self._box[0])), path)

    @classmethod
    def wrap(cls, fd: Any, *, stable: bool = False, plain: bool = False) -> "File":
        """Return the file of a descriptor, or of an object with fileno().  The descriptor is
        duplicated."""
        number = fd if isinstance(fd, int) else fd.fileno()
        file = cls.__new__(cls)
        Owner.__init__(file, [c_void_p()], _close)
        file.name = getattr(fd, "name", number)
        check(lib.pst_file_wrap(number, cls._flags(stable, plain), None, byref(file._box[0])))
        return file

    @staticmethod
    def _flags(stable: bool, plain: bool) -> int:
        return ((_abi.PST_FILE_STABLE if stable else 0) | (_abi.PST_FILE_PLAIN if plain else 0))

    def info(self) -> Dict[str, Any]:
        """Return {"size": bytes, "direct": bool, "mem_align": bytes, "off_align": bytes, "fs":
        name}."""
        info = sized(_abi.pst_file_info)
        check(lib.pst_file_info(self.handle, byref(info)), self.name)
        return {"size": info.size, "direct": bool(info.direct), "mem_align": info.mem_align,
                "off_align": info.off_align, "fs": info.fs.decode("utf-8", "replace")}

    @property
    def size(self) -> int:
        """The current size in bytes."""
        return int(self.info()["size"])

    # ------------------------------------------------------------------ one range

    def read(self, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
             mem_offset: int = 0, short: bool = False, **options: Any) -> Result:
        """Read from the file into memory, and wait.

        memory:     a Memory, or an object that Memory.of() accepts
        offset:     first byte in the file
        nbytes:     number of bytes; None: to the end of the memory
        mem_offset: first byte in the memory
        short:      accept that the file ends earlier, instead of raising ShortRead
        strict, policy, timeout, stream: as readv()

        Returns a Result.  Raises Error, ShortRead, and ValueError for read-only memory.
        """
        return self._one(False, memory, offset, nbytes, mem_offset, short, options)

    def write(self, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
              mem_offset: int = 0, **options: Any) -> Result:
        """Write from memory to the file, and wait; durable only after sync().  Arguments as read().
        """
        return self._one(True, memory, offset, nbytes, mem_offset, True, options)

    def _one(self, write: bool, obj: Any, offset: int, nbytes: Optional[int], mem_offset: int,
             short: bool, options: Dict[str, Any]) -> Result:
        keywords("write" if write else "read", options, _OPTIONS,
                 ("offset", "nbytes", "mem_offset") + _SHORT[write])
        memory = Memory.of(obj, sync=options.get("stream") is None)
        try:
            mem_offset, nbytes = span(memory, mem_offset, nbytes)
            return self._move(write, memory, [unsigned(offset)], [mem_offset], [nbytes], short,
                              **options)
        finally:
            if memory is not obj:
                memory.close()

    # ---------------------------------------------------------------- many ranges

    def readv(self, memory: Any, offsets: Offsets, mem_offsets: Offsets, nbytes: Offsets, *,
              short: bool = False, **options: Any) -> Result:
        """Read many ranges of the file into many ranges of one memory, and wait.

        offsets:     file offsets: an array of 64-bit integers, a sequence, or a number
        mem_offsets: memory offsets, in the same forms
        nbytes:      bytes of each range, in the same forms
        short:       ranges may extend beyond the end of the file
        strict:      fail with EOPNOTSUPP if a better path exists and is not taken
        policy:      names of paths in order of preference, ("staged", "direct"); no others are
                     tried
        timeout:     seconds; None: 300 and one more for each 10 MB
        stream:      a CUstream of the device, as a number: the transfer is ordered with its work

        At most 1,048,576 ranges.  Returns a Result; its index is that of the first incomplete
        range.
        """
        return self._many(False, memory, offsets, mem_offsets, nbytes, short, options)

    def writev(self, memory: Any, offsets: Offsets, mem_offsets: Offsets, nbytes: Offsets,
               **options: Any) -> Result:
        """Write many ranges of one memory to many ranges of the file, and wait.  Arguments as
        readv()."""
        return self._many(True, memory, offsets, mem_offsets, nbytes, True, options)

    def _many(self, write: bool, obj: Any, offsets: Offsets, mem_offsets: Offsets,
              nbytes: Offsets, short: bool, options: Dict[str, Any]) -> Result:
        keywords("writev" if write else "readv", options, _OPTIONS,
                 ("offsets", "mem_offsets", "nbytes") + _SHORT[write])
        memory = Memory.of(obj, sync=options.get("stream") is None)
        try:
            count = longest(offsets, mem_offsets, nbytes)
            return self._move(write, memory, uint64s(offsets, count), uint64s(mem_offsets, count),
                              uint64s(nbytes, count), short, **options)
        finally:
            if memory is not obj:
                memory.close()

    def read_into(self, objects: Sequence[Any], offsets: Offsets, *, short: bool = False,
                  **options: Any) -> Result:
        """Read one range of the file into each of many objects, and wait.

        objects: a sequence of objects that Memory.of() accepts
        offsets: file offset of each object's bytes

        Options as readv().  Ranges in one allocation of a device become one request.
        """
        return self._each(False, objects, offsets, short, options)

    def write_from(self, objects: Sequence[Any], offsets: Offsets, **options: Any) -> Result:
        """Write each of many objects to a range of the file, and wait."""
        return self._each(True, objects, offsets, True, options)

    def _each(self, write: bool, objects: Sequence[Any], offsets: Offsets, short: bool,
              options: Dict[str, Any]) -> Result:
        keywords("write_from" if write else "read_into", options, _OPTIONS,
                 ("objects", "offsets") + _SHORT[write])
        memories: List[Memory] = []
        try:
            Memory.of_each(objects, memories, options.get("stream") is None)
            return self._move(write, [m.handle for m in memories],
                              uint64s(offsets, len(memories)), [0] * len(memories),
                              [m.nbytes for m in memories], short, memories=memories, **options)
        finally:
            for memory, obj in zip(memories, objects):
                if memory is not obj:
                    memory.close()

    def _move(self, write: bool, memory: Any, offsets: Any, mem_offsets: Any, nbytes: Any,
              short: bool, *, strict: bool = False, policy: Policy = None,
              timeout: Optional[float] = None, stream: Optional[int] = None,
              memories: Optional[List[Memory]] = None) -> Result:
        count = len(offsets)
        if not count:
            raise ValueError("there is nothing to move")
        if count > _abi.PST_VECS_MAX:
            raise ValueError(f"{count} ranges are more than the {_abi.PST_VECS_MAX} of one call")
        for one in memories or [memory]:
            if not write:
                readable(one)
        handles = memory if memories else memory.handle
        rows = interleave(count, (handles, mem_offsets, offsets, nbytes, None))
        how = sized(_abi.pst_call_opts)
        how.flags = _abi.PST_IO_STRICT if strict else 0
        how.policy = policy_of(policy)
        how.deadline_ns = deadline(timeout)
        if timeout == 0:
            raise ValueError("a call that waits needs some time")
        how.stream = stream_of(stream)
        done = _abi.pst_done()
        call = lib.pst_writev if write else lib.pst_readv
        status = call(self.handle, address(rows), count, byref(how), byref(done))
        if status < 0:
            sentence = lib.pst_error_text().decode("utf-8", "replace")
            raise failure(status, sentence, self.name, Result(done))
        result = Result(done)
        result.nbytes = status
        wanted = sum(nbytes)
        if status < wanted and not short:
            raise short_read(wanted, result, self.name)
        return result

    # ------------------------------------------------------------------------ end

    def sync(self) -> None:
        """Make written bytes durable; waits for the disk.  Raises Error."""
        check(lib.pst_file_sync(self.handle), self.name)

    def close(self) -> None:
        """Close the file after its requests in flight have ended.  May be called again.  Does not
        sync."""
        super().close()

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<File {self.name!r}{' closed' if self.closed else ''}>"
