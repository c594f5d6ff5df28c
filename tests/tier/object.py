# SPDX-License-Identifier: MIT
"""A set whose coldest files are objects, by the command and the library, with a server that fails.
"""
import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "s3"))
from server import Server  # noqa: E402 # pylint: disable=C0413,E0401
from tap import Skip, case, data, eq, gives, run, true, work  # noqa: E402 # pylint: disable=C0413

PENSTOCK = os.environ["PENSTOCK"]
os.environ["HOME"] = work
os.environ["PST_TIER_DIR"] = f"{work}/state"
server = Server()
os.environ.update(server.environ())

from penstock import File  # noqa: E402 # pylint: disable=C0413

MIB = 1 << 20
BIG = data(20 * MIB + 777)
COLD = ("--object", "s3://bucket/cold", "--quota", "object:1g")
count = 0


def penstock(*words, status=0):
    done = subprocess.run([PENSTOCK, *words], capture_output=True, text=True, check=False,
                          timeout=120)
    if status is not None:
        eq((done.returncode, done.stderr if status == 0 else ""), (status, ""))
    return done.stdout + done.stderr


def has(text, *words):
    for word in words:
        true(word in text, f"'{word}' is not in '{text}'")


class Set:
    """A set of an NVMe drive, a disk and a prefix, with a name of its own."""

    def __init__(self, **files):
        global count
        count += 1
        server.reset()
        self.name, self.base = f"set{count}", f"{work}/set{count}"
        for root in ("nvme", "hdd"):
            os.makedirs(f"{self.base}/{root}")
        penstock("tier", "init", self.name, "--same-filesystem", "--nvme", self.root("nvme"),
                 "--hdd", self.root("hdd"), *COLD)
        for name, content in files.items():
            self.write("hdd", name, content)

    def root(self, name):
        return f"{self.base}/{name}"

    def write(self, root, name, content):
        path = f"{self.root(root)}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)
        return path

    def do(self, command, *words, status=0):
        return penstock("tier", command, self.name, *words, status=status)

    def move(self, to, *names, status=0):
        return self.do("migrate", *names, "--to", to, status=status)

    def read(self, name, offset=0, size=None):
        with File(f"tier://{self.name}/{name}") as f:
            got = bytearray(f.size if size is None else size)
            return bytes(got[:f.read(got, offset, short=True).nbytes]) if got else b""

    def files(self):
        return {f["name"]: f for f in json.loads(self.do("ls", "--json"))["files"]}

    def where(self, name):
        return self.files()[name]["class"]

    def database(self):
        return sqlite3.connect(f"{work}/state/{self.name}/catalog.db", timeout=30)

    def sql(self, text):
        with self.database() as db:
            db.execute(text)
        db.close()

    def keys(self):
        return [k for k in server.buckets["bucket"] if not k.endswith("/.tier/id")]

    def expire(self):
        """Make objects due that wait to be deleted."""
        self.sql("UPDATE garbage SET due=0")

    def whole(self, name, content):
        """Check that the file is in one place, with these bytes, and that nothing else is left."""
        place = self.where(name)
        true(self.read(name) == content, "bytes")
        there = [r for r in ("nvme", "hdd") if os.path.exists(f"{self.root(r)}/{name}")]
        eq(there, [] if place == "object" else [place])
        out = self.do("scrub")
        has(out, " 0 differ, 0 cannot be read")
        self.expire()
        self.do("scrub")
        strays = [k for k in self.keys() if not k.startswith(f"cold/{name}~")]
        eq(strays, [])
        for root in ("nvme", "hdd"):
            eq(os.listdir(f"{self.root(root)}/.tier/tmp"), [])
        return place


