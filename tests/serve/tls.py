# SPDX-License-Identifier: MIT
"""TLS of the service: other implementations, wrong keys, and peers that do not speak TLS."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import Skip, case, data, eq, gives, true  # noqa: E402
from service import Server, file, run, soon, work  # noqa: E402

KEY = "00112233445566778899aabbccddeeff"
OTHER = "ffeeddccbbaa99887766554433221100"


def keys(name, text, mode=0o600):
    path = f"{work}/{name}"
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def serve(*options, text=f"alice:{KEY}\n"):
    return Server("--keys", keys("server", text), *options)


def copy(server, key_file, scheme="psts", who=""):
    """Copy a file "f" by penstock cp.  Return its bytes, or the command's error."""
    host, port = server.address
    to = f"{work}/copy"
    done = subprocess.run(
        [os.environ["PENSTOCK"], "cp", f"{scheme}://{who}{host}:{port}/f", to],
        env=os.environ | {"PST_KEYS": key_file}, capture_output=True, text=True, check=False,
        timeout=60)
    if done.returncode:
        return done.stderr
    with open(to, "rb") as f:
        content = f.read()
    os.unlink(to)
    return content


def program(name):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")
    return name


def greets(process):
    """Send a hello through a program that does TLS on its standard input and output."""
    process.stdin.write(c.request(c.HELLO, c.hello()))
    process.stdin.flush()
    head = process.stdout.read(48)
    eq(len(head), 48)
    welcome = process.stdout.read(64)
    eq(welcome[:8], b"PENSTOCK")
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def s_client(server, *options, **popen):
    host, port = server.address
    return subprocess.Popen(
        [program("openssl"), "s_client", "-connect", f"{host}:{port}", "-quiet", *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **popen)


@case
def openssl_s_client_is_served():
    with serve() as server:
        greets(s_client(server, "-tls1_3", "-psk", KEY, "-psk_identity", "alice"))


@case
def a_long_batch_is_answered_to_its_end():
    """The last requests are in the server's buffers when no more bytes arrive: they must be
    answered."""
    number = ((4 << 20) + (20 << 10)) // 48  # a connection's turn has 4 MiB
    with serve("--requests", "65536") as server:
        one = s_client(server, "-tls1_3", "-psk", KEY, "-psk_identity", "alice")
        one.stdin.write(c.request(c.HELLO, c.hello()))
        one.stdin.flush()
        eq(len(one.stdout.read(48 + 64)), 48 + 64)

        def send():
            one.stdin.write(c.header(c.CLOSE, handle=9) * number)
            one.stdin.flush()
        sender = threading.Thread(target=send)
        # Send everything before the server continues, if the kernel's buffers have room.
        server.process.send_signal(signal.SIGSTOP)
        sender.start()
        sender.join(2)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGCONT)
        eq(len(one.stdout.read(48 * number)), 48 * number)
        sender.join()
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


def gnutls_cli(server, exchange):
    host, port = server.address
    return subprocess.Popen(
        [program("gnutls-cli"), "--pskusername", "alice", "--pskkey", KEY, "--priority",
         f"NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:{exchange}", "--logfile", "/dev/null",
         "-p", str(port), host], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)


@case
def gnutls_cli_is_served():
    with serve() as server:
        greets(gnutls_cli(server, "+DHE-PSK:+ECDHE-PSK"))
        # psk_ke has no forward secrecy, so it is refused.
        one = gnutls_cli(server, "+PSK")
        one.communicate(timeout=60)
        true(one.returncode)
        server.says("offers no key")


@case
def weaker_handshakes_are_refused():
    with serve() as server:
        calm = keys("calm", f"alice:{KEY}\n")
        file("f", b"abc")
        for why, options in (
                ("its key alice differs", ["-tls1_3", "-psk", OTHER, "-psk_identity", "alice"]),
                ("the key bob, which is not", ["-tls1_3", "-psk", KEY, "-psk_identity", "bob"]),
                ("offers no key", ["-tls1_3"]),
                ("offers no key", ["-tls1_2", "-psk", KEY, "-psk_identity", "alice"]),
        ):
            server.lines.clear()
            one = s_client(server, *options)
            one.communicate(timeout=60)
            true(one.returncode, options)
            server.says(why)
            eq(copy(server, calm), b"abc")


@case
def errors_name_their_cause():
    file("f", data(3 << 20))
    good = f"alice:{KEY}\n"
    with serve() as server, Server() as plain:
        eq(copy(server, keys("good", good)), data(3 << 20))
        eq(copy(server, keys("two", f"\nbob:{OTHER}\r\n" + good), who="alice@"), data(3 << 20))
        for text, path, where, scheme, who in (
                ("the server has another key alice", keys("k", f"alice:{OTHER}"), server, "psts",
                 ""),
                ("does not know the key carol", keys("k2", f"carol:{KEY}"), server, "psts", ""),
                ("has no key carol", keys("good", good), server, "psts", "carol@"),
                ("choose one by psts://KEY@", keys("two", f"bob:{OTHER}\n{good}"), server, "psts",
                 ""),
                ("there is no file", f"{work}/nothing", server, "psts", ""),
                ("give psts:// instead of pst://", keys("good", good), server, "pst", ""),
                ("it may serve without --keys", keys("good", good), plain, "psts", ""),
                ("psts://[KEY@]HOST:PORT/PATH", keys("good", good), server, "psts", "@"),
        ):
            got = copy(where, path, scheme, who)
            true(isinstance(got, str) and text in got, (text, got))
        plain.says("it speaks TLS")
        server.says("it does not speak TLS")


