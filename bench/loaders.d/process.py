# SPDX-License-Identifier: MIT
"""A loader's process, which answers requests line by line, within a time limit."""
import json
import os
import select
import signal
import subprocess
import tempfile
import time

GRACE = 20  # seconds for a process to end cleanly


class Broken(Exception):
    """A failure, described in one line."""


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


class Process:
    def __init__(self, command, files, patience):
        self.patience = patience
        self.errors = tempfile.TemporaryFile()
        self.begun = time.monotonic()
        # Start a new session, so that its children can be killed with it.
        self.popen = subprocess.Popen(command + files, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.errors,
                                      start_new_session=True)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()
        for file in (self.popen.stdin, self.popen.stdout, self.errors):
            try:
                file.close()
            except BrokenPipeError:
                pass

    def line(self):
        """Return the next line that the process prints, or None at the end of its output."""
        until = time.monotonic() + self.patience
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.popen.stdout], [], [], left)[0]:
                raise Broken(f"no answer within {self.patience:g} s, the limit of --patience")
            data = os.read(self.popen.stdout.fileno(), 1 << 20)
            if not data:
                return None
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def answer(self, event):
        line = self.line()
        if line is None:
            raise Broken(self.last_words())
        try:
            found = json.loads(line)
        except ValueError:
            raise Broken("an answer that is no JSON") from None
        if not isinstance(found, dict):
            raise Broken("an answer that is no object of JSON")
        if found.get("event") != event:
            raise Broken(found.get("text", "an answer that nobody asked for"))
        return found

    def ready(self):
        """Wait until the process is ready to load.  Return its description, with start_s in
        seconds."""
        found = self.answer("ready")
        found["start_s"] = time.monotonic() - self.begun
        return found

    def load(self, verify):
        try:
            self.popen.stdin.write(b"load verify\n" if verify else b"load\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise Broken(self.last_words()) from None
        return self.answer("load")

    def end(self):
        """Tell the process that no more loads come, so that it can clean up."""
        try:
            self.popen.stdin.close()
            self.popen.wait(GRACE)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass

    def last_words(self):
        """Return how the process ended, with the first line of its standard error."""
        try:
            status = self.popen.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "it closed its output and did not end"
        self.errors.seek(0)
        words = self.errors.read(4000).decode(errors="replace").strip().split("\n")[0]
        if status < 0:
            words = f"ended by {signal_name(-status)}" + (words and ": " + words)
        return words or f"ended with status {status} and no word"
