"""UnsafeRows as Arrow columns: what Spark's binary rows say, given their schema.

    null bits    8 bytes for every 64 fields, bit i of word i/64 is set when field i is null
    slots        8 bytes a field: the value, or for variable length (offset << 32 | bytes)
    the rest     what slots point to: offsets count from the start of the row, pieces fill words

A nested struct is an UnsafeRow in such a piece; one level of it is flattened into columns of its
own. Arrays, maps and deeper structs stay the bytes they are. There is no loop over rows: a column
of slots is one gather, a column of strings one gather of bytes.

Rows that cannot be of the schema raise Misfit; nothing is read outside of a row.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floe.format.words import U64, spans

__all__ = ["Field", "Misfit", "binary_column", "columns"]

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

# Spark's names of flat types of fixed width, as its schemas spell them in JSON.
_FIXED: dict[str, tuple[str, pa.DataType]] = {
    "byte": ("<i1", pa.int8()),
    "short": ("<i2", pa.int16()),
    "integer": ("<i4", pa.int32()),
    "long": ("<i8", pa.int64()),
    "float": ("<f4", pa.float32()),
    "double": ("<f8", pa.float64()),
    "date": ("<i4", pa.date32()),
    "timestamp": ("<i8", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("<i8", pa.timestamp("us")),
}
_PATTERNS: tuple[tuple[re.Pattern[str], tuple[str, pa.DataType]], ...] = (
    (re.compile(r"time\(\d+\)"), ("<i8", pa.time64("ns"))),
    (re.compile(r"interval (day|hour|minute|second).*"), ("<i8", pa.duration("us"))),
    (re.compile(r"interval (year|month).*"), ("<i4", pa.int32())),  # months
)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_STRING = re.compile(r"string.*|(var)?char\(\d+\)")
_LONG_DIGITS = 18  # decimals of up to this precision are a long in their slot

# Gathering bytes takes an index of 8 bytes for each: chunks keep it small.
_CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 1 << 16


class Misfit(ValueError):
    """The rows are not of this schema."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a Spark schema; `type` is as in its JSON: a name, or an object when nested."""

    name: str
    type: Any

    @classmethod
    def of_struct(cls, struct: Any) -> "tuple[Field, ...]":
        """The fields of a struct type. Raises ValueError when it is none."""
        if not isinstance(struct, dict) or struct.get("type") != "struct":
            raise ValueError(f"not a struct: {struct!r}")
        return tuple(cls(field["name"], field["type"]) for field in struct["fields"])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows somewhere in `words`; those that are not `valid` are null as a whole."""

    words: U64
    starts: Ints  # in words
    lengths: Ints  # in bytes
    valid: Bools
    bitset: int  # words of null bits

    @classmethod
    def of(
        cls, words: U64, starts: Ints, lengths: Ints, valid: Bools, fields: tuple[Field, ...]
    ) -> "_Rows":
        bitset = (len(fields) + 63) // 64
        if (lengths[valid] < (bitset + len(fields)) * 8).any():
            raise Misfit(f"a row is too short for {len(fields)} fields")
        return cls(words, starts, lengths, valid, bitset)

    def word(self, number: int) -> U64:
        """The word of that number of every row, 0 for rows that are null."""
        if not self.valid.any():
            return np.zeros(len(self.starts), np.uint64)
        picked = self.words[np.where(self.valid, self.starts + number, 0)]
        return np.where(self.valid, picked, np.uint64(0))

    def has(self, field: int) -> Bools:
        bits = self.word(field // 64) >> np.uint64(field % 64)
        present: Bools = self.valid & ((bits & np.uint64(1)) == 0)
        return present

    def slot(self, field: int) -> U64:
        return self.word(self.bitset + field)

    def pieces(self, field: int, valid: Bools) -> tuple[Ints, Ints]:
        """Where a field's bytes begin in `words` viewed as bytes, and how many there are."""
        slot = np.where(valid, self.slot(field), np.uint64(0))
        offsets = (slot >> np.uint64(32)).astype(np.int64)
        sizes = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64)
        if (valid & (offsets + sizes > self.lengths)).any():
            raise Misfit("a field points outside of its row")
        return self.starts * 8 + offsets, sizes


def columns(
    fields: tuple[Field, ...], lengths: npt.NDArray[np.uint32], words: U64, prefix: str
) -> dict[str, pa.ChunkedArray]:
    """The fields of rows that lie one after the other in `words`, by `prefix` and name."""
    flat = list(_flattened(fields, prefix))
    parts: list[list[pa.Array]] = [[] for _ in flat]
    for starts, sizes in _chunks(lengths):
        rows = _Rows.of(words, starts, sizes, np.ones(len(starts), bool), fields)
        for part, array in zip(parts, _decoded(rows, fields), strict=True):
            part.append(array)
    names = _distinct([name for name, _ in flat])
    return {
        name: _column(part, _arrow_type(type))
        for name, (_, type), part in zip(names, flat, parts, strict=True)
    }


