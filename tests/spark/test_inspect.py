"""`floe inspect` on checkpoints of real queries, against Spark's own `statestore` source."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from floe.cli import app
from integration.queries.events import random_batches
from integration.queries.operators import OPERATORS
from integration.queries.runner import Trial
from integration.support import Provider, settings

pytestmark = pytest.mark.spark

BATCHES = 4
INPUTS = [random_batches(seed, count=BATCHES, rows=40) for seed in (21, 22)]
FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
# Columns that Floe leaves as bytes: Spark shows lists, or structs inside of structs.
OPAQUE = {"keyed_lists": ["value_buf"]}


def finished(spark: SparkSession, tmp_path: Path, name: str, checkpoint_format: int = 1) -> Trial:
    trial = Trial(OPERATORS[name], Provider.FLOE, tmp_path, checkpoint_format)
    trial.feed(INPUTS, BATCHES)
    trial.run(spark)
    return trial


def inspected(trial: Trial, options: Mapping[str, str], version: int) -> pa.Table:
    path = trial.directory / "state.parquet"
    arguments = ["inspect", str(trial.checkpoint), "--version", str(version), "--export", str(path)]
    arguments += ["--operator", options["operatorId"]]
    if "storeName" in options:
        arguments += ["--store", options["storeName"]]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return pyarrow.parquet.read_table(path)


def read_by_spark(
    spark: SparkSession, trial: Trial, options: Mapping[str, str], version: int
) -> list[dict[str, Any]]:
    with settings(spark, {FORMAT_KEY: str(trial.checkpoint_format)}):
        reader = spark.read.format("statestore").options(**options)
        rows = reader.option("batchId", version - 1).load(str(trial.checkpoint)).collect()
    return [
        {"partition_id": row.partition_id, **flat("key", row.key), **flat("value", row.value)}
        for row in rows
    ]


def flat(prefix: str, row: Row, nested: bool = True) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in row.asDict().items():
        if nested and isinstance(value, Row):
            cells |= flat(f"{prefix}_{name}", value, nested=False)
        else:
            cells[f"{prefix}_{name}"] = value
    return cells


def comparable(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> list[str]:
    return sorted(repr([_plain(row[name]) for name in columns]) for row in rows)


def _plain(value: Any) -> Any:
    """Spark's timestamps come without a zone, in the zone of this machine."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return value


@pytest.mark.parametrize(
    "name",
    ["keyed_update", "window_update", "keyed_lists", "distinct_within_watermark", "join_inner"],
)
def test_the_state_is_what_spark_reads(name: str, spark: SparkSession, tmp_path: Path) -> None:
    trial = finished(spark, tmp_path, name)
    last = trial.last_commit() + 1
    assert last >= BATCHES
    for options in trial.operator.stores:
        for version in (1, last - 1, last):
            theirs = read_by_spark(spark, trial, options, version)
            ours = inspected(trial, options, version)
            columns = [c for c in ours.column_names if c not in OPAQUE.get(name, [])]
            if theirs:
                assert set(theirs[0]) == set(ours.column_names)
            assert comparable(ours.to_pylist(), columns) == comparable(theirs, columns)


def test_a_version_that_was_committed_twice_is_the_one_that_spark_means(
    spark: SparkSession, tmp_path: Path
) -> None:
    trial = finished(spark, tmp_path, "two_actions", checkpoint_format=2)
    (options,) = trial.operator.stores
    for version in range(1, trial.last_commit() + 2):
        theirs = read_by_spark(spark, trial, options, version)
        ours = inspected(trial, options, version)
        assert comparable(ours.to_pylist(), ours.column_names) == comparable(
            theirs, ours.column_names
        )


def test_the_list_counts_rows_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    trial = finished(spark, tmp_path, "keyed_update")
    last = trial.last_commit() + 1
    result = CliRunner().invoke(app, ["inspect", str(trial.checkpoint)])
    assert result.exit_code == 0, result.output
    theirs = read_by_spark(spark, trial, {"operatorId": "0"}, last)
    for partition in (0, 1):
        cells = result.output.splitlines()[1 + partition].split()
        assert cells[:4] == ["0", str(partition), "default", f"1..{last}"]
        assert int(cells[6]) == sum(row["partition_id"] == partition for row in theirs)


def test_stores_of_a_join_are_listed_and_one_must_be_chosen(
    spark: SparkSession, tmp_path: Path
) -> None:
    trial = finished(spark, tmp_path, "join_inner")
    listed = CliRunner().invoke(app, ["inspect", str(trial.checkpoint)])
    for options in trial.operator.stores:
        assert listed.output.count(options["storeName"]) == 2
    vague = CliRunner().invoke(app, ["inspect", str(trial.checkpoint), "--operator", "0"])
    assert vague.exit_code == 1
    assert "--store left-keyToNumValues" in vague.stderr


def test_a_checkpoint_of_another_store_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    trial = Trial(OPERATORS["keyed_update"], Provider.MEMORY, tmp_path)
    trial.feed(INPUTS, 1)
    trial.run(spark)
    result = CliRunner().invoke(app, ["inspect", str(trial.checkpoint)])
    assert result.exit_code == 1
    assert Provider.MEMORY.class_name in result.stderr
