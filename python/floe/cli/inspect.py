"""`floe inspect`: what the files of a checkpoint hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from floe.errors import FloeError, InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from floe.checkpoint.reading import StoreFiles
    from floe.format.rows import Rows
    from floe.format.state_schema import StateSchema

__all__ = ["register"]

# How an exported table is written, by the end of the file's name.
PARQUET = ".parquet"
ARROW = ".arrow"
SHOWN_BYTES = 16


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which stores were asked for; None is all of them."""

    operator: int | None
    partition: int | None
    store: str | None

    def __bool__(self) -> bool:
        return self != Selection(None, None, None)

    def has(self, store: StoreFiles) -> bool:
        return (
            self.operator in (None, store.operator)
            and self.partition in (None, store.partition)
            and self.store in (None, store.name)
        )


def inspect(
    checkpoint: Annotated[str, typer.Argument(help="A query's checkpointLocation.")],
    operator: Annotated[int | None, typer.Option(help="Number of a stateful operator.")] = None,
    partition: Annotated[int | None, typer.Option(help="Number of a partition.")] = None,
    store: Annotated[str | None, typer.Option(help="Name of a store; joins have four.")] = None,
    version: Annotated[
        int | None, typer.Option(help="State after batch VERSION - 1; the last one if left out.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the state to this file: .parquet or .arrow.")
    ] = None,
    head: Annotated[int, typer.Option(min=0, help="How many rows to print.")] = 20,
) -> None:
    """List the stores of a checkpoint, or show the state in one at any version.

    Files are read as they are: no Spark, and nothing in the checkpoint changes. A store is chosen
    by operator, partition and name; several partitions of it are shown as one table.

    \b
        floe inspect /data/checkpoints/orders
        floe inspect /data/checkpoints/orders --operator 0 --version 7
        floe inspect /data/checkpoints/orders --partition 3 --export state.parquet
    """
    if export is not None and export.suffix not in (PARQUET, ARROW):
        raise InvalidRequest(f"--export {export}: name a file that ends in {PARQUET} or {ARROW}.")
    root = _local(checkpoint)
    selection = Selection(operator, partition, store)
    found = [files for files in _stores(root) if selection.has(files)]
    if not found:
        raise InvalidRequest(f"{root} has no such store; `floe inspect {root}` lists them.")
    wants_state = bool(selection) or version is not None or export is not None or len(found) == 1
    if not wants_state:
        _list(root, found)
        return
    state = _state(root, _one_store(found), version)
    if export is None:
        _show(state, head)
    else:
        _write(state, export)
        typer.echo(f"{state.num_rows} rows written to {export}")


def _local(location: str) -> Path:
    if "://" in location and not location.startswith("file:"):
        raise InvalidRequest(
            f"{location} is not local: copy `offsets`, `commits` and `state` of it to a local"
            " directory and name that."
        )
    return Path(location.removeprefix("file://").removeprefix("file:"))


def _stores(root: Path) -> list[StoreFiles]:
    """The stores of a checkpoint that Floe wrote. Raises InvalidRequest for any other."""
    from floe.checkpoint.reading import stores
    from floe.cli.offset_log import read_batch, recorded_batches
    from floe.session import PROVIDER_CLASS

    batches = recorded_batches(root)
    if not batches:
        raise InvalidRequest(f"{root} has no batch yet, and so no state.", path=str(root))
    provider = read_batch(root, batches[-1]).provider_class
    if provider not in (None, PROVIDER_CLASS):
        raise InvalidRequest(
            f"{root} is bound to {provider}, not to Floe: its state can be read with"
            ' spark.read.format("statestore").',
            path=str(root),
            provider=provider,
        )
    found = stores(root)
    if not found:
        raise InvalidRequest(f"{root} holds no state of Floe: its query keeps none.")
    return found


def _one_store(found: list[StoreFiles]) -> list[StoreFiles]:
    """The partitions of one store. Raises InvalidRequest when there are several stores."""
    chosen = {(files.operator, files.name) for files in found}
    if len(chosen) > 1:
        choices = ", ".join(
            f"--operator {number} --store {name}" for number, name in sorted(chosen)
        )
        raise InvalidRequest(f"That is more than one store. Choose one of: {choices}.")
    return found


