"""Gathers against a loop over pieces."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from floe.format.words import U64, gather, spans


@st.composite
def pieces(draw: st.DrawFn) -> tuple[U64, U64, U64]:
    """Words, and pieces of them that may overlap, repeat or be empty."""
    words = np.arange(100, 100 + draw(st.integers(1, 40)), dtype=np.uint64)
    ends = st.integers(0, len(words))
    bounds = draw(st.lists(st.tuples(ends, ends).map(sorted), max_size=12))
    if draw(st.booleans()):  # all of one length: the shortcut
        length = draw(st.integers(0, len(words)))
        bounds = [[at, at + length] for at, _ in bounds if at + length <= len(words)]
    starts = np.array([start for start, _ in bounds], np.uint64)
    counts = np.array([stop - start for start, stop in bounds], np.uint64)
    return words, starts, counts


@given(pieces())
def test_a_gather_is_the_pieces_one_after_the_other(given_pieces: tuple[U64, U64, U64]) -> None:
    words, starts, counts = given_pieces
    expected: list[int] = []
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        expected += words[start : start + count].tolist()
    assert gather(words, starts, counts).tolist() == expected


@given(pieces())
def test_spans_are_the_indices_of_a_gather(given_pieces: tuple[U64, U64, U64]) -> None:
    words, starts, counts = given_pieces
    assert words[spans(starts, counts)].tolist() == gather(words, starts, counts).tolist()


def test_no_pieces_are_no_words() -> None:
    none = np.empty(0, np.uint64)
    assert len(gather(np.arange(3, dtype=np.uint64), none, none)) == 0
