# SPDX-License-Identifier: MIT
"""Files that replace others: attributes that they keep, and what a killed save leaves."""
import contextlib
import errno
import fcntl
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
import time

from tap import Skip, case, eq, file, gives, numpy, run, torch, true, work

import penstock
from penstock import _replace
from penstock.safetensors import load_file, save_file

ACL = "system.posix_acl_access"
# ACL: owner, user 1234, group, mask, others.
ENTRIES = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in (
    (0x01, 6, 0xffffffff), (0x02, 6, 1234), (0x04, 4, 0xffffffff), (0x10, 6, 0xffffffff),
    (0x20, 0, 0xffffffff)))


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@contextlib.contextmanager
def without_nameless_files():
    """Simulate a file system without O_TMPFILE, such as NFS."""
    flag, os.O_TMPFILE = os.O_TMPFILE, 0
    try:
        yield
    finally:
        os.O_TMPFILE = flag


def both_ways(function):
    """Run a case without nameless files, and with them if they exist."""
    def ways():
        function()
        with without_nameless_files():
            function()
    ways.__name__ = function.__name__
    return case(ways)


def folder(name):
    path = f"{work}/{name}"
    subprocess.run(["rm", "-rf", path], check=True)
    os.mkdir(path)
    return path


@both_ways
def the_mode_is_kept():
    np = numpy()
    path = f"{folder('mode')}/m"
    before = os.umask(0o022)
    try:
        save_file({"a": np.ones(3)}, path)
        eq(oct(mode(path)), "0o644")
        for bits in (0o600, 0o400, 0o666, 0o777):
            os.chmod(path, bits)
            save_file({"a": np.ones(3)}, path)
            eq(oct(mode(path)), oct(bits))
        # Set-id bits belonged to the old file.
        os.chmod(path, 0o6755)
        save_file({"a": np.ones(3)}, path)
        eq(oct(mode(path)), "0o755")
        os.umask(0o077)
        save_file({"a": np.ones(3)}, path + "-new")
        eq(oct(mode(path + "-new")), "0o600")
        save_file({"a": np.ones(3)}, path)
        eq(oct(mode(path)), "0o755")
    finally:
        os.umask(before)
    eq(sorted(os.listdir(os.path.dirname(path))), ["m", "m-new"])


@both_ways
def nobody_reads_a_private_file_meanwhile():
    np = numpy()
    path = f"{folder('meanwhile')}/m"
    save_file({"a": np.ones(3)}, path)
    os.chmod(path, 0o600)
    seen, real = [], _replace.File.write_from

    def look(self, *args, **options):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                facts = os.stat(f"/proc/self/fd/{name}")
                if os.readlink(f"/proc/self/fd/{name}").startswith(os.path.dirname(path) + "/"):
                    seen.append(oct(stat.S_IMODE(facts.st_mode)))
        return real(self, *args, **options)
    _replace.File.write_from = look
    try:
        save_file({"a": np.ones(3)}, path)
    finally:
        _replace.File.write_from = real
    true(seen and set(seen) == {"0o600"}, seen)


@case
def shards_and_their_index_keep_theirs():
    t = torch()
    from penstock import torch as pt
    path = folder("shards")
    pt.save({"a": t.ones(10), "b": t.ones(10)}, path, shard_bytes=40)
    for name in os.listdir(path):
        os.chmod(f"{path}/{name}", 0o640 if name.endswith(".json") else 0o600)
    pt.save({name: t.ones(10) for name in "abc"}, path, shard_bytes=40)
    eq(len(os.listdir(path)), 4)
    for name in os.listdir(path):
        eq((name, oct(mode(f"{path}/{name}"))),
           (name, "0o640" if name.endswith(".json") else "0o600"))


@both_ways
def the_owner_is_kept_where_that_is_allowed():
    np = numpy()
    if os.geteuid():
        raise Skip("needs root")
    path = f"{folder('owner')}/m"
    save_file({"a": np.ones(3)}, path)
    os.chown(path, 12345, 23456)
    os.chmod(path, 0o640)
    save_file({"a": np.ones(3)}, path)
    facts = os.stat(path)
    eq((facts.st_uid, facts.st_gid, oct(mode(path))), (12345, 23456, "0o640"))


def as_user(groups, path):
    """Save as an ordinary user."""
    code = ("import os, sys, numpy, penstock.safetensors as st\n"
            "st.save_file({'a': numpy.ones(3)}, sys.argv[1] + '-warm')\n"
            "os.setgroups(eval(sys.argv[2])), os.setgid(4321), os.setuid(4321)\n"
            "st.save_file({'a': numpy.zeros(3)}, sys.argv[1])")
    subprocess.run([sys.executable, "-c", code, path, repr(groups)], check=True)
    os.unlink(path + "-warm")
    facts = os.stat(path)
    return facts.st_uid, facts.st_gid, oct(mode(path))


