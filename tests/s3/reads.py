# SPDX-License-Identifier: MIT
"""Reads of s3://, https:// and http:// from a server that fails on demand."""
import ctypes
import errno
import hashlib
import mmap
import os
import random
import subprocess
import sys
import threading
import time

from server import Server
from tap import case, data, eq, gives, numpy, run, true, work

os.environ["HOME"] = work
server = Server()
os.environ.update(server.environ())

from penstock import File, Memory, Queue, _abi  # noqa: E402 # pylint: disable=C0413
from penstock._lib import lib  # noqa: E402 # pylint: disable=C0413

MIB = 1 << 20
BIG = data(20 * MIB + 12345)


def fresh(key="key", content=b"0123456789", **more):
    """Reset the server's faults, and give it one object.  Return the object's name."""
    server.reset()
    server.put("bucket", key, content, **more)
    return f"s3://bucket/{key}"


def read(name, size, offset=0, **options):
    with File(name) as f:
        got = bytearray(size)
        n = f.read(got, offset, short=True, **options).nbytes
        return bytes(got[:n])


def fails(number, words, function, *args, **kwargs):
    """Check that the call raises that errno with those words in its text."""
    e = gives(number, function, *args, **kwargs)
    for word in words if isinstance(words, tuple) else (words,):
        true(word in str(e), f"'{word}' is not in '{e}'")
    return e


@case
def ranges():
    name = fresh("dir/big file+1é.bin", BIG)
    with File(name) as f:
        eq(f.size, len(BIG))
        for device in ("host", "soft:0"):
            with Memory.alloc(device, len(BIG)) as memory:
                result = f.read(memory, short=True)
                eq(result.nbytes, len(BIG))
                true("tcp" in result.path, result.path)
                true(memory.copy_out() == BIG, device)
        got = bytearray(100)
        eq(f.read(got, len(BIG) - 50, short=True).nbytes, 50)
        eq(bytes(got[:50]), BIG[-50:])
        eq(f.read(got, len(BIG) + 5, short=True).nbytes, 0)
    # A server that answers ranges with 200, as rclone's does.
    server.partial = 200
    true(read(name, 9 * MIB, 1000) == BIG[1000:1000 + 9 * MIB])
    server.partial = 206
    # Large reads are several requests, and none is for bytes beyond the end.
    asked = [h["Range"] for m, p, h in server.requests if m == "GET"]
    true(len(asked) > 6, asked)


@case
def random_operations():
    name = fresh("random", BIG)
    choose = random.Random(7)
    with File(name) as f:
        for _ in range(100 * (100 if os.environ.get("PST_SOAK") else 1)):
            off = choose.randrange(len(BIG) + 100)
            want = BIG[off:off + choose.choice((0, 1, 4096, 100000))]
            got = bytearray(max(len(want), 1))
            n = f.read(got, off, short=True).nbytes
            eq(bytes(got[:n]), BIG[off:off + len(got)])


@case
def empty_objects():
    name = fresh("empty", b"")
    with File(name) as f:
        eq(f.size, 0)
    eq(read(name, 10), b"")


@case
def what_is_missing():
    fresh()
    fails(errno.ENOENT, ("no object of that key", "NoSuchKey"), File, "s3://bucket/other")
    fails(errno.ENOENT, ("no such bucket", "NoSuchBucket"), File, "s3://nowhere/key")
    for bucket in ("s3://bucket", "s3://bucket/"):
        for mode in ("r", "w", "x"):
            fails(errno.EISDIR, "is a bucket", File, bucket, mode)
    fails(errno.EINVAL, "name of a bucket", File, "s3://b/key")
    fails(errno.ENAMETOOLONG, "1024", File, "s3://bucket/" + "k" * 1025)
    fails(errno.EINVAL, "user and password", File, "https://me:hidden@host.example/x")
    e = fails(errno.EPERM, ("clear text", "PST_HTTP_PLAIN"), File, "http://192.0.2.1/x")
    true("192.0.2.1" in str(e))
    fails(errno.EPERM, "clear text", File, "http://127.0.0.1.example/x")


