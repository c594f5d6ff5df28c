# SPDX-License-Identifier: MIT
"""The library as a peer by docs/PEERS.md: the second implementation in Python is at the other end,
by TCP."""
import errno
import os
import random
import socket
import sys
import tempfile
import threading

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
os.environ["PST_RDMA"] = "off"  # before the library reads it

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import case, data, eq, gives, run_cases, true  # noqa: E402
from penstock import Error, Listener, Memory, Peer  # noqa: E402

CONTENT = data(300000)


class Thread(threading.Thread):
    """A call of the library on a thread, while the second peer answers it."""

    def __init__(self, function, *args, **how):
        super().__init__(daemon=True)
        self.call, self.value, self.error = (function, args, how), None, None
        self.start()

    def run(self):
        function, args, how = self.call
        try:
            self.value = function(*args, **how)
        except Exception as e:  # pylint: disable=W0718
            self.error = e

    def result(self):
        self.join(c.WAIT_S)
        true(not self.is_alive(), "the library's call hangs")
        if self.error:
            raise self.error
        return self.value


def place(listener):
    host, port = listener.address.rsplit(":", 1)
    return host, int(port)


class Pair:
    """A connection: ours is the second peer, theirs the library's; either one listens."""

    def __init__(self, we_listen=False, unix=False, **how):
        if unix:
            with tempfile.TemporaryDirectory() as work, Listener(f"unix:{work}/sock") as listener:
                thread = Thread(listener.accept)
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(f"{work}/sock")
                self.ours = c.Peer(sock, **how)
                self.theirs = thread.result()
        elif we_listen:
            with c.Listener() as listener:
                thread = Thread(Peer, f"127.0.0.1:{listener.address[1]}")
                self.ours = listener.accept(**how)
                self.theirs = thread.result()
        else:
            with Listener("127.0.0.1:0") as listener:
                thread = Thread(listener.accept)
                self.ours = c.connect(place(listener), **how)
                self.theirs = thread.result()

    def __enter__(self):
        return self.ours, self.theirs

    def __exit__(self, *_):
        self.ours.close()
        self.theirs.close()

    def ended(self):
        """Check that the library has ended the connection because this side violated the protocol.
        """
        try:
            while True:
                self.ours.receive()
        except c.Gone:
            pass
        gives(Error, self.theirs.recv)
        eq(self.theirs.info()["error"], errno.EPROTO)


def in_use(ours, call, *args):
    """Return the result of a call of the library, during which the second peer answers."""
    return while_alive(ours, Thread(call, *args))


def while_alive(ours, thread):
    ours.sock.settimeout(0.02)
    while thread.is_alive():
        try:
            ours.answer(ours.receive())
        except TimeoutError:
            pass
    ours.sock.settimeout(c.WAIT_S)
    return thread.result()


BOTH = ({"we_listen": False}, {"we_listen": True})


# ------------------------------------------------------------------- what is good

@case
def checksum_of_the_page():
    eq(c.crc32c(b"123456789"), 0xE3069283)


@case
def memory_of_the_library():
    for how in BOTH:
        with Pair(**how) as (ours, theirs), Memory.alloc("host", 300000) as memory:
            memory.copy_in(CONTENT)
            with theirs.share(memory, 1000, 200000, write=True) as share:
                key = c.unpack_key(share.key)
                eq((key.length, key.rights), (200000, c.READ | c.WRITE))
                eq(ours.get(key.share, 0, 10), c.ESTALE)    # the key was not shown
                eq(ours.open(share.key), 0)
                eq(ours.get(key.share, 0, 200000), CONTENT[1000:201000])
                eq(ours.put(key.share, 150000, b"x" * 50000), 0)
                eq(ours.put(key.share, 150001, b"y" * 50000), c.ERANGE)
                eq(ours.get(key.share, 199999, 2), c.ERANGE)
                eq(ours.get(key.share, c.OFF_MAX, 1), c.ERANGE)
                eq(memory.copy_out()[150998:201002],
                   CONTENT[150998:151000] + b"x" * 50000 + CONTENT[201000:201002])
                Thread(share.close).result()                # without a grant this side is not asked
                eq(ours.get(key.share, 0, 1), c.ESTALE)
                eq(ours.put(key.share, 0, b"x"), c.ESTALE)
                eq(ours.open(share.key), c.ESTALE)
            for rights, got, done in (({"read": False, "write": True}, c.EACCES, 0),
                                      ({}, b"", c.EACCES)):
                with theirs.share(memory, **rights) as share:
                    number = c.unpack_key(share.key).share
                    eq(ours.open(share.key), 0)
                    eq(ours.get(number, 0, 1), got or bytes(memory.copy_out()[:1]))
                    eq(ours.put(number, 0, b"z"), done)
                    ours.shut(number)
                    eq(ours.get(number, 0, 1), c.ESTALE)


