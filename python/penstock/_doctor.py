# SPDX-License-Identifier: MIT
"""What this machine can do, as values."""
import ctypes
from ctypes import byref
from typing import Any, Dict, List, Optional

from . import _abi
from ._file import File
from ._lib import check, lib, library_path, name_of, sized, version, why_text
from ._memory import Memory
from ._types import Path

_KINDS = {_abi.PST_KIND_HOST: "host", _abi.PST_KIND_SOFT: "soft", _abi.PST_KIND_CUDA: "cuda",
          _abi.PST_KIND_GAUDI: "gaudi"}
_STATES = {_abi.PST_STATE_IMPOSSIBLE: "impossible", _abi.PST_STATE_POSSIBLE: "possible",
           _abi.PST_STATE_PROVEN: "proven"}
_CHECKS = {_abi.PST_CHECK_MISSING: "missing", _abi.PST_CHECK_UNKNOWN: "unknown",
           _abi.PST_CHECK_OK: "ok", _abi.PST_CHECK_UNNEEDED: "unneeded"}
_MOST = 128


def _room(kind: Any, count: int = _MOST) -> Any:
    rows = (kind * count)()
    for row in rows:
        row.sz = ctypes.sizeof(kind)
    return rows


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def devices() -> List[Dict[str, Any]]:
    """Return the devices whose memory is supported, the host first.

    A list of {"name": argument for Memory.alloc(), "kind": "host", "soft" or "cuda", "model",
    "pci", "uuid": 32 hex digits, "numa_node": -1 if unknown, "total": bytes, 0 if unknown}.
    """
    rows = _room(_abi.pst_device)
    count = check(lib.pst_device_list(rows, len(rows)))
    return [{"name": _text(row.name), "kind": _KINDS.get(row.kind, "other"),
             "model": _text(row.model), "pci": _text(row.pci), "uuid": bytes(row.uuid).hex(),
             "numa_node": row.numa_node, "total": row.total} for row in rows[:count]]


def _checks(topic: bytes, options: Any = None) -> List[Dict[str, Any]]:
    rows = _room(_abi.pst_check)
    count = check(lib.pst_check(topic, options, rows, len(rows)))
    return [{"name": _text(row.name), "state": _CHECKS.get(row.state, "other"),
             "errno": row.err, "text": _text(row.text)} for row in rows[:count]]


def _paths(file: File, device: str) -> List[Dict[str, Any]]:
    found = []
    with Memory.alloc(device, 4096) as memory:
        for path in range(1, _abi.PST_PATH_MAX + 1):
            info = sized(_abi.pst_path_info)
            if lib.pst_path_check(file.handle, memory.handle, _abi.PST_OP_READ, path,
                                  byref(info)) == 0:
                found.append({"path": _text(lib.pst_path_name(path)),
                              "state": _STATES.get(info.state, "other"),
                              "why": why_text(info.why, info.detail)})
    return found


def doctor(path: Optional[Path] = None) -> Dict[str, Any]:
    """Return what this machine can do, and what is missing.

    path: a file for which to report the paths of reads; it is not read

    Returns {"version", "library": its path, "devices": as devices(), "io": checks of the back ends}
    and with a path {"file": as File.info(), "paths": {device: [{"path", "state", "why"}]}, "gds":
    checks of direct paths to GPUs}.  A check is {"name", "state": "ok", "missing", "unneeded" or
    "unknown", "errno", "text": finding and cure}.  `penstock doctor` tests more, with real bytes.
    """
    report: Dict[str, Any] = {"version": version(), "library": library_path, "devices": devices(),
              "io": _checks(b"io")}
    if path is not None:
        options = sized(_abi.pst_check_opts)
        options.path = name_of(path)
        with File(path) as file:
            report["file"] = file.info()
            report["paths"] = {device["name"]: _paths(file, device["name"])
                               for device in report["devices"]}
        report["gds"] = _checks(b"gds", byref(options))
    return report
