# SPDX-License-Identifier: MIT
"""Operations on files by their names: stat, list, remove, rename, truncate; for paths and every
service.

    for entry in penstock.names.entries("s3://bucket/models"):
        print(entry.name, entry.size)

A name is a path, or scheme://rest as File takes it.  Sizes are bytes.  Calls raise Error.
"""
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_void_p, cast
from typing import Any, List, NamedTuple, Optional

from . import _abi
from ._lib import check, lib, name_of, sized
from ._types import Path

_KINDS = {_abi.PST_NAME_FILE: "file", _abi.PST_NAME_DIR: "directory"}
_Callback = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(_abi.pst_name_info))


class Entry(NamedTuple):
    """The file or directory of a name.

    name: in a list the name within the directory; a str with surrogates for bytes that are not
          UTF-8
    kind:     "file", "directory" or "other"
    size: bytes of a file, or None if unknown
    mtime_ns: last change in nanoseconds since 1970, or None if unknown
    """
    name: str
    kind: str
    size: Optional[int]
    mtime_ns: Optional[int]


def _entry(name: str, info: Any) -> Entry:
    has_size = info.has & _abi.PST_NAME_HAS_SIZE and info.kind == _abi.PST_NAME_FILE
    return Entry(name, _KINDS.get(info.kind, "other"), info.size if has_size else None,
                 info.mtime_ns if info.has & _abi.PST_NAME_HAS_MTIME else None)


def stat(name: Path) -> Entry:
    """Return the Entry of a file or directory."""
    info = sized(_abi.pst_name_info)
    check(lib.pst_name_stat(name_of(name), byref(info)), name)
    return _entry(os.fsdecode(name), info)


def entries(name: Path = ".", *, recursive: bool = False, facts: bool = True) -> List[Entry]:
    """Yield the entries of a directory, in any order.

    recursive: yield the files of the directory and of all directories below, with slashes in their
               names
    facts: get sizes and times even if each entry costs a request
    """
    found: List[Entry] = []
    failed: List[BaseException] = []

    def take(_arg: Any, entry: bytes, info: Any) -> int:
        try:
            found.append(_entry(os.fsdecode(entry), info.contents))
        except BaseException as e:  # pylint: disable=broad-except # must not leave a callback
            failed.append(e)
            return 1
        return 0

    flags = (_abi.PST_NAME_TREE if recursive else 0) | (_abi.PST_NAME_FACTS if facts else 0)
    callback = _Callback(take)
    status = lib.pst_name_list(name_of(name), flags, cast(callback, c_void_p), None)
    if failed:
        raise failed.pop()
    check(status, name)
    return found


def unlink(name: Path) -> None:
    """Remove a file; IsADirectoryError for a directory."""
    check(lib.pst_name_unlink(name_of(name)), name)


def rename(name: Path, new: Path) -> None:
    """Give a file another name in the same service; a file that has that name is replaced."""
    check(lib.pst_name_rename(name_of(name), name_of(new)), name)


def truncate(name: Path, size: int) -> None:
    """Set the size of a file; new bytes are 0."""
    check(lib.pst_name_truncate(name_of(name), size), name)
