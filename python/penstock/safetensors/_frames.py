# SPDX-License-Identifier: MIT
"""Arrays of numpy and tensors of torch: their types, and memory for them.

Neither package is imported before its first use.
"""
import importlib
import operator
import re
from itertools import groupby

from ._header import BITS, SafetensorError

BLOCK = 4096          # alignment in which memory and file offset must agree for O_DIRECT
_CONGRUENT = 64 << 10  # smaller tensors are not worth the extra memory
_ALIGNED = 16         # alignment in bytes; a multiple of each element's
SMALL = 64 << 10      # smaller tensors are read together, then copied

_NUMPY = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16",
    "I32": "int32", "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64",
    "U64": "uint64", "C64": "complex64",
}
# Types that the package ml_dtypes adds to numpy.
_ML_DTYPES = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_TORCH = {**_NUMPY, **_ML_DTYPES, "F4": "float4_e2m1fn_x2"}
_RAW = {8: "uint8", 16: "uint16"}


def raw_shape(entry):
    """Return the shape of an entry as bytes, for elements that are not whole bytes."""
    return (entry.nbytes,) if BITS[entry.dtype] % 8 else entry.shape


def _meant(device):
    """Return torch's name of a device that was given by another name; None if torch has no such
    device."""
    if isinstance(device, int):
        device = f"cuda:{device}"
    found = re.fullmatch(r"(?i)(cpu|host)|(?:gpu|cuda|nvidia)(?::?(\d*))", str(device).strip())
    return found and ("cpu" if found[1] else f"cuda:{int(found[2] or 0)}")


class Numpy:
    """Arrays of numpy, in host memory."""

    name = "np"

    def __init__(self, device, raw):
        try:
            self.np = importlib.import_module("numpy")
        except ImportError:
            raise SafetensorError("numpy is not installed; install it, or take framework='pt'"
                                  ) from None
        if device not in ("cpu", None):
            name = _meant(device)
            raise SafetensorError(f"arrays of numpy are on 'cpu' and not on '{device}'" +
                                  (f"; take framework='pt' and device='{name}'"
                                   if name not in (None, "cpu") else ""))
        self.raw = raw
        self.dims = 64 if int(self.np.__version__.partition(".")[0]) >= 2 else 32
        self._dtypes = {}
        self.copies = True      # True if small tensors are read together

    def dtype(self, entry):
        found = self._dtypes.get(entry.dtype)
        if found is None:
            found = self._dtypes[entry.dtype] = self._dtype(entry)
        return found

    def _dtype(self, entry):
        if entry.dtype in _NUMPY:
            return self.np.dtype(_NUMPY[entry.dtype])
        if self.raw:
            return self.np.dtype(_RAW.get(BITS[entry.dtype], "uint8"))
        text = f"tensor '{entry.name}': numpy has no {entry.dtype}"
        if entry.dtype not in _ML_DTYPES:
            # Suggest torch: an item of its F4 type holds two elements, while ml_dtypes uses a byte
            # for each.
            pt = "take framework='pt', or " if entry.dtype in _TORCH else ""
            raise SafetensorError(f"{text}, whose elements are no whole bytes; {pt}take raw=True "
                                  "for the bytes")
        try:
            return self.np.dtype(getattr(importlib.import_module("ml_dtypes"),
                                         _ML_DTYPES[entry.dtype]))
        except ImportError:
            cure = "install ml_dtypes"
        except AttributeError:
            cure = "and this ml_dtypes neither: install a newer one"
        raise SafetensorError(f"{text}; {cure}, take framework='pt', or raw=True for the bits as "
                              "unsigned integers")

    def shape(self, entry):
        shape = raw_shape(entry)
        if len(shape) > self.dims:
            raise SafetensorError(f"tensor '{entry.name}' has {len(shape)} dimensions, and arrays "
                                  f"of this numpy have {self.dims} at most; take framework='pt'")
        return shape

    def check(self, entry):
        """Raise SafetensorError for a tensor that cannot be an array."""
        self.dtype(entry)
        self.shape(entry)

    def empty(self, shape, dtype, file_offset=None):
        """Return an array, and an object for Memory.of() with its bytes, or None for no bytes.

        file_offset: file offset of the bytes: the memory's address gets the same low bits, as
                     O_DIRECT needs
        """
        np = self.np
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        try:
            if not nbytes:
                return np.empty(shape, dtype), None
            if file_offset is None or nbytes < _CONGRUENT or file_offset % dtype.itemsize:
                block = np.empty(nbytes, np.uint8)
            else:
                block = np.empty(nbytes + BLOCK, np.uint8)
                skip = (file_offset - block.ctypes.data) % BLOCK
                block = block[skip:skip + nbytes]
            return block.view(dtype).reshape(shape), block
        except (ValueError, MemoryError) as e:
            raise SafetensorError(f"numpy has no array of shape {list(shape)}: {e}") from e

    def block(self, nbytes):
        """Return memory for views()."""
        return self.np.empty(nbytes, self.np.uint8)

    def views(self, block, begin, entries):
        """Return arrays whose bytes are in block from begin on; copy() gives one its own memory."""
        array, kinds, result = self.np.ndarray, {}, []
        try:
            for entry in entries:
                key = entry.dtype, entry.shape
                kind = kinds.get(key)
                if kind is None:
                    kind = kinds[key] = self.shape(entry), self.dtype(entry)
                result.append(array(*kind, block, begin))
                begin += entry.nbytes
            return result
        except ValueError as e:
            raise SafetensorError(f"numpy has no array of shape {list(entry.shape)}: {e}") from e

    copy = operator.methodcaller("copy")

    def part(self, array, index):
        """Return array[index] in separate memory."""
        return self.np.array(array[index], order="C")

    def address(self, array):
        """Return the address of the array's first byte."""
        return array.__array_interface__["data"][0]

    def wait(self):
        """Do nothing: no other code uses the memory."""


