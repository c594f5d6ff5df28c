# SPDX-License-Identifier: MIT
"""The server by docs/PROTOCOL.md: what it must do, refuse and survive."""
import errno
import os
import random
import signal
import subprocess
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import case, data, eq, gives, true  # noqa: E402
from service import Server, content_of, file, root, run, sanitized, soon, work  # noqa: E402

@case
def checksum_of_the_page():
    eq(c.crc32c(b"123456789"), 0xE3069283)


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@case
def every_operation():
    with Server("--write") as server:
        one = server.client()
        eq(one.welcome.err, 0)
        eq(one.welcome.payload[:12], b"PENSTOCK" + (1).to_bytes(4, "little"))
        handle = one.open("new", c.O_READ | c.O_WRITE | c.O_CREATE)
        content = data(100000)
        reply = one.ask(c.WRITE, content, handle=handle, off=5, count=len(content), flags=c.CRC,
                        crc=c.crc32c(content))
        eq((reply.err, reply.count, reply.boot), (0, len(content), one.welcome.boot))
        eq(content_of("new"), bytes(5) + content)
        reply = one.ask(c.READ, handle=handle, off=5, count=1 << 20, flags=c.CRC)
        eq((reply.count, reply.flags, reply.payload), (len(content), c.CRC, content))
        eq(one.ask(c.READ, handle=handle, off=1 << 40, count=1).count, 0)
        eq(one.ask(c.SYNC, handle=handle).err, 0)
        eq(one.ask(c.SYNC, handle=handle, flags=c.DATA).err, 0)
        eq(one.ask(c.TRUNCATE, handle=handle, off=7).err, 0)
        st = os.stat(f"{root}/new")
        for reply in (one.ask(c.STAT, handle=handle), one.ask(c.STAT, b"new")):
            a = c.attributes(reply.payload)
            eq((a["size"], a["ino"], a["dev"], a["mode"], a["kind"]),
               (7, st.st_ino, st.st_dev, st.st_mode & 0o7777, 1))
        eq(one.ask(c.CLOSE, handle=handle).err, 0)
        eq(one.ask(c.READ, handle=handle, count=1).err, errno.EBADF)
        gives(errno.EEXIST, one.open, "new", c.O_WRITE | c.O_CREATE | c.O_EXCL)
        eq(content_of("new"), bytes(5) + content[:2])
        one.open("new", c.O_WRITE | c.O_TRUNC)
        eq(content_of("new"), b"")
        for nr in (0, 99, 256, 257, 1 << 16, 0xFFFFFFFF):
            for op in (c.READ, c.SYNC, c.CLOSE):
                eq((nr, one.ask(op, handle=nr, count=op == c.READ).err), (nr, errno.EBADF))
        # Only permission bits are used, not the set-user-ID bit.
        one.open("set-uid", c.O_WRITE | c.O_CREATE, 0o7755)
        eq(os.stat(f"{root}/set-uid").st_mode & 0o7077, 0o055 & ~umask())
        one.close()


@case
def lists_in_parts():
    os.mkdir(f"{root}/d")
    names = [f"{'n' * (i % 200)}{i}" for i in range(300)]
    for name in names:
        file(f"d/{name}", b"")
    os.mkdir(f"{root}/d/sub")
    with Server() as server:
        one = server.client()
        eq(sorted(one.list("d", 512)), sorted([(n, 1) for n in names] + [("sub", 2)]))
        true(("d", 2) in one.list())
        gives(errno.ENOENT, one.list, "nix")
        gives(errno.ENOTDIR, one.list, f"d/{names[0]}")


