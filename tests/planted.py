# SPDX-License-Identifier: MIT
"""Plant faults in the sources, one at a time: a test must fail if the check that it tests is gone.

A fault is (name, file, text, replacement, ...): the name says what the fault removes, the text
occurs once in the file, and what follows is the caller's.  PST_SOAK=1 plants all faults, otherwise
only the first.  FAULT=TEXT plants those with that text in their names.  A fault whose text does not
occur once is an error, also if it is not planted.
"""
import os
import signal
import subprocess
import sys
import tempfile
import threading

SOAK = bool(os.environ.get("PST_SOAK"))


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def check(faults, folder):
    for what, file, old, *_ in faults:
        times = read(os.path.join(folder, file)).count(old)
        if times != 1:
            sys.exit(f"faults.py: {what}: {file} has '{old}' {times} times, not once")


def plant(fault, folder, scratch):
    """Write the changed file to the folder scratch.  Return its path."""
    _, file, old, new, *_ = fault
    path = os.path.join(scratch, os.path.basename(file))
    with open(path, "w", encoding="utf-8") as f:
        f.write(read(os.path.join(folder, file)).replace(old, new))
    return path


def environment(scratch, **more):
    """Return the environment of a test that runs in full, with its files in the folder scratch."""
    env = {**os.environ, "PST_TEST_DIR": scratch, **more}
    env.pop("PST_TEST_CASE", None)
    env.pop("PST_SOAK", None)
    return env


def first_failure(command, env, hangs_s=None):
    """Run a test that prints TAP until its first failure, and kill it there.

    command: list of words
    env:     its environment
    hangs_s: seconds after which the test is killed; None: never

    Return the failed case, "crashed", or None if the test passed or was killed after hangs_s: on a
    busy machine, time proves nothing.
    """
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, start_new_session=True) as test:
        hung = threading.Event()

        def end():
            hung.set()
            os.killpg(test.pid, signal.SIGKILL)

        timer = threading.Timer(hangs_s or threading.TIMEOUT_MAX, end)
        timer.daemon = True
        timer.start()
        failed = next((line for line in test.stdout if line.startswith("not ok")), None)
        timer.cancel()
        if failed:
            os.killpg(test.pid, signal.SIGKILL)
        test.communicate()
    if hung.is_set():
        print(f"# {os.path.basename(command[0])} did not end in {hangs_s} s")
        return None
    if failed:
        return failed.strip().removeprefix("not ok ")
    return "crashed" if test.returncode else None


def run(faults, folder, found_by):
    """Plant the faults, and print a line of TAP for each.

    faults:   list of faults
    folder:   the files of the faults are below it
    found_by: called with the fault, the path of the changed file and an empty folder; returns the
              name of the test that failed, or None

    Return True if a fault was not found.
    """
    check(faults, folder)
    only, found = os.environ.get("FAULT", ""), 0
    planted = [f for f in faults if only in f[0]][:None if SOAK or only else 1]
    for nr, fault in enumerate(planted, 1):
        with tempfile.TemporaryDirectory() as scratch:
            by = found_by(fault, plant(fault, folder, scratch), scratch)
        found += by is not None
        print(f"{'ok' if by else 'not ok'} {nr} {fault[0]}" + (f"\n# found by {by}" if by else ""),
              flush=True)
    print(f"# {found} of {len(planted)} were found")
    print(f"1..{len(planted)}")
    return found != len(planted)
