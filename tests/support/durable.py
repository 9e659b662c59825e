"""Durable files of a store, made without a JVM: rows, commits, snapshots, and a model beside them.

`History` writes the files that a store would have written and remembers, for every commit, what
its state is and what it stands on. Keys and values are short texts, kept as 8-byte aligned bytes.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import numpy as np

from floe.config import Codec
from floe.format import delta, manifest, trailer
from floe.format.layout import NEVER, OP_PUT, OP_REMOVE
from floe.format.manifest import SegmentEntry
from floe.format.rows import Rows
from floe.format.trailer import Trailer
from floe.storage import paths
from floe.storage.segments import SegmentWriter

Change = tuple[int, bytes, bytes]  # op, key, value
State = dict[bytes, bytes]


def padded(text: str) -> bytes:
    data = text.encode()
    return data + bytes(-len(data) % 8)


def put(key: str, value: str) -> Change:
    return OP_PUT, padded(key), padded(value)


def remove(key: str) -> Change:
    return OP_REMOVE, padded(key), b""


def make_rows(changes: Iterable[Change], family: int = 0) -> Rows:
    """Changes in columns; hashes are any function of the key, as the shim's are to Python."""
    listed = list(changes)
    keys = b"".join(key for _, key, _ in listed)
    values = b"".join(value for _, _, value in listed)
    return Rows(
        np.array([op for op, _, _ in listed], np.uint8),
        np.full(len(listed), family, np.uint16),
        np.array([zlib.crc32(key) + 1 for _, key, _ in listed], np.uint64),
        np.full(len(listed), NEVER, np.int64),
        np.array([len(key) for _, key, _ in listed], np.uint32),
        np.array([len(value) for _, _, value in listed], np.uint32),
        np.frombuffer(keys, np.uint64),
        np.frombuffer(values, np.uint64),
    )


def state_of(rows: Rows) -> State:
    """Rows of a state as a dict; a key that comes twice is an error."""
    pairs = [(key, value) for _, key, value in changes_of(rows)]
    state = dict(pairs)
    assert len(state) == len(pairs), "a key comes twice"
    return state


def changes_of(rows: Rows) -> list[Change]:
    """Rows one by one, the slow way."""
    keys, values = rows.keys.tobytes(), rows.values.tobytes()
    found, key_at, value_at = [], 0, 0
    for op, key_len, value_len in zip(rows.op, rows.key_len, rows.value_len, strict=True):
        key = keys[key_at : key_at + int(key_len)]
        value = values[value_at : value_at + int(value_len)]
        found.append((int(op), key, value))
        key_at += (int(key_len) + 7) // 8 * 8
        value_at += (int(value_len) + 7) // 8 * 8
    assert (key_at, value_at) == (len(keys), len(values))
    return found


def sealed_delta(head: Trailer, changes: Iterable[Change], codec: Codec = Codec.LZ4) -> bytes:
    body, _ = delta.encode(make_rows(changes), codec)
    return trailer.sealed(trailer.DELTA, head, bytes(body))


@dataclass(frozen=True)
class Commit:
    """A version as the model knows it."""

    version: int
    id: UUID
    parent: "Commit | None"
    state: Mapping[bytes, bytes]
    snapshot: "Commit | None"  # the last one in the lineage when this was committed

    @property
    def point(self) -> tuple[int, UUID]:
        return self.version, self.id

    def lineage(self) -> "list[Commit]":
        """This commit and all it stands on, newest first."""
        found: list[Commit] = []
        at: Commit | None = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found


@dataclass
class History:
    """A store's directory and the model of what is in it."""

    directory: Path
    with_alias: bool = False
    ids: int = 0
    snapshots: dict[UUID, list[SegmentEntry]] = field(default_factory=dict)
    _records: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    def commit(self, parent: Commit | None, *changes: Change) -> Commit:
        """One more version on `parent`; the alias of format v1 then names it."""
        state = dict(parent.state) if parent else {}
        for op, key, value in changes:
            if op == OP_PUT:
                state[key] = value
            else:
                state.pop(key, None)
        version = parent.version + 1 if parent else 1
        commit = Commit(version, self._id(), parent, state, self.last_snapshot(parent))
        data = sealed_delta(_head(commit), changes)
        self._write(paths.delta(version, commit.id), data)
        if self.with_alias:
            self._write(paths.delta_alias(version), data)
        return commit

    def snapshot(self, commit: Commit, keep: bool = True) -> None:
        """A snapshot of a commit: the segments of the last one that are still right, and the rest.

        With `keep` false everything is written anew.
        """
        last = self.last_snapshot(commit.parent)
        kept = self._kept(last, commit) if keep and last else []
        covered = {key for entry, keys in kept for key, live in keys.items() if live}
        fresh = {key: value for key, value in commit.state.items() if key not in covered}
        entries = [entry for entry, _ in kept]
        if fresh:
            number = max((entry.number for entry in entries), default=0) + 1
            entries.append(self._segment(number, fresh))
        head = _head(replace(commit, snapshot=last))
        self._write(paths.manifest(*commit.point), manifest.encode(head, entries))
        self.snapshots[commit.id] = entries

    def last_snapshot(self, commit: Commit | None) -> Commit | None:
        found = [c for c in (commit.lineage() if commit else []) if c.id in self.snapshots]
        return found[0] if found else None

    def _kept(self, last: Commit, now: Commit) -> list[tuple[SegmentEntry, dict[bytes, bool]]]:
        """Segments of `last` with a record that is still right, and which of them are."""
        found = []
        for entry in self.snapshots[last.id]:
            records = self._records[entry.name]
            alive = entry.live.tolist()
            live = {
                key: was and now.state.get(key) == value
                for (key, value), was in zip(records, alive, strict=True)
            }
            if any(live.values()):
                bits = np.array(list(live.values()), bool)
                renewed = SegmentEntry(entry.number, entry.name, entry.bytes, entry.crc, bits)
                found.append((renewed, live))
        return found

    def _segment(self, number: int, state: Mapping[bytes, bytes]) -> SegmentEntry:
        path = self.directory / paths.segment(self._id(), number)
        self.directory.mkdir(parents=True, exist_ok=True)
        writer = SegmentWriter(path, number)
        records = list(state.items())
        for start in range(0, len(records), 2):  # several blocks
            part = records[start : start + 2]
            writer.append(make_rows((OP_PUT, key, value) for key, value in part))
        done = writer.seal()
        self._records[path.name] = records
        live = np.ones(len(records), bool)
        return SegmentEntry(number, path.name, done.bytes, done.crc, live)

    def _id(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def _write(self, name: str, data: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / name).write_bytes(data)


def _head(commit: Commit) -> Trailer:
    return Trailer(
        commit.version,
        commit.id,
        commit.parent.id if commit.parent else None,
        commit.snapshot.point if commit.snapshot else None,
    )
