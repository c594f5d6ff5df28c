# SPDX-License-Identifier: MIT
"""rados://, with a fake librados in memory that freezes, fails and is full on demand."""
import ctypes
import errno
import os
import random
import subprocess
import sys
import threading
import time

from tap import case, eq, gives, run, true

stub = ctypes.CDLL(os.environ["PST_LIBRADOS"])
stub.stub_rados_get.restype = ctypes.c_long
stub.stub_rados_queued.restype = ctypes.c_ulong

from penstock import File, Memory, Queue, names  # noqa: E402 # pylint: disable=C0413

MIB = 1 << 20
OBJECT = 4 * MIB
BIG = random.Random(1).randbytes(3 * OBJECT + 12345)
SMALL = BIG[:300000]
ROOT = "rados://pool/"


def wipe():
    stub.stub_rados_freeze(0)
    stub.stub_rados_fail(None)
    stub.stub_rados_full(0)
    for e in list(names.entries(ROOT, recursive=True)):
        names.unlink(ROOT + e.name)


def put(name, content):
    stub.stub_rados_put(b"pool", name.encode(), content, ctypes.c_size_t(len(content)))


def held(name):
    """Return the object's bytes, or None."""
    size = stub.stub_rados_get(b"pool", name.encode(), None, 0)
    if size < 0:
        return None
    got = ctypes.create_string_buffer(max(size, 1))
    stub.stub_rados_get(b"pool", name.encode(), got, ctypes.c_size_t(size))
    return got.raw[:size]


def part(name, nth):
    return f"{name}.{nth:016x}"


def layout(name, size, object_size=OBJECT, unit=OBJECT, count=1, head=b""):
    put(part(name, 0), head)
    for attr, value in (("layout.object_size", object_size), ("layout.stripe_unit", unit),
                        ("layout.stripe_count", count), ("size", size)):
        stub.stub_rados_set(b"pool", part(name, 0).encode(), b"striper." + attr.encode(),
                            str(value).encode())


def write(name, content, mode="w"):
    with File(ROOT + name, mode) as f:
        if content:
            f.write(content)
        f.sync()


def read(name, size=None):
    with File(ROOT + name) as f:
        got = bytearray(b"\xff") * ((f.size if size is None else size) or 1)
        n = f.read(got, short=True).nbytes
        return bytes(got[:n])


@case
def the_format_is_that_of_libradosstriper():
    write("dir/f", BIG)
    for i in range(4):
        true(held(part("dir/f", i)) == BIG[i * OBJECT:(i + 1) * OBJECT], i)
    eq(held("dir/f"), None)
    eq(read("dir/f"), BIG)
    eq(read("dir/f", 100), BIG[:100])
    # Another program writes the file as one object.
    put("plain", BIG)
    eq(read("plain"), BIG)
    write("plain", BIG[:70000])     # the file stays one object
    eq(held("plain"), BIG[:70000])
    wipe()


@case
def random_operations_equal_a_model():
    choose, model = random.Random(3), {}
    layouts = ((OBJECT, OBJECT, 1), (65536, 4096, 3), (8192, 8192, 1), (1 << 20, 65536, 5))
    for i in range(400):
        name = choose.choice("abcd")
        size = choose.choice([0, 1, 4096, 70000, 300000])
        what = choose.choice(["write", "patch", "patch", "cut", "read", "read", "remove",
                              "foreign"])
        if what == "foreign" and name not in model:
            model[name] = bytes(size)
            layout(name, size, *choose.choice(layouts))
        elif what == "write":
            model[name] = choose.randbytes(size)
            write(name, model[name])
        elif name not in model:
            gives(errno.ENOENT, File, ROOT + name)
        elif what == "patch":
            new, at = choose.randbytes(size + 1), choose.randrange(400000)
            have = bytearray(model[name]) + bytes(max(at + len(new) - len(model[name]), 0))
            have[at:at + len(new)] = new
            model[name] = bytes(have)
            with File(ROOT + name, "r+") as f:
                f.write(new, at)
                eq(f.size, len(have))
        elif what == "cut":
            names.truncate(ROOT + name, size)
            model[name] = model[name][:size] + bytes(max(size - len(model[name]), 0))
        elif what == "remove":
            names.unlink(ROOT + name)
            del model[name]
        else:
            true(read(name) == model[name], (i, name))
        if i % 20 == 0:
            eq({e.name: e.size for e in names.entries(ROOT, recursive=True)},
               {k: len(v) for k, v in model.items()})
    wipe()
    eq(list(names.entries(ROOT)), [])


