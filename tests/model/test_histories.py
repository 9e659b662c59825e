"""Histories that once went wrong, written out."""

from pathlib import Path

import pytest

from tests.support.harness import Harness, ProviderKind
from tests.support.model import Get, Operation, Put, Remove, Value
from tests.support.providers import FLOE_V1, FLOE_V2

X, Y = (1, "x"), (2, "y")


def test_going_back_behind_a_removal_that_was_undone_finds_the_row(
    harness: Harness, tmp_path: Path
) -> None:
    """A revival that is aborted must not free an entry that an older undo log still names."""
    provider = harness.provider(FLOE_V1, tmp_path)
    history: list[Operation] = [Put(X, Value(1, "a", 3)), Remove(X)]
    for version, operation in enumerate(history):
        store = provider.open(version)
        store.run([operation])
        store.commit()
    store = provider.open(2)
    store.run([Put(X, Value(2, "b", 3))])
    store.abort()
    store = provider.open(2)
    store.run([Put(Y, Value(3, "c", 3))])
    store.abort()
    store = provider.open(1)
    assert store.run([Get(X), Get(Y)]) == [[1, "aaa"], None]
    store.abort()
    provider.close()


@pytest.mark.parametrize("length", [100, 1_000, 3_000, 50_000])
def test_memory_stays_flat_when_rows_are_only_replaced(
    harness: Harness, tmp_path: Path, length: int
) -> None:
    """Space of past versions is found again, whatever the size of the rows."""
    provider = harness.provider(FLOE_V2, tmp_path)
    id = None
    held = []
    for version in range(40):
        store = provider.open(version, id)
        store.run([Put((i, "k"), Value(version, "v", length)) for i in range(20)])
        held.append(store.metrics()["custom"]["floeHotBytes"])
        id = store.commit().id
    provider.close()
    assert held[-1] == held[20]


@pytest.mark.parametrize("kind", [FLOE_V1, FLOE_V2], ids=lambda kind: kind.name)
def test_a_refused_setting_does_not_outlive_its_query(
    harness: Harness, tmp_path: Path, kind: ProviderKind
) -> None:
    """A table that was refused is not offered to the next sidecar, which would refuse it again."""
    wrong = ProviderKind(
        "wrong",
        kind.class_name,
        {**kind.conf, "spark.sql.streaming.stateStore.floe.log.minLiveRatio": "7"},
        kind.format_version,
    )
    with pytest.raises(Exception, match=r"log\.minLiveRatio"):
        harness.provider(wrong, tmp_path / "wrong").open(0)
    provider = harness.provider(kind, tmp_path / "right")
    provider.open(0).commit()
    harness.kill_sidecars()
    store = harness.provider(kind, tmp_path / "another").open(0)
    store.run([Put(X, Value(1, "a", 3))])
    assert store.commit().version == 1


def test_stores_are_spread_over_several_sidecars_and_all_of_them_may_die(tmp_path: Path) -> None:
    """In a JVM of its own: how many sidecars there are is settled by the first store."""
    kind = ProviderKind(
        "several",
        FLOE_V2.class_name,
        {
            **FLOE_V2.conf,
            "spark.sql.streaming.stateStore.floe.sidecar.processes": "2",
            "spark.sql.streaming.stateStore.floe.memory": "256m",
        },
        FLOE_V2.format_version,
    )
    harness = Harness(tmp_path)
    try:
        providers = [harness.provider(kind, tmp_path / "state", partition=i) for i in range(6)]
        ids: list[str | None] = [None] * len(providers)
        for version in range(3):
            for i, provider in enumerate(providers):
                store = provider.open(version, ids[i])
                store.run([Put(X, Value(version, "a", i))])
                ids[i] = store.commit().id
            harness.kill_sidecars()
        for i, id in enumerate(ids):
            store = harness.provider(kind, tmp_path / "state", partition=i).open(3, id)
            assert store.run([Get(X)]) == [[2, "a" * i]]
            store.abort()
    finally:
        harness.close()
