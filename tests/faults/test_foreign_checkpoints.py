"""State that another provider wrote: refused, never taken for an empty store, never touched."""

from pathlib import Path

import pytest

from tests.support.batches import MANAGED_V1, MANAGED_V2, Batches, some_rows
from tests.support.harness import Harness, ProviderKind
from tests.support.providers import FLOE_V1, FLOE_V2, IN_MEMORY, ROCKSDB_V2

ROCKSDB_V1 = ProviderKind("rocksdb-v1", ROCKSDB_V2.class_name, ROCKSDB_V2.conf)
CASES = [
    pytest.param(theirs, ours, id=f"{theirs.name}-{ours.name}")
    for theirs, ours in [
        (IN_MEMORY, FLOE_V1),
        (IN_MEMORY, MANAGED_V1),
        (ROCKSDB_V1, FLOE_V1),
        (ROCKSDB_V1, MANAGED_V1),
        (ROCKSDB_V2, FLOE_V2),
        (ROCKSDB_V2, MANAGED_V2),
    ]
]


def written_by(kind: ProviderKind, harness: Harness, root: Path) -> Batches:
    batches = Batches(harness, kind, root)
    for number in range(3):
        batches.commit(some_rows(10 * number))
    batches.snapshot()
    batches.provider.close()
    return batches


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("theirs", "ours"), CASES)
def test_a_checkpoint_of_another_provider_is_refused_and_stays_as_it_is(
    harness: Harness, tmp_path: Path, theirs: ProviderKind, ours: ProviderKind
) -> None:
    batches = written_by(theirs, harness, tmp_path)
    before = contents(tmp_path)
    as_floe = Batches(harness, ours, tmp_path)
    for version in batches.versions[1:]:
        refusal = as_floe.refusal(version)
        assert refusal.kind in ("Corrupt", "InvalidRequest")
        assert f"version {version.number}" in refusal.text or (
            f"{version.number}.delta" in refusal.text
        )
    assert contents(tmp_path) == before
    batches.check()


@pytest.mark.parametrize(("theirs", "ours"), CASES)
def test_the_directory_and_that_it_is_of_another_provider_are_said(
    harness: Harness, tmp_path: Path, theirs: ProviderKind, ours: ProviderKind
) -> None:
    batches = written_by(theirs, harness, tmp_path)
    refusal = Batches(harness, ours, tmp_path).refusal(batches.last)
    assert str(batches.directory) in refusal.text
    assert "another provider" in refusal.text
