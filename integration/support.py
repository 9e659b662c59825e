"""Providers, sessions and processes: what every test that starts Spark shares.

One SparkSession runs all providers. The provider class is an ordinary session setting that a
query reads when it starts and pins in its checkpoint; only the jar and the session extension are
static, and `floe.configure` sets them before the JVM starts.

Choose providers with the environment variable FLOE_PROVIDERS (names separated by commas) or with
pytest's `-k`, for example `-k "not floe"` where the jar is not built.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import floe
from floe.cli.run import Store
from floe.errors import InvalidRequest

# The stores that `floe run` offers are the providers under test.
Provider = Store


def chosen_providers() -> list[Provider]:
    """The providers under test: all of them unless FLOE_PROVIDERS names some."""
    names = os.environ.get("FLOE_PROVIDERS", "")
    return [Provider(name) for name in names.split(",")] if names else list(Provider)


def provider_under_test() -> Provider:
    """The provider of tests that need no other one: Floe, unless FLOE_TEST_PROVIDER says so."""
    return Provider(os.environ.get("FLOE_TEST_PROVIDER", Provider.FLOE))


# Two partitions are enough for every code path. Maintenance runs every second and snapshots come
# early, so that even a query of ten batches uploads, cleans and reloads from a snapshot.
SESSION_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.join.stateFormatVersion": "2",
}


def floe_is_built() -> bool:
    """Whether a session can have Floe's jar."""
    try:
        floe.jar()
    except InvalidRequest:
        return False
    return True


def start_session(scratch: Path) -> SparkSession:
    """A session that can run every provider; without the jar, all but Floe."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("floe-integration")
    if floe_is_built():
        builder = floe.configure(builder)
    for key, value in SESSION_SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", str(scratch / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def python_path() -> str:
    """PYTHONPATH for a process that imports the tests' modules and Floe from this tree."""
    root = Path(__file__).resolve().parents[1]
    return os.pathsep.join([str(root), str(root / "python")])


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Session settings for the length of a block. A query keeps those it started with."""
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def jvm_pid(spark: SparkSession) -> int:
    """The process id of the JVM behind a session."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def child_pids(parent: int) -> list[int]:
    """Processes whose parent is `parent`, read from /proc."""
    return [pid for pid in _all_pids() if _parent_of(pid) == parent]


def sidecar_pids(jvm: int) -> list[int]:
    """The sidecars that a JVM has started and that are alive."""
    return [pid for pid in child_pids(jvm) if "floe.sidecar" in command_line(pid)]


def command_line(pid: int) -> str:
    """The arguments of a process, empty once it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent_of(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    # The second field, the name in brackets, may hold spaces: count from its end.
    return int(stat.rpartition(")")[2].split()[1])
