# SPDX-License-Identifier: MIT
"""Models of several files: which files of a folder belong to a model, and the content of an index.
"""
import json
import os
import re
import stat

from ._header import SafetensorError

_INDEX_MAX = 256 << 20


def encodable(name):
    """Return whether name can be a file name; lone surrogates cannot."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _once(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise SafetensorError("the index has a name twice")
    return result


def shards_of(path):
    """Return {name of a tensor: name of its file} from an index, which is hostile until checked."""
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise SafetensorError(f"{path}: this is no regular file")
    if facts.st_size > _INDEX_MAX:
        raise SafetensorError(f"{path}: the index has more than {_INDEX_MAX} bytes")
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file, object_pairs_hook=_once)
        shards = index["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise SafetensorError(f"{path}: this is no index of safetensors files: {e}") from None
    if not isinstance(shards, dict):
        raise SafetensorError(f"{path}: the weight_map is no object")
    for name, shard in shards.items():
        if (not isinstance(shard, str) or os.path.basename(shard) != shard or "\0" in shard or
                shard in ("", ".", "..") or not encodable(shard)):
            raise SafetensorError(f"{path}: tensor '{name[:80]}' is in no file of this folder")
    return shards


def _may_be_a_model(path):
    """Return True for a file, and for a dangling link, which is an error and must not be ignored.
    """
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def _candidates(folder, files, complete):
    """Return {description: files} of models, each of one file or of numbered files."""
    found, sets = {}, {}
    for name in files:
        shard = re.fullmatch(r"(.*)-(\d{5,12})-of-(\d{5,12})\.safetensors", name)
        if not shard:
            found[name] = [name]
            continue
        # Files of different ranks of torch's writer, shard-N-..., are parts of one model.
        begin, count = re.sub(r"^shard-\d+-", "", shard[1]), int(shard[3])
        found.setdefault(f"{begin}-*-of-{shard[3]}.safetensors", []).append(name)
        sets.setdefault((shard[1], count), set()).add(int(shard[2]))
    for (begin, count), numbers in sets.items():
        # A rank may have no tensors for some of the files.
        if complete and len(numbers) < count and not begin.startswith("shard-"):
            raise SafetensorError(f"{folder}: there is no index, and of the {count} files of "
                                  f"{begin} there are {len(numbers)}: a save or copy of them did "
                                  "not come to its end")
    return found


def models_of(folder, complete):
    """Return (name of the index or None, names of safetensors files if there is none) in a folder.

    complete: without an index, refuse incomplete sets of shards

    Ignores hidden names, folders, pipes and other types.  Raises SafetensorError, also for several
    indexes, and, without an index, for files of more than one model.
    """
    found = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    indexes = [name for name in found if name.endswith(".safetensors.index.json")]
    if len(indexes) > 1:
        raise SafetensorError(f"{folder}: there are several indexes, {', '.join(indexes)}; name "
                              "the one that is meant")
    if indexes:
        return indexes[0], []
    files = [name for name in found if name.endswith(".safetensors") and
             _may_be_a_model(os.path.join(folder, name))]
    models = sorted(_candidates(folder, files, complete))
    ours = [name for name in models if re.match(r"model-[0-9a-f]{8}-\*-of-", name)]
    if len(ours) > 1 and ours == models:
        raise SafetensorError(f"{folder}: there is no index, and files of several saves, "
                              f"{', '.join(ours)}; remove those of the saves that failed")
    if len(models) > 1:
        more = f" and {len(models) - 8} more" if len(models) > 8 else ""
        raise SafetensorError(f"{folder}: there is no index that says which files are the model; "
                              f"it may be {', '.join(models[:8])}{more}: name the file that is "
                              "meant, or give the files that belong together to load_files()")
    return None, files


def _of_folder(folder, names):
    index, files = models_of(folder, names is None)
    if index:
        return _of_index(os.path.join(folder, index), names)
    if not files:
        raise SafetensorError(f"{folder}: there are no safetensors files in this folder")
    return [(os.path.join(folder, name), None) for name in files]


def _of_index(path, names):
    where = {}
    for name, shard in shards_of(path).items():
        if names is None or name in names:
            where.setdefault(os.path.join(os.path.dirname(path), shard), set()).add(name)
    return sorted(where.items())


def files_of(path, names):
    """Return a list of (path of a file, names of its tensors in the index, or None).

    path:  a file, a folder with a model, or an index
    names: wanted tensors, None for all; with an index, only files that have some of them
    """
    text = os.fsdecode(path)
    if os.path.isdir(text):
        return _of_folder(text, names)
    if text.endswith(".index.json"):
        return _of_index(text, names)
    return [(path, None)]


def check_index(path, tensors, wanted, names):
    """Raise SafetensorError unless a file has exactly the tensors that an index says.

    tensors: those of the file; wanted: those of the index, None without one; names: as files_of()
    """
    if wanted is None:
        return
    missing = sorted(wanted - tensors.keys())
    if missing:
        raise SafetensorError(f"{path}: the index says that tensor '{missing[0]}' is here, and it "
                              "is not")
    more = sorted(tensors.keys() - wanted) if names is None else []
    if more:
        raise SafetensorError(f"{path}: tensor '{more[0]}' is not where the index says")
