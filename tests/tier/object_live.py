# SPDX-License-Identifier: MIT
"""Random operations on a set whose coldest class is a real server; not run by CI.

    object_live.py PENSTOCK [OPERATIONS]

AWS_ENDPOINT_URL and the other AWS variables name the server; botocore makes the bucket.  Files are
written, moved, read, removed, and movers are killed at random times.  Each file is compared with a
model.  Prints the counts, and fails at the first difference.
"""
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import botocore.session
from penstock import File

PENSTOCK = sys.argv[1]
TAKE = int(sys.argv[2]) if len(sys.argv) > 2 else 200
CLASSES = ("nvme", "hdd", "object", "object")
NAMES = ("a", "dir/b", "c d+e", "é/ü", "x=y&z?#%41", "(f)!*'~")
client = botocore.session.get_session().create_client(
    "s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
choose = random.Random(int(os.environ.get("SEED", "7")))
counts = collections.Counter()
work = tempfile.mkdtemp(prefix="object-live-")
os.environ["PST_TIER_DIR"] = f"{work}/state"


def tier(*words, status=0):
    done = subprocess.run([PENSTOCK, "tier", *words], capture_output=True, text=True, check=False)
    if done.returncode != status:
        sys.exit(f"tier {words}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def content():
    size = choose.choice((0, 1, 4097, 1 << 20, (16 << 20) - 1, (16 << 20) + 1, 35 << 20))
    return choose.randbytes(size)


def write(model, name):
    data = content()
    if name in model and choose.random() < 0.5:
        # A file in a bucket is moved to a disk first.
        with File(f"tier://s/{name}", "w") as f:
            if data:
                f.write(data, 0)
            f.sync()
        counts["writes in place"] += 1
    else:
        if name in model:
            subprocess.run([PENSTOCK, "rm", f"tier://s/{name}"], check=True)
        path = f"{work}/hdd/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        tier("pin", "s", name)
        tier("unpin", "s", name)
        counts["new files"] += 1
    model[name] = data


def kill(name):
    # pylint: disable-next=R1732
    mover = subprocess.Popen([PENSTOCK, "tier", "migrate", "s", name, "--to",
                              choose.choice(CLASSES)], stdout=subprocess.DEVNULL)
    time.sleep(choose.random() * 0.3)
    mover.send_signal(signal.SIGKILL)
    counts["killed moves"] += mover.wait() == -signal.SIGKILL
    tier("status", "s")


def read(model, name):
    with File(f"tier://s/{name}") as f:
        off = choose.randrange(len(model[name]) + 1)
        got = bytearray(min(1 << 20, len(model[name]) - off))
        if got:
            f.read(got, off)
        if f.size != len(model[name]) or bytes(got) != model[name][off:off + len(got)]:
            sys.exit(f"{name} is different")
    counts["ranges"] += 1


def check_all(model):
    for name, data in model.items():
        with File(f"tier://s/{name}") as f:
            got = bytearray(f.size)
            if got:
                f.read(got, 0)
            if bytes(got) != data:
                sys.exit(f"{name} is different")
    tier("scrub", "s")
    counts["scrubs"] += 1


def main():
    client.create_bucket(Bucket="live")
    for root in ("nvme", "hdd"):
        os.mkdir(f"{work}/{root}")
    tier("init", "s", "--same-filesystem", "--nvme", f"{work}/nvme", "--hdd", f"{work}/hdd",
         "--object", "s3://live/cold", "--quota", "object:100g")
    model = {}
    for at in range(TAKE):
        name = choose.choice(NAMES)
        what = choose.random()
        if name not in model or what < 0.15:
            write(model, name)
        elif what < 0.2:
            subprocess.run([PENSTOCK, "rm", f"tier://s/{name}"], check=True)
            del model[name]
            counts["removed"] += 1
        elif what < 0.35:
            kill(name)
        elif what < 0.65:
            tier("migrate", "s", name, "--to", choose.choice(CLASSES))
            counts["moves"] += 1
        else:
            read(model, name)
        if at % 50 == 49:
            check_all(model)
    if model:
        tier("migrate", "s", *model, "--to", "object")
        # The catalogue is lost.
        os.truncate(f"{work}/state/s/catalog.db", 5000)
    check = tier("scrub", "s", "--rebuild")
    check_all(model)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())), "none wrong;", check)


main()
