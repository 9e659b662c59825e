"""Random input for streaming queries that is the same in every run.

A query reads JSON files from a directory, one file a micro-batch, oldest first. A `Feed` puts the
batches of a seed there a few at a time, so that a test chooses which batches a run of the query
sees. Batch b is the same rows in the same file order whatever the provider, which makes the
micro-batches, the watermark and so the output of two providers comparable batch by batch.

Event time moves on by BATCH_SPAN_S a batch, and rows arrive out of order around it. About one row
in ten is a straggler, far enough behind to be late for every watermark used in `operators.py`.
"""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

START_S = 1_700_000_000
BATCH_SPAN_S = 20
_KEYS = 40
_STRAGGLERS = 0.1

SCHEMA = StructType(
    [
        StructField("key", IntegerType()),
        StructField("name", StringType()),
        StructField("at", TimestampType()),
        StructField("value", LongType()),
    ]
)


@dataclass(frozen=True, slots=True)
class Event:
    """One input row; `at_s` is its event time in seconds since 1970."""

    key: int
    name: str | None
    at_s: int
    value: int

    def to_json(self) -> str:
        at = datetime.fromtimestamp(self.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return json.dumps({"key": self.key, "name": self.name, "at": at, "value": self.value})


Batch = Sequence[Event]


def random_batches(seed: int, count: int, rows: int) -> list[list[Event]]:
    """`count` batches of `rows` events: skewed keys, names that are sometimes null."""
    chance = random.Random(seed)
    return [[_event(chance, b) for _ in range(rows)] for b in range(count)]


def _event(chance: random.Random, batch: int) -> Event:
    behind = chance.uniform(60, 120) if chance.random() < _STRAGGLERS else chance.uniform(-8, 12)
    key = int(_KEYS * chance.random() ** 2)
    return Event(
        key=key,
        name=None if key == 0 else "n" * (key % 4) + str(key),
        at_s=START_S + BATCH_SPAN_S * batch - int(behind),
        value=chance.randrange(-1000, 1000),
    )


class Feed:
    """Puts batches into a directory, in order, each as one file.

    Spark's file source orders files by modification time, which is therefore set by hand: one
    second apart, so that no clock resolution mixes them up.
    """

    def __init__(self, directory: Path, batches: Sequence[Batch]) -> None:
        self._directory = directory
        self._batches = batches
        directory.mkdir(parents=True, exist_ok=True)

    def add_up_to(self, count: int) -> None:
        """Makes the first `count` batches visible; those already there stay as they are."""
        for number in range(count):
            path = self._directory / f"{number:05d}.json"
            if not path.exists():
                self._publish(path, number)

    def _publish(self, path: Path, number: int) -> None:
        hidden = path.with_name(f"_{path.name}")
        hidden.write_text("".join(e.to_json() + "\n" for e in self._batches[number]))
        os.utime(hidden, (START_S + number, START_S + number))
        hidden.rename(path)
