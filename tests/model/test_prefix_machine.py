"""Random histories of a store with prefix scans, judged by a dict.

The key's first column is the prefix. What matters here is that the index from prefixes to keys
follows the rows through everything that moves them: removal and return of a key, abort, commit,
going back a version, restart. Groups of one row and of hundreds are built, since a store may keep
them differently.
"""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.harness import Harness, Provider, ProviderKind, Store
from tests.support.model import (
    Evict,
    Get,
    Key,
    Operation,
    PrefixScan,
    Put,
    Remove,
    Rows,
    Scan,
    Value,
    comparable,
    expected,
)
from tests.support.providers import FLOE_V1, FLOE_V2, IN_MEMORY, ROCKSDB_V2

PREFIXES = st.integers(0, 4)
KEYS: st.SearchStrategy[Key] = st.tuples(PREFIXES, st.integers(-3, 3))
VALUES = st.builds(Value, st.integers(0, 9), st.just("p"), st.integers(0, 40))
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, VALUES),
    st.builds(Put, KEYS, VALUES),
    st.builds(Remove, KEYS),
    st.builds(Get, KEYS),
    st.builds(PrefixScan, PREFIXES),
    st.builds(PrefixScan, PREFIXES),
    st.builds(Scan),
    st.builds(Evict, st.integers(0, 2)),
)
# Below and above the sizes at which a store may change how it keeps a group.
GROUP_SIZES = st.sampled_from([1, 31, 32, 33, 300])


class PrefixMachine(RuleBasedStateMachine):
    """A store is always open on the newest version, or on the one before it."""

    def __init__(self, harness: Harness, kind: ProviderKind) -> None:
        super().__init__()
        self.harness = harness
        self.kind = kind
        self.root = Path(tempfile.mkdtemp(prefix="floe-prefix-"))
        self.provider = self._new_provider()
        self.version = 0
        self.ids: list[str | None] = [None]
        self.committed: list[Rows] = [{}]

    def _new_provider(self) -> Provider:
        return self.harness.provider(self.kind, self.root, long_keys=True, prefix_columns=1)

    @initialize()
    def open(self) -> None:
        self.store: Store = self.provider.open(self.version, self.ids[self.version])
        self.rows = dict(self.committed[self.version])

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=10))
    def work(self, operations: list[Operation]) -> None:
        wanted = expected(operations, self.rows)
        assert comparable(self.store.run(operations)) == comparable(wanted)

    @rule(prefix=PREFIXES, size=GROUP_SIZES)
    def put_a_group(self, prefix: int, size: int) -> None:
        self.work([Put((prefix, time), Value(time, "g", 3)) for time in range(size)])

    @rule(prefix=PREFIXES, size=GROUP_SIZES)
    def remove_a_group(self, prefix: int, size: int) -> None:
        self.work([Remove((prefix, time)) for time in range(size)])

    @rule()
    def commit(self) -> None:
        committed = self.store.commit()
        del self.store
        self.version += 1
        assert committed.version == self.version
        self.ids[self.version :] = [committed.id]
        self.committed[self.version :] = [self.rows]
        self.open()

    @rule()
    def abort(self) -> None:
        self.store.abort()
        self.open()

    # The in-memory provider takes a snapshot for that of a version committed anew.
    @precondition(lambda self: self.version > 0 and self.kind is not IN_MEMORY)
    @rule()
    def go_back_one_version(self) -> None:
        self.store.abort()
        self.version -= 1
        self.open()

    @rule()
    def restart(self) -> None:
        self.store.abort()
        self.provider.close()
        self.provider = self._new_provider()
        self.open()

    @rule()
    def snapshot(self) -> None:
        self.provider.snapshot_maintenance()

    @invariant()
    def every_prefix_has_its_rows(self) -> None:
        self.work([PrefixScan(prefix) for prefix in range(5)])

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.abort()
        self.provider.close()
        shutil.rmtree(self.root)


# Controls take fewer: they prove the model, and their commits are slow.
EXAMPLES = {IN_MEMORY: 15, ROCKSDB_V2: 5, FLOE_V1: 40, FLOE_V2: 40}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.name)
def test_prefix_scans_follow_the_rows(harness: Harness, kind: ProviderKind) -> None:
    class Machine(PrefixMachine):
        def __init__(self) -> None:
            super().__init__(harness, kind)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES[kind],
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
