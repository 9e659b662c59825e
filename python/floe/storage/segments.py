"""Segment files: the log on disk, blocks one after the other behind a 64-byte header.

A segment is written by one process, sealed once, and never changes afterwards. Its bytes and CRC-32
are known when it is sealed; a manifest repeats them, so that a reader of a sealed segment checks
the file as a whole, and a reader of one that was never sealed keeps the blocks that are whole.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from floe.errors import Corrupt, InvalidRequest, Unavailable
from floe.format import block
from floe.format.block import Block
from floe.format.rows import Rows
from floe.format.words import U64

__all__ = ["SealedSegment", "SegmentWriter", "read"]

# Part of the on-disk format.
_MAGIC = b"FLOESEG1"
_FORMAT = 1
_HEADER = struct.Struct("<8sII 48x")


@dataclass(frozen=True, slots=True, eq=False)
class SealedSegment:
    """A finished file, and the word at which each of its records begins."""

    number: int
    path: Path
    bytes: int
    crc: int
    words: U64


class SegmentWriter:
    """Appends blocks to a new segment."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        header = _HEADER.pack(_MAGIC, _FORMAT, number)
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - lives until `seal`
        self._words: list[U64] = []
        self._crc = 0
        self.bytes = 0
        self._write(header)

    def append(self, rows: Rows) -> U64:
        """Writes one block; the markers of its records."""
        data, starts = block.encode(rows)
        words = starts + np.uint64(self.bytes // 8)
        self._write(data)
        self._words.append(words)
        return block.marker(self.number, words)

    def seal(self) -> SealedSegment:
        os.fsync(self._file.fileno())
        self._file.close()
        words = np.concatenate(self._words) if self._words else np.empty(0, np.uint64)
        return SealedSegment(self.number, self.path, self.bytes, self._crc, words)

    def abandon(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise Unavailable(
                f"cannot write {self.path}: {error.strerror}; free space there, or set"
                " spark.sql.streaming.stateStore.floe.localDir to a larger disk",
                path=str(self.path),
            ) from error
        self._crc = zlib.crc32(data, self._crc)
        self.bytes += len(data)


def read(
    path: Path, *, name: str, sealed: tuple[int, int] | None = None
) -> Iterator[tuple[Block, U64]]:
    """The blocks of a segment with the words of their records in the file.

    `sealed` is (bytes, crc) as a manifest says; such a file must match to the last bit. Without it
    reading ends in front of the first block that is not whole.
    """
    data = memoryview(path.read_bytes())
    if sealed is not None and (len(data), zlib.crc32(data)) != sealed:
        raise Corrupt(
            f"{name} is damaged: its size or checksum is not what its manifest says", path=name
        )
    if len(data) < _HEADER.size:
        if sealed is None:
            return
        raise Corrupt(f"{name} is truncated", path=name)
    magic, format_version, _ = _HEADER.unpack(data[: _HEADER.size])
    if magic != _MAGIC or format_version > _FORMAT:
        raise InvalidRequest(
            f"{name} is not a segment of a format that this Floe reads: it has"
            f" {magic.decode('ascii', 'replace')}/{format_version}, not"
            f" {_MAGIC.decode()}/{_FORMAT}; use the Floe that wrote it, or a newer one",
            path=name,
        )
    at = _HEADER.size
    while at < len(data):
        found = block.decode(data[at:], trusted=sealed is not None)
        if found is None:
            if sealed is not None:
                raise Corrupt(f"{name} has no whole block at byte {at}", path=name)
            return
        yield found, found.starts + np.uint64(at // 8)
        at += found.size