@case
def names_are_removed_and_changed():
    os.makedirs(f"{root}/n/sub")
    for name in ("n/a", "n/b", "n/sub/c"):
        file(name, name.encode())
    # Files outside of the served directory, which a server with a planted fault would give away.
    os.mkdir(f"{work}/beside")
    for name in ("passwd", "x"):
        with open(f"{work}/beside/{name}", "wb") as f:
            f.write(b"kept")
    os.symlink(f"{work}/beside", f"{root}/n/out")
    os.symlink("b", f"{root}/n/link")
    with Server() as server:
        one = server.client()
        for err in (one.unlink("n/a"), one.rename("n/a", "n/z")):
            eq(err, errno.EROFS)
    with Server("--write") as server:
        one = server.client()
        handle = one.open("n/b")
        eq(one.rename("n/a", "n/sub/b"), 0)
        eq(one.rename("n/sub/b", "n/b"), 0)
        eq(open(f"{root}/n/b", "rb").read(), b"n/a")
        # An open handle reads the old file's bytes.
        eq(one.ask(c.READ, handle=handle, count=10).payload, b"n/b")
        eq([one.unlink(n) for n in ("n/a", "n/sub", "nix/x", "n", ".", "n/..", "n/b/")],
           [errno.ENOENT, errno.EISDIR, errno.ENOENT] + [errno.EISDIR] * 4)
        eq([one.unlink(n) for n in ("../beside/x", "n/out/passwd", f"{work}/beside/x")],
           [errno.EXDEV, errno.EXDEV, errno.EINVAL])
        eq([one.rename("n/b", n) for n in ("n/out/y", "../beside/y", f"{work}/beside/y", "n/sub",
                                           "nix/b", "n/b/x")],
           [errno.EXDEV, errno.EXDEV, errno.EINVAL, errno.EISDIR, errno.ENOENT, errno.ENOTDIR])
        eq([one.rename("n/b", n) for n in (".", "n/.", "n/..", "n/")], [errno.EISDIR] * 4)
        eq([one.rename(n, "n/q") for n in ("n/sub", "n/out/passwd", "n/nix")],
           [errno.EISDIR, errno.EXDEV, errno.ENOENT])
        eq((one.unlink("n/link"), one.unlink("n/sub/c"), one.unlink("n/b")), (0, 0, 0))
        eq(sorted(os.listdir(f"{root}/n")), ["out", "sub"])
        eq(sorted(os.listdir(f"{work}/beside")), ["passwd", "x"])


@case
def requests_come_back_in_any_order_once():
    content = data(1 << 20)
    file("f", content)
    with Server("--requests", "8") as server:
        one = server.client()
        handle = one.open("f")
        wanted = {}
        batch = b""
        for i in range(2000):
            off, count = random.randrange(len(content)), random.randrange(1, 3000)
            wanted[1000 + i] = content[off:off + count]
            batch += c.request(c.READ, ident=1000 + i, handle=handle, off=off, count=count)
        one.sock.setblocking(True)
        pid = os.fork()
        if pid == 0:
            one.send(batch)
            os._exit(0)
        while wanted:
            reply = one.receive()
            eq(reply.payload, wanted.pop(reply.ident))
        eq(os.waitpid(pid, 0)[1], 0)