@case
def wrong_keys_and_clock():
    name = fresh()
    server.secret = "another"
    fails(errno.EACCES, ("403 SignatureDoesNotMatch", "secret key"), File, name)
    fresh()
    server.key = "another"
    fails(errno.EACCES, ("403 InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"), File, name)
    fresh()
    server.clock = 7200
    fails(errno.EACCES, ("403 RequestTimeTooSkewed", "clock"), File, name)
    # The client learns the server's clock from an answer.
    for server.clock in (7200, -7200, 0):
        server.tells_clock = True
        eq(read(name, 10), b"0123456789")
    # No request is signed with an invalid date, nor by the clock of another server.
    far = b"HTTP/1.1 403 no\r\nDate: Thu, 31 Dec 99999 00:00:00 GMT\r\nContent-Length: 56\r\n\r\n"
    for date in (b"31 Dec 99999", b"31 Dec 9999", b"31 Dec 1980"):
        fresh()
        server.fault("GET", "raw", times=0, bytes=far.replace(b"31 Dec 99999", date) +
                     b"<Error><Code>RequestTimeTooSkewed</Code></Error>".ljust(56))
        fails(errno.EACCES, ("403 RequestTimeTooSkewed", "clock"), File, name)
        eq(len(server.requests), 1)
    fresh()
    server.clock, server.tells_clock = 7200, True
    eq(read(name, 10), b"0123456789")
    fresh()
    eq(read(name, 10), b"0123456789")
    eq(len(server.requests), 2)
    fresh()
    server.fault("GET", "status", status=403, code="AccessDenied", times=0)
    fails(errno.EACCES, ("403 AccessDenied", "no right"), File, name)
    eq(len(server.requests), 1)


@case
def secrets_stay_hidden():
    """No error text and no log line contains a key, a token or the query of a presigned URL."""
    code = """
import sys, penstock
for name in sys.argv[1:]:
    try:
        with penstock.File(name) as f:
            f.read(bytearray(10))
    except OSError as e:
        print(e, repr(e))
"""
    name = fresh()
    hidden = ["hiddensecret", "hiddentoken", "hiddenquery", "hiddenuser", "hiddenanswer"]
    # Servers may repeat what they received.
    server.message = "hiddenanswer hiddensecret"
    names = [name, f"{server.url}/bucket/key?X-Amz-Signature=hiddenquery",
             f"{server.url}/bucket/key?X-Amz-Signature=hiddenquery" + "x" * 5000,
             "https://hiddenuser:hiddenuser@localhost/x", "https:///?hiddenquery",
             "nothing://x?X-Amz-Signature=hiddenquery", "https://127.0.0.1:1/x?hiddenquery"]
    for fault in ("", "file.open:0:EIO"):
        done = subprocess.run(
            [sys.executable, "-c", code, *names], capture_output=True, text=True, check=False,
            env={**os.environ, "AWS_SECRET_ACCESS_KEY": "hiddensecret", "PST_LOG": "debug",
                 "AWS_SESSION_TOKEN": "hiddentoken", "PST_FAULT": fault})
        out = done.stdout + done.stderr
        true(done.returncode == 0 and "bucket/key" in out, out)
        for word in hidden:
            true(word not in out, out)


@case
def secrets_of_wrong_flags():
    """Error texts of pst_file_open() show a URL without its query."""
    read_only, write, create, excl = (getattr(_abi, f"PST_FILE_{word}")
                                      for word in ("READ", "WRITE", "CREATE", "EXCL"))
    for flags in (1 << 31, 0, read_only | create, write | excl):
        eq(lib.pst_file_open(b"https://host.example/x?hiddenquery", flags, None,
                             ctypes.byref(ctypes.c_void_p())), -errno.EINVAL)
        said = lib.pst_error_text().decode()
        true("host.example/x" in said and "hiddenquery" not in said, said)


