#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run NCCL with our libgdrapi: check sums of the ranks, and that its GPU mappings are ours.

nccl-gdr.py --penstock PENSTOCK --scratch DIR [--ranks N]

Each rank is a process with its own GPU, started by `penstock run`.  With NCCL_GDRCOPY_ENABLE=1
NCCL loads "libgdrapi.so" and maps GPU memory by it: for the queue of work for its kernels and,
between ranks on a network, for flow control.  So the first case disables NVLink and shared memory.
Prints a line of JSON per case: {"case", "result": passed, failed or skipped, "note"}.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

COUNTS = (1, 1000, 1 << 16, (1 << 20) + 3, 1 << 24)
ROUNDS = 5
LIMIT = 150  # of a case, s

# Leave NVLink multicast off: other users of the machine share it.
COMMON = {
    "NCCL_GDRCOPY_ENABLE": "1", "NCCL_GDRCOPY_FIFO_ENABLE": "1", "NCCL_GDRCOPY_SYNC_ENABLE": "1",
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET", "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
    "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo",
    "GDRCOPY_ENABLE_LOGGING": "1", "GDRCOPY_LOG_LEVEL": "2",
}
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}

ENABLED = re.compile(r"GDRCOPY enabled library (\d+)\.(\d+)")
MAPPED = re.compile(r"^INFO: mapped (\d+) bytes at 0x[0-9a-f]+ to \S+ by (\w+)", re.M)


def say(case, result, note):
    print(json.dumps({"case": case, "result": result, "note": note}), flush=True)


# ------------------------------------------------------------------- a rank

def rank_main(rank, ranks, store):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=ranks)
    right = 0
    for count in COUNTS:
        for turn in range(ROUNDS):
            # Small integers, whose sums are exact in float32.
            x = (torch.arange(count, device="cuda", dtype=torch.float32) % 1000) + rank * 7 + turn
            dist.all_reduce(x)
            want = (torch.arange(count, device="cuda", dtype=torch.float32) % 1000) * ranks + \
                sum(r * 7 + turn for r in range(ranks))
            if not torch.equal(x, want):
                print(f"WRONG SUM rank {rank} count {count} turn {turn}", flush=True)
                return 1
            right += 1
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as f:
        libs = sorted({line.split()[-1] for line in f if "libgdrapi" in line})
    nccl = ".".join(str(n) for n in torch.cuda.nccl.version())
    dist.destroy_process_group()
    print("RANK " + json.dumps({"rank": rank, "right": right, "libs": libs, "nccl": nccl}),
          flush=True)
    return 0


# ---------------------------------------------------------------- the parent

def run_ranks(args, env):
    """Return the output and the status of each rank; status None: it did not end in time."""
    store = os.path.join(tempfile.mkdtemp(dir=args.scratch), "store")
    full = dict(os.environ, **COMMON, **env)
    children = []
    for rank in range(args.ranks):
        log = open(os.path.join(args.scratch, f"rank{rank}.log"), "w+", encoding="utf-8",
                   errors="replace")
        cmd = [args.penstock, "run", "--", sys.executable, os.path.realpath(__file__),
               "--rank", str(rank), "--ranks", str(args.ranks), "--store", store]
        children.append((subprocess.Popen(cmd, stdout=log, stderr=subprocess.STDOUT, env=full,
                                          start_new_session=True), log))
    ends = []
    for child, log in children:
        try:
            status = child.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            status = None
        # The other ranks would wait for a failed one.
        if status != 0:
            for other, _ in children:
                try:
                    os.killpg(other.pid, signal.SIGKILL)
                except OSError:
                    pass
        ends.append(status)
        child.wait()
    texts = []
    for _, log in children:
        log.seek(0)
        texts.append(log.read())
        log.close()
    return texts, ends


def interesting(text):
    """Return the lines about GDRCopy and about failures."""
    words = ("gdr", "libgdrapi", "ERR:", "WARN", "rror", "WRONG")
    return [line for line in text.splitlines() if any(w in line for w in words)][:12]


def why_not(texts, ends):
    return " | ".join(f"rank {i}: status {e}: " + " / ".join(interesting(t)[-6:])
                      for i, (t, e) in enumerate(zip(texts, ends)))[:1500]


def check_rank(text, folder):
    """Return what one rank reports; raise an AssertionError that names a missing proof."""
    found = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("RANK {")]
    assert found, "it did not come to its end"
    doc = found[0]
    assert doc["right"] == len(COUNTS) * ROUNDS, f"{doc['right']} right sums"
    enabled = ENABLED.search(text)
    assert enabled, "NCCL does not say that GDRCOPY is enabled"
    assert doc["libs"] and all(os.path.dirname(lib) == folder for lib in doc["libs"]), \
        f"NCCL has loaded {doc['libs']} and not that of {folder}"
    maps = MAPPED.findall(text)
    assert maps, "libgdrapi was loaded, but nothing was mapped"
    ways = "+".join(sorted({way for _, way in maps}))
    return {"nccl": doc["nccl"], "right": doc["right"], "maps": len(maps),
            "bytes": sum(int(n) for n, _ in maps), "by": ways, "says": enabled.group(0)}


def case(args, name, env, folder):
    texts, ends = run_ranks(args, env)
    try:
        docs = [check_rank(text, folder) for text in texts]
        assert all(end == 0 for end in ends), f"statuses {ends}"
    except AssertionError as e:
        say(name, "failed", f"{e}; {why_not(texts, ends)}")
        return
    first = docs[0]
    say(name, "passed",
        f"NCCL {first['nccl']}, {first['right']} right sums in each of {len(docs)} ranks; "
        f"\"{first['says']}\"; gdr_map: " +
        ", ".join(f"{d['maps']} of {d['bytes']} bytes by {d['by']}" for d in docs))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--penstock")
    p.add_argument("--scratch")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rank", type=int)
    p.add_argument("--store")
    args = p.parse_args()
    if args.rank is not None:
        return rank_main(args.rank, args.ranks, args.store)
    try:
        import torch
    except ImportError as e:
        say("sums", "skipped", f"PyTorch cannot be imported: {e}")
        return 0
    if torch.cuda.device_count() < args.ranks:
        say("sums", "skipped", f"{args.ranks} GPUs are needed, PyTorch sees "
                               f"{torch.cuda.device_count()}")
        return 0
    folder = subprocess.run([args.penstock, "run", "printenv", "LD_LIBRARY_PATH"], check=True,
                            capture_output=True, text=True).stdout.strip().split(":")[0]
    case(args, "sums over sockets, flow control in GPU memory", SOCKETS, folder)
    case(args, "sums by NCCL's own choice of ways", {}, folder)
    # Each case has reported its failure.
    return 0


if __name__ == "__main__":
    sys.exit(main())
