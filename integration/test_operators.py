"""Every stateful operator on every provider: equal output in every batch, equal state.

A trial sees its input in three portions. The second one is interrupted inside a batch: its state
is committed, the batch is not, and the next run repeats it. So each trial restarts three times and
commits one version twice. Two trials with one seed must then hold the same rows in every batch and
the same rows in every state store, at the end and half-way.

Spark's two stores are each other's reference, and Floe's. Choose providers with FLOE_PROVIDERS or
`-k`, other input with FLOE_SEED.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from integration.queries.driver import run_elsewhere
from integration.queries.events import random_batches
from integration.queries.operators import OPERATORS, Operator
from integration.queries.runner import Trial, as_text
from integration.support import Provider, chosen_providers

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("FLOE_SEED", "1"))
PORTIONS = (3, 6, 8)
INPUTS = [random_batches(seed, count=PORTIONS[-1], rows=60) for seed in (SEED, SEED + 1)]

# One operator for each way of using a store: point access, scans, prefixes, timeouts, four stores
# in one task, two operators, a version committed twice in every batch.
SUBSET = (
    "window_append",
    "session_append",
    "distinct_within_watermark",
    "pandas_event_time",
    "join_left_outer",
    "windows_of_windows",
    "two_actions",
)
FILE_SINK_SUBSET = ("window_append", "distinct_event_time", "join_full_outer")
CHANGE_FEED_SUBSET = ("keyed_update", "distinct_forever", "pandas_no_timeout")
JOINS = ("join_inner", "join_left_outer", "join_full_outer", "join_left_semi")
JOIN_FORMAT_KEY = "spark.sql.streaming.join.stateFormatVersion"
JOIN_SIDES = tuple({"operatorId": "0", "joinSide": side} for side in ("left", "right"))


@dataclass
class Outcome:
    """A trial that has run, and the state it left."""

    trial: Trial
    spark: SparkSession

    @property
    def batches(self) -> dict[int, list[str]]:
        return self.trial.batches

    @cached_property
    def state(self) -> dict[str, list[str]]:
        return self.trial.state(self.spark)

    @cached_property
    def earlier_state(self) -> dict[str, list[str]]:
        return self.trial.state(self.spark, batch=max(self.batches) // 2)


class Laboratory:
    """Runs each trial once, however many tests ask for it."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self._directory = directory
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}

    def outcome(
        self,
        operator: Operator,
        provider: Provider,
        checkpoint_format: int = 1,
        join_format: int = 2,
    ) -> Outcome:
        name = (operator.name, provider, checkpoint_format, join_format)
        if name not in self._outcomes:
            directory = self._directory / "-".join(map(str, name))
            extra = {JOIN_FORMAT_KEY: str(join_format)}
            trial = Trial(operator, provider, directory, checkpoint_format, extra)
            self._run(trial)
            self._outcomes[name] = Outcome(trial, self.spark)
        return self._outcomes[name]

    def _run(self, trial: Trial) -> None:
        first, second, third = PORTIONS
        trial.feed(INPUTS, first)
        trial.run(self.spark)
        trial.feed(INPUTS, second)
        trial.run(self.spark, interrupt_in=max(trial.batches) + 2)
        trial.run(self.spark)
        trial.feed(INPUTS, third)
        trial.run(self.spark)


