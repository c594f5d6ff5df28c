# SPDX-License-Identifier: MIT
"""Test our HiCache storage back end with SGLang's own classes: SGLang's factory loads it, and
SGLang's file back end returns the same results for the same calls."""
import os
import random
import shutil
import signal
import subprocess
import tempfile

import pytest
import torch
from sglang.srt.mem_cache.hicache_storage import (HiCacheFile, HiCacheStorageConfig, PoolHitPolicy,
                                                  PoolName, PoolTransfer)
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

PAGES, LAYERS, PAGE = 16, 3, 4      # pages of the host pool, its layers, tokens per page
HEAD = 8                            # elements per token and layer


class Pool:
    """A host pool in SGLang's layouts, with its methods for storage."""

    def __init__(self, layout, seed=0):
        torch.manual_seed(seed)
        self.layout, self.page_size, self.dtype = layout, PAGE, torch.float16
        tokens = PAGES * PAGE
        shape = (2, LAYERS, tokens, HEAD) if layout == "layer_first" else (2, tokens, LAYERS, HEAD)
        self.kv_buffer = torch.randn(shape).to(self.dtype)

    def _page(self, index):
        tokens = slice(index, index + PAGE)
        return (self.kv_buffer[:, :, tokens] if self.layout == "layer_first"
                else self.kv_buffer[:, tokens])

    def page(self, number):
        return self._page(number * PAGE).clone()

    def wipe(self):
        self.kv_buffer.zero_()

    def get_data_page(self, index, flat=True):
        page = self._page(index)
        return page.flatten() if flat else page

    def get_dummy_flat_data_page(self):
        return torch.zeros(2 * LAYERS * PAGE * HEAD, dtype=self.dtype)

    def set_from_flat_data_page(self, index, data_page):
        self._page(index).copy_(data_page.reshape(self._page(index).shape))

    def get_page_buffer_meta(self, indices):
        where, size = [], self.dtype.itemsize * PAGE * HEAD
        for index in indices.tolist()[::PAGE]:
            page = self._page(index)
            if self.layout == "layer_first":
                where += [page[kv, layer].data_ptr() for layer in range(LAYERS) for kv in range(2)]
            else:
                where += [page[kv].data_ptr() for kv in range(2)]
        return where, [size * (1 if self.layout == "layer_first" else LAYERS)] * len(where)


def config(options=None, **fields):
    return HiCacheStorageConfig(**(dict(
        tp_rank=0, tp_size=2, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
        is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=True,
        model_name="org/model", extra_config=options) | fields))


def backend(root, pool, v1=1, served=None, **fields):
    where = {"dirs": [served]} if served else {"dirs": [f"{root}/{{rank}}"], "budget": 1 << 26}
    made = StorageBackendFactory.create_backend("dynamic", config({
        "backend_name": "penstock", "module_path": "penstock.sglang_hicache",
        "class_name": "PenstockStorage", "interface_v1": v1,
        "penstock": where | {"identity": "r1", "timeout": 20}}, **fields), pool)
    made.register_mem_pool_host(pool)
    made.register_mem_host_pool_v2(pool, PoolName.KV)
    return made


def indices(pages):
    return torch.cat([torch.arange(p * PAGE, (p + 1) * PAGE) for p in pages])


@pytest.fixture(name="root")
def _root():
    path = tempfile.mkdtemp(prefix="penstock-sglang-")
    yield path
    shutil.rmtree(path)


@pytest.fixture(name="served")
def _served(root):
    os.mkdir(f"{root}/kv")
    with subprocess.Popen([os.environ["PENSTOCK"], "serve", "--kv", f"{root}/kv", "--budget", "64m",
                           "--write", "--listen", f"unix:{root}/socket"], stderr=subprocess.PIPE,
                          text=True) as server:
        assert "listening" in server.stderr.readline()
        yield f"pst+unix://{root}/socket:", server
        server.terminate()


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_v1_gives_back_each_page(root, layout):
    pool = Pool(layout)
    pages = [pool.page(n) for n in range(PAGES)]
    storage, keys = backend(root, pool), [f"k{n}" for n in range(PAGES)]
    assert storage.batch_set_v1(keys[:6], indices(range(6))) == [True] * 6
    assert storage.batch_exists(keys) == 6
    pool.wipe()
    # Get into other pages, in another order, with two missing keys.
    assert storage.batch_get_v1(["k2", "x", "k0", "y"], indices([9, 10, 11, 12])) == [
        True, False, True, False]
    assert torch.equal(pool.page(9), pages[2]) and torch.equal(pool.page(11), pages[0])
    assert not pool.page(10).any() and not pool.page(12).any()
    storage.close()
    # Another process finds the pages.
    storage = backend(root, pool)
    assert storage.batch_exists(keys) == 6
    storage.close()


def test_flat_pages_are_not_pieces(root):
    pool = Pool("layer_first")
    storage = backend(root, pool)
    assert storage.batch_set_v1(["k"], indices([0])) == [True]
    assert storage.get("k", pool.get_dummy_flat_data_page()) is None
    assert storage.set("k", pool.get_data_page(0))
    assert torch.equal(storage.get("k", pool.get_dummy_flat_data_page()), pool.get_data_page(0))
    storage.close()


