"""Memory that is not there: a budget that cannot fit, and state that outgrows its budget."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from floe.config import PREFIX
from floe.settings import MIB
from tests.support.batches import Batches, lived_in, some_rows, with_keys
from tests.support.harness import Harness, Store, StoreFailure
from tests.support.model import Put, Value
from tests.support.providers import FLOE_V2
from tests.support.refusals import Refusal, refusal_of, refused

BUDGET_BYTES = 16 * MIB
# Kept as they are, so that deltas are as large as their rows.
SMALL = with_keys(FLOE_V2, memory="16m", checkpoint_codec="none")


# A budget that cannot fit.


@dataclass(frozen=True)
class Crowded:
    """A JVM whose first store wanted more memory than there is, and what it was told."""

    harness: Harness
    batches: Batches
    refusal: Refusal


@pytest.fixture(scope="module")
def crowded(
    harness: Harness,
    new_harness: Callable[[], Harness],
    tmp_path_factory: pytest.TempPathFactory,
) -> Crowded:
    batches = lived_in(harness, FLOE_V2, tmp_path_factory.mktemp("crowded"))
    other = new_harness()
    greedy = Batches(other, with_keys(FLOE_V2, memory="10t"), batches.root)
    return Crowded(other, batches, greedy.refusal(batches.last))


def test_a_budget_that_cannot_fit_is_refused_with_the_numbers(crowded: Crowded) -> None:
    refusal = crowded.refusal
    assert refusal.kind == "InvalidRequest"
    assert f"{PREFIX}memory=10t does not fit" in refusal.text
    assert "JVM heap of 512 MiB" in refusal.text
    assert "the container's limit is" in refusal.text
    assert f"Set {PREFIX}memory=" in refusal.text
    assert "spark.executor.memoryOverhead" in refusal.text
    crowded.batches.check()


def test_a_budget_that_was_corrected_counts_without_a_new_executor(crowded: Crowded) -> None:
    crowded.batches.check(crowded.harness)


# State that outgrows its budget.


@pytest.fixture(scope="module")
def tight(new_harness: Callable[[], Harness]) -> Harness:
    return new_harness()


@pytest.fixture
def batches(tight: Harness, tmp_path: Path) -> Iterator[Batches]:
    """A small store in a JVM with a budget of 16 MiB."""
    batches = Batches(tight, SMALL, tmp_path)
    batches.commit(some_rows(0))
    batches.commit(some_rows(10))
    yield batches
    batches.provider.close()


def outgrow(store: Store, length: int) -> Refusal:
    """Puts rows until the memory is used up; what the last put says."""
    for start in count(1000, 100):
        try:
            store.run(some_rows(start, 100, length))
        except StoreFailure as failure:
            return refusal_of(failure)
    raise AssertionError


def assert_used_up(refusal: Refusal, batches: Batches) -> None:
    assert refusal.kind == "InvalidRequest"
    assert f"operator 0, partition 0, store default of {batches.root}" in refusal.text
    assert "more bytes" in refusal.text
    assert f"state memory of {BUDGET_BYTES} bytes is used up" in refusal.text
    assert f"raise {PREFIX}memory" in refusal.text
    assert "memoryOverhead" in refusal.text


def test_state_beyond_its_budget_is_refused_and_the_version_before_it_stays(
    batches: Batches,
) -> None:
    handle = batches.begin()
    assert_used_up(outgrow(handle, 900), batches)
    handle.abort()
    assert batches.load(batches.last, batches.provider) == batches.last.rows
    batches.commit(some_rows(1000, 100, 900))
    batches.restart()
    batches.check()


def test_a_commit_without_room_for_its_delta_fails_and_the_version_before_it_stays(
    batches: Batches,
) -> None:
    handle = batches.begin()
    outgrow(handle, 900)
    assert_used_up(refused(handle.commit), batches)
    handle.abort()
    assert batches.load(batches.last, batches.provider) == batches.last.rows
    batches.commit(some_rows(1000, 100, 900))
    batches.restart()
    batches.check()


def test_another_store_finds_room_when_the_one_that_took_it_is_closed(
    batches: Batches, tmp_path: Path
) -> None:
    handle = batches.begin()
    outgrow(handle, 900)
    handle.abort()
    batches.restart()
    other = Batches(batches.harness, SMALL, tmp_path / "other")
    other.commit(some_rows(0, 2_000, 900))
    other.provider.close()
    other.check()
    batches.check()


@pytest.mark.xfail(
    raises=StoreFailure,
    strict=True,
    reason="an arena gives nothing back, so a delta finds no room beside rows that are free",
)
def test_large_values_of_an_aborted_batch_make_room_for_the_next(batches: Batches) -> None:
    handle = batches.begin()
    outgrow(handle, 50_000)
    handle.abort()
    batches.commit(some_rows(1000, 20, 50_000))
    batches.restart()
    batches.check()


def test_a_large_value_that_is_put_again_and_again_takes_its_room_once(batches: Batches) -> None:
    for number in range(2 * BUDGET_BYTES // 100_000):
        batches.commit([Put((0, "large"), Value(number, "ice ", 100_000))])
    assert batches.load(batches.last, batches.provider) == batches.last.rows


def test_a_load_that_fails_again_and_again_keeps_no_memory(batches: Batches) -> None:
    """Four attempts of a task are the default; what they find broken may be repaired later."""
    batches.commit(some_rows(1000, 3_000, 900))
    batches.snapshot()
    batches.commit(some_rows(0))
    batches.snapshot()
    batches.restart()
    segments = sorted(batches.directory.glob("*.segment"), key=lambda path: path.stat().st_size)
    newest = segments[0]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1])
    for _ in range(8):
        refusal = batches.refusal(batches.last, batches.provider)
        assert refusal.kind == "Corrupt", refusal.text
        assert str(newest) in refusal.text
    newest.write_bytes(whole)
    assert batches.load(batches.last, batches.provider) == batches.last.rows


def test_a_row_larger_than_the_largest_is_refused_with_the_limit(
    harness: Harness, tmp_path: Path
) -> None:
    batches = Batches(harness, FLOE_V2, tmp_path)
    batches.commit(some_rows(0))
    handle = batches.begin()
    refusal = refused(lambda: handle.run([Put((1, "huge"), Value(1, "ice ", 70 * MIB))]))
    assert refusal.kind == "InvalidRequest"
    assert f"store default of {batches.root}" in refusal.text
    assert f"the largest row that Floe holds is {64 * MIB - 4096} bytes" in refusal.text
    handle.abort()
    batches.commit(some_rows(10))
    batches.check()
