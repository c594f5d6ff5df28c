# SPDX-License-Identifier: MIT
"""Load whole files, tensors, and slices."""
import bisect
import os
import threading
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .._file import File, ShortRead
from .._lib import plain_name
from .._memory import Idle
from .._progress import checked, reports
from .._types import Device, Path, Progress
from ._folder import check_index, files_of
from ._frames import SMALL, frame_of
from ._header import Entry, SafetensorError, read
from ._into import Reads, shorter
from ._prefetch import Plan, PrefetchLoader, rows_of
from ._slices import dims_of, pieces
from ._sums import Verified

_WINDOW_MAX = 1 << 20   # most bytes of small tensors that are read ahead
_OPEN_MAX = 64      # files kept open; with more, each is opened again when it is read


BACKENDS = ("mmap", "pread", "penstock")


def _known(backend):
    if backend not in BACKENDS:
        raise SafetensorError(f"'{backend}' is no backend; there are {', '.join(BACKENDS)}, which "
                              "mean the same here")


def _open(path):
    return _checked(File(path), path)


def _checked(file, path):
    try:
        return file, read(file)
    except SafetensorError as e:
        file.close()
        raise SafetensorError(f"{plain_name(path)}: {e}") from None
    except ShortRead as e:
        file.close()
        raise SafetensorError(f"{plain_name(path)}: the file became shorter while it was "
                              "read") from e
    except BaseException:
        file.close()
        raise


def _facts(header):
    return header.data, [tuple(getattr(entry, name) for name in entry.__slots__)
                         for entry in header.tensors.values()]


def _again(path, header):
    """Open a file again whose header is known."""
    file, now = _open(path)
    if _facts(now) != _facts(header):
        file.close()
        raise SafetensorError(f"{plain_name(path)}: the file was replaced after its header was "
                              "read")
    return file


def load_files(filenames: Iterable[Path], device: Device = "cpu", *, framework: str = "np",
               names: Optional[Iterable[str]] = None, strict: bool = False, raw: bool = False,
               progress: Progress = None, verify: bool = False) -> Dict[str, Any]:
    """Load the tensors of several files, whose names must differ; arguments as load_file().

    filenames: paths of files, of folders, and of indexes, *.index.json.  A folder's files are those
               of its index.  Without an index they must belong to one model: one file, or numbered
               ones, NAME-00001-of-00002; others are refused.  Hidden names are ignored.

    All headers are read and checked before the first tensor is read.
    """
    if isinstance(filenames, (str, bytes, os.PathLike)):
        raise TypeError("load_files() takes paths in a list; for one there is load_file()")
    filenames = list(filenames)
    frame = frame_of(framework, device, raw)
    checked(progress)
    wanted = None if names is None else set(names)
    opened, owner = [], {}
    try:
        for path, indexed in (pair for name in filenames for pair in files_of(name, wanted)):
            file, header = _open(path)
            if len(opened) >= _OPEN_MAX:
                file.close()
            opened.append((path, file, header))
            check_index(path, header.tensors, indexed, wanted)
            if not owner.keys().isdisjoint(header.names):
                name = next(name for name in header.names if name in owner)
                raise SafetensorError(f"tensor '{name}' is in {owner[name]} and in "
                                      f"{plain_name(path)}")
            owner.update(dict.fromkeys(header.names, plain_name(path)))
            kinds = {(entry.dtype, entry.shape): entry for entry in header.tensors.values()
                     if wanted is None or entry.name in wanted}
            for entry in kinds.values():
                frame.check(entry)
        missing = sorted((wanted or set()) - owner.keys())
        if missing:
            places = ", ".join(str(plain_name(name)) for name in filenames)
            raise SafetensorError(f"{places}: there is no tensor '{missing[0]}'")
        plan = [(path, file, header, [entry for entry in header.tensors.values()
                                      if wanted is None or entry.name in wanted])
                for path, file, header in opened]
        total = sum(entry.nbytes for _, _, _, entries in plan for entry in entries)
        verified = Verified()
        result = {}
        with reports(progress, total) as done, Reads(frame, total, strict, done) as reads:
            for path, file, header, entries in plan:
                if not file.closed:
                    reads.add(file, header.data, entries, result)
                    if verify:      # read the checksums while the bytes are in flight
                        verified.add(path, file, header.data, entries)
                    continue
                with _again(path, header) as again:
                    reads.add(again, header.data, entries, result)
                    if verify:
                        verified.add(path, again, header.data, entries)
                    reads.finish()
            reads.finish()
        verified.check(result, frame)
        return result
    finally:
        for _, file, _ in opened:
            file.close()


