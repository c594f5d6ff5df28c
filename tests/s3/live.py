# SPDX-License-Identifier: MIT
"""Random operations on a real S3 server, compared with a model; not run by CI.

    live.py [OPERATIONS]

AWS_ENDPOINT_URL and the other AWS variables name the server.  botocore makes the bucket, and
replaces objects while they are read.  Prints the counts, and fails at the first wrong byte.
"""
import errno
import os
import random
import sys
import threading
import time

import botocore.session
from penstock import File, names

MIB = 1 << 20
TAKE = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
client = botocore.session.get_session().create_client(
    "s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
counts = {}
choose = random.Random(11)


def count(what):
    counts[what] = counts.get(what, 0) + 1


def bytes_of(size):
    return random.Random(choose.random()).randbytes(size)


def key():
    return choose.choice(["a", "dir/b", "c d+e", "é/ü", "x=y&z?#%41", "(f)!*'~"])


def one(model):
    name = key()
    path = f"s3://penstock-live/{name}"
    what = choose.choice(["write", "read", "read", "read", "read", "list"])
    if what == "write":
        model[name] = bytes_of(choose.choice([0, 1, 5000, MIB, 3 * MIB]) if choose.random() < 0.98
                               else 35 * MIB)
        with File(path, "w") as f:
            content, at = model[name], 0
            while at < len(content):
                n = min(len(content) - at, choose.randrange(1, 8 * MIB))
                f.write(content[at:at + n], at)
                at += n
            f.sync()
    elif what == "list":
        got = {e.name: e.size for e in names.entries("s3://penstock-live", recursive=True)}
        assert got == {k: len(v) for k, v in model.items()}, (got, list(model))
    elif name not in model:
        what = "missing"
        try:
            File(path).close()
            raise AssertionError(path)
        except FileNotFoundError:
            pass
    else:
        content = model[name]
        with File(path) as f:
            assert f.size == len(content)
            for _ in range(10):
                off = choose.randrange(len(content) + 10)
                got = bytearray(choose.choice([1, 100, 70000, 9 * MIB]))
                n = f.read(got, off, short=True).nbytes
                assert got[:n] == content[off:off + len(got)], (name, off, n)
                count("range")
    count(what)


def torn():
    """Read 20 MiB during writes; each object has one byte value."""
    end = threading.Event()

    def write():
        i = 0
        while not end.is_set():
            i += 1
            client.put_object(Bucket="penstock-live", Key="torn",
                              Body=bytes([i % 251]) * (20 * MIB))
    client.put_object(Bucket="penstock-live", Key="torn", Body=b"\0" * (20 * MIB))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        got = bytearray(20 * MIB)
        for _ in range(max(TAKE // 20, 10)):
            try:
                with File("s3://penstock-live/torn") as f:
                    f.read(got)
                assert got == bytes([got[0]]) * len(got), "torn"
                count("whole beside a writer")
            except OSError as e:
                assert e.errno == errno.ESTALE, e
                count("replaced beside a writer")
    finally:
        end.set()
        writer.join()


client.create_bucket(Bucket="penstock-live")
begun = time.monotonic()
have = {}
for _ in range(TAKE):
    one(have)
torn()
for wrong, variable in (("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
                        ("SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY")):
    old = os.environ[variable]
    os.environ[variable] = "wrong" + old[5:]
    try:
        File("s3://penstock-live/torn").close()
        raise AssertionError(wrong)
    except PermissionError as error:
        assert wrong in str(error), error
        count(wrong)
    os.environ[variable] = old
try:
    File("s3://penstock-none/x", "w").close()
    raise AssertionError("a bucket that is not there")
except FileNotFoundError:
    count("no bucket")
print(counts, f"{time.monotonic() - begun:.1f} s")
