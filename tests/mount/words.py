# SPDX-License-Identifier: MIT
"""What a mount's server logs: lines of key=value, why a worker does not start or ends, what a
hostile worker causes, and notifications to systemd."""
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

from served import (PROGRAM, Ringer, Served, Skip, case, eq, keys_of, need_root, program_with, run,
                    true, until)

NOBODY = 65534
WORKER = os.path.join(os.path.dirname(PROGRAM), "penstock-worker")


def start_worker(mount, uid=0):
    """Make a user's call that needs a worker.  Return the errno's name, or ""."""
    code = ("import errno, os, sys\n"
            f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
            f"try:\n    os.readlink({mount.dir + '/3fs-virt/iovs/submit-ios'!r})\n"
            "except OSError as e:\n    print(errno.errorcode[e.errno], end='')\n")
    return subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True,
                          text=True, timeout=60).stdout


def why_of(worker, uid=0, mode=0o755, gives="EREMOTEIO", **options):
    program = program_with(worker, mode)
    try:
        with Served(program=program, **options) as mount:
            eq(start_worker(mount, uid), gives)
            line, = mount.lines("a worker could not be started")
            n = mount.numbers()
            eq(n[f'penstock_worker_start_failures_total{{uid="{uid}"}}'], 1)
            eq(n[f'penstock_worker_starts_total{{uid="{uid}"}}'], 0)
            keys = keys_of(line)
            eq(keys["uid"], str(uid))
            eq(keys["level"], "error")
            eq(keys["program"], os.path.join(os.path.dirname(program), "penstock-worker"))
            return keys
    finally:
        shutil.rmtree(os.path.dirname(program))


# ------------------------------------------------- workers that do not start

@case
def no_worker_is_installed():
    why = why_of(None, gives="ENOENT")
    eq((why["step"], why["error"]), ("prepare", "ENOENT"))
    true("install penstock-worker" in why["cure"], why)


@case
def worker_ends_with_a_status():
    why = why_of("#!/bin/sh\nexit 3\n")
    eq((why["step"], why["error"], why["exit"]), ("hello", "ended", "3"))


@case
def worker_ends_by_a_signal():
    why = why_of("#!/bin/sh\nkill -SEGV $$\n")
    eq((why["step"], why["signal"]), ("hello", "SEGV"))


@case
def worker_says_why():
    why = why_of("#!/bin/sh\necho 'libx.so.1: \033[31mcannot open \"it\"' >&2\nexit 127\n")
    eq(why["exit"], "127")
    eq(why["says"], r'libx.so.1: \\033[31mcannot open \"it\"\\012')


@case
def worker_may_not_be_executed():
    why = why_of("#!/etc/passwd\n", uid=NOBODY)
    eq((why["step"], why["error"]), ("exec", "EACCES"))
    true("make the program executable" in why["cure"], why)


@case
def worker_is_roots_until_it_runs():
    """A process that changed from root to a user and has not called exec since cannot be traced."""
    why = why_of(f"#!/bin/sh\nid -u >&2\nexec {WORKER} \"$@\" 1\n", uid=NOBODY, mode=0o700)
    true(why["says"].startswith("0"), why)
    true("is started by penstock-mount" in why["says"], why)


@case
def worker_is_no_program():
    why = why_of("\0\1\2")
    eq((why["step"], why["error"]), ("exec", "ENOEXEC"))


@case
def user_has_too_many_processes():
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, before[1]))
    try:
        why = why_of(f"#!/bin/sh\nexec {WORKER} \"$@\"\n", uid=NOBODY, gives="EAGAIN")
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)
    eq((why["step"], why["error"]), ("hello", "EAGAIN"))
    true("RLIMIT_NPROC" in why["cure"], why)


@case
def worker_says_nothing():
    why = why_of("#!/bin/sh\nexec sleep 60\n")
    eq((why["step"], why["error"], why["exit"]), ("hello", "ETIMEDOUT", "none"))


# ------------------------------------------------------------ hostile workers

LIAR = """#!/usr/bin/env python3
import fcntl, mmap, os, sys, time
tally = int(sys.argv[3])
for what in (lambda: os.ftruncate(tally, 0), lambda: os.ftruncate(tally, 1 << 20),
             lambda: fcntl.fcntl(tally, 1033, 8)):  # F_ADD_SEALS, F_SEAL_WRITE
    try:
        what()
        os.write(2, b"the memory is not sealed\\n")
    except PermissionError:
        pass
m = mmap.mmap(tally, 0)
if os.fork() == 0:
    os.execv(@WORKER@, sys.argv)
for i in range(0, len(m), 8):
    m[i:i + 8] = (5).to_bytes(8, "little")
os.write(2, b"five\\n")
while not os.path.exists(@GO@):
    time.sleep(0.01)
for value in (1, 1 << 60, (1 << 64) - 1):
    for i in range(0, len(m), 8):
        m[i:i + 8] = value.to_bytes(8, "little")
    time.sleep(0.2)
os.write(2, b"<0>level=error msg=\\"forged\\" uid=0\\n\\033[2Jclear\\n" + b"x" * 5000 + b"\\n")
os.write(2, b"level=error\\rforged\\n")
for i in range(20000):
    try:
        os.write(2, b"again\\n" * 100)
    except BlockingIOError:
        pass
os.wait()
"""