def load_file(filename: Path, device: Device = "cpu", *, framework: str = "np",
              names: Optional[Iterable[str]] = None, strict: bool = False, raw: bool = False,
              progress: Progress = None, backend: str = "mmap",
              verify: bool = False) -> Dict[str, Any]:
    """Load a safetensors file, or the files of a model.

    filename:  path of a file, a folder or an index, as load_files()
    device:    "cpu"; with framework="pt" also "cuda:0" or 0
    framework: "np" for arrays of numpy, "pt" for tensors of torch
    names:     load only these tensors
    strict:    fail with EOPNOTSUPP if a better path exists and is not taken
    raw:       types that the framework lacks are returned as unsigned integers of the same bits;
               those of less than a byte as a row of bytes
    progress:  called with (bytes so far, total bytes) about every 128 MiB; True for a bar of tqdm,
               or a line on standard error if tqdm is not installed
    backend:   an argument of the package safetensors: "mmap" or "pread", without effect here
    verify:    compare the bytes in the tensors' memory with the file's checksums, written by
               write_sums() or "python3 -m penstock sum"; a device computes its own

    Bytes go from the file directly into the tensors: no other host memory grows with the file.
    Tensors are ready on any stream when the call returns.

    Returns {name: array or tensor} in the order of their bytes.  Raises SafetensorError for an
    invalid file or a type that the framework lacks, Error for failures of the library.
    """
    _known(backend)
    return load_files([filename], device, framework=framework, names=names, strict=strict, raw=raw,
                      progress=progress, verify=verify)


class Slice:
    """A tensor of a file of which parts can be read: slice[2:5, ..., 0]."""

    def __init__(self, opened, entry):
        self._opened, self._entry = opened, entry

    def get_shape(self) -> List[int]:
        """Return a list of lengths."""
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """Return the type's name in the format, such as "BF16"."""
        return self._entry.dtype

    def __getitem__(self, index: Any) -> Any:
        """Read a part: integers, slices with steps of at least 1, and one "..."."""
        return self._opened.read_part(self._entry, index)


class _Window:
    """Small tensors of an open file that were read together.

    views: {name: view}
    next:  position of the entry after them; None before the first
    size:  bytes that were requested
    """

    def __init__(self, views, place, size):
        self.views, self.next, self.size = views, place, size


class TensorMeta(NamedTuple):
    """A tensor's description in the header.

    dtype: the type's name in the format; shape: lengths; data_offsets: (begin, end) of its bytes,
    counted from the first byte of all tensors
    """
    dtype: str
    shape: List[int]
    data_offsets: Tuple[int, int]


class _Shared:
    """A File that a handle and its loaders share; the last of them closes it."""

    def __init__(self, file):
        self.file, self._users, self._lock = file, 1, threading.Lock()

    def hold(self):
        with self._lock:
            self._users += 1
        return self

    def drop(self):
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            self.file.close()


def _taken(tensor, dims, frame, view=False):
    """Apply the rest of dims to a tensor that was read; copy the result if it is a view."""
    rest = tuple(dim.rest() for dim in dims)
    if view:
        return frame.part(tensor, rest)
    if all(item == slice(0, dim.count, 1) for item, dim in zip(rest, dims)):
        return tensor
    if all(dim.count == 1 if dim.one else dim.rest() == slice(0, dim.count, 1) for dim in dims):
        # Only dimensions of one element are dropped.
        return tensor.reshape([dim.count for dim in dims if not dim.one])
    return frame.part(tensor, rest)


def _only_slices(index, shape):
    """Return whether index has only slices without steps, which mean the same in numpy and torch.
    """
    index = index if type(index) is tuple else (index,)
    return len(index) <= len(shape) and all(type(item) is slice and item.step is None
                                            for item in index)


