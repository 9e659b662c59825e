"""The last 96 bytes of a delta and of a manifest: who this file is, and that it is whole.

    0  magic            8 bytes, FLOEDLT1 or FLOEMAN1
    8  format version   u32        12 unused u32
    16 version          u64        the state version this file completes
    24 id               16 bytes   this commit's id; the checkpoint id of Spark's format v2
    40 parent id        16 bytes   the commit it stands on, zero when it stands on version 0
    56 snapshot version u64        the last snapshot in its lineage, 0 when there is none
    64 snapshot id      16 bytes
    80 body bytes       u64        everything before the trailer
    88 CRC-32           u32        of everything before this field
    92 end magic        4 bytes, "FLOE"

The body is an Arrow IPC stream; readers of Arrow stop at its end marker and never see the trailer.
Deltas are formed with the fields from `version` to `snapshot id` and the CRC left zero; the shim
fills them in when it knows that this is the commit it writes (`SEAL` names their places), so that a
commit that changed nothing needs no Python at all.
"""

import struct
import zlib
from dataclasses import dataclass
from uuid import UUID

from floe.errors import Corrupt, InvalidRequest

__all__ = ["DELTA", "MANIFEST", "SEAL", "SIZE", "Trailer", "blank", "parse", "sealed"]

# Part of the on-disk format.
DELTA = b"FLOEDLT1"
MANIFEST = b"FLOEMAN1"
FORMAT = 1
_END = b"FLOE"
_STRUCT = struct.Struct("<8sII Q16s16s Q16s Q I4s")
SIZE = _STRUCT.size
_CRC_AT = 88

SEAL = {
    "version": 16,
    "id": 24,
    "parent": 40,
    "snapshotVersion": 56,
    "snapshotId": 64,
    "crc": _CRC_AT,
    "bytes": SIZE,
}

_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Trailer:
    """A file's place in the history of its store."""

    version: int
    id: UUID
    parent: UUID | None
    snapshot: tuple[int, UUID] | None


def blank(magic: bytes, body_bytes: int) -> bytes:
    """A trailer for the shim to fill in."""
    zero = bytes(16)
    return _STRUCT.pack(magic, FORMAT, 0, 0, zero, zero, 0, zero, body_bytes, 0, _END)


def sealed(magic: bytes, trailer: Trailer, body: bytes) -> bytes:
    """`body` with its complete trailer behind it."""
    version, id = trailer.snapshot or (0, _NOBODY)
    packed = _STRUCT.pack(
        magic,
        FORMAT,
        0,
        trailer.version,
        trailer.id.bytes,
        (trailer.parent or _NOBODY).bytes,
        version,
        id.bytes,
        len(body),
        0,
        _END,
    )
    crc = zlib.crc32(packed[:_CRC_AT], zlib.crc32(body))
    return body + packed[:_CRC_AT] + struct.pack("<I", crc) + _END


def is_ours(data: bytes) -> bool:
    """Whether this was ever a file of Floe, damaged or not: the head of an Arrow stream will do."""
    return data[:4] == b"\xff\xff\xff\xff" or _END in data[-SIZE:]


def parse(magic: bytes, data: bytes | memoryview, name: str) -> tuple[Trailer, memoryview]:
    """The trailer and the body, after checking that the file is whole.

    Raises Corrupt for a damaged file and InvalidRequest for one of a format this version does not
    know; both name the file.
    """
    view = memoryview(data)
    if len(view) < SIZE or bytes(view[-4:]) != _END:
        raise Corrupt(f"{name} is truncated or damaged: its trailer is missing", path=name)
    fields = _STRUCT.unpack(view[-SIZE:])
    found, format_version = fields[0], fields[1]
    if found[:4] == _END and (found != magic or format_version > FORMAT):
        raise InvalidRequest(
            f"{name} has format {found.decode('ascii', 'replace')}/{format_version}, this Floe"
            f" reads {magic.decode()}/{FORMAT}: use the Floe that wrote it, or a newer one",
            path=name,
        )
    crc = zlib.crc32(view[: len(view) - SIZE + _CRC_AT])
    if found != magic or fields[9] != crc or fields[8] != len(view) - SIZE:
        raise Corrupt(f"{name} is damaged: its checksum does not match its bytes", path=name)
    _, _, _, version, id, parent, snapshot_version, snapshot_id = fields[:8]
    return (
        Trailer(
            version,
            UUID(bytes=id),
            UUID(bytes=parent) if any(parent) else None,
            (snapshot_version, UUID(bytes=snapshot_id)) if snapshot_version else None,
        ),
        view[: len(view) - SIZE],
    )