@case
def hostile_bytes_end_their_connection():
    file("f", data(10000))
    greeting = c.request(c.HELLO, c.hello())
    good = c.header(c.READ, handle=1, count=1)
    bad = {
        "http": b"GET / HTTP/1.1\r\n" + b"x" * 100,
        "zeros": bytes(4096),
        "no hello": good,
        "two hellos": greeting + greeting,
        "magic": c.request(c.HELLO, c.hello(magic=b"penstock")),
        "short hello": c.request(c.HELLO, c.hello()[:63]),
        "long hello": c.request(c.HELLO, c.hello() + bytes(4033)),
        "versions": c.request(c.HELLO, c.hello(version=1, oldest=2)),
        "header_crc": greeting + good[:-1] + bytes([good[-1] ^ 1]),
        "op 0": greeting + c.header(0),
        "op 12": greeting + c.header(12),
        "unlink of nothing": greeting + c.header(c.UNLINK),
        "unlink of a long name": greeting + c.request(c.UNLINK, b"x" * 4096),
        "rename of nothing": greeting + c.request(c.RENAME, b"xy"),
        "rename to nothing": greeting + c.request(c.RENAME, b"xy", count=2),
        "rename of 4 GiB": greeting + c.request(c.RENAME, b"xy", count=0xFFFFFFFF),
        "rename of a long name": greeting + c.request(c.RENAME, b"x" * 4097, count=4096),
        "rename to a long name": greeting + c.request(c.RENAME, b"x" * 4097, count=1),
        "flags": greeting + c.header(c.READ, handle=1, count=1, flags=4),
        "len 47": greeting + c.header(c.CLOSE, length=47, handle=1),
        "len 0": greeting + c.header(c.CLOSE, length=0, handle=1),
        "read with a payload": greeting + c.request(c.READ, b"x", handle=1, count=1),
        "read of 0": greeting + c.header(c.READ, handle=1),
        "read of much": greeting + c.header(c.READ, handle=1, count=(1 << 20) + 1),
        "read of 4 GiB": greeting + c.header(c.READ, handle=1, count=0xFFFFFFFF),
        "read at the end": greeting + c.header(c.READ, handle=1, off=(1 << 63) - 1, count=1),
        "read beyond": greeting + c.header(c.READ, handle=1, off=1 << 63, count=1),
        "close with a payload": greeting + c.request(c.CLOSE, b"x", handle=1),
        "sync with a payload": greeting + c.request(c.SYNC, b"x", handle=1),
        "truncate with a payload": greeting + c.request(c.TRUNCATE, b"x", handle=1),
        "truncate beyond": greeting + c.header(c.TRUNCATE, handle=1, off=1 << 63),
        "write of nothing": greeting + c.header(c.WRITE, handle=1),
        "write of much": greeting + c.request(c.WRITE, bytes((1 << 20) + 1), handle=1,
                                              count=(1 << 20) + 1),
        "write at the end": greeting + c.request(c.WRITE, b"x", handle=1, off=(1 << 63) - 1,
                                                 count=1),
        "write beyond": greeting + c.request(c.WRITE, b"x", handle=1, off=1 << 63, count=1),
        "write without": greeting + c.header(c.WRITE, handle=1, count=1),
        "write of less": greeting + c.request(c.WRITE, b"xy", handle=1, count=1),
        "write of 4 GiB": greeting + c.header(c.WRITE, length=0xFFFFFFFF, handle=1,
                                              count=0xFFFFFFFF - 48),
        "open without a name": greeting + c.header(c.OPEN, how=1),
        "open of a long name": greeting + c.request(c.OPEN, b"x" * 4096, how=1),
        "open for nothing": greeting + c.request(c.OPEN, b"f", how=0),
        "open how 32": greeting + c.request(c.OPEN, b"f", how=33),
        "create to read": greeting + c.request(c.OPEN, b"f", how=5),
        "open how 17": greeting + c.request(c.OPEN, b"f", how=17),
        "open how 10": greeting + c.request(c.OPEN, b"f", how=10),
        "open mode 010000": greeting + c.request(c.OPEN, b"f", how=1, mode=0o10000),
        "stat of nothing": greeting + c.header(c.STAT),
        "stat of a long name": greeting + c.request(c.STAT, b"x" * 4096),
        "list of a long name": greeting + c.request(c.LIST, b"x" * 4096, count=512),
        "list of much": greeting + c.header(c.LIST, count=(1 << 20) + 1),
        "list beyond": greeting + c.header(c.LIST, off=1 << 63, count=512),
        "stat of two": greeting + c.request(c.STAT, b"f", handle=1),
        "list of 1": greeting + c.header(c.LIST, count=1),
    }
    with Server("--write") as server:
        calm = server.client()
        handle = calm.open("f")
        for what, text in bad.items():
            one = c.Client(server.address, greet=False)
            one.send(text)
            try:
                while True:
                    reply = one.receive()
                    true(reply.op == c.HELLO and not reply.err,
                         f"{what}: a reply to op {reply.op}, err {reply.err}")
            except c.Gone:
                pass
            except TimeoutError:
                raise AssertionError(f"{what}: the connection stays") from None
            one.close()
            eq(calm.ask(c.READ, handle=handle, count=100).count, 100)
        # Cut the stream at any byte.
        whole = greeting + c.request(c.OPEN, b"f", ident=1, how=3) + \
            c.request(c.WRITE, b"y" * 5000, ident=2, handle=1, count=5000)
        for n in range(0, len(whole) - 1, 37):
            one = c.Client(server.address, greet=False)
            one.send(whole[:n])
            one.close()
        eq(calm.ask(c.READ, handle=handle, count=100).payload, data(10000)[:100])
        # Sent byte by byte, the stream works.
        one = c.Client(server.address, greet=False)
        # The handle exists when OPEN is answered.
        first = len(whole) - 48 - 5000
        for i in range(first):
            one.send(whole[i:i + 1])
        eq([one.receive().err for _ in range(2)], [0, 0])
        for i in range(first, len(whole)):
            one.send(whole[i:i + 1])
        eq(one.receive().err, 0)


