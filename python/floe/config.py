"""Every setting of Floe, once: the table that code, files and documentation come from.

A setting is a Spark configuration key under `PREFIX`; keys there are the ones that Spark hands to
the state store of each task. They are read once, at the door, by `FloeConfig.from_spark`; past
that point only the frozen dataclass travels, and strings have become numbers and enum members.

A key of Floe that does not exist is an error, with the nearest one that does: a misspelt limit that
is silently ignored is found out by an executor that is killed. Keys outside the prefix are Spark's
and are left alone.

`conf/floe-defaults.conf` and `docs/configuration.md` are rendered from this table by
`floe.config_files`, and a test holds the JVM side's keys against it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from floe.errors import InvalidRequest
from floe.settings import (
    GIB,
    MIB,
    Kind,
    auto_or,
    choice,
    flag,
    integer,
    milliseconds,
    ratio,
    size,
    text,
)

__all__ = ["PREFIX", "Codec", "FloeConfig", "Setting", "settings"]

PREFIX = "spark.sql.streaming.stateStore.floe."

T = TypeVar("T")


class Codec(StrEnum):
    """How the bytes of checkpoint files are compressed."""

    LZ4 = "lz4"
    ZSTD = "zstd"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table."""

    key: str
    default: str
    kind: Kind[Any]
    doc: str

    @property
    def suffix(self) -> str:
        return self.key.removeprefix(PREFIX)


def _setting(suffix: str, default: str, kind: Kind[T], doc: str) -> T:
    """A dataclass field that carries its row of the table.

    Typed as the value itself, as `dataclasses.field` is. The default is given as a user would write
    it, so that what the documentation shows is what the code parses.
    """
    row = Setting(PREFIX + suffix, default, kind, doc)
    return field(
        default=kind.parse(default),
        metadata={"key": row.key, "unit": kind.unit, "doc": doc, "setting": row},
    )


@dataclass(frozen=True, slots=True)
class FloeConfig:
    """The settings of one executor, parsed and within their limits."""

    # None, auto, leaves the choice to `floe.memory.resolve_budget`.
    memory_bytes: int | None = _setting(
        "memory",
        "auto",
        auto_or(size(1 * MIB)),
        "Memory for state on each executor, outside the JVM heap: a hard limit over all stores of "
        "the executor. `auto` is half of what the container's limit leaves beside the heap. It "
        "counts in the container, so `spark.executor.memoryOverhead` must cover it; "
        "`floe conf --memory 4g` prints both.",
    )
    python: str = _setting(
        "python",
        "",
        text("a path or a command"),
        "The Python that runs the sidecar; Floe must be installed there. Empty: the Python of "
        "PySpark's workers (`spark.pyspark.python`, then `PYSPARK_PYTHON`, then `python3`).",
    )
    local_dir: str = _setting(
        "localDir",
        "",
        text("a directory"),
        "Where log segments and other local files of the store go. Empty: Spark's local directory. "
        "Nothing there is needed after a restart.",
    )
    sidecar_processes: int = _setting(
        "sidecar.processes",
        "1",
        integer(1, 16, unit="processes"),
        "Sidecar processes on each executor. Stores are spread over them by hash, and each gets an "
        "equal share of the memory. More than one helps executors with many small partitions.",
    )
    sidecar_start_timeout_ms: int = _setting(
        "sidecar.startTimeoutMs",
        "60000",
        milliseconds(),
        "How long a task waits for a sidecar to start before it fails.",
    )
    sidecar_call_timeout_ms: int = _setting(
        "sidecar.callTimeoutMs",
        "120000",
        milliseconds(),
        "How long a task waits for the answer to one call, restarts of the sidecar included.",
    )
    stamp_timeout_ms: int = _setting(
        "stampTimeoutMs",
        "120000",
        milliseconds(),
        "How long a task waits for an earlier attempt to let go of the same store.",
    )
    checkpoint_codec: Codec = _setting(  # noqa: RUF009 - a dataclass field by another name
        "checkpoint.codec",
        "lz4",
        choice(Codec),
        "Compression of checkpoint files. Files say how they were written, so it may change "
        "between restarts.",
    )
    checkpoint_fsync: bool = _setting(
        "checkpoint.fsync",
        "false",
        flag(),
        "Whether a commit to a local file system waits until the disk has it. Off, as in Spark: a "
        "crash of the machine, not of the process, may then lose the last commits.",
    )
    log_segment_bytes: int = _setting(
        "log.segmentBytes",
        "64m",
        size(1 * MIB, 1 * GIB),
        "Size at which a segment of the log is sealed. Segments are the unit of upload and of "
        "cleaning.",
    )
    log_min_live_ratio: float = _setting(
        "log.minLiveRatio",
        "0.5",
        ratio(),
        "A local segment whose live part falls below this is copied forward and dropped. Higher "
        "saves disk, lower saves writes.",
    )
    slab_bytes: int = _setting(
        "slabBytes",
        "16m",
        size(1 * MIB, 64 * MIB, power_of_two=True),
        "The step in which memory is taken from the system and given back. A small budget makes it "
        "smaller.",
    )

    def __post_init__(self) -> None:
        for name, row in _rows().items():
            value = getattr(self, name)
            if not row.kind.accepts(value):
                raise _out_of_range(row, row.kind.show(value))

    @classmethod
    def from_spark(cls, conf: Mapping[str, str]) -> "FloeConfig":
        """The settings that a Spark configuration spells out, defaults for the rest.

        Raises InvalidRequest for a key of Floe that does not exist, and for a value that cannot be
        read or is out of range.
        """
        rows = {row.key: (name, row) for name, row in _rows().items()}
        values: dict[str, Any] = {}
        for key, value in conf.items():
            if not key.startswith(PREFIX):
                continue
            if key not in rows:
                raise _unknown(key)
            name, row = rows[key]
            try:
                values[name] = row.kind.parse(value)
            except ValueError:
                raise _out_of_range(row, value) from None
        return cls(**values)


def settings() -> list[Setting]:
    """The rows of the table, in the order in which they are documented."""
    return list(_rows().values())


def _rows() -> dict[str, Setting]:
    return {declared.name: declared.metadata["setting"] for declared in fields(FloeConfig)}


def _out_of_range(row: Setting, value: str) -> InvalidRequest:
    return InvalidRequest(
        f"{row.key} is {value!r}; allowed: {row.kind.allowed}.", key=row.key, value=value
    )


def _unknown(key: str) -> InvalidRequest:
    """Says which key was probably meant. Case is ignored: it is the commonest slip."""
    by_lower = {row.suffix.lower(): row for row in settings()}
    wanted = key.removeprefix(PREFIX).lower()
    near = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.5)
    if near:
        nearest = by_lower[near[0]].key
        return InvalidRequest(f"{key} is no key of Floe; did you mean {nearest}?", key=key)
    known = ", ".join(row.suffix for row in settings())
    return InvalidRequest(f"{key} is no key of Floe; under {PREFIX} there are: {known}.", key=key)
