"""The hot table as the sidecar reads it, against a shim in Python."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floe.format.layout import OP_PUT, OP_REMOVE, PAGE_BYTES, PAGE_ENTRIES
from floe.storage.slabs import SlabPool
from floe.tiers.hot import HotTable
from tests.support.durable import changes_of, padded
from tests.support.memory import slab_pool
from tests.support.mini_shim import MiniShim

keys = st.sampled_from([padded(f"key {n}") for n in range(6)])
values = st.integers(0, 30).map(lambda n: padded("v" * n))
epochs = st.lists(
    st.lists(st.tuples(keys, values | st.none()), max_size=12), min_size=1, max_size=4
)


@pytest.fixture
def pool() -> Iterator[SlabPool]:
    with slab_pool() as pool:
        yield pool


@settings(max_examples=60)
@given(epochs)
def test_the_changes_of_an_epoch_lead_from_one_state_to_the_next(
    listed: list[list[tuple[bytes, bytes | None]]],
) -> None:
    with slab_pool() as pool:
        shim = MiniShim(pool)
        for changes in listed:
            log = shim.begin()
            for key, value in changes:
                if value is None:
                    shim.remove(key)
                else:
                    shim.put(key, value)
            found = changes_of(shim.table.changes(shim.table.undo(log.ranges)))
            shim.commit()
            assert len({key for _, key, _ in found}) == len(found)
            state = dict(log.before)
            for op, key, value in found:
                if op == OP_PUT:
                    state[key] = value
                else:
                    assert (op, value) == (OP_REMOVE, b"")
                    del state[key]
            assert state == shim.state


def test_a_key_that_came_and_went_in_an_epoch_is_no_change(pool: SlabPool) -> None:
    shim = MiniShim(pool)
    log = shim.begin()
    shim.put(b"k" * 8, b"v" * 8)
    shim.remove(b"k" * 8)
    assert len(shim.table.changes(shim.table.undo(log.ranges))) == 0


def test_changes_come_in_the_order_of_first_touch(pool: SlabPool) -> None:
    shim = MiniShim(pool)
    log = shim.begin()
    names = [padded(f"key {n}") for n in (4, 1, 3, 2)]
    for name in [*names, *sorted(names)]:
        shim.put(name, b"")
    found = changes_of(shim.table.changes(shim.table.undo(log.ranges)))
    assert [key for _, key, _ in found] == names


def test_an_epoch_without_a_log_changed_nothing(pool: SlabPool) -> None:
    shim = MiniShim(pool)
    assert len(shim.table.changes(shim.table.undo([]))) == 0


def test_pages_are_cut_at_the_high_water_mark(pool: SlabPool) -> None:
    table = HotTable(pool.space)
    assert table.pages(1) == []  # a store without rows has no page
    for _ in range(2):
        table.add_pages(pool.allocate(PAGE_BYTES, owner="s"), table.page_bytes)
    found = [(first, len(page)) for first, page in table.pages(PAGE_ENTRIES + 3)]
    assert found == [(0, PAGE_ENTRIES), (PAGE_ENTRIES, 3)]


def test_entries_are_copies_in_the_order_asked_for(pool: SlabPool) -> None:
    shim = MiniShim(pool)
    shim.begin()
    for n in range(4):
        shim.put(padded(f"key {n}"), padded("v" * n))
    found = shim.table.entries(np.array([3, 1, 3], np.uint32))
    assert found["value_len"].tolist() == [8, 0, 8]
    found["value_len"] = 99
    assert shim.entry(padded("key 2"))["value_len"] == 8