# -- the list ------------------------------------------------------------------------------------


def _list(root: Path, found: list[StoreFiles]) -> None:
    """A row a store. One that cannot be read is named below, and the exit code is 1."""
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for title in ("operator", "partition"):
        table.add_column(title, justify="right")
    table.add_column("store")
    for title in ("versions", "snapshots", "deltas", "rows", "state", "files"):
        table.add_column(title, justify="right")
    damages = []
    for files in found:
        try:
            cells = _cells(root, files)
        except FloeError as error:
            cells = ["-", "-", "-", "-", "damaged", "-"]
            damages.append(error.message)
        table.add_row(str(files.operator), str(files.partition), files.name, *cells)
    _print(table)
    for damage in damages:
        typer.echo(f"floe: {damage}", err=True)
    if damages:
        raise typer.Exit(1)


def _cells(root: Path, files: StoreFiles) -> list[str]:
    from rich.filesize import decimal

    from floe.checkpoint.reading import held_versions

    names = files.source.names()
    held = held_versions(files.source)
    rows = _rows(root, files, None)
    return [
        f"{held[0]}..{held[-1]}" if held else "none",
        str(sum(named.kind == "manifest" for named in names)),
        str(len({named.version for named in names if named.kind == "delta"})),
        f"{len(rows):,}",
        decimal(int(rows.key_len.sum()) + int(rows.value_len.sum())),
        decimal(files.file_bytes()),
    ]


# -- the state of a store --------------------------------------------------------------------------


def _state(root: Path, partitions: list[StoreFiles], version: int | None) -> pa.Table:
    """The state of a version over all chosen partitions, with a column that names them."""
    import pyarrow as pa

    from floe.checkpoint.reading import table

    schema = _schema(partitions[0])
    parts = []
    for files in partitions:
        part = table(_rows(root, files, version), schema)
        number = pa.repeat(pa.scalar(files.partition, pa.int32()), part.num_rows)
        parts.append(part.add_column(0, "partition_id", number))
    return pa.concat_tables(parts, promote_options="permissive")


def _rows(root: Path, files: StoreFiles, version: int | None) -> Rows:
    from floe.checkpoint.reading import held_versions, state

    if version is None:
        held = held_versions(files.source)
        committed = [v for v in held if (root / "commits" / str(v - 1)).exists()]
        version = (committed or held or [0])[-1]
    return state(files.source, files.label, version, _commit_id(root, files, version))


def _commit_id(root: Path, files: StoreFiles, version: int) -> UUID | None:
    """The commit that Spark means by a version, where its commit log says so (format v2).

    The log lists the ids of all stores of a partition; those of this store are in its file names.
    """
    try:
        text = (root / "commits" / str(version - 1)).read_text(encoding="utf-8")
        ids = json.loads(text.splitlines()[1])["stateUniqueIds"]
        ours = {str(named.id) for named in files.source.names() if named.version == version}
        return next(UUID(id) for id in ids[str(files.operator)][files.partition] if id in ours)
    except (OSError, LookupError, TypeError, ValueError, StopIteration):
        return None


def _schema(files: StoreFiles) -> StateSchema | None:
    from floe.format.state_schema import parse

    try:
        return parse(files.schema_file.read_bytes())
    except OSError:
        return None


def _write(state: pa.Table, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if path.suffix == PARQUET:
            pyarrow.parquet.write_table(state, path)
        else:
            with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, state.schema) as file:
                file.write_table(state)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error}", path=str(path)) from error


def _show(state: pa.Table, head: int) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in state.column_names:
        table.add_column(name, overflow="fold")
    for row in zip(*map(_values, state.slice(0, head).columns), strict=True):
        table.add_row(*map(_shown, row))
    _print(table)
    if state.num_rows > head:
        typer.echo(f"{head} of {state.num_rows} rows")


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column; times that Python has no word for are numbers, as they are stored."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(f"int{column.type.bit_width}").to_pylist())


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value[:SHOWN_BYTES].hex() + ("…" if len(value) > SHOWN_BYTES else "")
    return "null" if value is None else str(value)


def _print(table: Table) -> None:
    """On a terminal within its width; into a pipe whatever the width, so that nothing is cut."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        unlimited = console.options.update(max_width=100_000)
        console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    console.print(table)
