# SPDX-License-Identifier: MIT
"""A second implementation of a peer, written from docs/PEERS.md.  It speaks TCP and AF_UNIX,
without grants and RDMA.

    p = connect(("127.0.0.1", port))
    key = p.share(bytearray(4096), READ | WRITE)
    p.get(p.open(their_key), 0, 4096)

For one thread.  While a call waits for its reply, it answers requests of the other side.
"""
import collections
import os
import socket
import struct

HEAD = struct.Struct("<IHHQQQIII")  # without crc
HELLO_BODY = struct.Struct("<8sIIIIIII28x")
KEY = struct.Struct("<4sHHQQII16s12x")  # without crc
(HELLO, OPEN, OPENED, CLOSE, GET, DATA, PUT, DONE, MESSAGE, OFFER, TAKEN, REVOKE, REVOKED, RDMA,
 REACH, REACHED, UNREACH) = range(1, 18)
READ, WRITE = 1, 2
ESTALE, EACCES, ERANGE = 116, 13, 34
DATA_MAX = 131072
INLINE_MAX = 16384
OFF_MAX = 2**63 - 1 - 131072
WAIT_S = float(os.environ.get("PST_TEST_WAIT", "60"))  # limit for waits, s

# For each type of message: the fields that it uses, its least payload and its largest payload,
# bytes.
TYPES = {
    HELLO: ("", 64, 256),
    OPEN: ("id", 64, 256),
    OPENED: ("id err", 0, 128),
    CLOSE: ("share", 0, 0),
    GET: ("id share off count", 0, 0),
    DATA: ("id count err", 0, DATA_MAX),
    PUT: ("id share off count", 1, DATA_MAX),
    DONE: ("id err", 0, 0),
    MESSAGE: ("id", 0, INLINE_MAX),
    OFFER: ("id off", 64, 256),
    TAKEN: ("id err", 0, 0),
    REVOKE: ("share", 0, 0),
    REVOKED: ("share", 0, 0),
    RDMA: ("err", 0, 64),
    REACH: ("id share", 0, 0),
    REACHED: ("id err", 0, 64),
    UNREACH: ("", 0, 0),
}


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


def signed(data):
    """Append the checksum of the data."""
    return data + struct.pack("<I", crc32c(data))


def message(kind, payload=b"", *, length=None, zero=0, ident=0, share=0, off=0, count=0, err=0,
            zero2=0):
    length = 48 + len(payload) if length is None else length
    return signed(HEAD.pack(length, kind, zero, ident, share, off, count, err, zero2)) + payload


def hello(*, magic=b"PSTPEER1", version=1, oldest=1, data_max=DATA_MAX, inline_max=INLINE_MAX,
          requests_max=64, messages_max=64, features=0):
    return HELLO_BODY.pack(magic, version, oldest, data_max, inline_max, requests_max,
                           messages_max, features)


def pack_key(share, length, rights, nonce, *, magic=b"PSTK", version=1, size=64, kind=0):
    return signed(KEY.pack(magic, version, size, share, length, rights, kind, nonce) +
                  bytes(size - 64))


class Broken(Exception):
    """The other side violated the protocol."""


class Gone(Exception):
    """The connection has ended."""


Msg = collections.namedtuple("Msg", "kind id share off count err payload")
Key = collections.namedtuple("Key", "share length rights kind nonce")
Shared = collections.namedtuple("Shared", "memory key rights")


def must(what, text):
    if not what:
        raise Broken(text)


def unpack_key(data):
    must(64 <= len(data) <= 256, "the key's length")
    must(signed(data[:-4]) == data, "the key's crc")
    magic, version, size, *rest = KEY.unpack(data[:60])
    must((magic, size) == (b"PSTK", len(data)) and version, "the key's beginning")
    key = Key(*rest)
    must(0 < key.length < 1 << 63 and key.rights in (1, 2, 3), "the key's length and rights")
    return key


