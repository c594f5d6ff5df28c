# SPDX-License-Identifier: MIT
"""Workers that send replies themselves: slow ones, and sends that fail.  ODD is odd-server."""
import os
import shutil
import subprocess
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=C0413
import client as c  # noqa: E402
from cases import Skip, case, data, eq  # noqa: E402
from service import Server, file, run, work  # noqa: E402

KEY = "00112233445566778899aabbccddeeff"
LONG = 1 << 20  # bytes of a read whose reply a worker sends


def odd(*options, **env):
    """Start odd-server with these options and variables."""
    return Server(*options, program=os.environ["ODD"], env=os.environ | env)


def keyed(*options, **env):
    """Start odd-server with TLS."""
    keys = f"{work}/keys"
    with open(keys, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write(f"alice:{KEY}\n")
    return odd("--keys", keys, *options, **env)


def tls(server, request):
    """Open the file "f" and send a request, by TLS.  Return what comes until the connection or the
    reply of a long read ends."""
    if not shutil.which("openssl"):
        raise Skip("openssl is not installed")
    host, port = server.address
    with subprocess.Popen(
            ["openssl", "s_client", "-connect", f"{host}:{port}", "-quiet", "-tls1_3", "-psk", KEY,
             "-psk_identity", "alice"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        for first, length in ((c.request(c.HELLO, c.hello()), 48 + 64),
                              (c.request(c.OPEN, b"f", how=c.O_READ), 48 + 64)):
            one.stdin.write(first)
            one.stdin.flush()
            eq(len(one.stdout.read(length)), length)
        one.stdin.write(request)
        one.stdin.flush()
        got = one.stdout.read(48 + LONG)
        one.kill()
    return got


@case
def a_slow_worker_is_no_stall_of_the_client():
    """The client has taken all replies that were sent.  The read and the send of the next one take
    longer than a stall may."""
    file("f", data(LONG))
    with odd("--stall", "1", READ_MS="1300", SEND_MS="1200") as server:
        one = server.client()
        handle = one.open("f")
        eq(one.ask(c.READ, handle=handle, count=LONG).payload, data(LONG))


@case
def a_failed_send_ends_the_connection():
    """With TLS, bytes of the reply are encrypted already, and must not be encrypted again."""
    content = data(LONG)
    file("f", content)
    with keyed(SEND_FAIL="1") as server:
        # The head, and the bytes that came before the end of the connection.
        got = tls(server, c.request(c.READ, ident=9, handle=1, count=LONG))
        eq(got[48:], content[:max(len(got) - 48, 0)])


run()
