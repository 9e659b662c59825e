"""`floe doctor`: the machine's rows, and what it reads from a checkpoint."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from floe.cli import app
from floe.cli.checkpoint_checks import checkpoint_rows
from floe.cli.machine_checks import disk_row, java_row, machine_rows, memory_row, shared_memory_row
from floe.cli.rows import Row, Verdict
from floe.session import PROVIDER_CLASS, PROVIDER_KEY
from floe.settings import GIB

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "metadata").write_text('{"id":"1"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    return tmp_path


def add_batch(
    checkpoint: Path,
    number: int,
    provider: str = PROVIDER_CLASS,
    partitions: int = 3,
    offset: int = 0,
    committed: bool = True,
) -> None:
    conf = {
        PROVIDER_KEY: provider,
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.aggregation.stateFormatVersion": "2",
        "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    }
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf}
    entry = f'v1\n{json.dumps(metadata)}\n{{"logOffset":{offset}}}'
    (checkpoint / "offsets" / str(number)).write_text(entry)
    (checkpoint / "offsets" / f".{number}.crc").write_bytes(b"crc")
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def rows_by_subject(location: Path | str) -> dict[str, Row]:
    return {row.subject: row for row in checkpoint_rows(str(location))}


def test_this_machine_can_run_floe() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "✓ Java" in result.output
    assert "✓ pyspark        4.3.0" in result.output


def test_every_row_that_is_not_good_says_what_to_do() -> None:
    for row in machine_rows(memory_bytes=None, heap_bytes=10_000 * GIB):
        assert bool(row.remedy) == (row.verdict is not Verdict.GOOD), row


def test_a_budget_that_cannot_fit_makes_the_exit_code_1() -> None:
    result = CliRunner().invoke(app, ["doctor", "--memory", "8g", "--heap", "10000g"])
    assert result.exit_code == 1
    assert "✗ memory" in result.output
    assert "does not fit" in result.output


def test_a_heap_without_room_is_a_caveat_under_auto() -> None:
    assert memory_row(None, 10_000 * GIB).verdict is Verdict.CAREFUL


def test_a_heap_that_is_no_size_is_refused() -> None:
    result = CliRunner().invoke(app, ["doctor", "--heap", "big"])
    assert result.exit_code == 1
    assert "--heap is 'big'" in result.stderr


def test_linux_shares_memory() -> None:
    assert shared_memory_row().verdict is Verdict.GOOD


def test_a_java_home_without_java_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    row = java_row()
    assert row.verdict is Verdict.BROKEN
    assert str(tmp_path) in row.finding
    assert "JAVA_HOME" in row.remedy


def test_an_old_java_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    row = java_row()
    assert row.verdict is Verdict.BROKEN
    assert row.finding.startswith("8.0_402")


def test_a_local_directory_that_is_not_there_is_broken(tmp_path: Path) -> None:
    assert disk_row(tmp_path).verdict is not Verdict.BROKEN
    assert disk_row(tmp_path / "absent").verdict is Verdict.BROKEN


def test_a_checkpoint_of_floe_is_good(checkpoint: Path) -> None:
    add_batch(checkpoint, 0)
    add_batch(checkpoint, 1, offset=1)
    rows = rows_by_subject(checkpoint)
    assert {row.verdict for row in rows.values()} == {Verdict.GOOD}
    assert "bound to Floe" in rows["store"].finding
    assert "aggregation 2, encoding unsaferow" in rows["state formats"].finding
    assert rows["partitions"].finding.startswith("3;")


def test_a_checkpoint_of_another_store_is_named_with_the_way_out(checkpoint: Path) -> None:
    add_batch(checkpoint, 0, provider=ROCKSDB)
    row = rows_by_subject(checkpoint)["store"]
    assert row.verdict is Verdict.CAREFUL
    assert ROCKSDB in row.finding
    assert "new checkpointLocation" in row.remedy


def test_batches_are_ordered_as_numbers(checkpoint: Path) -> None:
    for number in (9, 10):
        add_batch(checkpoint, number, partitions=number)
    assert rows_by_subject(checkpoint)["partitions"].finding.startswith("10;")


def test_a_failed_repartition_is_found_with_the_file_to_delete(checkpoint: Path) -> None:
    add_batch(checkpoint, 0)
    add_batch(checkpoint, 1, partitions=5, committed=False)
    row = rows_by_subject(checkpoint)["repartition"]
    assert row.verdict is Verdict.BROKEN
    assert "from 3 to 5" in row.finding
    assert str(checkpoint / "offsets" / "1") in row.remedy


def test_a_batch_that_is_merely_unfinished_is_no_repartition(checkpoint: Path) -> None:
    add_batch(checkpoint, 0)
    add_batch(checkpoint, 1, offset=1, committed=False)
    assert "repartition" not in rows_by_subject(checkpoint)


def test_an_entry_that_reads_input_is_never_offered_for_deletion(checkpoint: Path) -> None:
    add_batch(checkpoint, 0)
    add_batch(checkpoint, 1, partitions=5, offset=1, committed=False)
    assert "repartition" not in rows_by_subject(checkpoint)


def test_a_checkpoint_before_its_first_batch_is_good(checkpoint: Path) -> None:
    row = rows_by_subject(checkpoint)["checkpoint"]
    assert row.verdict is Verdict.GOOD
    assert "no batch yet" in row.finding


def test_a_file_uri_is_a_path(checkpoint: Path) -> None:
    add_batch(checkpoint, 0)
    assert "store" in rows_by_subject(f"file://{checkpoint}")
    assert "store" in rows_by_subject(f"file:{checkpoint}")


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoint", "hdfs://host/checkpoint"])
def test_a_remote_checkpoint_says_how_to_look_at_it(location: str) -> None:
    row = rows_by_subject(location)["checkpoint"]
    assert row.verdict is Verdict.BROKEN
    assert "Copy" in row.remedy


def test_a_directory_that_is_no_checkpoint_is_broken(tmp_path: Path) -> None:
    assert rows_by_subject(tmp_path)["checkpoint"].verdict is Verdict.BROKEN
    assert rows_by_subject(tmp_path / "absent")["checkpoint"].verdict is Verdict.BROKEN


@pytest.mark.parametrize("content", ["", "v1\n", "v1\nno json\n", "garbage\n{}\n"])
def test_a_damaged_entry_is_named(checkpoint: Path, content: str) -> None:
    (checkpoint / "offsets" / "0").write_text(content)
    row = rows_by_subject(checkpoint)["checkpoint"]
    assert row.verdict is Verdict.BROKEN
    assert "offsets" in row.finding
