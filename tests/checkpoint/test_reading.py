"""The state of a version from files alone: of files made here, and of files that the JVM wrote."""

import os
import tempfile
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from floe.checkpoint import reading
from floe.checkpoint.source import FileSource
from floe.errors import Corrupt, InvalidRequest
from floe.format.state_schema import StateSchema
from tests.checkpoint.test_retention import grown, steps
from tests.support.durable import Change, History, make_rows, put, remove, state_of
from tests.support.harness import Harness, ProviderKind
from tests.support.model import Put, Remove, Rows, Value
from tests.support.providers import FLOE_V1, FLOE_V2
from tests.support.unsafe_rows import encode, fields


@settings(max_examples=80)
@given(steps)
def test_every_commit_of_a_history_is_read_as_it_was(
    listed: list[tuple[str, list[Change]]],
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        history = History(Path(scratch))
        for commit in grown(history, listed):
            rows = reading.state(FileSource(history.directory), "s", commit.version, commit.id)
            assert state_of(rows) == commit.state


def test_reading_writes_nothing(tmp_path: Path) -> None:
    history = History(tmp_path, with_alias=True)
    history.snapshot(history.commit(None, put("a", "1")))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    reading.state(FileSource(tmp_path), "s", 1, None)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()} == before


def test_a_version_that_is_not_there_says_which_are(tmp_path: Path) -> None:
    history = History(tmp_path)
    tip = None
    for n in range(1, 8):
        tip = history.commit(tip, put("a", str(n)))
        if n in (3, 6):
            history.snapshot(tip)
    for path in [*tmp_path.glob("1_*"), *tmp_path.glob("2_*"), *tmp_path.glob("5_*")]:
        path.unlink()
    assert reading.held_versions(FileSource(tmp_path)) == [3, 4, 6, 7]
    for version in (0, 1, 5, 8):
        with pytest.raises(InvalidRequest, match=r"there are 3 to 4, 6 to 7") as caught:
            reading.state(FileSource(tmp_path), "operator 3", version, None)
        assert f"operator 3: version {version} is not in {tmp_path}" in caught.value.message


def test_a_delta_without_the_one_before_is_not_held(tmp_path: Path) -> None:
    history = History(tmp_path)
    tip = None
    for n in range(4):
        tip = history.commit(tip, put("a", str(n)))
    next(tmp_path.glob("2_*")).unlink()
    assert reading.held_versions(FileSource(tmp_path)) == [1]


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    history = History(tmp_path)
    commit = history.commit(None, put("a", "1"))
    history.snapshot(commit)
    (segment,) = tmp_path.glob("*.segment")
    segment.write_bytes(segment.read_bytes()[:-8])
    with pytest.raises(Corrupt) as caught:
        reading.state(FileSource(tmp_path), "s", 1, commit.id)
    assert caught.value.fields["path"] == str(segment)


def test_stores_are_found_by_operator_partition_and_name(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for place in ("0/0", "0/1", "0/10", "1/0/left", "1/0/right"):
        history = History(state / place)
        history.commit(None, put("a", "1"))
    for place in ("0/_metadata", "0/0/_metadata", "0/2", "1/0/.hidden", "_x/0"):
        (state / place).mkdir(parents=True, exist_ok=True)
    found = [(s.operator, s.partition, s.name, s.directory) for s in reading.stores(tmp_path)]
    assert found == [
        (0, 0, "default", state / "0/0"),
        (0, 1, "default", state / "0/1"),
        (0, 10, "default", state / "0/10"),
        (1, 0, "left", state / "1/0/left"),
        (1, 0, "right", state / "1/0/right"),
    ]
    schemas = [s.schema_file.relative_to(state) for s in reading.stores(tmp_path)]
    assert schemas[1] == Path("0/0/_metadata/schema")
    assert schemas[4] == Path("1/0/right/_metadata/schema")


def test_a_checkpoint_without_state_has_no_stores(tmp_path: Path) -> None:
    assert reading.stores(tmp_path) == []


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    commit = History(tmp_path).commit(None, put("a", "1"))
    (delta,) = tmp_path.glob("*.delta")
    os.link(delta, tmp_path / "1.delta")
    store = reading.StoreFiles(0, 0, "default", tmp_path)
    assert store.file_bytes() == delta.stat().st_size
    assert commit.version == 1


# -- tables --------------------------------------------------------------------------------------


def test_rows_that_are_not_of_the_schema_are_shown_as_bytes() -> None:
    key = encode([("n", "integer")], [7])
    rows = make_rows([(0, key, b"")])
    schema = StateSchema(fields([("n", "integer")]), fields([("a", "long"), ("b", "string")]))
    found = reading.table(rows, schema)
    assert found.to_pylist() == [{"key_n": 7, "value": b""}]
    assert reading.table(rows, None).to_pylist() == [{"key": key, "value": b""}]


def test_families_are_told_apart() -> None:
    rows = make_rows([put("a", "1"), put("b", "2")])
    rows.family = np.array([0, 3], np.uint16)
    schema = StateSchema(fields([("n", "long")]), fields([("n", "long")]))
    found = reading.table(rows, schema)
    assert found["family"].to_pylist() == [0, 3]
    assert found.schema.field("key").type == pa.large_binary()


# -- files that the JVM wrote --------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FLOE_V1, FLOE_V2], ids=lambda kind: kind.name)
def test_what_the_shim_committed_is_read_with_and_without_snapshots(
    kind: ProviderKind, harness: Harness, tmp_path: Path
) -> None:
    provider = harness.provider(kind, tmp_path / "state")
    rows: Rows = {}
    versions: list[tuple[str | None, Rows]] = []
    id = None
    for number in range(6):
        store = provider.open(number, id)
        changes: list[Put | Remove] = [
            Put((n, "s" * n if n % 3 else None), Value(number, "text" if n % 2 else None, 9 * n))
            for n in range(number, 12, 2)
        ]
        changes += [Remove((n, "s" * n if n % 3 else None)) for n in range(0, 12, 5)]
        store.run(changes)
        for change in changes:
            change.apply(rows)
        id = store.commit().id
        versions.append((id, dict(rows)))
        if number in (1, 4):
            provider.snapshot_maintenance()
    provider.close()
    (files,) = reading.stores(tmp_path)
    assert sum(named.kind == "manifest" for named in files.source.names()) == 2
    schema = StateSchema(
        fields([("k", "integer"), ("s", "string")]), fields([("n", "long"), ("text", "string")])
    )
    for number, (commit, expected) in enumerate(versions):
        named = None if commit is None else UUID(commit)
        table = reading.table(reading.state(files.source, "s", number + 1, named), schema)
        assert _as_model(table) == {(key, value) for key, value in expected.items()}, (
            f"version {number + 1}"
        )


def _as_model(table: pa.Table) -> set[object]:
    found: set[object] = set()
    for row in table.to_pylist():
        text = row["value_text"]
        shown = Value(row["value_n"], text, len(text)).shown() if text else (row["value_n"], text)
        found.add(((row["key_k"], row["key_s"]), shown))
    assert len(found) == table.num_rows
    return found


def test_a_removed_key_that_came_back_is_there(tmp_path: Path) -> None:
    history = History(tmp_path)
    commit = history.commit(None, put("a", "1"), put("b", "2"))
    history.snapshot(commit)
    commit = history.commit(commit, remove("a"), remove("b"))
    commit = history.commit(commit, put("a", "again"))
    assert state_of(reading.state(FileSource(tmp_path), "s", 3, commit.id)) == commit.state
