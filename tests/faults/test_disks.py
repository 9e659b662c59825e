"""Disks that are full or read-only, as real mounts that only this test's JVM sees.

A checkpoint on such a disk fails the commit and nothing else: the version before it stays, and the
next commit after there is room succeeds. The local disk holds nothing that is needed again, so
commits go on without it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from floe.config import PREFIX
from floe.settings import KIB, MIB
from tests.support.batches import Batches, some_rows, with_keys
from tests.support.harness import Harness, ProviderKind
from tests.support.jvm_log import JvmLog
from tests.support.model import Operation
from tests.support.mounts import Disk, Mounts, java_with_mounts, needs_mounts
from tests.support.providers import FLOE_MANAGED_V1, FLOE_V1, FLOE_V2
from tests.support.refusals import refused

pytestmark = needs_mounts

DISK_BYTES = 4 * MIB
# Kept as they are: rows, not codecs, have to fill the disks.
KINDS = [with_keys(kind, checkpoint_codec="none") for kind in (FLOE_V1, FLOE_V2, FLOE_MANAGED_V1)]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
LOCAL_FILES = with_keys(FLOE_V1, checkpoint_codec="none")
MANAGED_FILES = with_keys(FLOE_MANAGED_V1, checkpoint_codec="none")


@pytest.fixture(scope="module")
def spark_local_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-local")


@pytest.fixture(scope="module")
def jvm(spark_local_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A JVM with mounts of its own, one of them Spark's local directory."""
    with pytest.MonkeyPatch.context() as environment:
        home = java_with_mounts(tmp_path_factory.mktemp("java"))
        environment.setenv("JAVA_HOME", str(home))
        environment.setenv("SPARK_LOCAL_DIRS", str(spark_local_dir))
        environment.delenv("SPARK_LOG_DIR", raising=False)
        harness = Harness(tmp_path_factory.mktemp("jvm"), heap="512m")
    yield harness
    harness.close()


@pytest.fixture(scope="module")
def log(jvm: Harness) -> JvmLog:
    return JvmLog(jvm)


@pytest.fixture(scope="module")
def spark_disk(jvm: Harness, spark_local_dir: Path) -> Disk:
    return Mounts(jvm).disk(spark_local_dir, 64 * MIB)


@pytest.fixture(autouse=True)
def _spark_disk_first(spark_disk: Disk) -> None:
    """Spark looks at its local directory once, so the disk is there before the first store."""


@pytest.fixture
def disk(jvm: Harness, tmp_path: Path) -> Disk:
    return Mounts(jvm).disk(tmp_path / "disk", DISK_BYTES)


def a_megabyte(start: int = 100) -> list[Operation]:
    return some_rows(start, 100, 10 * KIB)


def started(jvm: Harness, kind: ProviderKind, root: Path) -> Batches:
    batches = Batches(jvm, kind, root)
    batches.commit(some_rows(0))
    batches.commit(some_rows(10))
    return batches


# The checkpoint.


@each_kind
def test_a_commit_to_a_full_disk_fails_and_the_version_before_it_stays(
    jvm: Harness, disk: Disk, kind: ProviderKind
) -> None:
    batches = started(jvm, kind, disk.path / "checkpoint")
    before = disk.files()
    with disk.full(leaving=200 * KIB):
        handle = batches.begin(a_megabyte())
        assert "No space left" in refused(handle.commit).text
        assert disk.files() == before  # no temporary file either
        batches.check()
        handle.abort()
        assert batches.load(batches.last, batches.provider) == batches.last.rows
    batches.commit(a_megabyte())
    batches.check()


@each_kind
def test_a_commit_to_a_full_disk_names_the_file(
    jvm: Harness, disk: Disk, kind: ProviderKind
) -> None:
    batches = started(jvm, kind, disk.path / "checkpoint")
    with disk.full():
        handle = batches.begin(a_megabyte())
        refusal = refused(handle.commit)
        handle.abort()
    assert str(batches.directory) in refusal.text


@each_kind
def test_a_snapshot_that_does_not_fit_leaves_nothing_behind(
    jvm: Harness, disk: Disk, log: JvmLog, kind: ProviderKind
) -> None:
    batches = started(jvm, kind, disk.path / "checkpoint")
    batches.commit(a_megabyte())
    before = disk.files()
    log.new()
    with disk.full(leaving=200 * KIB):
        batches.snapshot()
        assert "No space left" in log.new()
        assert disk.files() == before
        batches.check()
    batches.snapshot()
    assert any(name.endswith(".manifest") for name in disk.files())
    batches.check()


@each_kind
def test_a_read_only_checkpoint_is_named_and_loads(
    jvm: Harness, disk: Disk, kind: ProviderKind
) -> None:
    batches = started(jvm, kind, disk.path / "checkpoint")
    with disk.read_only():
        handle = batches.begin(some_rows(20))
        refusal = refused(handle.commit)
        assert str(batches.directory) in refusal.text
        assert "Read-only file system" in refusal.text
        batches.check()
        handle.abort()
    batches.commit(some_rows(20))
    batches.check()