@case
def holes_are_zeros():
    layout("h", 3 * OBJECT)
    put(part("h", 1), b"x" * 10)
    got = read("h")
    true(got == bytes(OBJECT) + b"x" * 10 + bytes(2 * OBJECT - 10))
    wipe()


@case
def a_change_since_the_open_is_found():
    def none(name):
        names.unlink(ROOT + name)

    def bigger(name):
        write(name, BIG + BIG)

    def same_size(name):
        write(name, bytes(len(BIG)))

    def patch(name):
        with File(ROOT + name, "r+") as g:
            g.write(b"y", 2 * OBJECT)

    for change in (none, bigger, same_size, patch):
        write("f", BIG)
        put("p", BIG)
        with File(ROOT + "f") as f, File(ROOT + "p") as p:
            got = bytearray(10)
            for at in (0, 2 * OBJECT, OBJECT - 5):
                f.read(got, at)
                eq(got, BIG[at:at + 10])
            change("f")
            if change is not patch:
                change("p")
            # Change the first object, another one, and both.
            for at in (0, 2 * OBJECT, OBJECT - 5):
                gives(errno.ESTALE, f.read, got, at)
            if change is not patch:
                gives(errno.ESTALE, p.read, got, 5)
        wipe()


@case
def a_change_while_bytes_are_read_is_found():
    # The first object is replaced after the bytes of the others were read.
    write("f", BIG)
    with File(ROOT + "f") as f, Queue(8) as q:
        got = bytearray(OBJECT)
        stub.stub_rados_freeze(1)
        q.read(f, got, 2 * OBJECT)
        q.submit()
        stub.stub_rados_put(b"pool", part("f", 0).encode(), b"z", ctypes.c_size_t(1))
        stub.stub_rados_freeze(0)
        (done,) = q.reap(1)
        eq(done.error.errno, errno.ESTALE)
    wipe()


@case
def deadlines_hold_while_osds_hang():
    write("f", BIG)
    with File(ROOT + "f") as f, File(ROOT + "w", "w") as w, Queue(64) as q:
        buffers = [bytearray(MIB) for _ in range(12)]
        stub.stub_rados_freeze(1)
        for i, b in enumerate(buffers):
            q.read(f, b, i * MIB, timeout=0.2)
        q.write(w, BIG, 0, timeout=0.2)
        q.submit()
        done = []
        while len(done) < 13:
            done += q.reap(1)
        for d in done:
            true(d.error is not None and d.error.errno == errno.ETIMEDOUT, d)
        for b in buffers:
            b[:] = b"\x77" * MIB
        stub.stub_rados_freeze(0)
        eq(read("f"), BIG)
        for b in buffers:
            true(b == b"\x77" * MIB, "a read that had ended was written to")
    wipe()


@case
def a_hang_at_the_check_ends_too():
    # The bytes were read, but the check of the first object gets no answer: nothing may be left in
    # flight.
    write("f", BIG)
    with Queue(8) as q:
        f = File(ROOT + "f")
        got = bytearray(MIB)
        stub.stub_rados_freeze(2)
        for _ in range(3):
            q.read(f, got, 2 * OBJECT, timeout=0.1)
            q.submit()
            (done,) = q.reap(1)
            eq(done.error.errno, errno.ETIMEDOUT)
        eq(got, BIG[2 * OBJECT:2 * OBJECT + MIB])
        f.close()
        eq(stub.stub_rados_queued(), 0)
    wipe()


@case
def more_than_the_budget_waits_its_turn():
    content = random.Random(2).randbytes(80 * MIB)
    write("f", content)
    with File(ROOT + "f") as f, Queue(64) as q:
        buffers = [bytearray(20 * MIB) for _ in range(8)]
        stub.stub_rados_freeze(1)
        for i, b in enumerate(buffers):
            q.read(f, b, i % 4 * 20 * MIB)
        numbers = [q.read(f, bytearray(MIB), 0) for _ in range(8)]
        q.submit()
        queued = stub.stub_rados_queued()
        for n in numbers:
            q.cancel(n)
        stub.stub_rados_freeze(0)
        true(queued <= 65 * MIB, queued)
        done = []
        while len(done) < 16:
            done += q.reap(1)
        for i, b in enumerate(buffers):
            at = i % 4 * 20 * MIB
            true(b == content[at:at + 20 * MIB], i)
    wipe()


@case
def each_call_may_fail():
    layout("f", 0, 65536, 65536, 1)
    with File(ROOT + "f", "r+") as f:
        f.write(SMALL)
    put("p", SMALL[:70000])
    for call in ("rados_aio_create_completion2", "rados_aio_read_op_operate",
                 "rados_aio_write_op_operate", "rados_ioctx_create", "rados_nobjects_list_open",
                 "rados_nobjects_list_next"):
        code, n, hits = -errno.ENOMEM, 0, 0
        while True:
            n += 1
            stub.stub_rados_fail(f"{call}:{n}:{code}".encode())
            failed = 0
            for step in (lambda: true(read("f") == SMALL), lambda: true(read("p") == SMALL[:70000]),
                         lambda: write("new", SMALL), lambda: names.truncate(ROOT + "new", 5),
                         lambda: list(names.entries(ROOT)), lambda: names.unlink(ROOT + "new")):
                try:
                    step()
                except OSError as e:
                    true(e.errno in (errno.ENOMEM, errno.ENOENT), e)
                    failed += 1
            met = stub.stub_rados_fail(None)
            hits += met
            true(bool(failed) == bool(met), (call, n))
            if not met:
                break
        true(hits, call)
    true(read("f") == SMALL)
    wipe()


@case
def errors_are_told():
    for call, code, want, says in (
            ("rados_aio_read_op_operate", errno.EPERM, errno.EACCES, "has no right"),
            ("rados_aio_read_op_operate", errno.ESHUTDOWN, errno.ESHUTDOWN, "blocklist"),
            ("rados_aio_read_op_operate", errno.ETIMEDOUT, errno.ETIMEDOUT, "do not answer"),
            ("rados_ioctx_create", errno.ENOENT, errno.ENOENT, "no such pool")):
        stub.stub_rados_fail(f"{call}:1:{-code}".encode())
        true(says in str(gives(want, File, ROOT + "f")), says)
    true("no such pool" in str(gives(errno.ENOENT, File, "rados://none/x")))
    true("is a pool" in str(gives(errno.EISDIR, File, ROOT)))
    gives(errno.EINVAL, File, "rados:///x")
    gives(errno.ENAMETOOLONG, File, ROOT + "n" * 2040)
    write("f", b"1")
    gives(errno.EEXIST, File, ROOT + "f", "x")
    put("p", b"1")
    gives(errno.EEXIST, File, ROOT + "p", "x")
    stub.stub_rados_full(1)
    true("full" in str(gives(errno.ENOSPC, File, ROOT + "new", "w")))
    stub.stub_rados_full(0)
    gives(errno.EFBIG, names.truncate, ROOT + "f", 1 << 60)
    with File(ROOT + "p", "r+") as p:
        gives(errno.EFBIG, p.write, b"1", 128 * MIB)
    wipe()


@case
def hostile_layouts_are_refused():
    for size, object_size, unit, count in (
            ("-1", OBJECT, OBJECT, 1), ("1x", OBJECT, OBJECT, 1), ("99999999999999999999", 1, 1, 1),
            (1 << 62, 4096, 4096, 1), (10, 0, 0, 1), (10, 4096, 0, 1), (10, 4096, 4096, 0),
            (10, 4097, 4096, 1), (10, 1 << 40, 4096, 1), (10, OBJECT, OBJECT, 1 << 40)):
        layout("f", size, object_size, unit, count)
        gives(errno.ENOENT, File, ROOT + "f")
    wipe_all = [part("f", 0)]
    for name in wipe_all:
        names.unlink(ROOT + name)
    wipe()


