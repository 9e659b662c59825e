"""A stream without end whose rows are a function of their number.

Spark's `rate-micro-batch` source numbers rows and gives each batch a fixed count and a timestamp.
`stream` makes events of them with SQL, `batch` makes the same events in Python. So whatever a crash
test does to a query, the rows of every batch it has handled can be told afterwards, and the models
of `integration.queries.expected` say what must have come out.
"""

from pyspark.sql import DataFrame, SparkSession

from integration.queries.events import START_S, Event
from integration.queries.expected import expected_batches
from integration.queries.operators import Operator
from integration.queries.runner import Trial

ROWS_PER_BATCH = 300
SECONDS_PER_BATCH = 4
# Primes, so that keys, delays and batch sizes do not fall into step.
KEYS = 4001
_KEY_STEP = 7919
_DELAY_STEP = 31
_DELAYS_S = 37

_COLUMNS = (
    f"CAST(value * {_KEY_STEP} % {KEYS} AS INT) AS key",
    "CONCAT('n', value % 3) AS name",
    f"TIMESTAMP_SECONDS(UNIX_SECONDS(timestamp) - value * {_DELAY_STEP} % {_DELAYS_S}) AS at",
    "value",
)


def stream(spark: SparkSession) -> DataFrame:
    """The events as a streaming frame of `integration.queries.events.SCHEMA`."""
    source = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=ROWS_PER_BATCH,
        numPartitions=2,
        startTimestamp=START_S * 1000,
        advanceMillisPerBatch=SECONDS_PER_BATCH * 1000,
    )
    return source.load().selectExpr(*_COLUMNS)


def batch(number: int) -> list[Event]:
    """The events of one micro-batch."""
    first = number * ROWS_PER_BATCH
    return [_event(value, number) for value in range(first, first + ROWS_PER_BATCH)]


def _event(value: int, number: int) -> Event:
    delay_s = value * _DELAY_STEP % _DELAYS_S
    return Event(
        key=value * _KEY_STEP % KEYS,
        name=f"n{value % 3}",
        at_s=START_S + SECONDS_PER_BATCH * number - delay_s,
        value=value,
    )


def expected(operator: Operator, batches: int) -> dict[int, list[str]]:
    """The rows of the first `batches` batches of an operator on the endless stream."""
    inputs = [[batch(number) for number in range(batches)]]
    return expected_batches(operator, inputs, [batches], idle_batches=False)


def state_of_totals(trial: Trial, spark: SparkSession) -> list[str]:
    """What `keyed_update` keeps of every group, as text: (group, totals)."""
    (rows,) = trial.state(spark, columns=("key", "value")).values()
    return rows


def expected_totals(batches: int) -> list[str]:
    """What `keyed_update` must keep after the first `batches` batches."""
    groups: dict[tuple[int, str | None], tuple[int, int, int, int]] = {}
    for number in range(batches):
        for event in batch(number):
            group, value = (event.key, event.name), event.value
            n, total, low, high = groups.get(group, (0, 0, value, value))
            groups[group] = (n + 1, total + value, min(low, value), max(high, value))
    return sorted(repr(item) for item in groups.items())
