"""`floe inspect`: what the files of a checkpoint hold."""

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    pass
