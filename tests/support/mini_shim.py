"""What the shim does to the memory of a store, in Python: entries, undo records, switch lists.

`MiniShim` writes the same bytes in the same order as HotTable.scala and UndoLog.scala, slowly and
for keys that are found by a dict. It never reuses memory, so nothing here depends on pins. `state`
is the model: what a reader of the current epoch would see.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from floe.format.layout import DEAD_FLAG, ENTRY, NEVER, NOT_A_ROW, PAGE_BYTES, UNDO
from floe.storage.slabs import Extent, SlabPool
from floe.tiers.hot import HotTable

_PAGES = 2
_ARENA_BYTES = 256 << 10
_UNDO_RECORDS = 4  # an extent: short, so that logs have several


@dataclass
class UndoLog:
    """Records of one epoch, and the state before it."""

    before: dict[bytes, bytes]
    extents: list[Extent] = field(default_factory=list)
    count: int = 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(ref, records) of each extent, as the shim names them to the sidecar."""
        left, found = self.count, []
        for extent in self.extents:
            found.append((extent.ref, min(left, _UNDO_RECORDS)))
            left -= found[-1][1]
        return [(ref, count) for ref, count in found if count]


class MiniShim:
    """One store: its table in shared memory, its epochs, and how to go back."""

    def __init__(self, pool: SlabPool) -> None:
        self._pool = pool
        self.table = HotTable(pool.space)
        pages = pool.allocate(_PAGES * PAGE_BYTES, owner="s")
        self.table.add_pages(pages, 0)
        self._entries = pool.space.structs(pages.ref, pages.bytes // ENTRY.itemsize, ENTRY)
        self._arena = pool.allocate(_ARENA_BYTES, owner="s")
        self._at = self._arena.ref
        self._numbers: dict[bytes, int] = {}
        self.high_water = 1
        self.epoch = 0
        self.state: dict[bytes, bytes] = {}
        self.log: UndoLog | None = None

    def begin(self) -> UndoLog:
        self.epoch += 1
        self.log = UndoLog(dict(self.state))
        return self.log

    def put(self, key: bytes, value: bytes) -> None:
        number = self._numbers.get(key)
        if number is None:
            number = self._insert(key)
        elif self._entries[number]["epoch"] != self.epoch:
            self._record(number)
        entry = self._entries[number]
        entry["hot"], entry["value_len"] = self._store(value), len(value)
        entry["cold"], entry["expiry"] = 0, NEVER
        entry["kind"] &= ~np.uint32(DEAD_FLAG)
        self.state[key] = value

    def remove(self, key: bytes) -> None:
        if key not in self.state:
            return
        number = self._numbers[key]
        if self._entries[number]["epoch"] != self.epoch:
            self._record(number)
        entry = self._entries[number]
        entry["kind"] |= np.uint32(DEAD_FLAG)
        entry["hot"], entry["value_len"], entry["cold"] = 0, 0, 0
        del self.state[key]

    def commit(self) -> UndoLog:
        assert self.log is not None
        log, self.log = self.log, None
        return log

    def go_back(self, log: UndoLog) -> None:
        """Undoes a log: the open one, or the newest committed one."""
        for record in self.table.undo(log.ranges)[::-1]:
            entry = self._entries[record["entry"]]
            if record["born"]:
                entry["hot"], entry["value_len"] = 0, 0
                entry["kind"] |= np.uint32(DEAD_FLAG)
            else:
                for name in ("hot", "cold", "expiry", "value_len", "kind", "epoch"):
                    entry[name] = record[name]
            if entry["kind"] & DEAD_FLAG:
                entry["epoch"] = self.epoch
        self.state = dict(log.before)
        self.log = None

    def apply(self, switches: "np.typing.NDArray[np.void]") -> None:
        for switch in switches:
            entry = self._entries[switch["entry"]]
            if entry["epoch"] == switch["epoch"] and not entry["kind"] & NOT_A_ROW:
                entry["cold"] = switch["cold"]

    def entry(self, key: bytes) -> Any:
        return self._entries[self._numbers[key]]

    def _insert(self, key: bytes) -> int:
        number = self.high_water
        self.high_water += 1
        assert number < len(self._entries)
        self._numbers[key] = number
        hash = np.array([zlib.crc32(key) + 1], np.uint64).tobytes()
        entry = self._entries[number]
        entry["key"], entry["key_len"] = self._store(hash + key), len(key)
        entry["epoch"], entry["kind"], entry["expiry"] = self.epoch, 0, NEVER
        record = self._next_record()
        record["entry"], record["born"] = number, 1
        return number

    def _record(self, number: int) -> None:
        entry = self._entries[number]
        record = self._next_record()
        record["entry"], record["born"] = number, 0
        for name in ("hot", "cold", "expiry", "value_len", "epoch", "kind"):
            record[name] = entry[name]
        entry["epoch"] = self.epoch

    def _next_record(self) -> Any:
        log = self.log
        assert log is not None
        if log.count == len(log.extents) * _UNDO_RECORDS:
            log.extents.append(self._pool.allocate(_UNDO_RECORDS * UNDO.itemsize, owner="s"))
        at = log.extents[-1].ref + log.count % _UNDO_RECORDS * UNDO.itemsize
        log.count += 1
        return self._pool.space.structs(at, 1, UNDO)[0]

    def _store(self, data: bytes) -> int:
        assert len(data) % 8 == 0
        ref = self._at
        self._at += len(data)
        assert self._at <= self._arena.ref + self._arena.bytes
        self._pool.space.bytes[ref : ref + len(data)] = np.frombuffer(data, np.uint8)
        return ref