@case
def replaced_objects():
    for honours in (True, False):
        name = fresh("key", BIG)
        server.if_match = honours
        with File(name) as f:
            server.put("bucket", "key", BIG[::-1])
            gives(errno.ESTALE, f.read, bytearray(1000))
        eq(read(name, 10), BIG[::-1][:10])
        # The same tag, but fewer bytes.
        name = fresh("key", BIG, etag='"same"')
        server.if_match = honours
        with File(name) as f:
            server.put("bucket", "key", BIG[:-1], etag='"same"')
            gives(errno.ESTALE, f.read, bytearray(1000))
            # The range begins beyond the end of the new object.
            server.put("bucket", "key", b"short")
            gives(errno.ESTALE, f.read, bytearray(1000), 1 * MIB)


@case
def never_torn_beside_a_writer():
    contents = [bytes([i]) * (9 * MIB) for i in range(4)]
    for honours in (True, False):
        name = fresh("key", contents[0])
        server.if_match = honours
        end, good, stale = threading.Event(), 0, 0

        def write():
            i = 0
            while not end.is_set():
                i += 1
                server.put("bucket", "key", contents[i % 4])
                end.wait(0.002)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            while good + stale < 6:
                try:
                    got = read(name, 9 * MIB)
                    true(got in contents, "a torn read")
                    good += 1
                except OSError as e:
                    eq(e.errno, errno.ESTALE)
                    stale += 1
        finally:
            end.set()
            writer.join()


@case
def cut_bodies_go_on():
    name = fresh("key", BIG)
    with File(name) as f:
        for after in (0, 1, 70000, 3 * MIB):
            server.fault("GET", "cut", after=after)
            got = bytearray(8 * MIB)
            eq(f.read(got).nbytes, 8 * MIB)
            true(got == BIG[:8 * MIB])
            server.faults.clear()
        # Received bytes are not requested again.
        asked = [h["Range"] for _, _, h in server.requests]
        true(any(r.startswith((f"bytes={3 * MIB}-", f"bytes={7 * MIB}-")) for r in asked), asked)
        server.fault("GET", "short", after=1000)
        true(f.read(got).nbytes == 8 * MIB and got == BIG[:8 * MIB])
        server.fault("GET", "drop", times=2)
        true(f.read(got).nbytes == 8 * MIB and got == BIG[:8 * MIB])
        server.faults.clear()
        server.fault("GET", "drop", times=0)
        gives(errno.EIO, f.read, got)


@case
def answers_that_lie():
    rows = [("Content-Range", "bytes 1-10/{size}"), ("Content-Range", "bytes 0-8/{size}"),
            ("Content-Range", "bytes 0-99/{size}"), ("Content-Range", "nonsense"),
            ("Content-Range", None), ("Content-Range", "bytes -1-9/{size}"),
            ("Content-Range", "bytes 0-9/99999999999999999999999999")]
    for header, value in rows:
        name = fresh("key", BIG)
        with File(name) as f:
            value = value and value.format(size=len(BIG))
            server.fault("GET", "headers", headers={header: value})
            before = bytearray(b"x" * 10)
            try:
                f.read(before)
                true(False, f"{header}: {value} was believed")
            except OSError as e:
                true(e.errno in (errno.EPROTO, errno.ESTALE), (e, value))
            eq(bytes(before), b"x" * 10)
    name = fresh("key", BIG)
    with File(name) as f:
        server.fault("GET", "long")
        memory = bytearray(b"x" * 20)
        gives(errno.EPROTO, f.read, memory, 0, 10)
        eq(bytes(memory[10:]), b"x" * 10)
        server.fault("GET", "headers", headers={"ETag": '"other"'})
        gives(errno.ESTALE, f.read, bytearray(10))
    fresh()
    server.ranges = False
    fails(errno.EOPNOTSUPP, "does not give ranges", File, "s3://bucket/key")