@case
def versions_without_a_common_one():
    with Server() as server:
        one = server.client(version=9, oldest=2)
        eq(one.welcome.err, errno.EPROTONOSUPPORT)
        gives(c.Gone, one.receive)
        eq(server.client(version=0, oldest=0).welcome.err, errno.EPROTONOSUPPORT)
        # A second hello is refused.
        one = c.Client(server.address, greet=False)
        one.send(c.request(c.HELLO, c.hello(version=9, oldest=2)) + c.request(c.HELLO, c.hello()))
        eq(one.receive().err, errno.EPROTONOSUPPORT)
        gives(c.Gone, one.receive)
        eq(server.client(version=9, oldest=1).welcome.err, 0)


@case
def names_stay_beneath_the_root():
    with open(f"{work}/outside", "wb") as f:
        f.write(b"secret")
    os.symlink("../outside", f"{root}/link")
    os.symlink(f"{work}/outside", f"{root}/absolute")
    os.symlink("..", f"{root}/up")
    os.mkfifo(f"{root}/fifo")
    os.mkdir(f"{root}/d")
    with Server("--write") as server:
        one = server.client()
        for how in (c.O_READ, c.O_WRITE, c.O_WRITE | c.O_CREATE, c.O_WRITE | c.O_TRUNC):
            for name in ("../outside", "d/../../outside", "link", "absolute", "up/outside",
                         "proc/self/root"):
                e = gives(OSError, one.open, name, how)
                true(e.errno in (errno.EXDEV, errno.ENOENT, errno.ELOOP), f"{name}: {e}")
        gives(errno.EXDEV, one.open, "../made", c.O_WRITE | c.O_CREATE)
        true(not os.path.exists(f"{work}/made"))
        for name in (f"{work}/outside", "a\0b"):
            gives(errno.EINVAL, one.open, name)
        gives(errno.ENXIO, one.open, "fifo")
        gives(errno.EISDIR, one.open, "d")
        eq(one.ask(c.STAT, b"../outside").err, errno.EXDEV)
        eq(one.ask(c.LIST, b"..", count=4096).err, errno.EXDEV)
        with open(f"{work}/outside", "rb") as f:
            eq(f.read(), b"secret")


@case
def nothing_is_written_without_leave():
    file("f", b"abc")
    with Server() as server:
        one = server.client()
        eq(one.welcome.payload[32], 1)
        for how in (c.O_WRITE, c.O_READ | c.O_WRITE, c.O_WRITE | c.O_TRUNC):
            gives(errno.EROFS, one.open, "f", how)
        handle = one.open("f")
        eq(one.ask(c.WRITE, b"x", handle=handle, count=1).err, errno.EBADF)
        eq(one.ask(c.TRUNCATE, handle=handle).err, errno.EBADF)
    with Server("--write") as server:
        one = server.client()
        handle = one.open("f")
        eq(one.ask(c.WRITE, b"x", handle=handle, count=1).err, errno.EBADF)
        eq(one.ask(c.TRUNCATE, handle=handle).err, errno.EBADF)
        handle = one.open("f", c.O_WRITE)
        eq(one.ask(c.WRITE, b"x", handle=handle, count=1, flags=c.CRC, crc=1).err, errno.EBADMSG)
    eq(content_of("f"), b"abc")


@case
def limits_hold():
    file("f", b"abc")
    # Send all opens at once, so that the server begins some of them before it has given the last
    # handle.
    with Server("--files", "3") as server:
        one = server.client()
        one.send(b"".join(c.request(c.OPEN, b"f", how=c.O_READ, ident=i) for i in range(100)))
        eq(sorted(one.receive().err for _ in range(100)), [0] * 3 + [errno.EMFILE] * 97)
    with Server("--files", "3", "--clients", "2") as server:
        one = server.client()
        for _ in range(3):
            one.open("f")
        gives(errno.EMFILE, one.open, "f")
        eq(one.ask(c.CLOSE, handle=2).err, 0)
        eq(one.open("f"), 2)
        two = server.client()
        time.sleep(1.5)   # only clients that sent no hello within a second lose their places
        gives(c.Gone, server.client)
        for client in (one, two):
            eq(client.ask(c.STAT, b"f").err, 0)
        two.close()

        def again():
            try:
                server.client().close()
            except c.Gone:
                return False
            return True
        soon(again)
        before = server.descriptors()   # an earlier client's descriptor may still be open
        one.close()
        soon(lambda: server.descriptors() in (before - 4, before - 5))


