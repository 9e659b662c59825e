"""`floe bench`: Floe beside Spark's own stores, and the measurements that shaped it.

`micro` times the operations of a store in a bare JVM, all contenders side by side, and holds the
result against what Floe promises (`MUSTS`). `py4j` times calls into a Python process against reads
of memory that Python filled: the reason why calls carry control and memory carries rows.

The measuring itself is in the JVM (jvm-shim/src/tools); this module says what is measured and shows
what came out. Times are nanoseconds a row, so that batches of different sizes compare.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from floe.config import PREFIX
from floe.errors import InvalidRequest
from floe.session import PROVIDER_CLASS

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["CONTENDERS", "MUSTS", "Contender", "Must", "Result", "register", "verdict"]

TOOLS = "org.apache.spark.sql.floe.tools"
SPARK_STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."

OPS = {
    "put-fresh": "put, new keys",
    "put-overwrite": "put, existing keys",
    "remove": "remove",
    "get-hit": "get, found",
    "get-miss": "get, not found",
    "get-put": "get + put",
    "scan": "full scan",
    "prefix-scan": "prefix scan",
    "tiny-batch": "durable batch, 100 rows",
    "batch": "durable batch, 10,000 rows",
    "load": "load",
}
BATCH_ROWS = 10_000
# Room for the five tiny batches of a round, none of which shares a row with another.
SMALLEST_STORE = 1000
MILLION = 1_000_000
TEN_MILLION = 10_000_000


@dataclass(frozen=True, slots=True)
class Contender:
    """A provider under a name, with its settings."""

    name: str
    provider: str
    conf: dict[str, str]
    # Where a store takes more of the heap for each key than a large run can give.
    max_keys: int | None = None

    def as_json(self) -> dict[str, Any]:
        limit = {} if self.max_keys is None else {"maxKeys": self.max_keys}
        return {"name": self.name, "class": self.provider, "conf": self.conf, **limit}


_IN_MEMORY = f"{SPARK_STATE}.HDFSBackedStateStoreProvider"
_ROCKSDB = f"{SPARK_STATE}.RocksDBStateStoreProvider"
_ROCKSDB_BEST = {
    ROCKSDB + "changelogCheckpointing.enabled": "true",
    ROCKSDB + "trackTotalNumberOfRows": "false",
}
# On a local disk Spark's default manager forks processes for each file it writes, which is most of
# a small commit. This one forks fewer, so it shows the stores' own share; Floe forks none.
_FEWER_FORKS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}
_FLOE = {PREFIX + "python": sys.executable}
_ALL_CONTENDERS = (
    Contender("in-memory", _IN_MEMORY, {}, MILLION),
    Contender("in-memory-fs", _IN_MEMORY, _FEWER_FORKS, MILLION),
    Contender("rocksdb", _ROCKSDB, {}),
    Contender("rocksdb-best", _ROCKSDB, _ROCKSDB_BEST),
    Contender("rocksdb-best-fs", _ROCKSDB, _ROCKSDB_BEST | _FEWER_FORKS),
    Contender("floe", PROVIDER_CLASS, _FLOE),
    Contender("floe-fsync", PROVIDER_CLASS, _FLOE | {PREFIX + "checkpoint.fsync": "true"}),
)
CONTENDERS = {contender.name: contender for contender in _ALL_CONTENDERS}
DEFAULT_CONTENDERS = "in-memory,rocksdb-best,floe"


@dataclass(frozen=True, slots=True)
class Must:
    """In `op` Floe is at least `factor` times as fast as `peer`; at `keys` keys, or at any."""

    op: str
    peer: str
    factor: float
    keys: int | None = None


MUSTS = (
    *(Must(op, "in-memory", 3) for op in ("put-fresh", "put-overwrite", "remove")),
    *(Must(op, "rocksdb-best", 5) for op in ("put-fresh", "put-overwrite", "remove")),
    *(Must(op, "rocksdb-best", 5) for op in ("get-hit", "get-miss")),
    *(Must(op, "in-memory", 2, MILLION) for op in ("get-hit", "get-miss")),
    *(Must(op, "in-memory", 0.5) for op in ("scan", "prefix-scan")),
    *(Must(op, "rocksdb-best", 2) for op in ("scan", "prefix-scan")),
    *(Must("tiny-batch", peer, 10) for peer in ("in-memory", "rocksdb-best")),
    Must("batch", "rocksdb-best", 5),
    Must("batch", "in-memory", 3, 10_000),
    Must("batch", "in-memory", 10, MILLION),
    Must("load", "rocksdb-best", 0.5, MILLION),
)
# A batch costs what it changes, not what the store holds.
LARGEST_SLOWDOWN_AT_TEN_MILLION = 2.0


@dataclass(frozen=True, slots=True)
class Result:
    """What the runs of one operation came to: nanoseconds a row by contender."""

    op: str
    keys: int
    times: dict[str, float]

    def speedup(self, peer: str) -> float | None:
        """How many times as fast as the peer Floe is; None if either did not run."""
        if "floe" not in self.times or peer not in self.times:
            return None
        return self.times[peer] / self.times["floe"]


def verdict(result: Result, results: list[Result]) -> bool | None:
    """Whether Floe keeps its promises in this row; None if it makes none that could be checked."""
    kept = [
        speedup >= must.factor
        for must in MUSTS
        if must.op == result.op and must.keys in (None, result.keys)
        if (speedup := result.speedup(must.peer)) is not None
    ]
    if result.op == "batch" and result.keys == TEN_MILLION and "floe" in result.times:
        kept += [
            result.times["floe"] <= LARGEST_SLOWDOWN_AT_TEN_MILLION * other.times["floe"]
            for other in results
            if other.op == "batch" and other.keys == MILLION and "floe" in other.times
        ]
    return all(kept) if kept else None


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Measure Floe beside Spark's own stores.", no_args_is_help=True)
    group.command("micro")(micro)
    group.command("py4j")(py4j)
    app.add_typer(group, name="bench")


def micro(
    keys: Annotated[str, typer.Option(help="Keys in the store, comma-separated.")] = (
        f"10000,{MILLION}"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    contenders: Annotated[
        str, typer.Option(help=f"Some of {', '.join(CONTENDERS)}; comma-separated.")
    ] = DEFAULT_CONTENDERS,
    ops: Annotated[str, typer.Option(help=f"Some of {', '.join(OPS)}. Default: all.")] = "",
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Also write the results there, as JSON.")
    ] = None,
    ten_million: Annotated[
        bool, typer.Option("--ten-million", help="Also 10 million keys, without in-memory.")
    ] = False,
    heap: Annotated[str, typer.Option(help="Heap of the JVM.")] = "6g",
    directory: Annotated[
        Path | None, typer.Option(help="Where stores write. Default: a temporary directory.")
    ] = None,
) -> None:
    """Time the operations of a store, Floe and Spark's own side by side.

    Every contender runs in the same JVM and every round runs all of them. The last column says
    whether Floe is as much faster as it promises to be. A few minutes by default.
    """
    sizes = [_count(size) for size in keys.split(",")] + [TEN_MILLION] * ten_million
    chosen = [CONTENDERS[_known(name, CONTENDERS)] for name in contenders.split(",")]
    wanted = [_known(op, OPS) for op in ops.split(",")] if ops else list(OPS)
    with tempfile.TemporaryDirectory(prefix="floe-bench-", dir=directory) as root:
        settings = {
            "root": root,
            "contenders": [contender.as_json() for contender in chosen],
            "keys": sizes,
            "ops": wanted,
            "rounds": rounds,
            "warmups": 3,
            "batch": min(BATCH_ROWS, *sizes),
            "seed": 42,
        }
        lines = list(_run_jvm("MicroBench", settings, heap=heap, root=root))
    if json_out is not None:
        json_out.write_text(json.dumps(lines, indent=1) + "\n")
    errors = [line for line in lines if "error" in line]
    results = _collect([line for line in lines if "op" in line], sizes, wanted)
    _print_micro(results, [contender.name for contender in chosen])
    for line in errors:
        typer.echo(f"{line['contender']} failed at {line['n']:,} keys: {line['error']}", err=True)
    if errors:
        raise typer.Exit(1)


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if count < SMALLEST_STORE:
        raise InvalidRequest(
            f"--keys takes numbers from {SMALLEST_STORE} on, comma-separated; not {text!r}."
        )
    return count


def _known(name: str, among: Iterable[str]) -> str:
    if name not in among:
        raise InvalidRequest(f"{name!r} is not known; there are: {', '.join(among)}.")
    return name


def _run_jvm(
    main: str, settings: dict[str, Any], *, heap: str, root: str
) -> Iterator[dict[str, Any]]:
    """The JSON lines that a tool prints; its progress goes to the terminal."""
    from floe.jvm import launch

    properties = {"spark.local.dir": root, "java.io.tmpdir": root}
    with launch(f"{TOOLS}.{main}", heap=heap, properties=properties) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # The pipe stays open: its end would be the end of the JVM.
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise InvalidRequest(
            f"The benchmark's JVM ended with code {process.returncode}; its last words are above."
        )


def _collect(lines: list[dict[str, Any]], sizes: list[int], ops: list[str]) -> list[Result]:
    """One result an operation and size, in the order of the tables of this module."""
    results = [Result(op, keys, {}) for keys in sizes for op in ops]
    by_row = {(result.op, result.keys): result for result in results}
    for line in lines:
        by_row[line["op"], line["n"]].times[line["contender"]] = line["ns_per_row"]
    return [result for result in results if result.times]


def _print_micro(results: list[Result], names: list[str]) -> None:
    from rich.table import Table

    table = Table(title="Nanoseconds a row, and how many times as fast as its peers Floe is")
    table.add_column("operation", no_wrap=True)
    peers = [peer for peer in ("in-memory", "rocksdb-best") if peer in names]
    for heading in ("keys", *names, *(f"vs {peer}" for peer in peers)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("must", justify="center")
    for position, result in enumerate(results):
        ratios = [result.speedup(peer) for peer in peers]
        table.add_row(
            OPS[result.op],
            f"{result.keys:,}",
            *(_number(result.times.get(name)) for name in names),
            *("-" if ratio is None else f"{ratio:.1f}x" for ratio in ratios),
            {True: "✓", False: "✗", None: "-"}[verdict(result, results)],
            end_section=position + 1 < len(results) and results[position + 1].keys != result.keys,
        )
    _print(table)


def _print(table: Table) -> None:
    """To a terminal in its width; to a file or pipe without any cell cut."""
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


# A table of 2^17 slots of (key, value), half full; the JVM reads it with the same arithmetic.
SLOT = struct.Struct("<qq")
SLOT_BITS = 17
TABLE_KEYS = 1 << (SLOT_BITS - 1)
MULTIPLIER = 0x9E3779B97F4A7C15
PAYLOAD_BYTES = 16 * 1024


class PingTarget:
    """What the JVM calls: nothing at all, some bytes, or a row."""

    def __init__(self) -> None:
        self.rows = {key: key * key for key in range(1, TABLE_KEYS + 1)}

    def ping(self) -> int:
        return 1

    def take(self, payload: bytes) -> int:
        return len(payload)

    def get(self, key: int) -> int:
        return self.rows[key]

    class Java:
        implements: ClassVar = [f"{TOOLS}.PingTarget"]


def py4j(
    calls: Annotated[int, typer.Option(min=20, help="Calls of each thread.")] = 2000,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Also write the results there, as JSON.")
    ] = None,
) -> None:
    """Time calls from a JVM into Python against reads of memory that Python filled.

    Calls are what Floe's control plane is made of, mapped memory is its data plane.
    """
    target = PingTarget()
    with (
        _mapped_table(target.rows) as table,
        _served(target) as (port, secret),
        tempfile.TemporaryDirectory(prefix="floe-bench-") as root,
    ):
        settings = {
            "port": port,
            "secret": secret,
            "threads": [1, 2, 8, 32],
            "calls": calls,
            "payloadBytes": PAYLOAD_BYTES,
            "table": table,
            "slotBits": SLOT_BITS,
            "keys": TABLE_KEYS,
        }
        lines = list(_run_jvm("Py4JBench", settings, heap="512m", root=root))
    if json_out is not None:
        json_out.write_text(json.dumps(lines, indent=1) + "\n")
    _print_py4j(lines)


@contextlib.contextmanager
def _served(target: PingTarget) -> Iterator[tuple[int, str]]:
    """Port and secret of a Py4J server in this process whose entry point is the target."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

    secret = secrets.token_hex(16)
    server = ClientServer(
        java_parameters=JavaParameters(auth_token=secret, daemonize_memory_management=True),
        python_parameters=PythonParameters(
            port=0, auth_token=secret, daemonize=True, daemonize_connections=True
        ),
        python_server_entry_point=target,
    )
    try:
        yield server.get_callback_server().get_listening_port(), secret
    finally:
        server.shutdown_callback_server()


