# SPDX-License-Identifier: MIT
"""LMCache's L2 adapter over penstock.kv, as its native_plugin takes it:

    lmcache server --l2-adapter '{"type": "native_plugin", "module_path": "penstock.lmcache",
        "class_name": "Client", "adapter_params": {"dirs": ["/nvme/kv"], "budget": 1000000000000,
        "identity": "llama-3 r7 bf16 NHD"}}'

LMCache's keys contain the model, its rank, the object group, the hash and the salt.  identity is
everything else that must match before a block fits: the weights' revision, layout and dtype. The
                                                     budget applies, whatever max_capacity_gb and
                                                     eviction say.  Any failure is a miss, and each
                                                     submission completes once.
"""
import logging
import os
from typing import Any, List, Optional, Sequence, Tuple

from . import kv

_log = logging.getLogger(__name__)

_Finished = Tuple[int, bool, str, Optional[List[bool]]]


class Client:
    """Has the methods that LMCache's NativeConnectorL2Adapter calls.

    dirs, budget, reserve, policy, threads, sync: as in penstock.kv.Store; for a store on a server
                                                  dirs is ["psts://HOST:PORT"], without a budget
    timeout: seconds until an unfinished block is a miss; below the 600 s of LMCache's locks
    """

    def __init__(self, dirs: Sequence[str], budget: Optional[int] = None, identity: str = "",
                 tenant: str = "", salt: str = "", quota: int = 0, timeout: float = 30,
                 **options: Any) -> None:
        if timeout >= 600:
            raise ValueError("the timeout must be below 600 seconds, after which LMCache takes its "
                             "memory back")
        self._store = kv.engine_store(dirs, budget, timeout=timeout, **options)
        try:
            self._space = self._store.space(identity, tenant, salt, quota)
            self._fd = self._store.fileno()
        except BaseException:
            self._store.close()
            raise

    def event_fd(self) -> int:
        return self._fd

    def _submit(self, op: int, keys: Sequence[str], views: Optional[Sequence[Any]]) -> int:
        return self._store.submit(op, self._space, [key.encode() for key in keys], views)

    def submit_batch_set(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        return self._submit(kv.SET, keys, memoryviews)

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        return self._submit(kv.GET, keys, memoryviews)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        return self._submit(kv.EXISTS, keys, None)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        return self._submit(kv.DELETE, keys, None)

    def drain_completions(self) -> List[_Finished]:
        finished: List[_Finished] = []
        for done in self._store.reap(256):
            if done.err:
                _log.warning("penstock: %d of %d blocks failed: %s",
                             sum(r < 0 for r in done.results), len(done.results),
                             os.strerror(-done.err))
            results = [r >= 0 for r in done.results]
            if done.op == kv.GET:
                # A block whose length differs from the buffer's is not ours.
                results = [r == want for r, want in zip(done.results, done.lengths)]
            ok = all(results) if done.op in (kv.GET, kv.SET) else True
            error = os.strerror(-done.err) if done.err else ""
            finished.append((done.number, ok, error, None if done.op == kv.SET else results))
        return finished

    def report(self) -> "dict[str, int]":
        return self._store.stat()

    def close(self) -> None:
        self._store.close()
