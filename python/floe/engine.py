"""The sidecar's work, without any wire: stores, their memory, their files.

One engine serves all stores of an executor (or its share of them). Every method is idempotent: the
shim repeats a call when a reply is lost, to this sidecar or to the one that replaces it. What the
shim must not lose it keeps itself, and tells a new engine with `adopt`.

Threads: calls come from the few connections of the shim. `_lock` guards the pool and the registry;
the work on rows runs outside of it.
"""

import contextlib
import itertools
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import numpy as np

from floe.checkpoint import lineage, loading, retention, snapshot
from floe.checkpoint.loading import Loading, Portion
from floe.checkpoint.log import LogState
from floe.checkpoint.source import FileSource, NeedFiles
from floe.config import FloeConfig
from floe.errors import Fenced
from floe.format import delta
from floe.format.layout import SLAB_BITS, SWITCH
from floe.format.trailer import Trailer
from floe.storage.slabs import Extent, SlabPool
from floe.tiers.hot import HotTable

__all__ = ["Engine", "Reply"]

Reply = dict[str, Any]
_PIECE_BYTES = 4 << 20
_S = TypeVar("_S", "_LoadSession", "_SnapshotSession")


@dataclass(slots=True)
class Table:
    """A hot table of the shim, and what this side knows about it.

    A store gets a new table, under a new key, whenever it is loaded from files; the old one lives
    on until the last task that could read it is gone.
    """

    key: str
    store: str
    config: FloeConfig
    local: Path
    hot: HotTable
    refs: set[int] = field(default_factory=set)
    log: LogState = field(default_factory=LogState)


@dataclass(slots=True)
class _LoadSession:
    store: str
    loading: Loading
    portions: Iterator[Portion]
    ahead: Future[Portion | None] | None = None


@dataclass(slots=True)
class _SnapshotSession:
    store: str
    copied: snapshot.Copied
    written: snapshot.Snapshot | None = None


