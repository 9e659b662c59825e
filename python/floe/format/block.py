"""Blocks: the unit that the log is written in.

    header     64 bytes: magic, CRC-32 of everything behind it, block bytes, records, flags,
               group hash, back pointer (marker of the group's previous block), expiry (the latest
               of its records), directory bytes
    directory  24 bytes a record: word offset in the block, key and value length, family, op, expiry
    records    [hash][key][value], each a multiple of 8 bytes

A marker names a record: the segment's number in the high half, the word offset in the segment's
file in the low half. It is never 0, because no record lies in front of a header.

A block is whole or it is not there: a torn write leaves a length or a CRC that does not match, and
reading a log that was never sealed stops in front of it.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from floe.format.layout import NEVER
from floe.format.rows import Rows
from floe.format.words import U64, gather

__all__ = ["FULL", "Block", "decode", "encode", "marker", "marker_segment", "marker_word"]

# Part of the on-disk format.
_MAGIC = b"FLBK"
_HEADER = struct.Struct("<4sI Q II QQqQ 8x")
HEADER_BYTES = _HEADER.size
DIRECTORY = np.dtype(
    [
        ("word", "<u4"),
        ("key_len", "<u4"),
        ("value_len", "<u4"),
        ("family", "<u2"),
        ("op", "u1"),
        ("spare", "u1"),
        ("expiry", "<i8"),
    ]
)
FULL = 1  # nothing behind this block belongs to the group


def encode(
    rows: Rows, *, group_hash: int = 0, back: int = 0, flags: int = FULL
) -> tuple[bytes, U64]:
    """The block's bytes, and the word in it at which each record begins."""
    records, starts = rows.records()
    directory = np.zeros(len(rows), DIRECTORY)
    starts = starts + np.uint64((HEADER_BYTES + directory.nbytes) // 8)
    directory["word"] = starts
    directory["key_len"] = rows.key_len
    directory["value_len"] = rows.value_len
    directory["family"] = rows.family
    directory["op"] = rows.op
    directory["expiry"] = rows.expiry
    body = directory.tobytes() + records.tobytes()
    expiry = int(rows.expiry.max()) if len(rows) else NEVER
    header = _HEADER.pack(
        _MAGIC,
        0,
        HEADER_BYTES + len(body),
        len(rows),
        flags,
        group_hash,
        back,
        expiry,
        directory.nbytes,
    )
    crc = zlib.crc32(body, zlib.crc32(header[8:]))
    return _MAGIC + struct.pack("<I", crc) + header[8:] + body, starts


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block as it lies in its file; records are found through the directory, not copied."""

    directory: npt.NDArray[np.void]
    words: U64

    def __len__(self) -> int:
        return len(self.directory)

    @property
    def size(self) -> int:
        return self.words.nbytes

    @property
    def starts(self) -> U64:
        """The word at which each record begins."""
        return self.directory["word"].astype(np.uint64)

    @property
    def records(self) -> U64:
        """All records, one after the other."""
        return self.words[(HEADER_BYTES + self.directory.nbytes) // 8 :]

    def rows(self) -> Rows:
        directory, words, starts = self.directory, self.words, self.starts
        key_words = (directory["key_len"].astype(np.uint64) + np.uint64(7)) >> np.uint64(3)
        value_words = (directory["value_len"].astype(np.uint64) + np.uint64(7)) >> np.uint64(3)
        return Rows(
            directory["op"],
            directory["family"],
            words[starts],
            directory["expiry"],
            directory["key_len"],
            directory["value_len"],
            gather(words, starts + np.uint64(1), key_words),
            gather(words, starts + np.uint64(1) + key_words, value_words),
        )


def decode(data: memoryview, *, trusted: bool = False) -> Block | None:
    """The block at the front of `data`.

    None when no whole block is there. `trusted` skips the checksum, for bytes that a checksum over
    the whole file has covered.
    """
    if len(data) < HEADER_BYTES:
        return None
    magic, crc, size, count, _, _, _, _, directory_bytes = _HEADER.unpack(data[:HEADER_BYTES])
    if magic != _MAGIC or directory_bytes != count * DIRECTORY.itemsize:
        return None
    if not HEADER_BYTES + directory_bytes <= size <= len(data):  # zeroes may follow a torn magic
        return None
    if not trusted and zlib.crc32(data[8:size]) != crc:
        return None
    directory = np.frombuffer(data, DIRECTORY, count, HEADER_BYTES)
    return Block(directory, np.frombuffer(data, np.uint64, size // 8))


def marker(segment: int, words: U64) -> U64:
    return (np.uint64(segment) << np.uint64(32)) | words


def marker_segment(markers: U64) -> npt.NDArray[np.uint32]:
    return (markers >> np.uint64(32)).astype(np.uint32)


def marker_word(markers: U64) -> npt.NDArray[np.uint32]:
    return (markers & np.uint64(0xFFFFFFFF)).astype(np.uint32)
