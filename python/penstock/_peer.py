# SPDX-License-Identifier: MIT
"""Peers: put, get, send and receive between two processes."""
import ctypes
import errno
from collections import deque
from ctypes import byref, c_void_p
from typing import Any, Deque, Dict, List, Optional, Tuple

from . import _abi, _exports
from ._file import File, readable, span
from ._handle import Owner, each, settle, spend
from ._lib import check, deadline, lib, name_of, sized
from ._memory import Memory
from ._types import Path

_MODES = {"r": _abi.PST_FILE_READ, "w": _abi.PST_FILE_WRITE,
          "r+": _abi.PST_FILE_READ | _abi.PST_FILE_WRITE}
_WAIT = 60.0    # seconds
_LIMIT = 1 << 26    # most bytes of a message for recv(): the sender chooses its length


def _until(timeout: Optional[float]) -> int:
    return deadline(timeout, _abi.PST_NO_DEADLINE)


def _options(keys: Optional[Path], key: Optional[str], plain: bool) -> Any:
    return sized(_abi.pst_peer_opts, flags=_abi.PST_PEER_PLAIN if plain else 0,
                 keys=None if keys is None else name_of(keys),
                 key=None if key is None else name_of(key))


def _file_close(box: List[c_void_p]) -> None:
    spend(box, lib.pst_file_close)


def _peer_close(box: List[c_void_p]) -> None:
    spend(box, lib.pst_peer_close)


def _listener_close(box: List[c_void_p]) -> None:
    spend(box, lib.pst_listener_close)


# ------------------------------------------------------------------------- shares

# Shares that were dropped while a peer used them, each with the object that keeps its memory.
_lingering: Deque[Tuple[c_void_p, Any]] = deque()
_Shared = Tuple[c_void_p, Any]


def _over(shared: _Shared) -> bool:
    return not shared[0].value or bool(lib.pst_share_close(shared[0], 0) != -errno.EBUSY)


def _share_close(box: List[_Shared]) -> None:
    settle(box.pop, _over, _lingering)


class Share(Owner):
    """Memory that a peer may use; a context manager.  Made by Peer.share().

    key: bytes with which the peer opens the memory; a secret
    """

    _noun = "share"

    def __init__(self, memory: Memory) -> None:
        if _lingering:
            each(_lingering, _over)
        # Count the memory as exported, so that closing it fails while it is shared.
        super().__init__([(c_void_p(), (memory, _exports.token(memory.held.leases)))],
                         _share_close)
        self.key = b""

    def _pack(self) -> None:
        room = ctypes.create_string_buffer(_abi.PST_KEY_MAX)
        size = check(lib.pst_share_pack(self._box[0][0], room, len(room)))
        self.key = room.raw[:size]

    def close(self, timeout: Optional[float] = _WAIT) -> None:
        """End the share.  Raises Error with EBUSY if the peer may still use the memory after the
        timeout: call again.
        """
        until = _until(timeout)
        status = [0]

        def over(shared: _Shared) -> bool:
            if shared[0].value:
                status[0] = lib.pst_share_close(shared[0], until)
            return status[0] != -errno.EBUSY

        settle(self._box.pop, over, self._box)
        check(status[0])
        super().close()

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


# -------------------------------------------------------------------------- peers

