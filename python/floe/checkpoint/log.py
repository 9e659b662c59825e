"""What a store has in its log: the segments of its last snapshot, by number.

The sidecar forgets this when it dies; the next snapshot then finds no segment for the markers that
entries carry, takes those entries for dirty and writes them again. Nothing is lost but the saving.

A number must never name two segments in the life of a table: undo records and entries that missed
their switch list go on carrying markers of segments that are long dropped. Numbers therefore only
go up, and a log that knows nothing of those before it begins anywhere.
"""

import secrets
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from floe.errors import InternalError
from floe.format import block
from floe.format.manifest import SegmentEntry
from floe.format.words import U64

__all__ = ["KnownSegment", "LogState"]


@dataclass(frozen=True, slots=True, eq=False)
class KnownSegment:
    """A durable segment, and the word at which each of its records begins (ascending)."""

    entry: SegmentEntry
    words: U64


@dataclass(slots=True)
class LogState:
    """The segments that markers may point into."""

    segments: dict[int, KnownSegment] = field(default_factory=dict)
    # Half of the range of numbers to begin in, half to go up in.
    last_number: int = field(default_factory=lambda: secrets.randbits(31))

    def next_number(self) -> int:
        return max([self.last_number, *self.segments]) + 1

    def is_kept(self, markers: U64, min_live_ratio: float) -> npt.NDArray[np.bool_]:
        """Which records need not be written again.

        Those in a segment that we know, unless most of it is dead: then its live records move on
        with this flush, and the segment is dropped.
        """
        kept = [
            number
            for number, segment in self.segments.items()
            if segment.entry.live_ratio >= min_live_ratio
        ]
        return np.isin(block.marker_segment(markers), np.array(kept, np.uint32))

    def live(self, markers: U64) -> dict[int, npt.NDArray[np.bool_]]:
        """For each segment that `markers` point into, which of its records are meant."""
        numbers = block.marker_segment(markers)
        words = block.marker_word(markers)
        result: dict[int, npt.NDArray[np.bool_]] = {}
        for number in np.unique(numbers).tolist():
            known = self.segments[number].words
            bits = np.zeros(len(known), bool)
            meant = words[numbers == number]
            at = np.minimum(np.searchsorted(known, meant), len(known) - 1)
            if not (known[at] == meant).all():
                raise InternalError(f"a marker names no record of segment {number}")
            bits[at] = True
            result[number] = bits
        return result
