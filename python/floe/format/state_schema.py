"""The schema of a store as Spark writes it down, in `_metadata/schema` of its first partition.

Written with Java's DataOutputStream:

    version    a string: "v1" or "v2"
    v1         key schema and value schema, a string each
    v2         the same two, each a 4-byte number of strings and those strings: one string holds
               65,535 bytes at most

A string is 2 bytes of length and Java's modified UTF-8; numbers are big endian; a schema is the
JSON of a struct. "v3", of stores with column families, names schemas by family and is not read.
"""

import json
import struct
from dataclasses import dataclass

from floe.format.unsafe_row import Field

__all__ = ["StateSchema", "parse"]


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The fields of keys and of values."""

    key: tuple[Field, ...]
    value: tuple[Field, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, format: str) -> int:
        (value,) = struct.unpack(format, self._take(struct.calcsize(format)))
        return int(value)

    def text(self) -> str:
        """One string; what lies beyond 16 bits is still two halves of three bytes each."""
        raw = self._take(self.number(">H"))
        return raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")

    def texts(self) -> str:
        return "".join(self.text() for _ in range(self.number(">i")))

    def _take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise ValueError("the file ends too early")
        self._at += size
        return piece


def parse(data: bytes) -> StateSchema | None:
    """None when the file is of another version, or not what Spark writes."""
    reader = _Reader(data)
    try:
        version = reader.text()
        if version == "v1":
            key, value = reader.text(), reader.text()
        elif version == "v2":
            key, value = reader.texts(), reader.texts()
        else:
            return None
        return StateSchema(_fields(key), _fields(value))
    except (ValueError, KeyError, TypeError):
        return None


def _fields(text: str) -> tuple[Field, ...]:
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return Field.of_struct(json.loads(joined))
