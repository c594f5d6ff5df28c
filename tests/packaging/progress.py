# SPDX-License-Identifier: MIT
"""progress.py ROOT: tests/progress.py keeps a command's output and status, and shows its progress
only on a terminal."""
import os
import pty
import subprocess
import sys
import tempfile

PROGRAM = f"{sys.argv[1]}/tests/progress.py"
LINES = "ninja: Entering directory\n[1/20] Compiling a.c\n 2/20 some test  OK\nwarning: x\n"


def run(status, terminal):
    """Run a command.  Return (status, log, standard output, standard error)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, PROGRAM, f"{folder}/log", "build/x", "sh", "-c",
                   f"printf '%s' \"$0\" && echo >&2 error && {status}", LINES]
        if terminal:
            ours, theirs = pty.openpty()
        else:
            ours, theirs = os.pipe()
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:
            pass  # the terminal's other end is closed
        os.close(ours)
        with open(f"{folder}/log", encoding="utf-8") as log:
            return done.returncode, log.read(), done.stdout.decode(), said.decode()


def result(number, name, got, want):
    print(f"{'ok' if got == want else 'not ok'} {number} {name}")
    if got != want:
        print(f"# {got!r}\n# and not {want!r}")
    return got == want


ERASE = "\033[K"
good = [
    result(1, "elsewhere_nothing_is_shown", run("exit 0", False), (0, LINES + "error\n", "", "")),
    result(2, "a_terminal_has_one_line", run("exit 0", True),
           (0, LINES + "error\n", "", f"\rbuild/x [1/20] Compiling a.c{ERASE}"
            f"\rbuild/x [2/20] some test OK{ERASE}\r{ERASE}")),
    result(3, "the_status_is_the_commands", run("exit 7", False)[0], 7),
    result(4, "a_signal_is_told", run("kill -TERM $$", False)[0], 128 + 15),
]
print("1..4")
sys.exit(0 if all(good) else 1)
