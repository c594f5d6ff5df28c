# SPDX-License-Identifier: MIT
"""Tensors of torch that share memory: find them, and save and load models that have some."""
import os
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from .._types import Device, Path
from ._header import SafetensorError
from ._load import load_file
from ._save import save_file


class SharedError(SafetensorError, RuntimeError):
    """Tensors share memory."""


def storage_ptr(tensor: Any) -> int:
    """Return the address of the tensor's storage; 0 if it has none."""
    return tensor.untyped_storage().data_ptr() if hasattr(tensor, "untyped_storage") else \
        tensor.storage().data_ptr()


def storage_size(tensor: Any) -> int:
    """Return the bytes of the tensor's storage."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage().nbytes()
    return tensor.storage().nbytes()


def end_ptr(tensor: Any) -> int:
    """Return the address after the last byte of a tensor, which may have gaps."""
    if not tensor.numel():
        return tensor.data_ptr()
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def is_complete(tensor: Any) -> bool:
    """Return whether the tensor covers its storage, from the first byte to the last."""
    return (tensor.data_ptr() == storage_ptr(tensor) and
            tensor.numel() * tensor.element_size() == storage_size(tensor))


def find_shared_tensors(tensors: Mapping[str, Any]) -> List[Set[str]]:
    """Return sets of names: tensors of one set overlap, tensors of different sets do not.

    Tensors without memory are in no set.
    """
    storages: Dict[Any, List[str]] = {}
    for name, tensor in tensors.items():
        device = tensor.device
        if device.type == "meta":
            continue
        where = (device, storage_ptr(tensor), storage_size(tensor))
        if where[1] and where[2]:
            storages.setdefault(where, []).append(name)
    found = []
    for names in storages.values():
        if len(names) == 1:
            found.append(set(names))
            continue
        reach = None
        for name in sorted(names, key=lambda name: (tensors[name].data_ptr(),
                                                    end_ptr(tensors[name]), name)):
            if reach is None or tensors[name].data_ptr() >= reach:
                found.append({name})
                reach = end_ptr(tensors[name])
            else:
                found[-1].add(name)
                reach = max(reach, end_ptr(tensors[name]))
    return found


def remove_duplicate_names(tensors: Mapping[str, Any], *,
                           preferred_names: Optional[Iterable[str]] = None,
                           discard_names: Optional[Iterable[str]] = None) -> Dict[str, List[str]]:
    """Return {name to keep: names to leave out} for tensors that share memory.

    A kept tensor covers the memory; preferred_names are kept first, discard_names last.  Raises
    SharedError if none covers it.
    """
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    result = {}
    for names in find_shared_tensors(tensors):
        whole = sorted(name for name in names if is_complete(tensors[name]))
        if not whole:
            raise SharedError(f"the tensors {', '.join(sorted(names))} are parts of a memory that "
                              "none of them covers: clone() those that are to be saved")
        keep = (sorted(set(whole) & preferred) or sorted(set(whole) - discarded) or whole)[0]
        if len(names) > 1:
            result[keep] = sorted(names - {keep})
    return result


def refuse_shared(tensors: Mapping[str, Any]) -> None:
    """Raise SharedError if tensors share memory."""
    if not isinstance(tensors, Mapping):
        raise SafetensorError(f"tensors are a dict of names, not of '{type(tensors).__name__}'")
    layout = getattr(sys.modules.get("torch"), "strided", None)
    strided = {name: tensor for name, tensor in tensors.items()
               if getattr(tensor, "layout", "") is layout}
    for names in find_shared_tensors(strided):
        if len(names) > 1:
            raise SharedError(f"the tensors {', '.join(sorted(names))} share memory: save_model() "
                              "saves one of them, penstock.safetensors.save_file() each")


def save_model(model: Any, filename: Path, metadata: Optional[Mapping[str, str]] = None,
               force_contiguous: bool = True) -> None:
    """Save the tensors of a torch.nn.Module.

    Of tensors that share memory, one is saved; the file's metadata map the other names to it.
    force_contiguous: copy tensors with gaps, which are otherwise refused
    """
    tensors = dict(model.state_dict())
    metadata = dict(metadata or {})
    for keep, others in remove_duplicate_names(tensors).items():
        for name in others:
            metadata.setdefault(name, keep)
            del tensors[name]
    if force_contiguous:
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        refuse_shared(tensors)
        save_file(tensors, filename, metadata or None)
    except SafetensorError as e:
        if force_contiguous or "not contiguous" not in str(e):
            raise
        raise SafetensorError(f"{e}; or use save_model(..., force_contiguous=True)") from None


def load_model(model: Any, filename: Path, strict: bool = True, device: Device = "cpu", *,
               backend: str = "mmap") -> Tuple[List[str], List[str]]:
    """Load a file into a torch.nn.Module.

    Returns (names of the model that the file lacks, names of the file that the model lacks); with
    strict, raises RuntimeError with these names.
    """
    tensors = load_file(os.fspath(filename), device, framework="pt", backend=backend)
    duplicates = remove_duplicate_names(model.state_dict(), preferred_names=tensors.keys())
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing, unexpected = set(missing), list(unexpected)
    for others in duplicates.values():
        for name in others:
            if name in missing:
                missing.remove(name)
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        text = f"{os.fspath(filename)!r} does not fit {type(model).__name__}:"
        for what, names in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if names:
                text += f"\n    {what} key(s) in state_dict: " + \
                    ", ".join(f'"{name}"' for name in names)
        raise RuntimeError(text)
    return sorted(missing), unexpected
