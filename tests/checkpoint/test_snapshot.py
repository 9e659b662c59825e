"""Snapshots of a table that goes on changing: files of version v hold version v.

The machine plays the shim (tests/support/mini_shim.py) and checks every snapshot by reading its
files back. A snapshot is copied at one moment and written at a later one; commits, aborts,
rollbacks and the death of the sidecar may fall in between.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from floe.checkpoint import reading, snapshot
from floe.checkpoint.log import LogState
from floe.checkpoint.source import FileSource
from floe.format.layout import FREE_FLAG, GROUP_FLAG
from floe.format.trailer import Trailer
from floe.storage.slabs import SlabPool
from tests.support.durable import padded, state_of
from tests.support.memory import close
from tests.support.mini_shim import MiniShim, UndoLog

MIB = 1 << 20
RATIO = 0.5
UNDOABLE = 2  # versions that the shim can go back

keys = st.sampled_from([padded(f"key {n}") for n in range(8)])
values = st.integers(0, 40).map(lambda n: padded("v" * n))


class SnapshotMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.directory = Path(self._scratch.name)
        self.pool = SlabPool(8 * MIB, MIB)
        self.shim = MiniShim(self.pool)
        self.log = LogState()
        self.version = 0
        self.ids = 0
        self.steps: list[UndoLog] = []
        self.switches: np.typing.NDArray[np.void] | None = None
        self.copied: snapshot.Copied | None = None
        self.copied_state: dict[bytes, bytes] = {}
        self.copied_version = 0
        self.last_version = 0  # of the last snapshot
        self.logs_since: list[UndoLog] = []

    @precondition(lambda self: self.shim.log is None)
    @rule()
    def begin(self) -> None:
        if self.switches is not None:
            self.shim.apply(self.switches)
            self.switches = None
        self.logs_since.append(self.shim.begin())

    @precondition(lambda self: self.shim.log is not None)
    @rule(puts=st.dictionaries(keys, values), removed=st.sets(keys))
    def change(self, puts: dict[bytes, bytes], removed: set[bytes]) -> None:
        for key, value in puts.items():
            self.shim.put(key, value)
        for key in sorted(removed):
            self.shim.remove(key)

    @precondition(lambda self: self.shim.log is not None)
    @rule()
    def commit(self) -> None:
        self.steps.append(self.shim.commit())
        del self.steps[:-UNDOABLE]
        self.version += 1

    @precondition(lambda self: self.shim.log is not None)
    @rule()
    def abort(self) -> None:
        assert self.shim.log is not None
        self.shim.go_back(self.shim.log)

    @precondition(lambda self: self.shim.log is None and self.steps)
    @rule()
    def roll_back(self) -> None:
        self.shim.go_back(self.steps.pop())
        self.version -= 1
        self.switches = None
        self.last_version = 0 if self.last_version > self.version else self.last_version
        if self.copied_version > self.version:
            self.copied = None  # the version that is being written is left

    @precondition(lambda self: self.copied is None and self.version > self.last_version)
    @rule()
    def copy(self) -> None:
        self.copied_version = self.version
        self.copied_state = dict(self.shim.log.before if self.shim.log else self.shim.state)
        self.logs_since = [self.shim.log] if self.shim.log else []
        self.copied = snapshot.copy(self.shim.table, self.shim.high_water, self.log, RATIO)

    @precondition(lambda self: self.copied is not None)
    @rule(uploaded=st.sampled_from([True, True, False]))
    def write(self, uploaded: bool) -> None:
        assert self.copied is not None
        self.ids += 1
        id = UUID(int=self.ids)
        written = snapshot.write(
            self.copied,
            self.shim.table,
            [log.ranges for log in self.logs_since],
            self.log,
            Trailer(self.copied_version, id, None, None),
            self.directory,
            segment_bytes=1,
            min_live_ratio=RATIO,
        )
        self.copied = None
        found = reading.state(FileSource(self.directory), "s", self.copied_version, id)
        assert state_of(found) == self.copied_state
        live = sum(int(known.entry.live.sum()) for known in written.state.segments.values())
        assert written.rows == live == len(self.copied_state)
        assert written.files[-1].suffix == ".manifest"
        if uploaded:
            self.log, self.switches = written.state, written.switches
            self.last_version = self.copied_version

    @precondition(lambda self: self.shim.log is None)
    @rule(puts=st.dictionaries(keys, values), removed=st.sets(keys))
    def batch(self, puts: dict[bytes, bytes], removed: set[bytes]) -> None:
        self.begin()
        self.change(puts, removed)
        self.commit()

    @precondition(lambda self: self.copied is None and self.version > self.last_version)
    @rule()
    def copy_and_write(self) -> None:
        self.copy()
        self.write(uploaded=True)

    @rule()
    def the_sidecar_dies(self) -> None:
        self.log = LogState()
        self.copied = None

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            close(self.pool)
            self._scratch.cleanup()


TestSnapshotMachine = SnapshotMachine.TestCase
TestSnapshotMachine.settings = settings(max_examples=150, stateful_step_count=40)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is a segment here: eight keys then make several."""
    monkeypatch.setattr(snapshot, "_BLOCK_ROWS", 3)