@case
def a_worker_that_lies():
    go = f"{os.environ.get('TMPDIR', '/var/tmp')}/penstock-test-go-{os.getpid()}"
    program = program_with(LIAR.replace("@WORKER@", repr(WORKER)).replace("@GO@", repr(go)))
    try:
        with Served(program=program) as mount:
            key = 'penstock_ring_requests_total{uid="0"}'
            eq(start_worker(mount), "")
            until(lambda: mount.lines("five"))
            # The worker wrote a count of 5 into each of 8 lanes.  The count is false but possible,
            # so the server accepts it.
            eq(mount.numbers()[key], 40)
            with open(go, "wb"):
                pass
            until(lambda: mount.numbers()['penstock_worker_lies_total{uid="0"}'] > 0)
            until(lambda: mount.lines("again"))
            n = mount.numbers()
            eq(n[key], 40)
            eq(n['penstock_ring_request_seconds_count{uid="0"}'], 25 * 40)
            until(lambda: mount.numbers()["penstock_log_suppressed_total"] > 10)
            words = mount.words()
            true("not sealed" not in words, words)
            true("\033" not in words and "\r" not in words, "it controls the terminal")
            for line in words.splitlines():
                true(line.startswith("level=") and len(line) < 1600, line)
                keys = keys_of(line)
                true(keys["msg"] in ("a worker says", "a worker ended"), line)
            true(len(words.splitlines()) < 100, len(words.splitlines()))
            # Other users are served at the same time.
            with Ringer(mount, 20, NOBODY):
                pass
    finally:
        shutil.rmtree(os.path.dirname(program))
        if os.path.exists(go):
            os.unlink(go)


BETWEEN = """#!/usr/bin/env python3
import os, socket, sys
broker = socket.socket(fileno=int(sys.argv[1]))
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.set_inheritable(theirs.fileno(), True)
if os.fork() == 0:
    os.execv(@WORKER@, [sys.argv[0], str(theirs.fileno())] + sys.argv[2:])
theirs.close()
hello = ours.recv(65536)
broker.send(hello[:4] + (@RESULT@).to_bytes(4, "little", signed=True) + hello[8:])
ours.close()
os.wait()
"""


@case
def a_worker_answers_nonsense():
    for result, error in ((-1 << 31, "EPROTO"), (-4096, "EPROTO"), (-12, "ENOMEM")):
        worker = BETWEEN.replace("@WORKER@", repr(WORKER)).replace("@RESULT@", str(result))
        why = why_of(worker, gives=error)
        eq((why["step"], why["error"]), ("hello", error))


@case
def a_worker_has_no_way_to_the_log():
    """The worker's standard error is a pipe, and no descriptor of the server is open in it."""
    with Served() as mount:
        with Ringer(mount, 1):
            key = next(k for k in mount.numbers() if k.startswith("penstock_worker_info"))
            pid = re.search(r'pid="(\d+)"', key)[1]
            fds = f"/proc/{pid}/fd"
            open_files = [os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)]
            true(not any(mount.log in f or mount.socket in f for f in open_files), open_files)
            true(os.readlink(f"/proc/{pid}/fd/2").startswith("pipe:"), open_files)


# ---------------------------------------------------------------------- lines

@case
def lines_have_keys():
    with Served(env={"PST_LOG": "debug"}) as mount:
        with Ringer(mount, 5):
            pass
    # Read the log before it is removed with its directory.
    with Served(env={"PST_LOG": "info"}) as mount:
        with Ringer(mount, 5):
            pid = int(re.search(r"pid=(\d+)", mount.lines("a worker started")[0])[1])
            os.kill(pid, signal.SIGTERM)
            until(lambda: mount.lines("a worker ended"))
        said = [keys_of(line) for line in mount.words().splitlines()]
        true({"numbers are told", "serves", "a worker started", "a worker ended"} <=
              {keys["msg"] for keys in said}, said)
        ended = next(keys for keys in said if keys["msg"] == "a worker ended")
        eq((ended["level"], ended["signal"], ended["pid"]), ("warn", "TERM", str(pid)))
        true(not any("data0" in line for line in mount.words().splitlines()))


@case
def levels():
    for level, some in (("", False), ("error", False), ("warn", False), ("info", True)):
        with Served(env={"PST_LOG": level} if level else {}) as mount:
            eq(bool(mount.words()), some)
    with Served(env={"PST_LOG": "loud"}) as mount:
        eq(keys_of(mount.words().strip())["value"], "loud")


