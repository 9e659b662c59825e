"""Runs an operator's query over its input, with restarts, and reads back what it left behind.

A `Trial` is one operator on one provider in one directory: the input, the checkpoint and the rows
of every batch. Each `run` is a new query on the same checkpoint that handles what input there is
(trigger availableNow, one file a batch) and ends. The sink is `foreachBatch`: it keeps the rows of
a batch under the batch's number, so a batch that is repeated after a restart replaces its rows and
every output mode is seen exactly as Spark emits it.

Rows are kept as text: `repr` of nested tuples. Text sorts although there are nulls in it, and
passes unchanged through JSON when part of a trial runs in another process.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from floe.session import PROVIDER_KEY
from integration.queries.events import SCHEMA, Batch, Feed
from integration.queries.operators import Operator
from integration.support import Provider, settings

_FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_INTERRUPTED = "interrupted on purpose"


class Interrupted(Exception):
    """Ends a query inside a batch: state is committed, the batch is not."""


@dataclass
class Trial:
    """One operator on one provider, from its input to its output and state."""

    operator: Operator
    provider: Provider
    directory: Path
    checkpoint_format: int = 1
    extra_settings: dict[str, str] = field(default_factory=dict)
    # Write parquet files here instead of collecting the rows of each batch.
    sink: Path | None = None
    batches: dict[int, list[str]] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def feed(self, inputs: Sequence[Sequence[Batch]], count: int) -> None:
        """Makes the first `count` batches of each source visible."""
        for number in range(self.operator.sources):
            Feed(self._input(number), inputs[number]).add_up_to(count)

    def run(self, spark: SparkSession, interrupt_in: int | None = None) -> None:
        """Handles all visible input; with `interrupt_in`, dies in the batch of that number."""

        def keep(rows: DataFrame, batch: int) -> None:
            self.keep(rows, batch)
            if batch == interrupt_in:
                raise Interrupted(_INTERRUPTED)

        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        streams = [reader.json(str(self._input(n))) for n in range(self.operator.sources)]
        query = self.start(spark, streams, keep, until_idle=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if interrupt_in is None or _INTERRUPTED not in str(error):
                raise
        else:
            assert interrupt_in is None, f"no batch {interrupt_in} to interrupt"
        finally:
            query.stop()

    def start(
        self,
        spark: SparkSession,
        streams: Sequence[DataFrame],
        keep: Callable[[DataFrame, int], None],
        until_idle: bool,
    ) -> StreamingQuery:
        """The query on the given streams; it ends when they are idle, or goes on for ever."""
        writer = self.operator.build(*streams).writeStream.outputMode(self.operator.mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if until_idle:
            writer = writer.trigger(availableNow=True)
        with settings(spark, self._settings()):
            if self.sink is not None:
                return writer.format("parquet").start(str(self.sink))
            return writer.foreachBatch(keep).start()

    def keep(self, rows: DataFrame, batch: int) -> None:
        """Takes the rows of a batch, as often as the operator asks for."""
        for _ in range(self.operator.actions):
            self.batches[batch] = as_text(rows.collect())

    def last_commit(self) -> int:
        """The last batch that Spark has noted as done, -1 before the first."""
        commits = (self.checkpoint / "commits").glob("*")
        return max((int(path.name) for path in commits if path.name.isdigit()), default=-1)

    def state(
        self, spark: SparkSession, batch: int | None = None, columns: Sequence[str] = ("*",)
    ) -> dict[str, list[str]]:
        """The rows of every store after `batch`, by default after the last committed one."""
        with settings(spark, self._settings()):
            return {
                ",".join(options.values()): as_text(
                    self._store(spark, dict(options), batch).selectExpr(*columns).collect()
                )
                for options in self.operator.stores
            }

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.batches))

    def load(self, path: Path) -> None:
        """Adds the batches that another process saved."""
        saved = json.loads(path.read_text())
        self.batches.update({int(batch): rows for batch, rows in saved.items()})

    def _settings(self) -> dict[str, str]:
        return {
            PROVIDER_KEY: self.provider.class_name,
            _FORMAT_KEY: str(self.checkpoint_format),
            **self.operator.settings,
            **self.extra_settings,
        }

    def _input(self, number: int) -> Path:
        return self.directory / f"input{number}"

    def _store(self, spark: SparkSession, options: dict[str, str], batch: int | None) -> DataFrame:
        if batch is not None:
            options["batchId"] = str(batch)
        rows = spark.read.format("statestore").options(**options).load(str(self.checkpoint))
        for column in self.operator.volatile:
            rows = rows.withColumn("value", rows["value"].dropFields(column))
        return rows


def as_text(rows: Sequence[Row]) -> list[str]:
    """Rows as sorted text: equal lists mean equal multisets of rows."""
    return sorted(repr(_plain(row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return tuple(_plain(item) for item in value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