@case
def answers_of_other_forms():
    """Answers that are not in a simple form are requested again through libcurl."""
    content = BIG[:300000]
    etag = hashlib.md5(content).hexdigest().encode()
    head = (b'HTTP/1.1 206 ok\r\nETag: "' + etag + b'"\r\nContent-Range: bytes 0-299999/300000\r\n')
    length = b"Content-Length: 300000\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(c), c)
                      for c in (content[:1], content[1:99999], content[99999:])) + b"0\r\n\r\n"
    simple = [head + length + content, b"HTTP/1.1 100 Continue\r\n\r\n" + head + length + content,
              head + b"connection:  Close\r\n" + length + content,
              head + b"content-length:300000\r\n" + length + content,
              head.replace(b"1.1", b"1.0") + length + content]
    others = [head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, head + b"\r\n" + content,
              head + b"X: " + b"x" * 20000 + b"\r\n" + length + content]
    for answer in simple + others:
        name = fresh("key", content)
        with File(name) as f:
            # The server closes each of these connections without saying so.
            server.fault("GET", "raw", times=0, bytes=answer)
            for _ in range(2):
                got = bytearray(len(content))
                eq(f.read(got).nbytes, len(content))
                true(got == content)
            eq(len(server.requests) - 1, 3 if answer in others else 2)
    for answer in (b"HTTP/1.1 206", head + b"Content-Length: 400000\r\n\r\n" + content,
                   head + b"Content-Length: 3x\r\n\r\n" + content, b"\r\n\r\n", b"x" * 40000):
        name = fresh("key", content)
        with File(name) as f:
            server.fault("GET", "raw", times=0, bytes=answer)
            try:
                f.read(got, timeout=0.3)
                raise AssertionError(answer[:100])
            except OSError as e:
                true(e.errno in (errno.EIO, errno.EPROTO, errno.ETIMEDOUT), e)


@case
def lines_without_a_carriage_return():
    """libcurl takes LF alone for the end of a line; a body begins before the first CR LF CR LF."""
    content = BIG[:100] + b"\r\n\r\n" + BIG[:100000]
    etag = hashlib.md5(content).hexdigest().encode()
    whole = (b'HTTP/1.1 206 ok\nETag: "%s"\nContent-Range: bytes 0-%d/%d\nContent-Length: %d\n\n'
             % (etag, len(content) - 1, len(content), len(content))) + content
    mixed = whole.replace(b"\n", b"\r\n", 2)
    for answer in (whole, mixed, mixed.replace(b"\n\n", b"\n\r\n", 1)):
        name = fresh("key", content)
        for times in (1, 0):
            server.fault("GET", "raw", skip=1, times=times, bytes=answer)
            true(read(name, len(content)) == content, (answer[:50], times))


@case
def answers_without_an_end():
    """Endless headers and endless bodies do not block other requests of the same thread."""
    for kind, number in ({"again": b"HTTP/1.1 100 Continue\r\n\r\n" * 5000}, errno.ETIMEDOUT), (
            {"bytes": b"HTTP/1.1 404 no\r\nContent-Length: 99999999999999999\r\n\r\n",
             "again": b"x" * MIB}, errno.ENOENT), (
            {"bytes": b"HTTP/1.1 404 no\r\nTransfer-Encoding: chunked\r\n\r\n",
             "again": b"100000\r\n" + b"x" * MIB + b"\r\n"}, errno.ENOENT):
        name = fresh("key", BIG)
        server.put("bucket", "other", BIG)
        with File(name) as f, File("s3://bucket/other") as g, Queue() as q:
            server.fault("GET", "endless", times=0, match="key", **kind)
            memory = Memory.alloc("host", MIB)
            q.read(f, memory, timeout=2 if number == errno.ETIMEDOUT else 60)
            q.submit()
            got = bytearray(MIB)
            eq(g.read(got).nbytes, MIB)
            true(got == BIG[:MIB])
            done = q.reap(1, timeout=60)
            eq([d.error.errno for d in done], [number])


@case
def memory_that_is_gone():
    """A page without access in the middle of a body: the bytes before it, and an error."""
    name = fresh("key", BIG)
    memory = mmap.mmap(-1, 4 * MIB)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def protect(how):
        eq(ctypes.CDLL(None).mprotect(ctypes.c_void_p(at + 3 * MIB), ctypes.c_size_t(MIB), how), 0)

    with File(name) as f:
        # Take away access to the memory after the request was checked and sent.
        server.fault("GET", "call", function=lambda: protect(0))
        gives(errno.EFAULT, f.read, memory)
        protect(mmap.PROT_READ | mmap.PROT_WRITE)
        true(memory[:3 * MIB] == BIG[:3 * MIB])
        # The connection on which the read failed is not used for another request.
        got = bytearray(MIB)
        f.read(got, 5 * MIB)
        true(got == BIG[5 * MIB:6 * MIB])


