# SPDX-License-Identifier: MIT
"""Give our tier to vLLM's tests of its file system tier, and skip tests of that tier's internals.

PST_VLLM_SERVED=1: over a store that penstock serve has, one server for each directory.
"""
import glob
import os
import subprocess

import pytest

from penstock.vllm_tier import PenstockTier

SERVED = os.environ.get("PST_VLLM_SERVED") == "1"
INSIDE = "replaces functions or members inside vLLM's tier"
FACTORY = "asks the factory for vLLM's tier"
WHY = {
    "test_store_accepts_block_published_by_another_writer": INSIDE,
    "test_factory_forwards_locality_to_fs_tier": FACTORY,
    "test_shutdown_discards_pending_tasks": "is of the thread pool of vLLM's tier",
    "test_wait_idle_blocks_until_tasks_complete": "is of the thread pool of vLLM's tier",
    "test_batch_lookup_c_extension": "is of the look-up of vLLM's tier in C",
    "test_batch_lookup_dispatch": INSIDE,
    "test_failed_load_after_abort_does_not_break_newer_probe":
        "expects that a look-up is answered later; ours is answered at once",
    "test_batched_load_first_block_fails_marks_whole_batch":
        "expects that a load stops at its first bad block; ours loads the others",
    "test_mixed_job_results_emit_event_only_for_successful_job": INSIDE,
    "test_partially_failed_store_emits_no_event": INSIDE,
    "test_events_disabled_by_default": INSIDE,
    "test_events_require_global_kv_events_flag": INSIDE,
    "test_cascade_store_emits_fs_event_through_tiering_manager": FACTORY,
    "test_fs_tier_cross_tp_round_trip": "compares the folders of vLLM's tier",
}


if SERVED:
    # With a server, look-ups are not immediate, so this test applies.
    del WHY["test_failed_load_after_abort_does_not_break_newer_probe"]

_servers = {}


def address_of(root):
    """The store of a directory on a server, which is started for it."""
    if root not in _servers:
        socket = f"{root}/../{os.path.basename(root)}.socket"
        server = subprocess.Popen(
            [os.environ["PENSTOCK"], "serve", "--kv", root, "--budget", "1g", "--write", "--listen",
             f"unix:{socket}"], stderr=subprocess.PIPE, text=True)
        line = server.stderr.readline()
        if "listening on" not in line:
            raise OSError(line)
        _servers[root] = server, f"pst+unix://{socket}:"
    return _servers[root][1]


def pytest_unconfigure():
    for server, _ in _servers.values():
        server.terminate()
        server.wait(30)


def pytest_collection_modifyitems(items):
    for item in items:
        why = WHY.get(item.originalname)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


class _NoWait:
    """Our look-ups are answered at once."""

    @staticmethod
    def empty():
        return False


class _Lookups:
    _pending_results = _NoWait
    _lookup_batch = []


class _Files:
    """Finds a block's file by the key, which is before the foot of 96 bytes."""

    def __init__(self, root):
        self.root = root

    def get_file_name(self, key):
        for path in glob.glob(os.path.join(self.root, "b", "*", "*", "*")):
            with open(path, "rb") as f:
                f.seek(-96 - len(key), os.SEEK_END)
                if f.read(len(key)) == key:
                    return path
        return os.path.join(self.root, "b", "none")


class FileSystemTierManager(PenstockTier):
    """Our tier under the name and with the arguments that the tests use."""

    _lookup_manager = property(lambda self: self._lookups) if SERVED else _Lookups
    _use_o_direct = False

    def __init__(self, offloading_spec, primary_kv_view, tier_type, root_dir, n_read_threads=0,
                 n_write_threads=0, **options):
        where = {"dirs": [root_dir], "budget": 1 << 30}
        if SERVED:
            where = {"dirs": [address_of(root_dir)]}
        super().__init__(offloading_spec, primary_kv_view, tier_type, **where, **options)
        self.file_mapper = _Files(root_dir)
