"""Every stateful operator of Structured Streaming as a small query.

`OPERATORS` is the catalogue. An operator says how its query is built from its input streams, in
which output mode it runs, and how its state is read back with Spark's `statestore` source. It
knows no provider: the same definition runs on Floe and on the two stores that Spark brings.

Times: stragglers are 60 s or more behind (see `events.py`), the watermark delay is DELAY_S, windows
are WINDOW_S long. So every query drops late rows, emits windows and evicts state within a few
batches.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user reads
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from integration.support import Provider

if TYPE_CHECKING:
    Frames = Iterator[Any]  # of pandas.DataFrame, which has no type information

DELAY_S = 20
WINDOW_S = 10
LONG_WINDOW_S = 40
SESSION_GAP_S = 4
JOIN_AFTER_S = 6
LIMIT_ROWS = 100
IDLE_S = 10

DELAY = f"{DELAY_S} seconds"
WINDOW = f"{WINDOW_S} seconds"

Mode = Literal["append", "update", "complete"]
Build = Callable[..., DataFrame]
# The options that name one state store to Spark's `statestore` source.
StoreOptions = Mapping[str, str]

_ONE_STORE: tuple[StoreOptions, ...] = ({"operatorId": "0"},)
_TWO_OPERATORS: tuple[StoreOptions, ...] = ({"operatorId": "0"}, {"operatorId": "1"})
_JOIN_STORES: tuple[StoreOptions, ...] = tuple(
    {"operatorId": "0", "storeName": f"{side}-{store}"}
    for side in ("left", "right")
    for store in ("keyToNumValues", "keyWithIndexToValue")
)


@dataclass(frozen=True)
class Operator:
    """One query: how it is built, run and inspected."""

    name: str
    mode: Mode
    build: Build
    sources: int = 1
    stores: tuple[StoreOptions, ...] = _ONE_STORE
    settings: Mapping[str, str] = field(default_factory=dict)
    # How often the sink evaluates each batch. Twice makes every store commit a version twice.
    actions: int = 1
    # State columns that hold wall-clock time and so differ between runs.
    volatile: tuple[str, ...] = ()
    # Providers of Spark on which the query is known to fail.
    fails_on: frozenset[Provider] = frozenset()


def _watermarked(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", DELAY)


# ---- aggregation -------------------------------------------------------------------------------


def _windowed(events: DataFrame) -> DataFrame:
    groups = _watermarked(events).groupBy(F.window("at", WINDOW), "name")
    return groups.agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def _keyed(events: DataFrame) -> DataFrame:
    groups = events.groupBy("key", "name")
    return groups.agg(
        F.count("*").alias("n"),
        F.sum("value").alias("total"),
        F.min("value").alias("low"),
        F.max("value").alias("high"),
    )


def _keyed_lists(events: DataFrame) -> DataFrame:
    """State values that grow with every batch."""
    groups = events.groupBy("key")
    return groups.agg(F.array_sort(F.collect_list("value")).alias("seen"))


def _sessions(events: DataFrame) -> DataFrame:
    gap = F.session_window("at", f"{SESSION_GAP_S} seconds")
    groups = _watermarked(events).groupBy(gap, "key")
    return groups.agg(F.count("*").alias("n"), F.sum("value").alias("total"))


# ---- deduplication and limit -------------------------------------------------------------------


def _distinct_by_event_time(events: DataFrame) -> DataFrame:
    return _watermarked(events).select("key", "at").dropDuplicates(["key", "at"])


def _distinct_names(events: DataFrame) -> DataFrame:
    return events.select("name").dropDuplicates(["name"])


def _distinct_within_watermark(events: DataFrame) -> DataFrame:
    return _watermarked(events).dropDuplicatesWithinWatermark(["key"]).select("key", "at")


def _limited(events: DataFrame) -> DataFrame:
    return events.limit(LIMIT_ROWS)


# ---- arbitrary state ---------------------------------------------------------------------------
# The functions are nested so that cloudpickle sends them by value: Python workers need not be able
# to import this module.

_STATEFUL_OUTPUT = "key int, n long, total long, closed boolean"
_STATEFUL_STATE = "n long, total long"


def _running_totals(events: DataFrame) -> DataFrame:
    def update(key: Any, frames: "Frames", state: GroupState) -> "Frames":
        import pandas

        n, total = state.getOption or (0, 0)
        for frame in frames:
            n, total = n + len(frame), total + int(frame["value"].sum())
        state.update((n, total))
        yield pandas.DataFrame({"key": [key[0]], "n": [n], "total": [total], "closed": [False]})

    return _with_state(events, update, GroupStateTimeout.NoTimeout)


def _idle_totals(events: DataFrame) -> DataFrame:
    """Totals of a key until it is idle in event time for IDLE_S; then they are closed."""
    idle_ms = IDLE_S * 1000

    def update(key: Any, frames: "Frames", state: GroupState) -> "Frames":
        import pandas

        n, total = state.getOption or (0, 0)
        closed = state.hasTimedOut
        if closed:
            state.remove()
        else:
            latest_ms = 0
            for frame in frames:
                n, total = n + len(frame), total + int(frame["value"].sum())
                latest_ms = max(latest_ms, int(frame["at"].max().timestamp() * 1000))
            state.update((n, total))
            watermark_ms = state.getCurrentWatermarkMs()
            state.setTimeoutTimestamp(max(latest_ms, watermark_ms) + idle_ms)
        yield pandas.DataFrame({"key": [key[0]], "n": [n], "total": [total], "closed": [closed]})

    return _with_state(_watermarked(events), update, GroupStateTimeout.EventTimeTimeout)


def _brief_totals(events: DataFrame) -> DataFrame:
    """Totals of a key until a batch comes without it.

    The timeout of one millisecond of wall-clock time has always passed when the next batch starts,
    so that the output does not depend on the speed of the machine.
    """

    def update(key: Any, frames: "Frames", state: GroupState) -> "Frames":
        import pandas

        n, total = state.getOption or (0, 0)
        closed = state.hasTimedOut
        if closed:
            state.remove()
        else:
            for frame in frames:
                n, total = n + len(frame), total + int(frame["value"].sum())
            state.update((n, total))
            state.setTimeoutDuration(1)
        yield pandas.DataFrame({"key": [key[0]], "n": [n], "total": [total], "closed": [closed]})

    return _with_state(events, update, GroupStateTimeout.ProcessingTimeTimeout)


def _with_state(events: DataFrame, update: Callable[..., Any], timeout: str) -> DataFrame:
    groups = events.groupBy("key")
    return groups.applyInPandasWithState(
        update, _STATEFUL_OUTPUT, _STATEFUL_STATE, "update", timeout
    )


# ---- stream-stream joins -----------------------------------------------------------------------


def _join(how: str) -> Build:
    """Each left row with the right rows of its key in the JOIN_AFTER_S seconds after it."""

    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        ours = left.selectExpr("key", "at", "value").withWatermark("at", DELAY)
        theirs = right.selectExpr("key AS key2", "at AS at2", "value AS value2")
        theirs = theirs.withWatermark("at2", DELAY)
        near = f"key = key2 AND at2 BETWEEN at AND at + INTERVAL {JOIN_AFTER_S} SECONDS"
        return ours.join(theirs, F.expr(near), how)

    return build


def _join_on_event_time(left: DataFrame, right: DataFrame) -> DataFrame:
    """The watermark is on the join key, so that state is evicted by key and not by value."""
    ours = _watermarked(left).select("at", "value")
    theirs = _watermarked(right).select("at", F.col("value").alias("value2"))
    return ours.join(theirs, "at")


# ---- chains ------------------------------------------------------------------------------------


def _windows_of_windows(events: DataFrame) -> DataFrame:
    longer = F.window(F.window_time("window"), f"{LONG_WINDOW_S} seconds")
    groups = _windowed(events).groupBy(longer)
    return groups.agg(F.count("*").alias("groups"), F.sum("n").alias("n"))


def _distinct_into_windows(events: DataFrame) -> DataFrame:
    groups = _distinct_by_event_time(events).groupBy(F.window("at", WINDOW))
    return groups.agg(F.count("*").alias("n"))


def _join_into_windows(left: DataFrame, right: DataFrame) -> DataFrame:
    groups = _join("inner")(left, right).groupBy(F.window("at", WINDOW))
    return groups.agg(F.count("*").alias("n"))


def _windows_into_distinct(events: DataFrame) -> DataFrame:
    """Both operators partition by the same keys, so that they share a task."""
    return _windowed(events).dropDuplicates(["window", "name"])


def _catalogue() -> Iterator[Operator]:
    for mode in ("append", "update", "complete"):
        yield Operator(f"window_{mode}", mode, _windowed)
    yield Operator("keyed_update", "update", _keyed)
    yield Operator("keyed_complete", "complete", _keyed)
    yield Operator("keyed_lists", "update", _keyed_lists)
    streamline = {"spark.sql.streaming.useStreamlineAggregator": "true"}
    yield Operator("window_streamline", "append", _windowed, settings=streamline)
    yield Operator("session_append", "append", _sessions)
    yield Operator("session_complete", "complete", _sessions)
    yield Operator("distinct_event_time", "append", _distinct_by_event_time)
    yield Operator("distinct_forever", "append", _distinct_names)
    yield Operator("distinct_within_watermark", "append", _distinct_within_watermark)
    yield Operator("limit", "append", _limited)
    yield Operator("pandas_no_timeout", "update", _running_totals)
    yield Operator("pandas_event_time", "update", _idle_totals)
    # Processing-time timeouts ask for a batch without data for ever; availableNow would not end.
    no_idle_batches = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    yield Operator(
        "pandas_processing_time",
        "update",
        _brief_totals,
        settings=no_idle_batches,
        volatile=("timeoutTimestamp",),
    )
    for how in ("inner", "left_outer", "full_outer", "left_semi"):
        yield Operator(f"join_{how}", "append", _join(how), sources=2, stores=_JOIN_STORES)
    yield Operator(
        "join_on_event_time", "append", _join_on_event_time, sources=2, stores=_JOIN_STORES
    )
    yield Operator("windows_of_windows", "append", _windows_of_windows, stores=_TWO_OPERATORS)
    yield Operator("distinct_into_windows", "append", _distinct_into_windows, stores=_TWO_OPERATORS)
    yield Operator(
        "join_into_windows",
        "append",
        _join_into_windows,
        sources=2,
        stores=(
            {"operatorId": "0"},
            *({**options, "operatorId": "1"} for options in _JOIN_STORES),
        ),
    )
    yield Operator(
        "windows_into_distinct",
        "append",
        _windows_into_distinct,
        stores=_TWO_OPERATORS,
        # RocksDB takes the aggregation's read handle for its own and fails an assertion.
        fails_on=frozenset({Provider.ROCKSDB}),
    )
    yield Operator("two_actions", "update", _windowed, actions=2)


OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in _catalogue()}