class Engine:
    """See the module's docstring."""

    def __init__(self, pool: SlabPool) -> None:
        self.pool = pool
        self._lock = threading.Lock()
        self._tables: dict[str, Table] = {}
        # A number that no other life of the sidecar gave to another store's session.
        self._sessions = itertools.count(secrets.randbits(48))
        self._loads: dict[int, _LoadSession] = {}
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="floe-reader")
        self._snapshots: dict[int, _SnapshotSession] = {}

    # -- registry ---------------------------------------------------------------------------------

    def register(
        self,
        key: str,
        store: str,
        conf: Mapping[str, str],
        local: str,
    ) -> Reply:
        config = FloeConfig.from_spark(conf)
        with self._lock:
            if key not in self._tables:
                hot = HotTable(self.pool.space)
                self._tables[key] = Table(key, store, config, Path(local), hot)
        return {}

    def close(self, key: str) -> Reply:
        with self._lock:
            table = self._tables.pop(key, None)
            if table is not None:
                self.pool.free(table.refs)
                if all(other.store != table.store for other in self._tables.values()):
                    _forget(self._loads, table.store)
                    _forget(self._snapshots, table.store)
        if table is not None:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(table.local)
        return {}

    def adopt(self, slabs: list[tuple[int, str, int]], tables: list[Reply]) -> Reply:
        """Takes over the memory of a sidecar that died, as the shim describes it."""
        with self._lock:
            for number, path, size in slabs:
                self.pool.adopt(number, path, size)
        extents: list[Extent] = []
        for described in tables:
            owned: dict[str, list[tuple[int, int]]] = described.pop("extents")
            self.register(**described)
            table = self._tables[described["key"]]
            for kind, pieces in owned.items():
                for ref, size in pieces:
                    extent = Extent(ref, size)
                    extents.append(extent)
                    table.refs.add(ref)
                    if kind == "entries":
                        table.hot.add_pages(extent, table.hot.page_bytes)
        with self._lock:
            self.pool.settle(extents)
        return {}

    # -- memory -----------------------------------------------------------------------------------

    def allocate(self, key: str, kind: str, bytes: int, owned: int = 0) -> Reply:
        """An extent for a table; `owned` bytes of that kind are what the shim knows of.

        A task that was interrupted may never have seen the last answer: pages that the shim does
        not count are not pages.
        """
        extent = self._allocate(self._table(key), kind, bytes, owned)
        return {"ref": extent.ref, "bytes": extent.bytes, "slabs": self._slabs([extent])}

    def free(self, refs: dict[str, list[int]]) -> list[int]:
        """Takes extents back, by table; the numbers of slabs that went, for the shim to unmap.

        A table that is closed has given everything back already: what a message that was overtaken
        says of it is old news, and its extents may be somebody else's by now.
        """
        with self._lock:
            for key, pieces in refs.items():
                table = self._tables.get(key)
                if table is not None:
                    owned = table.refs.intersection(pieces)
                    table.refs -= owned
                    self.pool.free(owned)
            return self.pool.trim()

    def memory(self) -> Reply:
        with self._lock:
            return {
                "budget": self.pool.budget_bytes,
                "slabs": self.pool.total_bytes,
                "used": self.pool.used_bytes,
            }

    # -- commits ----------------------------------------------------------------------------------

    def prepare(self, key: str, undo: list[tuple[int, int]]) -> Reply:
        """Forms the delta of an epoch from its undo log; the shim seals and uploads it."""
        table = self._table(key)
        rows = table.hot.changes(table.hot.undo(undo))
        body, trailer = delta.encode(rows, table.config.checkpoint_codec)
        data = np.frombuffer(body, np.uint8)
        pieces: list[tuple[int, int, int]] = []
        extents: list[Extent] = []
        tail = np.frombuffer(trailer, np.uint8)
        try:
            for start in range(0, len(data), _PIECE_BYTES):
                part = data[start : start + _PIECE_BYTES]
                last = start + _PIECE_BYTES >= len(data)
                size = len(part) + (len(tail) if last else 0)
                extent = self._allocate(table, "delta", size)
                self.pool.space.bytes[extent.ref : extent.ref + len(part)] = part
                if last:
                    self.pool.space.bytes[extent.ref + len(part) : extent.ref + size] = tail
                extents.append(extent)
                pieces.append((extent.ref, extent.bytes, size))
        except BaseException:
            self.free({key: [extent.ref for extent in extents]})
            raise
        return {"pieces": pieces, "rows": len(rows), "slabs": self._slabs(extents)}

    # -- loading ----------------------------------------------------------------------------------

    def load(
        self,
        key: str,
        version: int,
        id: str | None,
        bases: list[tuple[int, str | None]],
        directory: str,
        origin: str,
        listing: list[str] | None = None,
    ) -> Reply:
        """Finds the way to a version; `load_more` then brings its rows."""
        table = self._table(key)
        source = _source(directory, origin, listing)
        try:
            way = lineage.resolve(
                source,
                table.store,
                version,
                UUID(id) if id else None,
                [(v, UUID(i) if i else None) for v, i in bases],
            )
            loading.needed(source, way)
        except NeedFiles as need:
            return {"need": need.names}
        session = next(self._sessions)
        work = Loading(source, way, self.pool.space, lambda k, n: self._allocate(table, k, n))
        with self._lock:
            _forget(self._loads, table.store)
            self._loads[session] = _LoadSession(table.store, work, work.portions())
        return {
            "session": session,
            "base": _point(way.base),
            "inMemory": way.in_memory,
            "snapshot": _point(way.snapshot) if way.snapshot else None,
            "commits": [[c.trailer.version, str(c.trailer.id)] for c in way.commits],
        }

    def load_more(self, key: str, session: int) -> Reply:
        """The next portion of rows; without one the load is complete."""
        table = self._table(key)
        work = self._loads.get(session)
        if work is None or work.store != table.store:
            raise Fenced(f"store {table.store}: load {session} was begun with another sidecar")
        work.loading.allocate = lambda kind, size: self._allocate(table, kind, size)
        try:
            ahead = work.ahead or self._readers.submit(next, work.portions, None)
            portion = ahead.result()
        except BaseException:
            self._loads.pop(session, None)  # a generator that failed would end as if complete
            raise
        if portion is None:
            self._loads.pop(session, None)
            if not work.loading.lineage.in_memory:
                table.log = work.loading.log
            return {"done": True}
        # The next one is read while the shim links this one.
        work.ahead = self._readers.submit(next, work.portions, None)
        return {
            "version": portion.version,
            "id": str(portion.id),
            "staged": [portion.staged.ref, portion.staged.bytes, portion.count],
            "arena": [portion.arena.ref, portion.arena.bytes, portion.arena_used],
            "slabs": self._slabs([portion.staged, portion.arena]),
        }

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot_copy(self, key: str, entries: int) -> Reply:
        table = self._table(key)
        session = next(self._sessions)
        copied = snapshot.copy(table.hot, entries, table.log, table.config.log_min_live_ratio)
        with self._lock:
            _forget(self._snapshots, table.store)
            self._snapshots[session] = _SnapshotSession(table.store, copied)
        return {"session": session}

    def snapshot_write(
        self,
        key: str,
        session: int,
        undo_logs: list[list[tuple[int, int]]],
        version: int,
        id: str,
        parent: str | None,
        last: tuple[int, str] | None,
    ) -> Reply:
        table = self._table(key)
        work = self._snapshot(table, session)
        head = Trailer(
            version,
            UUID(id),
            UUID(parent) if parent else None,
            (last[0], UUID(last[1])) if last else None,
        )
        work.written = snapshot.write(
            work.copied,
            table.hot,
            undo_logs,
            table.log,
            head,
            table.local,
            table.config.log_segment_bytes,
            table.config.log_min_live_ratio,
        )
        return {
            "files": [[str(path), path.name] for path in work.written.files],
            "rows": work.written.rows,
            "writtenRows": work.written.written_rows,
        }

    def snapshot_done(self, key: str, session: int, uploaded: bool) -> Reply:
        """Ends a snapshot. Uploaded, its markers go out as a switch list for the shim to apply."""
        work = self._snapshots.pop(session, None)
        table = self._table(key)
        if work is None or work.store != table.store or work.written is None:
            return {}
        for path in work.written.files:
            path.unlink(missing_ok=True)
        if not uploaded:
            return {}
        table.log = work.written.state
        switches = work.written.switches
        if len(switches) == 0:
            return {}
        extents = []
        lists = []
        per_extent = _PIECE_BYTES // SWITCH.itemsize
        for start in range(0, len(switches), per_extent):
            part = switches[start : start + per_extent]
            extent = self._allocate(table, "switch", part.nbytes)
            self.pool.space.structs(extent.ref, len(part), SWITCH)[:] = part
            extents.append(extent)
            lists.append([extent.ref, extent.bytes, len(part)])
        return {"switches": lists, "slabs": self._slabs(extents)}

    def retain(
        self,
        last: tuple[int, str] | None,
        oldest: int,
        min_versions: int,
        directory: str,
        origin: str,
        listing: list[str] | None = None,
    ) -> Reply:
        """Names of durable files that may be deleted."""
        source = _source(directory, origin, listing)
        point = (last[0], UUID(last[1])) if last else None
        try:
            return {"delete": retention.deletable(source, point, oldest, min_versions)}
        except NeedFiles as need:
            return {"need": need.names}

    # -- helpers ----------------------------------------------------------------------------------

    def _table(self, key: str) -> Table:
        with self._lock:
            table = self._tables.get(key)
        if table is None:
            raise Fenced(f"table {key} is not known to this sidecar", table=key)
        return table

    def _snapshot(self, table: Table, session: int) -> _SnapshotSession:
        work = self._snapshots.get(session)
        if work is None or work.store != table.store:
            raise Fenced(f"store {table.store}: snapshot {session} was begun with another sidecar")
        return work

    def _allocate(self, table: Table, kind: str, size: int, owned: int = 0) -> Extent:
        with self._lock:
            if self._tables.get(table.key) is not table:
                raise Fenced(f"store {table.store}: table {table.key} was closed meanwhile")
            extent = self.pool.allocate(size, owner=table.store)
            table.refs.add(extent.ref)
            if kind == "entries":
                table.hot.add_pages(extent, owned)
        return extent

    def _slabs(self, extents: list[Extent]) -> list[tuple[int, int, int]]:
        """(number, descriptor, bytes) of the slabs that extents lie in, for the shim to map."""
        numbers = {extent.ref >> SLAB_BITS for extent in extents}
        return [(n, self.pool.slabs[n].fd, self.pool.slabs[n].bytes) for n in sorted(numbers)]


def _source(directory: str, origin: str, listing: list[str] | None) -> FileSource:
    return FileSource(Path(directory), None if listing is None else frozenset(listing), origin)


def _forget(sessions: dict[int, _S], store: str) -> None:
    """Drops what the store began earlier and never finished: a store does one at a time."""
    for number in [number for number, work in sessions.items() if work.store == store]:
        del sessions[number]


def _point(point: lineage.Point) -> list[Any]:
    version, id = point
    return [version, str(id) if id else None]
