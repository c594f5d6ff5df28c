# SPDX-License-Identifier: MIT
"""Both ends of a connection, in one process."""
import errno
import os
import struct
import subprocess
import threading

from tap import case, data, eq, file, gives, run, true, work

# Set before the library reads it: the machine may have a network card or its stub.
os.environ["PST_RDMA"] = "off"

# pylint: disable-next=wrong-import-position
from penstock import Error, Listener, Memory, Peer  # noqa: E402

CONTENT = data(300000)


def pair(address, **options):
    found = []
    with Listener(address, **options) as listener:
        thread = threading.Thread(target=lambda: found.append(listener.accept()))
        thread.start()
        ours = Peer(listener.address, **options)
        thread.join()
    return ours, found[0]


def local():
    return pair(f"unix:{work}/sock")


@case
def put_and_get():
    for device, grant, path in (("host", False, "tcp"), ("soft:0", False, "tcp"),
                                ("host", True, "peer"), ("soft:0", True, "peer")):
        ours, theirs = local()
        with ours, theirs, Memory.alloc(device, 300000, shared=True) as memory:
            memory.copy_in(CONTENT)
            with theirs.share(memory, write=True, grant=grant) as share:
                with ours.open(share.key, "r+") as f:
                    eq(f.size, 300000)
                    back = bytearray(300000)
                    eq(f.read(back).path, path)
                    eq(back, CONTENT)
                    f.write(b"hello", 1000)
                    true(memory.copy_out()[990:1010] == CONTENT[990:1000] + b"hello" +
                         CONTENT[1005:1010])
                    share.close()
                    gives(errno.ESTALE, f.read, back)
                gives(errno.ESTALE, ours.open, share.key)


@case
def rights():
    ours, theirs = local()
    with ours, theirs:
        with theirs.share(bytearray(4096), 1000, 2000) as share:
            gives(PermissionError, ours.open, share.key, "w")
            gives(errno.EBADMSG, ours.open, share.key[:-1] + bytes([share.key[-1] ^ 1]))
            gives(ValueError, ours.open, share.key, "a")
            with ours.open(share.key) as f:
                eq(f.size, 2000)
        gives(ValueError, theirs.share, b"constant", write=True)
        gives(ValueError, theirs.share, bytearray(10), 5, 6)


@case
def a_share_keeps_its_memory():
    ours, theirs = local()
    with ours, theirs:
        memory = Memory.of(bytearray(CONTENT))
        share = theirs.share(memory)
        gives(BufferError, memory.close)
        del memory
        back = bytearray(300000)
        with ours.open(share.key) as f:
            f.read(back)
        eq(back, CONTENT)
        share.close()
        share.close()


@case
def messages():
    ours, theirs = local()
    with ours, theirs:
        gives(errno.ETIMEDOUT, theirs.next, 0)
        for size in (0, 1, 16384):
            ours.send(CONTENT[:size])
        eq(theirs.info()["error"], 0)
        eq([theirs.recv() for _ in range(3)], [b"", CONTENT[:1], CONTENT[:16384]])
        # A longer message waits until it is received.
        sender = threading.Thread(target=ours.send, args=(CONTENT,))
        sender.start()
        eq(theirs.next(), 300000)
        gives(errno.EMSGSIZE, theirs.recv_into, bytearray(10))
        gives(errno.EMSGSIZE, theirs.recv, limit=299999)
        room = bytearray(300010)
        eq(theirs.recv_into(room, 10), 300000)
        sender.join()
        eq(room[10:], CONTENT)
    gives(ValueError, ours.send, b"x")


@case
def the_other_end_is_closed():
    ours, theirs = local()
    with ours:
        theirs.send(b"last")
        theirs.close()
        eq(ours.recv(), b"last")
        gives(errno.EPIPE, ours.recv)
        eq(ours.info()["error"], errno.EPIPE)
        gives(BrokenPipeError, ours.send, b"x")


@case
def tls():
    keys = file("keys", b"test:0123456789abcdef0123456789abcdef\n")
    os.chmod(keys, 0o600)
    ours, theirs = pair("127.0.0.1:0", keys=keys)
    with ours, theirs:
        true(ours.info()["tls"] and not ours.info()["local"])
        eq(ours.info()["uid"], None)
        ours.send(b"secret")
        eq(theirs.recv(), b"secret")
    gives(PermissionError, Listener, "192.0.2.1:0")
    gives(Error, Peer, "unix:/nowhere")


@case
def the_server_of_perf():
    """A client may ask the server to check memory that the server could not allocate."""
    server = subprocess.Popen([os.environ["PENSTOCK"], "perf", "--listen", f"unix:{work}/perf",
                               "-m", "soft:99"], stderr=subprocess.PIPE)
    try:
        true(b"listening on" in server.stderr.readline())
        with Peer(f"unix:{work}/perf") as peer:

            def ask(op, size):
                peer.send(struct.pack("<6Q", 0x3146524550545350, op, size, 1, 1, 0))
                return struct.unpack("<q", peer.recv()[8:16])[0]

            true(ask(1, 4096) != 0)     # put
            eq(ask(6, 4096), errno.EINVAL)     # check
        server.terminate()
        eq(server.wait(), 0)
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


run()