@contextlib.contextmanager
def _mapped_table(rows: dict[int, int]) -> Iterator[str]:
    """A path under which another process can map a hash table of these rows."""
    size = SLOT.size << SLOT_BITS
    with contextlib.ExitStack() as stack:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("floe-bench")
            stack.callback(os.close, descriptor)
            path = f"/proc/{os.getpid()}/fd/{descriptor}"
        else:
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="floe-bench-"))
            descriptor, path = file.fileno(), file.name
        os.ftruncate(descriptor, size)
        memory = stack.enter_context(mmap.mmap(descriptor, size))
        for key, value in rows.items():
            slot = (key * MULTIPLIER & (1 << 64) - 1) >> (64 - SLOT_BITS)
            while SLOT.unpack_from(memory, slot * SLOT.size)[0] != 0:
                slot = (slot + 1) % (1 << SLOT_BITS)
            SLOT.pack_into(memory, slot * SLOT.size, key, value)
        yield path


def _print_py4j(lines: list[dict[str, Any]]) -> None:
    from rich.table import Table

    labels = {
        "ping": "empty call",
        "payload": f"call with {PAYLOAD_BYTES // 1024} KiB of bytes",
        "row by call": "a row by a call",
        "row by mapped memory": "a row from mapped memory",
    }
    table = Table(title="From a JVM into one Python process")
    table.add_column("what")
    for heading in ("threads", "median", "slowest first call", "a second, all threads"):
        table.add_column(heading, justify="right")
    for line in lines:
        first = line.get("first_us")
        table.add_row(
            labels[line["what"]],
            str(line["threads"]),
            _duration(line["us"]),
            "-" if first is None else _duration(first),
            f"{line['per_second']:,.0f}",
        )
    _print(table)


def _duration(us: float) -> str:
    if us < 1:
        return f"{us * 1000:.1f} ns"
    return f"{us:,.0f} µs" if us < 10_000 else f"{us / 1000:,.0f} ms"
