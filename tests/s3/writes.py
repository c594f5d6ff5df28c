# SPDX-License-Identifier: MIT
"""Writes of s3://: whole objects and parts; incomplete objects never become visible."""
import errno
import os
import random
import threading

from server import Server
from tap import case, data, eq, gives, run, true, work

os.environ["HOME"] = work
server = Server()
os.environ.update(server.environ())

from penstock import File, Queue  # noqa: E402 # pylint: disable=C0413

MIB = 1 << 20
PART = 16 * MIB
BIG = data(2 * PART + 12345)
TWO = BIG[:PART + 12345]    # two parts
NAME = "s3://bucket/dir/a key"


def fresh():
    server.reset()
    return server.buckets["bucket"]


def held(key="dir/a key"):
    o = server.buckets["bucket"].get(key)
    return o and o.data


def write(content, order=None, piece=5 * MIB, mode="w"):
    with File(NAME, mode) as f:
        pieces = list(range(0, len(content), piece))
        for off in order(pieces) if order else pieces:
            f.write(content[off:off + piece], off)
        eq(held(), None)
        f.sync()
        eq(f.size, len(content))


@case
def small_objects():
    for size in (0, 1, 4096, 5 * MIB + 1, PART):
        fresh()
        write(BIG[:size])
        true(held() == BIG[:size], size)
        # One request writes the object: bytes of less than a part need no upload.
        puts = [p for m, p, _ in server.requests if m != "GET"]
        true(len(puts) == 1 or size == PART, puts)
        eq(server.uploads, {})


@case
def objects_of_many_parts():
    fresh()
    write(BIG)
    true(held() == BIG)
    true(server.buckets["bucket"]["dir/a key"].etag.endswith('-3"'))
    eq(server.uploads, {})


@case
def writes_in_any_order():
    for seed in range(3):
        fresh()
        write(BIG, lambda pieces, seed=seed: random.Random(seed).sample(pieces, len(pieces)), MIB)
        true(held() == BIG)


@case
def nothing_without_sync():
    for size in (100, len(BIG)):
        bucket = fresh()
        server.put("bucket", "dir/a key", b"old")
        with File(NAME, "w") as f:
            f.write(BIG[:size])
        eq(bucket["dir/a key"].data, b"old")
        # The parts are deleted, too.
        eq(server.uploads, {})


@case
def a_close_right_after_the_open():
    """Close before the upload may have begun."""
    bucket = fresh()
    for _ in range(300):
        File(NAME, "w").close()
    eq((bucket.get("dir/a key"), server.uploads), (None, {}))


@case
def failures_leave_nothing():
    rows = [("PUT", "partNumber=2"), ("POST", "uploads"), ("POST", "uploadId")]
    for method, match in rows:
        for kind in ({"kind": "status", "status": 403, "code": "AccessDenied"},
                     {"kind": "status", "status": 500}, {"kind": "drop"}):
            bucket = fresh()
            server.put("bucket", "dir/a key", b"old")
            server.fault(method, times=0, match=match, **kind)
            with File(NAME, "w") as f:
                try:
                    f.write(TWO)
                    f.sync()
                    true(False, (method, match, kind))
                except OSError as e:
                    true(e.errno in (errno.EACCES, errno.EIO), e)
                gives(OSError, f.sync)
            eq(bucket["dir/a key"].data, b"old")
            eq(server.uploads, {})


@case
def failures_that_pass():
    for method, match in (("PUT", "partNumber=2"), ("POST", "uploads"), ("POST", "uploadId")):
        fresh()
        server.fault(method, "status", status=503, code="SlowDown", match=match, times=2)
        server.fault(method, "drop", match=match, skip=2)
        write(TWO)
        true(held() == TWO)
    # Status 200 with an error in the body, or without a result.
    for body in (server.complete_body, b"", b"<Error xmlns='x'><Code>SlowDown</Code></Error>",
                 b"<html>welcome</html>"):
        fresh()
        server.complete_error, server.complete_body = 2, body
        write(TWO)
        true(held() == TWO)
        fresh()
        server.complete_error, server.complete_body = 100, body
        gives(errno.EIO, write, TWO)
        eq((held(), server.uploads), (None, {}))


@case
def hostile_answers():
    for body in (b"", b"<UploadId></UploadId>", b"<UploadId>" + b"x" * 5000 + b"</UploadId>",
                 b"<UploadId>&bad;</UploadId>", b"\0<UploadId>x", b"x" * (3 * MIB)):
        fresh()
        head = f"HTTP/1.1 200 ok\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        server.fault("POST", "raw", bytes=head + body, match="uploads", times=0)
        true(gives(OSError, write, TWO).errno in (errno.EPROTO, errno.E2BIG))
    for etag in ('"<x>"', '"&"'):
        fresh()
        head = f"HTTP/1.1 200 ok\r\nContent-Length: 0\r\nETag: {etag}\r\n\r\n".encode()
        server.fault("PUT", "raw", bytes=head, match="partNumber", times=0)
        gives(errno.EPROTO, write, TWO)
        eq(server.uploads, {})


