"""Random histories of a store, judged by dicts: one for each version that was committed.

What Spark may do to a store between and within batches is a rule here: work and commit, fail and
retry, run a batch again with other rows, go back a version, restart, move to another executor and
come back, read an old version, maintain at any moment. Spark's own providers run as controls: a
model that they fail is wrong.

A `Version` is a node of a tree, since a version that is committed twice has two contents. In
checkpoint format 1 the later one counts, in format 2 Spark names one by its id. Going back and
committing anew makes everything after it unreachable.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.support.harness import Harness, Provider, ProviderKind, Store
from tests.support.model import (
    Bump,
    Evict,
    Exists,
    Get,
    Key,
    Operation,
    Put,
    Remove,
    Rows,
    Scan,
    Value,
    comparable,
    expected,
)
from tests.support.providers import (
    FLOE_MANAGED_V1,
    FLOE_MANAGED_V2,
    FLOE_V1,
    FLOE_V2,
    IN_MEMORY,
    RETAINED_VERSIONS,
    ROCKSDB_V2,
)

# Few keys, so that histories meet the same one again; strings of no, odd and many bytes.
KEYS: st.SearchStrategy[Key] = st.tuples(
    st.integers(-1, 3), st.sampled_from(["", "a", "ß雪", "k" * 100, None])
)
LENGTHS = st.one_of(st.integers(0, 70), st.sampled_from([255, 4096, 65_535, 100_000]))
VALUES = st.one_of(
    st.builds(Value, st.integers(-(2**63), 2**63 - 2), st.just(None)),
    st.builds(Value, st.integers(-5, 5), st.sampled_from(["x", "ice ", "雪", "\0\n"]), LENGTHS),
)
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, VALUES),
    st.builds(Put, KEYS, VALUES),
    st.builds(Remove, KEYS),
    st.builds(Get, KEYS),
    st.builds(Exists, KEYS),
    st.builds(Scan),
    st.builds(Evict, st.integers(-1, 2)),
    st.builds(Bump, st.integers(-1, 4)),
)


@dataclass(eq=False)
class Version:
    """A committed version: what it holds, and what it was made from."""

    number: int
    id: str | None
    rows: Rows
    parent: Version | None

    def lineage(self) -> Iterator[Version]:
        version: Version | None = self
        while version is not None:
            yield version
            version = version.parent


@dataclass(eq=False)
class Instance:
    """A provider instance, and the versions that it may have kept in memory."""

    provider: Provider
    seen: list[Version] = field(default_factory=list)

    def is_stale(self, tip: Version) -> bool:
        """Whether it may hold a version that has since been replaced by another instance."""
        lineage = list(tip.lineage())
        return any(version not in lineage for version in self.seen)


@dataclass(eq=False)
class Epoch:
    """An open write handle, the read handle it may have come from, and what it should hold."""

    store: Store
    read: Store | None
    base: Version
    rows: Rows
    forced_snapshot: bool
    touched: set[Key] = field(default_factory=set)


class StoreMachine(RuleBasedStateMachine):
    """Rules are named for what happens; `tip` is the version that Spark would open next."""

    def __init__(self, harness: Harness, kind: ProviderKind) -> None:
        super().__init__()
        self.harness = harness
        self.kind = kind
        self.root = Path(tempfile.mkdtemp(prefix="floe-model-"))
        self.tip = Version(0, None, {}, None)
        self.siblings = [self.tip]
        self.highest = 0
        self.snapshotted = 0
        self.current = self._new_instance()
        self.idle: Instance | None = None
        self.dead: list[tuple[Instance, Store | None]] = []
        self.epoch: Epoch | None = None

    @property
    def has_ids(self) -> bool:
        return self.kind.format_version == 2

    @property
    def tells_rewrites_apart(self) -> bool:
        """Spark's in-memory provider takes a snapshot for that of a rewritten version."""
        return self.kind is not IN_MEMORY

    def _new_instance(self) -> Instance:
        return Instance(self.harness.provider(self.kind, self.root))

    def _check(self, store: Store, operations: list[Operation], rows: Rows) -> None:
        wanted = expected(operations, rows)
        assert comparable(store.run(operations)) == comparable(wanted)

    def _open_read_and_check(self, provider: Provider, version: Version) -> Store:
        store = provider.open_read(version.number, version.id)
        try:
            self._check(store, [Scan(), Get((0, "a"))], dict(version.rows))
        except BaseException:
            store.release()
            raise
        return store

    # The work of a task.

    @precondition(lambda self: self.epoch is None)
    @rule(force_snapshot=st.integers(0, 7).map(lambda n: n == 0), look=st.booleans())
    def open(self, force_snapshot: bool, look: bool) -> None:
        store = self.current.provider.open(
            self.tip.number, self.tip.id, force_snapshot=force_snapshot
        )
        self._begin(store, None, force_snapshot)
        if look:
            self._check(store, [Scan()], dict(self.tip.rows))

    @precondition(lambda self: self.epoch is None)
    @rule()
    def open_to_read_and_upgrade(self) -> None:
        provider = self.current.provider
        read = self._open_read_and_check(provider, self.tip)
        self._begin(provider.upgrade(read, self.tip.number, self.tip.id), read, False)

    def _begin(self, store: Store, read: Store | None, forced_snapshot: bool) -> None:
        self.epoch = Epoch(store, read, self.tip, dict(self.tip.rows), forced_snapshot)
        self.current.seen.append(self.tip)

    @precondition(lambda self: self.epoch is not None)
    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=10), elsewhere=st.booleans())
    def work(self, operations: list[Operation], elsewhere: bool) -> None:
        assert self.epoch is not None
        before = dict(self.epoch.rows)
        wanted = expected(operations, self.epoch.rows)
        answers = self.epoch.store.run(operations, elsewhere=elsewhere)
        assert comparable(answers) == comparable(wanted)
        self._touch(before, operations)

    def _touch(self, before: Rows, operations: list[Operation]) -> None:
        assert self.epoch is not None
        self.epoch.touched |= {op.key for op in operations if isinstance(op, Put | Remove)}
        if any(isinstance(op, Evict | Bump) for op in operations):
            self.epoch.touched |= before.keys() | self.epoch.rows.keys()

    @precondition(lambda self: self.epoch is not None)
    @rule(start=st.integers(0, 3), count=st.sampled_from([30, 400, 1500]), number=st.integers(0, 9))
    def put_many(self, start: int, count: int, number: int) -> None:
        many: list[Operation] = [
            Put((1000 + i, "many"), Value(number + i, "m", i % 50))
            for i in range(start * 300, start * 300 + count)
        ]
        self.work(many, elsewhere=False)

    @precondition(lambda self: self.epoch is not None and self.epoch.read is not None)
    @rule(keys=st.lists(KEYS, min_size=1, max_size=5))
    def read_through_the_read_handle(self, keys: list[Key]) -> None:
        """Providers differ in whether it sees the writes; the rest of the rows are certain."""
        assert self.epoch is not None
        assert self.epoch.read is not None
        untouched: list[Operation] = [Get(key) for key in keys if key not in self.epoch.touched]
        self._check(self.epoch.read, untouched, self.epoch.rows)

    @precondition(lambda self: self.epoch is not None)
    @rule()
    def commit(self) -> None:
        assert self.epoch is not None
        committed = self.epoch.store.commit()
        epoch, self.epoch = self.epoch, None
        base, rows = epoch.base, epoch.rows
        assert committed.version == base.number + 1
        assert committed.key_count == len(rows)
        assert (committed.id is not None) == self.has_ids
        assert committed.base == base.id
        version = Version(committed.version, committed.id, rows, base)
        retried = self.has_ids and self.siblings[0].parent is base
        self.siblings = [*self.siblings, version] if retried else [version]
        self.tip = version
        self.highest = max(self.highest, version.number)
        if epoch.forced_snapshot:
            self.snapshotted = self.highest
        self.current.seen.append(version)

    @precondition(lambda self: self.epoch is None)
    @rule(operations=st.lists(OPERATIONS, max_size=6))
    def run_a_batch(self, operations: list[Operation]) -> None:
        """The common case in one step: it takes several versions to get into trouble."""
        self.open(force_snapshot=False, look=False)
        self.work(operations, elsewhere=False)
        self.commit()

    @precondition(lambda self: self.epoch is None and self._may_go_back())
    @rule(operations=st.lists(OPERATIONS, max_size=6))
    def run_the_last_batch_again(self, operations: list[Operation]) -> None:
        """With other rows: Spark promises the same ones, users' functions do not."""
        self.go_back_one_version()
        self.run_a_batch(operations)

    @precondition(lambda self: self.epoch is not None)
    @rule()
    def abort(self) -> None:
        assert self.epoch is not None
        self.epoch.store.abort()
        self.epoch = None

    # What happens between tasks.

    @precondition(lambda self: self.epoch is None and self._may_go_back())
    @rule()
    def go_back_one_version(self) -> None:
        """What a failed batch, or a second action in foreachBatch, makes Spark do."""
        assert self.tip.parent is not None
        self.tip = self.tip.parent

    def _may_go_back(self) -> bool:
        return self.tip.number - 1 > max(
            self.highest - RETAINED_VERSIONS,
            -1 if self.tells_rewrites_apart else self.snapshotted - 1,
        )

    @precondition(lambda self: self.epoch is None and self.tip in self.siblings[:-1])
    @rule()
    def continue_from_the_last_commit(self) -> None:
        self.tip = self.siblings[-1]

    @precondition(lambda self: self.epoch is None and self.tip in self.siblings[1:])
    @rule()
    def continue_from_the_first_commit(self) -> None:
        """Of two commits of one version the driver keeps the first that it hears of."""
        self.tip = self.siblings[0]

    @precondition(lambda self: self.epoch is None)
    @rule(back=st.integers(0, RETAINED_VERSIONS - 1), by_another=st.booleans())
    def read_a_retained_version(self, back: int, by_another: bool) -> None:
        wanted = next(itertools.islice(self.tip.lineage(), back, None), self.tip)
        if wanted.number <= self.highest - RETAINED_VERSIONS:
            return
        instance = self._new_instance() if by_another else self.current
        self._open_read_and_check(instance.provider, wanted).release()
        instance.seen.append(wanted)
        if by_another:
            instance.provider.close()

    @rule(closed=st.booleans())
    def restart(self, closed: bool) -> None:
        """A new instance on the same files; the old one is closed or was killed in its tracks."""
        store = None if self.epoch is None else self.epoch.store
        if closed:
            if store is not None:
                store.abort()
            self.current.provider.close()
        else:
            self.dead.append((self.current, store))
        self.epoch = None
        self.current = self._new_instance()

    @precondition(lambda self: self.epoch is None)
    @rule()
    def move_to_the_other_executor(self) -> None:
        """Which may have seen earlier versions. Without ids it cannot tell that one was redone."""
        other = self.idle
        if other is not None and not self.has_ids and other.is_stale(self.tip):
            other.provider.close()
            other = None
        self.current, self.idle = other or self._new_instance(), self.current

    @precondition(lambda self: self.tells_rewrites_apart or self.tip.number == self.highest)
    @rule()
    def snapshot(self) -> None:
        self.current.provider.snapshot_maintenance()
        self.snapshotted = self.highest

    @precondition(lambda self: self.idle is not None and self.tells_rewrites_apart)
    @rule()
    def snapshot_by_the_idle_executor(self) -> None:
        assert self.idle is not None
        self.idle.provider.snapshot_maintenance()

    @rule()
    def clean_up(self) -> None:
        self.current.provider.cleanup_maintenance()

    def teardown(self) -> None:
        if self.epoch is not None:
            self.dead.append((self.current, self.epoch.store))
        else:
            self.dead.append((self.current, None))
        if self.idle is not None:
            self.dead.append((self.idle, None))
        for instance, store in self.dead:
            if store is not None:
                store.abort()
            instance.provider.close()
        shutil.rmtree(self.root)


