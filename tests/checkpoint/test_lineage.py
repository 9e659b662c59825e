"""From a version to its files: chains that retries, forks and foreign snapshots cannot redirect."""

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from floe.checkpoint.lineage import Lineage, resolve
from floe.checkpoint.source import FileSource, NeedFiles
from floe.errors import Corrupt, InvalidRequest
from floe.storage import paths
from tests.support.durable import Commit, History, changes_of, put, remove

STORE = "operator 0, partition 1, store default"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "store")


@pytest.fixture
def aliased(tmp_path: Path) -> History:
    """Format v1: Spark asks by version alone."""
    return History(tmp_path / "store", with_alias=True)


def chain(history: History, length: int) -> list[Commit]:
    """Versions 1 to `length`, each on the one before."""
    commits: list[Commit] = []
    for n in range(1, length + 1):
        commits.append(history.commit(commits[-1] if commits else None, put(f"key {n}", "v")))
    return commits


def find(
    history: History,
    version: int,
    id: UUID | None = None,
    bases: list[tuple[int, UUID | None]] | None = None,
) -> Lineage:
    return resolve(FileSource(history.directory), STORE, version, id, bases or [])


def replayed(lineage: Lineage) -> list[tuple[int, UUID]]:
    return [(commit.trailer.version, commit.trailer.id) for commit in lineage.commits]


def test_without_a_snapshot_all_commits_are_replayed_in_order(history: History) -> None:
    commits = chain(history, 3)
    found = find(history, 3, commits[-1].id)
    assert found.base == (0, None)
    assert not found.in_memory
    assert found.snapshot is None
    assert replayed(found) == [commit.point for commit in commits]
    assert changes_of(found.commits[1].batches[0]) == [put("key 2", "v")]


def test_version_0_is_empty_and_needs_no_file(history: History) -> None:
    found = find(history, 0)
    assert (found.base, found.commits) == ((0, None), [])


def test_a_snapshot_in_the_lineage_is_where_a_load_begins(history: History) -> None:
    commits = chain(history, 4)
    history.snapshot(commits[1])
    found = find(history, 4, commits[3].id)
    assert found.base == found.snapshot == commits[1].point
    assert replayed(found) == [commits[2].point, commits[3].point]


def test_a_snapshot_of_the_version_itself_needs_no_delta(history: History) -> None:
    commits = chain(history, 2)
    history.snapshot(commits[1])
    for path in history.directory.glob("*.delta"):
        path.unlink()
    found = find(history, 2, commits[1].id)
    assert (found.base, found.commits) == (commits[1].point, [])


def test_a_snapshot_of_another_lineage_is_ignored(history: History) -> None:
    first, left = chain(history, 2)
    right = history.commit(first, put("other", "way"))
    tip = history.commit(right, put("tip", "v"))
    history.snapshot(left)
    found = find(history, 3, tip.id)
    assert found.base == (0, None)
    assert replayed(found) == [first.point, right.point, tip.point]


def test_a_version_that_was_committed_twice_is_followed_by_id(history: History) -> None:
    (first,) = chain(history, 1)
    left, right = (history.commit(first, put("side", side)) for side in ("left", "right"))
    for tip in (left, right):
        after = history.commit(tip, put("after", "v"))
        assert replayed(find(history, 3, after.id))[1] == tip.point


def test_the_alias_names_the_last_commit_of_a_version(aliased: History) -> None:
    (first,) = chain(aliased, 1)
    aliased.commit(first, put("side", "left"))
    right = aliased.commit(first, put("side", "right"))
    assert replayed(find(aliased, 2)) == [first.point, right.point]


def test_what_stands_on_an_overwritten_commit_still_finds_it(aliased: History) -> None:
    first, left = chain(aliased, 2)
    after = aliased.commit(left, put("after", "v"))
    aliased.commit(first, put("side", "right"))  # takes the alias of version 2
    assert replayed(find(aliased, 3)) == [first.point, left.point, after.point]


def test_the_alias_alone_is_enough(aliased: History) -> None:
    """On a file system without links a commit has no second name."""
    commits = chain(aliased, 3)
    for path in aliased.directory.glob("*_*.delta"):
        path.unlink()
    assert replayed(find(aliased, 3)) == [commit.point for commit in commits]


def test_an_alias_of_another_commit_does_not_stand_in(aliased: History) -> None:
    first, left = chain(aliased, 2)
    after = aliased.commit(left, put("after", "v"))
    (aliased.directory / paths.delta(*left.point)).unlink()
    aliased.commit(first, put("side", "right"))
    with pytest.raises(InvalidRequest, match=f"version 2 with id {left.id} cannot be loaded"):
        find(aliased, 3, after.id)


def test_an_alias_with_the_wrong_version_inside_is_refused(aliased: History) -> None:
    chain(aliased, 2)
    shutil.copy(aliased.directory / "1.delta", aliased.directory / "2.delta")
    with pytest.raises(InvalidRequest, match=r"2\.delta holds version 1"):
        find(aliased, 2)