@case
def init_checks_the_store():
    server.reset()
    os.makedirs(f"{work}/i")
    base = ("tier", "init", "i", "--hdd", f"{work}/i")
    has(penstock(*base, "--object", "s3://bucket/cold", status=1), "--quota object:BYTES")
    has(penstock(*base, "--object", "/dir", "--quota", "object:1g", status=1), "s3://BUCKET/PREFIX")
    has(penstock(*base, "--object", "s3://bucket", "--quota", "object:1g", status=1), "a prefix of")
    has(penstock("tier", "init", "i", *COLD, status=1), "needs a directory")
    has(penstock(*base, *COLD, "--object", "s3://bucket/b", status=1), "one root of class object")
    has(penstock(*base, "--object", "s3://none/cold", "--quota", "object:1g", status=1),
        "no such bucket")
    server.keeps_meta = False
    has(penstock(*base, *COLD, status=1), "does not keep the metadata")
    server.reset()
    penstock(*base, *COLD)
    os.makedirs(f"{work}/j")
    has(penstock("tier", "init", "j", "--hdd", f"{work}/j", *COLD, status=1),
        "is a root of a set already")
    true(not os.path.exists(f"{work}/j/.tier"), "a marker stays")
    # Roots in one another would report each other's objects as strays.
    for prefix in ("cold/sub", "cold/sub/deep"):
        has(penstock("tier", "init", "j", "--hdd", f"{work}/j", "--object", f"s3://bucket/{prefix}",
                     "--quota", "object:1g", status=1), "s3://bucket/cold of another set overlap")
    server.put("bucket", "above/it/.tier/id", b"")
    has(penstock("tier", "init", "j", "--hdd", f"{work}/j", "--object", "s3://bucket/above",
                 "--quota", "object:1g", status=1), "s3://bucket/above/it of another set overlap")
    penstock("tier", "init", "j", "--same-filesystem", "--hdd", f"{work}/j", "--object",
             "s3://bucket/colder", "--quota", "object:1g")


@case
def files_move_down_and_up():
    s = Set(small=b"hello", empty=b"")
    s.write("hdd", "dir/big", BIG)
    path = f"{s.root('hdd')}/small"
    os.chmod(path, 0o604)
    os.utime(path, ns=(10**18 + 1, 10**18 + 7))
    s.move("object", "small", "empty", "dir/big")
    eq({n: f["class"] for n, f in s.files().items()},
       {"small": "object", "empty": "object", "dir/big": "object"})
    eq(len(s.keys()), 3)
    eq(server.uploads, {})
    has(s.do("scrub"), "3 files match their checksum")
    row = json.loads(s.do("df", "--json"))["directories"][-1]
    eq((row["size"], row["used"]), (1 << 30, len(BIG) + 5))
    has(s.do("status"), "s3://bucket/cold")
    for name, content in (("small", b"hello"), ("empty", b""), ("dir/big", BIG)):
        true(s.read(name) == content, name)
    eq(s.read("dir/big", 9 * MIB - 5, 100), BIG[9 * MIB - 5:9 * MIB + 95])
    penstock("cp", f"tier://{s.name}/dir/big", f"{work}/out")
    true(open(f"{work}/out", "rb").read() == BIG)
    has(penstock("ls", f"tier://{s.name}/dir"), "big")
    s.move("nvme", "small", "empty", "dir/big")
    path = f"{s.root('nvme')}/small"
    eq((os.stat(path).st_mode & 0o7777, os.stat(path).st_mtime_ns), (0o604, 10**18 + 7))
    true(open(f"{s.root('nvme')}/dir/big", "rb").read() == BIG)
    has(s.do("status"), "objects that wait to be deleted: 3")
    s.expire()
    s.do("migrate")
    eq(s.keys(), [])
    eq(s.whole("small", b"hello"), "nvme")


