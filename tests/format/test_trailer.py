"""Trailers: every damage to a file is refused, and the file is named."""

from uuid import UUID

import pytest

from floe.errors import Corrupt, FloeError, InvalidRequest
from floe.format import trailer
from floe.format.trailer import Trailer
from tests.support.durable import put, sealed_delta

HEAD = Trailer(7, UUID(int=7), UUID(int=6), (5, UUID(int=5)))
FILE = sealed_delta(HEAD, [put("a", "1"), put("b", "2")])
NAME = "7_x.delta"


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        Trailer(1, UUID(int=1), None, None),
        Trailer(2**40, UUID(int=2**128 - 1), UUID(int=1), None),
    ],
)
def test_a_trailer_gives_back_its_fields_and_the_body(head: Trailer) -> None:
    found, body = trailer.parse(
        trailer.MANIFEST, trailer.sealed(trailer.MANIFEST, head, b"body"), NAME
    )
    assert found == head
    assert bytes(body) == b"body"


def test_every_flipped_byte_is_refused() -> None:
    for at in range(len(FILE)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(FILE)
            damaged[at] ^= flip
            with pytest.raises(FloeError, match=NAME) as caught:
                trailer.parse(trailer.DELTA, bytes(damaged), NAME)
            assert isinstance(caught.value, Corrupt | InvalidRequest)
            assert caught.value.fields["path"] == NAME


def test_every_truncation_is_refused() -> None:
    for length in range(len(FILE)):
        with pytest.raises(Corrupt, match=NAME):
            trailer.parse(trailer.DELTA, FILE[:length], NAME)


def test_bytes_that_were_added_are_refused() -> None:
    for extra in (b"\0", FILE[-trailer.SIZE :], FILE):
        with pytest.raises(Corrupt, match=NAME):
            trailer.parse(trailer.DELTA, FILE + extra, NAME)
        with pytest.raises(Corrupt, match=NAME):
            trailer.parse(trailer.DELTA, extra + FILE, NAME)


def test_a_newer_format_says_so_and_names_the_file() -> None:
    newer = bytearray(FILE)
    newer[-trailer.SIZE + 8] = trailer.FORMAT + 1
    with pytest.raises(InvalidRequest, match=rf"{NAME} has format FLOEDLT1/{trailer.FORMAT + 1}"):
        trailer.parse(trailer.DELTA, bytes(newer), NAME)


def test_a_manifest_is_no_delta() -> None:
    with pytest.raises(InvalidRequest, match="FLOEMAN1"):
        trailer.parse(trailer.DELTA, trailer.sealed(trailer.MANIFEST, HEAD, b""), NAME)


def test_the_shim_is_told_the_places_that_parse_reads() -> None:
    """Fills a blank trailer by `SEAL` alone, as the shim does."""
    import struct
    import zlib

    body = b"eightfold body"
    data = bytearray(body + trailer.blank(trailer.DELTA, len(body)))
    at = len(data) - trailer.SEAL["bytes"]
    struct.pack_into("<Q", data, at + trailer.SEAL["version"], 7)
    for name, id in (("id", HEAD.id), ("parent", HEAD.parent), ("snapshotId", UUID(int=5))):
        assert id is not None
        place = at + trailer.SEAL[name]
        data[place : place + 16] = id.bytes
    struct.pack_into("<Q", data, at + trailer.SEAL["snapshotVersion"], 5)
    crc_at = at + trailer.SEAL["crc"]
    struct.pack_into("<I", data, crc_at, zlib.crc32(data[:crc_at]))
    assert trailer.parse(trailer.DELTA, bytes(data), NAME)[0] == HEAD
