"""Switching Floe on in a Spark session.

A session needs three things: Floe's jar on the class path of driver and executors, the provider's
class name, and a Python for the sidecar that has Floe installed. `configure` adds them to a
session's builder. What the user set there wins, and jars are appended to the user's.

Class paths are fixed when a JVM starts. A builder that starts one (`python app.py`) passes the jar
as `spark.jars`. One that finds a running JVM (under spark-submit, in a notebook after a first
session) can only use what is there; `configure` then checks that Floe is, and says what to do if
it is not, since Spark would only report a missing class in the middle of the first query. The same
holds for `--jars` in PYSPARK_SUBMIT_ARGS, which hides the builder's `spark.jars`. (The builder's in
turn hides the one of spark-defaults.conf: with jars there, add Floe's to them and leave the builder
alone. `floe conf` prints the lines.)

Importing this module imports no pyspark and starts no JVM.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from floe.config import PREFIX
from floe.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAR_NAME", "PROVIDER_CLASS", "PROVIDER_KEY", "configure", "jar"]

JAR_NAME = "floe-spark-4.3.jar"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
PROVIDER_CLASS = "org.apache.spark.sql.floe.FloeStateStoreProvider"


def jar() -> Path:
    """The jar for Spark's `--jars`. Raises InvalidRequest if it has not been compiled."""
    path = Path(__file__).resolve().parent / "jars" / JAR_NAME
    if not path.exists():
        raise InvalidRequest(
            f"Floe's jar is not there: {path}. In a source tree run `make jar`; an installed "
            "package without it is broken, so install it again.",
            path=str(path),
        )
    return path


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """The same builder, with everything set that stateful queries need to run on Floe.

        spark = floe.configure(SparkSession.builder.appName("app")).getOrCreate()

    Raises InvalidRequest if Floe's jar cannot reach the class path from here.
    """
    # pyspark has no public way to read a builder's options back.
    options = builder._options
    if PROVIDER_KEY not in options:
        builder.config(PROVIDER_KEY, PROVIDER_CLASS)
    if not _python_is_chosen(options):
        builder.config(PREFIX + "python", sys.executable)
    if _jvm_is_running():
        _require_class_in_running_jvm()
    elif "--jars" in shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        _require_jar_in_submit_arguments()
    else:
        builder.config("spark.jars", _with_jar(str(options.get("spark.jars", ""))))
    return builder


def _python_is_chosen(options: dict[str, object]) -> bool:
    """Whether the sidecar's Python follows from something the user set."""
    if os.environ.get("PYSPARK_PYTHON"):
        return True
    return any(key in options for key in (PREFIX + "python", "spark.pyspark.python"))


def _with_jar(jars: str) -> str:
    entries = [entry for entry in jars.split(",") if entry.strip()]
    path = str(jar())
    return ",".join(entries if path in entries else [*entries, path])


def _jvm_is_running() -> bool:
    # spark-submit starts the JVM first and tells its Python where to find it.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    core = sys.modules.get("pyspark.core.context")
    return core is not None and core.SparkContext._gateway is not None


def _require_class_in_running_jvm() -> None:
    from pyspark.core.context import SparkContext

    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(PROVIDER_CLASS):
        raise InvalidRequest(
            "The JVM of this session is already running, without Floe's jar. Under spark-submit, "
            f"add `--jars {jar()}`; in a notebook or shell, restart Python and call "
            "floe.configure before the first session is made."
        )


def _require_jar_in_submit_arguments() -> None:
    if str(jar()) not in os.environ["PYSPARK_SUBMIT_ARGS"]:
        raise InvalidRequest(
            "PYSPARK_SUBMIT_ARGS has `--jars`, which hides jars that a program asks for. Add "
            f"{jar()} to that list, after a comma."
        )
