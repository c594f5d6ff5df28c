# SPDX-License-Identifier: MIT
"""Users whose calls take long do not delay other users.

A case checks order, not time: the victim's call ends while the greedy user's has not.  A slow
machine may end the greedy one first, so cases try several times.
"""
import os
import shutil
import signal
import tempfile

from served import (PROGRAM, Process, Ringer, Served, as_user, case, eq, program_with, run, true,
                    until)

GREEDY, VICTIM = 1000, 1001
WORKER = os.path.join(os.path.dirname(PROGRAM), "penstock-worker")
TRIES = 5

# The greedy user's worker: answers nothing, and makes a file when it is asked.
SILENT = """#!/usr/bin/env python3
import os, socket, sys, time
if sys.argv[-1] != "@GREEDY@":
    os.execv("@WORKER@", sys.argv)
broker = socket.socket(fileno=int(sys.argv[1]))
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.set_inheritable(theirs.fileno(), True)
child = os.fork()
if child == 0:
    # Nobody may trace a worker, so LeakSanitizer may hang in one, and the server then kills it.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    os.execv("@WORKER@", [sys.argv[0], str(theirs.fileno())] + sys.argv[2:])
with open("@ASKED@.child", "w") as file:
    file.write(str(child))
theirs.close()
broker.send(ours.recv(65536))
broker.recv(65536)
open("@ASKED@", "w").close()
while True:
    time.sleep(1)
"""


def publish(mount, nr):
    """Publish shared memory of the caller by a link that stays."""
    name = f"/dev/shm/penstock-test-{os.getpid()}"
    link = f"{mount.dir}/3fs-virt/iovs/{os.geteuid():08x}-0000-0000-0000-{nr:012x}"
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.ftruncate(fd, 4096)
        os.symlink(name, link)
    finally:
        os.close(fd)
        os.unlink(name)
    return link


def uses_links(mount):
    """Do everything that a program does in 3fs-virt."""
    iovs = f"{mount.dir}/3fs-virt/iovs"
    link = publish(mount, 0)
    true(os.path.basename(link) in os.listdir(iovs), "a link is not listed")
    os.lstat(link)
    eq(os.path.lexists(f"{iovs}/nothing"), False)
    os.unlink(link)
    os.readlink(f"{iovs}/submit-ios")
    os.mkdir(f"{mount.dir}/mine")
    os.symlink(f"{mount.dir}/mine", f"{mount.dir}/3fs-virt/rm-rf/x")
    eq(os.path.exists(f"{mount.dir}/mine"), False)
    return "done"


def ends(path):
    """Wait for the end of a process that the file names; it is not this process' child."""
    if os.path.exists(path):
        with open(path, encoding="ascii") as f:
            exe = f"/proc/{f.read()}/exe"
        until(lambda: not os.path.exists(exe))
        os.unlink(path)


def does_not_wait(victim, greedy):
    """Return True if the victim is done while the greedy user's worker, which was asked, still
    lives."""
    folder = tempfile.mkdtemp(prefix="penstock-test-")
    asked = f"{folder}/asked"
    program = program_with(SILENT.replace("@WORKER@", WORKER).replace("@GREEDY@", str(GREEDY))
                           .replace("@ASKED@", asked))
    os.chmod(folder, 0o777)
    try:
        for _ in range(TRIES):
            with Served(program=program) as mount:
                os.chmod(mount.source, 0o777)
                # The victim's worker is running now.
                eq(as_user(VICTIM, victim, mount), "done")

                def call(say, _, mount=mount):
                    os.readlink(f"{mount.dir}/3fs-virt/iovs/submit-ios")
                    try:
                        greedy(mount)
                    except OSError as e:
                        say(str(e))
                    say("ended")
                with Process(GREEDY, call) as p:
                    until(lambda p=p: os.path.exists(asked) or p.says())
                    if not os.path.exists(asked):
                        # The greedy user's worker took too long to start.
                        continue
                    os.unlink(asked)
                    eq(as_user(VICTIM, victim, mount), "done")
                    if not mount.lines("does not answer"):
                        return
        raise AssertionError("others wait for a worker that does not answer")
    finally:
        ends(f"{asked}.child")
        shutil.rmtree(folder)
        shutil.rmtree(os.path.dirname(program))


@case
def worker_does_not_answer_to_a_link():
    does_not_wait(uses_links, lambda mount: publish(mount, 0))


def fill(say, source):
    """Make files as fast as another process removes them."""
    os.makedirs(f"{source}/filled", 0o700, exist_ok=True)
    for i in range(30000):
        os.close(os.open(f"{source}/filled/{i}", os.O_CREAT | os.O_WRONLY, 0o600))
    say("filled")
    while True:
        for i in range(4000):
            try:
                os.close(os.open(f"{source}/filled/{i}", os.O_CREAT | os.O_WRONLY, 0o600))
            except FileNotFoundError:
                os.makedirs(f"{source}/filled", 0o700, exist_ok=True)


def removes(say, mount):
    say("begins")
    try:
        os.symlink(f"{mount.dir}/filled", f"{mount.dir}/3fs-virt/rm-rf/x")
    except OSError as e:
        say(str(e))
    say("ended")


@case
def removal_takes_long():
    with Served() as mount:
        os.chmod(mount.source, 0o777)
        for _ in range(TRIES):
            with Process(GREEDY, lambda say, _: fill(say, mount.source)) as filler:
                eq(filler.hear(), "filled")
                with Process(GREEDY, lambda say, _: removes(say, mount)) as remover:
                    eq(remover.hear(), "begins")
                    until(lambda: not os.path.exists(f"{mount.source}/filled/0") or
                          remover.says())
                    eq(as_user(VICTIM, uses_links, mount), "done")
                    waited = remover.says()
                    # A killed program does not wait for the end of its request.
                    remover.kill()
                    remover.status()
                filler.kill()
            if not waited:
                return
        raise AssertionError("others wait for a removal")


@case
def stopped_worker_is_ended():
    """A stopped worker is ended; the next request gets a new one."""
    with Served(env={"PST_LOG": "info"}) as mount:
        with Ringer(mount, 5, GREEDY):
            n = mount.numbers()
            pid = next(int(k.split('pid="')[1].split('"')[0]) for k in n
                       if k.startswith("penstock_worker_info"))
            os.kill(pid, signal.SIGSTOP)
            eq(as_user(GREEDY, publish, mount, 1), "EREMOTEIO")
            until(lambda: mount.lines("a worker ended"))
            eq(len(mount.lines("a worker is stopped by a signal")), 1)
            eq(mount.lines("does not answer"), [])
        true(as_user(GREEDY, publish, mount, 2).startswith(mount.dir), "no new worker")


run()
