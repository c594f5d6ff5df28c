# SPDX-License-Identifier: MIT
"""A server of the storage service for tests, and the directory that it serves."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import client as c
from cases import eq, run_cases, true

work = tempfile.mkdtemp(prefix="serve-")
root = f"{work}/root"
sanitized = os.environ.get("PST_TEST_SANITIZED")  # sanitizers keep freed memory for a while


class Server:
    def __init__(self, *options, listen="127.0.0.1:0", before=None, where=root, program=None,
                 env=None):
        self.process = subprocess.Popen(
            [program or os.environ["PENSTOCK"], "serve", "--root", where, "--listen", listen,
             *options],
            stderr=subprocess.PIPE, text=True, preexec_fn=before, env=env)
        self.lines = []
        line = self.process.stderr.readline()
        match = re.search(r"listening on (?:unix:(.*)|(.*):(\d+))$", line)
        true(match, line)
        self.address = match[1] or (match[2], int(match[3]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)
        eq(self.process.returncode, 0)

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(c.WAIT_S)
        self.process.stderr.close()

    def says(self, text):
        """Wait until the server prints a line with that text."""
        while not any(text in line for line in self.lines):
            line = self.process.stderr.readline()
            true(line, f"{text} is not in {self.lines}")
            self.lines.append(line)

    def client(self, **fields):
        return c.Client(self.address, **fields)

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def file(name, content):
    with open(f"{root}/{name}", "wb") as f:
        f.write(content)


def content_of(name):
    with open(f"{root}/{name}", "rb") as f:
        return f.read()


def soon(true_now):
    end = time.monotonic() + c.WAIT_S
    while not true_now():
        true(time.monotonic() < end, "not in time")
        time.sleep(0.01)


def run():
    def fresh():
        shutil.rmtree(root, ignore_errors=True)
        os.mkdir(root)
    fresh()
    good = run_cases(after=fresh)
    shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if good else 1)