@case
def journal_gets_priorities():
    need_root()
    for right in (True, False):
        program = program_with("#!/bin/sh\nexit 3\n")
        log = f"{os.path.dirname(program)}/log"
        with open(log, "wb") as f:
            st = os.fstat(f.fileno())
            stream = f"{st.st_dev}:{st.st_ino + (not right)}"
            with Served(program=program, stderr=f,
                        env={"JOURNAL_STREAM": stream, "PST_LOG": "info"}) as mount:
                start_worker(mount)
        with open(log, encoding="utf-8") as f:
            lines = f.read().splitlines()
        shutil.rmtree(os.path.dirname(program))
        if right:
            true([line for line in lines if line.startswith("<3>level=error ")], lines)
            true([line for line in lines if line.startswith("<6>level=info ")], lines)
        true(all(line.startswith("<") == right for line in lines), lines)


@case
def in_the_background():
    """In the background, a pipe is closed, so that its reader's wait ends; a file is kept for the
    log."""
    program = program_with("#!/bin/sh\nexit 3\n")
    base = os.path.dirname(program)
    os.mkdir(f"{base}/src")
    os.mkdir(f"{base}/dir")
    args = [program, "--metrics", "none", "--source", f"{base}/src", f"{base}/dir"]

    def end():
        done = subprocess.run(["umount", f"{base}/dir"], check=False, capture_output=True)
        eq(done.returncode, 0)
    try:
        done = subprocess.run(args, check=False, capture_output=True, timeout=60)
        if done.returncode:
            raise Skip("a FUSE that can be mounted")
        end()
        with open(f"{base}/log", "wb") as f:
            subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=f, timeout=60)
        try:
            os.readlink(f"{base}/dir/3fs-virt/iovs/submit-ios")
        except OSError:
            pass
        with open(f"{base}/log", encoding="utf-8") as f:
            true("a worker could not be started" in f.read())
        end()
    finally:
        shutil.rmtree(base)


@case
def nobody_reads_the_log():
    """If the log's reader hangs, lines are lost and counted, and the mount continues."""
    program = program_with("#!/bin/sh\nexit 3\n")
    read, write = os.pipe()
    try:
        with Served(program=program, stderr=write, env={"PST_LOG": "debug"}) as mount:
            until(lambda: fill(write))
            start = time.monotonic()
            for _ in range(5):
                eq(start_worker(mount), "EREMOTEIO")
            true(time.monotonic() - start < 30)
            true(mount.numbers()["penstock_log_suppressed_total"] >= 5)
            eq(os.listdir(mount.dir), [])
    finally:
        os.close(read)
        os.close(write)
        shutil.rmtree(os.path.dirname(program))


def fill(fd):
    os.set_blocking(fd, False)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except BlockingIOError:
        return True
    finally:
        os.set_blocking(fd, True)


# ------------------------------------------------------------------- systemd

def told(address):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(address)
    s.settimeout(60)
    return s


@case
def systemd_is_told():
    need_root()
    base = subprocess.run(["mktemp", "-d", "-p", os.environ.get("TMPDIR", "/var/tmp")], check=True,
                          capture_output=True, text=True).stdout.strip()
    try:
        for address, name in ((f"{base}/notify", f"{base}/notify"),
                              (f"\0penstock-test-{os.getpid()}", f"@penstock-test-{os.getpid()}")):
            with told(address) as s:
                with Served(env={"NOTIFY_SOCKET": name}) as mount:
                    eq(s.recv(100), b"READY=1")
                    true(os.path.ismount(mount.dir))
                    with Ringer(mount, 1):
                        key = next(k for k in mount.numbers()
                                   if k.startswith("penstock_worker_info"))
                        pid = re.search(r'pid="(\d+)"', key)[1]
                        with open(f"/proc/{pid}/environ", "rb") as f:
                            true(b"NOTIFY_SOCKET" not in f.read())
                eq(s.recv(100), b"STOPPING=1")
    finally:
        shutil.rmtree(base)


@case
def nobody_to_tell():
    """An invalid address, or one without a listener, is logged, and the mount serves."""
    need_root()
    address = f"\0penstock-test-full-{os.getpid()}"
    with told(address) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        other.setblocking(False)
        try:
            while True:
                other.sendto(b"x", address)
        except BlockingIOError:
            pass
        for name, error in (("nonsense", "EINVAL"), ("@", "EINVAL"), ("/" + "x" * 200, "EINVAL"),
                            ("/nonexistent/notify", "ENOENT"),
                            ("@" + address[1:], "EAGAIN")):
            with Served(env={"NOTIFY_SOCKET": name}) as mount:
                keys = keys_of(mount.lines("cannot be told")[0])
                eq((keys["state"], keys["error"]), ("READY=1", error))
                eq(stat.S_ISDIR(os.stat(mount.dir).st_mode), True)
        other.close()


run()
