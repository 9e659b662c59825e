"""The click stream of `floe run`: skewed, and the same in every run.

Clicks lie in parquet files, one a micro-batch. Users are drawn by Zipf's law, so that a few are in
every batch and most come rarely: the shape of state that Floe is made for. The query keeps for each
user the number of clicks, the time spent and the last click. Since the files stay, a batch query
over them says afterwards what the state has to be.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader

__all__ = ["differing_users", "read_clicks", "totals", "write_clicks"]

SCHEMA = "user long, page int, dwell_ms int, at timestamp"
_SEED = 20_240_229
_ZIPF_EXPONENT = 0.99
_START_S = 1_700_000_000
_PAGES = 500
_LONGEST_DWELL_MS = 60_000


def write_clicks(directory: Path, rows: int, users: int, batches: int) -> None:
    """`rows` clicks of up to `users` users in `batches` files, older files first."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(_SEED)
    shares = 1 / np.arange(1, users + 1) ** _ZIPF_EXPONENT
    ranks = np.cumsum(shares) / shares.sum()
    # The busiest users must not be neighbours: their numbers are shuffled.
    numbers = random.permutation(users)
    directory.mkdir(parents=True)
    for batch, count in enumerate(_sizes(rows, batches)):
        places = np.minimum(np.searchsorted(ranks, random.random(count)), users - 1)
        second = (_START_S + batch) * 1_000_000
        clicks = pa.table(
            {
                "user": numbers[places],
                "page": random.integers(_PAGES, size=count, dtype=np.int32),
                "dwell_ms": random.integers(_LONGEST_DWELL_MS, size=count, dtype=np.int32),
                "at": pa.array(
                    np.sort(random.integers(second, second + 1_000_000, size=count)),
                    type=pa.timestamp("us", tz="UTC"),
                ),
            }
        )
        path = directory / f"{batch:05d}.parquet"
        pq.write_table(clicks, path)
        # The file source goes by modification time, whose resolution may be coarse.
        os.utime(path, (_START_S + batch, _START_S + batch))


def _sizes(rows: int, batches: int) -> list[int]:
    return [rows // batches + (batch < rows % batches) for batch in range(batches)]


def read_clicks(spark: SparkSession, directory: Path) -> DataFrame:
    """The clicks as a stream, one file a batch."""
    reader: DataStreamReader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


def totals(clicks: DataFrame) -> DataFrame:
    """The query: what is known of each user. Works on a stream and on a table alike."""
    from pyspark.sql import functions

    return clicks.groupBy("user").agg(
        functions.count("*").alias("clicks"),
        functions.sum("dwell_ms").alias("dwell_ms"),
        functions.max("at").alias("last_at"),
    )


def differing_users(spark: SparkSession, directory: Path, checkpoint: Path) -> int:
    """How many users have another state in the checkpoint than the clicks say; 0 is right."""
    state = spark.read.format("statestore").load(str(checkpoint)).select("key.*", "value.*")
    expected = totals(spark.read.schema(SCHEMA).parquet(str(directory)))
    missing = expected.exceptAll(state).select("user")
    surplus = state.exceptAll(expected).select("user")
    return missing.union(surplus).distinct().count()
