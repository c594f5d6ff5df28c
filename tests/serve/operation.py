# SPDX-License-Identifier: MIT
"""What an administrator has of the server: numbers, limits of rates, and --check."""
import fcntl
import http.client
import os
import re
import resource
import signal
import socket
import subprocess
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import case, data, eq, gives, true  # noqa: E402
from service import Server, file, root, run, soon, work  # noqa: E402


def metrics(*options):
    server = Server("--metrics", f"unix:{work}/metrics", *options)
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
    """Each sample, and the check that each has a HELP and a TYPE before it."""
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


@case
def leases_of_others():
    """A thread of the server sleeps until the lease is over."""
    def sleeps():
        counts = []
        for task in os.listdir(f"/proc/{server.process.pid}/task"):
            if int(task) == server.process.pid:
                continue
            with open(f"/proc/{server.process.pid}/task/{task}/status", encoding="ascii") as f:
                counts.append(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", f.read(),
                                            re.M)[1]))
        return max(counts)

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
def no_descriptors_left():
    """The server waits for the next tick, and does not look at its listeners again and again."""
    def sleeps():
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
            return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", f.read(), re.M)[1])

    with metrics() as server:
        scrape()
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        soon(lambda: server.descriptors() < 30)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE,
                         (server.descriptors(), limits[1]))
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{work}/metrics")
            before = sleeps()
            soon(lambda: sleeps() > before + 2)
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
        # Any number of those who say nothing, or take nothing.
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
    """A client whose address is another one of this machine."""
    with socket.socket() as s:
        s.bind((address, 0))
        port = s.getsockname()[1]
    one = c.Client.__new__(c.Client)
    one.sock = socket.create_connection(server.address, 60, (address, port))
    one.last = 0
    one.welcome = one.ask(c.HELLO, c.hello())
    return one


@case
def one_client_has_no_more_than_its_rate():
    file("f", data(1 << 20))
    with metrics("--rate", "32k") as server:
        fast = server.client()
        # The first request may run into debt, here of 32 seconds.
        eq(fast.ask(c.READ, handle=fast.open("f"), count=1 << 20).count, 1 << 20)
        # To end all connections and to come again pays nothing.
        fast.close()
        soon(lambda: numbers()["connections"] == 0)
        then = numbers()["uptime_seconds"]
        soon(lambda: numbers()["uptime_seconds"] > then + 1)
        again = server.client()
        again.send(c.request(c.READ, count=1))
        soon(lambda: numbers()["slowed_total"] > 0)
        # Another client is served meanwhile.
        other = client_from(server, "127.0.0.2")
        eq(other.ask(c.READ, handle=other.open("f"), count=100).count, 100)
        again.sock.setblocking(False)
        gives(BlockingIOError, again.sock.recv, 1)
    # An older connection of a client in debt ends, though a slowed one stands before it in line.
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
    # Strangers give their places to those who say who they are.
    with Server("--clients", "3") as server:
        strangers = [c.Client(server.address, greet=False) for _ in range(3)]

        def gets_in():
            try:
                server.client().close()
            except c.Gone:
                return False
            return True
        soon(gets_in)
        del strangers
    # Those that waited go on.
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