@pytest.fixture(scope="module")
def laboratory(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(spark, tmp_path_factory.mktemp("trials"))


def reference_for(operator: Operator, provider: Provider) -> Provider | None:
    """The store of Spark to compare with; none if only the provider itself runs the operator."""
    candidates = [Provider.ROCKSDB, Provider.MEMORY]
    usable = [c for c in candidates if c is not provider and c not in operator.fails_on]
    return usable[0] if usable and provider not in operator.fails_on else None


def comparisons() -> Iterator[Any]:
    for operator in OPERATORS.values():
        for provider in chosen_providers():
            reference = reference_for(operator, provider)
            if reference is not None:
                yield pytest.param(operator, provider, reference, id=f"{operator.name}-{provider}")


class FormatNotGranted(Exception):
    """Spark has run a query with an older state format than it was asked for."""


def with_each(
    names: tuple[str, ...],
    *providers: Provider,
    missing_in_floe: pytest.MarkDecorator | None = None,
) -> pytest.MarkDecorator:
    """Parametrises `operator` and `provider` over a subset of both.

    `missing_in_floe` marks Floe's cases as expected to fail until it can do what the test asks.
    """

    def marks(provider: Provider) -> list[pytest.MarkDecorator]:
        return [missing_in_floe] if missing_in_floe and provider is Provider.FLOE else []

    cases = [
        pytest.param(OPERATORS[name], provider, id=f"{name}-{provider}", marks=marks(provider))
        for name in names
        for provider in chosen_providers()
        if provider in providers
    ]
    return pytest.mark.parametrize(("operator", "provider"), cases)


@pytest.mark.parametrize(("operator", "provider", "reference"), list(comparisons()))
def test_output_and_state_equal_those_of_another_provider(
    operator: Operator, provider: Provider, reference: Provider, laboratory: Laboratory
) -> None:
    ours = laboratory.outcome(operator, provider)
    theirs = laboratory.outcome(operator, reference)
    assert ours.batches == theirs.batches
    assert ours.state == theirs.state
    assert ours.earlier_state == theirs.earlier_state


@with_each(SUBSET, Provider.FLOE, Provider.ROCKSDB)
def test_checkpoint_format_two_changes_no_row(
    operator: Operator, provider: Provider, laboratory: Laboratory
) -> None:
    ours = laboratory.outcome(operator, provider, checkpoint_format=2)
    theirs = laboratory.outcome(operator, Provider.ROCKSDB)
    assert ours.batches == theirs.batches
    assert ours.state == theirs.state
    assert ours.earlier_state == theirs.earlier_state


@pytest.mark.parametrize("join_format", [3, 4])
@with_each(JOINS, Provider.FLOE, Provider.ROCKSDB)
def test_newer_join_formats_change_no_row(
    operator: Operator, provider: Provider, join_format: int, laboratory: Laboratory
) -> None:
    ours = laboratory.outcome(operator, provider, join_format=join_format)
    assert ours.batches == laboratory.outcome(operator, Provider.MEMORY).batches


@pytest.mark.parametrize("join_format", [3, 4])
@with_each(
    JOINS,
    Provider.FLOE,
    Provider.ROCKSDB,
    missing_in_floe=pytest.mark.xfail(
        raises=FormatNotGranted,
        strict=True,
        reason="Spark grants join formats 3 and 4 only to subclasses of its RocksDB provider",
    ),
)
def test_newer_join_formats_are_granted_and_hold_equal_state(
    operator: Operator, provider: Provider, join_format: int, laboratory: Laboratory
) -> None:
    ours = laboratory.outcome(operator, provider, join_format=join_format).trial
    if pinned_join_format(ours) != join_format:
        raise FormatNotGranted
    theirs = laboratory.outcome(operator, Provider.ROCKSDB, join_format=join_format).trial
    by_side = replace(operator, stores=JOIN_SIDES)
    ours, theirs = (replace(trial, operator=by_side) for trial in (ours, theirs))
    assert ours.state(laboratory.spark) == theirs.state(laboratory.spark)


def pinned_join_format(trial: Trial) -> int:
    """Spark falls back to format 2 without an error; the offset log says what was used."""
    metadata = (trial.checkpoint / "offsets" / "0").read_text().splitlines()[1]
    return int(json.loads(metadata)["conf"][JOIN_FORMAT_KEY])


@pytest.mark.parametrize("provider", chosen_providers())
def test_another_process_continues_where_this_one_stopped(
    provider: Provider, spark: SparkSession, laboratory: Laboratory, tmp_path: Path
) -> None:
    trials = [Trial(OPERATORS[name], provider, tmp_path / name) for name in SUBSET]
    first, second, third = PORTIONS
    for trial in trials:
        trial.feed(INPUTS, first)
        trial.run(spark)
        trial.feed(INPUTS, second)
    run_elsewhere(trials, tmp_path)
    for trial in trials:
        trial.feed(INPUTS, third)
        trial.run(spark)
        expected = laboratory.outcome(trial.operator, Provider.ROCKSDB)
        assert trial.batches == expected.batches, trial.operator.name
        assert trial.state(spark) == expected.state, trial.operator.name


@with_each(FILE_SINK_SUBSET, *Provider)
def test_file_sink_holds_every_row_once(
    operator: Operator,
    provider: Provider,
    spark: SparkSession,
    laboratory: Laboratory,
    tmp_path: Path,
) -> None:
    trial = Trial(operator, provider, tmp_path, sink=tmp_path / "sink")
    for visible in PORTIONS:
        trial.feed(INPUTS, visible)
        trial.run(spark)
    expected = laboratory.outcome(operator, Provider.ROCKSDB)
    written = as_text(spark.read.parquet(str(tmp_path / "sink")).collect())
    assert written == sorted(row for rows in expected.batches.values() for row in rows)
    assert trial.state(spark) == expected.state


@with_each(
    CHANGE_FEED_SUBSET,
    Provider.FLOE,
    missing_in_floe=pytest.mark.xfail(
        raises=UnsupportedOperationException,
        strict=True,
        reason="Floe does not implement SupportsFineGrainedReplay",
    ),
)
def test_change_feed_equals_that_of_the_memory_provider(
    operator: Operator, provider: Provider, laboratory: Laboratory
) -> None:
    """Operators that write each key at most once a batch, so that every change is a net change."""
    feed = {"readChangeFeed": "true", "changeStartBatchId": "0"}
    changes = replace(operator, stores=tuple({**store, **feed} for store in operator.stores))
    ours, theirs = (
        replace(laboratory.outcome(operator, each).trial, operator=changes)
        for each in (provider, Provider.MEMORY)
    )
    assert ours.state(laboratory.spark) == theirs.state(laboratory.spark)
