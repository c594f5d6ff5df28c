# SPDX-License-Identifier: MIT
"""SGLang's HiCache storage on penstock.kv, for its back end "dynamic":

    --enable-hierarchical-cache --hicache-storage-backend dynamic
    --hicache-mem-layout page_first_direct --hicache-io-backend direct
    --hicache-storage-backend-extra-config '{"backend_name": "penstock", "interface_v1": 1,
        "module_path": "penstock.sglang_hicache", "class_name": "PenstockStorage",
        "penstock": {"dirs": ["/nvme/kv-{rank}"], "budget": 1000000000000, "identity": "r7"}}'

Each rank is a process with its own store: {rank} in a directory is replaced, and the directory is
made.  Ranks and hosts can share the store of a server: "dirs": ["pst+unix:///run/kv:"], without a
budget.  SGLang's configuration has the model and its ranks, and the host pools have dtype and
layout; identity is for everything else that must match, such as the weights' revision.  Any failure
is a miss.
"""
import hashlib
import json
import logging
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

from sglang.srt.mem_cache.hicache_storage import (HiCacheStorage, PoolHitPolicy, PoolName,
                                                  PoolTransferResult)

from . import kv

_log = logging.getLogger(__name__)

_Page = Tuple[Any, int]     # a page's memory as kv.Store accepts it, and its bytes


def _rank(config: Any) -> str:
    return (f"dp{config.dp_rank}-pp{config.pp_rank}-cp{config.attn_cp_rank}-dcp{config.dcp_rank}-"
            f"tp{config.tp_rank}")


