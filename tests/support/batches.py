"""A store with a past: batches run through a provider, and beside them dicts of every version.

A fault must lose nothing. So a test writes some versions, lets the fault happen, takes it away, and
asks `check` whether a provider that knows nothing but the files reads what the dicts say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from floe.config import PREFIX
from tests.support.harness import Harness, Provider, ProviderKind, Store, StoreFailure
from tests.support.model import Operation, Put, Rows, Scan, Value, expected
from tests.support.refusals import Refusal, refused


def with_settings(kind: ProviderKind, settings: dict[str, str]) -> ProviderKind:
    """The provider with more settings, given by their full keys."""
    return replace(kind, conf={**kind.conf, **settings})


def with_keys(kind: ProviderKind, **suffixes: str) -> ProviderKind:
    """The provider with more keys of Floe; a dot in a key is an underscore here."""
    return with_settings(
        kind, {PREFIX + key.replace("_", "."): value for key, value in suffixes.items()}
    )


@dataclass(frozen=True)
class Version:
    """A committed version as Spark names it, and what it holds."""

    number: int
    id: str | None
    rows: Rows


class Batches:
    """The versions of one store."""

    def __init__(self, harness: Harness, kind: ProviderKind, root: Path) -> None:
        self.harness = harness
        self.kind = kind
        self.root = root
        self.versions = [Version(0, None, {})]
        self.provider = self.restarted()

    @property
    def directory(self) -> Path:
        """The store's own directory: operator 0, partition 0."""
        return self.root / "0" / "0"

    @property
    def last(self) -> Version:
        return self.versions[-1]

    def restarted(self, harness: Harness | None = None) -> Provider:
        """A provider that knows nothing but the files."""
        return (harness or self.harness).provider(self.kind, self.root)

    def begin(self, operations: Iterable[Operation] = ()) -> Store:
        """A handle on the last version, with operations done and nothing committed."""
        store = self.provider.open(self.last.number, self.last.id)
        try:
            store.run(operations)
        except StoreFailure:
            store.abort()
            raise
        return store

    def commit(self, operations: Iterable[Operation]) -> Version:
        listed = list(operations)
        store = self.begin(listed)
        try:
            committed = store.commit()
        except StoreFailure:
            store.abort()
            raise
        rows = dict(self.last.rows)
        expected(listed, rows)
        assert committed.key_count == len(rows)
        self.versions.append(Version(committed.version, committed.id, rows))
        return self.last

    def snapshot(self) -> None:
        """Maintenance; that it fails is written to the JVM's log and nowhere else."""
        self.provider.snapshot_maintenance()

    def restart(self) -> None:
        self.provider.close()
        self.provider = self.restarted()

    def load(
        self, version: Version, provider: Provider | None = None, harness: Harness | None = None
    ) -> Rows:
        """The rows of a version as a provider finds them: one that was just started by default."""
        reader = provider or self.restarted(harness)
        store = reader.open_read(version.number, version.id)
        try:
            return rows_of(store)
        finally:
            store.release()
            if provider is None:
                reader.close()

    def check(self, harness: Harness | None = None) -> None:
        """Every version is there with all its rows."""
        for version in self.versions:
            assert self.load(version, harness=harness) == version.rows, version.number

    def refusal(self, version: Version, provider: Provider | None = None) -> Refusal:
        """What opening a version says that has to fail."""
        reader = provider or self.restarted()
        try:
            return refused(lambda: reader.open(version.number, version.id))
        finally:
            if provider is None:
                reader.close()


def rows_of(store: Store) -> Rows:
    (pairs,) = store.run([Scan()])
    rows = {(key, name): (number, text) for key, name, number, text in pairs}
    assert len(rows) == len(pairs), "a key comes twice"
    return rows


def some_rows(start: int, count: int = 20, length: int = 30) -> list[Operation]:
    """Puts of `count` rows with values of `length` characters."""
    return [
        Put((n, f"key {n}"), Value(n, f"{n} ice ", length)) for n in range(start, start + count)
    ]


def lived_in(harness: Harness, kind: ProviderKind, root: Path) -> Batches:
    """Six versions: two of deltas alone, then snapshots of 3 and 5 that share a segment."""
    batches = Batches(harness, kind, root)
    for number in range(1, 7):
        batches.commit([*some_rows(10 * number), Put((0, "last"), Value(number, None))])
        if number in (3, 5):
            batches.snapshot()
    return batches