class DyingSidecarMachine(StoreMachine):
    """The same histories; the sidecar dies between any two steps of them."""

    @rule()
    def kill_the_sidecar(self) -> None:
        """Not a third time without a completed call in between: then the circuit opens, rightly."""
        instance = self._new_instance()
        self._open_read_and_check(instance.provider, self.tip).release()
        self.harness.kill_sidecars()
        instance.provider.close()


# Controls take fewer: they prove the model, and their commits are slow.
EXAMPLES = {
    IN_MEMORY: 25,
    ROCKSDB_V2: 8,
    FLOE_V1: 80,
    FLOE_V2: 80,
    FLOE_MANAGED_V1: 10,
    FLOE_MANAGED_V2: 10,
}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.name)
def test_any_history_leaves_what_the_model_says(harness: Harness, kind: ProviderKind) -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(harness, kind)

    run(Machine, EXAMPLES[kind])


@pytest.mark.parametrize("kind", [FLOE_V1, FLOE_V2], ids=lambda kind: kind.name)
def test_a_sidecar_that_dies_is_not_noticed(harness: Harness, kind: ProviderKind) -> None:
    class Machine(DyingSidecarMachine):
        def __init__(self) -> None:
            super().__init__(harness, kind)

    run(Machine, 12)


def run(machine: type[StoreMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
