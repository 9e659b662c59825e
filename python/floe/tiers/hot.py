"""The hot table of one store, as the sidecar sees it: pages of entries that the shim writes.

The sidecar allocated the pages, so it knows where they are; it reads them only when the shim has
said that something is there to read, and never writes to them.
"""

import numpy as np
import numpy.typing as npt

from floe.format.layout import (
    DEAD_FLAG,
    ENTRY,
    FAMILY_MASK,
    PAGE_BITS,
    PAGE_BYTES,
    PAGE_ENTRIES,
    UNDO,
)
from floe.format.rows import Rows
from floe.format.words import U64, gather
from floe.storage.slabs import Extent
from floe.storage.space import Space

__all__ = ["Entries", "HotTable"]

Entries = npt.NDArray[np.void]  # of dtype ENTRY
_3 = np.uint64(3)
_6 = np.uint64(6)


class HotTable:
    """Reads entries and their rows out of shared memory, by the thousand."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._pages: U64 = np.empty(0, np.uint64)
        # All of memory as cache lines without fields: copying those is a memcpy each.
        self._lines = space.bytes.view(f"V{ENTRY.itemsize}")

    @property
    def page_bytes(self) -> int:
        return len(self._pages) * PAGE_BYTES

    def add_pages(self, extent: Extent, behind: int) -> None:
        """Pages of `extent` come behind the first `behind` bytes of pages."""
        count = extent.bytes // PAGE_BYTES
        refs = np.uint64(extent.ref) + np.arange(count, dtype=np.uint64) * np.uint64(PAGE_BYTES)
        self._pages = np.concatenate([self._pages[: behind // PAGE_BYTES], refs])

    def entries(self, numbers: npt.NDArray[np.uint32]) -> Entries:
        """Copies of the given entries."""
        lines = self._pages[numbers >> PAGE_BITS] >> _6
        found: Entries = self._lines[lines + (numbers & np.uint32(PAGE_ENTRIES - 1))].view(ENTRY)
        return found

    def pages(self, high_water: int) -> "list[tuple[int, Entries]]":
        """(first entry number, view) of every page below `high_water`."""
        views = []
        needed = (high_water + PAGE_ENTRIES - 1) >> PAGE_BITS
        for page in range(min(needed, len(self._pages))):  # a store without rows has no page
            count = min(PAGE_ENTRIES, high_water - (page << PAGE_BITS))
            ref = int(self._pages[page])
            views.append((page << PAGE_BITS, self._space.structs(ref, count, ENTRY)))
        return views

    def undo(self, ranges: list[tuple[int, int]]) -> npt.NDArray[np.void]:
        """The records of an undo log, oldest first."""
        parts = [self._space.structs(ref, count, UNDO) for ref, count in ranges]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, UNDO)

    def changes(self, undo: npt.NDArray[np.void]) -> Rows:
        """The net change that an undo log stands for: what its entries are now.

        An entry that was no row before and is none now did not change.
        """
        now = self.entries(undo["entry"])
        dead = (now["kind"] & DEAD_FLAG) != 0
        absent_before = (undo["born"] == 1) | ((undo["kind"] & DEAD_FLAG) != 0)
        keep = ~(dead & absent_before)
        if not keep.all():
            now, dead = now[keep], dead[keep]
        return self.rows(now, dead.astype(np.uint8))

    def rows(self, entries: Entries, op: npt.NDArray[np.uint8]) -> Rows:
        """The rows that entries refer to; their values must be hot, or their op a removal."""
        words = self._space.words
        key_at = entries["key"] >> _3
        key_words = (entries["key_len"].astype(np.uint64) + np.uint64(7)) >> _3
        value_words = (entries["value_len"].astype(np.uint64) + np.uint64(7)) >> _3
        return Rows(
            op,
            (entries["kind"] & FAMILY_MASK).astype(np.uint16),
            words[key_at],
            np.ascontiguousarray(entries["expiry"]),
            np.ascontiguousarray(entries["key_len"]),
            np.ascontiguousarray(entries["value_len"]),
            gather(words, key_at + np.uint64(1), key_words),
            gather(words, entries["hot"] >> _3, value_words),
        )
