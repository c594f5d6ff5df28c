# SPDX-License-Identifier: MIT
"""penstock cp and penstock ls with s3:// and https://."""
import json
import os
import subprocess
import urllib.parse

from server import Server
from tap import case, data, eq, file, run, true, work

os.environ["HOME"] = work
server = Server()
os.environ.update(server.environ())
BIG = data((20 << 20) + 123)


def penstock(*words, status=0, **more):
    done = subprocess.run([os.environ["PENSTOCK"], *words], capture_output=True, text=True,
                          check=False, env={**os.environ, **more}, timeout=120)
    eq((done.returncode, done.stderr if status == 0 else ""), (status, ""))
    return done.stdout + done.stderr


def has(text, *words):
    for word in words:
        true(word in text, f"'{word}' is not in '{text}'")


@case
def copies_from_objects():
    server.reset()
    for content in (BIG, b"", b"x"):
        server.put("bucket", "models/a.bin", content)
        server.anonymous = False
        out = penstock("cp", "--verify", "s3://bucket/models/a.bin", f"{work}/copy")
        has(out, f"{len(content)} bytes in", "read by tcp" if content else "bytes")
        true(open(f"{work}/copy", "rb").read() == content)
        server.anonymous = True
        penstock("cp", f"{server.url}/bucket/models/a.bin?X-Amz-Signature=x", work)
        true(open(f"{work}/a.bin", "rb").read() == content)
        os.unlink(f"{work}/copy")
        os.unlink(f"{work}/a.bin")
    server.put("bucket", "models/a.bin", BIG)
    has(penstock("cp", "--verify", "s3://bucket/models/a.bin", "soft:0"), "into soft:0", "compared")


@case
def copies_to_objects():
    server.reset()
    for content in (BIG, b"", b"x"):
        path = file("source", content)
        has(penstock("cp", "--verify", path, "s3://bucket/models/"), f"{len(content)} bytes in",
            "compared")
        true(server.buckets["bucket"]["models/source"].data == content)
    penstock("cp", "-q", "s3://bucket/models/source", "s3://bucket/other")
    true(server.buckets["bucket"]["other"].data == b"x")
    eq(server.uploads, {})


@case
def copies_that_fail():
    server.reset()
    path = file("source", BIG)
    has(penstock("cp", path, "s3://nowhere/x", status=1), "no such bucket")
    has(penstock("cp", "s3://bucket/none", work, status=1), "no object of that key")
    has(penstock("cp", path, f"{server.url}/bucket/x", status=1), "only s3:// is written")
    server.put("bucket", "old", b"old")
    server.fault("PUT", "status", status=403, code="AccessDenied", match="partNumber=2", times=0)
    penstock("cp", path, "s3://bucket/old", status=1)
    eq((server.buckets["bucket"]["old"].data, server.uploads), (b"old", {}))
    server.put("bucket", "big", BIG)
    server.fault("GET", "cut", after=1000, times=0, skip=1)
    penstock("cp", "s3://bucket/big", f"{work}/none", status=1)
    true(not os.path.exists(f"{work}/none"))
    out = penstock("cp", "https://127.0.0.1:1/x?hiddenquery", work, status=1)
    true("hiddenquery" not in out, out)


def rows_of(*words):
    """Return [size, time, name] of each line of a listing."""
    return [line.split(None, 2) for line in penstock("ls", *words).splitlines()]


@case
def listings():
    server.reset()
    for key in ("a", "dir/b", "dir/c d", "dir/deep/e", "\u00e9/f", "esc\x1b[31m", "x?all",
                "dir//g"):
        server.put("bucket", key, key.encode())
    for page in (1000, 2):
        server.page = page
        rows = rows_of("s3://bucket")
        eq(len(rows), 5)    # objects come before, between and after prefixes
        eq([r[0] for r in rows if r[2] in ("dir/", "\u00e9/")], ["-", "-"])
        eq([r[2] for r in rows if r[0] == "1"], ["a"])
        for name in ("s3://bucket/dir", "s3://bucket/dir/"):
            eq([r[2] for r in rows_of(name)], ["b", "c d", "deep/"])
        eq(len(rows_of("-r", "s3://bucket")), 8)
        true("\x1b" not in penstock("ls", "-r", "s3://bucket"))
        eq([(r[0], r[2]) for r in rows_of("--recursive", "s3://bucket/dir")],
           [("6", "/g"), ("5", "b"), ("7", "c d"), ("10", "deep/e")])
    # Amazon and rclone write a space as a plus; others do not encode.
    server.put("bucket", "dir/1+1%41", b"x")
    for server.encodes in (server.encodes, urllib.parse.quote_plus, None):
        eq([r[2] for r in rows_of("s3://bucket/dir/")], ["1+1%41", "b", "c d", "deep/"])
    has(penstock("ls", "s3://bucket/none", status=1), "no key of the bucket begins so")
    has(penstock("ls", "s3://bucket/di", status=1), "no key of the bucket begins so")
    has(penstock("ls", "s3://nowhere/x", status=1), "no such bucket")
    # The endpoint's path contains the bucket's name.
    server.base = "/a-bucket/x"
    rows = penstock("ls", "s3://bucket/dir/", AWS_ENDPOINT_URL=f"{server.url}/a-bucket/x")
    eq(len(rows.splitlines()), 4)