@case
def writers_get_the_cure():
    s = Set(f=b"old")
    s.move("object", "f")
    name, cure = f"tier://{s.name}/f", f"penstock tier migrate {s.name} f --to CLASS"
    # Files of more than 1 GiB, as the catalogue says.
    s.sql("UPDATE file SET size=2000000000 WHERE name=CAST('f' AS BLOB)")
    for mode in ("r+", "w"):
        e = gives(errno.EREMOTE, File, name, mode)
        has(str(e), cure)
    source = f"{work}/source"
    with open(source, "wb") as f:
        f.write(b"new")
    has(penstock("cp", source, name, status=1), cure)
    has(penstock("truncate", name, "--size", "1", status=1), cure)
    s.sql("UPDATE file SET size=3 WHERE name=CAST('f' AS BLOB)")
    gives(errno.EEXIST, File, name, "x")
    has(penstock("mv", name, name + "2", status=1), cure)
    eq(s.whole("f", b"old"), "object")
    # The cure works.
    s.move("hdd", "f")
    with File(name, "r+") as f:
        f.write(b"NEW", 0)
    eq(s.read("f"), b"NEW")
    s.move("object", "f")
    penstock("rm", name)
    eq(list(s.files()), [])
    s.expire()
    s.do("scrub")
    eq(s.keys(), [])


@case
def opens_for_writing_move_the_file():
    s = Set(f=BIG)
    name = f"tier://{s.name}/f"
    s.move("object", "f")
    with File(name) as reader, File(name, "r+") as f:
        f.write(b"new", 5)
        f.sync()
        got = bytearray(8)
        reader.read(got, 0)
        eq(bytes(got), BIG[:5] + b"new")
    eq(s.whole("f", BIG[:5] + b"new" + BIG[8:]), "nvme")
    s.move("object", "f")
    with File(name, "w") as f:
        f.write(b"short", 0)
    eq(s.whole("f", b"short"), "nvme")
    s.move("object", "f")
    with open(f"{work}/source", "wb") as f:
        f.write(b"from cp")
    penstock("cp", f"{work}/source", name)
    eq(s.whole("f", b"from cp"), "nvme")
    s.move("object", "f")
    penstock("truncate", name, "--size", "4")
    eq(s.whole("f", b"from"), "nvme")
    # A pinned file stays, and a store that fails changes nothing.
    s.move("object", "f")
    s.do("pin", "f")
    has(str(gives(errno.EPERM, File, name, "r+")), "penstock tier unpin")
    s.do("unpin", "f")
    server.fault("GET", "status", times=0, match="cold/f", status=403)
    gives(errno.EACCES, File, name, "r+")
    server.faults.clear()
    eq(s.whole("f", b"from"), "object")


@case
def readers_see_no_gap():
    s = Set(f=BIG)
    wrong, end, nr = [], threading.Event(), [0]

    def reads(file):
        while not end.is_set():
            got = bytearray(MIB)
            off = nr[0] * 7919 % (len(BIG) - MIB)
            try:
                file.read(got, off)
                if bytes(got) != BIG[off:off + MIB]:
                    wrong.append(off)
            except OSError as e:
                wrong.append(str(e))
            nr[0] += 1
    with File(f"tier://{s.name}/f") as file:
        thread = threading.Thread(target=reads, args=(file,))
        thread.start()
        for to in ("object", "nvme", "object", "hdd"):
            s.move(to, "f")
            seen, until = nr[0], time.monotonic() + 30
            while nr[0] < seen + 3 and time.monotonic() < until:
                time.sleep(0.01)
        end.set()
        thread.join()
    eq(wrong, [])
    true(nr[0] > 12, nr[0])


@case
def lost_answers_and_busy_servers():
    for method, match, kind, more in (
            ("PUT", "", "lost", {}), ("POST", "uploads", "lost", {}),
            ("POST", "uploadId", "lost", {}), ("PUT", "partNumber=2", "lost", {}),
            ("PUT", "partNumber=1", "status", {"status": 503, "code": "SlowDown"}),
            ("GET", "cold/f", "cut", {"after": 1000}), ("HEAD", "", "lost", {}),
            ("GET", "cold/f", "status", {"status": 500})):
        for content in (b"x" * 5000, BIG):
            s = Set(f=content)
            server.fault(method, kind, match=match, **more)
            s.move("object", "f")
            eq(s.where("f"), "object")
            server.faults.clear()
            server.fault(method, kind, match=match, **more)
            s.move("hdd", "f")
            server.faults.clear()
            eq(s.whole("f", content), "hdd")
            # The first answer to the begin of an upload had its name.
            eq([u for u in server.uploads.values() if u], [])


