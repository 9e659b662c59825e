"""What a checkpoint is bound to, as rows of `floe doctor CHECKPOINT`.

A query's first batch freezes its state store, its state formats and its number of partitions in the
offset log. Settings that say otherwise later are ignored without a word, which is why this says it.
"""

from pathlib import Path

from floe.cli.offset_log import Batch, is_committed, read_batch, recorded_batches
from floe.cli.rows import Row, Verdict
from floe.errors import FloeError
from floe.session import PROVIDER_CLASS

__all__ = ["checkpoint_rows"]

# Recorded settings that shape the bytes of state, and what to call them.
FORMAT_KEYS = {
    "spark.sql.streaming.aggregation.stateFormatVersion": "aggregation",
    "spark.sql.streaming.join.stateFormatVersion": "join",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "flatMapGroupsWithState",
    "spark.sql.streaming.stateStore.encodingFormat": "encoding",
}


def checkpoint_rows(location: str) -> list[Row]:
    if "://" in location and not location.startswith("file:"):
        remedy = "Copy its `offsets` and `commits` to a local directory and name that."
        return [Row(Verdict.BROKEN, "checkpoint", f"{location} is not local", remedy)]
    checkpoint = Path(location.removeprefix("file:"))
    try:
        batches = recorded_batches(checkpoint)
        if not batches:
            finding = "no batch yet: the first run will bind it to the store configured then"
            return [Row(Verdict.GOOD, "checkpoint", finding)]
        newest = read_batch(checkpoint, batches[-1])
        before = read_batch(checkpoint, batches[-2]) if len(batches) > 1 else None
    except FloeError as error:
        return [Row(Verdict.BROKEN, "checkpoint", error.message, "Check the path.")]
    return [
        provider_row(newest),
        formats_row(newest),
        partitions_row(newest),
        *repartition_rows(checkpoint, newest, before),
    ]


def provider_row(batch: Batch) -> Row:
    name = batch.provider_class
    if name == PROVIDER_CLASS:
        return Row(Verdict.GOOD, "store", f"bound to Floe since its first batch ({name})")
    if name is None:
        remedy = "A restart will use the one that is configured: make it the one that wrote it."
        return Row(Verdict.CAREFUL, "store", "the offset log names none", remedy)
    remedy = (
        "Spark goes on with that store whatever is configured. To run this query on Floe, start it "
        "with a new checkpointLocation."
    )
    return Row(Verdict.CAREFUL, "store", f"bound to {name}, not to Floe", remedy)


def formats_row(batch: Batch) -> Row:
    words = [f"{name} {batch.conf[key]}" for key, name in FORMAT_KEYS.items() if key in batch.conf]
    return Row(Verdict.GOOD, "state formats", f"{', '.join(words)}; fixed for this checkpoint")


def partitions_row(batch: Batch) -> Row:
    if batch.partitions is None:
        return Row(Verdict.CAREFUL, "partitions", "not recorded", "Keep the number as it was.")
    finding = f"{batch.partitions}; spark.sql.shuffle.partitions has no effect on this checkpoint"
    return Row(Verdict.GOOD, "partitions", finding)


def repartition_rows(checkpoint: Path, newest: Batch, before: Batch | None) -> list[Row]:
    """A row if an offline repartition stopped half-way.

    Spark adds an entry with the new number of partitions first, and rewrites state after it. For
    stores other than RocksDB the second step is refused and the entry stays; restarts then fail.
    An ordinary batch never changes the number; and since this one repeats the offsets before it,
    deleting it loses no input.
    """
    if before is None or is_committed(checkpoint, newest.number):
        return []
    if newest.partitions == before.partitions or newest.offsets != before.offsets:
        return []
    finding = (
        f"batch {newest.number} changes partitions from {before.partitions} to "
        f"{newest.partitions} and was never committed: a repartition that failed"
    )
    remedy = (
        f"With the query stopped, delete {checkpoint / 'offsets' / str(newest.number)}. "
        "Nothing is lost: that batch reads no input."
    )
    return [Row(Verdict.BROKEN, "repartition", finding, remedy)]
