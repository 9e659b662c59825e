"""Spark's schema file, written here as Spark's DataOutputStream would."""

import json
import struct as packing

import pytest

from floe.format import state_schema
from tests.support.unsafe_rows import fields, struct

KEY = struct([("window", struct([("start", "timestamp"), ("end", "timestamp")])), ("n", "integer")])
VALUE = struct([("größe 𝄞", "long")])


def java_text(text: str) -> bytes:
    """DataOutputStream.writeUTF: a length, then modified UTF-8."""
    data = b""
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        half = raw[at : at + 2].decode("utf-16-be", "surrogatepass")
        data += b"\xc0\x80" if half == "\0" else half.encode("utf-8", "surrogatepass")
    return packing.pack(">H", len(data)) + data


def chunked(text: str, units: int) -> bytes:
    raw = text.encode("utf-16-be")
    parts = [raw[at : at + 2 * units] for at in range(0, len(raw), 2 * units)]
    texts = [java_text(part.decode("utf-16-be", "surrogatepass")) for part in parts]
    return packing.pack(">i", len(texts)) + b"".join(texts)


def dumped(schema: object) -> str:
    return json.dumps(schema, ensure_ascii=False)


@pytest.mark.parametrize("units", [65535, 7, 1])
def test_schemas_of_version_2_are_read_however_they_are_cut(units: int) -> None:
    """Cuts fall between Java's characters, and so inside of a clef."""
    data = java_text("v2") + chunked(dumped(KEY), units) + chunked(dumped(VALUE), units)
    found = state_schema.parse(data)
    assert found is not None
    assert found.key == fields([(f["name"], f["type"]) for f in KEY["fields"]])
    assert found.value == fields([("größe 𝄞", "long")])


def test_schemas_of_version_1_are_read() -> None:
    data = java_text("v1") + java_text(dumped(KEY)) + java_text(dumped(VALUE))
    found = state_schema.parse(data)
    assert found is not None
    assert [field.name for field in found.key] == ["window", "n"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        java_text("v3") + bytes(40),
        java_text("v2"),
        java_text("v2") + chunked("no json", 10) + chunked("{}", 10),
        java_text("v2") + chunked('"integer"', 10) + chunked("{}", 10),
        java_text("v2") + chunked('{"type":"struct"}', 100) * 2,
        java_text("v2") + packing.pack(">i", 2**31 - 1),
    ],
)
def test_anything_else_is_no_schema(data: bytes) -> None:
    assert state_schema.parse(data) is None


def test_a_file_cut_off_anywhere_is_no_schema() -> None:
    data = java_text("v2") + chunked(dumped(KEY), 9) + chunked(dumped(VALUE), 9)
    assert state_schema.parse(data) is not None
    for length in range(len(data)):
        assert state_schema.parse(data[:length]) is None