def _memory(tensor: Any) -> _Page:
    """Return the memory of a host tensor."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError("a page is a contiguous tensor of host memory")
    size = tensor.numel() * tensor.element_size()
    return (tensor.data_ptr(), size), size


def _leading(found: Sequence[bool]) -> int:
    return found.index(False) if False in found else len(found)


class PenstockStorage(HiCacheStorage):  # type: ignore[misc]
    """Implements SGLang's HiCacheStorage.

    Pages of the interface v1 are stored in the order of the host pool's pieces, other pages flat.
    The orders may differ, so these pages are in different spaces.
    """

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        extra = storage_config.extra_config or {}
        options = dict(extra.get("penstock") or {})
        self._config = storage_config
        self._pieces = bool(extra.get("interface_v1"))
        self._identity = str(options.pop("identity", ""))
        self._words = {name: options.pop(name) for name in ("tenant", "salt", "quota")
                       if name in options}
        self._spaces: Dict[Tuple[str, bool], int] = {}
        self._names: List[str] = []
        self._pools: Dict[str, Any] = {}
        dirs = [d.replace("{rank}", _rank(storage_config)) for d in options.pop("dirs", [])]
        for made, given in zip(dirs, (extra.get("penstock") or {}).get("dirs", [])):
            if made != given:
                os.makedirs(made, exist_ok=True)
        self._store = kv.engine_store(dirs, options.pop("budget", None), **options)

    # ------------------------------------------------------------------ pools and spaces

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._pools[str(PoolName.KV)] = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._pools[str(host_pool_name)] = host_pool

    def _space_name(self, name: str, pieces: bool) -> str:
        """Return a text with everything that must match before a page fits, in at most 512 bytes.
        """
        config, pool = self._config, self._pools.get(name)
        fields = {field: getattr(config, field) for field in (
            "model_name", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size",
            "is_mla_model", "tp_lcm_size", "should_split_heads", "dcp_rank", "dcp_size",
            "logical_page_size")}
        # KV of MLA is the same on all ranks; Mamba's state is split.
        if not config.is_mla_model or name == str(PoolName.MAMBA):
            fields["tp_rank"] = config.tp_rank
        fields.update(pool=name, pieces=pieces, identity=self._identity)
        for field in ("layout", "dtype", "page_size", "layer_num", "start_layer", "end_layer",
                      "size_per_token"):
            fields[field] = str(getattr(pool, field, None))
        text = json.dumps(fields, sort_keys=True, default=str)
        model = "".join(c if " " < c <= "~" else "_" for c in str(config.model_name)[:200])
        return f"sglang {model} {name} {hashlib.sha256(text.encode()).hexdigest()}"

    def _space(self, name: str, pieces: bool) -> Optional[int]:
        """Return a space; None if the store has none, so that every page is a miss."""
        at = (name, pieces)
        if at not in self._spaces:
            words = self._space_name(name, pieces)
            try:
                self._spaces[at] = self._store.space(words, **self._words)
            except (OSError, ValueError) as error:
                _log.warning("penstock: there is no space for the pool %s: %s", name, error)
                return None
            self._names.append(words)
        return self._spaces[at]

    def _kv_space(self) -> Optional[int]:
        return self._space(str(PoolName.KV), self._pieces)

    # ------------------------------------------------------------------ moving pages

    def _lookup(self, space: Optional[int], keys: Sequence[str]) -> List[bool]:
        if space is None or not keys:
            return [False] * len(keys)
        try:
            return [size > 0 for size in self._store.lookup(space, [key.encode() for key in keys])]
        except (OSError, ValueError) as error:
            _log.warning("penstock: a look-up of %d pages failed: %s", len(keys), error)
            return [False] * len(keys)

    def _move(self, op: int, space: Optional[int], keys: Sequence[str],
              pages: Sequence[_Page]) -> List[bool]:
        if space is None or not keys:
            return [False] * len(keys)
        try:
            results = self._store.run(op, space, [key.encode() for key in keys],
                                      [memory for memory, _ in pages])
        except (OSError, ValueError) as error:
            _log.warning("penstock: a batch of %d pages failed: %s", len(keys), error)
            return [False] * len(keys)
        # A page whose length differs from that of its memory is not ours.
        good = [result == (size if op == kv.GET else 0)
                for result, (_, size) in zip(results, pages)]
        bad = [result for result in results if result < 0 and result not in kv.MISSES]
        if bad:
            _log.warning("penstock: %d of %d pages failed: %s", len(bad), len(keys),
                         os.strerror(-bad[0]))
        return good

    def _write(self, space: Optional[int], keys: Sequence[str],
               pages: Sequence[_Page]) -> List[bool]:
        """Store pages that the store lacks; of pages with equal keys only the first."""
        there = self._lookup(space, keys)
        new: Dict[str, int] = {}
        for i, key in enumerate(keys):
            if not there[i]:
                new.setdefault(key, i)
        good = dict(zip(new, self._move(kv.SET, space, list(new),
                                        [pages[i] for i in new.values()])))
        return [found or good[key] for key, found in zip(keys, there)]

    def _pages(self, keys: Sequence[str], host_indices: Any) -> List[_Page]:
        """Return the memory of pages in the host pool of KV."""
        where, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        each = len(where) // len(keys)
        if not each or each * len(keys) != len(where):
            raise ValueError(f"{len(keys)} pages have {len(where)} pieces")
        pages = []
        for i in range(0, len(where), each):
            pieces = list(zip(where[i:i + each], sizes[i:i + each]))
            pages.append((pieces, sum(size for _, size in pieces)))
        return pages

    # ------------------------------------------------------------------ interface v1

    def batch_exists(self, keys: List[str], extra_info: Any = None) -> int:
        return _leading(self._lookup(self._kv_space(), keys))

    def batch_get_v1(self, keys: List[str], host_indices: Any,
                     extra_info: Any = None) -> List[bool]:
        return self._move(kv.GET, self._space(str(PoolName.KV), True), keys,
                          self._pages(keys, host_indices)) if keys else []

    def batch_set_v1(self, keys: List[str], host_indices: Any,
                     extra_info: Any = None) -> List[bool]:
        return self._write(self._space(str(PoolName.KV), True), keys,
                           self._pages(keys, host_indices)) if keys else []

    # ------------------------------------------------------------------ interface v2

    def batch_exists_v2(self, keys: List[str], pool_transfers: Any = None,
                        extra_info: Any = None) -> PoolTransferResult:
        pages = self.batch_exists(keys)
        hits: Dict[Any, int] = {PoolName.KV: pages} if pages else {}
        fit = list(range(1, pages + 1))     # prefixes that all pools have
        for transfer in pool_transfers or []:
            if not fit:
                break
            there = self._lookup(self._space(str(transfer.name), False), keys[:pages])
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                have = set(range(1, _leading(there) + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                last = max(1, len(transfer.keys or ()))
                have = {n for n in fit if all(there[max(0, n - last):n])}
            else:
                raise ValueError(f"pages of the policy {transfer.hit_policy} cannot be found")
            if have:
                hits[transfer.name] = max(have)
            fit = [n for n in fit if n in have]
        return PoolTransferResult(fit[-1] if fit else 0, hits, fit)

    def _each_pool(self, transfers: Any, move: Any) -> Dict[str, List[bool]]:
        results: Dict[str, List[bool]] = {}
        for transfer in transfers:
            keys, indices = transfer.keys or [], transfer.host_indices
            pool = self._pools[str(transfer.name)]
            size = getattr(pool, "page_size", 1) or 1
            if indices is None or indices.numel() != len(keys) * size:
                _log.warning("penstock: %d pages of the pool %s have %d indices", len(keys),
                             transfer.name, 0 if indices is None else indices.numel())
                results[transfer.name] = [False] * len(keys)
                continue
            first = [int(indices[i * size]) for i in range(len(keys))]
            results[transfer.name] = move(self._space(str(transfer.name), False), pool, keys, first)
        return results

    def _get_flat(self, space: Optional[int], pool: Any, keys: List[str],
                  first: List[int]) -> List[bool]:
        flat = [pool.get_dummy_flat_data_page() for _ in keys]
        good = self._move(kv.GET, space, keys, [_memory(page) for page in flat])
        for index, page, result in zip(first, flat, good):
            if result:
                pool.set_from_flat_data_page(index, page)
        return good

    def _set_flat(self, space: Optional[int], pool: Any, keys: List[str],
                  first: List[int]) -> List[bool]:
        flat = [pool.get_data_page(index, flat=True).contiguous() for index in first]
        return self._write(space, keys, [_memory(page) for page in flat])

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> Dict[str, List[bool]]:
        return self._each_pool(transfers, self._get_flat)

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> Dict[str, List[bool]]:
        return self._each_pool(transfers, self._set_flat)

    # ------------------------------------------------------------------ pages by value

    def batch_get(self, keys: List[str], target_locations: Any = None,
                  target_sizes: Any = None) -> List[Any]:
        if not keys:
            return []
        good = self._move(kv.GET, self._space(str(PoolName.KV), False), keys,
                          [_memory(tensor) for tensor in target_locations])
        return [tensor if result else None for tensor, result in zip(target_locations, good)]

    def batch_set(self, keys: List[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        flat = [value.contiguous() for value in values or []]
        return all(self._write(self._space(str(PoolName.KV), False), keys,
                               [_memory(value) for value in flat]))

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def set(self, key: str, value: Any = None, target_location: Any = None,
            target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    # ------------------------------------------------------------------ the rest

    def clear(self) -> bool:
        """Remove the pages of this model and rank; with a server, they are removed on the server.
        """
        try:
            for words in self._names:
                self._store.drop(words)
            return True
        except OSError as error:
            _log.warning("penstock: pages cannot be removed: %s", error)
            return False

    def report(self) -> Dict[str, int]:
        return self._store.stat()

    def close(self) -> None:
        self._store.close()