def no_keys(key):
    numbers = c.unpack_key(key)
    yield "crc", key[:-1] + bytes([key[-1] ^ 1])
    yield "magic", c.pack_key(*numbers[:3], numbers.nonce, magic=b"PSTN")
    yield "version", c.pack_key(*numbers[:3], numbers.nonce, version=0)
    yield "len", c.signed(key[:6] + b"\x41" + key[7:60])
    yield "of nothing", c.pack_key(numbers.share, 0, numbers.rights, numbers.nonce)
    yield "of much", c.pack_key(numbers.share, 1 << 63, numbers.rights, numbers.nonce)
    yield "without rights", c.pack_key(*numbers[:2], 0, numbers.nonce)
    yield "with more rights", c.pack_key(*numbers[:2], 7, numbers.nonce)


@case
def keys_that_are_not_those():
    with Pair() as (ours, theirs), theirs.share(bytearray(CONTENT), write=True) as share:
        key = c.unpack_key(share.key)
        for wrong in ((key.share + 1, key.length, key.rights, key.nonce),
                      (key.share + (1 << 32), key.length, key.rights, key.nonce),
                      (key.share, key.length + 1, key.rights, key.nonce),
                      (key.share, key.length, c.READ, key.nonce),
                      (key.share, key.length, key.rights, bytes(16))):
            eq(ours.open(c.pack_key(*wrong)), c.ESTALE)
            eq(ours.get(wrong[0], 0, 1), c.ESTALE)
        for what, text in no_keys(share.key):
            eq((what, ours.open(text)), (what, errno.EBADMSG))
        # A later version's key is longer, and the additional bytes are ignored.
        eq(ours.open(c.pack_key(*key[:3], key.nonce, version=2, size=256)), 0)
        eq(ours.get(key.share, 0, 100), CONTENT[:100])
        ours.shut(key.share)
        # Closing a share that does not exist is allowed.
        for text in (c.message(c.CLOSE, share=99), c.message(c.REVOKED, share=99)):
            ours.send_raw(text)
        eq(ours.open(share.key), 0)
        # Keys of one connection are invalid on another.
        with Pair() as (other, _):
            eq(other.open(share.key), c.ESTALE)


@case
def memory_of_ours():
    for how in BOTH:
        with Pair(**how) as (ours, theirs):
            memory = bytearray(CONTENT)
            key = ours.share(memory, c.READ | c.WRITE)

            def moves(key=key, theirs=theirs):
                room = bytearray(300000)
                with theirs.open(key, "r+") as f:
                    eq(f.size, 300000)
                    eq(f.read(room).path, "tcp")
                    eq(room, CONTENT)
                    f.write(b"hello" * 30000, 100)
                    eq(f.read(room, 299990, short=True).nbytes, 10)
                    eq(room[:10], CONTENT[299990:])
            in_use(ours, moves)
            eq(memory, CONTENT[:100] + b"hello" * 30000 + CONTENT[150100:])
            true(ours.counts[c.GET] >= 3 and ours.counts[c.PUT] >= 2, ours.counts)