@case
def refused_requests_undo_the_move():
    for method, match in (("PUT", "partNumber"), ("POST", "uploads"), ("POST", "uploadId"),
                          ("PUT", "cold/f"), ("HEAD", "cold/f"), ("GET", "cold/f")):
        s = Set(f=BIG)
        server.fault(method, "status", times=0, match=match, status=403, code="AccessDenied")
        out = s.move("object", "f", status=1)
        has(out, "f: ", "access is denied")
        server.faults.clear()
        eq(s.whole("f", BIG), "hdd")
        eq(server.uploads, {})
    # On the way up, too.
    s = Set(f=BIG)
    s.move("object", "f")
    for kind, more in (("status", {"status": 403}), ("cut", {"after": 100})):
        server.fault("GET", kind, times=0, match="cold/f", skip=2, **more)
        s.move("nvme", "f", status=1)
        server.faults.clear()
        eq(s.whole("f", BIG), "object")


@case
def wrong_bytes_and_metadata():
    s = Set(f=b"x" * 5000)
    server.fault("GET", "call", match="cold/f", function=lambda: corrupt(s))
    has(s.move("object", "f", status=1), "reads back differently")
    server.faults.clear()
    eq(s.whole("f", b"x" * 5000), "hdd")
    server.keeps_meta = False
    has(s.move("object", "f", status=1), "other metadata")
    server.keeps_meta = True
    eq(s.whole("f", b"x" * 5000), "hdd")


def corrupt(s):
    """Change a byte, and keep the ETag, as a failing disk of the server does."""
    for key in s.keys():
        o = server.buckets["bucket"][key]
        o.data = o.data[:-1] + bytes([o.data[-1] ^ 1])


@case
def foreign_writers():
    s = Set(f=BIG)
    s.move("object", "f")
    key = s.keys()[0]
    with File(f"tier://{s.name}/f") as f:
        server.put("bucket", key, BIG[::-1])
        gives(errno.ESTALE, f.read, bytearray(100), 0)
    has(str(gives(errno.ESTALE, s.read, "f")), "replaced by another program")
    has(s.do("scrub", status=1), "f: ", "1 differ")
    has(s.move("hdd", "f", status=1), "replaced by another program")
    true(not os.path.exists(f"{s.root('hdd')}/f"))


@case
def foreign_metadata_is_noticed():
    """An ETag covers only the bytes: mode and owner must not be those that another one wrote."""
    s = Set(f=b"#!/bin/sh")
    os.chmod(f"{s.root('hdd')}/f", 0o600)
    s.move("object", "f")
    meta = server.buckets["bucket"][s.keys()[0]].meta
    for name, value in meta.items():
        meta[name] = value.replace(" mode=600 ", " mode=4777 ")
    has(s.move("nvme", "f", status=1), "replaced by another program")
    has(s.do("scrub", status=1), "1 differ")
    gives(errno.ESTALE, s.read, "f")
    true(not os.path.exists(f"{s.root('nvme')}/f"))


@case
def copies_of_objects_have_the_mode():
    s = Set(f=b"secret")
    os.chmod(f"{s.root('hdd')}/f", 0o600)
    s.move("object", "f")
    penstock("cp", f"tier://{s.name}/f", f"{work}/private")
    eq(os.stat(f"{work}/private").st_mode & 0o7777, 0o600)


@case
def names_of_many_kinds():
    names = [b"~", b"a~b", b"~" + b"0" * 32, b"%41", b"a%2Fb", b"new\nline", b"x" * 255, b"\x01",
             b"d/.tier/id", b"..a", b"a b+c&<>\"'", b"?q=1#f", "\u00e9".encode(), b" ", b"\\"]
    s = Set()
    for name in names + [b"raw\xff"]:
        s.write("hdd", os.fsdecode(name), name[::-1])
    s.move("object", *(os.fsdecode(n) for n in names))
    has(s.move("object", os.fsdecode(b"raw\xff"), status=1), "not UTF-8")
    has(s.do("scrub"), f"{len(names)} files match their checksum, 1 got one")
    s.do("scrub", "--rebuild")
    out = s.do("scrub")
    has(out, " 0 differ, 0 cannot be read")
    true("belong to no file" not in out, out)
    s.move("nvme", *(os.fsdecode(n) for n in names))
    for name in names:
        with open(os.fsencode(s.root("nvme")) + b"/" + name, "rb") as f:
            eq(f.read(), name[::-1])


