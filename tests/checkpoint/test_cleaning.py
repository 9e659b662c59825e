"""Retention over the life of a store whose versions are committed twice."""

from pathlib import Path

from floe.checkpoint import reading
from tests.support.harness import Harness
from tests.support.model import Put, Value
from tests.support.providers import FLOE_V1, RETAINED_VERSIONS

VERSIONS = 60


def test_a_snapshot_that_was_rolled_back_does_not_stop_the_cleaning(
    harness: Harness, tmp_path: Path
) -> None:
    """Two actions a batch; maintenance falls between them now and then."""
    provider = harness.provider(FLOE_V1, tmp_path / "state")
    for version in range(VERSIONS):
        for action in range(2):
            store = provider.open(version)
            store.run([Put((version % 5, "k"), Value(version, "x", 3))])
            store.commit()
            if action == version % 2:
                provider.snapshot_maintenance()
        provider.cleanup_maintenance()
    provider.close()
    (files,) = reading.stores(tmp_path)
    assert len(reading.held_versions(files.source)) <= RETAINED_VERSIONS + 2
