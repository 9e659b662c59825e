"""Gathering and scattering variable-length pieces of memory without a loop over rows.

UnsafeRows are multiples of 8 bytes, so memory is an array of words and a row is (start, count).
Gathering words costs a twentieth of gathering bytes.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["U64", "gather", "spans"]

U64 = npt.NDArray[np.uint64]


def spans(starts: U64, counts: U64) -> npt.NDArray[np.int64]:
    """The indices `start, start+1, ...` of every piece, one after the other."""
    if len(counts) == 0:
        return np.empty(0, np.int64)
    first = int(counts[0])
    if (counts == first).all():
        grid = starts.astype(np.int64)[:, None] + np.arange(first, dtype=np.int64)
        return grid.reshape(-1)
    ends = np.cumsum(counts.astype(np.int64))
    shifts = starts.astype(np.int64) - (ends - counts.astype(np.int64))
    return np.repeat(shifts, counts.astype(np.int64)) + np.arange(ends[-1], dtype=np.int64)


def gather(words: U64, starts: U64, counts: U64) -> U64:
    """The words of all pieces as one contiguous array."""
    return words[spans(starts, counts)]
