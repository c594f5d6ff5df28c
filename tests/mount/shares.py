# SPDX-License-Identifier: MIT
"""Shares of each user of a mount: a user who takes as much as possible leaves enough to others."""
import ctypes
import errno
import os
import resource
import signal
import subprocess

from served import Process, Ringer, Served, as_user, case, eq, run, true, until

GREEDY, VICTIM, THIRD = 1000, 1001, 1002
FILES = 4000
CAP_SYS_RESOURCE, PR_CAPBSET_DROP = 24, 24


def few_files():
    """Start a server that cannot raise its limit of descriptors."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def open_all(path, say, wait):
    """Open a file until that fails, report how often and why, and open once more after closing one.
    """
    fds = []

    def fill():
        try:
            while len(fds) < FILES:
                fds.append(os.open(path, os.O_RDONLY))
        except OSError as e:
            return errno.errorcode[e.errno]
        return "none"
    why = fill()
    say(f"{len(fds)} {why}")
    wait()
    os.close(fds.pop())
    say(fill())
    wait()


def live(mount):
    """Do what each user must be able to do."""
    name = f"{mount.dir}/file{os.geteuid()}"
    for _ in range(20):
        fds = [os.open(name, os.O_RDWR | os.O_CREAT, 0o600), os.open(mount.dir, os.O_RDONLY),
               os.open(name, os.O_RDONLY)]
        os.listdir(mount.dir)
        for fd in fds:
            os.close(fd)
        os.unlink(name)
    return "lives"


def takes_all(what):
    with Served(before=few_files) as mount:
        path = mount.file("file", 10) if what == "file" else mount.dir
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * FILES, soft[1]), soft[1]))
        try:
            with Process(GREEDY, lambda say, wait: open_all(path, say, wait)) as greedy:
                nr, why = greedy.hear().split()
                eq(why, "EMFILE")
                true(100 < int(nr) < FILES / 2, nr)
                for uid in (VICTIM, THIRD, 0):
                    eq(as_user(uid, live, mount), "lives")
                    with Ringer(mount, 20, uid):
                        pass
                greedy.go()
                eq(greedy.hear(), "EMFILE")
                greedy.go()
            # The user's share is available to others again.
            with Process(VICTIM, lambda say, wait: open_all(path, say, wait)) as other:
                again, why = other.hear().split()
                eq(why, "EMFILE")
                true(int(again) > int(nr) * 9 // 10, (nr, again))
                other.go()
                other.hear()
                other.go()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, soft)


@case
def open_files():
    takes_all("file")


@case
def open_directories():
    takes_all("directory")


@case
def deep_removals():
    """Removing a tree needs a descriptor for each level, from the user's share."""
    with Served(before=few_files) as mount:
        def make():
            os.mkdir(f"{mount.source}/deep", 0o700)
            at = os.open(f"{mount.source}/deep", os.O_RDONLY)
            for _ in range(900):
                os.mkdir("d", 0o700, dir_fd=at)
                at, up = os.open("d", os.O_RDONLY, dir_fd=at), at
                os.close(up)
            os.close(at)
            return "made"

        def remove():
            os.symlink(f"{mount.dir}/deep", f"{mount.dir}/3fs-virt/rm-rf/x")

        eq(as_user(GREEDY, make), "made")
        eq(as_user(GREEDY, remove), "EMFILE")
        eq(as_user(VICTIM, live, mount), "lives")
        # Root's own share of descriptors suffices to remove the tree.
        eq(as_user(0, remove), "None")
        eq(os.path.exists(f"{mount.source}/deep"), False)


# ------------------------------------------------------------------- workers

def workers(mount):
    found = []
    for task in os.listdir(f"/proc/{mount.process.pid}/task"):
        try:
            with open(f"/proc/{mount.process.pid}/task/{task}/children", encoding="utf-8") as f:
                found += f.read().split()
        except FileNotFoundError:
            pass
    return found


def descriptors(mount):
    return len(os.listdir(f"/proc/{mount.process.pid}/fd"))


def semaphore(mount):
    return os.readlink(f"{mount.dir}/3fs-virt/iovs/submit-ios")


@case
def idle_workers_end():
    """An idle worker ends with all of its resources; the next one has semaphores of the same names.
    """
    with Served() as mount:
        before = descriptors(mount)
        for uid in (0, GREEDY, VICTIM):
            with Ringer(mount, 5, uid):
                pass
        first = semaphore(mount)
        until(lambda: not workers(mount))
        until(lambda: descriptors(mount) <= before + 8)  # descriptors of the server's threads
        eq(os.path.exists(first), False)
        eq(semaphore(mount), first)
        with Ringer(mount, 5):
            os.kill(int(workers(mount)[0]), signal.SIGKILL)
        # The programs of a killed worker notice its end.
        until(lambda: semaphore(mount) != first)


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    return "made"


