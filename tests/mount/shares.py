# SPDX-License-Identifier: MIT
"""What each user of a mount may have, and that who takes all he can leaves something to others."""
import ctypes
import errno
import os
import resource

from served import Process, Ringer, Served, as_user, case, eq, run, true

GREEDY, VICTIM, THIRD = 1000, 1001, 1002
FILES = 4000
CAP_SYS_RESOURCE, PR_CAPBSET_DROP = 24, 24


def few_files():
    """A server that may not raise its limit."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def open_all(path, say, wait):
    """Open it until that fails, tell how often and why, and once more after one was closed."""
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
    """What everybody may do."""
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
            # What he had is everybody's again.
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
    """A tree that is removed takes a descriptor for each level, which are the user's, too."""
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
        # Root's share is all that is left.
        eq(as_user(0, remove), "None")
        eq(os.path.exists(f"{mount.source}/deep"), False)


if __name__ == "__main__":
    run()
