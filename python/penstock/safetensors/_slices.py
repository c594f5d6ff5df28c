# SPDX-License-Identifier: MIT
"""Parts of a tensor: which bytes of the file they are."""
import operator

from ._header import BITS, SafetensorError

_PIECES_MAX = 65536


class Dim:
    """The part of one dimension: from begin on, before end, each step-th; or one element."""

    __slots__ = ("length", "begin", "end", "step", "one", "read")

    def __init__(self, length, begin, end, step, one):
        self.length, self.begin, self.end, self.step, self.one = length, begin, end, step, one
        self.read = (begin, end)    # the range that is read

    def widen(self):
        self.read = (0, self.length)

    @property
    def whole(self):
        return self.read == (0, self.length)

    @property
    def count(self):
        return self.read[1] - self.read[0]

    def rest(self):
        """Return the index to apply to the elements that were read."""
        begin, end = self.begin - self.read[0], self.end - self.read[0]
        return begin if self.one else slice(begin, end, self.step)


def dims_of(shape, index):
    """Return a Dim for each dimension.  Raises SafetensorError for an index that does not fit."""
    index = index if isinstance(index, tuple) else (index,)
    dots = sum(item is Ellipsis for item in index)
    if dots > 1:
        raise SafetensorError("an index has one '...' at most")
    if len(index) - dots > len(shape):
        raise SafetensorError(f"the index has {len(index) - dots} dimensions, the tensor "
                              f"{len(shape)}")
    fill = (slice(None),) * (len(shape) - len(index) + dots)
    at = next((i for i, item in enumerate(index) if item is Ellipsis), len(index))
    index = index[:at] + fill + index[at + 1:]
    dims = []
    for length, item in zip(shape, index):
        if isinstance(item, slice):
            begin, end, step = item.indices(length)
            if step < 1:
                raise SafetensorError("a slice's step is at least 1")
            dims.append(Dim(length, begin, max(begin, end), step, False))
            continue
        if isinstance(item, list):
            if item:
                raise SafetensorError("lists of indexes are not served; take slices")
            dims.append(Dim(length, 0, 0, 1, False))
            continue
        try:
            if isinstance(item, bool):
                raise TypeError
            one = operator.index(item)
        except TypeError:
            raise SafetensorError("an index is of whole numbers, slices and '...', not of "
                                  f"'{type(item).__name__}'") from None
        if not -length <= one < length:
            raise SafetensorError(f"the index {one} is not in a dimension of {length}")
        one %= length
        dims.append(Dim(length, one, one + 1, 1, True))
    return dims


def pieces(entry, dims):
    """Return (offsets from the tensor's first byte, bytes of each) of the pieces to read.

    Pieces are in memory order.  If there would be too many, larger ones are read: see Dim.read.
    """
    bits = BITS[entry.dtype]
    if bits % 8:
        for dim in dims:
            dim.widen()
    while True:
        partial = [place for place, dim in enumerate(dims) if not dim.whole]
        last = partial[-1] if partial else 0
        count = 1
        for dim in dims[:last]:
            count *= dim.count
        if count <= _PIECES_MAX:
            break
        dims[last].widen()
    if not dims or not partial:
        return [0], entry.nbytes
    inner = bits // 8
    for dim in dims[last + 1:]:
        inner *= dim.length
    offsets = [dims[last].read[0] * inner]
    stride = inner * dims[last].length
    for dim in reversed(dims[:last]):
        offsets = [stride * i + offset for i in range(*dim.read) for offset in offsets]
        stride *= dim.length
    return offsets, dims[last].count * inner