@case
def a_share_that_is_closed():
    with Pair() as (ours, theirs):
        memory = bytearray(CONTENT)
        key = ours.share(memory, c.READ)
        f = in_use(ours, lambda: theirs.open(key))
        ours.unshare(key)
        eq(ours.gave_back, [c.unpack_key(key).share])
        gives(errno.ESTALE, in_use, ours, lambda: f.read(bytearray(10)))
        gives(errno.ESTALE, in_use, ours, lambda: theirs.open(key))
        f.close()
        # The share is unknown, but the request is answered.
        ours.send_raw(c.message(c.REVOKE, share=99))
        ours.until(lambda: 99 in ours.gave_back)


@case
def messages():
    sizes = (0, 1, 16384, 16385, 300000)
    for how in BOTH:
        with Pair(**how) as (ours, theirs):
            for size in sizes:
                thread = Thread(theirs.recv)
                eq(ours.send(CONTENT[:size]), 0)
                eq(thread.result(), CONTENT[:size])
                thread = Thread(theirs.send, CONTENT[:size])
                eq(ours.recv(), CONTENT[:size])
                while_alive(ours, thread)


@case
def limits_of_ours_hold():
    """The second peer raises Broken if the library exceeds its limits."""
    with Pair(data_max=1000, inline_max=100, requests_max=3, messages_max=2) as (ours, theirs):
        memory = bytearray(CONTENT)
        key = ours.share(memory, c.READ | c.WRITE)
        room = bytearray(100000)

        def moves():
            with theirs.open(key, "r+") as f:
                f.read(room, 7)
                f.write(bytes(50000), 0)
        in_use(ours, moves)
        eq(room, CONTENT[7:100007])
        eq(memory, bytes(50000) + CONTENT[50000:])
        eq((ours.counts[c.GET], ours.counts[c.PUT]), (100, 50))
        sent = [Thread(theirs.send, CONTENT[:size]) for size in (10, 100)]
        eq(sorted(len(ours.recv()) for _ in sent), [10, 100])
        thread = Thread(theirs.send, CONTENT[:101])
        eq(ours.recv(), CONTENT[:101])
        eq(ours.counts[c.OFFER], 1)
        while_alive(ours, thread)
        # A third message waits until one of the first two was received.
        sent = [Thread(theirs.send, b"x") for _ in range(5)]
        ours.until(lambda: len(ours.inbox) == 2)
        for _ in sent:
            eq(ours.recv(), b"x")
        for thread in sent:
            thread.result()


@case
def hellos_of_other_versions():
    for fields in ({"version": 9, "oldest": 1}, {"features": 0xFFFFFFFE}, {"data_max": 1 << 31},
                   {"requests_max": 0xFFFFFFFF}):
        with Listener("127.0.0.1:0") as listener:
            thread = Thread(listener.accept)
            ours = c.connect(place(listener), greet=False)
            ours.send_raw(c.message(c.HELLO, c.hello(**fields) + bytes(192)))
            ours.take_hello()
            with thread.result() as theirs, ours:
                thread = Thread(theirs.recv)
                eq(ours.send(b"text"), 0)
                eq(thread.result(), b"text")


# ------------------------------------------------------------------------- what is not

HELLO = c.message(c.HELLO, c.hello())
NO_HELLOS = {
    "zeros": bytes(4096), "http": b"GET / HTTP/1.1\r\n" + b"x" * 100,
    "magic": c.message(c.HELLO, c.hello(magic=b"pstpeer1")),
    "short": c.message(c.HELLO, c.hello()[:63]), "long": c.message(c.HELLO, c.hello() + bytes(193)),
    "version": c.message(c.HELLO, c.hello(version=9, oldest=2)),
    "order": c.message(c.HELLO, c.hello(version=1, oldest=2)),
    "oldest 0": c.message(c.HELLO, c.hello(oldest=0)),
    "data_max": c.message(c.HELLO, c.hello(data_max=0)),
    "inline_max": c.message(c.HELLO, c.hello(inline_max=0)),
    "requests_max": c.message(c.HELLO, c.hello(requests_max=0)),
    "messages_max": c.message(c.HELLO, c.hello(messages_max=0)),
    "id": c.message(c.HELLO, c.hello(), ident=1),
    "crc": HELLO[:47] + bytes([HELLO[47] ^ 1]) + HELLO[48:],
    "another type": c.message(c.MESSAGE, c.hello()),
    "a message first": c.message(c.MESSAGE, b"x", ident=1) + HELLO,
}