@case
def an_ordinary_user_keeps_what_he_may():
    np = numpy()
    if os.geteuid():
        raise Skip("needs root")
    os.chmod(work, 0o755)
    path = f"{folder('user')}/m"
    os.chmod(os.path.dirname(path), 0o777)
    for groups, bits, want in (([4321, 23456], 0o640, (4321, 23456, "0o640")),
                               # Rights of one group are not given to another.
                               ([4321], 0o640, (4321, 4321, "0o600")),
                               ([4321], 0o664, (4321, 4321, "0o644")),
                               ([4321], 0o604, (4321, 4321, "0o604"))):
        save_file({"a": np.ones(3)}, path)
        os.chown(path, 12345, 23456)
        os.chmod(path, bits)
        eq(as_user(groups, path), want)
        eq(load_file(path)["a"].tolist(), [0, 0, 0])


def set_acl(path, name=ACL):
    try:
        os.setxattr(path, name, ENTRIES)
    except OSError as e:
        raise Skip("ACLs on the file system") from e


@both_ways
def the_acl_is_kept():
    np = numpy()
    path = f"{folder('acl')}/m"
    save_file({"a": np.ones(3)}, path)
    set_acl(path)
    save_file({"a": np.ones(3)}, path)
    eq((os.getxattr(path, ACL), oct(mode(path))), (ENTRIES, "0o660"))
    if not os.geteuid():
        # With another group, the ACL entry of the file's group gets the rights of others.
        os.chmod(work, 0o755)
        os.chmod(os.path.dirname(path), 0o777)
        os.chown(path, 12345, 23456)
        eq(as_user([4321], path), (4321, 4321, "0o660"))
        eq(os.getxattr(path, ACL), ENTRIES.replace(struct.pack("<HHI", 4, 4, 0xffffffff),
                                                   struct.pack("<HHI", 4, 0, 0xffffffff)))


@both_ways
def the_default_of_the_folder_is_for_new_files():
    np = numpy()
    path = f"{folder('default')}/m"
    save_file({"a": np.ones(3)}, path)
    os.chmod(path, 0o640)
    set_acl(os.path.dirname(path), "system.posix_acl_default")
    save_file({"a": np.ones(3)}, path)
    eq(oct(mode(path)), "0o640")
    e = gives(OSError, os.getxattr, path, ACL)
    eq(e.errno, errno.ENODATA)
    save_file({"a": np.ones(3)}, path + "-new")
    true(os.getxattr(path + "-new", ACL))


@both_ways
def links():
    np = numpy()
    path = folder("links")
    save_file({"a": np.ones(3)}, f"{path}/old")
    os.chmod(f"{path}/old", 0o600)
    os.symlink("old", f"{path}/soft")
    os.link(f"{path}/old", f"{path}/hard")
    save_file({"a": np.zeros(3)}, f"{path}/soft")
    true(os.path.islink(f"{path}/soft"))
    eq((load_file(f"{path}/old")["a"].tolist(), oct(mode(f"{path}/old"))), ([0, 0, 0], "0o600"))
    eq(load_file(f"{path}/hard")["a"].tolist(), [1, 1, 1])
    os.symlink("nothing", f"{path}/dead")
    save_file({"a": np.zeros(3)}, f"{path}/dead")
    true(os.path.islink(f"{path}/dead") and os.path.isfile(f"{path}/nothing"))


@case
def links_that_another_user_planted_are_not_followed():
    np = numpy()
    with open("/proc/sys/fs/protected_symlinks", encoding="ascii") as f:
        if os.geteuid() or f.read().strip() == "0":
            raise Skip("needs root and the sysctl fs.protected_symlinks")
    path = folder("planted")
    os.chown(path, 12345, 12345)
    os.chmod(path, 0o1777)
    victim = file("victim", b"of root")
    os.symlink(victim, f"{path}/m")
    os.chown(f"{path}/m", 12346, 12346, follow_symlinks=False)
    e = gives(penstock.Error, save_file, {"a": np.zeros(3)}, f"{path}/m")
    eq((e.errno, e.filename), (errno.EACCES, f"{path}/m"))
    with open(victim, "rb") as f:
        eq(f.read(), b"of root")


def dies(path, nameless, name="sync"):
    """Save in a process that is killed after writing the bytes."""
    code = ("import os, signal, sys, numpy, penstock, penstock.safetensors as st\n"
            "if not int(sys.argv[2]): os.O_TMPFILE = 0\n"
            f"setattr({'os' if name == 'replace' else 'penstock.File'}, {name!r},"
            " lambda *_: os.kill(os.getpid(), signal.SIGKILL))\n"
            "st.save_file({'a': numpy.ones(3000)}, sys.argv[1])")
    done = subprocess.run([sys.executable, "-c", code, path, str(int(nameless))], check=False)
    eq(done.returncode, -signal.SIGKILL)


def has_nameless_files(path):
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True


