"""`floe inspect` on files that are made here; tests/spark has it on checkpoints of real queries."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from floe.cli import app
from floe.session import PROVIDER_CLASS, PROVIDER_KEY
from floe.storage import paths
from tests.format.test_state_schema import chunked, dumped, java_text
from tests.support.durable import Change, Commit, History
from tests.support.unsafe_rows import Schema, encode, struct

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KEY = [("name", "string"), ("window", struct([("start", "long"), ("end", "long")]))]
VALUE = [("n", "long"), ("list", {"type": "array", "elementType": "long", "containsNull": True})]


class Checkpoint:
    """A checkpoint as Spark and Floe would leave it; one operator, two partitions."""

    def __init__(self, root: Path, key: Schema = KEY) -> None:
        self.root = root
        for name in ("offsets", "commits"):
            (root / name).mkdir(parents=True)
        (root / "metadata").write_text('{"id":"1"}')
        schema = root / "state/0/0/_metadata/schema"
        schema.parent.mkdir(parents=True)
        schema.write_bytes(
            java_text("v2")
            + b"".join(chunked(dumped(struct(fields)), 65535) for fields in (key, VALUE))
        )
        self.histories = [History(root / f"state/0/{n}") for n in range(2)]
        self.tips: list[Commit | None] = [None, None]

    def batch(self, number: int, provider: str | None = PROVIDER_CLASS) -> None:
        """Commits two rows in each store, between the entries of Spark's logs."""
        for partition, history in enumerate(self.histories):
            changes = [row(f"p{partition} b{number}", number), row(f"p{partition}", number)]
            self.tips[partition] = history.commit(self.tips[partition], *changes)
        self.note_batch(number, provider)

    def note_batch(self, number: int, provider: str | None = PROVIDER_CLASS) -> None:
        conf = {PROVIDER_KEY: provider} if provider else {}
        (self.root / "offsets" / str(number)).write_text(f"v1\n{json.dumps({'conf': conf})}\n{{}}")
        self.note_commit(number)

    def note_commit(self, number: int, ids: list[list[str]] | None = None) -> None:
        entry = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": ids} if ids else {}}
        (self.root / "commits" / str(number)).write_text(f"v2\n{json.dumps(entry)}")


def row(name: str, number: int) -> Change:
    key = encode(KEY, [name, [number, number + 10]])
    if name.endswith(("0", "1")) and " " not in name:
        key = encode(KEY, [name, None])
    return 0, key, encode(VALUE, [number, b"12345678"])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    made = Checkpoint(tmp_path / "checkpoint")
    for number in range(3):
        made.batch(number)
    return made


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)])


def exported(checkpoint: Checkpoint, *arguments: object, suffix: str = ".parquet") -> pa.Table:
    path = checkpoint.root.parent / f"state{suffix}"
    result = run(checkpoint.root, *arguments, "--export", path)
    assert result.exit_code == 0, result.output
    assert str(path) in result.output
    if suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def test_the_list_has_a_row_for_each_store(checkpoint: Checkpoint) -> None:
    tip = checkpoint.tips[1]
    assert tip is not None
    checkpoint.histories[1].snapshot(tip)
    result = run(checkpoint.root)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[1][:7] == ["0", "0", "default", "1..3", "0", "3", "4"]
    assert lines[2][:7] == ["0", "1", "default", "1..3", "1", "3", "4"]


def test_a_selection_shows_the_rows_of_its_store(checkpoint: Checkpoint) -> None:
    result = run(checkpoint.root, "--partition", 1, "--head", 2)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    titles = ["partition_id", "key_name", "key_window_start", "key_window_end"]
    assert lines[0].split() == [*titles, "value_n", "value_list"]
    assert len(lines) == 4
    assert lines[-1] == "2 of 4 rows"
    assert b"12345678".hex() in lines[1]


def test_the_only_store_needs_no_selection(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path)
    made.histories.pop()
    made.batch(0)
    assert "key_name" in run(tmp_path).output


def test_a_time_beyond_the_calendar_is_shown_as_a_number(tmp_path: Path) -> None:
    fields = [("at", "timestamp"), ("day", "date")]
    made = Checkpoint(tmp_path, fields)
    made.histories = made.histories[:1]
    far = 0, encode(fields, [2**62, 2**30]), encode(VALUE, [1, b""])
    made.histories[0].commit(None, far)
    made.note_batch(0)
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[1].split()[1:3] == [str(2**62), str(2**30)]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_an_export_holds_all_rows_with_flat_types(checkpoint: Checkpoint, suffix: str) -> None:
    table = exported(checkpoint, suffix=suffix)
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    assert types == {
        "partition_id": pa.int32(),
        "key_name": pa.string(),
        "key_window_start": pa.int64(),
        "key_window_end": pa.int64(),
        "value_n": pa.int64(),
        "value_list": pa.binary(),
    }
    rows = {(r["partition_id"], r["key_name"]): r for r in table.to_pylist()}
    assert len(rows) == table.num_rows == 8
    assert rows[0, "p0"]["value_n"] == 2
    assert rows[0, "p0"]["key_window_start"] is None
    assert rows[1, "p1 b1"]["key_window_end"] == 11


