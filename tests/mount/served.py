# SPDX-License-Identifier: MIT
"""Mounts for tests in Python that check the server itself.

    with Served() as mount:
        eq(os.listdir(mount.dir), [])

PENSTOCK_MOUNT is the path of the server to test, MOUNT_RINGER of the program with a ring.
"""
import errno
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from cases import Skip, case, eq, run_cases, true  # noqa: E402 # pylint: disable=C0413

__all__ = ["PROGRAM", "RINGER", "Process", "Ringer", "Served", "Skip", "as_user", "case", "eq",
           "keys_of", "need_root", "program_with", "read_all", "run", "true", "until"]

PROGRAM = os.environ.get("PENSTOCK_MOUNT", "")
RINGER = os.environ.get("MOUNT_RINGER", "")
SOON = 60  # longest wait, s


def until(condition, what="it does not happen"):
    """Wait until condition() is true and return its value."""
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(what)


def need_root():
    if os.geteuid():
        raise Skip("root, to mount")


def program_with(worker, mode=0o755):
    """Copy the server to a directory whose worker is that script; None: no worker."""
    need_root()
    base = subprocess.run(["mktemp", "-d", "-p", os.environ.get("TMPDIR", "/var/tmp"),
                           "penstock-test-XXXXXX"], check=True, capture_output=True,
                          text=True).stdout.strip()
    os.chmod(base, 0o755)
    shutil.copy(PROGRAM, f"{base}/penstock-mount")
    if worker is not None:
        with open(f"{base}/penstock-worker", "w", encoding="utf-8") as f:
            f.write(worker)
        os.chmod(f"{base}/penstock-worker", mode)
    return f"{base}/penstock-mount"


