"""The state of a store at a version, from durable files alone.

For people and tools that look at a checkpoint from outside: no JVM, no sidecar, no shared memory,
and nothing is written. The way to a version is the one that a load takes (`lineage.resolve`), so
what is read here is what Spark would be given.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floe.checkpoint import lineage
from floe.checkpoint.source import FileSource
from floe.errors import InvalidRequest
from floe.format import manifest
from floe.format.layout import OP_PUT
from floe.format.rows import Rows
from floe.format.state_schema import StateSchema
from floe.format.unsafe_row import Field, Misfit, binary_column, columns
from floe.format.words import U64
from floe.storage import paths, segments

__all__ = ["StoreFiles", "held_versions", "state", "stores", "table"]

DEFAULT_STORE = "default"
# Where Spark keeps the schema of a store's rows, in the directory of partition 0.
_SCHEMA_FILE = Path("_metadata") / "schema"


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """A store of a checkpoint: one partition of one operator, and its directory."""

    operator: int
    partition: int
    name: str
    directory: Path

    @property
    def label(self) -> str:
        return f"operator {self.operator}, partition {self.partition}, store {self.name}"

    @property
    def source(self) -> FileSource:
        return FileSource(self.directory)

    @property
    def schema_file(self) -> Path:
        first = self.directory if self.name == DEFAULT_STORE else self.directory.parent
        store = Path() if self.name == DEFAULT_STORE else Path(self.name)
        return first.with_name("0") / store / _SCHEMA_FILE

    def file_bytes(self) -> int:
        """What the store's files take; a file with two names counts once."""
        found = [(self.directory / named.name).stat() for named in self.source.names()]
        return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in found}.values())


def stores(checkpoint: Path) -> list[StoreFiles]:
    """The stores of a checkpoint that hold files of Floe, in order."""
    found = []
    for operator in _numbered(checkpoint / "state"):
        for partition in _numbered(operator):
            named = [d for d in sorted(partition.iterdir()) if d.is_dir() and d.name[0] not in "_."]
            for directory in [partition, *named]:
                name = DEFAULT_STORE if directory is partition else directory.name
                if FileSource(directory).names():
                    numbers = int(operator.name), int(partition.name)
                    found.append(StoreFiles(*numbers, name, directory))
    return found


def held_versions(source: FileSource) -> list[int]:
    """Versions that the files lead to: a snapshot, or a delta on a version that is held."""
    names = source.names()
    snapshots = {named.version for named in names if named.kind == "manifest"}
    held: list[int] = []
    for version in sorted({named.version for named in names if named.version is not None}):
        if version == 1 or version in snapshots or held[-1:] == [version - 1]:
            held.append(version)
    return held


def state(source: FileSource, store: str, version: int, id: UUID | None) -> Rows:
    """The rows of a version, each key once.

    `id` names the commit, as in checkpoints of format v2. Raises InvalidRequest when the version is
    not there, Corrupt for a damaged file.
    """
    held = held_versions(source)
    if version not in held:
        there = f"there are {_ranges(held)}" if held else "there is none"
        raise InvalidRequest(
            f"{store}: version {version} is not in {source.shown()}; {there}",
            store=store,
            version=version,
        )
    way = lineage.resolve(source, store, version, id, bases=[])
    base_version, base_id = way.base
    parts = [] if base_id is None else list(_snapshot(source, base_version, base_id))
    parts += [rows for commit in way.commits for rows in commit.batches]
    return _newest(_concatenated(parts))


def table(rows: Rows, schema: StateSchema | None) -> pa.Table:
    """Rows as an Arrow table: a column `key_…` or `value_…` for each field.

    Without a schema, and where rows are not of it, the bytes of keys or values as one column.
    """
    if (rows.family != 0).any():
        schema = None  # it describes the first family only
    found: dict[str, pa.ChunkedArray | pa.Array] = {}
    if (rows.family != 0).any():
        found["family"] = pa.array(rows.family)
    found |= _side("key", schema.key if schema else None, rows.key_len, rows.keys)
    found |= _side("value", schema.value if schema else None, rows.value_len, rows.values)
    return pa.table(found)


def _side(
    prefix: str,
    fields: tuple[Field, ...] | None,
    lengths: npt.NDArray[np.uint32],
    words: U64,
) -> dict[str, pa.ChunkedArray | pa.Array]:
    if fields is not None:
        try:
            return dict(columns(fields, lengths, words, prefix))
        except Misfit:
            pass
    return {prefix: binary_column(lengths, words)}


def _numbered(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def _ranges(versions: list[int]) -> str:
    """`3 to 7, 9`: versions as people write them."""
    words, start = [], versions[0]
    for here, following in zip(versions, [*versions[1:], None], strict=True):
        if following != here + 1:
            words.append(str(start) if start == here else f"{start} to {here}")
            start = following or 0
    return ", ".join(words)


def _snapshot(source: FileSource, version: int, id: UUID) -> Iterator[Rows]:
    """The live rows of a snapshot."""
    name = paths.manifest(version, id)
    _, entries = manifest.decode(source.read(name), source.shown(name))
    for entry in entries:
        path = source.path(entry.name)
        seen = 0
        for found, _ in segments.read(
            path, name=source.shown(entry.name), sealed=(entry.bytes, entry.crc)
        ):
            live = entry.live[seen : seen + len(found)]
            seen += len(found)
            yield found.rows() if live.all() else found.rows().take(live)


def _concatenated(parts: list[Rows]) -> Rows:
    if not parts:
        parts = [_NO_ROWS]
    return Rows(
        np.concatenate([part.op for part in parts]),
        np.concatenate([part.family for part in parts]),
        np.concatenate([part.hash for part in parts]),
        np.concatenate([part.expiry for part in parts]),
        np.concatenate([part.key_len for part in parts]),
        np.concatenate([part.value_len for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def _newest(rows: Rows) -> Rows:
    """The last row of every key, unless that one removes it."""
    keys = binary_column(rows.key_len, rows.keys).dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64) << 16 | rows.family
    last = len(rows) - 1 - np.unique(codes[::-1], return_index=True)[1]
    keep = np.zeros(len(rows), bool)
    keep[last] = True
    return rows.take(keep & (rows.op == OP_PUT))


_NO_ROWS = Rows(
    np.empty(0, np.uint8),
    np.empty(0, np.uint16),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
    np.empty(0, np.uint32),
    np.empty(0, np.uint32),
    np.empty(0, np.uint64),
    np.empty(0, np.uint64),
)
