"""Durable files that are truncated, flipped, missing or of a newer format.

Each is refused by its name; versions that do not need the file load as before; and putting the
bytes back brings everything back. The store is `lived_in`: deltas 1 to 6, snapshots of 3 and 5.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from floe.format import manifest, trailer
from floe.format.manifest import SegmentEntry
from floe.storage import paths
from tests.support.batches import Batches, Version, lived_in
from tests.support.harness import Harness, ProviderKind
from tests.support.providers import FLOE_MANAGED_V1, FLOE_MANAGED_V2, FLOE_V1, FLOE_V2

FORMAT_AT = 8  # in a trailer and in the header of a segment
CRC_AT = 88  # in a trailer


@dataclass(frozen=True)
class Target:
    """A file of the store, and the versions that cannot be had without it."""

    pick: Callable[["Files"], Path]
    needed_by: tuple[int, ...]


@dataclass(frozen=True)
class Files:
    """The durable files of a store by what they are."""

    directory: Path

    def delta(self, version: int) -> Path:
        (path,) = self.directory.glob(f"{version}_*.delta")
        return path

    def manifest(self, version: int) -> Path:
        (path,) = self.directory.glob(f"{version}_*.manifest")
        return path

    def segment(self, version: int, place: int) -> Path:
        """A segment of the snapshot of a version, in the order of the manifest."""
        path = self.manifest(version)
        _, entries = manifest.decode(path.read_bytes(), path.name)
        return self.directory / entries[place].name


# Every file of one kind is read in the same way; these stand for all places in a lineage.
TARGETS = {
    "first delta": Target(lambda files: files.delta(1), (1, 2)),
    "delta on a snapshot": Target(lambda files: files.delta(4), (4,)),
    "last delta": Target(lambda files: files.delta(6), (6,)),
    "first manifest": Target(lambda files: files.manifest(3), (3, 4)),
    "last manifest": Target(lambda files: files.manifest(5), (5, 6)),
    "shared segment": Target(lambda files: files.segment(3, 0), (3, 4, 5, 6)),
    "last segment": Target(lambda files: files.segment(5, -1), (5, 6)),
}


@pytest.fixture(scope="module", params=[FLOE_V1, FLOE_V2], ids=lambda kind: kind.name)
def batches(
    request: pytest.FixtureRequest, harness: Harness, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Batches]:
    batches = lived_in(harness, request.param, tmp_path_factory.mktemp("damaged"))
    batches.provider.close()
    batches.check()
    yield batches
    batches.check()


@pytest.fixture(params=TARGETS.values(), ids=[name.replace(" ", "-") for name in TARGETS])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


def truncations(content: bytes) -> dict[str, bytes]:
    lengths = [0, 1, 4, len(content) // 2, len(content) - 96, len(content) - 4, len(content) - 1]
    return {f"cut to {length}": content[:length] for length in lengths}


def flips(content: bytes) -> dict[str, bytes]:
    """One bit each: at the start, in the middle, and in every field of a trailer."""
    trailer_fields = [0, 7, 8, 12, 16, 24, 40, 56, 64, 80, CRC_AT, 92, 95]
    places = [0, 8, 63, 64, len(content) // 3, len(content) // 2, len(content) - 97]
    places += [len(content) - trailer.SIZE + field for field in trailer_fields]
    found = {}
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        found[f"flipped at {place}"] = bytes(damaged)
    return found


def assert_refused_by_name(batches: Batches, path: Path, versions: tuple[int, ...]) -> None:
    names = [str(other) for other in batches.directory.iterdir() if other.samefile(path)]
    for number in versions:
        refusal = batches.refusal(batches.versions[number])
        assert refusal.kind in ("Corrupt", "InvalidRequest"), refusal
        assert any(name in refusal.text for name in names), refusal


def assert_others_load(batches: Batches, versions: tuple[int, ...]) -> None:
    for version in batches.versions:
        if version.number not in versions:
            assert batches.load(version) == version.rows


@pytest.mark.parametrize("damages", [truncations, flips])
def test_a_damaged_file_is_refused_by_name_and_only_where_it_is_needed(
    batches: Batches, target: Target, damages: Callable[[bytes], dict[str, bytes]]
) -> None:
    path = target.pick(Files(batches.directory))
    whole = path.read_bytes()
    try:
        for damaged in damages(whole).values():
            path.write_bytes(damaged)
            # The newest version that needs it: going over all of them each time proves no more.
            assert_refused_by_name(batches, path, target.needed_by[-1:])
        assert_refused_by_name(batches, path, target.needed_by)
        assert_others_load(batches, target.needed_by)
    finally:
        path.write_bytes(whole)
    for number in target.needed_by:
        assert batches.load(batches.versions[number]) == batches.versions[number].rows


def test_the_provider_that_refused_a_file_takes_it_when_it_is_restored(
    batches: Batches, target: Target
) -> None:
    path = target.pick(Files(batches.directory))
    whole = path.read_bytes()
    last = batches.versions[target.needed_by[-1]]
    provider = batches.restarted()
    try:
        path.write_bytes(whole[:-1])
        batches.refusal(last, provider)
        batches.refusal(last, provider)
    finally:
        path.write_bytes(whole)
    assert batches.load(last, provider) == last.rows
    provider.close()


def test_a_file_that_is_gone_is_missed_by_name_or_by_version(
    batches: Batches, target: Target
) -> None:
    """Without a snapshot the deltas still make the version, as long as they are there."""
    path = target.pick(Files(batches.directory))
    names = [other for other in batches.directory.iterdir() if other.samefile(path)]
    hidden = batches.root / "elsewhere"
    hidden.mkdir()
    for name in names:
        name.rename(hidden / name.name)
    try:
        for number in target.needed_by:
            version = batches.versions[number]
            if path.suffix == ".manifest":
                assert batches.load(version) == version.rows
                continue
            refusal = batches.refusal(version)
            assert refusal.kind in ("Corrupt", "InvalidRequest")
            assert str(batches.directory) in refusal.text
            named = paths.parse(path.name)
            assert named is not None
            assert path.name in refusal.text or f"version {named.version} " in refusal.text
        if path.suffix != ".manifest":
            assert_others_load(batches, target.needed_by)
    finally:
        for name in names:
            (hidden / name.name).rename(name)
        hidden.rmdir()


def of_a_newer_format(content: bytes) -> bytes:
    """A delta or a manifest that claims the next format, and is right in all else."""
    newer = bytearray(content)
    at = len(newer) - trailer.SIZE
    struct.pack_into("<I", newer, at + FORMAT_AT, trailer.FORMAT + 1)
    struct.pack_into("<I", newer, at + CRC_AT, zlib.crc32(newer[: at + CRC_AT]))
    return bytes(newer)


@pytest.mark.parametrize(
    ("pick", "version"),
    [(Files.delta, 6), (Files.manifest, 5)],
    ids=["delta", "manifest"],
)
def test_a_file_of_a_newer_format_is_refused_with_the_way_out(
    batches: Batches, pick: Callable[[Files, int], Path], version: int
) -> None:
    path = pick(Files(batches.directory), version)
    whole = path.read_bytes()
    try:
        path.write_bytes(of_a_newer_format(whole))
        assert_refused_by_name(batches, path, (6,))
        refusal = batches.refusal(batches.versions[6])
        assert refusal.kind == "InvalidRequest"
        assert f"/{trailer.FORMAT + 1}" in refusal.text
        assert "use the Floe that wrote it, or a newer one" in refusal.text
        assert_others_load(batches, (5, 6))
    finally:
        path.write_bytes(whole)
    assert batches.load(batches.versions[6]) == batches.versions[6].rows


def test_a_segment_of_a_newer_format_is_refused_with_the_way_out(batches: Batches) -> None:
    """Its manifest knows the bytes, so it is whole: there is nothing to restore."""
    files = Files(batches.directory)
    segment, listing = files.segment(5, -1), files.manifest(5)
    whole, listed = segment.read_bytes(), listing.read_bytes()
    newer = bytearray(whole)
    struct.pack_into("<I", newer, FORMAT_AT, 2)
    head, entries = manifest.decode(listed, listing.name)

    def with_crc(entry: SegmentEntry) -> SegmentEntry:
        return replace(entry, crc=zlib.crc32(newer)) if entry.name == segment.name else entry

    try:
        segment.write_bytes(newer)
        listing.write_bytes(manifest.encode(head, [with_crc(entry) for entry in entries]))
        assert_refused_by_name(batches, segment, (5, 6))
        refusal = batches.refusal(batches.versions[6])
        assert refusal.kind == "InvalidRequest"
        assert "use the Floe that wrote it, or a newer one" in refusal.text
        assert_others_load(batches, (5, 6))
    finally:
        segment.write_bytes(whole)
        listing.write_bytes(listed)
    assert batches.load(batches.versions[6]) == batches.versions[6].rows


@pytest.mark.parametrize("kind", [FLOE_MANAGED_V1, FLOE_MANAGED_V2], ids=lambda kind: kind.name)
def test_a_damaged_file_behind_a_file_manager_is_refused_until_it_is_restored(
    harness: Harness, tmp_path: Path, kind: ProviderKind
) -> None:
    batches = lived_in(harness, kind, tmp_path)
    for path, version in damageable(batches):
        whole = path.read_bytes()
        provider = batches.restarted()
        damage_behind_the_manager(path, whole)
        for _ in range(2):
            refusal = batches.refusal(version, provider)
            assert refusal.kind == "Corrupt"
            assert path.name in refusal.text
        assert batches.load(batches.versions[2]) == batches.versions[2].rows
        path.write_bytes(whole)
        assert batches.load(version, provider) == version.rows
        provider.close()


@pytest.mark.parametrize("kind", [FLOE_MANAGED_V1, FLOE_MANAGED_V2], ids=lambda kind: kind.name)
def test_a_damaged_file_behind_a_file_manager_is_named_where_it_lies(
    harness: Harness, tmp_path: Path, kind: ProviderKind
) -> None:
    """Not where this executor has fetched it to: that copy is gone when somebody looks."""
    batches = lived_in(harness, kind, tmp_path)
    for path, version in damageable(batches):
        whole = path.read_bytes()
        damage_behind_the_manager(path, whole)
        assert str(path) in batches.refusal(version).text
        path.write_bytes(whole)


def damageable(batches: Batches) -> list[tuple[Path, Version]]:
    """A file of each kind, and a version that needs it."""
    files = Files(batches.directory)
    alias = batches.directory / paths.delta_alias(6)
    delta = alias if alias.exists() else files.delta(6)
    return [(path, batches.last) for path in (delta, files.manifest(5), files.segment(5, 0))]


def damage_behind_the_manager(path: Path, whole: bytes) -> None:
    """Where the file system itself keeps no checksums, as most do not."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0x10
    path.write_bytes(damaged)