def test_a_version_in_memory_ends_the_way_back(history: History) -> None:
    commits = chain(history, 4)
    history.snapshot(commits[0])
    bases: list[tuple[int, UUID | None]] = [commits[2].point, commits[1].point]
    found = find(history, 4, commits[3].id, bases)
    assert found.in_memory
    assert found.base == commits[2].point
    assert replayed(found) == [commits[3].point]


def test_the_last_snapshot_of_a_lineage_is_known_without_loading_it(history: History) -> None:
    first, second = chain(history, 2)
    history.snapshot(second)
    third = history.commit(second, put("c", "3"))
    found = find(history, 3, third.id, [second.point])
    assert found.in_memory
    assert found.snapshot == second.point
    assert first.snapshot is None


def test_a_fork_in_memory_is_no_base(history: History) -> None:
    first, left = chain(history, 2)
    right = history.commit(first, remove("key 1"))
    found = find(history, 2, right.id, [left.point, first.point])
    assert found.base == first.point
    assert replayed(found) == [right.point]


def test_one_commit_of_a_version_needs_no_id(history: History) -> None:
    commits = chain(history, 2)
    assert replayed(find(history, 2)) == [commit.point for commit in commits]


def test_two_commits_of_a_version_without_an_id_are_refused_with_the_way_out(
    history: History,
) -> None:
    (first,) = chain(history, 1)
    history.commit(first, put("side", "left"))
    history.commit(first, put("side", "right"))
    with pytest.raises(InvalidRequest) as caught:
        find(history, 2)
    assert "committed more than once" in caught.value.message
    assert "checkpointFormatVersion=2" in caught.value.message


@pytest.mark.parametrize("id", [None, UUID(int=99)])
def test_a_missing_version_says_what_is_there(history: History, id: UUID | None) -> None:
    chain(history, 3)
    with pytest.raises(InvalidRequest) as caught:
        find(history, 7, id)
    message = caught.value.message
    assert STORE in message
    assert "version 7" in message
    assert str(history.directory) in message
    assert "versions 1 to 3 found there" in message
    assert caught.value.fields["version"] == 7
    if id:
        assert str(id) in message


def test_an_empty_directory_says_so(history: History) -> None:
    with pytest.raises(InvalidRequest, match="no version found there"):
        find(history, 1)


def test_a_gap_in_the_chain_names_the_version_that_is_missing(history: History) -> None:
    commits = chain(history, 3)
    (history.directory / paths.delta(*commits[1].point)).unlink()
    with pytest.raises(InvalidRequest, match=f"version 2 with id {commits[1].id}"):
        find(history, 3, commits[2].id)


def test_a_damaged_delta_is_named_with_its_path(aliased: History) -> None:
    commits = chain(aliased, 3)
    path = aliased.directory / paths.delta(*commits[1].point)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt) as caught:
        find(aliased, 3)
    assert caught.value.fields["path"] == str(path)
    alias = aliased.directory / paths.delta_alias(3)
    alias.write_bytes(b"")
    with pytest.raises(Corrupt) as caught:
        find(aliased, 3)
    assert caught.value.fields["path"] == str(alias)


# -- files that must be fetched ------------------------------------------------------------------


def test_a_remote_load_asks_for_all_it_needs_at_once(history: History, tmp_path: Path) -> None:
    commits = chain(history, 5)
    history.snapshot(commits[1])
    (history.directory / "_metadata").mkdir()
    listing = frozenset(path.name for path in history.directory.iterdir())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = FileSource(scratch, listing)
    with pytest.raises(NeedFiles) as need:
        resolve(source, STORE, 4, commits[3].id, [])
    wanted = [paths.manifest(*commits[1].point)]
    wanted += [paths.delta(*commit.point) for commit in commits[2:4]]
    assert sorted(need.value.names) == sorted(wanted)
    for name in need.value.names:
        shutil.copy(history.directory / name, scratch)
    assert replayed(resolve(source, STORE, 4, commits[3].id, [])) == [
        commit.point for commit in commits[2:4]
    ]


def test_a_remote_load_that_goes_further_back_asks_again(history: History, tmp_path: Path) -> None:
    """The newest snapshot may be of another lineage; then the guess was too short."""
    first, left = chain(history, 2)
    right = history.commit(first, put("side", "right"))
    history.snapshot(left)
    listing = frozenset(path.name for path in history.directory.iterdir())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = FileSource(scratch, listing)
    rounds = 0
    while True:
        try:
            found = resolve(source, STORE, 2, right.id, [])
            break
        except NeedFiles as need:
            rounds += 1
            assert rounds < 9
            for name in need.names:
                shutil.copy(history.directory / name, scratch)
    assert replayed(found) == [first.point, right.point]
