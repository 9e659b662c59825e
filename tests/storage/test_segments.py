"""Segment files: sealed ones are right to the last bit, others keep what is whole."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from floe.errors import Corrupt, FloeError, InvalidRequest
from floe.format import block
from floe.format.layout import OP_PUT
from floe.format.words import U64
from floe.storage import segments
from floe.storage.segments import SealedSegment, SegmentWriter
from tests.support.durable import Change, changes_of, make_rows, put

BLOCKS = [[put("a", "1"), put("b", "22" * 9)], [put("c", "3")], [put("d", ""), put("e", "5")]]
HEADER_BYTES = 64


@pytest.fixture
def sealed(tmp_path: Path) -> SealedSegment:
    writer = SegmentWriter(tmp_path / "x-4.segment", 4)
    for changes in BLOCKS:
        writer.append(make_rows(changes))
    return writer.seal()


def read(path: Path, seal: tuple[int, int] | None = None) -> list[list[Change]]:
    return [
        changes_of(found.rows()) for found, _ in segments.read(path, name=path.name, sealed=seal)
    ]


def block_ends() -> list[int]:
    sizes = [len(block.encode(make_rows(changes))[0]) for changes in BLOCKS]
    return [HEADER_BYTES + sum(sizes[: n + 1]) for n in range(len(sizes))]


def test_a_sealed_segment_gives_back_its_blocks(sealed: SealedSegment) -> None:
    assert read(sealed.path, (sealed.bytes, sealed.crc)) == BLOCKS
    assert sealed.bytes == sealed.path.stat().st_size
    assert sealed.crc == zlib.crc32(sealed.path.read_bytes())


def test_an_empty_segment_has_no_blocks(tmp_path: Path) -> None:
    done = SegmentWriter(tmp_path / "x-1.segment", 1).seal()
    assert read(done.path, (done.bytes, done.crc)) == []
    assert len(done.words) == 0


def test_a_marker_names_a_segment_and_the_word_of_a_record(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "x-9.segment", 9)
    markers: list[U64] = []
    listed = [change for changes in BLOCKS for change in changes]
    for changes in BLOCKS:
        markers.append(writer.append(make_rows(changes)))
    done = writer.seal()
    all_markers = np.concatenate(markers)
    assert set(block.marker_segment(all_markers).tolist()) == {9}
    assert block.marker_word(all_markers).tolist() == done.words.tolist()
    data = done.path.read_bytes()
    for word, (_, key, value) in zip(done.words.tolist(), listed, strict=True):
        record = data[word * 8 :]
        assert record[8 : 8 + len(key) + len(value)] == key + value
    found = np.concatenate([w for _, w in segments.read(done.path, name="x")])
    assert found.tolist() == done.words.tolist()


def test_every_flipped_byte_of_a_sealed_segment_is_refused(sealed: SealedSegment) -> None:
    whole = sealed.path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        sealed.path.write_bytes(damaged)
        with pytest.raises(Corrupt, match=r"x-4\.segment is damaged"):
            read(sealed.path, (sealed.bytes, sealed.crc))


def test_every_truncation_of_a_sealed_segment_is_refused(sealed: SealedSegment) -> None:
    whole = sealed.path.read_bytes()
    for length in range(len(whole)):
        sealed.path.write_bytes(whole[:length])
        with pytest.raises(Corrupt, match=r"x-4\.segment"):
            read(sealed.path, (sealed.bytes, sealed.crc))


def test_torn_tail_is_dropped_on_open(sealed: SealedSegment) -> None:
    whole = sealed.path.read_bytes()
    ends = block_ends()
    assert ends[-1] == len(whole)
    for length in range(len(whole) + 1):
        sealed.path.write_bytes(whole[:length])
        complete = sum(end <= length for end in ends)
        assert read(sealed.path) == BLOCKS[:complete], length


def test_a_tail_of_zeroes_is_dropped_on_open(sealed: SealedSegment) -> None:
    """A crash of the machine may leave a length without the bytes."""
    whole = sealed.path.read_bytes()
    ends = block_ends()
    for length in range(HEADER_BYTES, len(whole)):
        sealed.path.write_bytes(whole[:length] + bytes(200))
        complete = sum(not any(whole[length:end]) for end in ends)
        assert read(sealed.path) == BLOCKS[:complete], length


def test_reading_an_unsealed_segment_ends_in_front_of_damage(sealed: SealedSegment) -> None:
    whole = sealed.path.read_bytes()
    ends = block_ends()
    for at in range(ends[0], ends[1]):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        sealed.path.write_bytes(damaged)
        assert read(sealed.path) == BLOCKS[:1], at


@pytest.mark.parametrize("seal", [True, False])
def test_another_file_is_no_segment(tmp_path: Path, seal: bool) -> None:
    path = tmp_path / "x-1.segment"
    path.write_bytes(b"something else".ljust(100))
    checked = (100, zlib.crc32(path.read_bytes())) if seal else None
    with pytest.raises(InvalidRequest, match=r"x-1\.segment is not a segment"):
        read(path, checked)


def test_a_newer_segment_is_refused_by_name(sealed: SealedSegment) -> None:
    newer = bytearray(sealed.path.read_bytes())
    newer[8] += 1
    sealed.path.write_bytes(newer)
    with pytest.raises(FloeError, match=r"x-4\.segment"):
        read(sealed.path)


def test_an_abandoned_segment_leaves_no_file(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "x-1.segment", 1)
    writer.append(make_rows([(OP_PUT, b"k" * 8, b"")]))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []
