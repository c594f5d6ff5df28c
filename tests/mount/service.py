# SPDX-License-Identifier: MIT
"""Mounts of a directory of a storage service whose servers stop, hang and restart.

PENSTOCK is the path of the command.
"""
import errno
import mmap
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

from served import RINGER, Process, Served, as_user, case, eq, run, true, until

PENSTOCK = os.environ.get("PENSTOCK", "")
BOUND = 45  # s within which each call must end: 10 for each of its waits
MIB = 1 << 20


class Service:
    """A server of a new directory, which has the same address at each start."""

    def __init__(self, root, address="127.0.0.1:0", options=("--write",), env=None):
        self.root, self.address, self.options, self.env = root, address, options, env
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [PENSTOCK, "serve", "--root", self.root, "--listen", self.address, *self.options],
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(self.env or {})})
        line = self.process.stderr.readline()
        match = re.search(r"listening on (\S+)$", line)
        true(match, line)
        self.address = match[1]

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        self.process.wait(60)
        self.process.stderr.close()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


class Mount(Served):
    """A mount of a service; its source is the directory that the server serves."""

    def __init__(self, *options, scheme="pst://", address="127.0.0.1:0", path="", more=("--write",),
                 **how):
        self.more, self.how = more, how
        self.scheme, self.path, self.place = scheme, path, address
        super().__init__(*options, **how)

    def name_of_source(self):
        os.chmod(self.base, 0o755)
        if self.place == "unix":
            self.server = Service(self.source, f"unix:{self.base}/sock", self.more)
            return f"pst+unix://{self.base}/sock:/{self.path}"
        self.server = Service(self.source, self.place, self.more)
        return f"{self.scheme}{self.server.address}/{self.path}"

    def __exit__(self, kind, value, trace):
        try:
            super().__exit__(kind, value, trace)
        finally:
            self.server.kill()


def gives(number, function, *args):
    """Check that the call fails with that errno."""
    try:
        function(*args)
    except OSError as e:
        eq(errno.errorcode[e.errno], errno.errorcode[number])
        return
    raise AssertionError(f"it gave no {errno.errorcode[number]}")


def write(path, content, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags, 0o644)
    try:
        eq(os.write(fd, content), len(content))
    finally:
        os.close(fd)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def ends(function):
    """Run a function in a thread, which must end.  Return its result, or an errno."""
    result = []

    def call():
        try:
            result.append(function())
        except OSError as e:
            result.append(e.errno)
    thread = threading.Thread(target=call, daemon=True)
    thread.start()

    def value():
        thread.join(BOUND)
        true(not thread.is_alive(), f"a call has not ended after {BOUND} s")
        return result[0]
    return value


# ---------------------------------------------------------------------- files

def check_files(m):
    os.mkdir(f"{m.source}/sub")
    write(f"{m.source}/sub/there", b"there")
    eq(read(f"{m.dir}/sub/there"), b"there")
    eq(sorted(os.listdir(m.dir)), ["sub"])
    big = os.urandom(3 * MIB + 17)
    write(f"{m.dir}/big", big)
    eq(read(f"{m.source}/big"), big)
    eq(read(f"{m.dir}/big"), big)
    there, here = os.stat(f"{m.source}/big"), os.stat(f"{m.dir}/big")
    eq((here.st_size, here.st_mode, here.st_ino, here.st_mtime_ns),
       (there.st_size, there.st_mode, there.st_ino, there.st_mtime_ns))
    os.truncate(f"{m.dir}/big", 5)
    eq(read(f"{m.source}/big"), big[:5])
    os.rename(f"{m.dir}/big", f"{m.dir}/sub/small")
    eq(read(f"{m.source}/sub/small"), big[:5])
    eq(read(f"{m.dir}/sub/small"), big[:5])
    gives(errno.ENOENT, os.stat, f"{m.dir}/big")
    os.unlink(f"{m.dir}/sub/small")
    eq(os.listdir(f"{m.source}/sub"), ["there"])
    with open(f"{m.dir}/excl", "xb") as f:
        f.write(b"1")
        f.flush()
        os.fsync(f.fileno())
    gives(errno.EEXIST, os.open, f"{m.dir}/excl", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    write(f"{m.dir}/excl", b"new", os.O_WRONLY | os.O_TRUNC)
    eq(read(f"{m.source}/excl"), b"new")


@case
def files_by_tcp():
    with Mount() as m:
        check_files(m)


@case
def files_by_a_socket_of_this_machine():
    with Mount(address="unix") as m:
        check_files(m)


@case
def a_folder_of_the_service_is_the_source():
    with Mount(path=".") as m:
        check_files(m)


@case
def files_by_tls():
    with open(os.environ["TMPDIR"] + "/keys" if "TMPDIR" in os.environ else "/tmp/pst-keys", "w",
              encoding="ascii") as f:
        f.write("me:" + "5a" * 32 + "\n")
    os.chmod(f.name, 0o600)
    os.environ["PST_KEYS"] = f.name
    try:
        with Mount(scheme="psts://me@", more=("--write", "--keys", f.name)) as m:
            check_files(m)
    finally:
        del os.environ["PST_KEYS"]
        os.unlink(f.name)


@case
def what_the_protocol_has_not():
    with Mount() as m:
        write(f"{m.dir}/f", b"x")
        gives(errno.EPERM, os.mkdir, f"{m.dir}/d")
        gives(errno.EPERM, os.symlink, "f", f"{m.dir}/l")
        gives(errno.EPERM, os.link, f"{m.dir}/f", f"{m.dir}/l")
        gives(errno.EPERM, os.chmod, f"{m.dir}/f", 0o600)
        gives(errno.EPERM, os.utime, f"{m.dir}/f")
        os.chmod(f"{m.dir}/f", 0o644)
        eq(os.listdir(m.source), ["f"])


@case
def a_file_without_a_name_is_still_open():
    with Mount() as m:
        fd = os.open(f"{m.dir}/f", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"abc")
        os.unlink(f"{m.dir}/f")
        eq(os.fstat(fd).st_size, 3)
        os.write(fd, b"def")
        eq(os.pread(fd, 10, 0), b"abcdef")
        os.close(fd)
        gives(errno.ENOENT, os.stat, f"{m.dir}/f")


@case
def another_file_of_the_name_is_noticed():
    with Mount() as m:
        write(f"{m.source}/f", b"old file")
        fd = os.open(f"{m.dir}/f", os.O_RDWR)
        write(f"{m.source}/g", b"new file")
        os.rename(f"{m.source}/g", f"{m.source}/f")
        m.server.kill()
        m.server.start()
        gives(errno.ESTALE, os.pwrite, fd, b"xxx", 0)
        os.close(fd)
        eq(read(f"{m.source}/f"), b"new file")
        time.sleep(1.1)  # the kernel caches names for a second
        eq(read(f"{m.dir}/f"), b"new file")


@case
def a_read_only_server_and_a_read_only_mount():
    for options, more in (((), ()), (("--read-only",), ("--write",))):
        with Mount(*options, more=more) as m:
            write(f"{m.source}/f", b"text")
            eq(read(f"{m.dir}/f"), b"text")
            gives(errno.EROFS, os.open, f"{m.dir}/f", os.O_WRONLY)
            gives(errno.EROFS, os.open, f"{m.dir}/g", os.O_CREAT | os.O_WRONLY)
            gives(errno.EROFS, os.unlink, f"{m.dir}/f")
            gives(errno.EROFS, os.truncate, f"{m.dir}/f", 0)
            gives(errno.EROFS, os.rename, f"{m.dir}/f", f"{m.dir}/g")


@case
def files_belong_to_whom_the_mount_says():
    with Mount("--uid", "1234", "--gid", "4321") as m:
        write(f"{m.source}/f", b"text")
        st = os.stat(f"{m.dir}/f")
        eq((st.st_uid, st.st_gid), (1234, 4321))
        eq(as_user(1234, write, f"{m.dir}/f", b"mine", os.O_WRONLY), "None")
        eq(as_user(99, write, f"{m.dir}/f", b"his", os.O_WRONLY), "EACCES")
        eq(read(f"{m.source}/f"), b"mine")


@case
def many_names():
    with Mount() as m:
        for i in range(3000):
            write(f"{m.source}/a-name-of-some-length-{i}", b"")
        eq(len(os.listdir(m.dir)), 3000)
        eq(sum(1 for e in os.scandir(m.dir) if e.is_file()), 3000)


@case
def mappings_are_written():
    with Mount() as m:
        write(f"{m.dir}/f", b"a" * 10000)
        with open(f"{m.dir}/f", "r+b") as f:
            with mmap.mmap(f.fileno(), 10000) as at:
                at[5000:5004] = b"MMAP"
                at.flush()
        eq(read(f"{m.source}/f")[4999:5005], b"aMMAPa")


# --------------------------------------------------------------------- faults

def reader_of(m, name="big", size=64 * MIB):
    """Start a thread that reads a large file repeatedly, without the kernel's cache."""
    with open(f"{m.source}/{name}", "wb") as f:
        f.truncate(size)
    seen = []

    def loop():
        with open(f"{m.dir}/{name}", "rb", buffering=0) as f:
            for i in range(100000):
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                data = os.pread(f.fileno(), MIB, i * MIB % size)
                if data.strip(b"\0"):
                    return "wrong bytes"
                # After the first bytes the kernel reports an error as a short read.
                if len(data) != MIB:
                    data = os.pread(f.fileno(), MIB, i * MIB % size + len(data))
                    return f"a short read of {len(data)} bytes"
                seen.append(i)
        return "no failure"
    value = ends(loop)
    until(lambda: len(seen) > 20)
    return value


@case
def a_killed_server_in_mid_read():
    with Mount() as m:
        write(f"{m.source}/other", b"text")
        value = reader_of(m)
        m.server.kill()
        eq(value(), errno.EIO)
        gives(errno.EIO, os.stat, f"{m.dir}/other")
        m.server.start()
        eq(read(f"{m.dir}/other"), b"text")
        true(m.lines("the storage service cannot be reached"), m.words())


@case
def a_restarted_server_in_mid_read():
    with Mount() as m:
        value = reader_of(m, size=32 * MIB)
        for _ in range(3):
            m.server.kill()
            time.sleep(0.2)
            m.server.start()
            write(f"{m.dir}/w", os.urandom(100))
        m.process.poll()
        m.server.kill()
        eq(value(), errno.EIO)


@case
def a_frozen_server_in_mid_read():
    with Mount() as m, Served() as beside:
        write(f"{beside.source}/f", b"beside")
        value = reader_of(m)
        m.server.freeze()
        # Mounts of other sources still work.
        for _ in range(50):
            eq(read(f"{beside.dir}/f"), b"beside")
        eq(value(), errno.ETIMEDOUT)
        m.server.thaw()
        eq(len(read(f"{m.dir}/big")), 64 * MIB)


@case
def unmounting_ends_beside_a_frozen_server():
    with Mount() as m:
        reader_of(m)
        m.server.freeze()
        begin = time.monotonic()
        m.process.send_signal(signal.SIGTERM)
        eq(m.process.wait(BOUND), 0)
        true(not os.path.ismount(m.dir))
        sys.stdout.write(f"# ended after {time.monotonic() - begin:.1f} s\n")


@case
def a_sync_fails_after_a_restart():
    with Mount() as m:
        fd = os.open(f"{m.dir}/f", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"1")
        os.fsync(fd)
        os.write(fd, b"2")
        m.server.kill()
        m.server.start()
        gives(errno.EIO, os.fsync, fd)
        gives(errno.EIO, os.fsync, fd)
        os.close(fd)
        # fsync() succeeds: all earlier bytes were synced before the restart.  So it does for bytes
        # that are written after it.
        fd = os.open(f"{m.dir}/g", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"1")
        os.fsync(fd)
        m.server.kill()
        m.server.start()
        os.fsync(fd)
        os.write(fd, b"2")
        os.fsync(fd)
        os.close(fd)


@case
def one_user_does_not_stop_another():
    """Reads of one user wait for a slow server; another user's reads do not."""
    with Mount(more=("--write", "--rate", "2m")) as m:
        with open(f"{m.source}/big", "wb") as f:
            f.truncate(64 * MIB)
        write(f"{m.source}/small", b"small")
        os.chmod(f"{m.source}/big", 0o644)

        def greedy(say, wait):
            threads = []
            for i in range(16):
                def one(i=i):
                    fd = os.open(f"{m.dir}/big", os.O_RDONLY)
                    try:
                        os.pread(fd, MIB, i * 4 * MIB)
                    except OSError:
                        pass
                threads.append(threading.Thread(target=one, daemon=True))
                threads[-1].start()
            say("reads")
            wait()
            os._exit(0)
        with Process(1234, greedy) as p:
            eq(p.hear(), "reads")
            eq(as_user(4321, os.path.getsize, f"{m.dir}/small"), "5")
            p.go()


# ---------------------------------------------------------------------- rings

def ring(m, name, *args, uid=0, how=""):
    done = subprocess.run([RINGER, m.dir, name, *args, str(uid), how], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False, timeout=BOUND * 2)
    return done.stdout.strip()


@case
def rings_read_by_the_service():
    with Mount() as m:
        write(f"{m.source}/f", os.urandom(65536))
        eq(ring(m, "f", "20"), "done")
        eq(ring(m, "f", "20", uid=1234), "done")
        numbers = m.numbers()
        eq(sum(v for k, v in numbers.items() if 'path="tcp"' in k), 40)


@case
def a_ring_of_a_user_without_the_key():
    """The worker connects with its user's rights."""
    with Mount(address="unix") as m:
        write(f"{m.source}/f", os.urandom(65536))
        os.chmod(f"{m.base}/sock", 0o600)
        eq(ring(m, "f", "1"), "done")
        true("Permission denied" in ring(m, "f", "1", uid=1234))
        eq(as_user(1234, lambda: len(read(f"{m.dir}/f"))), "65536")


@case
def rings_end_beside_a_frozen_server():
    with Mount() as m:
        write(f"{m.source}/f", os.urandom(65536))
        eq(ring(m, "f", "3"), "done")
        process = subprocess.Popen([RINGER, m.dir, "f", "1000000", "0"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        m.server.freeze()
        out = process.communicate(timeout=BOUND * 2)[0]
        true("timed out" in out, out)
        m.server.thaw()
        eq(ring(m, "f", "3"), "done")


@case
def rings_go_on_after_a_restart():
    with Mount() as m:
        write(f"{m.source}/f", os.urandom(65536))
        process = subprocess.Popen([RINGER, m.dir, "f", "3000", "0"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            time.sleep(0.05)
            m.server.kill()
            m.server.start()
        eq(process.communicate(timeout=BOUND * 2)[0], "done\n")


@case
def a_sync_fails_after_ring_writes_and_a_restart():
    """The ring's worker writes over its own connection, and the mount syncs over another."""
    with Mount() as m:
        for name in ("f", "g", "h"):
            write(f"{m.source}/{name}", bytes(65536))
        fd = os.open(f"{m.dir}/f", os.O_RDWR)
        eq(ring(m, "f", "3", how="write"), "done")
        eq(read(f"{m.source}/f")[:4097], b"r" * 4096 + b"\0")
        os.fsync(fd)
        eq(ring(m, "f", "3", how="write"), "done")
        m.server.kill()
        m.server.start()
        gives(errno.EIO, os.fsync, fd)
        gives(errno.EIO, os.fsync, fd)
        os.close(fd)
        # A ring wrote before the restart, and its program still runs.
        fd = os.open(f"{m.dir}/g", os.O_RDWR)
        with subprocess.Popen([RINGER, m.dir, "g", "3", "0", "write"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            eq(process.stdout.readline(), b"done\n")
            m.server.kill()
            m.server.start()
            gives(errno.EIO, os.fsync, fd)
        os.close(fd)
        # Bytes that were synced before the restart, or written after it, can be synced.
        fd = os.open(f"{m.dir}/h", os.O_RDWR)
        eq(ring(m, "h", "3", how="write"), "done")
        os.fsync(fd)
        m.server.kill()
        m.server.start()
        os.fsync(fd)
        eq(ring(m, "h", "3", how="write"), "done")
        os.fsync(fd)
        os.close(fd)


@case
def a_ring_write_that_ends_after_a_sync():
    """The rate limit delays the ring user's second write, but not the mount's sync."""
    with Mount(address="unix", more=("--write", "--rate", "1k")) as m:
        write(f"{m.source}/f", bytes(65536))
        os.chmod(f"{m.source}/f", 0o666)
        os.chmod(f"{m.base}/sock", 0o666)
        fd = os.open(f"{m.dir}/f", os.O_RDWR)
        with subprocess.Popen([RINGER, m.dir, "f", "2", "1234", "write"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            until(lambda: read(f"{m.source}/f")[:1] == b"r")
            write(f"{m.source}/f", b"first", os.O_WRONLY)
            time.sleep(1)  # the second write has begun
            os.fsync(fd)
            # On a slow machine the write has already ended: then the sync rightly succeeded.
            late = select.select([process.stdout], [], [], 0)[0]
            eq(process.stdout.readline(), b"done\n")
            eq(read(f"{m.source}/f")[:5], b"rrrrr")
        m.server.kill()
        m.server.start()
        if not late:
            gives(errno.EIO, os.fsync, fd)
        os.close(fd)


if not PENSTOCK:
    raise SystemExit("1..0 # SKIP the command penstock")
run()
