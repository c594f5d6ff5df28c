# SPDX-License-Identifier: MIT
"""Files that replace existing ones only when they are complete."""
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

_NAME_MAX = 255     # most bytes of a file name
_ACL = "system.posix_acl_access"
_GROUP, _OTHER = 0x04, 0x20         # types of ACL entries: the file's group, others
# Errors by which this process or file system refuses to set an owner, a mode or an ACL.
_REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
# Digits of the kernel's boot, then random digits: see _clear().
_SUFFIX = re.compile(r"\.([0-9a-f]{12})[0-9a-f]{16}\.tmp")
LEFT_OVER = r"\.[0-9a-f]{28}\.tmp"  # suffix of the name of an incomplete file

_Access = Tuple[os.stat_result, Optional[bytes]]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _target(path: Path) -> str:
    """Return the path to replace; Error for an object that no file can replace."""
    if not path:
        raise failure(errno.ENOENT, "a file's name is empty", path)
    try:
        # stat() follows links by the kernel's rules, which refuse other users' links in /tmp.
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
    """Return stat() and ACL (or None) of a file; None if there is no such file."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    try:
        return facts, os.getxattr(path, _ACL)
    except OSError:
        return facts, None      # no ACL, or the file system has none


def _may(call: Callable[..., Any], *args: Any) -> bool:
    """Call a function.  Return False if this process may not do that."""
    try:
        call(*args)
    except OSError as e:
        if e.errno not in _REFUSED:
            raise
        return False
    return True


def _no_more_than_others(acl: bytes) -> bytes:
    """Return the ACL with the rights of the file's group reduced to those of others."""
    entries = list(struct.iter_unpack("<HHI", acl[4:]))
    others = next((rights for kind, rights, _ in entries if kind == _OTHER), 0)
    return acl[:4] + b"".join(
        struct.pack("<HHI", kind, rights & others if kind == _GROUP else rights, who)
        for kind, rights, who in entries)


def _give(fd: int, access: _Access) -> None:
    """Give a file the owner, mode and ACL of another one, as far as this process may.

    The set-user-ID and set-group-ID bits belonged to the old bytes, and are not copied.
    """
    facts, acl = access
    mine, mode = os.fstat(fd), facts.st_mode & 0o777
    if (mine.st_uid, mine.st_gid) != (facts.st_uid, facts.st_gid) and \
            not _may(os.fchown, fd, facts.st_uid, facts.st_gid) and \
            mine.st_gid != facts.st_gid and not _may(os.fchown, fd, -1, facts.st_gid):
        # The group differs, so rights of the old group are not given to it.
        mode &= ~0o070 | (mode & 0o007) << 3
        acl = acl and _no_more_than_others(acl)
    if acl is not None:
        # The ACL also sets the mode.  Without the ACL, the group's bits would mean something else.
        if _may(os.setxattr, fd, _ACL, acl):
            return
        mode &= 0o700
    try:
        os.removexattr(fd, _ACL)    # the folder's default ACL
    except OSError:
        pass                        # there is none
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        _may(os.fchmod, fd, mode)


# ---------------------------------------------------------------------- other names

def _boot() -> str:
    """Return digits that identify this boot of the kernel; "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().replace("-", "")[:12]
    except OSError:
        return ""


def _stem(name: str) -> str:
    """Return the begin of a name, short enough for a suffix."""
    while len(os.fsencode(name)) > _NAME_MAX - 33:
        name = name[:-1]
    return name


def _clear(folder: str, stem: str, boot: str) -> None:
    """Remove files of ended processes that were writing a file of this name.

    A file that is being written is locked.  Locks of other machines are not always visible, so only
    files made since this machine's boot are removed.
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
            pass        # the file is being written, or belongs to another user
        finally:
            os.close(fd)


def _lock(fd: int) -> bool:
    """Lock a new file.  Return False if _clear() of another process has locked it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass        # the file system has no locks, so _clear() does not get one either
    return True


class Replacement:
    """A new file that gets its name when it is complete; a context manager.

    path: the name.  If it is a symbolic link, the link's target is replaced.  Hard links of the old
          file keep the old bytes.
    like: a file whose mode, owner and ACL are copied, as far as this process may; None: the
          replaced file
    permissions: the mode, less umask, if there is no such file

    Until then the file has no name, or, on file systems without nameless files, a temporary name in
    the same folder.  If this process is killed, the next Replacement of the same path removes that.
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
        # The file gets its name through /proc.
        if os.path.isdir("/proc/self/fd"):
            try:
                raw = io.FileIO(folder, "r+", opener=nameless)
                _lock(raw.fileno())     # before publish() gives it a name
                return raw
            except OSError:
                pass    # the file system lacks nameless files
        while True:
            try:
                raw = io.FileIO(self._other, "r+", opener=named)
            except OSError as e:
                raise failure(e.errno or errno.EIO, f"no file can be made in the folder {folder}: "
                              f"{e.strerror}", self._path) from None
            # _clear() of another process may have removed the file before it was locked.
            if _lock(raw.fileno()) and os.path.lexists(self._other):
                return raw
            raw.close()
            self._other = self._another()

    def publish(self, sync: bool) -> None:
        """Give the file its name; with sync, bytes and name are durable afterwards."""
        access = _access_of(self._like) or self._access
        if access is not None:
            _give(self._raw.fileno(), access)
        if sync:
            self.file.sync()
        self.file.close()
        if not self._named:
            fd = self._raw.fileno()
            self._named = True
            # Passing src_dir_fd makes Python follow the link in /proc; its value is not used.
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
                pass    # it has its name, or an exception is propagating
        self._raw.close()
