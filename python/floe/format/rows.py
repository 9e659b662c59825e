"""Rows in columns: what travels between memory, deltas and segments.

Keys and values are the bytes of UnsafeRows, padded to 8 by nature, each column one contiguous run
of words. `hash` is the shim's hash of (family, key), stored so that nobody computes it twice.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from floe.format.words import U64, gather, spans

__all__ = ["Rows"]


@dataclass(slots=True)
class Rows:
    """A batch of changes or of state, in columns."""

    op: npt.NDArray[np.uint8]
    family: npt.NDArray[np.uint16]
    hash: U64
    expiry: npt.NDArray[np.int64]
    key_len: npt.NDArray[np.uint32]
    value_len: npt.NDArray[np.uint32]
    keys: U64
    values: U64

    def __len__(self) -> int:
        return len(self.op)

    @property
    def key_words(self) -> U64:
        return (self.key_len.astype(np.uint64) + np.uint64(7)) >> np.uint64(3)

    @property
    def value_words(self) -> U64:
        return (self.value_len.astype(np.uint64) + np.uint64(7)) >> np.uint64(3)

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows `start` to `stop`; columns are views."""
        key_ends = np.cumsum(self.key_words)
        value_ends = np.cumsum(self.value_words)
        key_from = int(key_ends[start - 1]) if start else 0
        value_from = int(value_ends[start - 1]) if start else 0
        return Rows(
            self.op[start:stop],
            self.family[start:stop],
            self.hash[start:stop],
            self.expiry[start:stop],
            self.key_len[start:stop],
            self.value_len[start:stop],
            self.keys[key_from : int(key_ends[stop - 1]) if stop else 0],
            self.values[value_from : int(value_ends[stop - 1]) if stop else 0],
        )

    def take(self, mask: npt.NDArray[np.bool_]) -> "Rows":
        """The rows where `mask` is set."""
        key_words, value_words = self.key_words, self.value_words
        key_starts = np.cumsum(key_words) - key_words
        value_starts = np.cumsum(value_words) - value_words
        return Rows(
            self.op[mask],
            self.family[mask],
            self.hash[mask],
            self.expiry[mask],
            self.key_len[mask],
            self.value_len[mask],
            gather(self.keys, key_starts[mask], key_words[mask]),
            gather(self.values, value_starts[mask], value_words[mask]),
        )

    def records(self) -> tuple[U64, U64]:
        """[hash][key][value] of every row as words, and the word at which each row begins."""
        key_words, value_words = self.key_words, self.value_words
        sizes = key_words + value_words + np.uint64(1)
        starts = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint64)
        out[starts] = self.hash
        out[spans(starts + np.uint64(1), key_words)] = self.keys
        out[spans(starts + np.uint64(1) + key_words, value_words)] = self.values
        return out, starts