class Peer:
    """A connection.  The limits are those that this side announces, and enforces on the other side.
    """

    def __init__(self, sock, greet=True, **limits):
        self.sock = sock
        self.sock.settimeout(WAIT_S)
        self.limits = {"data_max": DATA_MAX, "inline_max": INLINE_MAX, "requests_max": 64,
                       "messages_max": 64, **limits}
        self.last = 0
        self.shares, self.shown, self.epoch = {}, set(), 0
        self.asked = set()         # ids of the other side's requests in flight
        self.untaken = set()       # the other side's messages not taken yet
        self.inbox = collections.deque()
        self.revoked = []          # shares that the other side closed
        self.gave_back = []        # shares of REVOKED messages received
        self.taken = {}
        self.counts = collections.Counter()
        self.theirs = None
        if greet:
            self.send_raw(message(HELLO, hello(**limits)))
            self.take_hello()

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ------------------------------------------------------------------- bytes

    def send_raw(self, data):
        try:
            self.sock.sendall(data)
        except ConnectionError:
            raise Gone from None

    def _get(self, size):
        data = bytearray()
        while len(data) < size:
            try:
                part = self.sock.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise Gone
            data += part
        return bytes(data)

    def receive(self):
        """Receive a message, which must follow the protocol."""
        head = self._get(48)
        must(signed(head[:44]) == head, "crc")
        length, kind, zero, ident, share, off, count, err, zero2 = HEAD.unpack(head[:44])
        must(not zero and not zero2 and kind in TYPES, "the header")
        has, least, most = TYPES[kind]
        must(least <= length - 48 <= most, f"len {length} of type {kind}")
        for name, value in (("id", ident), ("share", share), ("off", off), ("count", count),
                            ("err", err)):
            must(not value or name in has.split(), f"{name} of type {kind}")
        must(off <= OFF_MAX and err <= 4095, "off and err")
        if "count" in has:
            must(count <= self.limits["data_max"], "more than data_max")
            must(bool(count) != bool(err), f"count of type {kind}")
        if kind in (DATA, PUT):
            must(count == length - 48, "count is not the payload")
        self.counts[kind] += 1
        return Msg(kind, ident, share, off, count, err, self._get(length - 48))

    def take_hello(self):
        m = self.receive()
        must(m.kind == HELLO, "no hello")
        names = ("magic", "version", "oldest", "data_max", "inline_max", "requests_max",
                 "messages_max", "features")
        self.theirs = dict(zip(names, HELLO_BODY.unpack(m.payload[:64])))
        must(self.theirs["magic"] == b"PSTPEER1", "magic")
        must(all(self.theirs[n] for n in names[2:7]), "a limit of 0")
        must(self.theirs["oldest"] <= 1 <= self.theirs["version"], "no version in common")

    # ------------------------------------------------------------ what they ask

    def _their_request(self, m):
        must(m.id not in self.asked, "an id that is in use")
        self.asked.add(m.id)
        must(len(self.asked) <= self.limits["requests_max"], "more than requests_max")

    def _find(self, m, right):
        """Return the share of a GET or PUT, or an errno."""
        found = self.shares.get(m.share)
        if not found or m.share not in self.shown:
            return ESTALE
        if not found.rights & right:
            return EACCES
        return found if m.off + m.count <= len(found.memory) else ERANGE

    def reply(self, kind, m, payload=b"", **fields):
        self.asked.discard(m.id)
        self.send_raw(message(kind, payload, ident=m.id, **fields))

    def answer(self, m):
        """Execute a request of the other side, and reply."""
        if m.kind == OPEN:
            self._their_request(m)
            key = unpack_key(m.payload)
            found = self.shares.get(key.share)
            good = found and unpack_key(found.key) == key
            if good:
                self.shown.add(key.share)
            self.reply(OPENED, m, err=0 if good else ESTALE)
        elif m.kind == CLOSE:
            must(m.share in self.shown or m.share not in self.shares, "CLOSE before OPENED")
            self.shown.discard(m.share)
        elif m.kind == GET:
            self._their_request(m)
            found = self._find(m, READ)
            if isinstance(found, int):
                self.reply(DATA, m, err=found)
            else:
                self.reply(DATA, m, bytes(found.memory[m.off:m.off + m.count]), count=m.count)
        elif m.kind == PUT:
            self._their_request(m)
            found = self._find(m, WRITE)
            if not isinstance(found, int):
                found.memory[m.off:m.off + m.count] = m.payload
            self.reply(DONE, m, err=found if isinstance(found, int) else 0)
        elif m.kind in (MESSAGE, OFFER):
            must(m.id not in self.untaken, "an id that is in use")
            must(len(m.payload) <= self.limits["inline_max"] or m.kind == OFFER,
                 "more than inline_max")
            self.untaken.add(m.id)
            must(len(self.untaken) <= self.limits["messages_max"], "more than messages_max")
            self.inbox.append(m)
        elif m.kind == TAKEN:
            must(m.id in self.taken, "TAKEN of nothing")
            self.taken[m.id] = m.err
        elif m.kind == REVOKE:
            self.revoked.append(m.share)
            self.send_raw(message(REVOKED, share=m.share))
        elif m.kind == REVOKED:
            self.gave_back.append(m.share)
        else:
            raise Broken(f"type {m.kind}")

    def until(self, done):
        """Answer requests until done() is true."""
        while not done():
            self.answer(self.receive())

    # ------------------------------------------------------------- what we ask

    def ident(self):
        self.last += 1
        return self.last

    def wait(self, kind, ident):
        """Return the reply to a request of this side."""
        while True:
            m = self.receive()
            if m.kind in (OPENED, DATA, DONE, REACHED):
                must((m.kind, m.id) == (kind, ident), f"a reply to nothing: {m}")
                return m
            self.answer(m)

    def ask(self, kind, payload=b"", *, reply, **fields):
        ident = self.ident()
        self.send_raw(message(kind, payload, ident=ident, **fields))
        return self.wait(reply, ident)

    def open(self, key):
        """Open a share.  Return the errno, or 0."""
        return self.ask(OPEN, key, reply=OPENED).err

    def shut(self, share):
        self.send_raw(message(CLOSE, share=share))

    def get(self, share, off, count):
        """Return the bytes, or an errno."""
        data = b""
        while len(data) < count:
            part = min(count - len(data), DATA_MAX, self.theirs["data_max"])
            m = self.ask(GET, reply=DATA, share=share, off=off + len(data), count=part)
            if m.err:
                return m.err
            must(m.count == part, "fewer bytes than were asked for")
            data += m.payload
        return data

    def put(self, share, off, data):
        """Write bytes.  Return the errno, or 0."""
        most = min(DATA_MAX, self.theirs["data_max"])
        for at in range(0, len(data), most):
            part = data[at:at + most]
            m = self.ask(PUT, part, reply=DONE, share=share, off=off + at, count=len(part))
            if m.err:
                return m.err
        return 0

    def share(self, memory, rights):
        """Share a bytearray with the other side.  Return the key."""
        self.epoch += 1
        number = self.epoch << 32 | 7
        key = pack_key(number, len(memory), rights, os.urandom(16))
        self.shares[number] = Shared(memory, key, rights)
        return key

    def unshare(self, key):
        number = unpack_key(key).share
        del self.shares[number]
        if number in self.shown:
            self.shown.discard(number)
            self.send_raw(message(REVOKE, share=number))
            self.until(lambda: number in self.gave_back)

    # ---------------------------------------------------------------- messages

    def send(self, data):
        """Send a message and wait until it was received.  Return the errno, or 0."""
        ident = self.ident()
        self.taken[ident] = None
        key = None
        if len(data) <= min(INLINE_MAX, self.theirs["inline_max"]):
            self.send_raw(message(MESSAGE, data, ident=ident))
        else:
            key = self.share(bytearray(data), READ)
            self.send_raw(message(OFFER, key, ident=ident, off=len(data)))
        self.until(lambda: self.taken[ident] is not None)
        if key:
            self.unshare(key)
        return self.taken.pop(ident)

    def recv(self):
        """Return the next message."""
        self.until(lambda: self.inbox)
        m = self.inbox.popleft()
        data = m.payload
        if m.kind == OFFER:
            key = unpack_key(m.payload)
            must(key.length == m.off and key.rights & READ, "what is offered")
            must(self.open(m.payload) == 0, "the offer cannot be opened")
            data = self.get(key.share, 0, m.off)
            self.shut(key.share)
        self.untaken.discard(m.id)
        self.send_raw(message(TAKEN, ident=m.id))
        return data


def connect(address, **how):
    sock = socket.create_connection(address, WAIT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Peer(sock, **how)


class Listener:
    def __init__(self):
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.sock.settimeout(WAIT_S)
        self.address = self.sock.getsockname()

    def accept(self, **how):
        return Peer(self.sock.accept()[0], **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()
