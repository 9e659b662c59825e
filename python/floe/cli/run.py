"""`floe run`: a streaming query on Floe, to watch and to try."""

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    pass
