# SPDX-License-Identifier: MIT
"""A copier for the package fastsafetensors (0.5 or newer) that reads with Penstock.

    import penstock.fastsafetensors
    loader = penstock.fastsafetensors.FileLoader(None, "cuda:0")

Importing this module registers the copier_type "penstock".
"""
import ctypes
import inspect
import itertools

try:
    from fastsafetensors.copier.base import (CopierInterface, validated_byte_ranges,
                                             validated_chunk_allocation_size)
    from fastsafetensors.copier.registry import register_copier_constructor
    from fastsafetensors.frameworks import get_framework_op
    from fastsafetensors.loader import BaseSafeTensorsFileLoader, SafeTensorsFileLoader
    from fastsafetensors.st_types import DeviceType, DType
except ImportError as e:
    raise ImportError("penstock.fastsafetensors is for fastsafetensors 0.5 or newer, with torch: "
                      f"{e}") from e

from ._file import File
from ._lib import Error, keywords, near
from ._memory import Memory
from ._reads import Reads, Restless, split
from .safetensors import safe_open

__all__ = ["COPIER_TYPE", "Copier", "FileLoader"]

COPIER_TYPE = "penstock"
PIECE = 64 << 20    # bytes of a request; a tensor is complete only when all its requests are
_QUIET = 60         # seconds to wait for memory that hardware may still touch


class _Device:
    """Device memory by address, for Memory.of()."""

    def __init__(self, address, nbytes):
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,),
                                         "data": (address, False)}


def _memory(gbuf, device):
    address, nbytes = gbuf.get_base_address(), gbuf.get_length()
    if device.type == DeviceType.CPU:
        return Memory.of((ctypes.c_char * nbytes).from_address(address))
    # Memory.of() waits for the device: a kernel may still use memory that was allocated again.
    return Memory.of(_Device(address, nbytes))


class Copier(CopierInterface):
    """Reads one file into a buffer of the framework, in overlapping pieces.

    Supports ranges of bytes, chunks of files and waiting for single tensors.  Errors name the file,
    and are raised when nothing touches the buffer any more.
    """

    def __init__(self, metadata, device, framework, reads):
        self.metadata, self.device, self.framework = metadata, device, framework
        self._reads, self._job = reads, None
        self._ranges = self._names = self._allocation = None
        self._base = metadata.header_length
        self._owner = None
        self._file = File(metadata.src)

    # ------------------------------------------------------------------ what is read

    def set_byte_ranges(self, byte_ranges):
        self._ranges = validated_byte_ranges(self.metadata, byte_ranges)

    def set_chunk(self, byte_ranges, names, allocation_size=None):
        ranges = validated_byte_ranges(self.metadata, byte_ranges)
        if ranges is None:
            raise ValueError(f"{self.metadata.src}: a chunk has byte ranges")
        allocation = validated_chunk_allocation_size(ranges, allocation_size)
        self._ranges, self._names, self._allocation = ranges, names, allocation

    @classmethod
    def chunk_transient_multiplier(cls, paths):
        """Return 1: bytes go directly into the chunk's buffer; staging uses host memory."""
        return 1

    @classmethod
    def fixed_device_overhead(cls, paths):
        return 0

    # ------------------------------------------------------------------------ reading

    def submit_io(self, use_buf_register, max_copy_block_size):
        if max_copy_block_size <= 0:
            raise ValueError("max_copy_block_size is at least 1")
        header, size = self.metadata.header_length, self.metadata.size_bytes
        runs = [(header, size)] if self._ranges is None else self._ranges
        if self._names is None:
            self._base, nbytes = header, size - header
        else:
            self._base = runs[0][0] if runs else header
            nbytes = self._allocation or (runs[-1][1] - self._base if runs else 0)
        gbuf = self.framework.alloc_tensor_memory(nbytes, self.device)
        try:
            pieces = split(runs, min(PIECE, max_copy_block_size))
            if pieces:
                self._job = self._reads.start(self._file, _memory(gbuf, self.device), pieces,
                                              self._base)
            else:
                self._file.close()
        except BaseException as error:
            if isinstance(error, Error) and error.filename is None:
                error.filename = self.metadata.src
            self._file.close()
            self.framework.free_tensor_memory(gbuf, self.device)
            raise
        return gbuf

    def _views(self, gbuf, dtype, owner):
        # The function that fastsafetensors' own copiers use; get_tensors() does not know chunks.
        return self.metadata._get_tensors(  # pylint: disable=protected-access
            gbuf, self.device, self._base, dtype=dtype, names=self._names, owner=owner)

    def wait_io(self, gbuf, dtype=DType.AUTO, noalign=False, owner=None):
        self._owner = owner or self._owner
        self.finish_io()
        return self._views(gbuf, dtype, owner)

    def finish_io(self):
        if self._job is not None:
            try:
                self._reads.finish(self._job, _QUIET if self._owner else None)
            except Restless:
                # Never free the buffer: later writes must not hit reused memory.
                self._owner.acquire()
                raise
        self._file.close()

    # ---------------------------------------------------------- tensors while it reads

    def enable_tensor_readiness(self):
        return True

    def prepare_tensors(self, gbuf, owner=None):
        self._owner = owner
        return self._views(gbuf, DType.AUTO, owner)

    def wait_tensor(self, name):
        begin, end = (self.metadata.header_length + offset
                      for offset in self.metadata.tensors[name].data_offsets)
        if begin == end:
            return
        places = self._job.covering(begin, end) if self._job is not None else None
        if places is None:
            raise ValueError(f"{self.metadata.src}: tensor '{name}' has unread bytes")
        self._reads.wait(self._job, places)


