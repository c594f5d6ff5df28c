# SPDX-License-Identifier: MIT
"""Files that replace others when they are complete, and not before."""
import errno
import fcntl
import io
import os
import re
import secrets
import stat
import struct
from typing import Any, Callable, Optional, Tuple

from ._file import File
from ._lib import failure
from ._types import Path

_NAME_MAX = 255     # bytes of a name in a folder
_ACL = "system.posix_acl_access"
_GROUP, _OTHER = 0x04, 0x20         # kinds of entries in an ACL: the file's group, and others
# Errors which mean that this process or file system cannot keep an owner, a mode or an ACL.
_REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
# Digits of the kernel's boot and random ones: see _clear().
_SUFFIX = re.compile(r"\.([0-9a-f]{12})[0-9a-f]{16}\.tmp")
LEFT_OVER = r"\.[0-9a-f]{28}\.tmp"  # what is behind the name of a file that was not completed

_Access = Tuple[os.stat_result, Optional[bytes]]


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _target(path: Path) -> str:
    """The file that is to be there; Error for what no file may take the place of."""
    if not path:
        raise failure(errno.ENOENT, "a file's name is empty", path)
    try:
        # Follows links by the kernel's rules, which keep those of other users in /tmp out.
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as e:
        raise failure(e.errno or errno.EIO, e.strerror or "", path) from None
    if stat.S_ISDIR(mode):
        raise failure(errno.EISDIR, "this is a folder; name a file in it", path)
    if not stat.S_ISREG(mode):
        raise failure(errno.EINVAL, "this is a device, pipe or socket, which a file would replace; "
                      "name a regular file", path)
    return os.path.realpath(os.fsdecode(path))


# ------------------------------------------------------------------- mode, owner, ACL

def _access_of(path: str) -> Optional[_Access]:
    """The facts and the ACL, or None, of a file; None where there is no such file."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    try:
        return facts, os.getxattr(path, _ACL)
    except OSError:
        return facts, None      # it has none, or the file system knows none


def _may(call: Callable[..., Any], *args: Any) -> bool:
    """Call something; return False where this process may not do it."""
    try:
        call(*args)
    except OSError as e:
        if e.errno not in _REFUSED:
            raise
        return False
    return True


def _no_more_than_others(acl: bytes) -> bytes:
    """The ACL with no more rights for the file's group than others have."""
    entries = list(struct.iter_unpack("<HHI", acl[4:]))
    others = next((rights for kind, rights, _ in entries if kind == _OTHER), 0)
    return acl[:4] + b"".join(
        struct.pack("<HHI", kind, rights & others if kind == _GROUP else rights, who)
        for kind, rights, who in entries)


def _give(fd: int, access: _Access) -> None:
    """Give a file the owner, mode and ACL of another one, as far as this process may.

    The set-user-ID and set-group-ID bits are for the bytes that were there, and are not copied.
    """
    facts, acl = access
    mine, mode = os.fstat(fd), facts.st_mode & 0o777
    if (mine.st_uid, mine.st_gid) != (facts.st_uid, facts.st_gid) and \
            not _may(os.fchown, fd, facts.st_uid, facts.st_gid) and \
            mine.st_gid != facts.st_gid and not _may(os.fchown, fd, -1, facts.st_gid):
        # The group is another one: what was for the old one alone is not for it.
        mode &= ~0o070 | (mode & 0o007) << 3
        acl = acl and _no_more_than_others(acl)
    if acl is not None:
        # Brings the mode, too.  Without it the group's bits would mean something else.
        if _may(os.setxattr, fd, _ACL, acl):
            return
        mode &= 0o700
    try:
        os.removexattr(fd, _ACL)    # the folder's default
    except OSError:
        pass                        # there is none
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        _may(os.fchmod, fd, mode)


# ---------------------------------------------------------------------- other names