class Peer(Owner):
    """A connection to another process; a context manager.

    address: "unix:PATH", "HOST:PORT" or "[IPV6]:PORT" of a Listener
    keys:    a file of keys for TLS, lines NAME:HEX
    key:     name of the key to use; None: the only one
    plain:   allow unencrypted bytes to another machine
    timeout: seconds

    Any thread may make calls; close() only while no other call is in progress.
    """

    _noun = "peer"

    def __init__(self, address: str, *, keys: Optional[Path] = None, key: Optional[str] = None,
                 plain: bool = False, timeout: Optional[float] = _WAIT) -> None:
        super().__init__([c_void_p()], _peer_close)
        options = _options(keys, key, plain)
        check(lib.pst_peer_connect(name_of(address), byref(options), _until(timeout),
                                   byref(self._box[0])))

    def info(self) -> Dict[str, Any]:
        """Return {"local": bool, "tls": bool, "error": errno or 0, "uid", "pid": number or None,
        "messages": number}.
        """
        info = sized(_abi.pst_peer_info)
        check(lib.pst_peer_info(self.handle, byref(info)))
        known = info.uid != 2**32 - 1
        return {"local": bool(info.flags & _abi.PST_PEER_LOCAL),
                "tls": bool(info.flags & _abi.PST_PEER_TLS), "error": info.err,
                "uid": info.uid if known else None, "pid": info.pid if known else None,
                "messages": info.nr_messages}

    # ------------------------------------------------------------------- memory

    def share(self, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
              write: bool = False, read: bool = True, grant: bool = False) -> Share:
        """Let the peer use a range of memory.

        memory: a Memory, or an object that Memory.of() accepts; it is kept
        nbytes: number of bytes; None: to the end of the memory
        write:  the peer may put bytes there
        read:   the peer may get bytes from there
        grant:  the peer may map the whole allocation, if it runs under this user on this machine
        """
        held = Memory.of(memory)
        offset, nbytes = span(held, offset, nbytes)
        if write:
            readable(held)
        share = Share(held)
        rights = ((_abi.PST_RIGHT_READ if read else 0) | (_abi.PST_RIGHT_WRITE if write else 0))
        check(lib.pst_peer_share(self.handle, held.handle, offset, nbytes, rights,
                                 _abi.PST_SHARE_GRANT if grant else 0, byref(share._box[0][0])))
        share._pack()
        return share

    def open(self, key: bytes, mode: str = "r", *, timeout: Optional[float] = _WAIT) -> File:
        """Open the peer's memory as a File: read() gets bytes and write() puts bytes.

        mode: "r", "w" or "r+"
        """
        if mode not in _MODES:
            raise ValueError(f"'{mode}' is no mode; there are {', '.join(_MODES)}")
        file = File.__new__(File)
        Owner.__init__(file, [c_void_p()], _file_close)
        file.name = "memory of a peer"
        key = bytes(key)
        check(lib.pst_peer_open(self.handle, key, len(key), _MODES[mode], _until(timeout),
                                byref(file._box[0])))
        return file

    # ----------------------------------------------------------------- messages

    def send(self, message: Any, offset: int = 0, nbytes: Optional[int] = None, *,
             grant: bool = False, timeout: Optional[float] = _WAIT) -> None:
        """Send a message: bytes, a Memory, or an object that Memory.of() accepts."""
        flags = _abi.PST_SHARE_GRANT if grant else 0
        if isinstance(message, (bytes, bytearray)) and not message:
            check(lib.pst_peer_send(self.handle, None, 0, 0, flags, _until(timeout)))
            return
        memory = Memory.of(message)
        try:
            offset, nbytes = span(memory, offset, nbytes)
            check(lib.pst_peer_send(self.handle, memory.handle, offset, nbytes, flags,
                                    _until(timeout)))
        finally:
            if memory is not message:
                memory.close()

    def recv(self, timeout: Optional[float] = _WAIT, *, limit: int = _LIMIT) -> bytes:
        """Return the next message.  If it is longer than limit, raises Error with EMSGSIZE and
        keeps it: recv_into() accepts any length.
        """
        until = _until(timeout)
        size = check(lib.pst_peer_next(self.handle, until))
        room = ctypes.create_string_buffer(max(min(size, limit), 1))
        got = check(lib.pst_peer_recv(self.handle, None, ctypes.addressof(room),
                                      min(size, limit), until))
        return memoryview(room)[:got].tobytes()

    def recv_into(self, memory: Any, offset: int = 0, nbytes: Optional[int] = None, *,
                  timeout: Optional[float] = _WAIT) -> int:
        """Receive the next message into memory.  Return its number of bytes."""
        room = Memory.of(memory)
        try:
            readable(room)
            offset, nbytes = span(room, offset, nbytes)
            return check(lib.pst_peer_recv(self.handle, room.handle, offset, nbytes,
                                           _until(timeout)))
        finally:
            if room is not memory:
                room.close()

    def next(self, timeout: Optional[float] = _WAIT) -> int:
        """Wait for a message, without taking it.  Return its number of bytes."""
        return check(lib.pst_peer_next(self.handle, _until(timeout)))

    def close(self) -> None:
        """End the connection.  May be called again."""
        super().close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Listener(Owner):
    """An address to which peers connect; a context manager.  Arguments as Peer."""

    _noun = "listener"

    def __init__(self, address: str, *, keys: Optional[Path] = None, plain: bool = False) -> None:
        super().__init__([c_void_p()], _listener_close)
        options = _options(keys, None, plain)
        check(lib.pst_listener_open(name_of(address), byref(options), byref(self._box[0])))

    @property
    def address(self) -> str:
        """The address with the actual port."""
        room = ctypes.create_string_buffer(256)
        lib.pst_listener_address(self.handle, room, len(room))
        return room.value.decode("utf-8", "replace")

    def accept(self, timeout: Optional[float] = _WAIT) -> Peer:
        """Return the next peer.  Raises Error with ETIMEDOUT."""
        peer = Peer.__new__(Peer)
        Owner.__init__(peer, [c_void_p()], _peer_close)
        check(lib.pst_listener_accept(self.handle, _until(timeout), byref(peer._box[0])))
        return peer

    def close(self) -> None:
        """Stop listening; peers stay connected.  May be called again."""
        super().close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
