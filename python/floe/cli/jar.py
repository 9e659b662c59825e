"""`floe jar`: where the jar is, for scripts that start Spark themselves."""

import typer

from floe.session import jar

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("jar")(print_jar)


def print_jar() -> None:
    """Print the path of Floe's jar.

    For whatever starts Spark and wants a jar:

    \b
        spark-shell --jars $(floe jar)
    """
    typer.echo(jar())
