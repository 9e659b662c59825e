"""Random input for streaming queries that is the same in every run.

A query reads JSON files from a directory, one file a micro-batch, oldest first. A `Feed` puts the
batches of a seed there a few at a time, so that a test chooses which batches a run of the query
sees. Batch b is the same rows in the same file order whatever the provider, which makes the
micro-batches, the watermark and so the output of two providers comparable batch by batch.

Event time moves on by BATCH_SPAN_S a batch, and rows arrive out of order around it. About one row
in ten is a straggler, late for the watermark used in `operators.py` or nearly so. Two rows of each
batch stand on the edges: one is its latest and leaves a watermark that ends a window exactly, the
other is as old as the watermark after which rows are late.
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
# Seconds behind the middle of a batch. A batch of 20 s with a watermark delay of 20 s drops rows
# from 50 s on: the watermark is two batches old, and the latest row is 10 s ahead.
_EDGES_BEHIND_S = (-10, 50)

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
    return [_batch(chance, number, rows) for number in range(count)]


def _batch(chance: random.Random, number: int, rows: int) -> list[Event]:
    behind_s = [_behind_s(chance) for _ in range(rows - len(_EDGES_BEHIND_S))]
    middle_s = START_S + BATCH_SPAN_S * number
    events = [_event(chance, middle_s - behind) for behind in (*_EDGES_BEHIND_S, *behind_s)]
    chance.shuffle(events)
    return events


def _behind_s(chance: random.Random) -> int:
    if chance.random() < _STRAGGLERS:
        return chance.randint(45, 120)
    return chance.randint(-8, 12)


def _event(chance: random.Random, at_s: int) -> Event:
    key = int(_KEYS * chance.random() ** 2)
    return Event(
        key=key,
        name=None if key == 0 else "n" * (key % 4) + str(key),
        at_s=at_s,
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