@case
def hostile_hellos():
    with Listener("127.0.0.1:0") as listener:
        for what, text in NO_HELLOS.items():
            thread = Thread(listener.accept)
            with c.connect(place(listener), greet=False) as ours:
                ours.send_raw(text)
                try:
                    while True:
                        eq((what, ours.receive().kind), (what, c.HELLO))
                except (c.Gone, ConnectionError):
                    pass
            # The next connection is accepted.
            ours = c.connect(place(listener))
            theirs = thread.result()
            ours.close()
            theirs.close()
    for what, text in NO_HELLOS.items():
        with c.Listener() as listener:
            thread = Thread(Peer, f"127.0.0.1:{listener.address[1]}")
            with listener.accept(greet=False) as ours:
                try:
                    ours.send_raw(text)
                except c.Gone:
                    pass
                error = gives(Error, thread.result)
                eq((what, error.errno),
                   (what, errno.EPROTONOSUPPORT if what == "version" else errno.EPROTO))


def bad_messages(share, key):
    """Yield messages that end a connection on which this share was opened."""
    good = c.message(c.GET, ident=5, share=share, count=1)
    for at in (0, 4, 6, 8, 16, 24, 32, 36, 40, 44):
        yield f"bit of byte {at}", good[:at] + bytes([good[at] ^ 1]) + good[at + 1:]
    yield "second hello", HELLO
    yield "type 0", c.message(0)
    yield "type 18", c.message(18)
    yield "type 65535", c.message(65535)
    for kind, (has, least, most) in c.TYPES.items():
        fields = {}
        if "id" in has:
            fields["ident"] = 5
        payload = bytes(least)
        if kind in (c.GET, c.DATA, c.PUT):
            fields["count"] = 1
            payload = b"x" if kind != c.GET else b""
        if kind in (c.OPEN, c.OFFER):
            payload = key
        if kind == c.OFFER:
            fields["off"] = c.unpack_key(key).length
        if "share" in has:
            fields["share"] = share
        if most < 65536:
            yield f"long {kind}", c.message(kind, payload.ljust(most + 1, b"\0"), **fields)
        if least:
            yield f"short {kind}", c.message(kind, payload[:least - 1], **fields)
        for field, name in (("zero", "zero"), ("zero2", "zero"), ("ident", "id"),
                            ("share", "share"), ("off", "off"), ("count", "count"), ("err", "err")):
            if name not in has.split():
                yield f"{field} of {kind}", c.message(kind, payload, **{**fields, field: 1})
        yield f"len 47 of {kind}", c.message(kind, length=47, **fields)
        yield f"len 4 GiB of {kind}", c.message(kind, length=0xFFFFFFFF, **fields)
    for kind in (c.GET, c.PUT):
        for count in (0, c.DATA_MAX + 1, 0xFFFFFFFF):
            yield f"count {count} of {kind}", c.message(
                kind, bytes(min(count, 200000)) if kind == c.PUT else b"", ident=5, share=share,
                count=count)
        yield f"off of {kind}", c.message(kind, b"x" if kind == c.PUT else b"", ident=5,
                                          share=share, off=c.OFF_MAX + 1, count=1)
    yield "put of less", c.message(c.PUT, b"xy", ident=5, share=share, count=3)
    yield "put of more", c.message(c.PUT, b"xyz", ident=5, share=share, count=2)
    yield "data for nobody", c.message(c.DATA, b"x", ident=5, count=1)
    yield "data that failed and has bytes", c.message(c.DATA, b"x", ident=5, count=1, err=5)
    yield "data without", c.message(c.DATA, ident=5)
    yield "done for nobody", c.message(c.DONE, ident=5)
    yield "opened for nobody", c.message(c.OPENED, ident=5)
    yield "err 4096", c.message(c.OPENED, ident=5, err=4096)
    yield "grant of 127 bytes", c.message(c.OPENED, bytes(127), ident=5)
    yield "taken for nobody", c.message(c.TAKEN, ident=5)
    yield "reached for nobody", c.message(c.REACHED, ident=5, err=5)
    numbers = c.unpack_key(key)
    yield "offer of another length", c.message(c.OFFER, key, ident=5, off=numbers.length + 1)
    yield "offer without the right", c.message(
        c.OFFER, c.pack_key(*numbers[:2], c.WRITE, numbers.nonce), ident=5, off=numbers.length)
    for what, text in no_keys(key):
        yield f"offer: {what}", c.message(c.OFFER, text, ident=5, off=numbers.length)
    yield "65 messages", b"".join(c.message(c.MESSAGE, ident=i) for i in range(65))


