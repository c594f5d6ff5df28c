# SPDX-License-Identifier: MIT
"""State dicts in safetensors files: one file, or a folder of shards with an index."""
import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import time
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional

from .._replace import LEFT_OVER, Replacement, sync_folder
from .._types import Device, Path, Progress
from ..safetensors import SafetensorError, load_files
from ..safetensors._folder import shards_of
from ..safetensors._save import arrange, tensors_of, write

INDEX = "model.safetensors.index.json"
# Names of files that an incomplete save of ours may have left.
_LEFT_OVER = (rf"model-[0-9a-f]{{8}}-\d{{5,}}-of-\d{{5,}}\.safetensors({LEFT_OVER})?|"
              rf"{re.escape(INDEX)}{LEFT_OVER}")


def folder_of(path):
    """Return a path as text.  Refuse names of services: save() would make folders with these
    names."""
    path = os.fsdecode(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise OSError(errno.EPROTONOSUPPORT, "names of services are not served; a folder that is "
                      "called so is named ./scheme://", path)
    return path


def load(path: Path, device: Device = "cpu", *, names: Optional[Iterable[str]] = None,
         strict: bool = False, raw: bool = False,
         progress: Progress = None) -> Dict[str, Any]:
    """Load a state dict.

    path:     a safetensors file, a folder with such files, or an index (*.index.json)
    device:   "cpu", "cuda:0" or 0
    names:    load only these tensors, and open only their files
    strict, raw, progress: as penstock.safetensors.load_file(); strict concerns paths of bytes

    A folder's files are those of its index, otherwise those of its only model, as load_files()
    describes.  The index and all headers are checked before the first tensor is read: files must
    have exactly the tensors that the index says, and no name twice.  Bytes go from the files
    directly into the tensors, so no other host memory grows with the model.

    Returns {name: tensor}.  Raises SafetensorError, FileNotFoundError and other Errors.
    """
    return load_files([folder_of(path)], device, framework="pt", names=names, strict=strict,
                      raw=raw, progress=progress)


def _split(found, most):
    """Yield lists of (Entry, bytes) of at most that many bytes, or of one larger tensor."""
    shards, nbytes = [[]], 0
    for entry, block in found:
        if shards[-1] and nbytes + entry.nbytes > most:
            shards.append([])
            nbytes = 0
        shards[-1].append((entry, block))
        nbytes += entry.nbytes
    return shards


def save(tensors: Mapping[str, Any], path: Path, *, metadata: Optional[Mapping[str, str]] = None,
         shard_bytes: Optional[int] = None, sync: bool = True) -> None:
    """Save a state dict.

    tensors:     {name: tensor}, on any device; refused are tensors with gaps and, as by
                 penstock.safetensors.torch.save_file(), those that share memory
    path:        a file; with shard_bytes a folder, which is made if it is missing
    metadata:    texts by texts; None: {"format": "pt"}
    shard_bytes: most bytes of tensors per file, after which a new file begins
    sync:        wait until the files are durable

    A file becomes visible only when it is complete.  In a folder the index is replaced last, and
    shards of each save have unique names, so until then the old index leads to the old shards.
    These are removed afterwards; the new files have their modes, owners and ACLs.
    """
    from ..safetensors._shared import refuse_shared  # pylint: disable=import-outside-toplevel
    refuse_shared(tensors)
    metadata = {"format": "pt"} if metadata is None else metadata
    found = tensors_of(tensors)
    path = folder_of(path)
    if shard_bytes is None:
        head, found = arrange(found, metadata)
        return write(path, head, found, sync)
    if shard_bytes < 1:
        raise ValueError("a shard has at least one byte")
    os.makedirs(path, exist_ok=True)
    index = os.path.join(path, INDEX)
    begun = state_of(index)
    shards = _split(found, shard_bytes)
    before = sorted(_old_shards(index))
    token, names, made = secrets.token_hex(4), {}, []
    try:
        for number, shard in enumerate(shards, 1):
            name = f"model-{token}-{number:05d}-of-{len(shards):05d}.safetensors"
            head, pairs = arrange(shard, metadata)
            made.append(name)
            like = before[min(number, len(before)) - 1] if before else INDEX
            write(os.path.join(path, name), head, pairs, sync, os.path.join(path, like))
            names.update((entry.name, name) for entry, _ in pairs)
        total = sum(entry.nbytes for entry, _ in found)
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": names}, indent=2)
        with ending(path):
            if not still_there(index, begun, made):
                raise SafetensorError(f"{path}: {OVERTAKEN}")
            old = _old_shards(index)
            replace(index, text.encode(), sync)
            left = {name for name in os.listdir(path) if re.fullmatch(_LEFT_OVER, name)}
            remove(path, (old | left) - set(made))
    except BaseException as e:
        if not _leads_to(index, made):
            remove(path, made)
        if isinstance(e, FileNotFoundError) and state_of(index) != begun:
            raise SafetensorError(f"{path}: {OVERTAKEN}") from e
        raise
    return None


def _leads_to(index, names):
    """Return True if an index needs these files.  After a failure the new index may already be in
    place.
    """
    try:
        return not set(names).isdisjoint(shards_of(index).values())
    except FileNotFoundError:
        return False
    except (OSError, SafetensorError):
        return True     # unknown


def _old_shards(index):
    """Return the files of an index that a new index makes useless."""
    try:
        return {name for name in shards_of(index).values() if name.endswith(".safetensors")}
    except (OSError, SafetensorError):
        return set()


# With two saves into one folder, the first to complete removes the files of the other, like those
# of a killed save.
OVERTAKEN = ("another save into this folder came to its end meanwhile and removed what this one "
             "had written; what that one saved is whole: wait for one save before the next")
_ENDING_MAX = 60    # seconds


def state_of(path: str) -> Any:
    """Return a value that changes if this name gets another file, or has none any more."""
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def still_there(contents: str, begun: Any, names: Iterable[str]) -> bool:
    """Return False if another save has replaced the table of contents and removed these files since
    then.

    A node with a disk of its own never has the files of other nodes, so missing files alone prove
    nothing.
    """
    return state_of(contents) == begun or all(
        os.path.exists(os.path.join(os.path.dirname(contents), name)) for name in names)


@contextlib.contextmanager
def ending(folder: str) -> Iterator[None]:
    """Serialise the ends of saves, on file systems with locks."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _ENDING_MAX
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(errno.ETIMEDOUT, "another save has been at its end here for "
                                  f"{_ENDING_MAX} s; is its process stopped?", folder) from None
                time.sleep(0.01)
            except OSError:
                break       # for example NFS has no locks for folders
        yield
    finally:
        os.close(fd)


def remove(folder, names):
    for name in names:
        try:
            os.unlink(os.path.join(folder, name))
        except FileNotFoundError:
            pass


def replace(path, data, sync):
    """Replace a small file, after making the other files of its folder durable."""
    with Replacement(path) as new:
        new.file.write(data)
        if sync:
            sync_folder(os.path.dirname(path) or ".")
        new.publish(sync)
