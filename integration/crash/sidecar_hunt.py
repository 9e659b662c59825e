"""Queries on an endless stream while something kills their sidecar.

`hunt` starts two queries, one that keeps every key for ever and a chain whose state expires, lets a
`Hunter` kill -9 the sidecar a number of times at random moments, stops the queries and compares
each batch and the lasting state with the models.

Floe opens its circuit when a sidecar dies three times in a row with no completed call in between:
then something is broken and tasks fail. The hunter keeps just below. It kills once at a random
moment, in one case of four a second time while the successor is starting or working, and then waits
until both queries have finished two more batches. The second of them began after the kill, and its
commits needed the new sidecar.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from integration.crash import endless
from integration.queries.operators import OPERATORS
from integration.queries.runner import Trial
from integration.support import Provider, jvm_pid, sidecar_pids

OPERATOR_NAMES = ("keyed_update", "distinct_into_windows")
_SECOND_KILL = 0.25
_LONGEST_PAUSE_S = 1.2
_DEADLINE_S = 90
_POLL_S = 0.03


def hunt(spark: SparkSession, directory: Path, kills: int, seed: int) -> list[int]:
    """Runs the queries under `kills` kills and checks them; the process ids of the victims."""
    trials = [Trial(OPERATORS[name], Provider.FLOE, directory / name) for name in OPERATOR_NAMES]
    queries = [_start(trial, spark) for trial in trials]
    try:
        hunter = Hunter(jvm_pid(spark), trials, queries, seed)
        victims = hunter.kill(kills)
    finally:
        for query in queries:
            query.stop()
    for trial in trials:
        check(trial, spark)
    return victims


def _start(trial: Trial, spark: SparkSession) -> StreamingQuery:
    return trial.start(spark, [endless.stream(spark)], trial.keep, until_idle=False)


def check(trial: Trial, spark: SparkSession) -> None:
    """Every batch that came out, and the lasting state, are those of the models."""
    expected = endless.expected(trial.operator, batches=max(trial.batches) + 1)
    for batch, rows in expected.items():
        assert trial.batches[batch] == rows, f"batch {batch} of {trial.operator.name}"
    if trial.operator.name == "keyed_update":
        committed = trial.last_commit() + 1
        assert endless.state_of_totals(trial, spark) == endless.expected_totals(committed)


class Hunter:
    """Kills the sidecar of a JVM while queries run in it."""

    def __init__(
        self, jvm: int, trials: Sequence[Trial], queries: Sequence[StreamingQuery], seed: int
    ) -> None:
        self._jvm = jvm
        self._trials = trials
        self._queries = queries
        self._chance = random.Random(seed)

    def kill(self, kills: int) -> list[int]:
        """Kills `kills` times; returns the victims in order."""
        victims: list[int] = []
        while len(victims) < kills:
            self._wait_for_two_batches()
            victims.append(self._kill_one())
            if len(victims) < kills and self._chance.random() < _SECOND_KILL:
                victims.append(self._kill_one())
        self._wait_for_two_batches()
        return victims

    def _kill_one(self) -> int:
        self._wait_for_a_sidecar()
        time.sleep(self._chance.uniform(0, _LONGEST_PAUSE_S))
        self._wait_for_a_sidecar()
        victim = sidecar_pids(self._jvm)[0]
        os.kill(victim, signal.SIGKILL)
        self._wait(lambda: victim not in sidecar_pids(self._jvm), f"the end of {victim}")
        return victim

    def _wait_for_a_sidecar(self) -> None:
        self._wait(lambda: bool(sidecar_pids(self._jvm)), "a sidecar")

    def _wait_for_two_batches(self) -> None:
        goals = [trial.last_commit() + 2 for trial in self._trials]

        def reached() -> bool:
            return all(
                trial.last_commit() >= goal for trial, goal in zip(self._trials, goals, strict=True)
            )

        self._wait(reached, "two more batches")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            time.sleep(_POLL_S)
            if not all(query.isActive for query in self._queries):
                self._raise_the_cause()
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {_DEADLINE_S} s for {what}")

    def _raise_the_cause(self) -> None:
        for query in self._queries:
            assert query.exception() is None, query.exception()
        raise AssertionError("a query ended by itself")
