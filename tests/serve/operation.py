# SPDX-License-Identifier: MIT
"""Operating the server: metrics, rate limits, and --check."""
import ctypes
import errno
import fcntl
import http.client
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import Skip, case, data, eq, gives, true  # noqa: E402
from service import Server, content_of, file, root, run, soon, work  # noqa: E402


def metrics(*options, before=None):
    server = Server("--metrics", f"unix:{work}/metrics", *options, before=before)
    server.says("numbers are at unix:")
    return server


def scrape(request=b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(f"{work}/metrics")
        s.sendall(request)
        text = b""
        while part := s.recv(1 << 16):
            text += part
    head, _, body = text.partition(b"\r\n\r\n")
    return head.decode(), body.decode()


def numbers():
    """Read all metrics; check that each sample has a HELP and a TYPE before it."""
    head, body = scrape()
    true(head.startswith("HTTP/1.1 200 "), head)
    true("text/plain; version=0.0.4" in head, head)
    eq(int(re.search(r"Content-Length: (\d+)", head)[1]), len(body))
    found, known = {}, {}
    for line in body.splitlines():
        if line.startswith("# HELP "):
            known[line.split()[2]] = ""
        elif line.startswith("# TYPE "):
            true(line.split()[2] in known, line)
            known[line.split()[2]] = line.split()[3]
        else:
            name, value = line.rsplit(" ", 1)
            kind = known[name.split("{")[0]]
            eq(kind == "counter", name.split("{")[0].endswith("_total"))
            true(name not in found, name)
            found[name] = int(value)
    return {name.removeprefix("penstock_serve_"): n for name, n in found.items()}


def sleeps_of_workers(server):
    counts = []
    for task in os.listdir(f"/proc/{server.process.pid}/task"):
        if int(task) == server.process.pid:
            continue
        with open(f"/proc/{server.process.pid}/task/{task}/status", encoding="ascii") as f:
            counts.append(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", f.read(), re.M)[1]))
    return counts


@case
def files_in_memory_wake_no_worker():
    """The loop reads small pieces itself, even if RWF_NOWAIT does not work."""
    with open("/proc/meminfo", encoding="ascii") as f:
        if not re.search(r"^SwapTotal:\s+0 kB", f.read(), re.M):
            raise Skip("a machine without swap")
    kind = subprocess.run(["stat", "-fc", "%T", "/dev/shm"], stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    if kind != "tmpfs\n":
        raise Skip("a tmpfs on /dev/shm")
    content = data(1 << 20)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as where:
        with open(f"{where}/f", "wb") as f:
            f.write(content)
        with Server(where=where) as server:
            one = server.client()
            handle = one.open("f")
            before = sum(sleeps_of_workers(server))
            for i in range(200):
                eq(one.ask(c.READ, handle=handle, off=i * 4096, count=4096).payload,
                   content[i * 4096:(i + 1) * 4096])
            after = sum(sleeps_of_workers(server))
            true(after - before < 50, f"workers slept {after - before} times")
            # Read at the end of the file, and a piece that a worker copies.
            eq(one.ask(c.READ, handle=handle, off=(1 << 20) - 5, count=4096).payload, content[-5:])
            eq(one.ask(c.READ, handle=handle, off=7, count=1 << 19).payload,
               content[7:7 + (1 << 19)])


@case
def leases_of_others():
    """A thread of the server sleeps until the lease is over."""
    def sleeps():
        return max(sleeps_of_workers(server))

    file("leased", b"bytes")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with Server() as server, open(f"{root}/leased", "r+b") as holder:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        one = server.client()
        before = sleeps()
        one.send(c.request(c.OPEN, b"leased", ident=77, how=c.O_READ))
        soon(lambda: sleeps() > before + 5)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        reply = one.receive()
        eq((reply.ident, reply.err), (77, 0))


@case
def no_more_requests_than_are_allowed():
    """Requests that wait for the lease use up the server's limit."""
    file("leased", b"bytes")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with Server("--requests", "4") as server, open(f"{root}/leased", "r+b") as holder:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        one = server.client()
        one.send(b"".join(c.request(c.OPEN, b"leased", ident=i, how=c.O_READ) for i in range(4)) +
                 c.request(c.STAT, b"leased", ident=4))
        one.sock.settimeout(0.5)
        gives(TimeoutError, one.receive)
        one.sock.settimeout(c.WAIT_S)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        eq(sorted((r.ident, r.err) for r in (one.receive() for _ in range(5))),
           [(i, 0) for i in range(5)])


@case
def one_connection_leaves_workers_to_others():
    file("leased", b"bytes")
    file("f", b"abc")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with Server("--threads", "4") as server, open(f"{root}/leased", "r+b") as holder:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        greedy, other = server.client(), server.client()
        before = max(sleeps_of_workers(server))
        greedy.send(b"".join(c.request(c.OPEN, b"leased", ident=i, how=c.O_READ)
                             for i in range(8)))
        soon(lambda: max(sleeps_of_workers(server)) > before + 5)
        other.sock.settimeout(30)  # less than the kernel gives the holder of a lease
        other.open("f")
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        eq(sorted((r.ident, r.err) for r in (greedy.receive() for _ in range(8))),
           [(i, 0) for i in range(8)])


@case
def long_reads_from_memory_wait_for_no_worker():
    """While all workers that may wait are waiting, a read from the page cache is answered."""
    file("leased", b"bytes")
    file("f", data(1 << 20))
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with Server("--threads", "2") as server, open(f"{root}/leased", "r+b") as holder:
        one, *greedy = (server.client() for _ in range(4))
        handle = one.open("f")
        eq(one.ask(c.READ, handle=handle, count=1 << 20).count, 1 << 20)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        before = sleeps_of_workers(server)
        for other in greedy:
            other.send(c.request(c.OPEN, b"leased", ident=9, how=c.O_READ))
        soon(lambda: sum(n > b + 5 for n, b in zip(sleeps_of_workers(server), before)) >= 2)
        one.sock.settimeout(30)  # less than the kernel gives the holder of a lease
        for count in (4096, (64 << 10) + 1, 1 << 20):
            eq(one.ask(c.READ, handle=handle, count=count).count, count)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        eq([(r.ident, r.err) for r in (other.receive() for other in greedy)], [(9, 0)] * 3)


@case
def who_takes_no_replies_is_dropped():
    """A client that takes no replies is dropped, even if it continues to send."""
    file("f", data(1 << 20))
    with Server("--stall", "1") as server:
        silent, busy = server.client(), server.client()
        for one in silent, busy:
            handle = one.open("f")
            one.send(b"".join(c.request(c.READ, ident=i, handle=handle, count=1 << 20)
                              for i in range(20)))
        soon(lambda: not drips(busy))
        for _ in range(2):
            server.says("it takes no replies")
            server.lines.clear()
        eq(server.client().ask(c.LIST, count=4096).err, 0)


def drips(one):
    """Send a request.  Return False if the server has closed the connection."""
    time.sleep(0.25)
    try:
        one.sock.sendall(c.request(c.CLOSE, handle=99))
    except ConnectionError:
        return False
    return True


@case
def memory_is_given_back():
    file("f", data(1 << 20))
    with metrics("--memory", "8m") as server:
        one = server.client()
        handle = one.open("f")
        for _ in range(3):
            one.send(b"".join(c.request(c.READ, ident=i, handle=handle, count=1 << 20)
                              for i in range(20)))
            for _ in range(20):
                eq(one.receive().payload, data(1 << 20))
        soon(lambda: numbers()["shared_bytes"] == 0)


@case
def a_place_that_is_taken():
    """Another server's socket, and a file that is no socket, are not replaced."""
    def fails():
        done = subprocess.run(
            [os.environ["PENSTOCK"], "serve", "--root", root, "--listen", f"unix:{work}/taken"],
            stderr=subprocess.PIPE, text=True, check=False, timeout=c.WAIT_S)
        eq(done.returncode, 1)
        true("cannot listen at" in done.stderr, done.stderr)

    with Server(listen=f"unix:{work}/taken") as server:
        fails()
        eq(server.client().ask(c.LIST, count=4096).err, 0)
    with open(f"{work}/taken", "wb") as f:
        f.write(b"text")
    fails()
    with open(f"{work}/taken", "rb") as f:
        eq(f.read(), b"text")
    os.unlink(f"{work}/taken")


def without_fdatasync():
    """Before exec in a child: make fdatasync(2) fail with EIO."""
    number = {"x86_64": 75, "aarch64": 83}[os.uname().machine]
    code = b"".join(struct.pack("<HBBI", *i) for i in (
        (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EIO),
        (0x06, 0, 0, 0x7FFF0000)))
    room = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", 4, ctypes.addressof(room))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


@case
def writes_that_are_lost_at_the_end():
    """If a file cannot be written back when it is closed, that counts as a restart."""
    with metrics("--write", before=without_fdatasync) as server:
        one = server.client()
        boot = one.welcome.boot
        # Bytes synced by fsync(2), and files that were only read, are not affected.
        handle = one.open("f", c.O_READ | c.O_WRITE | c.O_CREATE)
        eq(one.ask(c.WRITE, b"x", handle=handle, count=1).err, 0)
        eq(one.ask(c.SYNC, handle=handle).err, 0)
        for handle in (handle, one.open("f")):
            eq(one.ask(c.CLOSE, handle=handle).err, 0)
        handle = one.open("f", c.O_WRITE)
        eq(one.ask(c.WRITE, b"x", handle=handle, count=1).boot, boot)
        eq(one.ask(c.SYNC, handle=handle, flags=c.DATA).err, errno.EIO)
        eq(numbers()["lost_writes_total"], 0)
        eq(one.ask(c.CLOSE, handle=handle).err, 0)
        soon(lambda: one.ask(c.STAT, b"f").boot != boot)
        eq(numbers()["lost_writes_total"], 1)
        server.says("could not be written back")


@case
def an_older_connection_that_is_busy():
    """The newer connection's hello waits for the request that a thread is executing."""
    file("leased", b"bytes")
    me = os.urandom(16)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with metrics("--write") as server, open(f"{root}/leased", "r+b") as holder:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        older = server.client(client=me, channel=1, epoch=1)
        older.send(c.request(c.OPEN, b"leased", ident=77, how=c.O_WRITE | c.O_TRUNC))
        # Another thread than the one that waits for the lease answers this request.
        eq(older.ask(c.STAT, b"leased").err, 0)
        newer = c.Client(server.address, greet=False)
        newer.send(c.request(c.HELLO, c.hello(client=me, channel=1, epoch=2)))
        gives(c.Gone, older.receive)
        soon(lambda: numbers()["connections"] == 1)
        newer.sock.settimeout(0.5)
        gives(TimeoutError, newer.receive)
        newer.sock.settimeout(c.WAIT_S)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        eq(newer.receive().err, 0)
    eq(content_of("leased"), b"")


@case
def no_descriptors_left():
    """Without descriptors, the server waits for its next tick instead of polling its listeners."""
    def cpu_s():
        with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
            ticks = f.read().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    with metrics() as server:
        scrape()
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        soon(lambda: server.descriptors() < 30)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE,
                         (server.descriptors(), limits[1]))
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{work}/metrics")
            before = cpu_s()
            time.sleep(3)   # a server that polls uses a whole processor, this one almost nothing
            true(cpu_s() - before < 1, cpu_s() - before)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
            s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            s.settimeout(60)
            true(s.recv(100).startswith(b"HTTP/1.1 200 "))


@case
def numbers_count_what_happens():
    file("f", data(5000))
    with metrics("--write", "--clients", "2") as server:
        eq(os.stat(f"{work}/metrics").st_mode & 0o777, 0o600)
        before = numbers()
        eq(before["connections"], 0)
        eq(before['requests_total{op="read"}'], 0)
        one = server.client()
        handle = one.open("f", c.O_READ | c.O_WRITE)
        one.ask(c.READ, handle=handle, count=3000)
        one.ask(c.READ, handle=handle, off=4000, count=3000)
        one.ask(c.WRITE, b"abc", handle=handle, count=3)
        one.ask(c.READ, handle=99, count=1)
        gives(OSError, one.open, "nix")
        two = server.client()
        gives(c.Gone, server.client)
        now = numbers()
        for name, value in (('requests_total{op="read"}', 3), ('errors_total{op="read"}', 1),
                            ('requests_total{op="open"}', 2), ('errors_total{op="open"}', 1),
                            ('requests_total{op="hello"}', 2), ('requests_total{op="list"}', 0),
                            ('bytes_total{direction="read"}', 4000),
                            ('bytes_total{direction="write"}', 3), ("connections", 2),
                            ("connections_total", 2), ("connections_refused_total", 1),
                            ("connections_dropped_total", 0), ("slowed_total", 0),
                            ("lost_writes_total", 0), ("scrapes_total", 2)):
            eq((name, now[name]), (name, value))
        two.send(b"x" * 100)
        soon(lambda: numbers()["connections_dropped_total"] == 1)
        one.close()
    true(not os.path.exists(f"{work}/metrics"))


@case
def who_asks_for_numbers_may_send_anything():
    with metrics() as server:
        for request, status in ((b"GET / HTTP/1.1\r\n\r\n", 404),
                                (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
                                (b"GET /metrics HTTP/3.0\r\n\r\n", 505),
                                (b"nonsense\r\n\r\n", 400), (b"x" * 5000, 431),
                                (b"HEAD /metrics HTTP/1.0\r\n\r\n", 200)):
            head, body = scrape(request)
            true(head.startswith(f"HTTP/1.1 {status} "), (request[:20], head))
            eq(body, "")
        # Many clients that send nothing, or read nothing.
        kept = []
        for i in range(20):
            kept.append(socket.socket(socket.AF_UNIX))
            kept[-1].connect(f"{work}/metrics")
            if i % 2:
                kept[-1].send(b"GET /metrics HTTP/1.1\r\n\r\n")
        eq(server.client().ask(c.LIST, count=4096).err, 0)
        true(numbers()["scrapes_total"] > 20)
        for one in kept:
            one.close()


@case
def numbers_at_a_port_of_this_machine_alone():
    with Server("--metrics", "127.0.0.1:0") as server:
        server.says("numbers are at 127.0.0.1:")
        port = int(server.lines[-1].split(":")[-1])
        web = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        web.request("GET", "/metrics")
        reply = web.getresponse()
        eq(reply.status, 200)
        true(b"penstock_serve_connections 0\n" in reply.read())
        web.close()
    done = subprocess.run([os.environ["PENSTOCK"], "serve", "--root", root, "--listen",
                           "127.0.0.1:0", "--metrics", "0.0.0.0:0"], capture_output=True,
                          text=True, check=False)
    eq(done.returncode, 2)
    true("a port of 127.0.0.1" in done.stderr, done.stderr)


def client_from(server, address):
    """Connect from another address of this machine."""
    with socket.socket() as s:
        s.bind((address, 0))
        port = s.getsockname()[1]
    one = c.Client.__new__(c.Client)
    one.sock = socket.create_connection(server.address, 60, (address, port))
    one.last = 0
    one.welcome = one.ask(c.HELLO, c.hello())
    return one


def is_gone(one):
    one.sock.setblocking(False)
    try:
        return not one.sock.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@case
def one_client_has_no_more_than_its_rate():
    file("f", data(1 << 20))
    with metrics("--rate", "32k") as server:
        fast = server.client()
        # The first request may exceed the rate, here by 32 seconds.
        eq(fast.ask(c.READ, handle=fast.open("f"), count=1 << 20).count, 1 << 20)
        # Reconnecting does not reset the debt.
        fast.close()
        soon(lambda: numbers()["connections"] == 0)
        then = numbers()["uptime_seconds"]
        soon(lambda: numbers()["uptime_seconds"] > then + 1)
        again = server.client()
        again.send(c.request(c.READ, count=1))
        soon(lambda: numbers()["slowed_total"] > 0)
        # Another client is served at the same time.
        other = client_from(server, "127.0.0.2")
        eq(other.ask(c.READ, handle=other.open("f"), count=100).count, 100)
        again.sock.setblocking(False)
        gives(BlockingIOError, again.sock.recv, 1)
    # A new connection of a client in debt replaces its older one, even if a slowed one is first in
    # line.
    with metrics("--rate", "32k") as server:
        older = c.Client(server.address, greet=False)
        newer = c.Client(server.address, client=b"k" * 16, channel=1, epoch=1)
        eq(newer.ask(c.READ, handle=newer.open("f"), count=1 << 20).count, 1 << 20)
        newer.send(c.request(c.READ, count=1))
        soon(lambda: numbers()["slowed_total"] > 0)
        older.send(c.request(c.HELLO, c.hello(client=b"k" * 16, channel=1, epoch=2)))
        eq(older.receive().err, 0)
        gives(c.Gone, newer.receive)
        eq(numbers()["connections"], 1)
    # Connections without a hello give way to clients with one.
    with Server("--clients", "3") as server:
        strangers = [c.Client(server.address, greet=False) for _ in range(3)]

        def gets_in():
            try:
                server.client().close()
            except c.Gone:
                return False
            return True
        soon(gets_in)
        # The oldest connection without a hello was closed.
        eq([is_gone(one) for one in strangers], [True, False, False])
    # Waiting requests continue.
    with metrics("--rate", "4m") as server:
        one = server.client()
        handle = one.open("f")
        for _ in range(4):
            eq(one.ask(c.READ, handle=handle, count=1 << 20).count, 1 << 20)
        true(numbers()["slowed_total"] > 0)


@case
def check_says_what_it_takes():
    for options, says in (((), "at most 320 MiB"), (("--clients", "10", "--memory", "1m"),
                                                    "at most 11 MiB")):
        done = subprocess.run([os.environ["PENSTOCK"], "serve", "--root", root, "--listen",
                               "127.0.0.1:0", "--check", *options], capture_output=True,
                              text=True, check=False)
        eq(done.returncode, 0)
        true(says in done.stdout, done.stdout)
    for options, says in (
            (("--root", f"{work}/nix"), "cannot open the directory"),
            (("--root", root, "--keys", f"{work}/nix"), "the keys in"),
            (("--root", root, "--listen", "0.0.0.0:0"), "give --keys FILE")):
        done = subprocess.run([os.environ["PENSTOCK"], "serve", "--listen", "127.0.0.1:0",
                               "--check", *options], capture_output=True, text=True, check=False)
        eq(done.returncode, 1)
        true(says in done.stderr, done.stderr)


run()