@case
def a_save_that_is_killed_leaves_nothing():
    numpy()
    path = folder("killed")
    if not has_nameless_files(path):
        raise Skip("O_TMPFILE on the file system")
    dies(f"{path}/m", True)
    eq(os.listdir(path), [])


@case
def the_next_save_clears_what_a_killed_one_left():
    np = numpy()
    path = folder("cleared")
    # The first one is killed before it writes a byte.
    for nameless, name in ((False, "write"), (False, "sync"), (False, "replace"),
                           (True, "replace")):
        if nameless and not has_nameless_files(path):
            continue
        dies(f"{path}/m", nameless, name)
        left, = os.listdir(path)
        true(left.startswith("m.") and left.endswith(".tmp"), left)
        # Saves of another name leave the file, and so do saves under another kernel boot.
        save_file({"a": np.ones(3)}, f"{path}/n")
        save_file({"a": np.ones(3)}, f"{path}/m.m")
        real, _replace._boot = _replace._boot, lambda: "0" * 12
        try:
            save_file({"a": np.ones(3)}, f"{path}/m")
        finally:
            _replace._boot = real
        eq(sorted(os.listdir(path)), sorted(["m", "m.m", left, "n"]))
        # The kernel frees a dead process' io_uring, with its locks, in the background.
        end = time.monotonic() + 60
        while left in os.listdir(path) and time.monotonic() < end:
            save_file({"a": np.ones(3)}, f"{path}/m")
        eq(sorted(os.listdir(path)), ["m", "m.m", "n"])
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")


@case
def saves_under_way_are_not_cleared():
    np = numpy()
    path = f"{folder('under-way')}/m"
    # Two more writers, in another process and another thread, which wait before they publish.
    code = ("import os, sys, numpy, penstock, penstock.safetensors as st\n"
            "os.O_TMPFILE, real = 0, penstock.File.sync\n"
            "def sync(self):\n"
            "    print('here', flush=True), sys.stdin.readline(), real(self)\n"
            "penstock.File.sync = sync\n"
            "st.save_file({'a': numpy.full(3, 7)}, sys.argv[1])")
    reached, go, real = threading.Event(), threading.Event(), penstock.File.sync

    def waits(self):
        if threading.current_thread() is not threading.main_thread():
            reached.set()
            go.wait(60)
        real(self)
    with without_nameless_files(), subprocess.Popen(
            [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True) as other:
        try:
            eq(other.stdout.readline(), "here\n")
            penstock.File.sync = waits
            thread = threading.Thread(target=save_file, args=({"a": np.full(3, 8)}, path))
            thread.start()
            true(reached.wait(60))
            save_file({"a": np.full(3, 9)}, path)
            eq(len(os.listdir(os.path.dirname(path))), 3)
            eq(load_file(path)["a"].tolist(), [9, 9, 9])
            go.set()
            thread.join()
            eq(load_file(path)["a"].tolist(), [8, 8, 8])
            other.stdin.write("\n")
            other.stdin.flush()
            eq(other.wait(60), 0)
        finally:
            penstock.File.sync = real
            go.set()
            other.kill()
    eq(load_file(path)["a"].tolist(), [7, 7, 7])
    eq(os.listdir(os.path.dirname(path)), ["m"])


@case
def a_file_that_was_cleared_before_its_lock_is_made_anew():
    np = numpy()
    path, real, cleared = f"{folder('early')}/m", _replace._lock, []

    def late(fd):
        # Another process looks between the two steps, before and after it has its lock.
        other = os.readlink(f"/proc/self/fd/{fd}")
        if len(cleared) == 0:
            _replace._clear(os.path.dirname(path), "m", _replace._boot())
            true(not os.path.exists(other), other)
        elif len(cleared) == 1:
            held.append(os.open(other, os.O_RDONLY))
            fcntl.flock(held[0], fcntl.LOCK_SH)
            os.unlink(other)
        cleared.append(other)
        return real(fd)
    held = []
    _replace._lock = late
    try:
        with without_nameless_files():
            save_file({"a": np.full(3, 5)}, path)
    finally:
        _replace._lock = real
        for fd in held:
            os.close(fd)
    eq((len(cleared), len(set(cleared))), (3, 3))
    eq(load_file(path)["a"].tolist(), [5, 5, 5])
    eq(os.listdir(os.path.dirname(path)), ["m"])


@both_ways
def a_save_that_fails_leaves_nothing():
    np = numpy()
    path = f"{folder('fails')}/m"
    save_file({"a": np.ones(3)}, path)
    used, real = len(os.listdir("/proc/self/fd")), os.replace

    def fails(*_):
        raise OSError(errno.ENOSPC, "full")
    os.replace = fails
    try:
        gives(errno.ENOSPC, save_file, {"a": np.zeros(3)}, path)
    finally:
        os.replace = real
    eq(os.listdir(os.path.dirname(path)), ["m"])
    eq(load_file(path)["a"].tolist(), [1, 1, 1])
    eq(len(os.listdir("/proc/self/fd")), used)


run()
