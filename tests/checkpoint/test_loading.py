"""Loading: staged rows, linked in order, are the state of the version."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from floe.checkpoint import lineage, loading
from floe.checkpoint.loading import Loading, Portion
from floe.checkpoint.source import FileSource, NeedFiles
from floe.errors import Corrupt
from floe.format.layout import NEVER, OP_PUT, STAGED
from floe.storage.slabs import SlabPool
from floe.storage.space import Space
from tests.checkpoint.test_retention import grown, steps
from tests.support.durable import Change, Commit, History, State, make_rows, put, remove
from tests.support.memory import slab_pool

MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[SlabPool]:
    with slab_pool(32 * MIB, MIB) as pool:
        yield pool


def begin(history: History, commit: Commit, pool: SlabPool) -> Loading:
    source = FileSource(history.directory)
    way = lineage.resolve(source, "s", commit.version, commit.id, [])
    return Loading(source, way, pool.space, lambda _, size: pool.allocate(size, owner="s"))


def link(space: Space, portion: Portion, state: State, markers: dict[bytes, int]) -> None:
    """What the shim does with staged rows, by their refs alone."""

    def at(ref: int, size: int) -> bytes:
        return space.bytes[ref : ref + size].tobytes()

    for row in space.structs(portion.staged.ref, portion.count, STAGED):
        key = at(int(row["key"]) + 8, int(row["key_len"]))
        assert at(int(row["key"]), 8) == make_rows([(OP_PUT, key, b"")]).hash.tobytes()
        assert portion.arena.ref <= row["key"]
        assert row["value"] + row["value_len"] <= portion.arena.ref + portion.arena.bytes
        assert (row["family"], row["expiry"]) == (0, NEVER)
        if row["op"] == OP_PUT:
            state[key] = at(int(row["value"]), int(row["value_len"]))
            markers[key] = int(row["cold"])
        else:
            state.pop(key, None)
            markers.pop(key, None)


def loaded(work: Loading) -> tuple[State, dict[bytes, int]]:
    state: State = {}
    markers: dict[bytes, int] = {}
    for portion in work.portions():
        link(work.space, portion, state, markers)
    return state, markers


@settings(max_examples=60)
@given(steps)
def test_a_load_brings_the_state_of_its_version(listed: list[tuple[str, list[Change]]]) -> None:
    with tempfile.TemporaryDirectory() as scratch, slab_pool(64 * MIB, MIB) as pool:
        history = History(Path(scratch))
        commits = grown(history, listed)
        for commit in commits[-1:]:
            assert loaded(begin(history, commit, pool))[0] == commit.state


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_rows_of_a_snapshot_carry_the_marker_of_their_record(
    history: History, pool: SlabPool
) -> None:
    first = history.commit(None, put("a", "1"), put("b", "2"), put("c", "3"))
    history.snapshot(first)
    second = history.commit(first, put("b", "new"), remove("c"))
    work = begin(history, second, pool)
    state, markers = loaded(work)
    assert state == second.state
    ((number, known),) = work.log.segments.items()
    first_word = int(known.words[0])
    assert sorted(markers.values()) == [0, number << 32 | first_word]
    assert [int(word) for word in known.words] == sorted(known.words.tolist())
    record = (history.directory / known.entry.name).read_bytes()[first_word * 8 :]
    assert record[8:16] == put("a", "1")[1]


def test_dead_records_of_a_segment_are_not_loaded_but_known(
    history: History, pool: SlabPool
) -> None:
    first = history.commit(None, put("a", "1"), put("b", "2"), put("c", "3"))
    history.snapshot(first)
    second = history.commit(first, remove("b"))
    history.snapshot(second)
    work = begin(history, second, pool)
    assert loaded(work)[0] == second.state
    (known,) = work.log.segments.values()
    assert known.entry.live.tolist() == [True, False, True]
    assert len(known.words) == 3


def test_portions_name_the_commit_they_belong_to(
    history: History, pool: SlabPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_PORTION_ROWS", 2)
    first = history.commit(None, *(put(f"k{n}", "v" * n) for n in range(5)))
    second = history.commit(first, put("k9", "v"))
    work = begin(history, second, pool)
    state: State = {}
    seen = []
    for portion in work.portions():
        link(pool.space, portion, state, {})
        seen.append((portion.version, portion.id, portion.count))
    assert seen == [(1, first.id, 2), (1, first.id, 2), (1, first.id, 1), (2, second.id, 1)]
    assert state == second.state


def test_a_portion_ends_before_it_outgrows_its_extent(
    history: History, pool: SlabPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_PORTION_BYTES", 64)
    commit = history.commit(None, put("a", "x"), put("b", "x"), put("c", "x" * 500), put("d", ""))
    portions = list(begin(history, commit, pool).portions())
    assert [portion.count for portion in portions] == [2, 1, 1]


def test_a_version_in_memory_is_not_read_again(history: History, pool: SlabPool) -> None:
    first = history.commit(None, put("a", "1"))
    history.snapshot(first)
    second = history.commit(first, put("b", "2"))
    source = FileSource(history.directory)
    way = lineage.resolve(source, "s", 2, second.id, [first.point])
    work = Loading(source, way, pool.space, lambda _, size: pool.allocate(size, owner="s"))
    assert list(loaded(work)[0]) == [put("b", "2")[1]]


def test_a_damaged_segment_is_named(history: History, pool: SlabPool) -> None:
    commit = history.commit(None, put("a", "1"))
    history.snapshot(commit)
    (segment,) = history.directory.glob("*.segment")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Corrupt) as caught:
        loaded(begin(history, commit, pool))
    assert caught.value.fields["path"] == str(segment)
    segment.unlink()
    with pytest.raises(Corrupt, match="is missing"):
        loaded(begin(history, commit, pool))


def test_the_segments_of_a_remote_snapshot_are_asked_for_before_anything_is_copied(
    history: History, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commit = history.commit(None, put("a", "1"))
    history.snapshot(commit)
    listing = frozenset(path.name for path in history.directory.iterdir())
    scratch = tmp_path_factory.mktemp("scratch")
    (manifest,) = history.directory.glob("*.manifest")
    (segment,) = history.directory.glob("*.segment")
    (scratch / manifest.name).write_bytes(manifest.read_bytes())
    source = FileSource(scratch, listing)
    way = lineage.resolve(source, "s", 1, commit.id, [])
    with pytest.raises(NeedFiles) as need:
        loading.needed(source, way)
    assert need.value.names == [segment.name]