@case
def sizes_of_two_writers_meet():
    write("f", b"")
    with File(ROOT + "f", "r+") as a, File(ROOT + "f", "r+") as b:
        b.write(b"b" * 1000, 9000)
        a.write(b"a" * 1000, 0)
        a.write(b"a" * 1000, 2000)
        eq(names.stat(ROOT + "f").size, 10000)
    eq(read("f"), b"a" * 1000 + bytes(1000) + b"a" * 1000 + bytes(6000) + b"b" * 1000)
    wipe()


def beside(what, other):
    """Call what(), and run other() between what()'s read and its change of the object."""
    ended = []
    stub.stub_rados_freeze(3)
    thread = threading.Thread(target=lambda: ended.append(what()))
    thread.start()
    while not stub.stub_rados_queued():
        time.sleep(0.001)
    other()
    stub.stub_rados_freeze(0)
    thread.join()
    eq(len(ended), 1)


@case
def an_open_for_writing_keeps_what_others_write():
    put("p", SMALL[:10])
    beside(lambda: File(ROOT + "p", "r+").close(), lambda: put("p", SMALL))
    true(held("p") == SMALL)
    layout("f", 10, head=SMALL[:10])

    def grow():
        put(part("f", 0), SMALL)
        stub.stub_rados_set(b"pool", part("f", 0).encode(), b"striper.size", b"300000")
    beside(lambda: File(ROOT + "f", "r+").close(), grow)
    true(read("f") == SMALL)
    # The file is made again with another layout.
    layout("g", 10)
    beside(lambda: File(ROOT + "g", "r+").close(),
           lambda: layout("g", 5 * MIB, object_size=2 * OBJECT, head=BIG[:5 * MIB]))
    true(read("g") == BIG[:5 * MIB])
    wipe()


@case
def what_others_add_meanwhile_is_cut_too():
    def grow():
        put(part("f", 4), SMALL)
        stub.stub_rados_set(b"pool", part("f", 0).encode(), b"striper.size",
                            str(4 * OBJECT + len(SMALL)).encode())
    for what, size in ((lambda: names.truncate(ROOT + "f", 5), 5),
                       (lambda: File(ROOT + "f", "w").close(), 0),
                       (lambda: names.truncate(ROOT + "f", 4 * OBJECT), 4 * OBJECT),
                       (lambda: names.unlink(ROOT + "f"), None)):
        write("f", BIG)
        beside(what, grow)
        eq(held(part("f", 4)), None)
        if size is None:
            eq(held(part("f", 0)), None)
        else:
            eq(names.stat(ROOT + "f").size, size)
    wipe()


@case
def a_sync_keeps_what_others_cut():
    write("f", bytes(5 * MIB))
    with File(ROOT + "f", "r+") as a:
        a.write(b"1" * MIB, 5 * MIB)
        write("f", b"2" * 10)
        a.write(b"3")
        a.sync()
        eq(read("f"), b"3" + b"2" * 9)
        # Bytes written beyond the end are kept.
        a.write(b"4", 99)
        a.sync()
        eq(read("f"), b"3" + b"2" * 9 + bytes(89) + b"4")
    wipe()


@case
def a_writer_that_was_open_before_a_reader():
    """The writer's sync changes the first object; changes of other objects show by their own
    versions.
    """
    write("f", BIG)
    with File(ROOT + "f", "r+") as a, File(ROOT + "f") as r, File(ROOT + "f") as late:
        got = bytearray(1000)
        r.read(got, OBJECT)
        # Write, though not where the reader reads.
        a.write(b"new", OBJECT + 5000)
        gives(errno.ESTALE, r.read, got, OBJECT + 2000)
        gives(errno.ESTALE, r.read, got, OBJECT)
        # The reader can read objects that it has not read before; the late reader sees the new
        # object.
        r.read(got, 2 * OBJECT)
        late.read(got, OBJECT + 4900)
        true(got[100:103] == b"new")
        a.sync()
        gives(errno.ESTALE, late.read, got, OBJECT)
    # Fill a hole.
    write("f", b"")
    names.truncate(ROOT + "f", 3 * OBJECT)
    with File(ROOT + "f", "r+") as a, File(ROOT + "f") as r:
        r.read(got, OBJECT)
        eq(bytes(got), bytes(1000))
        a.write(b"new", OBJECT + 5000)
        gives(errno.ESTALE, r.read, got, OBJECT)
    wipe()


@case
def a_sync_that_failed_is_made_up_for():
    for code in (errno.EIO, errno.ENOMEM):
        write("f", BIG)
        with File(ROOT + "f", "r+") as a, File(ROOT + "f") as r:
            a.write(b"new", OBJECT)
            call = "rados_aio_write_op_operate" if code == errno.EIO else \
                "rados_aio_create_completion2"
            stub.stub_rados_fail(f"{call}:1:{-code}".encode())
            gives(code, a.sync)
            true(stub.stub_rados_fail(None))
            a.sync()
            gives(errno.ESTALE, r.read, bytearray(3), OBJECT)
        # Cancel a sync that waits for the cluster.
        with File(ROOT + "f", "r+") as a, File(ROOT + "f") as r, Queue() as q:
            a.write(b"more", OBJECT)
            stub.stub_rados_freeze(1)
            number = q.sync(a)
            q.submit()
            q.cancel(number)
            gives(errno.ECANCELED, q.reap(1)[0].check)
            stub.stub_rados_freeze(0)
            a.sync()
            gives(errno.ESTALE, r.read, bytearray(4), OBJECT)
    wipe()


@case
def memory_that_is_gone_is_an_error():
    write("f", BIG)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = 2 * MIB
    at = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
    buf = (ctypes.c_char * size).from_address(at)
    memory = Memory.of(buf)
    with File(ROOT + "f") as f:
        f.read(memory)
        libc.mprotect(ctypes.c_void_p(at + MIB), ctypes.c_size_t(MIB), 0)
        gives(errno.EFAULT, f.read, memory)
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    wipe()


@case
def a_forked_child_refuses():
    write("f", b"1")
    code = ("import os, sys\nfrom penstock import File\nf = File(sys.argv[1], 'w')\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    try:\n        File(sys.argv[1])\n    except OSError as e:\n"
            "        os._exit(e.errno)\n    os._exit(0)\n"
            "print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))\n")
    out = subprocess.run([sys.executable, "-c", code, ROOT + "x"], stdout=subprocess.PIPE,
                         check=True, text=True).stdout
    eq(int(out), errno.EOWNERDEAD)
    wipe()


@case
def directories_are_what_names_begin_with():
    for name in ("a/b/c", "a/d", "e", "a.b"):
        write(name, b"12")
    put("a/plain", b"123")
    kinds = {e.name: (e.kind, e.size) for e in names.entries(ROOT + "a", facts=True)}
    eq(kinds, {"b": ("directory", None), "d": ("file", 2), "plain": ("file", 3)})
    eq(sorted(e.name for e in names.entries(ROOT)), ["a", "a.b", "e"])
    eq(names.stat(ROOT + "a").kind, "directory")
    gives(errno.ENOENT, names.stat, ROOT + "x")
    gives(errno.ENOENT, lambda: list(names.entries(ROOT + "x")))
    wipe()


@case
def a_list_ends_as_its_reader_says():
    for name in "abc":
        write(name, b"")
    library = ctypes.CDLL(os.environ["PST_LIBPENSTOCK"])
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    for code in (-errno.ENOENT, -errno.EIO, -errno.ERANGE, -errno.EPERM, 7):
        seen = []
        fn = kind(lambda arg, name, info, seen=seen, code=code: (seen.append(name), code)[1])
        eq((library.pst_name_list(ROOT.encode(), 1, fn, None), len(seen)), (code, 1))
    wipe()


@case
def a_pool_that_hangs_stops_no_other():
    stub.stub_rados_freeze(1)
    thread = threading.Thread(target=lambda: names.stat("rados://slow/"))
    thread.start()
    while not stub.stub_rados_opening():
        time.sleep(0.001)
    eq(names.stat(ROOT).kind, "directory")
    eq(stub.stub_rados_opening(), 1)
    stub.stub_rados_freeze(0)
    thread.join()
    wipe()


@case
def the_command_copies():
    penstock = os.environ["PENSTOCK"]
    true(b"no such object" in subprocess.run(
        [penstock, "cp", ROOT + "none", "to"], capture_output=True, check=False).stderr)


run()
