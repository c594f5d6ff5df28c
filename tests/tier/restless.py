#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""restless.py PENSTOCK MODEL MOVER PAUSE: programs that check a file system, on a mount of a set.

Beside each of them a mover moves files of the set to random classes without rest, and each case
goes on until that moved files.  PST_SOAK=1 makes 100,000 operations of the random checker and of
fsx, and gigabytes of fio's.  SEED is the first round's seed, 31 without it; later rounds count up.
FSX is a path of fsx, which no Debian package has: xfstests has it in ltp/fsx.c.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from mount import Set, Skip, Wrong, check

MODEL, MOVER, PAUSE = map(os.path.abspath, sys.argv[2:5])
SOAK = bool(os.environ.get("PST_SOAK"))
LEAST = 100 if SOAK else 3
HANGS_S = 6000 if SOAK else 200
SEED = int(os.environ.get("SEED", "31"))


class Mover:
    """Moves files of the set until the block ends."""

    def __init__(self, s):
        self.s = s
        self.moved = 0

    def __enter__(self):
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen([MOVER, "m", str(SEED)], env=self.s.env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self

    def __exit__(self, *exc):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate()
        if exc[0] is None:
            check(self.process.returncode == 0, "the mover:", self.process.returncode, err)
        if out:
            self.moved = int(out.split()[0])


def run(s, command, **env):
    # The checker's cases have other names.
    env = {k: v for k, v in {**s.env, **env}.items() if k != "PST_TEST_CASE"}
    try:
        done = subprocess.run(command, env=env, cwd=s.base, capture_output=True,
                              text=True, check=False, timeout=HANGS_S)
    except subprocess.TimeoutExpired as e:
        raise Wrong(f"{command[0]} did not end in {HANGS_S} s") from e
    check(done.returncode == 0, command[0], done.stdout[-3000:], done.stderr[-1000:])
    return done.stdout


def restless(s, what, round_):
    """Repeat round_ until files moved during it; then check all checksums."""
    s.mount()
    moved = rounds = 0
    while moved < LEAST:
        check(rounds < 1000, f"{moved} moves in {rounds} rounds")
        with Mover(s) as mover:
            round_(rounds)
        moved += mover.moved
        rounds += 1
    s.umount()
    s.run("tier", "scrub", "m")
    print(f"# {what}: seeds {SEED} to {SEED + rounds - 1}, {rounds} rounds, {moved} moves "
          "meanwhile: 0 different")


def random_checker(s):
    """Run the random checker of mounts, with rings and mappings."""
    ops = 100000 if SOAK else 600

    def round_(i):
        run(s, [MODEL, "--tiers", "--seed", str(SEED + i), "--ops", str(ops), s.dir])

    restless(s, f"random checker, {ops} operations a round", round_)


def fio_verify(s):
    """Write files, close them, and read them in another order; each block has a CRC."""
    if not shutil.which("fio"):
        raise Skip("there is no program fio")
    size = "64m" if SOAK else "1m"

    def round_(i):
        for engine in ("psync", "mmap", "libaio"):
            job = ["fio", "--name=data", f"--directory={s.dir}", f"--ioengine={engine}",
                   f"--size={size}", "--nrfiles=16", "--openfiles=2", "--bsrange=4k-64k",
                   "--verify=crc32c", "--verify_fatal=1", f"--randseed={SEED + i}",
                   "--allow_file_create=1",
                   "--fallocate=none", "--file_service_type=roundrobin"]
            run(s, [*job, "--rw=randwrite", "--do_verify=1"])
            # Files written a while ago, which have moved since.
            run(s, [*job, "--rw=randwrite", "--verify_only=1"])
            for name in os.listdir(s.dir):
                os.unlink(s.path(name))

    restless(s, f"fio, {size} by three engines a round", round_)


def fsx(s):
    """Run fsx, which often closes and reopens its file; the file moves in between."""
    program = os.environ.get("FSX") or shutil.which("fsx")
    if not program:
        raise Skip("there is no program fsx")
    ops = 100000 if SOAK else 2000

    def round_(i):
        run(s, [program, "-q", "-c", "20", "-S", str(SEED + i), "-N", str(ops), "-P", s.base,
                s.path(f"fsx{i}")], LD_PRELOAD=PAUSE, PAUSE_DIR=s.dir, PAUSE_MS="20")

    restless(s, f"fsx, {ops} operations a round", round_)


def main():
    cases = [random_checker, fio_verify, fsx]
    only = [c for c in os.environ.get("PST_TEST_CASE", "").split(",") if c]
    nr = failed = 0
    for case in cases:
        if only and case.__name__ not in only:
            continue
        nr += 1
        with tempfile.TemporaryDirectory() as scratch:
            s = Set(scratch)
            try:
                if not os.access("/dev/fuse", os.W_OK) or os.geteuid() != 0:
                    raise Skip("/dev/fuse, and root to mount")
                case(s)
                print(f"ok {nr} {case.__name__}", flush=True)
            except Skip as e:
                print(f"ok {nr} {case.__name__} # SKIP {e}")
            except (Wrong, OSError) as e:
                failed += 1
                print(f"not ok {nr} {case.__name__}")
                print("\n".join("# " + line for line in str(e).splitlines()), flush=True)
            finally:
                if os.path.ismount(s.dir):
                    subprocess.run(["umount", "-l", s.dir], check=False)
    print(f"1..{nr}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