@case
def busy_servers():
    for status, code in ((503, "SlowDown"), (500, "InternalError"), (429, "Slow")):
        name = fresh("key", BIG)
        server.fault("GET", "status", status=status, code=code, times=2)
        eq(read(name, 100), BIG[:100])
        server.faults.clear()
        server.fault("GET", "status", status=status, code=code, times=0)
        e = fails(errno.EIO if status == 500 else errno.EBUSY, (str(status), code), File, name)
        true("try again" in str(e))


@case
def hostile_answers():
    bomb = b"<!DOCTYPE x [<!ENTITY a \"&a;&a;\">]><Error><Code>&a;</Code></Error>"
    bodies = [b"", b"<Code>", b"<Error><Code></Code>", b"\0\xff<Code>\0</Code>", bomb,
              b"<Code>" + b"A" * 300000 + b"</Code>", b"<Code>\x1b[31mred\n</Code>"]
    for body in bodies:
        name = fresh()
        head = f"HTTP/1.1 403 no\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        server.fault("GET", "raw", bytes=head + body, times=0)
        e = gives(errno.EACCES, File, name)
        true(str(e).isprintable() and len(str(e)) < 1000, str(e))
    for raw in (b"nonsense\r\n\r\n", b"HTTP/1.1 206 x\r\n\r\n",
                b"HTTP/1.1 200 x\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 999 x\r\n\r\n"):
        name = fresh()
        server.fault("GET", "raw", bytes=raw, times=0)
        true(gives(OSError, File, name).errno in (errno.EPROTO, errno.EIO, errno.EOPNOTSUPP))


@case
def deadlines_hold():
    name = fresh("key", BIG)
    until = threading.Event()
    try:
        with File(name) as f:
            server.fault("GET", "hang", until=until, times=0)
            gives(errno.ETIMEDOUT, f.read, bytearray(MIB), timeout=0.2)
            server.faults.clear()
            got = bytearray(MIB)
            f.read(got)
            true(got == BIG[:MIB])
    finally:
        until.set()


@case
def slow_servers_leave_room_for_others():
    slow, until = Server(), threading.Event()
    slow.anonymous = True
    slow.put("bucket", "key", BIG)
    name = fresh()
    try:
        with File(f"{slow.url}/bucket/key") as f, Queue() as q:
            slow.fault("GET", "hang", until=until, times=0)
            memory = Memory.alloc("host", 100)
            for i in range(100):
                q.read(f, memory, i, 1, mem_offset=i)
            q.submit()
            while len(slow.requests) < 1 + 32:
                time.sleep(0.01)
            eq(read(name, 10), b"0123456789")
            # No request was aborted to make room for another.
            eq((len(slow.requests), q.in_flight), (1 + 32, 100))
            slow.faults.clear()
            until.set()
            for done in q.reap(100):
                done.check()
            eq(memory.copy_out(), BIG[:100])
    finally:
        until.set()


@case
def no_proxy_for_this_machine():
    """Keys and plain-text bytes never leave the machine, whatever proxy the environment names."""
    code = "import sys, penstock; print(penstock.File(sys.argv[1]).size)"
    proxy = Server()
    name = fresh()
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True,
                          check=False, env={**os.environ, "http_proxy": proxy.url,
                                            "no_proxy": "", "NO_PROXY": ""})
    eq((done.stdout.strip(), done.stderr, proxy.requests), ("10", "", []))


