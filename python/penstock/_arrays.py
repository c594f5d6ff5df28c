# SPDX-License-Identifier: MIT
"""Convert arrays of offsets to arrays of C structures, without an object per element."""
import array
from typing import Any, Optional, Sequence

_NATIVE = "qQlLnN"
Rows = Any    # an array.array of "Q"


def uint64s(values: Any, count: Optional[int] = None) -> Rows:
    """Return an array of uint64_t.

    values: a buffer of 64-bit integers (array.array, numpy, ...), a sequence, or one number for
            all elements
    count:  expected number of elements; None: any
    """
    if hasattr(values, "__index__") and not hasattr(values, "__len__"):
        one = values.__index__()
        if not 0 <= one < 2**64:
            raise ValueError(f"{one} is no offset or length")
        return array.array("Q", [one]) * (1 if count is None else count)
    if isinstance(values, (list, tuple, range)):
        try:
            result = array.array("Q", values)
        except OverflowError:
            raise ValueError("one of the numbers is no offset or length") from None
    else:
        with memoryview(values) as view:
            if view.itemsize != 8 or view.format.lstrip("@=<") not in _NATIVE or view.ndim != 1:
                raise TypeError("offsets and lengths are arrays of one dimension of 64-bit "
                                f"integers, not of format '{view.format}' with {view.ndim} "
                                "dimensions")
            result = array.array("Q")
            # Negative numbers become numbers that the library refuses.
            result.frombytes(view.tobytes())
    if count is not None and len(result) != count:
        raise ValueError(f"{len(result)} numbers where {count} are needed")
    return result


def longest(*values: Any) -> int:
    """Return the largest length of arrays; single numbers are repeated."""
    lengths = [len(v) for v in values if hasattr(v, "__len__")]
    return max(lengths) if lengths else 1


def interleave(count: int, columns: Sequence[Any]) -> Rows:
    """Return an array of count structures of uint64_t members; columns has the values of each
    member, or None."""
    width = len(columns)
    rows = array.array("Q", bytes(8 * width * count))
    for place, column in enumerate(columns):
        if column is not None:
            rows[place::width] = uint64s(column, count)
    return rows


def address(rows: Rows) -> int:
    """Return the address of the first element."""
    return int(rows.buffer_info()[0])