def test_any_version_can_be_asked_for(checkpoint: Checkpoint) -> None:
    names = exported(checkpoint, "--partition", 0, "--version", 2)["key_name"].to_pylist()
    assert sorted(names) == ["p0", "p0 b0", "p0 b1"]


def test_the_last_version_is_the_last_that_spark_committed(checkpoint: Checkpoint) -> None:
    (checkpoint.root / "commits" / "2").unlink()
    assert exported(checkpoint, "--partition", 0)["value_n"].to_pylist().count(1) == 2


def test_of_two_commits_the_one_in_the_commit_log_is_meant(checkpoint: Checkpoint) -> None:
    tips = []
    for partition, history in enumerate(checkpoint.histories):
        first = history.commit(checkpoint.tips[partition], row("first", 1))
        history.commit(checkpoint.tips[partition], row("second", 2))
        tips.append([str(first.id)])
    checkpoint.note_commit(3, tips)
    names = exported(checkpoint)["key_name"].to_pylist()
    assert names.count("first") == 2
    assert "second" not in names


def test_without_a_schema_keys_and_values_are_bytes(checkpoint: Checkpoint) -> None:
    (checkpoint.root / "state/0/0/_metadata/schema").write_bytes(b"\0\2v9")
    table = exported(checkpoint, "--partition", 0)
    assert table.column_names == ["partition_id", "key", "value"]
    assert pa.types.is_large_binary(table.schema.field("key").type)


def test_inspecting_changes_nothing(checkpoint: Checkpoint) -> None:
    def found() -> dict[Path, tuple[bytes, int]]:
        files = [path for path in checkpoint.root.rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = found()
    run(checkpoint.root)
    run(checkpoint.root, "--partition", 0)
    assert found() == before


# -- refusals --------------------------------------------------------------------------------------


def refusal(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("floe: ")
    return str(result.stderr)


def test_a_directory_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert "checkpointLocation" in refusal(tmp_path)
    assert "is not a directory" in refusal(tmp_path / "absent")


def test_a_remote_checkpoint_says_how_to_look_at_it() -> None:
    assert "copy" in refusal("s3a://bucket/checkpoint")


def test_a_checkpoint_before_its_first_batch_has_no_state(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert "no batch yet" in refusal(tmp_path)


def test_a_checkpoint_of_another_store_names_it(checkpoint: Checkpoint) -> None:
    checkpoint.batch(3, provider=ROCKSDB)
    message = refusal(checkpoint.root)
    assert f"bound to {ROCKSDB}" in message
    assert "statestore" in message


def test_a_query_without_state_says_so(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path)
    made.histories.clear()
    made.batch(0)
    assert "holds no state" in refusal(tmp_path)


def test_a_store_that_is_not_there_points_to_the_list(checkpoint: Checkpoint) -> None:
    assert "`floe inspect" in refusal(checkpoint.root, "--partition", 9)


def test_a_version_that_is_not_there_says_which_are(checkpoint: Checkpoint) -> None:
    message = refusal(checkpoint.root, "--partition", 1, "--version", 9)
    assert "operator 0, partition 1, store default: version 9" in message
    assert "there are 1 to 3" in message


def test_several_stores_must_be_told_apart(checkpoint: Checkpoint) -> None:
    History(checkpoint.root / "state/1/0/left").commit(None)
    message = refusal(checkpoint.root, "--version", 1)
    assert "--operator 0 --store default, --operator 1 --store left" in message


def test_a_damaged_file_is_named_in_place_of_its_rows(checkpoint: Checkpoint) -> None:
    tip = checkpoint.tips[0]
    assert tip is not None
    path = checkpoint.root / "state/0/0" / paths.delta(tip.version, tip.id)
    path.write_bytes(path.read_bytes()[:-1])
    assert str(path) in refusal(checkpoint.root, "--partition", 0)
    listed = run(checkpoint.root)
    assert listed.exit_code == 1
    assert str(path) in listed.stderr
    assert "damaged" in listed.stdout.splitlines()[1]
    assert "1..3" in listed.stdout.splitlines()[2]


@pytest.mark.parametrize("name", ["state.csv", "state"])
def test_a_file_of_no_known_format_is_not_written(
    checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    assert ".parquet or .arrow" in refusal(checkpoint.root, "--export", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_place_that_cannot_be_written_is_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "state.parquet"
    assert str(path) in refusal(checkpoint.root, "--export", path)


def test_ids_of_other_stores_in_the_commit_log_are_passed_over(checkpoint: Checkpoint) -> None:
    ours = [str(tip.id) for tip in checkpoint.tips if tip]
    checkpoint.note_commit(2, [[str(UUID(int=999)), id] for id in ours])
    assert exported(checkpoint).num_rows == 8
