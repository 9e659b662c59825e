"""From a version that Spark asks for to the files that make it.

A delta names its parent by id, so the way back is a chain that no retry, second action or foreign
executor can redirect: a version that was committed twice is two files, and each successor says on
which one it stands. The chain ends at a version that the shim still has in memory, at a snapshot of
a commit *in the chain*, or at version 0, which is empty and has no file.
"""

from dataclasses import dataclass, field
from uuid import UUID

from floe.checkpoint.source import FileSource
from floe.errors import InvalidRequest
from floe.format import delta, trailer
from floe.format.rows import Rows
from floe.format.trailer import Trailer
from floe.storage import paths

__all__ = ["Commit", "Lineage", "Point", "resolve"]

Point = tuple[int, UUID | None]  # a version and the commit that made it; version 0 has none


@dataclass(frozen=True, slots=True)
class Commit:
    """A delta, read and checked."""

    trailer: Trailer
    batches: list[Rows]


@dataclass(slots=True)
class Lineage:
    """What to do to reach a version: start from `base`, then replay `commits` in order."""

    base: Point
    in_memory: bool
    snapshot: Point | None  # the last snapshot in the lineage
    commits: list[Commit] = field(default_factory=list)


def resolve(
    source: FileSource, store: str, version: int, id: UUID | None, bases: list[Point]
) -> Lineage:
    """The lineage of `version`; `bases` are the versions in the shim's memory."""
    if version > 0:
        _prefetch(source, version)
    at: Point = (version, id if version > 0 else None)
    if version > 0 and id is None:
        at = (version, _newest(source, store, version))
    commits: list[Commit] = []
    while True:
        if at in bases or at[0] == 0 or at[1] is None:  # None: a store begun empty at a version
            base_version, base_id = at
            snapshot = commits[-1].trailer.snapshot if commits else None
            lineage = Lineage(at, at in bases, snapshot)
            break
        base_version, base_id = at
        assert base_id is not None
        if source.exists(paths.manifest(base_version, base_id)):
            lineage = Lineage(at, False, at)
            break
        commit = _read(source, store, base_version, base_id)
        commits.append(commit)
        at = (base_version - 1, commit.trailer.parent)
    lineage.commits = commits[::-1]
    return lineage


def _newest(source: FileSource, store: str, version: int) -> UUID:
    """The commit that stands for a version which Spark names without an id."""
    alias = paths.delta_alias(version)
    if source.exists(alias):
        _refuse_foreign(source, store, alias)
        found = delta.decode(source.read(alias), source.shown(alias))[0]
        if found.version != version:
            raise InvalidRequest(f"store {store}: {alias} holds version {found.version}")
        return found.id
    ids = {n.id for n in source.names() if n.version == version and n.id is not None}
    if len(ids) == 1:
        (only,) = ids
        return only
    raise _missing(source, store, version, None, ambiguous=len(ids) > 1)


def _read(source: FileSource, store: str, version: int, id: UUID) -> Commit:
    name = paths.delta(version, id)
    if not source.exists(name):
        name = paths.delta_alias(version)
        if not source.exists(name):
            raise _missing(source, store, version, id, ambiguous=False)
    head, batches = delta.decode(source.read(name), source.shown(name))
    if (head.version, head.id) != (version, id):
        raise _missing(source, store, version, id, ambiguous=False)
    return Commit(head, batches)


def _refuse_foreign(source: FileSource, store: str, alias: str) -> None:
    """Spark's in-memory provider names its files as format v1 does."""
    ours = any(named.id is not None for named in source.names())
    if not ours and not trailer.is_ours(source.read(alias)):
        raise InvalidRequest(
            f"store {store}: {source.shown(alias)} was not written by Floe: another provider's"
            " checkpoint. Start with a new checkpointLocation, or go on with the provider that"
            " wrote it",
            store=store,
        )


def _prefetch(source: FileSource, version: int) -> None:
    """Asks for everything a load is likely to read in one go, not file by file."""
    if source.listing is None:
        return
    names = [n for n in source.names() if n.version is not None and n.version <= version]
    newest = max((n.version or 0 for n in names if n.kind == "manifest"), default=0)
    source.require(
        [
            n.name
            for n in names
            if n.version is not None
            and (
                (n.kind == "manifest" and n.version == newest)
                or (n.kind == "delta" and n.version > newest)
            )
        ]
    )


def _missing(
    source: FileSource, store: str, version: int, id: UUID | None, *, ambiguous: bool
) -> InvalidRequest:
    versions = sorted({n.version for n in source.names() if n.version is not None})
    what = f"version {version}" + (f" with id {id}" if id else "")
    if not versions and source.has_strangers():
        return InvalidRequest(
            f"store {store}: {what} cannot be loaded, {source.shown()} holds files of another"
            " provider and none of Floe. Start with a new checkpointLocation, or go on with the"
            " provider that wrote it",
            store=store,
            version=version,
        )
    held = f"versions {versions[0]} to {versions[-1]}" if versions else "no version"
    if ambiguous:
        return InvalidRequest(
            f"store {store}: {what} was committed more than once and no id says which one is"
            " meant: set spark.sql.streaming.stateStore.checkpointFormatVersion=2 in the session"
            " that reads",
            store=store,
            version=version,
        )
    return InvalidRequest(
        f"store {store}: {what} cannot be loaded, its file is not in {source.shown()}"
        f" ({held} found there)",
        store=store,
        version=version,
    )
