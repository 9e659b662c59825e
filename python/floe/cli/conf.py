"""`floe conf`: the exact lines that switch Floe on, in the format of the place they go to.

The lines go to standard output and nothing else does, so that `spark-submit $(floe conf) app.py`
works: one option a line, no continuation marks, and comments only in the formats that have them.

State counts in the container's memory but not in the JVM heap, and Spark asks the cluster manager
for heap plus `spark.executor.memoryOverhead`. So a budget for Floe is two settings, and this
command derives the second.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from floe.config import PREFIX, FloeConfig
from floe.session import PROVIDER_CLASS, PROVIDER_KEY, jar
from floe.settings import MIB, format_size

__all__ = ["overhead_bytes", "register"]

MEMORY_KEY = PREFIX + "memory"
OVERHEAD_KEY = "spark.executor.memoryOverhead"

# Spark's own minimum for the overhead: what a JVM and its Python workers need without Floe.
OVERHEAD_BASE_BYTES = 384 * MIB
OVERHEAD_STEP_BYTES = 128 * MIB

Lines = dict[str, str]


class Format(StrEnum):
    """Where the lines go."""

    SPARK_SUBMIT = "spark-submit"
    SPARK_DEFAULTS = "spark-defaults"
    PYTHON = "python"


def register(app: typer.Typer) -> None:
    app.command("conf")(print_conf)


def print_conf(
    style: Annotated[
        Format, typer.Option("--format", help="Where the lines go.")
    ] = Format.SPARK_SUBMIT,
    memory: Annotated[
        str, typer.Option(help="Memory for state on each executor, such as 4g.")
    ] = "auto",
) -> None:
    """Print the settings that make Spark keep its state in Floe.

    With --memory, also the spark.executor.memoryOverhead to go with it: state lives in the
    executor's container, outside the JVM heap. Each format can be used as it comes out:

    \b
        spark-submit $(floe conf --memory 4g) query.py
        floe conf --format spark-defaults >> $SPARK_HOME/conf/spark-defaults.conf
        floe conf --format python
    """
    settings = {PROVIDER_KEY: PROVIDER_CLASS}
    notes = ""
    memory_bytes = FloeConfig.from_spark({MEMORY_KEY: memory}).memory_bytes
    if memory_bytes is not None:
        overhead = format_size(overhead_bytes(memory_bytes))
        settings |= {MEMORY_KEY: memory, OVERHEAD_KEY: overhead}
        notes = _explain(memory, overhead)
    printers: dict[Format, Callable[[Lines, str], str]] = {
        Format.SPARK_SUBMIT: _spark_submit,
        Format.SPARK_DEFAULTS: _spark_defaults,
        Format.PYTHON: _python,
    }
    typer.echo(printers[style](settings, notes), nl=False)


def overhead_bytes(memory_bytes: int) -> int:
    """What to ask of the cluster manager beside the heap, in steps that read well."""
    return -(-(memory_bytes + OVERHEAD_BASE_BYTES) // OVERHEAD_STEP_BYTES) * OVERHEAD_STEP_BYTES


def _explain(memory: str, overhead: str) -> str:
    return (
        f"State uses up to {memory} of each executor's container, outside the JVM heap.\n"
        f"So {OVERHEAD_KEY} is that plus {format_size(OVERHEAD_BASE_BYTES)} for everything else:"
        f" {overhead}.\n"
        "Add what your Python workers and native libraries need. In local mode it has no effect.\n"
    )


def _comment(notes: str) -> str:
    return "".join(f"# {line}\n" for line in notes.splitlines())


def _spark_submit(settings: Lines, notes: str) -> str:
    options = "".join(f"--conf {key}={value}\n" for key, value in settings.items())
    return f"--jars {jar()}\n{options}"


def _spark_defaults(settings: Lines, notes: str) -> str:
    lines = "".join(f"{key} {value}\n" for key, value in settings.items())
    return f"# Floe: state of streaming queries.\n{_comment(notes)}spark.jars {jar()}\n{lines}"


def _python(settings: Lines, notes: str) -> str:
    """Names only what `floe.configure` does not set by itself."""
    options = "".join(
        f'    .config("{key}", "{value}")\n'
        for key, value in settings.items()
        if key != PROVIDER_KEY
    )
    return (
        "import floe\nfrom pyspark.sql import SparkSession\n\n"
        f'{_comment(notes)}builder = (\n    SparkSession.builder.appName("app")\n{options})\n'
        "spark = floe.configure(builder).getOrCreate()\n"
    )