@case
def names_of_semaphores_that_another_user_takes():
    with Served() as mount:
        first = as_user(VICTIM, semaphore, mount)
        until(lambda: not workers(mount))
        eq(as_user(GREEDY, make, first), "made")
        try:
            second = as_user(VICTIM, semaphore, mount)
            true(second.startswith("/dev/shm/") and second != first, second)
        finally:
            if os.path.exists(first):   # a worker that could not start may have removed it
                os.unlink(first)


@case
def worker_with_a_ring_stays():
    with Served() as mount:
        with Ringer(mount, 5, VICTIM):
            with Ringer(mount, 5, GREEDY):
                both = set(workers(mount))
                eq(len(both), 2)
            until(lambda: len(workers(mount)) == 1)
            true(set(workers(mount)) < both, workers(mount))
            eq(as_user(VICTIM, semaphore, mount), as_user(VICTIM, semaphore, mount))


@case
def as_many_workers_as_may_be():
    with Served("--users", "1") as mount:
        with Ringer(mount, 5, GREEDY):
            eq(as_user(VICTIM, semaphore, mount), "EUSERS")
            true(mount.lines("a user gets no worker"), mount.words())
            # Root does not count in the limit.
            with Ringer(mount, 5):
                pass
        until(lambda: as_user(VICTIM, semaphore, mount) != "EUSERS")


@case
def workers_inherit_nothing():
    read, write = os.pipe()
    os.set_inheritable(write, True)
    inode = os.fstat(write).st_ino
    with Served(before=lambda: os.set_inheritable(write, True), close_fds=False) as mount:
        with Ringer(mount, 5):
            for pid in workers(mount):
                held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
                true(f"pipe:[{inode}]" not in held, held)
                with open(f"/proc/{pid}/limits", encoding="utf-8") as f:
                    core = next(line for line in f if line.startswith("Max core file size"))
                eq(core.split()[4:6], ["0", "0"])
    os.close(read)
    os.close(write)


# ------------------------------------------------------------------- leftovers

def count_links(links):
    return len([name for name in os.listdir(links) if name.startswith("0000")])


def memory_of(pid):
    return [name for name in os.listdir("/dev/shm") if f".p{pid}." in name]


@case
def killed_clients_leave_no_memory():
    with Served() as mount:
        for uid in (0, GREEDY):
            ringer = Ringer(mount, 5, uid)
            pid = ringer.process.pid
            true(memory_of(pid), os.listdir("/dev/shm"))
            ringer.process.kill()
            ringer.process.wait()
            until(lambda pid=pid: not memory_of(pid), "its memory stays")
            ringer.end()


@case
def other_memory_stays():
    """Neither another file of that name nor memory that a program named itself is removed."""
    with Served() as mount:
        def publishes(say, wait):
            own = f"/dev/shm/penstock-test-{os.getpid()}"
            for i, name in enumerate((own, f"/dev/shm/hf3fs-iov-00000000-0000-0000-0000-00000000000"
                                      f"1.p{os.getpid()}.s1.n1")):
                with open(name, "wb") as f:
                    f.truncate(4096)
                uuid = f"00000000-0000-0000-0000-00000000000{i}"
                os.symlink(name, f"{mount.dir}/3fs-virt/iovs/{uuid}")
            os.rename(own, own + ".kept")
            os.unlink(name)
            with open(name, "wb") as f:
                f.truncate(4096)
            os.rename(own + ".kept", own)
            say(f"{own} {name}")
            wait()
        with Process(GREEDY, publishes) as p:
            paths = p.hear().split()
            links = f"{mount.dir}/3fs-virt/iovs"
            eq(as_user(GREEDY, count_links, links), "2")
            p.kill()
            p.status()
            until(lambda: as_user(GREEDY, count_links, links) == "0")
        try:
            eq([os.path.exists(path) for path in paths], [True, True])
        finally:
            for path in paths:
                os.unlink(path)


@case
def next_server_removes_what_was_left():
    with Served() as mount:
        ringer = Ringer(mount, 5, GREEDY)
        pid, first = ringer.process.pid, as_user(GREEDY, semaphore, mount)
        worker = int(workers(mount)[0])
        os.kill(worker, signal.SIGSTOP)
        mount.process.kill()
        mount.process.wait()
        # A stopped worker continues, ends, and removes its semaphores.
        until(lambda: not os.path.exists(f"/proc/{worker}") or is_zombie(worker))
        eq(os.path.exists(first), False)
        ringer.process.kill()
        ringer.process.wait()
        true(memory_of(pid), "the memory went by itself")
        with open(first, "wb"):
            pass
        with Served():
            until(lambda: not memory_of(pid) and not os.path.exists(first))
        ringer.end()
        subprocess.run(["umount", "-l", mount.dir], check=True)
        mount.process.returncode = 0


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


if __name__ == "__main__":
    run()
