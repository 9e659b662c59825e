"""The buddy allocator against a model, and slabs that change hands."""

import os
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from floe.errors import Corrupt, InvalidRequest
from floe.format.layout import SLAB_BITS, SLAB_HEADER_BYTES, SLAB_STRIDE
from floe.storage.slabs import Extent, SlabPool
from tests.support.memory import close, slab_pool

MIB = 1 << 20
BUDGET = 8 * MIB
PAGE = 4096


class SlabMachine(RuleBasedStateMachine):
    """Extents are filled with a byte of their own, so that any overlap shows."""

    @initialize()
    def start(self) -> None:
        self.pool = SlabPool(BUDGET, MIB)
        self.out: dict[int, tuple[Extent, int]] = {}
        self.stamp = 0

    @rule(
        wanted=st.sampled_from([1, PAGE, PAGE + 1, 60_000, MIB // 4, MIB // 2, MIB - PAGE])
        | st.integers(1, 3 * MIB)
    )
    def allocate(self, wanted: int) -> None:
        try:
            extent = self.pool.allocate(wanted, owner="s")
        except InvalidRequest:
            largest = max(MIB, 1 << (wanted + SLAB_HEADER_BYTES - 1).bit_length())
            assert self.pool.total_bytes + largest > BUDGET
            return
        assert extent.bytes >= wanted
        assert not self.bytes(extent).any()
        self.stamp = self.stamp % 255 + 1
        self.bytes(extent)[:] = self.stamp
        assert extent.ref not in self.out
        self.out[extent.ref] = extent, self.stamp

    @precondition(lambda self: self.out)
    @rule(data=st.data(), repeated=st.booleans())
    def free(self, data: st.DataObject, repeated: bool) -> None:
        refs = data.draw(st.lists(st.sampled_from(sorted(self.out)), unique=True))
        self.pool.free(refs)
        for ref in refs:
            del self.out[ref]
        if repeated:  # as a message that is sent again
            self.pool.free(refs)

    @rule()
    def trim(self) -> None:
        slabs = {number: slab.bytes for number, slab in self.pool.slabs.items()}
        before = self.pool.total_bytes
        gone = self.pool.trim()
        assert not {ref >> SLAB_BITS for ref in self.out} & set(gone)
        assert set(self.pool.slabs) == set(slabs) - set(gone)
        assert self.pool.total_bytes == before - sum(slabs[number] for number in gone)

    @rule()
    def move_to_another_sidecar(self) -> None:
        old = self.pool
        self.pool = SlabPool(BUDGET, MIB)
        for slab in old.slabs.values():
            self.pool.adopt(slab.number, f"/proc/self/fd/{slab.fd}", slab.bytes)
        self.pool.settle([extent for extent, _ in self.out.values()])
        assert {n: s.free for n, s in self.pool.slabs.items()} == {
            n: s.free for n, s in old.slabs.items()
        }
        close(old)

    @rule()
    def everything_comes_back_in_one_piece(self) -> None:
        self.pool.free(list(self.out))
        self.out.clear()
        before = self.pool.total_bytes
        count = sum(slab.bytes // MIB for slab in self.pool.slabs.values())
        halves = [self.pool.allocate(MIB // 2, owner="s") for _ in range(count)]
        assert self.pool.total_bytes == before
        self.pool.free([half.ref for half in halves])

    @invariant()
    def extents_lie_apart_inside_of_their_slabs(self) -> None:
        ends: dict[int, int] = {}
        for ref in sorted(self.out):
            extent, _ = self.out[ref]
            number, offset = ref >> SLAB_BITS, ref & (SLAB_STRIDE - 1)
            assert offset >= ends.get(number, SLAB_HEADER_BYTES)
            ends[number] = offset + extent.bytes
            assert ends[number] <= self.pool.slabs[number].bytes

    @invariant()
    def extents_hold_what_was_written(self) -> None:
        for extent, stamp in self.out.values():
            assert (self.bytes(extent) == stamp).all()

    @invariant()
    def sums_are_right_and_within_the_budget(self) -> None:
        assert self.pool.used_bytes == sum(extent.bytes for extent, _ in self.out.values())
        assert self.pool.total_bytes == sum(slab.bytes for slab in self.pool.slabs.values())
        assert self.pool.used_bytes <= self.pool.total_bytes <= BUDGET

    def bytes(self, extent: Extent) -> "np.typing.NDArray[np.uint8]":
        return self.pool.space.bytes[extent.ref : extent.ref + extent.bytes]

    def teardown(self) -> None:
        close(self.pool)


TestSlabMachine = SlabMachine.TestCase
TestSlabMachine.settings = settings(max_examples=40, stateful_step_count=30)


@pytest.fixture
def pool() -> Iterator[SlabPool]:
    with slab_pool(BUDGET, MIB) as pool:
        yield pool


def test_pages_that_come_back_in_any_order_are_half_a_slab_again(pool: SlabPool) -> None:
    pages = [pool.allocate(1, owner="s") for _ in range(MIB // PAGE - 1)]
    assert (len(pool.slabs), pool.used_bytes) == (1, MIB - SLAB_HEADER_BYTES)
    refs = [page.ref for page in pages]
    random.Random(1).shuffle(refs)
    pool.free(refs)
    assert pool.allocate(MIB // 2, owner="s").bytes == MIB // 2
    assert len(pool.slabs) == 1


def test_a_reused_extent_is_zeroed(pool: SlabPool) -> None:
    for size in (PAGE, MIB // 2, 2 * MIB):
        extent = pool.allocate(size, owner="s")
        pool.space.bytes[extent.ref : extent.ref + extent.bytes] = 7
        pool.free([extent.ref])
        again = pool.allocate(size, owner="s")
        assert again == extent
        assert not pool.space.bytes[again.ref : again.ref + again.bytes].any()
        pool.free([again.ref])


def test_a_large_extent_has_a_slab_of_its_own(pool: SlabPool) -> None:
    extent = pool.allocate(MIB, owner="s")
    assert extent.bytes == 2 * MIB - SLAB_HEADER_BYTES
    assert [slab.bytes for slab in pool.slabs.values()] == [2 * MIB]


def test_a_full_budget_names_the_store_the_bytes_and_the_key(pool: SlabPool) -> None:
    pool.allocate(4 * MIB - SLAB_HEADER_BYTES, owner="first")
    with pytest.raises(InvalidRequest) as caught:
        pool.allocate(4 * MIB, owner="operator 0, partition 3")
    message = caught.value.message
    assert "operator 0, partition 3 needs 8388608 more bytes" in message
    assert f"{BUDGET} bytes is used up" in message
    assert "spark.sql.streaming.stateStore.floe.memory" in message
    assert caught.value.fields["budget"] == BUDGET
    assert caught.value.fields["used"] == 4 * MIB - SLAB_HEADER_BYTES


def test_a_row_that_no_slab_can_hold_is_refused_with_the_limit(pool: SlabPool) -> None:
    with pytest.raises(InvalidRequest, match=str(SLAB_STRIDE - SLAB_HEADER_BYTES)):
        pool.allocate(SLAB_STRIDE, owner="s")


def test_the_number_of_a_slab_that_went_is_not_given_out_at_once(pool: SlabPool) -> None:
    extents = [pool.allocate(MIB // 2, owner="s") for _ in range(5)]
    numbers = set(pool.slabs)
    pool.free([extent.ref for extent in extents])
    gone = set(pool.trim())
    assert gone
    while len(pool.slabs) <= len(numbers - gone):
        pool.allocate(MIB // 2, owner="s")
    assert not set(pool.slabs) & gone


def test_what_is_not_the_slab_in_question_is_not_adopted(pool: SlabPool) -> None:
    pool.allocate(1, owner="s")
    (slab,) = pool.slabs.values()
    path = f"/proc/self/fd/{slab.fd}"
    with slab_pool() as heir:
        with pytest.raises(Corrupt, match="has 1048576 bytes, not 2097152"):
            heir.adopt(slab.number, path, 2 * MIB)
        with pytest.raises(Corrupt, match="is not slab 5"):
            heir.adopt(5, path, MIB)
        pool.space.bytes[(slab.number << SLAB_BITS) + 8] ^= 1  # the layout version
        with pytest.raises(Corrupt, match=f"is not slab {slab.number} of memory layout"):
            heir.adopt(slab.number, path, MIB)


def test_memory_of_a_slab_cannot_be_cut_off(pool: SlabPool) -> None:
    pool.allocate(1, owner="s")
    (slab,) = pool.slabs.values()
    with pytest.raises(PermissionError):
        os.ftruncate(slab.fd, 0)
