#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""many.py PENSTOCK DRIVE: a set of many small files, and recovery after a move in it was killed.

2,000 files, with PST_SOAK=1 1,000,000, or PST_FILES.  Prints the duration of each step.
"""
import os
import resource
import subprocess
import sys
import tempfile
import time

PENSTOCK, DRIVE = sys.argv[1:3]
FILES = int(os.environ.get("PST_FILES") or (1000000 if os.environ.get("PST_SOAK") else 2000))
IN_A_DIR = 1000


def run(command, env, **kwargs):
    began = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, **kwargs)
    return done, time.monotonic() - began


def main():
    with tempfile.TemporaryDirectory() as base:
        env = dict(os.environ, PST_TIER_DIR=os.path.join(base, "state"))
        roots = [os.path.join(base, c) for c in ("nvme", "ssd", "hdd")]
        for root in roots:
            os.mkdir(root)
        subprocess.run([DRIVE, "init", "m", *roots], env=env, check=True)
        for i in range(0, FILES, IN_A_DIR):
            path = os.path.join(roots[2], f"d{i // IN_A_DIR}")
            os.mkdir(path)
            for k in range(min(IN_A_DIR, FILES - i)):
                with open(f"{path}/f{k}", "wb") as f:
                    f.write(b"x")
        status, first = run([PENSTOCK, "tier", "status", "m"], env)
        ok = status.returncode == 0 and f"{FILES} files" in status.stdout
        print(f"{'ok' if ok else 'not ok'} 1 status\n# {status.stderr}", flush=True)
        size = sum(os.path.getsize(os.path.join(base, "state", "m", name))
                   for name in ("catalog.db", "catalog.db-wal")
                   if os.path.exists(os.path.join(base, "state", "m", name)))
        listed, ls = run([PENSTOCK, "tier", "ls", "m"], env)
        ok = listed.returncode == 0 and listed.stdout.count("\n") == FILES + 1
        print(f"{'ok' if ok else 'not ok'} 2 ls\n# {listed.stderr}", flush=True)
        # Kill the driver in the middle of a move, which makes more than 25 calls.
        killed = subprocess.run([DRIVE, "move", "m", "d0/f0", "nvme"], check=False,
                                env=dict(env, DRIVE_DIE_AT="25", DRIVE_MOVE_ALONE="1"))
        again, recovered = run([PENSTOCK, "tier", "status", "m"], env)
        ok = (killed.returncode == 9 and again.returncode == 0 and
              f"{FILES} files" in again.stdout and "interrupted: 1 undone" in again.stdout)
        print(f"{'ok' if ok else 'not ok'} 3 recovery\n# {again.stderr}", flush=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"# {FILES} files: first scan {first:.2f} s, ls {ls:.2f} s, recovery with its scan "
              f"{recovered:.2f} s, catalogue {size / FILES:.0f} bytes a file, "
              f"{peak / 1024:.0f} MiB of memory at most")
        print("1..3")


if __name__ == "__main__":
    sys.exit(main())
