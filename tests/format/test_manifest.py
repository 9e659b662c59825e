"""Manifests: round trip and damage."""

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floe.errors import Corrupt, FloeError
from floe.format import manifest
from floe.format.manifest import SegmentEntry
from floe.format.trailer import Trailer

HEAD = Trailer(7, UUID(int=7), UUID(int=6), (5, UUID(int=5)))
NAME = "7_x.manifest"

entries = st.builds(
    SegmentEntry,
    st.integers(1, 2**32 - 1),
    st.text("abcdef-0123456789", min_size=1),
    st.integers(0, 2**40),
    st.integers(0, 2**32 - 1),
    st.lists(st.booleans(), max_size=40).map(lambda bits: np.array(bits, bool)),
)


@given(st.lists(entries, max_size=5))
def test_a_manifest_gives_back_its_segments(listed: list[SegmentEntry]) -> None:
    head, found = manifest.decode(manifest.encode(HEAD, listed), NAME)
    assert head == HEAD
    assert [_plain(entry) for entry in found] == [_plain(entry) for entry in listed]


def test_the_live_ratio_counts_bits() -> None:
    live = np.array([True, False, False, True], bool)
    assert SegmentEntry(1, "s", 0, 0, live).live_ratio == 0.5
    assert SegmentEntry(1, "s", 0, 0, np.empty(0, bool)).live_ratio == 0.0


def test_every_flipped_byte_and_every_truncation_is_refused() -> None:
    whole = manifest.encode(HEAD, [SegmentEntry(1, "a.segment", 9, 8, np.ones(3, bool))])
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        with pytest.raises(FloeError, match=NAME):
            manifest.decode(bytes(damaged), NAME)
        with pytest.raises(Corrupt, match=NAME):
            manifest.decode(whole[:at], NAME)


def _plain(entry: SegmentEntry) -> tuple[object, ...]:
    return entry.number, entry.name, entry.bytes, entry.crc, entry.live.tolist()