_OPTIONS = ("strict", "policy", "timeout")


def _theirs():
    """Return the names of options of fastsafetensors' own loaders."""
    return {name for kind in (BaseSafeTensorsFileLoader, SafeTensorsFileLoader)
            for name in inspect.signature(kind.__init__).parameters
            if name not in ("self", "pg", "device", "copier_type", "framework", "kwargs")}


@register_copier_constructor(COPIER_TYPE, Copier)
def new_copier(device, strict=False, policy=None, timeout=None, **others):
    """Return a function that makes copiers, which share one queue.

    strict, policy: as File.readv()
    timeout: seconds per request; None: 300, and one more for each 10 MB in flight

    Options of other copiers (bbuf_size_kb, max_threads, set_numa, ...) are ignored.
    """
    for name in others:
        if near(name, _OPTIONS) and name not in _theirs():
            keywords("new_copier", [name], _OPTIONS)
    if timeout is not None and not timeout >= 0.001:
        raise ValueError("a timeout is at least 0.001 seconds")
    reads = Reads(timeout=timeout, strict=strict, policy=policy)

    def construct(metadata, device, framework):
        return Copier(metadata, device, framework, reads)
    return construct


class FileLoader(BaseSafeTensorsFileLoader):
    """fastsafetensors' loader of files, with this copier.

    pg:      a process group, or None
    device:  "cpu", "cuda:0", ...
    options: strict, policy and timeout, and the options of BaseSafeTensorsFileLoader
    """

    def __init__(self, pg, device="cpu", framework="pytorch", **options):
        keywords("FileLoader", options, _theirs() | set(_OPTIONS), ("device", "framework"))
        op = get_framework_op(framework)
        place = op.get_device(device, op.get_process_group(pg))
        super().__init__(pg, place, COPIER_TYPE, framework=framework, **options)

    def add_filenames(self, filenames):
        """Add {rank: paths}.  Raises the errors of safe_open() for a bad file."""
        try:
            super().add_filenames(filenames)
        except Exception as e:
            for path in itertools.chain(*filenames.values()):
                try:
                    safe_open(path, "pt").close()
                except Exception as ours:
                    raise ours from e
            raise