class Torch:
    """Tensors of torch, on any device that torch and the library support."""

    name = "pt"

    def __init__(self, device, raw):
        try:
            self.torch = importlib.import_module("torch")
        except ImportError:
            raise SafetensorError("torch is not installed; install it, or take framework='np'"
                                  ) from None
        if isinstance(device, int):
            device = f"cuda:{device}"
        try:
            self.device = self.torch.device(device or "cpu")
        except (RuntimeError, TypeError):
            self.device = None
        if self.device is None or self.device.type not in ("cpu", "cuda"):
            name = _meant(device)
            raise SafetensorError(f"device '{device}' is not served; " +
                                  (f"take '{name}'" if name else "'cpu' and 'cuda:N' are"))
        self.raw = raw
        self._dtypes = {}
        self.copies = self.device.type == "cpu"

    def dtype(self, entry):
        found = self._dtypes.get(entry.dtype)
        if found is None:
            found = self._dtypes[entry.dtype] = self._dtype(entry)
        return found

    def _dtype(self, entry):
        if self.raw and entry.dtype not in _NUMPY:
            # Old versions have no uint16.
            return getattr(self.torch, _RAW.get(BITS[entry.dtype], "uint8"), self.torch.int16)
        found = getattr(self.torch, _TORCH.get(entry.dtype, "no"), None)
        if not isinstance(found, self.torch.dtype):
            raise SafetensorError(f"tensor '{entry.name}': this torch has no {entry.dtype}; take a "
                                  "newer one, or raw=True for the bits as unsigned integers")
        return found

    def shape(self, entry):
        if BITS[entry.dtype] % 8 == 0:
            return entry.shape
        if entry.dtype == "F4" and not self.raw:
            # Two elements of the last dimension form one item of torch's type.
            if not entry.shape or entry.shape[-1] % 2:
                raise SafetensorError(f"tensor '{entry.name}': torch holds F4 in pairs, and its "
                                      "last dimension is odd; take raw=True")
            return entry.shape[:-1] + (entry.shape[-1] // 2,)
        return raw_shape(entry)

    def check(self, entry):
        """Raise SafetensorError for a tensor whose type torch lacks."""
        self.dtype(entry)
        self.shape(entry)

    def empty(self, shape, dtype, file_offset=None):
        torch = self.torch
        itemsize = torch.empty((), dtype=dtype, device="cpu").element_size()
        nbytes = itemsize
        for length in shape:
            nbytes *= length
        if not nbytes:
            return torch.empty(shape, dtype=dtype, device=self.device), None
        if self.device.type != "cpu" or nbytes < _CONGRUENT or not file_offset or \
                file_offset % itemsize:
            block = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        else:
            # Name the device: the program may have set another default.
            block = torch.empty(nbytes + BLOCK, dtype=torch.uint8, device=self.device)
            skip = (file_offset - block.data_ptr()) % BLOCK
            block = block[skip:skip + nbytes]
        return block.view(dtype).reshape(shape), block

    def block(self, nbytes):
        return self.torch.empty(nbytes, dtype=self.torch.uint8, device=self.device)

    def views(self, block, begin, entries):
        result = []
        for name, group in groupby(entries, operator.attrgetter("dtype")):
            group = list(group)
            sizes = [entry.nbytes for entry in group]
            end = begin + sum(sizes)
            part, begin = block[begin:end], end
            if part.storage_offset() % _ALIGNED:
                part = part.clone()
            part = part.view(self.dtype(group[0]))
            itemsize = part.element_size()
            counts = [size // itemsize for size in sizes]
            result += map(self.torch.Tensor.view, part.split(counts), map(self.shape, group))
        return result

    copy = operator.methodcaller("clone")

    def part(self, tensor, index):
        return tensor[index].clone(memory_format=self.torch.contiguous_format)

    def address(self, tensor):
        """Return the address of the tensor's first byte."""
        return tensor.data_ptr()

    def wait(self):
        """Wait for the device's earlier work, which may still use memory that was allocated
        again."""
        if self.device.type == "cuda":
            self.torch.cuda.current_stream(self.device).synchronize()


_FRAMES = {"np": Numpy, "numpy": Numpy, "pt": Torch, "torch": Torch, "pytorch": Torch}


def served(framework, device):
    """Return whether frame_of() accepts the framework and the device."""
    if framework not in _FRAMES:
        return False
    name = str(getattr(device, "type", device)).partition(":")[0]
    return name in ("cpu", "cuda") or isinstance(device, int)


def frame_of(framework, device, raw):
    if framework not in _FRAMES:
        raise SafetensorError(f"the framework '{framework}' is not served; 'np' and 'pt' are")
    return _FRAMES[framework](device, raw)


def dtype_names():
    """Return {name in numpy or torch: name in the format}, for saving."""
    names = {name: dtype for dtype, name in _NUMPY.items()}
    names.update({name: dtype for dtype, name in _ML_DTYPES.items()})
    names["float4_e2m1fn_x2"] = "F4"
    return names