@pytest.mark.parametrize("field", [{"tp_rank": 1}, {"model_name": "org/other"}, {"tp_size": 4},
                                   {"pp_rank": 1, "pp_size": 2}, {"attn_cp_rank": 1}])
def test_another_configuration_has_other_pages(served, root, field):
    pool = Pool("page_first")
    one, two = (backend(root, pool, served=served[0], **f) for f in ({}, field))
    assert one.batch_set_v1(["k"], indices([0])) == [True]
    assert (one.batch_exists(["k"]), two.batch_exists(["k"])) == (1, 0)
    one.close()
    two.close()


def test_mla_ranks_share_pages(served, root):
    pool = Pool("page_first")
    one, two = (backend(root, pool, served=served[0], is_mla_model=True, tp_rank=r) for r in (0, 1))
    assert one.batch_set_v1(["k"], indices([0])) == [True]
    page = pool.page(0)
    pool.wipe()
    assert two.batch_get_v1(["k"], indices([0])) == [True]
    assert torch.equal(pool.page(0), page)
    one.close()
    two.close()


def test_a_server_that_is_killed_is_a_miss(served, root):
    pool = Pool("page_first")
    storage = backend(root, pool, served=served[0])
    assert storage.batch_set_v1(["k"], indices([0])) == [True]
    served[1].send_signal(signal.SIGKILL)
    served[1].wait()
    assert storage.batch_exists(["k"]) == 0
    assert storage.batch_get_v1(["k"], indices([0])) == [False]
    assert storage.batch_set_v1(["n"], indices([0])) == [False]
    storage.close()


def test_damage_is_a_miss(root):
    pool = Pool("page_first")
    storage = backend(root, pool)
    assert storage.batch_set_v1(["k"], indices([0])) == [True]
    for at, _, names in os.walk(root):
        for name in names if "/b/" in at else ():
            with open(os.path.join(at, name), "r+b") as f:
                f.write(b"damage")
    pool.wipe()
    assert storage.batch_get_v1(["k"], indices([0])) == [False]
    assert not pool.page(0).any()
    assert storage.batch_exists(["k"]) == 0
    storage.close()


def test_clear(root):
    pool = Pool("page_first")
    storage = backend(root, pool)
    assert storage.batch_set_v1(["k"], indices([0])) == [True]
    assert storage.clear() and storage.batch_exists(["k"]) == 0
    storage.close()


def test_the_failure_injector_wraps_it(root, monkeypatch):
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "1.0")
    storage = backend(root, Pool("page_first"))
    assert type(storage).__name__ == "HiCacheStorageFailureInjector"
    assert storage.batch_set_v1(["k"], indices([0])) == [False]
    storage.close()


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
@pytest.mark.parametrize("seed", range(4))
def test_the_file_back_end_gives_the_same_answers(root, layout, seed):
    rng = random.Random(seed)
    pools = [Pool(layout), Pool(layout)]
    theirs = HiCacheFile(config({"file_storage_path": f"{root}/file"}))
    theirs.register_mem_pool_host(pools[1])
    theirs.register_mem_host_pool_v2(pools[1], PoolName.KV)
    ours = backend(f"{root}/ours", pools[0], v1=0)
    for name in (PoolName.MAMBA, PoolName.INDEXER):
        ours.register_mem_host_pool_v2(pools[0], name)
        theirs.register_mem_host_pool_v2(pools[1], name)

    def both(call):
        results = [call(storage, pool) for storage, pool in zip((ours, theirs), pools)]
        assert results[0] == results[1]
        assert torch.equal(pools[0].kv_buffer, pools[1].kv_buffer)
        return results[0]

    hits = 0
    for _ in range(60):
        nr = rng.randint(1, 5)
        first = rng.randrange(PAGES - nr)
        where = indices(range(first, first + nr))
        keys = [f"k{rng.randrange(12)}" for _ in range(nr)]
        run = [f"k{n}" for n in range(rng.randint(1, 12))]
        transfers = [PoolTransfer(name, host_indices=where, keys=keys,
                                  hit_policy=rng.choice([PoolHitPolicy.ALL_PAGES,
                                                         PoolHitPolicy.TRAILING_PAGES]))
                     for name in (PoolName.MAMBA, PoolName.INDEXER)]
        what = rng.choice(["set", "get", "set_v2", "get_v2", "exists", "exists_v2", "short"])
        if what == "set":
            both(lambda s, p: s.batch_set(keys, [p.get_data_page(int(where[i * PAGE]))
                                                 for i in range(nr)]))
        elif what == "get":
            got = both(lambda s, p: [None if t is None else t.tolist() for t in s.batch_get(
                keys, [p.get_dummy_flat_data_page() for _ in keys])])
            hits += sum(page is not None for page in got)
        elif what == "set_v2":
            both(lambda s, p: s.batch_set_v2(transfers))
        elif what == "get_v2":
            hits += sum(map(sum, both(lambda s, p: s.batch_get_v2(transfers)).values()))
        elif what == "exists":
            both(lambda s, p: s.batch_exists(run))
        elif what == "short":
            both(lambda s, p: s.batch_get_v2([PoolTransfer(PoolName.MAMBA, keys=keys)]))
        else:
            both(lambda s, p: s.batch_exists_v2(run, transfers))
    assert hits > 10
    ours.close()
