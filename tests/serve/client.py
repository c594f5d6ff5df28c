# SPDX-License-Identifier: MIT
"""A second client of the storage service, written from docs/PROTOCOL.md."""
import os
import socket
import struct

REQUEST = struct.Struct("<IHHQQIIIII")  # without header_crc
REPLY = struct.Struct("<IHHQQIIQI")     # without header_crc
ATTR = struct.Struct("<QQQQQQII8x")
HELLO, OPEN, CLOSE, READ, WRITE, SYNC, TRUNCATE, STAT, LIST, UNLINK, RENAME = range(1, 12)
CRC, DATA = 1, 2
WAIT_S = float(os.environ.get("PST_TEST_WAIT", "60"))  # limit for waits, s
O_READ, O_WRITE, O_CREATE, O_EXCL, O_TRUNC = 1, 2, 4, 8, 16


def _table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def header(op, *, length=48, flags=0, ident=0, off=0, count=0, handle=0, how=0, mode=0, crc=0):
    head = REQUEST.pack(length, op, flags, ident, off, count, handle, how, mode, crc)
    return head + struct.pack("<I", crc32c(head))


def request(op, payload=b"", **fields):
    return header(op, length=48 + len(payload), **fields) + payload


def hello(client=bytes(16), channel=0, epoch=0, version=1, oldest=1, magic=b"PENSTOCK"):
    return struct.pack("<8sIIQ16sQQ8x", magic, version, oldest, 0, client, channel, epoch)


class Gone(Exception):
    """The server closed the connection."""


class Reply:
    def __init__(self, head, payload):
        (self.len, self.op, self.flags, self.ident, self.boot, self.err, self.count, self.value,
         self.crc) = REPLY.unpack(head[:44])
        self.payload = payload


class Client:
    def __init__(self, address, greet=True, source=None, **fields):
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
        else:
            self.sock = socket.socket()
        self.sock.settimeout(WAIT_S)
        if source:
            self.sock.bind((source, 0))
        self.sock.connect(address)
        self.last = 0
        if greet:
            self.welcome = self.ask(HELLO, hello(**fields))

    def close(self):
        self.sock.close()

    def _get(self, size):
        data = b""
        while len(data) < size:
            try:
                part = self.sock.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise Gone()
            data += part
        return data

    def send(self, data):
        try:
            self.sock.sendall(data)
        except ConnectionError:
            pass

    def receive(self):
        head = self._get(48)
        assert struct.unpack("<I", head[44:])[0] == crc32c(head[:44]), "header_crc"
        length = struct.unpack("<I", head[:4])[0]
        assert 48 <= length <= 48 + (1 << 20)
        reply = Reply(head, self._get(length - 48))
        assert reply.boot
        if reply.err:
            assert (length, reply.count, reply.value) == (48, 0, 0)
        if reply.flags & CRC:
            assert crc32c(reply.payload) == reply.crc
        return reply

    def ask(self, op, payload=b"", **fields):
        self.last += 1
        self.send(request(op, payload, ident=self.last, **fields))
        reply = self.receive()
        assert (reply.op, reply.ident) == (op, self.last)
        return reply

    def open(self, name, how=O_READ, mode=0o644):
        reply = self.ask(OPEN, name.encode(), how=how, mode=mode)
        if reply.err:
            raise OSError(reply.err, name)
        return reply.count

    def rename(self, name, new):
        """Rename a file.  Return the error number, or 0."""
        return self.ask(RENAME, name.encode() + new.encode(), count=len(name.encode())).err

    def unlink(self, name):
        """Unlink a file.  Return the error number, or 0."""
        return self.ask(UNLINK, name.encode()).err

    def list(self, name="", count=4096):
        names, cursor = [], 0
        while True:
            reply = self.ask(LIST, name.encode(), off=cursor, count=count)
            if reply.err:
                raise OSError(reply.err, name)
            assert reply.count == len(reply.payload)
            at = 0
            while at < len(reply.payload):
                cursor, length, kind = struct.unpack_from("<QHB", reply.payload, at)
                names.append((reply.payload[at + 16:at + 16 + length].decode(), kind))
                at += (16 + length + 7) // 8 * 8
            if not reply.value:
                return names


def attributes(payload):
    names = ("size", "mtime_ns", "ctime_ns", "dev", "ino", "btime_ns", "mode", "kind")
    return dict(zip(names, ATTR.unpack(payload)))
