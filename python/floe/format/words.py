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
    width = _uniform(counts)
    if width is not None:
        grid = starts.astype(np.int64)[:, None] + np.arange(width, dtype=np.int64)
        return grid.reshape(-1)
    ends = np.cumsum(counts.astype(np.int64))
    shifts = starts.astype(np.int64) - (ends - counts.astype(np.int64))
    return np.repeat(shifts, counts.astype(np.int64)) + np.arange(ends[-1], dtype=np.int64)


def gather(words: U64, starts: U64, counts: U64) -> U64:
    """The words of all pieces as one contiguous array."""
    width = _uniform(counts)
    if width is None:
        return words[spans(starts, counts)]
    if width == 0:
        return np.empty(0, np.uint64)
    # Pieces of one size are items of an array that overlaps itself: one copy each, no index each.
    pieces = np.ndarray((len(words) - width + 1,), f"V{width * 8}", words, strides=(8,))
    gathered: U64 = pieces[starts.astype(np.int64)].view(np.uint64)
    return gathered


def _uniform(counts: U64) -> int | None:
    """The size of all pieces, None when they differ."""
    if len(counts) == 0:
        return 0
    first = counts[0]
    return int(first) if (counts == first).all() else None