class safe_open:  # pylint: disable=invalid-name
    """An open safetensors file, with the calls of the package safetensors; a context manager.

    filename:  a path
    framework: "np" or "pt"
    device:    as load_file()
    strict, raw, backend: as load_file()

    Any thread may use it.  Raises SafetensorError, FileNotFoundError and other Errors.
    """

    def __init__(self, filename: Path, framework: str, device: Device = "cpu", *,
                 strict: bool = False, raw: bool = False, backend: str = "mmap") -> None:
        _known(backend)
        self._begin(framework, device, strict, raw, lambda: _open(filename))

    def _begin(self, framework, device, strict, raw, opened):
        self._file = self._shared = self._order = None
        self._window = _Window({}, None, 0)
        self._frame = frame_of(framework, device, raw)
        self._strict = strict
        self._file, self._header = opened()
        self._shared = _Shared(self._file)

    @classmethod
    def of_handle(cls, handle: Any, framework: str, device: Device = "cpu", *,
                  strict: bool = False, raw: bool = False) -> "safe_open":
        """Return a safe_open of an open file: a descriptor, or an object with fileno()."""
        self = cls.__new__(cls)
        self._begin(framework, device, strict, raw,
                    lambda: _checked(File.wrap(handle), getattr(handle, "name", handle)))
        return self

    def _use(self):
        if self._file is None:
            raise SafetensorError("the file is closed")
        return self._header

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._file is None

    def check_types(self, names: Iterable[str]) -> None:
        """Raise SafetensorError if the framework lacks the type of one of these."""
        for name in names:
            self._frame.check(self._entry(name))

    def same_header(self, other: "safe_open") -> bool:
        """Return True if another safe_open, closed or not, has the same tensors at the same
        offsets."""
        return _facts(self._header) == _facts(other._header)

    def keys(self) -> List[str]:
        """Return the names, sorted."""
        return sorted(self._use().names)

    def offset_keys(self) -> List[str]:
        """Return the names in the order of their bytes."""
        return list(self._use().names)

    def metadata(self) -> Optional[Dict[str, str]]:
        """Return a dict of texts, or None."""
        metadata = self._use().metadata
        return None if metadata is None else dict(metadata)

    def _entry(self, name):
        try:
            return self._use().tensors[name]
        except KeyError:
            raise SafetensorError(f"the file does not contain a tensor '{name}'") from None

    def get_tensor(self, name: str) -> Any:
        """Return one whole tensor.

        In host memory, tensors of less than 64 KiB that are requested in the order of their bytes
        are read together, up to 1 MiB, which the handle keeps until the next ones.
        """
        entry = self._entry(name)
        if self._frame.copies and 0 < entry.nbytes < SMALL:
            return self._frame.copy(self._small(entry))
        return self.get_tensors([name])[name]

    def _small(self, entry):
        """Return a view of a small tensor."""
        window = self._window
        view = window.views.get(entry.name)
        if view is not None:
            return view
        if self._order is None:
            entries = list(self._header.tensors.values())
            self._order = entries, [each.begin for each in entries]
        entries, begins = self._order
        first = place = bisect.bisect_left(begins, entry.begin)
        # The read-ahead doubles for a caller that takes tensors in order.
        size = min(max(2 * window.size, SMALL), _WINDOW_MAX) if first == window.next else 0
        begin, end = entry.begin, entry.begin + entry.nbytes
        while place < len(entries) and entries[place].nbytes < SMALL and \
                begins[place] + entries[place].nbytes <= max(begin + size, end):
            place += 1
        end = begins[place - 1] + entries[place - 1].nbytes
        block = self._frame.block(end - begin)
        got = self._file.read(block, self._header.data + begin, short=True, strict=self._strict)
        if got.nbytes < entry.nbytes:
            shorter(self._file.name, None)
        while begins[place - 1] + entries[place - 1].nbytes - begin > got.nbytes:
            place -= 1      # the file was truncated: it ends here
        found = entries[first:place]
        views = dict(zip([each.name for each in found], self._frame.views(block, 0, found)))
        # Another thread may set another window at the same time: each uses its own.
        self._window = _Window(views, place, size)
        return views[entry.name]

    def get_tensors(self, names: Optional[Iterable[str]] = None) -> Dict[str, Any]:
        """Return {name: tensor}; names None: all tensors."""
        header = self._use()
        entries = [self._entry(name) for name in (header.tensors if names is None else names)]
        result = {}
        with Reads(self._frame, sum(entry.nbytes for entry in entries), self._strict) as reads:
            reads.add(self._file, header.data, entries, result)
            reads.finish()
        return result

    def get_tensor_meta(self, name: str) -> TensorMeta:
        """Return a tensor's description in the header; reads nothing."""
        entry = self._entry(name)
        return TensorMeta(entry.dtype, list(entry.shape),
                          (entry.begin, entry.begin + entry.nbytes))

    def prefetch(self, plan: Optional[Plan] = None, *, device: Optional[Device] = None,
                 threads: int = 8) -> PrefetchLoader:
        """Start loading tensors; the PrefetchLoader returns each one once, as soon as it is loaded.

        plan:    {name: None for all of it, or a slice of its first dimension}; None: all, whole
        device:  "cuda:0", 0 or "cpu"; None: the handle's device
        threads: an argument of the package safetensors, without effect here

        The handle may be closed before the loader.  Only for framework="pt".
        """
        header = self._use()
        if self._frame.name != "pt":
            raise SafetensorError('prefetch() is for framework="pt"')
        if threads < 1:
            raise SafetensorError("there is at least one thread")
        frame = self._frame if device is None else frame_of("pt", device, self._frame.raw)
        if plan is None:
            plan = dict.fromkeys(header.tensors)
        if not isinstance(plan, Mapping):
            raise SafetensorError(f"a plan is a dict of names, not of '{type(plan).__name__}'")
        wanted = {self._entry(name).name: rows for name, rows in plan.items()}
        parts = [(entry, rows_of(entry, wanted[entry.name])) for entry in header.tensors.values()
                 if entry.name in wanted]
        return PrefetchLoader(self._shared.hold(), header, parts, frame, self._strict)

    def get_slice(self, name: str) -> Slice:
        """Return a Slice, of which parts can be read."""
        return Slice(self, self._entry(name))

    def read_part(self, entry, index):
        header, frame = self._use(), self._frame
        small = frame.copies and 0 < entry.nbytes < SMALL and frame.shape(entry) == entry.shape
        if small and _only_slices(index, entry.shape):
            return frame.part(self._small(entry), index)
        dims = dims_of(entry.shape, index)
        if small:
            for dim in dims:
                dim.widen()
            return _taken(self._small(entry), dims, frame, True)
        offsets, nbytes = pieces(entry, dims)
        read_dims = [dim.count for dim in dims]
        part = Entry(entry.name, entry.dtype, tuple(read_dims), 0, nbytes * len(offsets))
        tensor, block = frame.empty(frame.shape(part), frame.dtype(part),
                                    header.data + entry.begin + offsets[0] if offsets else None)
        if block is not None:
            base = header.data + entry.begin
            frame.wait()
            try:
                self._file.readv(Idle(block), [base + offset for offset in offsets],
                                 range(0, nbytes * len(offsets), nbytes), nbytes,
                                 strict=self._strict)
            except ShortRead as e:
                raise SafetensorError(f"{self._file.name}: the file became shorter while it was "
                                      "read") from e
        if len(tensor.shape) != len(dims) or tuple(tensor.shape) != tuple(read_dims):
            # The type's elements are not whole bytes, so only whole dimensions can be taken.
            if any(dim.rest() != slice(0, dim.length, 1) for dim in dims):
                raise SafetensorError(f"tensor '{entry.name}': parts of {entry.dtype} cannot be "
                                      "taken")
            return tensor
        return _taken(tensor, dims, frame)

    def close(self) -> None:
        """Close the file.  May be called again; tensors stay valid."""
        self._file = None
        self._window = _Window({}, None, 0)
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.drop()

    def __del__(self):
        if getattr(self, "_shared", None) is not None:
            self.close()

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_):
        self.close()
