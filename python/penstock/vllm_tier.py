# SPDX-License-Identifier: MIT
"""vLLM's secondary tier of KV offloading on penstock.kv, for its TieringOffloadingSpec:

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 64000000000, "secondary_tiers": [{"type": "PenstockTier",
        "module_path": "penstock.vllm_tier", "dirs": ["/nvme/kv"], "budget": 1000000000000,
        "identity": "r7"}]}}'

vLLM's configuration has the model, its dtype, layout and rank; identity is for everything else that
must match, such as the weights' revision.  Look-ups use the index in memory and are answered at
once.  With a server's store ("dirs": ["psts://HOST:PORT"], and no budget) they ask the server in
the background.  Any failure is a miss, and each job completes once.
"""
import hashlib
import json
import logging
import time
from typing import Any, ClassVar, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, OffloadingEvent
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import (JobResult, RequestOffloadingContext,
                                             SecondaryTierManager)

from . import kv

_log = logging.getLogger(__name__)

# Seconds for which a block is a miss after its load timed out or failed: its disk may still hang.
SUSPECT_S = 60.0
# Bytes of memory for events of the store that vLLM has not taken.
EVENT_BYTES = 4 << 20
# Most events or keys in one call of the store.
BATCH = 4096


class _Job:
    """A load or store in progress."""

    __slots__ = ("number", "keys", "load", "began")

    def __init__(self, number: int, keys: List[bytes], load: bool) -> None:
        self.number, self.keys, self.load, self.began = number, keys, load, time.monotonic()


def space_name(spec: Any, block_bytes: int, identity: str) -> str:
    """Return a text with everything that must match before a block fits, in at most 512 bytes."""
    mapper = FileMapper.from_offloading_spec(root_dir="", offloading_spec=spec,
                                             blocks_per_file=spec.blocks_per_chunk,
                                             parallel_agnostic=True)
    fields = dict(mapper.get_run_config(), rank=mapper.rank, block_bytes=block_bytes,
                  identity=identity)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    name = "".join(c if " " < c <= "~" else "_" for c in str(fields["model_name"])[:200])
    return f"vllm {name} {hashlib.sha256(text.encode()).hexdigest()}"


class _Lookups(AsyncLookupManager):  # type: ignore[misc]
    """Look-ups that ask a server, on vLLM's thread for them."""

    def __init__(self, tier_type: str, store: kv.Store, space: int, size: int) -> None:
        self._store, self._space, self._size = store, space, size
        super().__init__(tier_type)

    def batch_lookup(self, keys: List[Any], req_context: Any) -> Iterable[bool]:
        sizes = self._store.lookup(self._space, [bytes(key) for key in keys])
        return [size == self._size for size in sizes]