def binary_column(lengths: npt.NDArray[np.uint32], words: U64) -> pa.Array:
    """Rows as the bytes they are; words are not copied."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(words)]
    )


def _chunks(lengths: npt.NDArray[np.uint32]) -> Iterator[tuple[Ints, Ints]]:
    """(first words, bytes) of rows, a bounded number of bytes and rows at a time."""
    sizes = lengths.astype(np.int64)
    if (sizes % 8).any():
        raise Misfit("a row is no multiple of 8 bytes")
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _CHUNK_ROWS)
        yield (ends[start:stop] - sizes[start:stop]) // 8, sizes[start:stop]
        start = stop


def _flattened(
    fields: tuple[Field, ...], prefix: str, *, nested: bool = True
) -> Iterator[tuple[str, Any]]:
    """Names and types of the columns that fields become, in the order of `_decoded`."""
    for field in fields:
        name = f"{prefix}_{field.name}"
        if nested and _is_struct(field.type):
            yield from _flattened(Field.of_struct(field.type), name, nested=False)
        else:
            yield name, field.type


def _distinct(names: list[str]) -> list[str]:
    """Spark's fields may share a name, Arrow's columns better not: later ones get a number."""
    used: set[str] = set()
    for at, name in enumerate(names):
        number = 1
        while names[at] in used:
            number += 1
            names[at] = f"{name}_{number}"
        used.add(names[at])
    return names


def _decoded(rows: _Rows, fields: tuple[Field, ...], *, nested: bool = True) -> Iterator[pa.Array]:
    for number, field in enumerate(fields):
        valid = rows.has(number)
        if nested and _is_struct(field.type):
            inner = Field.of_struct(field.type)
            at, sizes = rows.pieces(number, valid)
            if (at[valid] % 8).any():
                raise Misfit("a nested row is not aligned")
            inside = _Rows.of(rows.words, at // 8, sizes, valid, inner)
            yield from _decoded(inside, inner, nested=False)
        else:
            yield _array(rows, number, valid, field.type)


def _is_struct(type: Any) -> bool:
    return isinstance(type, dict) and type.get("type") == "struct"


def _arrow_type(type: Any) -> pa.DataType:
    if not isinstance(type, str):
        return pa.binary()
    if type == "void":
        return pa.null()
    if type == "boolean":
        return pa.bool_()
    if type in _FIXED:
        return _FIXED[type][1]
    if match := _DECIMAL.fullmatch(type):
        return pa.decimal128(int(match[1]), int(match[2]))
    for pattern, (_, arrow) in _PATTERNS:
        if pattern.fullmatch(type):
            return arrow
    return pa.string() if _STRING.fullmatch(type) else pa.binary()


def _array(rows: _Rows, number: int, valid: Bools, type: Any) -> pa.Array:
    arrow = _arrow_type(type)
    if pa.types.is_null(arrow):
        return pa.nulls(len(valid))
    if pa.types.is_binary(arrow) or pa.types.is_string(arrow):
        return _bytes(rows, number, valid)
    if pa.types.is_decimal(arrow):
        data = _decimals(rows, number, valid, arrow.precision)
    elif pa.types.is_boolean(arrow):
        low = (rows.slot(number) & np.uint64(0xFF)) != 0
        data = np.packbits(low & valid, bitorder="little")
    else:
        data = rows.slot(number).view(_width(type))[:: 8 // arrow.byte_width]
    return pa.Array.from_buffers(
        arrow, len(valid), [_validity(valid), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _width(type: str) -> str:
    if type in _FIXED:
        return _FIXED[type][0]
    return next(width for pattern, (width, _) in _PATTERNS if pattern.fullmatch(type))


def _bytes(rows: _Rows, number: int, valid: Bools) -> pa.Array:
    at, sizes = rows.pieces(number, valid)
    offsets = np.zeros(len(valid) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = rows.words.view(np.uint8)[spans(at.view(np.uint64), sizes.view(np.uint64))]
    buffers = [_validity(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(valid), buffers)


def _decimals(rows: _Rows, number: int, valid: Bools, precision: int) -> npt.NDArray[np.uint8]:
    """16 bytes a value, little endian, as Arrow keeps them.

    Spark keeps up to 18 digits as a long, more as the big-endian bytes of a BigInteger.
    """
    if precision <= _LONG_DIGITS:
        low = rows.slot(number).view(np.int64)
        return np.stack([low, low >> 63], axis=1).view(np.uint8)
    at, sizes = rows.pieces(number, valid)
    if (valid & ((sizes < 1) | (sizes > 16))).any():
        raise Misfit("a decimal does not have 1 to 16 bytes")
    if not valid.any():
        return np.zeros((len(valid), 16), np.uint8)
    raw = rows.words.view(np.uint8)
    place = np.arange(16)
    index = (at + sizes)[:, None] - 1 - place
    inside = valid[:, None] & (place < sizes[:, None])
    digits = np.where(inside, raw[np.where(inside, index, 0)], 0).astype(np.uint8)
    negative = valid & (raw[np.where(valid, at, 0)] >= 0x80)
    digits[negative[:, None] & ~inside] = 0xFF
    return digits


def _validity(valid: Bools) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _column(parts: list[pa.Array], type: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_string(type):
        return pa.chunked_array(parts, type)
    raw = pa.chunked_array(parts, pa.binary())
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:  # Spark's strings need not be UTF-8, Arrow's must be
        return raw
