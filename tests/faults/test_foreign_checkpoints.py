"""State that another provider wrote: refused, never taken for an empty store, never touched."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.batches import Batches, some_rows
from tests.support.harness import Harness, ProviderKind
from tests.support.providers import (
    FLOE_MANAGED_V1,
    FLOE_MANAGED_V2,
    FLOE_V1,
    FLOE_V2,
    IN_MEMORY,
    ROCKSDB_V2,
)

ROCKSDB_V1 = ProviderKind("rocksdb-v1", ROCKSDB_V2.class_name, ROCKSDB_V2.conf)
each_pair = pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(theirs, ours, id=f"{theirs.name}-{ours.name}")
        for theirs, ours in [
            (IN_MEMORY, FLOE_V1),
            (IN_MEMORY, FLOE_MANAGED_V1),
            (ROCKSDB_V1, FLOE_V1),
            (ROCKSDB_V1, FLOE_MANAGED_V1),
            (ROCKSDB_V2, FLOE_V2),
            (ROCKSDB_V2, FLOE_MANAGED_V2),
        ]
    ],
)


@pytest.fixture(scope="module")
def written_by(
    harness: Harness, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[ProviderKind], Batches]:
    """A store that a provider wrote, made once: nobody may change it."""

    @cache
    def written(kind: ProviderKind) -> Batches:
        batches = Batches(harness, kind, tmp_path_factory.mktemp(kind.name))
        for number in range(3):
            batches.commit(some_rows(10 * number))
        batches.snapshot()
        batches.provider.close()
        return batches

    return written


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@each_pair
def test_a_checkpoint_of_another_provider_is_refused_and_stays_as_it_is(
    written_by: Callable[[ProviderKind], Batches], theirs: ProviderKind, ours: ProviderKind
) -> None:
    batches = written_by(theirs)
    before = contents(batches.root)
    as_floe = Batches(batches.harness, ours, batches.root)
    for version in batches.versions[1:]:
        refusal = as_floe.refusal(version)
        number = version.number
        assert refusal.kind in ("Corrupt", "InvalidRequest")
        assert f"version {number}" in refusal.text or f"{number}.delta" in refusal.text
    assert contents(batches.root) == before
    batches.check()


@each_pair
def test_the_directory_and_that_it_is_of_another_provider_are_said(
    written_by: Callable[[ProviderKind], Batches], theirs: ProviderKind, ours: ProviderKind
) -> None:
    batches = written_by(theirs)
    refusal = Batches(batches.harness, ours, batches.root).refusal(batches.last)
    assert str(batches.directory) in refusal.text
    assert "another provider" in refusal.text
