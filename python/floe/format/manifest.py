"""A manifest: a snapshot's list of segments, as an Arrow IPC stream with a trailer.

One row per segment: number (unique in the store's lineage, the high half of a marker), name, bytes
and CRC-32 of the file, its records, and which of them are live at this version (a bit a record).
The trailer's `snapshot` names the snapshot before it in the lineage.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floe.errors import Corrupt
from floe.format import trailer
from floe.format.trailer import Trailer

__all__ = ["SegmentEntry", "decode", "encode"]

# Part of the on-disk format.
SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("bytes", pa.uint64(), nullable=False),
        pa.field("crc", pa.uint32(), nullable=False),
        pa.field("records", pa.uint32(), nullable=False),
        pa.field("live", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentEntry:
    """A segment as a manifest knows it."""

    number: int
    name: str
    bytes: int
    crc: int
    live: npt.NDArray[np.bool_]

    @property
    def live_ratio(self) -> float:
        return float(self.live.mean()) if len(self.live) else 0.0


def encode(head: Trailer, segments: list[SegmentEntry]) -> bytes:
    body = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")  # bitmaps are mostly ones
    with pa.ipc.new_stream(body, SCHEMA, options=options) as stream:
        stream.write_batch(
            pa.RecordBatch.from_arrays(
                [
                    pa.array([s.number for s in segments], pa.uint32()),
                    pa.array([s.name for s in segments], pa.string()),
                    pa.array([s.bytes for s in segments], pa.uint64()),
                    pa.array([s.crc for s in segments], pa.uint32()),
                    pa.array([len(s.live) for s in segments], pa.uint32()),
                    pa.array([np.packbits(s.live).tobytes() for s in segments], pa.binary()),
                ],
                schema=SCHEMA,
            )
        )
    return trailer.sealed(trailer.MANIFEST, head, bytes(body.getvalue()))


def decode(data: bytes, name: str) -> tuple[Trailer, list[SegmentEntry]]:
    """Raises Corrupt naming the file."""
    head, body = trailer.parse(trailer.MANIFEST, data, name)
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"{name} is damaged: {error}", path=name) from error
    return head, [
        SegmentEntry(
            row["number"],
            row["name"],
            row["bytes"],
            row["crc"],
            np.unpackbits(np.frombuffer(row["live"], np.uint8), count=row["records"]).astype(bool),
        )
        for row in table.to_pylist()
    ]
