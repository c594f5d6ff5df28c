# SPDX-License-Identifier: MIT
"""The file system for fsspec, on a storage service and on a set of tiers."""
import os
import subprocess

from tap import Skip, case, data, eq, gives, run, true, work

PENSTOCK = os.environ["PENSTOCK"]


def module():
    try:
        import fsspec
    except ImportError:
        raise Skip("fsspec") from None
    import penstock.fsspec
    penstock.fsspec.register()
    return fsspec


def whole(fsspec, root):
    """Do what programs do with a file system, below the directory root."""
    fs, top = fsspec.core.url_to_fs(root)
    content = data(3_000_000)
    with fsspec.open(f"{root}/a", "wb") as f:
        for at in range(0, len(content), 700_001):
            eq(f.write(content[at:at + 700_001]), len(content[at:at + 700_001]))
    with fsspec.open(f"{root}/a", "rb", block_size=4096) as f:
        eq((f.read(10), f.seek(2_000_000), f.read(10)),
           (content[:10], 2_000_000, content[2_000_000:2_000_010]))
        target = bytearray(1000)
        eq((f.seek(-500, 2), f.readinto(target), bytes(target[:500])),
           (len(content) - 500, 500, content[-500:]))
    eq(fs.cat(f"{root}/a"), content)
    eq(fs.cat_file(f"{root}/a", 5, 10), content[5:10])
    eq(fs.info(f"{root}/a")["size"], len(content))
    eq((fs.exists(f"{root}/a"), fs.exists(f"{root}/b"), fs.isdir(root)), (True, False, True))
    true(fs.modified(f"{root}/a").year > 2000)
    eq(fs.ls(root, detail=False), [f"{top}/a"])
    eq(fs.find(root), [f"{top}/a"])
    gives(FileExistsError, fsspec.open(f"{root}/a", "xb").__enter__)
    gives(ValueError, fs.open, f"{root}/a", "ab")
    gives(FileNotFoundError, fs.open, f"{root}/none")
    fs.mv(f"{root}/a", f"{root}/b")
    fs.cp_file(f"{root}/b", f"{root}/c")
    eq(sorted(os.path.basename(p) for p in fs.glob(f"{root}/*")), ["b", "c"])
    eq(fs.cat(f"{root}/c"), content)
    fs.rm(f"{root}/b")
    fs.rm(root, recursive=True)
    eq(fs.find(root), [])


@case
def a_service():
    fsspec = module()
    os.makedirs(f"{work}/served/d")
    with subprocess.Popen([PENSTOCK, "serve", "--root", f"{work}/served", "--listen",
                           f"unix:{work}/socket", "--write"], stderr=subprocess.PIPE) as server:
        true(b"listening" in server.stderr.readline())
        try:
            whole(fsspec, f"pst+unix://{work}/socket:/d")
        finally:
            server.terminate()


@case
def a_set_of_tiers():
    fsspec = module()
    os.environ["PST_TIER_DIR"] = f"{work}/state"
    for name in ("state", "fast/d", "slow/d"):
        os.makedirs(f"{work}/{name}")
    subprocess.run([PENSTOCK, "tier", "init", "S", "--nvme", f"{work}/fast", "--hdd",
                    f"{work}/slow", "--same-filesystem"], check=True, capture_output=True)
    with fsspec.open("tier://S/d/keeps-the-directory", "wb") as f:
        f.write(b"x")
    fs = fsspec.filesystem("tier")
    eq(fs.ls("S", detail=False), ["S/d"])
    fs.rm("S/d/keeps-the-directory")
    with fsspec.open("tier://S/top", "wb") as f:
        f.write(b"x")
    fs.rm("S/top")
    whole(fsspec, "tier://S/d")


@case
def torch_saves_and_loads():
    from tap import torch as get_torch
    fsspec, torch = module(), get_torch()
    os.makedirs(f"{work}/torch")
    words = [PENSTOCK, "serve", "--root", f"{work}/torch", "--listen", f"unix:{work}/torch.socket",
             "--write"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as server:
        true(b"listening" in server.stderr.readline())
        try:
            name = f"pst+unix://{work}/torch.socket:/t.pt"
            with fsspec.open(name, "wb") as f:
                torch.save({"a": torch.arange(100000)}, f)
            with fsspec.open(name) as f:
                true(torch.equal(torch.load(f, weights_only=True)["a"], torch.arange(100000)))
        finally:
            server.terminate()


run()