@case
def a_client_that_takes_nothing_holds_up_nobody():
    file("big", data(1 << 20) * 16)
    with Server("--write", "--memory", "4m", "--drain", "1") as server:
        kept = []
        for _ in range(4):
            greedy = server.client()
            handle = greedy.open("big")
            greedy.sock.settimeout(0.5)
            batch = b"".join(c.request(c.READ, ident=i, handle=handle, off=i % 16 << 20,
                                       count=1 << 20) for i in range(500))
            greedy.send(batch)
            # Connect a client that sends half a write.
            half = server.client()
            handle = half.open("big", c.O_WRITE)
            half.send(c.header(c.WRITE, length=48 + (1 << 20), handle=handle, count=1 << 20) +
                      bytes(100))
            kept += (greedy, half)
            calm = server.client()
            handle = calm.open("big")
            for i in range(8):
                eq(calm.ask(c.READ, handle=handle, off=i << 20, count=1 << 20).payload,
                   data(1 << 20))
        # 12 clients with 1 MiB each, the 4 MiB, and the program itself with its threads and
        # malloc().
        if not sanitized:
            true(server.memory() < 64 << 20, server.memory())


@case
def idle_clients_cost_little():
    file("f", b"abc")
    with Server("--clients", "1100") as server:
        before = server.memory()
        idle = [server.client() for _ in range(900)]
        eq(idle[0].ask(c.READ, handle=idle[0].open("f"), count=9).payload, b"abc")
        if not sanitized:
            true(server.memory() - before < 16 << 20, server.memory() - before)
        for one in idle:
            one.close()


@case
def a_newer_connection_ends_the_older():
    file("f", bytes(100))
    me = os.urandom(16)
    with Server("--write") as server:
        one = server.client(client=me, channel=7, epoch=1)
        handle = one.open("f", c.O_WRITE)
        other = server.client(client=me, channel=8, epoch=1)
        two = server.client(client=me, channel=7, epoch=2)
        eq(two.welcome.err, 0)
        one.send(c.request(c.WRITE, b"late", handle=handle, count=4))
        gives(c.Gone, one.receive)
        eq(content_of("f"), bytes(100))
        eq(server.client(client=me, channel=7, epoch=2).welcome.err, errno.ESTALE)
        eq(server.client(client=me, channel=7, epoch=1).welcome.err, errno.ESTALE)
        eq(other.ask(c.STAT, b"f").err, 0)
        eq(two.ask(c.STAT, b"f").err, 0)


@case
def the_boot_id_changes_with_each_start():
    boots = set()
    for _ in range(3):
        with Server() as server:
            boots.add(server.client().welcome.boot)
            boots.add(server.client().welcome.boot)
    eq(len(boots), 3)


@case
def a_signal_drains():
    file("f", data(1 << 20))
    server = Server(listen=f"unix:{work}/sock")
    one = server.client()
    handle = one.open("f")
    one.send(b"".join(c.request(c.READ, ident=i, handle=handle, count=1 << 20) for i in range(8)))
    eq(one.receive().payload, data(1 << 20))
    server.process.send_signal(signal.SIGTERM)
    try:
        while True:
            eq(one.receive().payload, data(1 << 20))
    except c.Gone:
        pass
    server.end(signal.SIGTERM)
    eq(server.process.returncode, 0)
    true(not os.path.exists(f"{work}/sock"))
    # The socket of a killed server is replaced.
    server = Server(listen=f"unix:{work}/sock")
    server.end(signal.SIGKILL)
    true(os.path.exists(f"{work}/sock"))
    with Server(listen=f"unix:{work}/sock") as server:
        eq(server.client().ask(c.STAT, b"f").err, 0)


@case
def plain_data_must_be_asked_for():
    for option, status in ((), 1), (("--plain-data",), 0):
        done = subprocess.run([os.environ["PENSTOCK"], "serve", "--root", root, "--listen",
                               "0.0.0.0:0", "--check", *option], capture_output=True, text=True,
                              check=False)
        eq(done.returncode, status)
        true(status == 0 or "--plain-data" in done.stderr, done.stderr)


run()