def _boot() -> str:
    """Digits that no other running kernel has; "" where it does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().replace("-", "")[:12]
    except OSError:
        return ""


def _stem(name: str) -> str:
    """The begin of a name that leaves room for a suffix."""
    while len(os.fsencode(name)) > _NAME_MAX - 33:
        name = name[:-1]
    return name


def _clear(folder: str, stem: str, boot: str) -> None:
    """Remove what processes left that ended while they wrote a file of this name.

    A file that is being written is locked.  Locks of other machines are not always seen, so that
    only files count that this kernel has made since its start.
    """
    try:
        found = [entry.path for entry in os.scandir(folder) if entry.name.startswith(f"{stem}.")]
    except OSError:
        return
    for path in found:
        suffix = _SUFFIX.fullmatch(os.path.basename(path)[len(stem):])
        if not suffix or suffix[1] != boot:
            continue
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.unlink(path)
        except OSError:
            pass        # somebody writes it, or it is another user's
        finally:
            os.close(fd)


def _lock(fd: int) -> bool:
    """Lock a file that was just made; return False if _clear() of another process has a lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass        # a file system without locks, on which _clear() gets none either
    return True


class Replacement:
    """A new file, which takes a name when it is complete; a context manager.

    path: the name.  Of a symbolic link what it leads to is replaced, and hard links of the old file
          keep that.
    like: a file whose mode, owner and ACL it gets, as far as this process may; without it the one
          that it replaces
    permissions: the mode, less umask, if there is no such file

    Until then the file has no name, or on file systems without such files another one in the same
    folder, which the next Replacement of the same path removes if this process is killed.
    """

    def __init__(self, path: Path, like: Optional[str] = None, permissions: int = 0o666) -> None:
        self._path, self._target = path, _target(path)
        self._like = like or self._target
        self._access = _access_of(self._like)
        folder, name = os.path.split(self._target)
        boot, stem = _boot(), _stem(name)
        if boot:
            _clear(folder, stem, boot)
        self._prefix = os.path.join(folder, f"{stem}.{boot or secrets.token_hex(6)}")
        self._other = self._another()
        self._named = False
        self._raw = self._create(folder, permissions)
        self.file = File.wrap(self._raw)
        self.file.name = path

    def _another(self) -> str:
        return f"{self._prefix}{secrets.token_hex(8)}.tmp"

    def _create(self, folder: str, permissions: int) -> io.FileIO:
        # A file that may replace a private one is readable by its owner only.
        mode = permissions if self._access is None else 0o600

        def nameless(path: str, _: int) -> int:
            return os.open(path, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)

        def named(path: str, _: int) -> int:
            self._named = True
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode)
        # The file gets its name by way of /proc.
        if os.path.isdir("/proc/self/fd"):
            try:
                raw = io.FileIO(folder, "r+", opener=nameless)
                _lock(raw.fileno())     # before publish() gives it a name
                return raw
            except OSError:
                pass    # not every file system has such files
        while True:
            try:
                raw = io.FileIO(self._other, "r+", opener=named)
            except OSError as e:
                raise failure(e.errno or errno.EIO, f"no file can be made in the folder {folder}: "
                              f"{e.strerror}", self._path) from None
            # Before it had its lock, _clear() of another process may have removed it.
            if _lock(raw.fileno()) and os.path.lexists(self._other):
                return raw
            raw.close()
            self._other = self._another()

    def publish(self, sync: bool) -> None:
        """Take the name, with what was written; with sync the disk has both then."""
        access = _access_of(self._like) or self._access
        if access is not None:
            _give(self._raw.fileno(), access)
        if sync:
            self.file.sync()
        self.file.close()
        if not self._named:
            fd = self._raw.fileno()
            self._named = True
            # A descriptor of a folder makes Python follow the link that /proc has; none is used.
            os.link(f"/proc/self/fd/{fd}", self._other, src_dir_fd=fd)
        os.replace(self._other, self._target)
        self._named = False
        if sync:
            sync_folder(os.path.dirname(self._target))

    def __enter__(self) -> "Replacement":
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()
        if self._named:
            try:
                os.unlink(self._other)
            except OSError:
                pass    # it has its name, or what is raised says why
        self._raw.close()
