# SPDX-License-Identifier: MIT
"""A file system for fsspec: pandas, torch and datasets can open pst://, tier:// and s3:// with it.

    import penstock.fsspec
    penstock.fsspec.register()
    with fsspec.open("pst://host:7900/model.bin") as f:
        f.read(100)

register() takes pst://, psts://, pst+unix:// and tier://.  For s3:// fsspec keeps its own
implementation; ours is S3FileSystem().  Needs fsspec 2022.11 or newer.
"""
import errno
import io
from typing import Any, Dict, List, Optional

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import names
from ._file import File


def _facts(name: str, entry: names.Entry) -> Dict[str, Any]:
    facts: Dict[str, Any] = {"name": name, "type": entry.kind, "size": entry.size}
    if entry.kind == "directory":
        facts["size"] = 0
    if entry.mtime_ns is not None:
        facts["mtime"] = entry.mtime_ns / 1e9
    return facts


class PenstockFileSystem(AbstractFileSystem):
    """Files of pst://, by names with or without the scheme; the classes below are for other
    schemes."""

    protocol = "pst"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        path = str(path)
        start = f"{cls.protocol}://"
        return (path[len(start):] if path.startswith(start) else path).rstrip("/")

    def unstrip_protocol(self, name: str) -> str:
        """Return the name with its scheme."""
        return f"{self.protocol}://{self._strip_protocol(name)}"

    def _full(self, path: str) -> str:
        name = self.unstrip_protocol(path)
        # The name of a server or bucket alone means its root.
        return name if "/" in self._strip_protocol(path) else name + "/"

    def info(self, path: str, **_: Any) -> Dict[str, Any]:
        """Return {"name", "type": "file" or "directory", "size": bytes, "mtime": seconds since
        1970}."""
        return _facts(self._strip_protocol(path), names.stat(self._full(path)))

    def ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        """Return the entries of a directory: their info(), or their names."""
        path = self._strip_protocol(path)
        try:
            found = [_facts(f"{path}/{e.name}", e) for e in names.entries(self._full(path))]
        except NotADirectoryError:
            found = [self.info(path)]
        return found if detail else [f["name"] for f in found]

    def modified(self, path: str) -> Any:
        """Return the modification time as a datetime in UTC."""
        import datetime
        entry = names.stat(self._full(path))
        if entry.mtime_ns is None:
            raise NotImplementedError(f"{path}: its time is not told")
        return datetime.datetime.fromtimestamp(entry.mtime_ns / 1e9, datetime.timezone.utc)

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        names.unlink(self._full(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Remove files; with recursive also those in directories.  Directories are not removed."""
        for one in path if isinstance(path, list) else [path]:
            if recursive and self.isdir(one):
                for file in self.find(one, maxdepth=maxdepth):
                    self.rm_file(file)
            else:
                self.rm_file(one)

    def find(self, path: str, maxdepth: Optional[int] = None, withdirs: bool = False,
             detail: bool = False, **options: Any) -> Any:
        """Return all files below: their names, or {name: info()}."""
        path = self._strip_protocol(path)
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth, withdirs, detail=detail, **options)
        try:
            entries = names.entries(self._full(path), recursive=True)
        except NotADirectoryError:
            found = {path: self.info(path)}
        except FileNotFoundError:
            found = {}
        else:
            found = {f"{path}/{e.name}": _facts(f"{path}/{e.name}", e)
                     for e in sorted(entries)}
        return found if detail else list(found)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Rename a file in one step; if the service cannot, copy it and remove the old one."""
        try:
            names.rename(self._full(path1), self._full(path2))
        except OSError as e:
            if e.errno != errno.EOPNOTSUPP:
                raise
            super().mv(path1, path2, **options)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file within the service."""
        with self.open(path1) as source, self.open(path2, "wb") as target:
            while block := source.read(1 << 24):
                target.write(block)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Do nothing: creating a file also makes missing directories."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing, like mkdir()."""

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True,
              cache_options: Any = None, **options: Any) -> Any:
        if mode == "rb":
            return _Reader(self, path, mode, block_size or "default",
                           cache_options=cache_options, **options)
        if mode not in ("wb", "xb"):
            raise ValueError(f"'{mode}' is no mode for files of {self.protocol}://; there are rb, "
                             "wb and xb")
        return _Writer(self._full(path), mode[0])


class _Reader(AbstractBufferedFile):
    """Reads ahead like fsspec's caches, from one open file."""

    def __init__(self, fs: PenstockFileSystem, path: str, *arguments: Any, **options: Any) -> None:
        self._file: Optional[File] = File(fs._full(path))
        super().__init__(fs, path, *arguments, size=self._file.size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        if self._file is None:
            raise ValueError("the file is closed")
        target = bytearray(max(0, end - start))
        if not target:
            return b""
        got = self._file.read(target, start, short=True).nbytes
        return bytes(target[:got])

    def readinto(self, buffer: Any) -> int:
        """Read into memory without a cache."""
        if self._file is None:
            raise ValueError("the file is closed")
        view = memoryview(buffer).cast("B")
        want = min(len(view), self.size - self.loc)
        if want <= 0:
            return 0
        got = self._file.read(view[:want], self.loc, short=True).nbytes
        self.loc += got
        return int(got)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


class _Writer(io.RawIOBase):
    """Writes sequentially; closing makes the bytes durable, and an object visible."""

    def __init__(self, name: str, mode: str) -> None:
        super().__init__()
        self._file = File(name, mode)
        self._at = 0
        self._failed = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view):
            try:
                self._file.write(view, self._at)
            except BaseException:
                self._failed = True
                raise
        self._at += len(view)
        return len(view)

    def discard(self) -> None:
        """Close without a sync: an object stays unchanged."""
        self._failed = True
        self.close()

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._failed |= kind is not None
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if not self._failed:
                self._file.sync()
        finally:
            self._file.close()
            super().close()


class PstsFileSystem(PenstockFileSystem):
    """Files of psts://, the service with TLS."""
    protocol = "psts"


class PstUnixFileSystem(PenstockFileSystem):
    """Files of pst+unix://, the service on a socket of this machine."""
    protocol = "pst+unix"


class TierFileSystem(PenstockFileSystem):
    """Files of tier://, a set of tiers."""
    protocol = "tier"


class S3FileSystem(PenstockFileSystem):
    """Objects of s3://."""
    protocol = "s3"


def register() -> None:
    """Make fsspec open pst://, psts://, pst+unix:// and tier:// with this package."""
    for kind in (PenstockFileSystem, PstsFileSystem, PstUnixFileSystem, TierFileSystem):
        fsspec.register_implementation(kind.protocol, kind, clobber=True)
