"""The `floe` command: one module a command, assembled here.

A module registers its command and imports what the command needs inside it, so that `floe --help`
answers at once: pyspark alone takes most of a second to import.
"""

from typing import Any

import typer
from typer.core import TyperGroup

from floe.cli import bench, conf, doctor, inspect, jar, run
from floe.errors import FloeError

__all__ = ["app"]


class FloeGroup(TyperGroup):
    """Turns Floe's own errors into a sentence and exit code 1; anything else is a bug and shows."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FloeError as error:
            typer.echo(f"floe: {error.message}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=FloeGroup,
    name="floe",
    help="Floe, a state store for Spark Structured Streaming.",
    epilog="Start with: floe run. Then: spark-submit $(floe conf) your_query.py",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

# In the order in which a newcomer needs them.
for command in (run, conf, jar, doctor, inspect, bench):
    command.register(app)
