"""The only module that spells the names of durable files.

In a store's directory `<checkpoint>/state/<operator>/<partition>[/<store>]`:

    <version>_<id>.delta       one commit
    <version>.delta            format v1: the commit that Spark will ask for by version alone
    <version>_<id>.manifest    a snapshot, complete once this file is there
    <id>-<number>.segment      a segment of the log that manifests share

Everything else in that directory is Spark's (`_metadata`, checksum files) and is left alone.
"""

import re
from dataclasses import dataclass
from uuid import UUID

__all__ = ["Named", "delta", "delta_alias", "manifest", "parse", "segment"]

# Handed to the shim, which names the delta of a commit that changed nothing by itself.
DELTA_PATTERN = "{version}_{id}.delta"
ALIAS_PATTERN = "{version}.delta"

_NUMBER = "[1-9][0-9]*"  # as we write numbers: what is spelled differently is not ours
_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(
    rf"(?P<version>{_NUMBER})(?:_(?P<id>{_ID}))?\.(?P<kind>delta|manifest)"
    rf"|(?P<writer>{_ID})-{_NUMBER}\.segment"
)


@dataclass(frozen=True, slots=True)
class Named:
    """A name taken apart; `id` is None for the alias of format v1, `version` for segments."""

    name: str
    kind: str
    version: int | None
    id: UUID | None


def delta(version: int, id: UUID) -> str:
    return DELTA_PATTERN.format(version=version, id=id)


def delta_alias(version: int) -> str:
    return ALIAS_PATTERN.format(version=version)


def manifest(version: int, id: UUID) -> str:
    return f"{version}_{id}.manifest"


def segment(writer: UUID, number: int) -> str:
    return f"{writer}-{number}.segment"


def parse(name: str) -> Named | None:
    """The parts of a name of ours, None for anybody else's file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match["kind"] is None:
        return Named(name, "segment", None, UUID(match["writer"]))
    id = UUID(match["id"]) if match["id"] else None
    if match["kind"] == "manifest" and id is None:
        return None
    return Named(name, match["kind"], int(match["version"]), id)