@case
def hostile_messages():
    with Pair() as (calm, calm_theirs), calm_theirs.share(bytearray(CONTENT)) as calm_share:
        eq(calm.open(calm_share.key), 0)
        number = c.unpack_key(calm_share.key).share
        count = 0
        with Listener("127.0.0.1:0") as listener:
            probe = c.pack_key(1 << 32, 100, 3, bytes(16))
            for nr in range(len(list(bad_messages(1 << 32, probe)))):
                thread = Thread(listener.accept)
                ours = c.connect(place(listener))
                theirs = thread.result()
                with theirs.share(bytearray(CONTENT), write=True) as share:
                    eq(ours.open(share.key), 0)
                    what, text = list(bad_messages(c.unpack_key(share.key).share, share.key))[nr]
                    try:
                        ours.send_raw(text)
                        ours.sock.settimeout(10)
                        while True:
                            # Requests before the bad one may be answered.
                            true(ours.receive().kind in (c.OPENED, c.DATA, c.DONE, c.TAKEN), what)
                    except c.Gone:
                        pass
                    except TimeoutError:
                        raise AssertionError(f"{what}: the connection stays") from None
                    eq((what, theirs.info()["error"]), (what, errno.EPROTO))
                ours.close()
                theirs.close()
                count += 1
        eq(calm.get(number, 1000, 10), CONTENT[1000:1010])
        print(f"# {count} messages")


def replies(kind):
    """Yield replies to the library's request that end the connection."""
    other = {c.OPENED: c.DONE, c.DATA: c.OPENED, c.DONE: c.DATA}[kind]
    yield "another type", lambda m: c.message(other, b"x" if other == c.DATA else b"", ident=m.id,
                                              count=other == c.DATA)
    yield "another id", lambda m: c.message(kind, bytes(m.count) if kind == c.DATA else b"",
                                            ident=m.id + 1, count=m.count if kind == c.DATA else 0)
    if kind == c.DATA:
        yield "less", lambda m: c.message(kind, bytes(m.count - 1), ident=m.id, count=m.count - 1)
        yield "more", lambda m: c.message(kind, bytes(m.count + 1), ident=m.id, count=m.count + 1)
        # A long reply is received directly into the request's memory, before its length is known to
        # be wrong.
        yield "long: less", lambda m: c.message(kind, length=48 + m.count - 1, ident=m.id,
                                                count=m.count - 1)
        yield "long: more", lambda m: c.message(kind, length=48 + m.count + 1, ident=m.id,
                                                count=m.count + 1)
    if kind == c.OPENED:
        yield "a grant by TCP", lambda m: c.message(kind, bytes(128), ident=m.id)
        yield "by unix: short grant", lambda m: c.message(kind, bytes(127), ident=m.id)
    yield "err 4096", lambda m: c.message(kind, ident=m.id, err=4096)
    yield "none, and the end", lambda m: b""