@case
def facts_and_removals():
    server.reset()
    server.put("bucket", "dir/a", BIG)
    server.put("bucket", "dir/empty", b"")
    true(penstock("stat", "s3://bucket/dir/a").startswith(f"{len(BIG):15}  20"))
    eq(penstock("stat", "s3://bucket/dir/empty").split()[0], "0")
    for name in ("s3://bucket", "s3://bucket/", "s3://bucket/dir", "s3://bucket/dir/"):
        has(penstock("stat", "--json", name), '"kind": "directory"')
    has(penstock("stat", "s3://bucket/di", status=1), "no key of the bucket begins so")
    server.anonymous = True
    eq(penstock("stat", f"{server.url}/bucket/dir/a").split()[0], str(len(BIG)))
    server.anonymous = False
    has(penstock("rm", "s3://bucket/dir", status=1), "no object of that key")
    has(penstock("rm", "s3://bucket", status=1), "is a bucket")
    for words in (["mv", "s3://bucket/dir/a", "s3://bucket/b"],
                  ["truncate", "--size", "1", "s3://bucket/dir/a"],
                  ["rm", f"{server.url}/bucket/dir/a"], ["ls", f"{server.url}/bucket/"]):
        has(penstock(*words, status=1), "files of ")
    eq(sorted(server.buckets["bucket"]), ["dir/a", "dir/empty"])
    eq(penstock("rm", "s3://bucket/dir/a", "s3://bucket/dir/empty"), "")
    eq(sorted(server.buckets["bucket"]), [])


@case
def hostile_listings():
    server.reset()
    rows = [b"", b"<x>", b"<ListBucketResult>" + b"<Contents>" * 1000,
            b"<ListBucketResult><IsTruncated>true</IsTruncated>",
            b"<ListBucketResult><EncodingType>url</EncodingType>"
            b"<Contents><Key>a%00b</Key><Size>1</Size></Contents>",
            b"<ListBucketResult><Contents><Key>dir/a</Key><Size></Size></Contents>",
            b"<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents>",
            b"<ListBucketResult><Contents><Key>a</Key></Contents>", b"<ListBucketResult>\0",
            b"<ListBucketResult><Contents><Key>" + b"k" * 9000 + b"</Key><Size>1</Size></Contents>",
            b"<ListBucketResult>" + b" " * (3 << 20)]
    for body in rows:
        server.faults.clear()
        server.fault("GET", "raw", times=0, bytes=b"HTTP/1.1 200 ok\r\nContent-Length: %d\r\n\r\n%s"
                     % (len(body), body))
        out = penstock("ls", "s3://bucket/", status=0 if b"<Contents>" * 2 in body else 1)
        true(len(out) < 2000, out)


def safetensors(size):
    head = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
                       "b": {"dtype": "F32", "shape": [3], "data_offsets": [size, size + 12]}})
    return len(head).to_bytes(8, "little") + head.encode() + BIG[:size + 12]


@case
def demonstration():
    """demo loads a model from an object, compares all bytes, and names the path."""
    server.reset()
    server.put("bucket", "llama/model.safetensors", safetensors(9 << 20))
    name = "s3://bucket/llama/model.safetensors"
    os.mkdir(f"{work}/demo")
    for device in ("soft:0", "host"):
        words = ["demo", "--dir", f"{work}/demo", "--device", device, "--file", name]
        got = json.loads(penstock(*words, "--json"))
        loads = [s for s in got["steps"] if s["step"].startswith("load ")]
        eq(len(loads), 3)
        for s in loads:
            eq(s["penstock"]["bytes"], (9 << 20) + 12)
            true("tcp" in json.dumps(s["penstock"]["paths"]), s)
            eq(s["ratio"], None)
        true(got["verified"] and got["compared"]["checksums"] == 2, got)
        has(penstock(*words), "tcp", "copies of the objects")
    has(penstock("demo", "--file", "s3://bucket/none", "--dir", f"{work}/demo", status=1),
        "no object of that key")
    server.put("bucket", "short", b"x")
    has(penstock("demo", "--file", "s3://bucket/short", "--dir", f"{work}/demo", status=1),
        "s3://bucket/short")
    eq(os.listdir(f"{work}/demo"), [])


run()