@pytest.fixture
def machine() -> Iterator[SnapshotMachine]:
    machine = SnapshotMachine()
    machine.start()
    yield machine
    machine.teardown()


def named(*numbers: int) -> dict[bytes, bytes]:
    return {padded(f"key {n}"): padded(f"value {n}") for n in numbers}


def test_an_epoch_that_writes_beside_the_copy_is_not_seen(machine: SnapshotMachine) -> None:
    machine.batch(named(1, 2, 3), set())
    machine.begin()
    machine.change({padded("key 1"): padded("before the copy"), **named(4)}, {padded("key 2")})
    machine.copy()
    machine.change({padded("key 3"): padded("after the copy"), **named(5)}, {padded("key 4")})
    machine.write(uploaded=True)


def test_the_oldest_of_several_records_of_an_entry_counts(machine: SnapshotMachine) -> None:
    machine.batch(named(1, 2), set())
    machine.begin()
    machine.copy()
    machine.change({padded("key 1"): padded("once")}, {padded("key 2")})
    machine.commit()
    machine.batch({padded("key 1"): padded("twice"), padded("key 2"): padded("back")}, set())
    machine.begin()
    machine.change({}, {padded("key 1")})
    machine.abort()
    machine.write(uploaded=True)


def test_a_second_snapshot_writes_what_changed_and_names_the_rest(machine: SnapshotMachine) -> None:
    machine.batch(named(*range(8)), set())
    machine.copy_and_write()
    assert len(machine.log.segments) == 3
    machine.batch({padded("key 7"): padded("new")}, set())
    before = set(machine.directory.glob("*.segment"))
    machine.copy_and_write()
    assert machine.switches is not None
    assert len(machine.switches) == 1
    assert len(set(machine.directory.glob("*.segment")) - before) == 1
    assert len(machine.log.segments) == 4


def test_the_live_rows_of_a_sparse_segment_move_on(machine: SnapshotMachine) -> None:
    machine.batch(named(0, 1, 2), set())
    machine.copy_and_write()
    (first,) = machine.log.segments
    machine.batch({}, {padded("key 0"), padded("key 1")})
    machine.copy_and_write()  # a third of the segment is live from now on
    assert set(machine.log.segments) == {first}
    machine.batch({}, set())
    machine.copy_and_write()
    assert first not in machine.log.segments
    assert machine.switches is not None
    assert len(machine.switches) == 1


def test_a_marker_of_a_dead_sidecar_never_names_a_segment_of_the_next(
    machine: SnapshotMachine,
) -> None:
    machine.batch(named(0, 1), set())
    machine.copy_and_write()
    machine.batch({}, {padded("key 0")})
    machine.the_sidecar_dies()
    machine.copy_and_write()
    machine.roll_back()  # entries have the markers of the first snapshot again
    machine.copy_and_write()


def test_numbers_of_dropped_segments_are_not_given_out_again(machine: SnapshotMachine) -> None:
    machine.batch(named(0), set())
    machine.copy_and_write()
    (first,) = machine.log.segments
    machine.batch({}, {padded("key 0")})
    machine.copy_and_write()
    assert not machine.log.segments
    machine.batch(named(1), set())
    machine.copy_and_write()
    (second,) = machine.log.segments
    assert second > first


def test_a_switch_list_hands_out_the_markers_of_records(machine: SnapshotMachine) -> None:
    machine.batch(named(0, 1), set())
    machine.copy_and_write()
    machine.begin()
    ((number, known),) = machine.log.segments.items()
    found = [int(machine.shim.entry(key)["cold"]) for key in named(0, 1)]
    assert found == [number << 32 | int(word) for word in known.words]


def test_a_store_without_rows_has_a_snapshot_without_segments(machine: SnapshotMachine) -> None:
    machine.batch({}, set())
    machine.copy_and_write()
    assert not machine.log.segments
    assert machine.switches is not None
    assert len(machine.switches) == 0


def test_anchors_and_free_entries_are_no_rows(machine: SnapshotMachine) -> None:
    machine.batch(named(0, 1, 2), set())
    for key, flag in ((padded("key 0"), GROUP_FLAG), (padded("key 1"), FREE_FLAG)):
        machine.shim.entry(key)["kind"] |= np.uint32(flag)
        del machine.shim.state[key]
    machine.copy_and_write()