def test_a_new_store_on_a_read_only_disk_is_named(jvm: Harness, disk: Disk) -> None:
    batches = Batches(jvm, LOCAL_FILES, disk.path / "checkpoint")
    with disk.read_only():
        handle = batches.begin(some_rows(0))
        refusal = refused(handle.commit)
        handle.abort()
    assert str(batches.root) in refusal.text
    assert "Read-only file system" in refusal.text
    batches.commit(some_rows(0))
    batches.check()


# The local directory.


def with_local_dir(kind: ProviderKind, disk: Disk) -> ProviderKind:
    return with_keys(kind, localDir=str(disk.path))


def test_commits_and_loads_do_without_a_local_disk_that_is_full(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    batches = started(jvm, with_local_dir(LOCAL_FILES, disk), tmp_path / "checkpoint")
    batches.commit(a_megabyte())
    with disk.full(leaving=200 * KIB):
        batches.snapshot()
        batches.commit(some_rows(20))
        batches.check()
    assert not list(batches.directory.glob("*.manifest"))
    batches.snapshot()
    assert list(batches.directory.glob("*.manifest"))
    batches.check()


def test_a_snapshot_that_does_not_fit_the_local_disk_leaves_nothing_there(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    batches = started(jvm, with_local_dir(LOCAL_FILES, disk), tmp_path / "checkpoint")
    batches.commit(a_megabyte())
    with disk.full(leaving=200 * KIB):
        for _ in range(3):
            batches.snapshot()
        assert disk.files() == {}


def test_a_snapshot_that_does_not_fit_the_local_disk_names_it(
    jvm: Harness, disk: Disk, log: JvmLog, tmp_path: Path
) -> None:
    batches = started(jvm, with_local_dir(LOCAL_FILES, disk), tmp_path / "checkpoint")
    batches.commit(a_megabyte())
    log.new()
    with disk.full(leaving=200 * KIB):
        batches.snapshot()
    said = log.new()
    assert f"store default of {batches.root}" in said
    assert "No space left" in said
    assert str(disk.path) in said
    assert "InternalError" not in said  # which would mean: report a bug


def test_a_local_disk_without_room_for_fetched_files_fails_the_load_until_there_is(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    batches = started(jvm, with_local_dir(MANAGED_FILES, disk), tmp_path / "checkpoint")
    batches.commit(a_megabyte())
    batches.restart()
    with disk.full(leaving=200 * KIB):
        assert "No space left" in batches.refusal(batches.last, batches.provider).text
    assert batches.load(batches.last, batches.provider) == batches.last.rows
    batches.check()


def test_a_read_only_local_directory_is_named_until_it_can_be_written(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    batches = started(jvm, LOCAL_FILES, tmp_path / "checkpoint")
    elsewhere = Batches(jvm, with_local_dir(LOCAL_FILES, disk), batches.root)
    with disk.read_only():
        refusal = elsewhere.refusal(batches.last, elsewhere.provider)
        assert str(disk.path) in refusal.text
    assert batches.load(batches.last, elsewhere.provider) == batches.last.rows
    batches.commit(some_rows(20))
    batches.check()


def test_a_read_only_local_directory_is_told_with_its_key(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    kind = with_local_dir(LOCAL_FILES, disk)
    batches = Batches(jvm, kind, tmp_path / "checkpoint")
    with disk.read_only():
        refusal = batches.refusal(batches.last, batches.provider)
    assert f"{PREFIX}localDir" in refusal.text


def test_a_store_whose_local_directory_became_read_only_goes_on(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    batches = started(jvm, with_local_dir(LOCAL_FILES, disk), tmp_path / "checkpoint")
    with disk.read_only():
        batches.snapshot()
        batches.commit(some_rows(20))
    batches.snapshot()
    batches.check()


def test_a_provider_that_never_opened_closes_whatever_its_local_directory_is(
    jvm: Harness, disk: Disk, tmp_path: Path
) -> None:
    batches = Batches(jvm, with_local_dir(LOCAL_FILES, disk), tmp_path / "checkpoint")
    with disk.read_only():
        batches.provider.close()


def test_a_sidecar_starts_though_its_log_has_no_room(
    jvm: Harness, spark_disk: Disk, tmp_path: Path
) -> None:
    batches = started(jvm, LOCAL_FILES, tmp_path / "checkpoint")
    jvm.kill_sidecars()
    with spark_disk.full():
        batches.check()
        batches.commit(some_rows(20))
    batches.check()


def test_a_sidecar_starts_though_its_log_cannot_be_written(
    jvm: Harness, spark_disk: Disk, tmp_path: Path
) -> None:
    kind = with_keys(LOCAL_FILES, localDir=str(tmp_path))
    batches = started(jvm, kind, tmp_path / "checkpoint")
    jvm.kill_sidecars()
    with spark_disk.read_only():
        batches.check()
        batches.commit(some_rows(20))
    batches.check()
