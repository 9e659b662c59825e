"""Rows in columns against the list of rows that they stand for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from floe.format.layout import OP_PUT, OP_REMOVE
from tests.support.durable import Change, changes_of, make_rows

aligned = st.integers(0, 4).flatmap(lambda n: st.binary(min_size=8 * n, max_size=8 * n))
changes = st.lists(st.tuples(st.sampled_from([OP_PUT, OP_REMOVE]), aligned, aligned), max_size=12)


@given(changes)
def test_columns_give_back_the_rows_they_were_made_of(listed: list[Change]) -> None:
    assert changes_of(make_rows(listed)) == listed


@given(changes, st.data())
def test_a_slice_is_the_slice_of_the_rows(listed: list[Change], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(listed)))
    stop = data.draw(st.integers(start, len(listed)))
    assert changes_of(make_rows(listed).slice(start, stop)) == listed[start:stop]


@given(changes, st.data())
def test_taking_by_a_mask_keeps_the_chosen_rows(listed: list[Change], data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(listed), max_size=len(listed)))
    taken = make_rows(listed).take(np.array(mask, bool))
    assert changes_of(taken) == [row for row, kept in zip(listed, mask, strict=True) if kept]


@given(changes)
def test_records_are_hash_key_and_value_at_the_word_they_begin(listed: list[Change]) -> None:
    rows = make_rows(listed)
    records, starts = rows.records()
    expected = b""
    for (_, key, value), hash, start in zip(listed, rows.hash, starts, strict=True):
        assert int(start) * 8 == len(expected)
        expected += hash.tobytes() + key + value
    assert records.tobytes() == expected
