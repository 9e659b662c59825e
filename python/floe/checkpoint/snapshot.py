"""Snapshots: what changed since the last one goes to the log, a manifest names the rest.

A snapshot of version v runs beside the task that writes v+1. It (1) copies what it needs of the
entries, then (2) learns which undo logs exist since v and puts back what they say. This order is
the whole trick: the shim writes an undo record before it changes an entry, so an entry that (1) saw
changed has its record by (2). Values of v stay where they are: the shim pins them.

Cost follows the change: clean entries (those with a marker into a segment that is kept) contribute
a bit to the manifest, nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt

from floe.checkpoint.log import KnownSegment, LogState
from floe.format import manifest
from floe.format.layout import DEAD_FLAG, ENTRY, NOT_A_ROW, SWITCH
from floe.format.manifest import SegmentEntry
from floe.format.trailer import Trailer
from floe.format.words import U64
from floe.storage import paths
from floe.storage.segments import SegmentWriter
from floe.tiers.hot import Entries, HotTable

__all__ = ["Copied", "Snapshot", "copy", "write"]

# Blocks of a flush: large enough for the disk, small enough to form in cache.
_BLOCK_ROWS = 1 << 15
_BLOCK_BYTES = 8 << 20


@dataclass(slots=True)
class Copied:
    """Entries as they were while the copy ran: markers and kinds of all, the dirty ones in full."""

    cold: U64
    kind: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.uint32]
    dirty: Entries


@dataclass(slots=True)
class Snapshot:
    """Files that make a snapshot, in the order of their upload: segments, then the manifest."""

    files: list[Path]
    state: LogState
    switches: npt.NDArray[np.void]
    rows: int
    written_rows: int


def copy(table: HotTable, high_water: int, log: LogState, min_live_ratio: float) -> Copied:
    cold = np.zeros(high_water, np.uint64)
    kind = np.full(high_water, NOT_A_ROW, np.uint32)
    numbers, dirty = [], []
    for first, page in table.pages(high_water):
        entries = page.copy()
        if first == 0:
            entries["kind"][0] = NOT_A_ROW  # entry 0 is no entry
        cold[first : first + len(entries)] = entries["cold"]
        kind[first : first + len(entries)] = entries["kind"]
        is_row = (entries["kind"] & NOT_A_ROW) == 0
        chosen = is_row & ~log.is_kept(entries["cold"], min_live_ratio)
        numbers.append((np.flatnonzero(chosen) + first).astype(np.uint32))
        dirty.append(entries[chosen])
    if not numbers:
        return Copied(cold, kind, np.empty(0, np.uint32), np.empty(0, ENTRY))
    return Copied(cold, kind, np.concatenate(numbers), np.concatenate(dirty))


def write(
    copied: Copied,
    table: HotTable,
    undo_logs: list[list[tuple[int, int]]],
    log: LogState,
    head: Trailer,
    directory: Path,
    segment_bytes: int,
    min_live_ratio: float,
) -> Snapshot:
    """Forms the files of a snapshot in `directory`.

    `undo_logs` are all logs since the snapshot's version, oldest first, whatever became of them.
    """
    numbers, dirty = _as_of_version(copied, table, undo_logs, log, min_live_ratio)
    directory.mkdir(parents=True, exist_ok=True)
    segments, markers = _flush(table, dirty, log.next_number(), directory, segment_bytes)

    row = (copied.kind & NOT_A_ROW) == 0
    clean = row.copy()
    clean[numbers] = False
    live = log.live(copied.cold[clean])
    state = LogState(last_number=log.next_number() + len(segments) - 1)
    for number, bits in live.items():
        known = log.segments[number]
        state.segments[number] = KnownSegment(
            SegmentEntry(number, known.entry.name, known.entry.bytes, known.entry.crc, bits),
            known.words,
        )
    for known in segments:
        state.segments[known.entry.number] = known

    switches = np.zeros(len(numbers), SWITCH)
    switches["entry"] = numbers
    switches["epoch"] = dirty["epoch"]
    switches["cold"] = markers

    path = directory / paths.manifest(head.version, head.id)
    path.write_bytes(manifest.encode(head, [s.entry for s in state.segments.values()]))
    files = [directory / known.entry.name for known in segments]
    return Snapshot([*files, path], state, switches, int(row.sum()), len(numbers))


def _as_of_version(
    copied: Copied,
    table: HotTable,
    undo_logs: list[list[tuple[int, int]]],
    log: LogState,
    min_live_ratio: float,
) -> tuple[npt.NDArray[np.uint32], Entries]:
    """The dirty entries of the version, after putting back what later epochs changed."""
    for ranges in reversed(undo_logs):  # the oldest record of an entry is the one that counts
        undo = table.undo(ranges)
        undo = undo[undo["entry"] < len(copied.kind)]  # others were born later
        if len(undo) == 0:
            continue
        entry = undo["entry"]
        born = undo["born"] == 1
        copied.kind[entry] = np.where(born, DEAD_FLAG, undo["kind"])
        copied.cold[entry] = undo["cold"]
        was_row = ~born & ((undo["kind"] & NOT_A_ROW) == 0)
        chosen = was_row & ~log.is_kept(undo["cold"], min_live_ratio)
        old = table.entries(entry[chosen])  # key and length of an entry never change
        for name in ("hot", "cold", "expiry", "value_len", "epoch", "kind"):
            old[name] = undo[name][chosen]
        stays = ~np.isin(copied.numbers, entry)
        copied.numbers = np.concatenate([copied.numbers[stays], entry[chosen]])
        copied.dirty = np.concatenate([copied.dirty[stays], old])
    return copied.numbers, copied.dirty


def _blocks(dirty: Entries) -> Iterator[Entries]:
    """Runs of entries whose rows make a block of a bounded size."""
    sizes = np.cumsum(dirty["key_len"].astype(np.int64) + dirty["value_len"])
    start = 0
    while start < len(dirty):
        before = int(sizes[start - 1]) if start else 0
        stop = int(np.searchsorted(sizes, before + _BLOCK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _BLOCK_ROWS)
        yield dirty[start:stop]
        start = stop


def _flush(
    table: HotTable, dirty: Entries, number: int, directory: Path, segment_bytes: int
) -> tuple[list[KnownSegment], U64]:
    """Writes entries to new segments; the segments, and the entries' markers."""
    writer_id: UUID = uuid4()
    segments: list[KnownSegment] = []
    markers: list[U64] = []
    writer: SegmentWriter | None = None

    def seal(finished: SegmentWriter) -> None:
        done = finished.seal()
        live = np.ones(len(done.words), bool)
        entry = SegmentEntry(done.number, done.path.name, done.bytes, done.crc, live)
        segments.append(KnownSegment(entry, done.words))

    try:
        for part in _blocks(dirty):
            if writer is None:
                writer = SegmentWriter(directory / paths.segment(writer_id, number), number)
            markers.append(writer.append(table.rows(part, np.zeros(len(part), np.uint8))))
            if writer.bytes >= segment_bytes:
                seal(writer)
                writer = None
                number += 1
        if writer is not None:
            seal(writer)
    except BaseException:
        if writer is not None:
            writer.abandon()
        for known in segments:
            (directory / known.entry.name).unlink(missing_ok=True)
        raise
    return segments, np.concatenate(markers) if markers else np.empty(0, np.uint64)
