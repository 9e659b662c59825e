"""Limits as control groups write them, and budgets that fit into them."""

from pathlib import Path

import pytest

from floe.errors import InvalidRequest
from floe.memory import MINIMUM_BUDGET_BYTES, memory_limit, resolve_budget
from floe.settings import GIB, MIB


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system root of a machine with 16 GiB and no control groups."""
    write(tmp_path, "proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\n")
    return tmp_path


def write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_without_control_groups_the_machine_is_the_limit(root: Path) -> None:
    limit = memory_limit(root)
    assert limit.limit_bytes == 16 * GIB
    assert limit.source.endswith("proc/meminfo")


def test_version_2_takes_the_smallest_on_the_way_up(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/pods/pod1/app\n")
    write(root, "sys/fs/cgroup/pods/memory.max", f"{8 * GIB}\n")
    write(root, "sys/fs/cgroup/pods/pod1/memory.max", f"{2 * GIB}\n")
    write(root, "sys/fs/cgroup/pods/pod1/app/memory.max", "max\n")
    limit = memory_limit(root)
    assert limit.limit_bytes == 2 * GIB
    assert limit.source.endswith("pods/pod1/memory.max")


def test_a_sibling_group_does_not_count(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/pods/pod1\n")
    write(root, "sys/fs/cgroup/pods/pod2/memory.max", f"{1 * GIB}\n")
    assert memory_limit(root).limit_bytes == 16 * GIB


def test_a_path_of_the_host_falls_back_to_the_root_of_the_mount(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/kubepods/burstable/pod1\n")
    write(root, "sys/fs/cgroup/memory.max", f"{3 * GIB}\n")
    assert memory_limit(root).limit_bytes == 3 * GIB


def test_version_1_is_read_from_the_memory_controller(root: Path) -> None:
    write(root, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n")
    write(root, "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{4 * GIB}\n")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit(root).limit_bytes == 4 * GIB


def test_no_limit_in_version_1_is_the_machine(root: Path) -> None:
    write(root, "proc/self/cgroup", "4:memory:/\n")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit(root).limit_bytes == 16 * GIB


def test_the_real_machine_has_a_limit() -> None:
    assert memory_limit().limit_bytes > 64 * MIB


def test_auto_is_half_of_what_the_heap_leaves() -> None:
    assert resolve_budget(None, 1 * GIB, 5 * GIB) == 2 * GIB


@pytest.mark.parametrize("heap_bytes", [GIB, 2 * GIB])
def test_auto_is_never_less_than_the_minimum(heap_bytes: int) -> None:
    assert resolve_budget(None, heap_bytes, 1 * GIB) == MINIMUM_BUDGET_BYTES


def test_a_budget_that_just_fits_is_taken() -> None:
    assert resolve_budget(768 * MIB, 1 * GIB, 2 * GIB) == 768 * MIB


def test_a_budget_that_does_not_fit_is_refused_with_what_to_set() -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_budget(4 * GIB, 1 * GIB, 4 * GIB)
    assert caught.value.message == (
        "spark.sql.streaming.stateStore.floe.memory=4g does not fit: with the JVM heap of "
        "1024 MiB and 256 MiB for everything else it needs 5376 MiB, and the container's limit is "
        "4096 MiB. Set spark.sql.streaming.stateStore.floe.memory=2816m or less, or raise "
        "spark.executor.memoryOverhead to at least 4352m."
    )


def test_a_heap_that_leaves_no_room_is_what_to_lower() -> None:
    with pytest.raises(InvalidRequest, match=r"Lower the heap \(spark.executor.memory\)"):
        resolve_budget(1 * GIB, 4 * GIB, 4 * GIB)
