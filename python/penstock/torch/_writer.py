# SPDX-License-Identifier: MIT
"""Write checkpoints of torch.distributed.checkpoint."""
import dataclasses
import io
import os
import pickle
import re
import secrets
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo, _StoragePrefix
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .._replace import LEFT_OVER, Replacement
from .._types import Path
from ..safetensors._save import refuse_without_bytes
from . import _metadata
from ._archive import CheckpointError, build
from ._models import OVERTAKEN, ending, folder_of, remove, replace, state_of, still_there

_BATCH = 256 << 20      # bytes of one call, and of copies in memory
_BATCH_PIECES = 4096
_LARGE = 64 << 10       # tensors from this size on are aligned for O_DIRECT
_DATA = r"__\d+_\d+(\.[0-9a-f]{8})?\.distcp"   # file names of torch's writer and ours
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Items:
    """Items of one file, one after the other."""

    def __init__(self, file):
        self.file, self.at = file, 0
        self.blocks, self.offsets, self.nbytes = [], [], 0

    def add(self, block, nbytes):
        if nbytes:
            self.blocks.append(block)
            self.offsets.append(self.at)
            self.at += nbytes
            self.nbytes += nbytes

    def flush(self, least=1):
        if self.nbytes >= least or len(self.blocks) >= _BATCH_PIECES:
            if self.blocks:
                self.file.write_from(self.blocks, self.offsets)
            self.blocks, self.offsets, self.nbytes = [], [], 0

    def tensor(self, tensor):
        """Add a tensor.  Return (offset, bytes) of the item."""
        begin = self.at
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if tensor.device.type not in ("cpu", "cuda"):
            tensor = tensor.cpu()
        block = tensor.contiguous().reshape(-1).view(torch.uint8)
        nbytes = block.numel()
        before, behind = build(tensor.dtype, tuple(tensor.shape), nbytes, begin,
                               4096 if nbytes >= _LARGE else 64)
        self.add(before, len(before))
        self.add(block, nbytes)
        self.add(behind, len(behind))
        self.flush(_BATCH)
        return begin, self.at - begin

    def data(self, data):
        begin = self.at
        self.add(data, len(data))
        self.flush(_BATCH)
        return begin, len(data)


def _is_plain(tensor):
    return type(tensor) in _PLAIN and not tensor.is_quantized


