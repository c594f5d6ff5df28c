# SPDX-License-Identifier: MIT
"""bench/tensors compared with a package safetensors, here a copy of ours."""
import json
import os
import subprocess
import sys

from tap import case, eq, numpy, run, true, work

import penstock

BENCH = f"{os.environ['ROOT']}/bench/tensors"
PACKAGE = {
    "__init__": "from penstock.safetensors import safe_open\n__version__ = '0.0'\n",
    "numpy": "import os\n"
             "from penstock.safetensors.numpy import load_file as _load_file, save_file\n"
             "def load_file(path):\n"
             "    found = _load_file(path)\n"
             "    if 'WRONG' in os.environ:\n"
             "        next(iter(found.values()))[-1] += 1\n"
             "    return found\n"}


def bench(*arguments, status=0, **env):
    """Run the command.  Return its output and its JSON."""
    os.makedirs(f"{work}/path/safetensors", exist_ok=True)
    for name, text in PACKAGE.items():
        with open(f"{work}/path/safetensors/{name}.py", "w", encoding="utf-8") as f:
            f.write(text)
    path = f"{work}/path:{os.environ['PYTHONPATH']}"
    done = subprocess.run([sys.executable, BENCH, "--framework", "np", "--dir", work, "--json",
                           f"{work}/json", *arguments], env={**os.environ, "PYTHONPATH": path,
                                                             **env},
                          capture_output=True, text=True, check=False)
    true(done.returncode == status, done.stderr)
    eq([name for name in os.listdir(work) if name.startswith("tensors.")], [])
    if status == 2:
        return done.stderr, None
    with open(f"{work}/json", encoding="utf-8") as f:
        return done.stdout, json.load(f)


@case
def all_operations():
    numpy()
    said, found = bench("--tensors", "300", "--bytes", "512", "--rounds", "4")
    eq([row["operation"] for row in found["rows"]],
       ["load_file", "open", "get_tensor", "get_slice", "save_file"])
    for row in found["rows"]:
        eq((row["status"], row["framework"]), ("done", "np"))
        for who in ("penstock", "package"):
            runs = row[who]
            true(0 < runs["lowest_s"] <= runs["median_s"] <= runs["highest_s"], row)
            # Four runs have no p99; 1,200 calls have one.
            eq((runs["runs"], runs["p99_s"]), (4, None))
            eq("each" in runs, row["operation"] in ("get_tensor", "get_slice"))
            if "each" in runs:
                eq(runs["each"]["calls"], 1200)
                true(0 < runs["each"]["median_s"] <= runs["each"]["p99_s"], row)
    eq((found["tensors"], found["rounds"], found["versions"]["penstock"]),
       (300, 4, penstock.version()))
    lines = said.splitlines()
    true(all(len(line) <= 80 for line in lines if not line.startswith(("machine", "versions"))),
         said)
    for text in ("machine   ", "file      300 tensors, ", "measured  4 rounds",
                 "versions  penstock", "open + keys", "get_tensor, each"):
        true(any(line.startswith(text) for line in lines), said)


@case
def other_tensors():
    numpy()
    said, found = bench("--tensors", "3", "--rounds", "1", "--only", "load_file,open", status=1,
                        WRONG="1")
    eq([row["status"] for row in found["rows"]], ["different", "done"])
    true("\nload_file: different tensors\n" in said, said)


@case
def mistakes():
    numpy()
    said, _ = bench("--only", "load", status=2)
    true("there is no operation 'load'; there are load_file, open" in said, said)
    for arguments in (["--tensors", "0"], ["--rounds", "x"], ["--framework", "tf"]):
        said, _ = bench(*arguments, status=2)
        true(arguments[0] in said and "Traceback" not in said, said)


run()
