"""UnsafeRows written field by field, the slow and obvious way: the judge of `format/unsafe_row.py`.

A schema is a list of (name, type) with types as Spark spells them in JSON; a nested struct is
`struct(...)` of such a list. Values are Python's; None is null.
"""

import struct as packing
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from floe.format.unsafe_row import Field

Schema = Sequence[tuple[str, Any]]

_SLOTS = {
    "boolean": "<?7x",
    "byte": "<b7x",
    "short": "<h6x",
    "integer": "<i4x",
    "date": "<i4x",
    "float": "<f4x",
    "double": "<d",
    "long": "<q",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
}


def struct(schema: Schema) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": n, "type": t} for n, t in schema]}


def fields(schema: Schema) -> tuple[Field, ...]:
    return Field.of_struct(struct(schema))


def encode(schema: Schema, values: Sequence[Any]) -> bytes:
    """One row. Dates are days, timestamps microseconds; lists and maps are given as bytes."""
    bitset = bytearray((len(schema) + 63) // 64 * 8)
    slots, rest = b"", b""
    fixed = len(bitset) + 8 * len(schema)
    for number, ((_, type), value) in enumerate(zip(schema, values, strict=True)):
        if value is None:
            bitset[number // 8] |= 1 << number % 8
            slots += bytes(8)
            continue
        slot, piece = _slot(type, value)
        if piece is not None:
            slot = packing.pack("<II", len(piece), fixed + len(rest))
            rest += piece + bytes(-len(piece) % 8)
        slots += slot
    return bytes(bitset) + slots + rest


def _slot(type: Any, value: Any) -> tuple[bytes, bytes | None]:
    """The slot of a fixed type, or the piece that a slot points to."""
    if isinstance(type, dict) and type["type"] == "struct":
        inner = [(field["name"], field["type"]) for field in type["fields"]]
        return b"", encode(inner, value)
    if isinstance(type, str) and type.startswith("decimal"):
        return _decimal(type, value)
    if type == "string":
        return b"", value.encode()
    if isinstance(value, bytes):
        return b"", value
    return packing.pack(_SLOTS[type], value), None


def _decimal(type: str, value: Decimal) -> tuple[bytes, bytes | None]:
    precision, scale = (int(n) for n in type[8:-1].split(","))
    sign, digits, exponent = value.as_tuple()  # arithmetic would round to 28 digits
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1) ** sign
    if precision <= 18:
        return packing.pack("<q", unscaled), None
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return b"", unscaled.to_bytes(size, "big", signed=True)