@case
def objects_have_no_holes():
    fresh()
    with File(NAME, "w") as f:
        f.write(b"x", 10)
        gives(errno.EINVAL, f.sync)
    with File(NAME, "w") as f:
        f.write(BIG[:PART])
        f.write(b"x", 2 * PART)
        gives(errno.EINVAL, f.sync)
    # Write into more parts at once than there are buffers.
    with File(NAME, "w") as f:
        for i in range(8):
            f.write(b"x", i * PART)
        gives(errno.ENOBUFS, f.write, b"x", 8 * PART)
    with File(NAME, "w") as f:
        gives(errno.EFBIG, f.write, b"x", 10000 * PART)
    eq((held(), server.uploads), (None, {}))


@case
def after_a_sync():
    fresh()
    with File(NAME, "w") as f:
        f.write(b"abc")
        f.sync()
        eq(held(), b"abc")
        f.sync()
        gives(errno.EINVAL, f.write, b"d", 3)
    eq(held(), b"abc")


@case
def writes_after_a_canceled_sync():
    """The canceled sync's request still reads the buffers, so a later write is refused."""
    for content, match in ((BIG[:4 * MIB], "key"), (TWO, "partNumber=2"), (TWO, "?uploadId")):
        fresh()
        asked, go = threading.Event(), threading.Event()

        def wait(asked=asked, go=go):
            asked.set()
            go.wait(60)
        server.fault("POST" if match == "?uploadId" else "PUT", "call", match=match, function=wait)
        try:
            with File(NAME, "w") as f, Queue() as q:
                f.write(content)
                number = q.sync(f)
                q.submit()
                true(asked.wait(60), match)
                q.cancel(number)
                gives(errno.ECANCELED, q.reap(1)[0].check)
                for off in (0, len(content), 2 * PART):
                    gives(errno.EINVAL, f.write, b"late", off)
                go.set()
                f.sync()
                eq(f.size, len(content))
            true(held() == content, match)
        finally:
            go.set()


@case
def answers_that_are_lost():
    """The request succeeded, but its answer was lost: the retry finds the object, or no upload."""
    for content, method, match in ((BIG[:10], "PUT", ""), (b"", "PUT", ""),
                                   (TWO, "POST", "uploadId")):
        for mode in "xw":
            fresh()
            server.fault(method, "lost", match=match)
            write(content, mode=mode)
            true(held() == content, (mode, match))
            eq(server.uploads, {})
        # Another writer's object must not count as ours.
        fresh()
        server.fault(method, "lost", match=match)
        server.fault(method, "call", match=match,
                     function=lambda: server.put("bucket", "dir/a key", b"faster"))
        gives(errno.EEXIST if method == "PUT" else errno.EIO, write, content, mode="x")
        eq(held(), b"faster")


@case
def a_close_ends_though_the_server_is_silent():
    for content, method, match in ((BIG[:10], "PUT", ""), (TWO, "POST", "?uploadId")):
        fresh()
        go = threading.Event()
        server.fault(method, "hang", match=match, until=go, times=0)
        f = File(NAME, "w")
        try:
            f.write(content)
            with Queue() as q:
                q.sync(f, timeout=0.1)
                q.submit()
                gives(errno.ETIMEDOUT, q.reap(1)[0].check)
            f.close()
        finally:
            go.set()
        eq(held(), None)


@case
def modes():
    bucket = fresh()
    gives(errno.ENOENT, File, NAME, "r")
    gives(errno.EOPNOTSUPP, File, NAME, "w+")
    with File(NAME, "x") as f:
        f.write(b"one")
        f.sync()
    gives(errno.EEXIST, File, NAME, "x")
    gives(errno.EOPNOTSUPP, File, NAME, "u")
    # Another writer is faster.
    del bucket["dir/a key"]
    for size in (10, len(BIG)):
        with File(NAME, "x") as f:
            f.write(BIG[:size])
            server.put("bucket", "dir/a key", b"faster")
            gives(errno.EEXIST, f.sync)
        eq(held(), b"faster")
        del bucket["dir/a key"]
    gives(errno.ENOENT, File, "s3://nowhere/key", "w")
    gives(errno.EOPNOTSUPP, File, f"{server.url}/bucket/key", "w")
    server.secret = "another"
    gives(errno.EACCES, File, NAME, "w")


@case
def readers_beside_a_writer():
    """Each reader sees the old object or the new one."""
    fresh()
    contents = [bytes([i]) * (17 * MIB) for i in range(3)]
    server.put("bucket", "dir/a key", contents[0])
    for new in contents[1:]:
        with File(NAME, "w") as f:
            f.write(new)
            with File(NAME) as reader:
                got = bytearray(17 * MIB)
                reader.read(got)
                true(got in contents)
            f.sync()
        true(held() == new)


run()
