"""Loading: durable files become rows in a store's memory, staged for the shim to link.

Portions of rows are copied into arena extents as [hash][key][value] and described by staged rows in
an extent that is given back afterwards. The shim links them in order: newest wins there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import numpy.typing as npt

from floe.checkpoint.lineage import Lineage
from floe.checkpoint.log import KnownSegment, LogState
from floe.checkpoint.source import FileSource
from floe.format import block, manifest
from floe.format.block import Block
from floe.format.layout import STAGED
from floe.format.rows import Rows
from floe.format.words import U64
from floe.storage import paths, segments
from floe.storage.slabs import Extent
from floe.storage.space import Space

__all__ = ["Loading", "Portion", "needed"]

# Arena extents that a load fills: a quarter of the smallest useful slab.
_PORTION_BYTES = 4 << 20
_PORTION_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows ready to be linked, of the commit that `version` and `id` name."""

    version: int
    id: UUID
    staged: Extent
    count: int
    arena: Extent
    arena_used: int


def needed(source: FileSource, lineage: Lineage) -> None:
    """Asks for the segments of the lineage's snapshot, before anything is copied."""
    version, id = lineage.base
    if not lineage.in_memory and version > 0 and id is not None:
        name = paths.manifest(version, id)
        _, entries = manifest.decode(source.read(name), source.shown(name))
        source.require([entry.name for entry in entries])


@dataclass(slots=True)
class Loading:
    """One load in progress: an iterator of portions, and the log state it ends with."""

    source: FileSource
    lineage: Lineage
    space: Space
    allocate: Callable[[str, int], Extent]  # (kind, bytes)
    log: LogState = field(default_factory=LogState)

    def portions(self) -> Iterator[Portion]:
        version, id = self.lineage.base
        if not self.lineage.in_memory and version > 0 and id is not None:
            yield from self._snapshot(version, id)
        for commit in self.lineage.commits:
            for rows in commit.batches:
                yield from self._stage(rows, None, commit.trailer.version, commit.trailer.id)

    def _snapshot(self, version: int, id: UUID) -> Iterator[Portion]:
        name = paths.manifest(version, id)
        _, entries = manifest.decode(self.source.read(name), self.source.shown(name))
        for entry in entries:
            path = self.source.path(entry.name)
            words: list[U64] = []
            seen = 0
            for found, at in segments.read(
                path, name=self.source.shown(entry.name), sealed=(entry.bytes, entry.crc)
            ):
                live = entry.live[seen : seen + len(found)]
                seen += len(found)
                words.append(at)
                markers = block.marker(entry.number, at)
                if live.all():
                    yield self._whole(found, markers, version, id)
                else:
                    yield from self._stage(found.rows().take(live), markers[live], version, id)
            self.log.segments[entry.number] = KnownSegment(
                entry, np.concatenate(words) if words else np.empty(0, np.uint64)
            )

    def _stage(self, rows: Rows, markers: U64 | None, version: int, id: UUID) -> Iterator[Portion]:
        ends = np.cumsum((rows.key_words + rows.value_words + np.uint64(1)) * np.uint64(8))
        start = 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + _PORTION_BYTES, side="right"))
            stop = min(max(stop, start + 1), start + _PORTION_ROWS, len(rows))
            part = rows if (start, stop) == (0, len(rows)) else rows.slice(start, stop)
            marks = None if markers is None else markers[start:stop]
            yield self._portion(part, marks, version, id)
            start = stop

    def _whole(self, found: Block, markers: U64, version: int, id: UUID) -> Portion:
        """A block whose records all live: they lie as memory wants them, and are copied as one."""
        records = found.records
        starts = found.starts - np.uint64(len(found.words) - len(records))
        return self._described(found.directory, records, starts, markers, version, id)

    def _portion(self, rows: Rows, markers: U64 | None, version: int, id: UUID) -> Portion:
        records, starts = rows.records()
        columns = np.empty(len(rows), block.DIRECTORY)
        for name in ("op", "family", "expiry", "key_len", "value_len"):
            columns[name] = getattr(rows, name)
        return self._described(columns, records, starts, markers, version, id)

    def _described(
        self,
        rows: npt.NDArray[np.void],
        records: U64,
        starts: U64,
        markers: U64 | None,
        version: int,
        id: UUID,
    ) -> Portion:
        """Copies records into the arena and says of each where it is and what it means."""
        arena = self.allocate("arena", records.nbytes)
        self.space.words[arena.ref >> 3 : (arena.ref >> 3) + len(records)] = records
        staged = self.allocate("staged", len(rows) * STAGED.itemsize)
        out = self.space.structs(staged.ref, len(rows), STAGED)
        key_refs = np.uint64(arena.ref) + starts * np.uint64(8)
        out["key"] = key_refs
        key_bytes = (rows["key_len"].astype(np.uint64) + np.uint64(7)) & ~np.uint64(7)
        out["value"] = key_refs + np.uint64(8) + key_bytes
        out["cold"] = 0 if markers is None else markers
        for name in ("expiry", "key_len", "value_len", "family", "op"):
            out[name] = rows[name]
        return Portion(version, id, staged, len(rows), arena, records.nbytes)
