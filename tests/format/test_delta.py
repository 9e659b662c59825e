"""Deltas: what goes in comes out, through Arrow's own reader as well."""

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floe.config import Codec
from floe.errors import Corrupt
from floe.format import delta, trailer
from floe.format.trailer import Trailer
from tests.format.test_rows import changes
from tests.support.durable import Change, changes_of, make_rows, put, remove, sealed_delta

HEAD = Trailer(7, UUID(int=7), UUID(int=6), (5, UUID(int=5)))


@given(changes, st.sampled_from(Codec))
def test_a_delta_gives_back_head_and_rows(listed: list[Change], codec: Codec) -> None:
    head, batches = delta.decode(sealed_delta(HEAD, listed, codec), "7.delta")
    assert head == HEAD
    assert [change for rows in batches for change in changes_of(rows)] == listed


def test_every_column_survives() -> None:
    rows = make_rows([put("a", "1"), remove("b")], family=9)
    body, _ = delta.encode(rows, Codec.ZSTD)
    (back,) = delta.decode(trailer.sealed(trailer.DELTA, HEAD, bytes(body)), "7.delta")[1]
    for name in ("op", "family", "hash", "expiry", "key_len", "value_len", "keys", "values"):
        assert getattr(back, name).tolist() == getattr(rows, name).tolist(), name


def test_rows_of_many_batches_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_BATCH_ROWS", 3)
    listed = [put(f"key {n}", "v" * n) for n in range(20)]
    batches = delta.decode(sealed_delta(HEAD, listed), "7.delta")[1]
    assert [len(rows) for rows in batches] == [3, 3, 3, 3, 3, 3, 2]
    assert [change for rows in batches for change in changes_of(rows)] == listed


def test_batches_end_where_their_bytes_would_outgrow_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta, "_BATCH_BYTES", 64)
    listed = [put("k", "v" * 20), put("l", "v" * 20), put("m", "v" * 200), put("n", "")]
    batches = delta.decode(sealed_delta(HEAD, listed), "7.delta")[1]
    assert [len(rows) for rows in batches] == [2, 1, 1]
    assert [change for rows in batches for change in changes_of(rows)] == listed


def test_an_empty_delta_is_a_template_with_room_for_its_head() -> None:
    template = delta.empty()
    body = template[: -trailer.SIZE]
    assert template[-trailer.SIZE :] == trailer.blank(trailer.DELTA, len(body))
    head, batches = delta.decode(trailer.sealed(trailer.DELTA, HEAD, body), "7.delta")
    assert (head, batches) == (HEAD, [])


def test_a_delta_that_nobody_sealed_is_refused() -> None:
    body, blank = delta.encode(make_rows([put("a", "1")]), Codec.LZ4)
    with pytest.raises(Corrupt, match=r"7\.delta"):
        delta.decode(bytes(body) + blank, "7.delta")


def test_arrow_reads_a_delta_without_knowing_of_the_trailer() -> None:
    table = pa.ipc.open_stream(sealed_delta(HEAD, [put("a", "1"), remove("b")])).read_all()
    assert table.schema.equals(delta.SCHEMA)
    assert table["op"].to_pylist() == [0, 1]
    assert table["key"].to_pylist() == [b"a".ljust(8, b"\0"), b"b".ljust(8, b"\0")]