class StorageWriter(FileSystemWriter):
    """Writes a checkpoint into a folder, for dcp.save() and dcp.async_save().

    path:      the folder; made if it is missing
    sync:      wait until the files are durable
    overwrite: accept an existing checkpoint, which stays complete until the new one is

    Bytes go from tensors, on the host or a device, into one file per rank.  torch's
    FileSystemReader and StorageReader can read it.  The table of contents is replaced last, in one
    step; then the old one's files are removed.  Of two concurrent saves into one folder, the one
    that ends last may fail; the other's checkpoint is complete.
    """

    _begun: Any = ()    # state_of() of the table of contents at the begin

    def __init__(self, path: Path, *, sync: bool = True, overwrite: bool = True) -> None:
        super().__init__(folder_of(path), sync_files=sync, overwrite=overwrite)

    def reset(self, checkpoint_id: Any = None) -> None:
        super().reset(checkpoint_id and folder_of(checkpoint_id))

    def _alone(self):
        """Return whether each rank writes a separate checkpoint."""
        return (getattr(self, "rank", None) is not None and
                not getattr(self, "use_collectives", True))

    def _contents(self):
        name = f"__{self.rank}.metadata" if self._alone() else ".metadata"
        return os.path.join(os.fspath(self.path), name)

    def prepare_local_plan(self, plan: Any) -> Any:
        os.makedirs(self.path, exist_ok=True)
        path = self._contents()
        if not self.overwrite and os.path.exists(path):
            raise CheckpointError(f"{self.path}: there is a checkpoint already, and overwrite is "
                                  "False")
        self._begun = state_of(path)
        if self._alone():
            plan = dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{self.rank}_"))
        return plan

    def write_data(self, plan: Any, planner: Any) -> Any:
        future: Any = Future()
        if not plan.items:
            future.set_result([])
            return future
        name = f"{plan.storage_data.prefix}0.{secrets.token_hex(4)}.distcp"
        path = os.path.join(os.fspath(self.path), name)
        results = []
        with Replacement(path, self._like(plan.storage_data.prefix)) as new:
            items = _Items(new.file)
            for item in plan.items:
                begin, nbytes = self._write(items, item, planner)
                results.append(WriteResult(item.index, nbytes, _StorageInfo(name, begin, nbytes)))
            items.flush()
            try:
                new.publish(self.sync_files)
            except FileNotFoundError as e:
                raise CheckpointError(f"{self.path}: {OVERTAKEN}") from e
        future.set_result(results)
        return future

    def _like(self, prefix):
        """Return a file of the existing checkpoint, this rank's if it has one."""
        files = sorted(name for name in os.listdir(self.path) if re.fullmatch(_DATA, name))
        own = [name for name in files if name.startswith(prefix)]
        return os.path.join(os.fspath(self.path), (own or files or [self._contents()])[0])

    @staticmethod
    def _write(items, item, planner):
        name = item.index.fqn
        try:
            data = planner.resolve_data(item)
        except Exception as e:
            raise CheckpointError(f"'{name}' cannot be saved: {type(e).__name__}: {e}") from e
        if item.type == WriteItemType.BYTE_IO:
            if isinstance(data, io.BytesIO):
                data = data.getvalue()
            return items.data(bytes(data))
        refuse_without_bytes(f"'{name}'", data, CheckpointError)
        if _is_plain(data):
            return items.tensor(data)
        # Only torch can describe these types of tensors.
        saved = io.BytesIO()
        try:
            torch.save(data, saved)
            found = torch.load(io.BytesIO(saved.getvalue()), map_location="cpu", weights_only=True)
            torch.empty_like(found).copy_(found)
        except Exception as e:
            raise CheckpointError(f"'{name}' is of '{type(data).__name__}', which no reader of "
                                  "checkpoints could read; save plain tensors of it: "
                                  f"{type(e).__name__}: {str(e).partition(chr(10))[0]}") from e
        return items.data(saved.getvalue())

    def finish(self, metadata: Any, results: Any) -> None:
        path = self._contents()
        metadata.version = "1.0.0"
        metadata.storage_data = {result.index: result.storage_data
                                 for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        new = {info.relative_path for info in metadata.storage_data.values()}
        with ending(os.fspath(self.path)):
            if self._begun != () and not still_there(path, self._begun, new):
                raise CheckpointError(f"{self.path}: {OVERTAKEN}")
            old = self._files_of(path)
            try:
                replace(path, pickle.dumps(metadata), self.sync_files)
            except BaseException:
                # Remove the files: otherwise each retry on a full disk would leave more of them.
                if not self._needs(path, new):
                    remove(os.fspath(self.path), new)
                raise
            remove(os.fspath(self.path), (old | self._left_over()) - new)

    @staticmethod
    def _needs(path, names):
        """Return whether a table of contents needs these files."""
        try:
            found = _metadata.read(path)
        except FileNotFoundError:
            return False
        except (OSError, CheckpointError):
            return True     # unknown
        return any(info.relative_path in names for info in found.storage_data.values())

    @staticmethod
    def _files_of(path):
        """Return the file names of the checkpoint that is being replaced."""
        try:
            found = _metadata.read(path)
        except (OSError, CheckpointError):
            return set()
        return {info.relative_path for info in found.storage_data.values()
                if re.fullmatch(_DATA, info.relative_path)}

    def _left_over(self):
        """Return our files from saves that did not complete."""
        rank = str(self.rank) if self._alone() else r"\d+"
        own = os.path.basename(self._contents())
        return {name for name in os.listdir(self.path)
                if re.fullmatch(rf"__{rank}_\d+\.[0-9a-f]{{8}}\.distcp({LEFT_OVER})?|"
                                rf"{re.escape(own)}{LEFT_OVER}", name)}
