# SPDX-License-Identifier: MIT
"""The programs in examples/python run, and print what they did."""
import importlib
import os
import socket
import subprocess
import sys

from tap import Skip, case, eq, file, numpy, run, torch, true, work

FOLDER = f"{os.environ['ROOT']}/examples/python"


def example(status, name, *arguments, env=()):
    done = subprocess.run([sys.executable, f"{FOLDER}/{name}", *arguments], capture_output=True,
                          text=True, check=False, timeout=120,
                          env={**os.environ, "TMPDIR": work, **dict(env)})
    eq((done.returncode, done.stderr if not status else ""), (status, ""))
    return done.stdout if not status else done.stderr


@case
def kv_offload():
    before = sorted(os.listdir(work))
    for device in ("soft:0", "host", "cuda:0"):
        said = example(0, "kv-offload.py", "--device", device, work)
        for text in ("offloaded first: 1572864 bytes", "restored second: 1310720 bytes",
                     "every piece is where it belongs"):
            true(text in said, said)
    true("kv-offload: " in example(1, "kv-offload.py", "--device", "soft:99"))
    true("nowhere" in example(1, "kv-offload.py", f"{work}/nowhere"))
    eq(sorted(os.listdir(work)), before)


@case
def load_model():
    np = numpy()
    said = example(0, "load-model.py")
    true("layers.3.weight: float16 [512, 256]" in said and "4 tensors, 1.0 MB" in said, said)
    from penstock.safetensors import save_file
    path = f"{work}/model.safetensors"
    save_file({"a": np.arange(1000)}, path)
    true("1 tensors, 0.0 MB" in example(0, "load-model.py", path))
    said = example(1, "load-model.py", file("text", b"this is no model at all"))
    true(f"load-model: {work}/text: " in said and "Traceback" not in said, said)
    said = example(1, "load-model.py", f"{work}/nothing")
    true("load-model: " in said and "nothing" in said and "Traceback" not in said, said)


@case
def checkpoint_of_one_process_and_of_two():
    torch()
    try:
        importlib.import_module("torch.distributed.checkpoint").save
    except (ImportError, AttributeError):
        raise Skip("torch.distributed.checkpoint as of torch 2.3") from None
    true("checkpoint.py FOLDER" in example(1, "checkpoint.py"))
    true("restored step 7" in
         example(0, "checkpoint.py", f"{work}/one", env={"PYTHONWARNINGS": "ignore"}))
    port = socket.socket()
    port.bind(("localhost", 0))
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "OMP_NUM_THREADS": "1",
             "MASTER_PORT": str(port.getsockname()[1]), "PYTHONWARNINGS": "ignore"}
    port.close()
    ranks = [subprocess.Popen([sys.executable, f"{FOLDER}/checkpoint.py", f"{work}/two"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **place, "RANK": str(rank)}) for rank in range(2)]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    eq([rank.returncode for rank in ranks], [0, 0])
    true(all("restored step 7" in text for text in said), said)


@case
def load_model_on_a_gpu():
    t = torch()
    numpy()
    if t.cuda.is_available():
        true("4 tensors" in example(0, "load-model.py", "--device", "cuda:0"))
        return
    for device in ("meta", "soft:0"):
        said = example(1, "load-model.py", "--device", device)
        true(f"'{device}' is not served" in said and "Traceback" not in said, said)


run()
