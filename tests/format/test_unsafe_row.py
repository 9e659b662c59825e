"""UnsafeRows into columns, against rows that were written field by field."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floe.format import unsafe_row
from floe.format.unsafe_row import Misfit
from tests.support.unsafe_rows import Schema, encode, fields, struct

EPOCH = datetime(1970, 1, 1)


def decoded(schema: Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    return table(schema, [encode(schema, row) for row in rows])


def table(schema: Schema, rows: Sequence[bytes]) -> pa.Table:
    lengths = np.array([len(row) for row in rows], np.uint32)
    words = np.frombuffer(b"".join(rows), np.uint64)
    return pa.table(unsafe_row.columns(fields(schema), lengths, words, "key"))


# A type, what may be written, and how it is read back.
TYPES: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "boolean": (st.booleans(), bool),
    "byte": (st.integers(-(2**7), 2**7 - 1), int),
    "short": (st.integers(-(2**15), 2**15 - 1), int),
    "integer": (st.integers(-(2**31), 2**31 - 1), int),
    "long": (st.integers(-(2**63), 2**63 - 1), int),
    "float": (st.floats(width=32, allow_nan=False), float),
    "double": (st.floats(allow_nan=False), float),
    "date": (st.integers(-10_000, 40_000), lambda days: date(1970, 1, 1) + timedelta(days)),
    "timestamp": (
        st.integers(-(10**15), 10**15),
        lambda us: (EPOCH + timedelta(microseconds=us)).replace(tzinfo=UTC),
    ),
    "timestamp_ntz": (
        st.integers(-(10**15), 10**15),
        lambda us: EPOCH + timedelta(microseconds=us),
    ),
    "decimal(9,2)": (st.decimals(-9_999_999, 9_999_999, places=2), Decimal),
    "decimal(18,0)": (st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal), Decimal),
    "decimal(38,4)": (
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-4")),
        Decimal,
    ),
    "string": (st.text(), str),
    "binary": (st.binary(), bytes),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[str, str]], list[list[Any]]]:
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=5))
    schema = [(f"f{n}", type) for n, type in enumerate(types)]
    cells = [st.none() | TYPES[type][0] for type in types]
    return schema, draw(st.lists(st.tuples(*cells).map(list), max_size=6))


@given(tables())
def test_flat_rows_are_read_back(drawn: tuple[list[tuple[str, str]], list[list[Any]]]) -> None:
    schema, rows = drawn
    found = decoded(schema, rows)
    found.validate(full=True)
    expected = [
        {
            f"key_{name}": None if value is None else TYPES[type][1](value)
            for (name, type), value in zip(schema, row, strict=True)
        }
        for row in rows
    ]
    assert found.to_pylist() == expected


@given(st.sets(st.integers(0, 129)))
def test_null_bits_go_on_in_the_next_word(nulls: set[int]) -> None:
    values = [None if n in nulls else n for n in range(130)]
    schema = [(f"f{n}", "long") for n in range(130)]
    (row,) = decoded(schema, [values]).to_pylist()
    assert list(row.values()) == values


def test_a_nested_struct_becomes_columns_and_a_null_one_nulls() -> None:
    window = struct([("start", "timestamp_ntz"), ("end", "timestamp_ntz"), ("tag", "string")])
    found = decoded([("window", window), ("n", "integer")], [[[0, 10, "x"], 1], [None, 2]])
    assert found.to_pylist() == [
        {
            "key_window_start": EPOCH,
            "key_window_end": EPOCH + timedelta(microseconds=10),
            "key_window_tag": "x",
            "key_n": 1,
        },
        {"key_window_start": None, "key_window_end": None, "key_window_tag": None, "key_n": 2},
    ]


def test_what_is_not_flat_stays_the_bytes_it_is() -> None:
    inner = [("deep", struct([("n", "integer")])), ("n", "integer")]
    listed = {"type": "array", "elementType": "integer", "containsNull": True}
    found = decoded([("list", listed), ("a", struct(inner))], [[b"12345678", [[1], 2]]])
    assert found.schema.types == [pa.binary(), pa.binary(), pa.int32()]
    (row,) = found.to_pylist()
    assert row == {
        "key_list": b"12345678",
        "key_a_deep": encode([("n", "integer")], [1]),
        "key_a_n": 2,
    }


def test_a_field_without_a_type_is_null() -> None:
    found = decoded([("__dummy__", "void")], [[None], [None]])
    assert found.schema.types == [pa.null()]
    assert found.to_pylist() == [{"key___dummy__": None}] * 2


def test_columns_of_one_name_are_told_apart() -> None:
    schema = [("a", "integer"), ("a", "integer"), ("a_2", "integer")]
    assert decoded(schema, [[1, 2, 3]]).column_names == ["key_a", "key_a_2", "key_a_2_2"]


def test_a_string_that_is_not_utf8_stays_bytes() -> None:
    schema = [("s", "binary"), ("t", "string")]
    found = table([("s", "string"), ("t", "string")], [encode(schema, [b"\xff", "ok"])])
    assert found.to_pylist() == [{"key_s": b"\xff", "key_t": "ok"}]


def test_no_rows_still_have_columns() -> None:
    schema = [("s", "string"), ("n", "long"), ("w", struct([("start", "timestamp")]))]
    found = decoded(schema, [])
    assert found.schema.types == [pa.string(), pa.int64(), pa.timestamp("us", "UTC")]


def test_rows_of_many_chunks_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsafe_row, "_CHUNK_ROWS", 3)
    monkeypatch.setattr(unsafe_row, "_CHUNK_BYTES", 100)
    rows = [[n, "x" * n] for n in range(20)]
    found = decoded([("n", "integer"), ("s", "string")], rows)
    assert [list(row.values()) for row in found.to_pylist()] == rows


@pytest.mark.parametrize("type", ["string", struct([("n", "integer")]), "decimal(20,0)"])
def test_a_piece_outside_of_its_row_is_a_misfit(type: Any) -> None:
    row = bytearray(encode([("f", "binary")], [b"x" * 16]))
    row[12:16] = (24).to_bytes(4, "little")  # the offset, 8 bytes too far
    with pytest.raises(Misfit):
        table([("f", type)], [bytes(row)])


def test_rows_that_are_too_short_for_the_schema_are_a_misfit() -> None:
    with pytest.raises(Misfit):
        table([("a", "long"), ("b", "long")], [encode([("a", "long")], [1])])


@given(tables(), st.binary(min_size=0, max_size=80).map(lambda b: b[: len(b) // 8 * 8]))
def test_any_bytes_are_columns_or_a_misfit(
    drawn: tuple[list[tuple[str, str]], list[list[Any]]], row: bytes
) -> None:
    """Whatever a file holds: no wild read, no other error."""
    try:
        found = table(drawn[0], [row])
    except Misfit:
        return
    assert found.num_rows == 1