@case
def hostile_replies():
    for kind, request in ((c.OPENED, c.OPEN), (c.DATA, c.GET), (c.DONE, c.PUT)):
        for what, make in replies(kind):
            pair = Pair(unix="unix" in what)
            with pair as (ours, theirs):
                key = ours.share(bytearray(CONTENT), c.READ | c.WRITE)
                room = bytearray(100000 if "long" in what else 5000)

                def call(theirs=theirs, key=key, room=room, kind=kind):
                    with theirs.open(key, "r+") as f:
                        if kind == c.DATA:
                            f.read(room)
                        else:
                            f.write(room)
                thread = Thread(call)
                m = ours.receive()
                while m.kind != request:
                    ours.answer(m)
                    m = ours.receive()
                text = make(m)
                if text:
                    ours.send_raw(text)
                    pair.ended()
                else:
                    ours.close()
                error = gives(OSError, thread.result)
                true(error.errno in (errno.EPIPE, errno.EPROTO, errno.ECONNRESET),
                     f"{kind}, {what}: {error}")
                eq(room, bytes(len(room)))


@case
def cut_anywhere():
    """Send each prefix of a stream, then end: the library must have the complete messages and no
    more."""
    with Listener("127.0.0.1:0") as listener:
        sent = HELLO + c.message(c.MESSAGE, b"first", ident=1) + c.message(c.MESSAGE, b"2", ident=2)
        first = len(HELLO) + 48 + 5
        for cut in list(range(len(HELLO), len(sent), 7)) + [len(sent)]:
            thread = Thread(listener.accept)
            with c.connect(place(listener), greet=False) as ours:
                ours.send_raw(sent[:cut])
                with thread.result() as theirs:
                    ours.close()
                    got = []
                    try:
                        while True:
                            got.append(theirs.recv())
                    except Error:
                        pass
                    eq(got, [b"first", b"2"][:(cut >= first) + (cut == len(sent))])


@case
def byte_by_byte():
    with Pair() as (ours, theirs), theirs.share(bytearray(CONTENT), write=True) as share:
        number = c.unpack_key(share.key).share
        text = c.message(c.OPEN, share.key, ident=1) + \
            c.message(c.PUT, b"slow", ident=2, share=number, off=3, count=4) + \
            c.message(c.GET, ident=3, share=number, count=10)
        for i in range(len(text)):
            ours.send_raw(text[i:i + 1])
        eq(sorted((m.kind, m.id, m.err) for m in (ours.receive() for _ in range(3))),
           [(c.OPENED, 1, 0), (c.DATA, 3, 0), (c.DONE, 2, 0)])
        eq(ours.get(number, 0, 10), CONTENT[:3] + b"slow" + CONTENT[7:10])


@case
def random_bytes_in_a_good_stream():
    """Any change of a header ends the connection, and memory has only bytes that a PUT may write.
    """
    rand = random.Random(7)
    for _ in range(60):
        with Pair() as (ours, theirs):
            memory = Memory.alloc("host", 4096)
            with memory, theirs.share(memory, 1024, 1024, write=True) as share:
                number = c.unpack_key(share.key).share
                eq(ours.open(share.key), 0)
                text = bytearray(b"".join(
                    c.message(c.PUT, b"\xff" * 100, ident=i, share=number, off=i * 100, count=100)
                    for i in range(10)))
                text[rand.randrange(len(text))] ^= 1 << rand.randrange(8)
                try:
                    ours.send_raw(bytes(text) + c.message(0))
                    while True:
                        eq(ours.receive().kind, c.DONE)
                except c.Gone:
                    pass
                whole = memory.copy_out()
                eq((whole[:1024], whole[2048:]), (bytes(1024), bytes(2048)))


sys.exit(0 if run_cases() else 1)
