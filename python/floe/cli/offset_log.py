"""A checkpoint's offset log, as far as it says what the checkpoint is bound to.

Spark writes one file a batch before the batch runs, and one in `commits/` after it:

    offsets/<batch>    line 1   the version of the format, `v1`
                       line 2   JSON: batchWatermarkMs, batchTimestampMs, conf
                       rest     one offset a source

`conf` holds the settings that a restart must repeat, the class of the state store among them: the
recorded value wins over the session's. Only local checkpoints are read here.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from floe.errors import Corrupt, InvalidRequest

__all__ = ["Batch", "is_committed", "read_batch", "recorded_batches"]

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
# Newer Sparks record the number of state partitions apart from that of shuffles.
PARTITIONS_KEYS = (
    "spark.sql.streaming.internal.stateStore.partitions",
    "spark.sql.shuffle.partitions",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One entry of the log."""

    number: int
    conf: dict[str, str]
    # Of the sources, as the file spells them.
    offsets: tuple[str, ...]

    @property
    def provider_class(self) -> str | None:
        return self.conf.get(PROVIDER_KEY)

    @property
    def partitions(self) -> int | None:
        for key in PARTITIONS_KEYS:
            if key in self.conf:
                return int(self.conf[key])
        return None


def recorded_batches(checkpoint: Path) -> list[int]:
    """Numbers of the batches in the log, oldest first.

    Raises InvalidRequest if the directory is not a checkpoint. Temporary and checksum files start
    with a dot or are no numbers.
    """
    if not checkpoint.is_dir():
        raise InvalidRequest(f"{checkpoint} is not a directory.", path=str(checkpoint))
    offsets = checkpoint / "offsets"
    if not offsets.is_dir() and not (checkpoint / "metadata").exists():
        raise InvalidRequest(
            f"{checkpoint} holds neither `offsets` nor `metadata`: name the checkpointLocation of "
            "a query.",
            path=str(checkpoint),
        )
    if not offsets.is_dir():
        return []
    return sorted(int(path.name) for path in offsets.iterdir() if path.name.isdigit())


def read_batch(checkpoint: Path, number: int) -> Batch:
    """Raises Corrupt if the entry is not what Spark writes."""
    path = checkpoint / "offsets" / str(number)
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("v"):
        raise Corrupt(f"{path} does not start with a version.", path=str(path))
    try:
        conf = json.loads(lines[1])["conf"]
    except (IndexError, KeyError, TypeError, ValueError):
        raise Corrupt(f"{path} holds no metadata on its second line.", path=str(path)) from None
    return Batch(number, conf, tuple(lines[2:]))


def is_committed(checkpoint: Path, number: int) -> bool:
    return (checkpoint / "commits" / str(number)).exists()
