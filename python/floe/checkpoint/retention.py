"""Which durable files no version that Spark may still ask for needs.

Let `oldest` be the oldest version to keep. The snapshot to start from is the newest one at or below
it in the current lineage; every older delta and manifest is past use, in whatever lineage, and so
is every segment that no remaining manifest names. Files that are not ours are never considered.
"""

from floe.checkpoint.lineage import Point
from floe.checkpoint.source import FileSource
from floe.format import manifest
from floe.storage import paths
from floe.storage.paths import Named

__all__ = ["deletable"]


def deletable(
    source: FileSource, last_snapshot: Point | None, oldest: int, min_versions: int
) -> list[str]:
    """Names of files that may go; empty when fewer than `min_versions` versions would."""
    base = _base(source, last_snapshot, oldest)
    if base is None:
        return []
    names = source.names()
    old = [n for n in names if n.version is not None and n.version < base[0]]
    if len({n.version for n in old}) < max(1, min_versions):
        return []
    used = _segments(source, [n for n in names if n.kind == "manifest" and n not in old])
    # A segment that nobody names yet may belong to a snapshot that is being uploaded right now:
    # only those that a manifest leaving with this call named are known to be past use.
    past = _segments(source, [n for n in old if n.kind == "manifest"]) - used
    orphans = [n.name for n in names if n.kind == "segment" and n.name in past]
    # Manifests first: a snapshot without its manifest is none, one without its segments is a trap.
    manifests = [n.name for n in old if n.kind == "manifest"]
    deltas = [n.name for n in old if n.kind == "delta"]
    return [*manifests, *deltas, *orphans]


def _segments(source: FileSource, manifests: list[Named]) -> set[str]:
    """Names of all segments that the manifests name."""
    source.require([named.name for named in manifests])
    found: set[str] = set()
    for named in manifests:
        path = source.shown(named.name)
        found |= {entry.name for entry in manifest.decode(source.read(named.name), path)[1]}
    return found


def _base(source: FileSource, last_snapshot: Point | None, oldest: int) -> Point | None:
    """The newest snapshot of the lineage at or below `oldest`, if it is really there."""
    at = last_snapshot
    while at is not None:
        version, id = at
        if id is None or not source.exists(paths.manifest(version, id)):
            return None
        if version <= oldest:
            return at
        name = paths.manifest(version, id)
        at = manifest.decode(source.read(name), source.shown(name))[0].snapshot
    return None
