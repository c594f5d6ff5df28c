# SPDX-License-Identifier: MIT
"""Arrays of offsets become arrays of structures."""
import array

from tap import case, eq, gives, numpy, run

from penstock._arrays import interleave, longest, uint64s


@case
def kinds_of_arrays():
    want = array.array("Q", [1, 2, 3])
    for values in ([1, 2, 3], (1, 2, 3), range(1, 4), array.array("q", [1, 2, 3]), want):
        eq(uint64s(values, 3), want)
    eq(uint64s(7, 3), array.array("Q", [7, 7, 7]))
    eq(uint64s([], 0), array.array("Q"))
    eq(uint64s(2**64 - 1), array.array("Q", [2**64 - 1]))


@case
def arrays_of_numpy():
    np = numpy()
    want = array.array("Q", [1, 2, 3])
    eq(uint64s(np.array([1, 2, 3]), 3), want)
    eq(uint64s(np.array([1, 9, 2, 9, 3])[::2], 3), want)
    eq(uint64s(np.int64(5), 2), array.array("Q", [5, 5]))
    gives(TypeError, uint64s, np.array([1, 2], np.int32))
    gives(TypeError, uint64s, np.array([1.0, 2.0]))
    gives(TypeError, uint64s, np.zeros((2, 2), np.int64))
    gives(TypeError, uint64s, np.array([1, 2], ">i8"))


@case
def refused():
    gives(ValueError, uint64s, -1)
    gives(ValueError, uint64s, 2**64)
    gives(ValueError, uint64s, [1, -1])
    gives(ValueError, uint64s, [1, 2], 3)
    gives(TypeError, uint64s, b"12345678")
    gives(TypeError, uint64s, 1.5)
    gives(TypeError, uint64s, ["a"])


@case
def rows():
    eq(interleave(2, ([1, 2], 9, None)), array.array("Q", [1, 9, 0, 2, 9, 0]))
    eq(longest([1, 2], 3), 2)
    eq(longest(3, 4), 1)


run()