@case
def key_files_of_others_and_lines_that_are_no_keys():
    file("f", b"abc")
    with serve() as server:
        for text, mode, says in (
                (f"alice:{KEY}", 0o644, "can be read by others (mode 0644); chmod 600"),
                (f"alice:{KEY}", 0o604, "can be read by others"),
                (f"alice:{KEY}", 0o660, "can be changed by others"),
                ("", 0o600, "has no key"),
                ("\n\n", 0o600, "has no key"),
                (f"{KEY}\n", 0o600, "line 1 of"),
                (f"alice:{KEY}\n:{KEY}\n", 0o600, "line 2 of"),
                (f"#61:{KEY}\n", 0o600, "is no key"),
                (f"alice:{KEY}\nalice:{OTHER}\n", 0o600, "a name that came before"),
                ("alice:0011\n", 0o600, "16 to 64 bytes in hex"),
                (f"alice:{KEY}0\n", 0o600, "16 to 64 bytes in hex"),
                (f"alice:{KEY}0g\n", 0o600, "16 to 64 bytes in hex"),
                (f"alice:{KEY * 5}\n", 0o600, "16 to 64 bytes in hex"),
                ("x" * 128 + f":{KEY}\n", 0o600, "is no key"),
                ("".join(f"k{i}:{KEY}\n" for i in range(1025)), 0o600, "more than 1024 keys"),
        ):
            path = keys("bad", text, mode)
            got = copy(server, path)
            true(isinstance(got, str) and says in got, (says, got))
            done = subprocess.run(
                [os.environ["PENSTOCK"], "serve", "--root", work, "--listen", "127.0.0.1:0",
                 "--keys", path, "--check"], capture_output=True, text=True, check=False)
            eq(done.returncode, 1)
            true(says in done.stderr, done.stderr)
        # Use the mode of systemd's credential files, and the longest key.
        eq(copy(server, keys("group", f"alice:{KEY}", 0o440)), b"abc")
    with serve(text=f"alice:{KEY * 4}\n") as server:
        eq(copy(server, keys("long", f"alice:{KEY * 4}")), b"abc")


@case
def keys_let_other_machines_in():
    path = keys("server", f"alice:{KEY}")
    for options, status in (("--keys", path), 0), (("--keys", path, "--plain-data"), 2):
        done = subprocess.run([os.environ["PENSTOCK"], "serve", "--root", work, "--listen",
                               "0.0.0.0:0", "--check", *options], capture_output=True, check=False)
        eq(done.returncode, status)


@case
def a_socket_in_the_file_system_is_plain():
    with Server("--keys", keys("server", f"alice:{KEY}"), listen=f"unix:{work}/sock") as server:
        eq(server.client().welcome.err, 0)


@case
def a_certificate_is_no_key():
    """A server that ignores the key and shows a certificate is not trusted."""
    file("f", b"abc")
    subprocess.run([program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x", "-keyout",
                    f"{work}/pem", "-out", f"{work}/crt"], check=True, capture_output=True)
    with subprocess.Popen(["openssl", "s_server", "-accept", "127.0.0.1:0", "-tls1_3", "-cert",
                           f"{work}/crt", "-key", f"{work}/pem"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other:
        try:
            for line in other.stdout:
                if line.startswith("ACCEPT"):
                    break

            class Other:
                address = ("127.0.0.1", int(line.split(":")[-1]))
            got = copy(Other, keys("good", f"alice:{KEY}"))
            true(isinstance(got, str) and "shows a certificate instead of the key alice" in got,
                 got)
        finally:
            other.kill()


@case
def half_a_handshake_holds_up_nobody():
    """Neither silence nor an occasional byte keeps a connection open."""
    file("f", b"abc")
    good = keys("good", f"alice:{KEY}\n")
    with serve() as server, Server() as plain:
        hello = bytes.fromhex("1603010200010001fc0303") + bytes(500)
        slow = [(s, c.Client(s.address, greet=False)) for s in (server, plain) for _ in range(2)]
        for where, one in slow:
            one.send(hello[:20] if where is server else c.request(c.HELLO, c.hello())[:20])
        eq(copy(server, good), b"abc")
        at = 20
        end = time.monotonic() + 60

        def all_gone():
            """Send a byte on each connection.  Return True if the server has closed all of them."""
            nonlocal at
            time.sleep(0.4)
            left = 0
            for where, one in slow[::2]:
                text = hello if where is server else c.request(c.HELLO, c.hello())
                one.send(text[at:at + 1])
            at += at < 100
            for _, one in slow:
                one.sock.setblocking(False)
                try:
                    left += one.sock.recv(1 << 16) != b""
                except BlockingIOError:
                    left += 1
                except ConnectionError:
                    pass
                one.sock.setblocking(True)
            return not left
        while not all_gone():
            true(time.monotonic() < end, "not within a minute")
        true(at < 100, "the server waited for all that dripped")
        server.says("its TLS handshake takes too long")
        plain.says("it sends no hello")
        eq(copy(server, good), b"abc")


@case
def many_that_begin_and_go():
    file("f", b"abc")
    good = keys("good", f"alice:{KEY}\n")
    with serve("--clients", "20") as server:
        before = server.descriptors()
        for size in (0, 1, 5, 50):
            for _ in range(15):
                with socket.create_connection(server.address) as s:
                    s.send(bytes.fromhex("1603010200010001fc0303")[:size])
        # At first the server may still have connections that have ended.
        soon(lambda: copy(server, good) == b"abc")
        soon(lambda: server.descriptors() == before)
        one = c.Client(server.address, greet=False)
        one.send(c.request(c.HELLO, c.hello()))
        gives(c.Gone, one.receive)


run()
