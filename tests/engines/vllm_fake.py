# SPDX-License-Identifier: MIT
"""What penstock.vllm_tier imports of vLLM, without vLLM: install() before the import.

The classes have the members that the tier uses, as vLLM 0.33.0 has them.  If PST_VLLM_SOURCE names
vLLM's unpacked source archive, its own classes are used, and only what they import is made up
(torch is not needed, numpy and msgspec are).
"""
import abc
import enum
import logging
import os
import queue
import sys
import threading
import types
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any, Optional

BASE = "vllm.v1.kv_offload"
OFFLOADING = "vllm.distributed.kv_transfer.kv_connector.v1.offloading"


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class LookupResult(enum.Enum):
    MISS = enum.auto()
    HIT = enum.auto()
    HIT_PENDING = enum.auto()
    RETRY = enum.auto()


@dataclass
class OffloadingEvent:
    keys: list
    medium: Medium
    removed: bool
    locality: Optional[Locality] = None
    ownership: Optional[str] = None
    removal_expected: bool = False
    metadata_only: bool = False


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Optional[tuple] = None
    transfer_time: Optional[float] = None
    transfer_bytes: Optional[int] = None


class RequestOffloadingContext:
    pass


class FileMapper:
    rank = 0

    @classmethod
    def from_offloading_spec(cls, **_: Any) -> "FileMapper":
        return cls()

    def get_run_config(self) -> dict:
        return {"model_name": "test-model", "dtype": "float32"}


class SecondaryTierManager(abc.ABC):
    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None):
        self._primary_kv_view = primary_kv_view
        self.block_size_bytes = primary_kv_view.strides[0]
        self.tier_type = tier_type


class AsyncLookupManager(abc.ABC):
    """Look-ups of one step go to a thread, and are answered in a later step."""

    def __init__(self, tier_type):
        self._answers, self._step = {}, []
        self._asked, self._found = queue.SimpleQueue(), queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @abc.abstractmethod
    def batch_lookup(self, keys, req_context): ...

    def lookup(self, key, req_context):
        while not self._found.empty():
            self._answers.update(self._found.get())
        if key not in self._answers:
            self._answers[key] = None
            self._step.append((key, req_context))
        return self._answers[key]

    def flush(self):
        step, self._step = self._step, []
        if step:
            self._asked.put(step)

    def mark_miss(self, keys):
        self._answers.update({key: False for key in keys if self._answers.get(key) is not None})

    def cleanup(self, req_id):
        self._answers = {key: found for key, found in self._answers.items() if found is None}

    def shutdown(self):
        self._asked.put(None)
        self._thread.join()

    def _work(self):
        while (step := self._asked.get()) is not None:
            keys = [key for key, _ in step]
            try:
                found = list(self.batch_lookup(keys, step[0][1]))
            except Exception:  # pylint: disable=W0718 # as vLLM does
                found = [False] * len(keys)
            self._found.put(dict(zip(keys, found)))


def _module(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    return module


class _MadeUp:
    """Any module that is missing, with any class in it."""

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top == "vllm" or top.startswith("_") or top in sys.stdlib_module_names:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        def member(name, into=None):
            if name.startswith("__"):
                raise AttributeError(name)
            kind = type("Kind", (type,), {"__getattr__": lambda cls, name: member(name)})
            return kind(name, (), {})
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = member
        return module

    def exec_module(self, module):
        pass


def _install_theirs(source):
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.utils", "vllm.distributed",
                 "vllm.distributed.kv_transfer", "vllm.distributed.kv_transfer.kv_connector",
                 "vllm.distributed.kv_transfer.kv_connector.v1", OFFLOADING):
        _module(name).__path__ = [os.path.join(source, *name.split("."))]
    _module("vllm.logger", init_logger=logging.getLogger)
    _module(f"{OFFLOADING}.canonical_mapping", canonical_format_id=str)
    sys.meta_path.append(_MadeUp())


def install():
    """Make vLLM's modules.  Return True if their classes are vLLM's own."""
    source = os.environ.get("PST_VLLM_SOURCE")
    if source:
        _install_theirs(source)
        return True
    for name in ("vllm", "vllm.v1", BASE, f"{BASE}.tiering"):
        _module(name)
    _module(f"{BASE}.base", Locality=Locality, LookupResult=LookupResult, Medium=Medium,
            OffloadingEvent=OffloadingEvent)
    _module(f"{BASE}.file_mapper", FileMapper=FileMapper)
    _module(f"{BASE}.tiering.async_lookup", AsyncLookupManager=AsyncLookupManager)
    _module(f"{BASE}.tiering.base", JobResult=JobResult, SecondaryTierManager=SecondaryTierManager,
            RequestOffloadingContext=RequestOffloadingContext)
    return False