class PenstockTier(SecondaryTierManager):  # type: ignore[misc]
    """Implements vLLM's SecondaryTierManager.

    dirs, budget, reserve, policy, threads, sync: as penstock.kv.Store
    timeout: seconds until an unfinished job is a miss
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 dirs: Sequence[str] = (), budget: Optional[int] = None, identity: str = "",
                 tenant: str = "", salt: str = "", quota: int = 0, timeout: float = 30,
                 enable_kv_events: bool = False, locality: Optional[str] = None,
                 backpressure_detector: Any = None, module_path: Optional[str] = None,
                 **options: Any) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        self.events: Optional[List[OffloadingEvent]] = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self.events = []
        # Blocks that were reported as stored; used only with the store's events.
        self._told: Set[bytes] = set()
        self._lost = 0
        self._changes: Optional[kv.Events] = None
        self._size = self.block_size_bytes
        self._base = kv.buffer_address(primary_kv_view)
        self._chunks = primary_kv_view.shape[0] if primary_kv_view.shape else 0
        self._jobs: Dict[int, _Job] = {}
        self._finished: List[JobResult] = []
        self._suspects: Dict[bytes, float] = {}
        self._store = kv.engine_store(dirs, budget, timeout=timeout, **options)
        try:
            self._space = self._store.space(
                space_name(offloading_spec, self._size, identity), tenant, salt, quota)
            # A served store has no events: this tier only reports its own stores and failed loads.
            if self.events is not None and not self._store.served:
                self._changes = self._store.events(self._space, EVENT_BYTES)
        except BaseException:
            self._store.close()
            raise
        self._lookups: Optional[_Lookups] = None
        if self._store.served:
            self._lookups = _Lookups(tier_type, self._store, self._space, self._size)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def _is_suspect(self, key: bytes) -> bool:
        until = self._suspects.get(key)
        if until is None:
            return False
        if time.monotonic() < until:
            return True
        del self._suspects[key]
        return False

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        if self._lookups is not None:
            found = False if self._is_suspect(key) else self._lookups.lookup(key, req_context)
            return LookupResult.RETRY if found is None else (
                LookupResult.HIT if found else LookupResult.MISS)
        if self._is_suspect(key) or self._store.lookup(self._space, [key])[0] != self._size:
            return LookupResult.MISS
        return LookupResult.HIT

    def on_schedule_end(self, context: Any) -> None:
        if self._lookups is not None:
            self._lookups.flush()

    def on_request_finished(self, req_context: Any) -> None:
        if self._lookups is not None:
            self._lookups.cleanup(req_context.req_id)

    def _buffers(self, chunks: Iterable[int]) -> List[Tuple[int, int]]:
        buffers = []
        for chunk in chunks:
            if not 0 <= int(chunk) < self._chunks:
                raise ValueError(f"the primary tier has {self._chunks} chunks, and no {chunk}")
            buffers.append((self._base + int(chunk) * self._size, self._size))
        return buffers

    def _submit(self, job: Any, load: bool) -> None:
        pairs = list(zip(job.keys, job.chunk_ids))
        # A look-up at a server would block vLLM's scheduler.
        if not load and pairs and not self._store.served:
            known = self._store.lookup(self._space, [key for key, _ in pairs])
            pairs = [pair for pair, size in zip(pairs, known) if size != self._size]
        ours = _Job(job.job_id, [bytes(key) for key, _ in pairs], load)
        if not pairs:
            self._finished.append(JobResult(job.job_id, True, transfer_time=0.0,
                                            transfer_bytes=0))
            return
        try:
            number = self._store.submit(kv.GET if load else kv.SET, self._space, ours.keys,
                                        self._buffers(chunk for _, chunk in pairs))
        except (OSError, ValueError) as error:
            _log.warning("penstock: a %s of %d blocks cannot begin: %s",
                         "load" if load else "store", len(pairs), error)
            self._finished.append(JobResult(job.job_id, False))
            return
        self._jobs[number] = ours

    def submit_store(self, job_metadata: Any) -> None:
        self._submit(job_metadata, False)

    def submit_load(self, job_metadata: Any) -> None:
        self._submit(job_metadata, True)

    def _complete(self, done: kv.Completion) -> None:
        job = self._jobs.pop(done.number)
        want = self._size if job.load else 0
        good = [key for key, result in zip(job.keys, done.results) if result == want]
        ok = len(good) == len(job.keys)
        if done.err:
            _log.warning("penstock: %d of %d blocks of a %s failed: error %d",
                         len(job.keys) - len(good), len(job.keys),
                         "load" if job.load else "store", -done.err)
        if job.load and not ok:
            now = time.monotonic()
            self._suspects = {key: until for key, until in self._suspects.items()
                              if until > now}
            if self._lookups is not None:
                self._lookups.mark_miss([key for key in job.keys if key not in good])
            bad = [key for key, result in zip(job.keys, done.results) if result != want]
            self._suspects.update((key, now + SUSPECT_S) for key in bad)
            if self._changes is None:
                self._tell(bad, True)
        if not job.load:
            for key in good:
                self._suspects.pop(key, None)
            if ok and self._changes is None:
                self._tell(job.keys, False)
        self._finished.append(JobResult(
            job.number, ok, tuple(good) if good and not ok and job.load else None,
            time.monotonic() - job.began, len(job.keys) * self._size))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        for done in self._store.reap(256):
            self._complete(done)
        finished, self._finished = self._finished, []
        return finished

    def _tell(self, keys: Iterable[bytes], removed: bool) -> None:
        """Add an event for the blocks whose reported state changes to stored or to removed.

        Without the events of a store, the tier does not remember what it has reported, and reports
        all of these blocks.
        """
        if self.events is None:
            return
        news = sorted({bytes(key) for key in keys
                       if self._changes is None or (key in self._told) == removed})
        if not news:
            return
        if self._changes is not None and removed:
            self._told.difference_update(news)
        elif self._changes is not None:
            self._told.update(news)
        last = self.events[-1] if self.events else None
        if last is not None and last.removed == removed and self._changes is not None:
            last.keys.extend(news)  # take_events() sorts
            return
        self.events.append(OffloadingEvent(
            keys=news, medium=self.medium, removed=removed, locality=self.locality,
            removal_expected=self._changes is not None))

    def _look_again(self) -> None:
        """After lost events, look up the blocks that were reported as stored, and report the
        missing ones."""
        keys = list(self._told)
        for at in range(0, len(keys), BATCH):
            some = keys[at:at + BATCH]
            sizes = self._store.lookup(self._space, some)
            self._tell([key for key, size in zip(some, sizes) if size != self._size], True)

    def _follow(self, changes: kv.Events) -> None:
        """Turn the store's events into vLLM's."""
        found: Optional[List[kv.Event]] = None
        while found != []:
            found = changes.take(BATCH)
            if changes.lost != self._lost:
                self._lost = changes.lost
                self._look_again()
            for change in found:
                if change.kind == kv.DROPPED:
                    self._tell(list(self._told), True)
                else:
                    self._tell([change.key], change.kind == kv.REMOVED)

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Return blocks stored and removed since the last call.  With directories these include
        evicted blocks; with a server's store, blocks that could not be loaded count as removed."""
        if self._changes is not None:
            self._follow(self._changes)
        events, self.events = self.events or [], [] if self.events is not None else None
        for event in events:
            event.keys.sort()
        return events

    def drain_jobs(self) -> None:
        """Wait for each job; each ends by its timeout."""
        while self._jobs:
            for done in self._store.reap(256, None):
                self._complete(done)
        # A store that timed out may still read the primary tier.
        self._store.drain(None)

    def report(self) -> Dict[str, int]:
        return self._store.stat()

    def shutdown(self) -> None:
        if self._lookups is not None:
            self._lookups.shutdown()
        self._store.close()
