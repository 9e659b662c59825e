"""Blocks of the log: whole or not there."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from floe.format import block
from floe.format.layout import NEVER
from tests.format.test_rows import changes
from tests.support.durable import Change, changes_of, make_rows, put, remove

BLOCK, _ = block.encode(make_rows([put("a", "1"), remove("b"), put("c", "22" * 9)], family=3))


@given(changes, st.binary(max_size=100))
def test_a_block_gives_back_its_rows_whatever_lies_behind_it(
    listed: list[Change], behind: bytes
) -> None:
    rows = make_rows(listed, family=5)
    data, starts = block.encode(rows, group_hash=1, back=2)
    found = block.decode(memoryview(data + behind))
    assert found is not None
    back = found.rows()
    assert found.size == len(data)
    assert found.starts.tolist() == starts.tolist()
    assert changes_of(back) == listed
    for name in ("family", "hash", "expiry"):
        assert getattr(back, name).tolist() == getattr(rows, name).tolist(), name


def test_a_record_begins_with_its_hash_at_the_word_that_a_marker_names() -> None:
    rows = make_rows([put("a", "1"), put("b", "2")])
    data, starts = block.encode(rows)
    words = np.frombuffer(data, np.uint64)
    for start, hash, (_, key, value) in zip(starts, rows.hash, changes_of(rows), strict=True):
        record = words[int(start) : int(start) + 3].tobytes()
        assert record == hash.tobytes() + key + value


def test_a_torn_block_is_not_there() -> None:
    for length in range(len(BLOCK)):
        assert block.decode(memoryview(BLOCK[:length])) is None, length


def test_a_torn_block_with_zeroes_behind_is_not_there() -> None:
    """What a file system may leave: the length is there, the end of the bytes is not."""
    for length in range(len(BLOCK)):
        torn = BLOCK[:length] + bytes(len(BLOCK) - length)
        assert torn == BLOCK or block.decode(memoryview(torn)) is None, length


def test_every_flipped_byte_makes_it_no_block() -> None:
    for at in range(len(BLOCK)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(BLOCK)
            damaged[at] ^= flip
            assert block.decode(memoryview(bytes(damaged))) is None, at


def test_a_block_expires_with_the_last_of_its_records() -> None:
    rows = make_rows([put("a", "1"), put("b", "2")])
    rows.expiry = np.array([5, 9], np.int64)
    header = block.encode(rows)[0][: block.HEADER_BYTES]
    assert (9).to_bytes(8, "little") in header
    assert NEVER.to_bytes(8, "little") in block.encode(make_rows([put("a", "1")]))[0]


@given(st.integers(1, 2**32 - 1), st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_a_marker_is_taken_apart_as_it_was_put_together(segment: int, words: list[int]) -> None:
    markers = block.marker(segment, np.array(words, np.uint64))
    assert block.marker_segment(markers).tolist() == [segment] * len(words)
    assert block.marker_word(markers).tolist() == words
    assert (markers != 0).all()