class Served:
    """A mount: its source, its server (process), and the server's log (words())."""

    def __init__(self, *options, env=None, program=None, stderr=None, metrics=True, port=None,
                 before=None, close_fds=True):
        need_root()
        self.base = tempfile.mkdtemp(prefix="penstock-test-", dir=os.environ.get("TMPDIR"))
        os.chmod(self.base, 0o755)
        self.dir, self.source = f"{self.base}/dir", f"{self.base}/src"
        self.port = port
        self.socket, self.log = f"{self.base}/socket", f"{self.base}/log"
        os.mkdir(self.dir)
        os.mkdir(self.source)
        os.chmod(self.source, 0o777)
        words = {k: v for k, v in os.environ.items() if k not in ("PST_LOG", "JOURNAL_STREAM")}
        if port:
            words["PST_LOG"] = "info"  # its log has the socket's name
        words.update(env or {})
        place = ["--metrics", port or self.socket] if metrics else []
        # Append: the server shares the file, and must not overwrite from its own position.
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [program or PROGRAM, "--foreground", *place, *options, "--source",
                 self.name_of_source(), self.dir], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=stderr or log, env=words, preexec_fn=before,
                close_fds=close_fds)
        self.ready = self.process.stdout.readline().decode()

    def name_of_source(self):
        return self.source

    def __enter__(self):
        if not self.ready:
            self.process.wait()
            text = self.words()
            self.__exit__(None, None, None)
            if "usermount" in text or "fuse:" in text:
                raise Skip("a FUSE that can be mounted")
            raise AssertionError(f"the server ended: {text}")
        os.stat(self.dir)  # after this FUSE_INIT is done
        if self.port:
            self.use_port()
        return self

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(SOON)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        if os.path.ismount(self.dir):
            subprocess.run(["umount", "-l", self.dir], check=False)
        if kind:
            sys.stdout.write("".join(f"# {line}\n" for line in self.words().splitlines()))
        shutil.rmtree(self.base, ignore_errors=True)
        if not kind and self.ready:
            eq(status, 0)

    def words(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def lines(self, text):
        return [line for line in self.words().splitlines() if text in line]

    def ask(self, request=b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
        """Send a request for metrics.  Return the whole answer as bytes."""
        with self.connect() as s:
            s.sendall(request)
            return read_all(s)

    def use_port(self):
        """Send later requests to the port that the log names."""
        line = until(lambda: self.lines("numbers are told"), self.words())[0]
        host, port = re.search(r'socket="?\[?([0-9.:]+?)\]?:(\d+)"?(?: |$)', line).groups()
        self.socket = (host, int(port))

    def connect(self):
        if isinstance(self.socket, tuple):
            return socket.create_connection(self.socket, SOON)
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.socket)
        s.settimeout(SOON)
        return s

    def text(self):
        answer = self.ask()
        true(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer[:300])
        return answer.split(b"\r\n\r\n", 1)[1].decode("utf-8")

    def numbers(self):
        """Return the metrics: {'name{label="value"}': number}."""
        return {key: float(value) for key, value in
                (line.rsplit(" ", 1) for line in self.text().splitlines()
                 if not line.startswith("#"))}

    def file(self, name, size):
        path = f"{self.source}/{name}"
        with open(path, "wb") as f:
            f.write(os.urandom(size))
        return f"{self.dir}/{name}"


class Process:
    """A process of a user that calls a function, then lives until end().

    function(say, wait): say(text) sends a line to hear(); wait() returns after go().
    """

    def __init__(self, uid, function):
        self.how = None
        out, self.out = os.pipe()
        into, self.into = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(out)
                os.close(self.into)
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                function(lambda text: os.write(self.out, (text + "\n").encode()),
                         lambda: os.read(into, 1))
                status = 0
            except BaseException as e:  # pylint: disable=W0718
                os.write(self.out, (repr(e) + "\n").encode())
            finally:
                os._exit(status)
        os.close(self.out)
        os.close(into)
        self.out = out

    def hear(self):
        """Return the next line, which must come."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.out], [], [], SOON)
            true(ready, "the process says nothing")
            byte = os.read(self.out, 1)
            true(byte, "the process has ended")
            line += byte
        return line[:-1].decode()

    def says(self):
        """Return True if a line is available."""
        return bool(select.select([self.out], [], [], 0)[0])

    def go(self):
        os.write(self.into, b"1")

    def kill(self):
        if self.how is None:
            os.kill(self.pid, signal.SIGKILL)

    def status(self):
        """Wait for the end.  Return the exit code of os.waitstatus_to_exitcode()."""
        def ended():
            pid, how = os.waitpid(self.pid, os.WNOHANG)
            self.how = how if pid else None
            return pid
        if self.how is None:
            until(ended, "the process hangs")
        return os.waitstatus_to_exitcode(self.how)

    def end(self):
        os.close(self.into)
        self.status()
        os.close(self.out)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            self.kill()
        self.end()


def as_user(uid, function, *args):
    """Call function(*args) as that user.  Return its result, or an exception's errno name, as text.
    """
    def call(say, _):
        try:
            say(str(function(*args)))
        except OSError as e:
            say(errno.errorcode[e.errno])
    with Process(uid, call) as p:
        return p.hear()


def read_all(s):
    parts = []
    while True:
        part = s.recv(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


class Ringer:
    """A program of a user that makes some reads, and keeps its ring."""

    def __init__(self, mount, reads, uid=0):
        mount.file(f"data{uid}", 65536)
        self.process = subprocess.Popen(
            [RINGER, mount.dir, f"data{uid}", str(reads), str(uid)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        line = self.process.stdout.readline().decode()
        if line != "done\n":
            self.end()
            raise AssertionError(f"the program with a ring says: {line}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.end()

    def end(self):
        self.process.communicate(timeout=SOON)


def keys_of(line):
    """Parse a line of the log, which must be valid.  Return it as a dictionary."""
    line = re.sub(r"^<\d>", "", line)
    found = re.findall(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^ "]+)(?: |$)', line)
    rebuilt = " ".join(f"{key}={value}" for key, value in found)
    eq(rebuilt, line)
    return {key: value.strip('"') for key, value in found}


def run():
    without = ""
    if not PROGRAM or not os.access(PROGRAM, os.X_OK):
        without = "penstock-mount"
    elif not os.access("/dev/fuse", os.W_OK):
        without = "/dev/fuse"
    sys.exit(0 if run_cases(without=without) else 1)
