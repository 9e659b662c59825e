"""`floe doctor`: whether this machine can run Floe, and what a checkpoint is bound to."""

from typing import Annotated

import typer

from floe.cli.rows import Row, Verdict
from floe.config import PREFIX, FloeConfig
from floe.errors import InvalidRequest
from floe.settings import parse_size

__all__ = ["register"]

COLOURS = {
    Verdict.GOOD: typer.colors.GREEN,
    Verdict.CAREFUL: typer.colors.YELLOW,
    Verdict.BROKEN: typer.colors.RED,
}


def register(app: typer.Typer) -> None:
    app.command("doctor")(diagnose)


def diagnose(
    checkpoint: Annotated[
        str | None,
        typer.Argument(help="A query's checkpointLocation: also say what it is bound to."),
    ] = None,
    memory: Annotated[str, typer.Option(help="The memory for state you plan to set.")] = "auto",
    heap: Annotated[str, typer.Option(help="The JVM heap of an executor.")] = "1g",
) -> None:
    """Check Java, Python, Spark, memory and disk of this machine.

    Each row is good (✓), works with a caveat (!) or must be fixed (✗), with what to do. The exit
    code is 1 if anything must be fixed. With a checkpoint, also say which state store it is bound
    to: Spark keeps the first one, whatever is configured later.

    \b
        floe doctor
        floe doctor --memory 4g --heap 8g
        floe doctor /data/checkpoints/orders
    """
    from floe.cli.checkpoint_checks import checkpoint_rows
    from floe.cli.machine_checks import machine_rows

    config = FloeConfig.from_spark({PREFIX + "memory": memory})
    rows = machine_rows(config.memory_bytes, _heap_bytes(heap))
    if checkpoint is not None:
        rows += checkpoint_rows(checkpoint)
    for row in rows:
        _print(row)
    if any(row.verdict is Verdict.BROKEN for row in rows):
        raise typer.Exit(1)


def _heap_bytes(heap: str) -> int:
    try:
        return parse_size(heap)
    except ValueError:
        raise InvalidRequest(f"--heap is {heap!r}; allowed: a size such as 4g.") from None


def _print(row: Row) -> None:
    mark = typer.style(row.verdict.value, fg=COLOURS[row.verdict], bold=True)
    typer.echo(f"{mark} {row.subject:<14} {row.finding}")
    if row.remedy:
        typer.echo(f"  {'':<14} → {row.remedy}")