@case
def unreachable_server():
    s = Set(f=b"cold", g=b"warm", h=b"other")
    s.move("object", "f")
    url = os.environ["AWS_ENDPOINT_URL"]
    os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    try:
        out = s.do("status", status=1)
        has(out, "nothing accepts connections there; check the endpoint")
        rows = json.loads(s.do("status", "--json", status=1))["directories"]
        eq([r["usable"] for r in rows], [True, True, False])
        eq(s.where("f"), "object")
        eq(s.read("g"), b"warm")
        has(str(gives(errno.ECONNREFUSED, s.read, "f")), "check the endpoint")
        has(s.move("hdd", "f", status=1), "check the endpoint")
        has(s.move("object", "g", status=1), "check the endpoint")
        s.move("nvme", "h")
        has(s.do("scrub", status=1), "f: ", "1 files match", "2 cannot be read")
    finally:
        os.environ["AWS_ENDPOINT_URL"] = url
    eq(s.where("h"), "nvme")
    s.do("status")
    eq(s.read("f"), b"cold")


@case
def plans_go_on_without_the_store():
    s = Set()
    conf = f"{work}/state/{s.name}/set.conf"
    text = open(conf).read()
    for name, size in (("a", 300), ("b", 300), ("c", 300)):
        s.write("hdd", name, b"x" * size * 1024)
    s.write("nvme", "d", b"x" * 300 * 1024)
    # nvme must give up a file to hdd, and hdd two files to the store.
    text = text.replace("limits hdd quota 0 low 80 high 90", "limits hdd quota 1m low 40 high 50")
    text = text.replace("limits nvme quota 0 low 80", "limits nvme quota 320k low 1")
    with open(conf, "w") as f:
        f.write(text)
    server.fault("HEAD", "status", times=0, status=403)
    out = s.do("migrate", status=1)
    eq(out.count("access is denied"), 1)
    server.faults.clear()
    s.do("migrate")
    classes = [f["class"] for f in s.files().values()]
    true(classes.count("object") >= 2, classes)


