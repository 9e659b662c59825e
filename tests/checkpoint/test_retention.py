"""Retention: what goes, what stays, and that nothing is missed afterwards."""

import tempfile
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floe.checkpoint import reading
from floe.checkpoint.retention import deletable
from floe.checkpoint.source import FileSource, NeedFiles
from floe.storage import paths
from tests.support.durable import Change, Commit, History, put, remove, state_of

FOREIGN = ["_metadata/schema", ".3.delta.crc", "3.zip", "notes.txt", "7.changelog"]

changes = st.lists(
    st.builds(put, st.sampled_from("abcde"), st.sampled_from("1234"))
    | st.builds(remove, st.sampled_from("abcde")),
    max_size=4,
    unique_by=lambda change: change[1],
)
steps = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "commit", "snapshot", "fork"]), changes),
    min_size=1,
    max_size=14,
)


def grown(history: History, listed: list[tuple[str, list[Change]]]) -> list[Commit]:
    """Runs steps; all commits, the tip last. A fork commits the tip's version once more."""
    commits: list[Commit] = []
    tip: Commit | None = None
    for step, change in listed:
        if step == "snapshot" and tip is not None and tip.id not in history.snapshots:
            history.snapshot(tip)
        elif step == "fork" and tip is not None:
            tip = history.commit(tip.parent, *change)
            commits.append(tip)
        elif step == "commit":
            tip = history.commit(tip, *change)
            commits.append(tip)
    return commits


def clean(history: History, tip: Commit, oldest: int, min_versions: int = 1) -> list[str]:
    last = history.last_snapshot(tip)
    source = FileSource(history.directory)
    names = deletable(source, last.point if last else None, oldest, min_versions)
    for name in names:
        (history.directory / name).unlink()
    return names


@settings(max_examples=200)
@given(steps, st.integers(0, 12), st.booleans())
def test_every_retained_version_can_still_be_read(
    listed: list[tuple[str, list[Change]]], keep: int, with_alias: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        history = History(Path(scratch), with_alias)
        commits = grown(history, listed)
        if not commits:
            return
        tip = commits[-1]
        oldest = max(0, tip.version - keep)
        clean(history, tip, oldest)
        source = FileSource(history.directory)
        for commit in tip.lineage():
            if commit.version >= max(1, oldest):
                rows = reading.state(source, "s", commit.version, commit.id)
                assert state_of(rows) == commit.state


@settings(max_examples=100)
@given(steps, st.integers(0, 4))
def test_nothing_older_than_the_snapshot_to_start_from_is_left(
    listed: list[tuple[str, list[Change]]], keep: int
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        history = History(Path(scratch))
        commits = grown(history, listed)
        if not commits:
            return
        oldest = max(0, commits[-1].version - keep)
        snapshots = [c for c in commits[-1].lineage() if c.id in history.snapshots]
        base = max((c.version for c in snapshots if c.version <= oldest), default=0)
        clean(history, commits[-1], oldest)
        left = FileSource(history.directory).names()
        assert min((n.version for n in left if n.version is not None), default=base) >= base
        named = {
            entry.name
            for commit in commits
            if commit.id in history.snapshots and commit.version >= base
            for entry in history.snapshots[commit.id]
        }
        assert {n.name for n in left if n.kind == "segment"} == named


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_files_of_others_are_never_named(history: History) -> None:
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(8)])
    history.snapshot(commits[5])
    tip = history.commit(commits[7])
    for name in FOREIGN:
        path = history.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"not ours")
    gone = clean(history, tip, 7)
    assert len(gone) == 5
    assert all((history.directory / name).read_bytes() == b"not ours" for name in FOREIGN)


def test_a_segment_that_no_manifest_names_yet_is_left_alone(history: History) -> None:
    """It may belong to a snapshot that is being uploaded right now."""
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(4)])
    history.snapshot(commits[3])
    uploading = history.directory / paths.segment(UUID(int=77), 9)
    uploading.write_bytes(b"")
    assert clean(history, commits[3], 4)
    assert uploading.exists()


def test_manifests_go_before_the_segments_they_name(history: History) -> None:
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(4)])
    history.snapshot(commits[1])
    history.snapshot(commits[3], keep=False)
    kinds = [name.rpartition(".")[2] for name in clean(history, commits[3], 4)]
    assert kinds == ["manifest", "delta", "delta", "delta", "segment"]


def test_few_old_versions_are_not_worth_a_deletion(history: History) -> None:
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(5)])
    history.snapshot(commits[3])
    assert clean(history, commits[4], 5, min_versions=4) == []
    assert len(clean(history, commits[4], 5, min_versions=3)) == 3


def test_without_a_snapshot_below_the_oldest_version_everything_stays(history: History) -> None:
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(5)])
    history.snapshot(commits[3])
    assert clean(history, commits[4], 3) == []


def test_a_snapshot_whose_manifest_is_gone_is_nothing_to_start_from(history: History) -> None:
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(6)])
    history.snapshot(commits[2])
    tip = history.commit(commits[5])
    history.snapshot(tip)
    (history.directory / paths.manifest(*commits[2].point)).unlink()
    assert clean(history, tip, 4) == []
    assert clean(history, commits[5], 4) == []


def test_a_remote_cleanup_asks_for_the_manifests_it_must_read(
    history: History, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commits = grown(history, [("commit", [put("a", str(n))]) for n in range(4)])
    history.snapshot(commits[1])
    history.snapshot(commits[3])
    listing = frozenset(path.name for path in history.directory.iterdir())
    source = FileSource(tmp_path_factory.mktemp("scratch"), listing)
    with pytest.raises(NeedFiles) as need:
        deletable(source, commits[3].point, 4, 1)
    assert need.value.names == [paths.manifest(*commits[3].point)]
