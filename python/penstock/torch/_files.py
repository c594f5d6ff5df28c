# SPDX-License-Identifier: MIT
"""A file from which tensors are read, and to which they are written."""
import concurrent.futures
import importlib
import os
import threading
from typing import Any, Optional

from .. import _file
from .._lib import keywords, unsigned
from .._memory import Memory
from .._types import Path

_WORKERS = 8
_NAME = "penstock-file"


def bytes_of(tensor):
    """Return the bytes of a contiguous tensor, as a tensor that shares its memory."""
    torch = importlib.import_module("torch")
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a tensor of torch is wanted, not '{type(tensor).__name__}'")
    tensor = tensor.detach()
    if tensor.layout != torch.strided or not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous; call its contiguous() first")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("the tensor's memory holds its conjugate or negative; call its "
                         "resolve_conj() and resolve_neg() first")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"tensors on '{tensor.device}' are not served; 'cpu' and 'cuda:N' are")
    return tensor.reshape(-1).view(torch.uint8)


def stream_for(tensor, stream):
    """Return the number of a stream, given as torch's object or as a number; None: the current one.
    """
    torch = importlib.import_module("torch")
    if tensor.device.type != "cuda":
        if stream is not None:
            raise ValueError("tensors of the host have no stream")
        return None
    if stream is None:
        stream = torch.cuda.current_stream(tensor.device)
    # The legacy default stream has the number 0 in torch and 1 in CUDA.
    return int(getattr(stream, "cuda_stream", stream)) or 1


class File:
    """An open file; a context manager.  Any thread may use it.

    path: a path; mode, stable, plain, permissions: as penstock.File

    Reads and writes are ordered after earlier work of stream=, by default the current stream of the
    tensor's device.  They are complete when the call returns or the future is done.
    """

    def __init__(self, path: Path, mode: str = "r", **options: Any) -> None:
        self._workers, self._pid = None, 0
        self._lock = threading.Lock()
        self._file = _file.File(path, mode, **options)
        self.name = path

    def pread(self, tensor: Any, offset: int = 0, nbytes: Optional[int] = None, *,
              tensor_offset: int = 0, stream: Any = None, **options: Any) -> int:
        """Read into a contiguous tensor, and wait.

        offset:        first byte in the file
        nbytes:        number of bytes; None: to the end of the tensor
        tensor_offset: first byte in the tensor
        stream:        a torch.cuda.Stream or its number; None: the current one
        short, strict, policy, timeout: as penstock.File.read()

        Returns the number of bytes.  Raises ValueError for a tensor with gaps, Error, and ShortRead
        if the file ends earlier.
        """
        return self._move("read", tensor, offset, nbytes, tensor_offset, stream, options)()

    def pwrite(self, tensor: Any, offset: int = 0, nbytes: Optional[int] = None, *,
               tensor_offset: int = 0, stream: Any = None, **options: Any) -> int:
        """Write a contiguous tensor, and wait; durable only after sync().  Arguments as pread()."""
        return self._move("write", tensor, offset, nbytes, tensor_offset, stream, options)()

    def pread_future(self, tensor: Any, offset: int = 0, nbytes: Optional[int] = None,
                     **options: Any) -> "concurrent.futures.Future[int]":
        """As pread(), but return a future of the number of bytes at once.

        The stream is the one that is current at this call.  The tensor is kept until the end.
        """
        return self._later("read", tensor, offset, nbytes, **options)

    def pwrite_future(self, tensor: Any, offset: int = 0, nbytes: Optional[int] = None,
                      **options: Any) -> "concurrent.futures.Future[int]":
        """As pwrite(), but return a future.  Do not change the tensor before the future is done."""
        return self._later("write", tensor, offset, nbytes, **options)

    def _later(self, what, tensor, offset, nbytes, tensor_offset=0, stream=None, **options):
        move = self._move(what, tensor, offset, nbytes, tensor_offset, stream, options)
        with self._lock:
            self._use()
            if self._workers is None or self._pid != os.getpid():
                # A child of a fork has no threads, so it must not wait for any.
                self._pid = os.getpid()
                self._workers = concurrent.futures.ThreadPoolExecutor(
                    _WORKERS, thread_name_prefix=_NAME)
            return self._workers.submit(move)

    def _use(self):
        if self._file is None:
            raise ValueError("the file is closed")
        return self._file

    def _move(self, what, tensor, offset, nbytes, tensor_offset, stream, options):
        keywords("pread" if what == "read" else "pwrite", options,
                 ("strict", "policy", "timeout") + (("short",) if what == "read" else ()),
                 ("offset", "nbytes", "tensor_offset", "stream"))
        file = self._use()
        block = bytes_of(tensor)
        size = block.numel()
        tensor_offset, offset = unsigned(tensor_offset), unsigned(offset)
        count = size - tensor_offset if nbytes is None else unsigned(nbytes)
        if count < 0 or count > size - tensor_offset:
            raise ValueError(f"{count} bytes from {tensor_offset} on are not in a tensor of {size}")
        number = stream_for(tensor, stream)
        if not count:
            return lambda: 0

        def move():
            with Memory.of(block, sync=False) as memory:
                return getattr(file, what)(memory, offset, count, mem_offset=tensor_offset,
                                           stream=number, **options).nbytes
        return move

    @property
    def size(self) -> int:
        """Return the current size in bytes."""
        return self._use().size

    def sync(self) -> None:
        """Make written bytes durable.  Does not wait for pending futures."""
        self._use().sync()

    def close(self) -> None:
        """Wait for futures and close.  May be called again.

        Called in a future's callback, it does not wait: the file is closed soon after the other
        futures are done.
        """
        with self._lock:
            file, self._file = self._file, None
            workers, self._workers = self._workers, None

        def end():
            if workers is not None:
                workers.shutdown()
            if file is not None:
                file.close()
        if workers is not None and threading.current_thread().name.startswith(_NAME):
            # A thread cannot wait for its own end.
            threading.Thread(target=end, name="penstock-close").start()
        else:
            end()

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<File {self.name!r}{' closed' if self._file is None else ''}>"