@case
def killed_at_each_request():
    """Kill the mover at each request: the request is lost, or takes effect after that."""
    for to, place in (("object", "hdd"), ("hdd", "object")):
        nr, places = 0, set()
        for late in (False, True):
            at = 0
            while True:
                content = BIG if at % 2 else BIG[:100]
                s = Set(f=content)
                if place == "object":
                    s.move("object", "f")
                mover = []

                def kill(mover=mover):
                    # The command may just be starting.
                    while not mover:
                        time.sleep(0.001)
                    os.kill(mover[0].pid, signal.SIGKILL)
                    mover[0].wait()
                for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
                    server.fault(method, "call", function=lambda: None, times=0)
                hits = [0]

                def hit(at=at, hits=hits, kill=kill, late=late):
                    hits[0] += 1
                    if hits[0] != at + 1:
                        return
                    kill()
                    if not late:
                        raise ConnectionError
                for f in server.faults:
                    f["function"] = hit
                # pylint: disable-next=R1732
                p = subprocess.Popen([PENSTOCK, "tier", "migrate", s.name, "f", "--to", to],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                mover.append(p)
                p.wait()
                time.sleep(0.05)
                server.faults.clear()
                places.add(s.whole("f", content))
                if p.returncode == 0:
                    break
                eq(p.returncode, -signal.SIGKILL)
                nr += 1
                at += 1
        print(f"# to {to}: {nr} kills, then in {places}")
        true(nr >= 4, nr)
        eq(places, {"hdd", "object"})


@case
def rebuilds_from_the_objects():
    s = Set(f=BIG, g=b"disk")
    s.move("object", "f")
    crc = s.files()["f"]["crc32c"]
    with open(f"{work}/state/{s.name}/catalog.db", "r+b") as f:
        f.write(b"damaged" * 100)
    has(s.do("ls", status=1), "--rebuild")
    s.do("scrub", "--rebuild")
    eq(s.files()["f"]["crc32c"], crc)
    eq(s.whole("f", BIG), "object")


@case
def lost_catalogue_is_noticed():
    """An empty catalogue must not pass for that of a set without objects."""
    s = Set(f=BIG, g=b"disk", h=b"cold")
    s.move("object", "f", "h")
    state = f"{work}/state/{s.name}"
    for lose in (os.unlink, lambda path: os.truncate(path, 0)):
        for name in os.listdir(state):
            if name.startswith("catalog.db") and "damaged" not in name:
                lose(f"{state}/{name}")
        for command in ("ls", "scrub", "migrate"):
            has(s.do(command, status=1), "penstock tier scrub --rebuild")
        gives(errno.EUCLEAN, s.read, "f")
        # While the store fails, the catalogue does not become one without these objects.
        server.fault("HEAD", "status", times=0, match="cold/h", status=403)
        has(s.do("scrub", "--rebuild", status=1), "access is denied")
        server.faults.clear()
        has(s.do("ls", status=1), "penstock tier scrub --rebuild")
        # Objects of others are not asked for.
        server.put("bucket", "cold/other~1", b"")
        server.fault("HEAD", "status", times=0, match="cold/other", status=403)
        s.do("scrub", "--rebuild")
        server.faults.clear()
        del server.buckets["bucket"]["cold/other~1"]
        eq({n: f["class"] for n, f in s.files().items()},
           {"f": "object", "g": "hdd", "h": "object"})
        eq((s.read("f"), s.read("h")), (BIG, b"cold"))


@case
def mounts_list_objects():
    if os.geteuid():
        raise Skip("root, to mount")
    if not os.access("/dev/fuse", os.W_OK):
        raise Skip("/dev/fuse")
    if not os.path.exists(f"{os.path.dirname(PENSTOCK)}/../usrbio/mount/penstock-mount"):
        raise Skip("penstock-mount")
    s = Set(top=b"top")
    s.write("hdd", "d/cold", b"cold")
    s.write("hdd", "d/warm", b"warm")
    s.move("object", "d/cold", "top")
    where = f"{s.base}/mnt"
    os.mkdir(where)
    penstock("mount", where, "--source", f"tier:{s.name}", "--metrics", "none")
    try:
        eq(sorted(os.listdir(where)), ["d", "top"])
        eq(sorted(os.listdir(f"{where}/d")), ["cold", "warm"])
        gives(errno.EREMOTE, os.stat, f"{where}/d/cold")
        gives(errno.EREMOTE, open, f"{where}/d/cold", "wb")
        gives(errno.EREMOTE, os.rename, f"{where}/d/warm", f"{where}/d/cold")
        with open(f"{where}/d/warm", "rb") as f:
            eq(f.read(), b"warm")
        # A file that the kernel knows becomes an object: nothing is written to its old inode.
        # The kernel closes the file some time after the program.
        until = time.monotonic() + 30
        while s.where("d/warm") != "object" and time.monotonic() < until:
            s.move("object", "d/warm", status=None)
        gives(errno.EREMOTE, open, f"{where}/d/warm", "r+b")
        gives(errno.ENOTEMPTY, os.rmdir, f"{where}/d")
        s.move("nvme", "d/warm")
        with open(f"{where}/d/warm", "r+b") as f:
            f.write(b"WARM")
        penstock("rm", f"tier://{s.name}/d/cold")
        gives(errno.EREMOTE, os.unlink, f"{where}/top")
        penstock("rm", f"tier://{s.name}/top")
        eq(os.listdir(f"{where}/d"), ["warm"])
    finally:
        penstock("umount", where)
    eq(s.whole("d/warm", b"WARM"), "nvme")


run()