@case
def plain_https_names():
    fresh("key", BIG)
    server.anonymous = True
    name = f"{server.url}/bucket/key"
    eq(read(name, 100, 5), BIG[5:105])
    eq(read(f"{name}?X-Amz-Signature=abc&b=c", 10), BIG[:10])
    true(all("Authorization" not in h for _, _, h in server.requests))
    true("X-Amz-Signature=abc&b=c" in server.requests[-1][1])
    # Weak tags do not identify bytes; the modification time is used.
    server.put("bucket", "key", BIG, etag='W/"1"')
    with File(name) as f:
        eq(f.read(bytearray(10)).nbytes, 10)
        server.buckets["bucket"]["key"].modified += 1
        gives(errno.ESTALE, f.read, bytearray(10))
    server.buckets["bucket"]["key"].modified += 1000
    fails(errno.EAGAIN, "within this second", File, name)
    server.fault("GET", "headers", headers={"ETag": None, "Last-Modified": None}, times=0)
    fails(errno.EOPNOTSUPP, "PST_FILE_STABLE", File, name)
    with File(name, stable=True) as f:
        eq(f.read(bytearray(10)).nbytes, 10)


@case
def redirects():
    other = Server()
    fresh()
    other.put("bucket", "moved", BIG)
    other.anonymous = True
    to = [("Location", f"{other.url}/bucket/moved")]
    # Signed requests do not follow a redirect to another host.
    server.fault("GET", "status", status=307, code="TemporaryRedirect", headers=to, times=0)
    fails(errno.EREMCHG, "keys are not sent", File, "s3://bucket/key")
    eq(other.requests, [])
    eq(read(f"{server.url}/bucket/key", 100), BIG[:100])
    true(all("Authorization" not in h for _, _, h in other.requests))
    # The redirect's target may expire while the file is open.
    with File(f"{server.url}/bucket/key") as f:
        other.fault("GET", "status", status=403, code="Expired")
        eq(f.read(bytearray(10)).nbytes, 10)
    # The credentials expire for many ranges at once.
    with File(f"{server.url}/bucket/key") as f:
        together = threading.Barrier(3, timeout=60)
        for _ in range(3):
            other.fault("GET", "status", status=403, code="Expired", before=together.wait)
        got = bytearray(len(BIG))
        eq(f.read(got).nbytes, len(BIG))
        true(got == BIG)
    server.faults.clear()
    server.fault("GET", "status", status=302, headers=[("Location", f"{server.url}/bucket/key")],
                 times=0)
    fails(errno.ELOOP, "too many redirects", File, f"{server.url}/bucket/key")
    server.faults.clear()
    for bad in ("file:///etc/passwd", "http://192.0.2.1/x", "ftp://localhost/x"):
        server.fault("GET", "status", status=302, headers=[("Location", bad)], times=0)
        fails(errno.EPERM, "not followed", File, f"{server.url}/bucket/key")
        server.faults.clear()


@case
def regions():
    name = fresh()
    server.fault("GET", "status", status=400, code="AuthorizationHeaderMalformed",
                 headers=[("x-amz-bucket-region", "eu-other-1")])
    eq(read(name, 10), b"0123456789")
    true(all("/eu-other-1/s3/" in h["Authorization"] for _, _, h in server.requests[1:]))


@case
def tensors_of_safetensors():
    np = numpy()
    from penstock.safetensors import SafetensorError
    from penstock.safetensors.numpy import load_file, save_file
    tensors = {f"layer.{i}": np.arange(i * 1000, dtype=np.float32) for i in range(5)}
    save_file(tensors, f"{work}/model.safetensors")
    with open(f"{work}/model.safetensors", "rb") as f:
        name = fresh("model.safetensors", f.read())
    server.put("bucket", "bad.safetensors", b"x" * 100)
    got = load_file(name)
    eq(sorted(got), sorted(tensors))
    true(all((got[key] == tensors[key]).all() for key in tensors))
    server.anonymous = True
    e = gives(SafetensorError, load_file, f"{server.url}/bucket/bad.safetensors?hiddenquery")
    true("hiddenquery" not in str(e) and "bad.safetensors" in str(e), e)


@case
def handles_after_fork():
    with File(fresh("key", BIG)) as f:
        f.read(bytearray(10))
        pid = os.fork()
        if not pid:
            try:
                f.read(bytearray(10))
            except OSError as e:
                os._exit(e.errno)
            os._exit(0)
        eq(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), errno.EOWNERDEAD)
        eq(f.read(bytearray(10)).nbytes, 10)


run()
