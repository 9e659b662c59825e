"""`floe run`: a streaming query on Floe, to watch and to try.

The command writes a click stream to a temporary directory and counts it by user in an embedded
Spark with two cores. On the way it does what a cluster does to a query: it kills the sidecar, and
it stops the query in the middle of a batch and starts it again from its checkpoint. In the end the
state has to be what a batch query over the same clicks computes.

Spark's log goes to a file, which is kept, and named, only if something fails.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floe.cli import clicks
from floe.cli.machine_checks import java_row
from floe.cli.rows import Verdict
from floe.cli.watch import Watch, quantile, table_of
from floe.errors import InvalidRequest
from floe.session import PROVIDER_CLASS, PROVIDER_KEY, configure, jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["register"]

CORES = 2
LOG_NAME = "spark.log"
SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # The report of every batch is read after the query has ended.
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
_STATE = "org.apache.spark.sql.execution.streaming.state"
_POLL_S = 0.1


class Store(StrEnum):
    """Where the query keeps its state."""

    FLOE = "floe"
    ROCKSDB = "rocksdb"
    MEMORY = "memory"

    @property
    def class_name(self) -> str:
        return {
            Store.FLOE: PROVIDER_CLASS,
            Store.ROCKSDB: f"{_STATE}.RocksDBStateStoreProvider",
            Store.MEMORY: f"{_STATE}.HDFSBackedStateStoreProvider",
        }[self]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and what to do to it on the way."""

    rows: int
    users: int
    batches: int
    store: Store
    kill: bool
    input: Path
    checkpoint: Path

    @property
    def kill_after(self) -> int:
        return max(1, self.batches // 4)

    @property
    def restart_after(self) -> int:
        return max(1, self.batches // 2)


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    rows: Annotated[int, typer.Option(min=1, help="Clicks in all.")] = 2_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Users they come from.")] = 200_000,
    batches: Annotated[int, typer.Option(min=2, help="Micro-batches.")] = 40,
    provider: Annotated[
        Store, typer.Option(help="The state store; the others are Spark's, to compare.")
    ] = Store.FLOE,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep the checkpoint in this directory.")
    ] = None,
    kill: Annotated[bool, typer.Option(help="Kill the sidecar on the way.")] = True,
) -> None:
    """Run a streaming query whose state lives in Floe, and check its result.

    Takes about a minute. The sidecar is killed once, and the query is stopped and restarted once:
    the result must not change.

    \b
        floe run
        floe run --provider rocksdb
        floe run --rows 200000 --batches 10 --checkpoint /tmp/clicks && floe doctor /tmp/clicks
    """
    require_tools(provider)
    if checkpoint is not None:
        require_empty(checkpoint)
    scratch = Path(tempfile.mkdtemp(prefix="floe-run-"))
    place = (checkpoint or scratch / "checkpoint").absolute()
    plan = Plan(rows, keys, batches, provider, kill, scratch / "clicks", place)
    try:
        equal = Demonstration(plan, scratch).run()
    except Exception as error:
        typer.echo(f"floe: {first_line(error)}\nSpark's log: {scratch / LOG_NAME}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    if not equal:
        typer.echo(f"floe: the state is wrong. Clicks and Spark's log are in {scratch}", err=True)
        raise typer.Exit(1)
    shutil.rmtree(scratch, ignore_errors=True)


def require_tools(provider: Store) -> None:
    """Raises InvalidRequest with the remedy if Java or the jar is missing."""
    java = java_row()
    if java.verdict is Verdict.BROKEN:
        raise InvalidRequest(f"Java: {java.finding}. {java.remedy}")
    if provider is Store.FLOE:
        jar()


def require_empty(checkpoint: Path) -> None:
    if checkpoint.exists() and any(checkpoint.iterdir()):
        raise InvalidRequest(
            f"{checkpoint} is not empty, and the run needs a new checkpoint. Name another one.",
            path=str(checkpoint),
        )


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Demonstration:
    """One run of the command, from the clicks to the verdict."""

    def __init__(self, plan: Plan, scratch: Path) -> None:
        from rich.console import Console

        self._plan = plan
        self._scratch = scratch
        self._console = Console()
        self._watch = Watch(plan.batches, CORES)
        self._kills = 0
        self._restarts = 0

    def run(self) -> bool:
        """Whether the state is right in the end."""
        plan = self._plan
        self._say(f"{plan.rows:,} clicks of {plan.users:,} users in {plan.batches} batches")
        clicks.write_clicks(plan.input, plan.rows, plan.users, plan.batches)
        self._say(f"starting Spark with state in {plan.store.value}")
        spark = start_session(plan.store, self._scratch)
        try:
            with self._live():
                self._run_query(spark)
            self._say("comparing the state with a batch query over the same clicks")
            differing = clicks.differing_users(spark, plan.input, plan.checkpoint)
        finally:
            spark.stop()
        self._console.print(table_of(self._summary(differing)))
        return differing == 0

    def _run_query(self, spark: SparkSession) -> None:
        """The first half until it is stopped, the second until there are no more clicks."""
        plan = self._plan
        query = self._start(spark, until_idle=False)
        if plan.kill and plan.store is Store.FLOE:
            self._follow(query, plan.kill_after)
            self._kill_sidecar(spark)
        self._follow(query, plan.restart_after)
        query.stop()
        self._watch.settle(query)
        self._say(f"stopped the query after batch {self._watch.batches_done}, starting it again")
        self._restarts += 1
        query = self._start(spark, until_idle=True)
        self._follow(query, plan.batches)
        query.awaitTermination()
        self._watch.settle(query)

    def _start(self, spark: SparkSession, until_idle: bool) -> StreamingQuery:
        stream = clicks.totals(clicks.read_clicks(spark, self._plan.input))
        writer = stream.writeStream.format("noop").outputMode("update").queryName("clicks")
        if until_idle:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self._plan.checkpoint)).start()

    def _follow(self, query: StreamingQuery, batches: int) -> None:
        """Watches until so many batches are done. Raises what the query has failed with."""
        while query.isActive and self._watch.batches_done < batches:
            time.sleep(_POLL_S)
            if self._watch.look(query) and not self._console.is_terminal:
                self._say(self._watch.line())
        error = query.exception()
        if error is not None:
            raise error

    def _kill_sidecar(self, spark: SparkSession) -> None:
        sidecars = sidecar_processes(spark)
        for process in sidecars:
            process.destroyForcibly()
            self._say(f"killed the sidecar, process {process.pid()}")
        self._kills += len(sidecars)
        if not sidecars:
            self._say("found no sidecar to kill")

    def _summary(self, differing: int) -> dict[str, str]:
        watch = self._watch
        # The first batch pays for a cold JVM and is told apart.
        first_ms, *batch_ms = watch.batch_ms
        verdict = "equal to the batch query" if differing == 0 else f"{differing:,} USERS DIFFER"
        return {
            "store": self._plan.store.value,
            "rows": f"{watch.rows:,}",
            "rows/s": f"{watch.rows_per_second:,.0f}",
            "state rows": f"{watch.state_rows:,}",
            "first batch": f"{first_ms:,} ms",
            "batch p50, p99": f"{quantile(batch_ms, 0.5):,} ms, {quantile(batch_ms, 0.99):,} ms",
            "in commits": f"{watch.commit_share:.0%} of the tasks' time",
            "survived": f"{self._kills} sidecar killed, {self._restarts} query restarted",
            "result": verdict,
        }

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def _live(self) -> Iterator[None]:
        """Keeps the watch in view below what is printed; only a terminal can do that."""
        from rich.live import Live

        if not self._console.is_terminal:
            yield
            return
        view = self._watch.view
        with Live(console=self._console, get_renderable=view, refresh_per_second=4):
            yield


def start_session(store: Store, scratch: Path) -> SparkSession:
    """A session in this process whose JVM writes its log to a file in `scratch`."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("floe run")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", str(scratch / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    builder = builder.config(PROVIDER_KEY, store.class_name)
    if store is Store.FLOE:
        builder = configure(builder)
    with stderr_to(scratch / LOG_NAME):
        return builder.getOrCreate()


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes that start in this block write their standard error to a file until they end."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def sidecar_processes(spark: SparkSession) -> list[Any]:
    """The sidecars of the session's JVM, as its own handles on them."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    children = jvm.java.lang.ProcessHandle.current().children().toArray()
    return [child for child in children if "floe.sidecar" in child.info().commandLine().orElse("")]
