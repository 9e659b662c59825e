"""Shared memory from both sides: what one writes the other reads, and all constants agree.

A slab of this process is mapped by a bare JVM, as the shim maps those of its sidecar. Either side
fills structures field by field with what it believes to be their layout.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from floe.format import layout
from floe.jvm import launch
from floe.storage.slabs import Extent, SlabPool
from tests.support.memory import slab_pool

MAIN_CLASS = "org.apache.spark.sql.floe.tools.LayoutProbe"
RECORDS = 5
DTYPES = {name: getattr(layout, name) for name in ("ENTRY", "UNDO", "STAGED", "SWITCH")}

# The JVM's name of each constant that is not the place of a field.
NUMBERS = {
    "Version": layout.LAYOUT_VERSION,
    "SlabBits": layout.SLAB_BITS,
    "SlabMask": layout.SLAB_STRIDE - 1,
    "SlabHeaderBytes": layout.SLAB_HEADER_BYTES,
    "SlabMagic": layout.SLAB_MAGIC,
    "PageBits": layout.PAGE_BITS,
    "PageEntries": layout.PAGE_ENTRIES,
    "PageBytes": layout.PAGE_BYTES,
    "EntryBytes": layout.ENTRY.itemsize,
    "UndoBytes": layout.UNDO.itemsize,
    "StagedBytes": layout.STAGED.itemsize,
    "SwitchBytes": layout.SWITCH.itemsize,
    "FamilyMask": layout.FAMILY_MASK,
    "DeadFlag": layout.DEAD_FLAG,
    "GroupFlag": layout.GROUP_FLAG,
    "FreeFlag": layout.FREE_FLAG,
    "NotARow": layout.NOT_A_ROW,
    "OpPut": layout.OP_PUT,
    "OpRemove": layout.OP_REMOVE,
    "Never": layout.NEVER,
}
# How the JVM begins the names of a structure's fields.
PREFIXES = {"ENTRY": "", "UNDO": "Undo", "STAGED": "Staged", "SWITCH": "Switch"}
# `key` and `value` are the only fields whose names differ: they are refs.
REFS = {("ENTRY", "key"): "KeyRef", ("STAGED", "key"): "KeyRef", ("STAGED", "value"): "ValueRef"}
# Constants that Python has no use for.
OF_THE_JVM = {"IdentityMask"}


class Probe:
    """One exchange with a JVM over one slab."""

    def __init__(self, pool: SlabPool) -> None:
        self._pool = pool
        extents = {name: pool.allocate(4096, owner="probe") for name in DTYPES}
        targets = {name: pool.allocate(4096, owner="probe") for name in DTYPES}
        self.ours = {name: self._view(name, extent) for name, extent in extents.items()}
        self.theirs = {name: self._view(name, extent) for name, extent in targets.items()}
        for view in self.ours.values():
            _fill(view)
        (slab,) = pool.slabs.values()
        path = f"/proc/{os.getpid()}/fd/{slab.fd}"
        request = {
            "slab": {"number": slab.number, "path": path, "bytes": slab.bytes},
            "read": {name: [extent.ref, RECORDS] for name, extent in extents.items()},
            "write": {name: [extent.ref, RECORDS] for name, extent in targets.items()},
        }
        with launch(MAIN_CLASS, heap="64m") as process:
            answer, _ = process.communicate(json.dumps(request) + "\n", timeout=120)
        assert process.returncode == 0
        self.answer: dict[str, Any] = json.loads(answer)

    def _view(self, name: str, extent: Extent) -> npt.NDArray[np.void]:
        return self._pool.space.structs(extent.ref, RECORDS, DTYPES[name])


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    with slab_pool() as pool:
        yield Probe(pool)


def _fill(records: npt.NDArray[np.void]) -> None:
    """Every field of every record has bytes of its own; signed ones are negative now and then."""
    chance = np.random.default_rng(1)
    for name in _fields(records.dtype):
        info = np.iinfo(records.dtype[name])
        low = max(info.min, -(2**31) if info.bits == 32 else -(2**63))
        records[name] = chance.integers(low, info.max, len(records), records.dtype[name])


def _fields(dtype: np.dtype[np.void]) -> list[str]:
    return [name for name in dtype.names or () if name != "spare"]


def _unsigned(value: int, dtype: np.dtype[Any]) -> int:
    """The JVM knows signed numbers only."""
    return value % (1 << dtype.itemsize * 8)


def _plain(records: npt.NDArray[np.void]) -> list[dict[str, int]]:
    names = _fields(records.dtype)
    return [{n: _unsigned(int(r[n]), records.dtype[n]) for n in names} for r in records]


def _told(records: list[dict[str, int]], dtype: np.dtype[np.void]) -> list[dict[str, int]]:
    return [{n: _unsigned(v, dtype[n]) for n, v in record.items()} for record in records]


@pytest.mark.parametrize("name", DTYPES)
def test_the_jvm_reads_what_python_wrote(probe: Probe, name: str) -> None:
    assert _told(probe.answer["read"][name], DTYPES[name]) == _plain(probe.ours[name])


@pytest.mark.parametrize("name", DTYPES)
def test_python_reads_what_the_jvm_wrote(probe: Probe, name: str) -> None:
    assert _plain(probe.theirs[name]) == _told(probe.answer["written"][name], DTYPES[name])


@pytest.mark.parametrize("name", DTYPES)
def test_the_jvm_wrote_nothing_else(probe: Probe, name: str) -> None:
    records = probe.theirs[name]
    if "spare" in (records.dtype.names or ()):
        assert not records["spare"].any()
    fields = sum(records.dtype[field].itemsize for field in records.dtype.names or ())
    assert fields == records.dtype.itemsize


def test_every_constant_of_the_jvm_is_the_same_here(probe: Probe) -> None:
    expected = dict(NUMBERS)
    for struct, dtype in DTYPES.items():
        for field in _fields(dtype):
            name = REFS.get((struct, field)) or field.title().replace("_", "")
            expected[PREFIXES[struct] + name] = int(dtype.fields[field][1])
    found = {k: v for k, v in probe.answer["constants"].items() if k not in OF_THE_JVM}
    assert found == expected


def test_structures_are_whole_words_and_entries_a_cache_line() -> None:
    assert all(dtype.itemsize % 8 == 0 for dtype in DTYPES.values())
    assert layout.ENTRY.itemsize == 64
    for dtype in DTYPES.values():
        for name in dtype.names or ():
            assert dtype.fields[name][1] % dtype[name].itemsize == 0
