#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""progress.py LOG WHAT COMMAND...: run COMMAND with its output in LOG, and show its progress.

COMMAND is ninja or meson test, whose lines begin with [3/120] or 3/120.  On a terminal, standard
error has one line that is rewritten and finally erased; otherwise it gets a line per minute.
Nothing is printed on standard output.  The exit status is COMMAND's.
"""
import os
import re
import signal
import subprocess
import sys
import time

STEP = re.compile(rb"\s*\[?(\d+/\d+)\]? +(.*)")
MINUTE = 60


def main():
    log, what, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    terminal = sys.stderr.isatty()
    said = time.monotonic()
    with open(log, "wb") as out, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        # Ctrl-C reaches the command as well, which then prints its results.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in process.stdout:
            out.write(line)
            out.flush()
            step = STEP.match(line)
            if not step:
                continue
            text = f"{what} [{step[1].decode()}]"
            if terminal:
                text += " " + " ".join(step[2].decode(errors="replace").split())
                columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
                sys.stderr.write(f"\r{text[:columns - 1]}\033[K")
                sys.stderr.flush()
            elif time.monotonic() - said >= MINUTE:
                said = time.monotonic()
                print(text, file=sys.stderr, flush=True)
        if terminal:
            sys.stderr.write("\r\033[K")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


sys.exit(main())
