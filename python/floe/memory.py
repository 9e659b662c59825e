"""How much memory there is, and how much of it Floe may take.

State lives outside the JVM heap, in memory that counts in the container. So three numbers have to
fit into the container's limit:

    heap of the JVM  +  Floe's budget  +  a base for everything else  <=  limit

The limit is the smallest one that applies to this process: a control group binds its whole subtree,
so every directory from the process's own group up to the root counts, and the machine's memory
bounds them all. Version 1 and version 2 of control groups may be mounted side by side; both are
read. Inside a container the path in /proc may be one of the host's that is not visible here; the
directories that exist are used, and the root of the mount is the container's own group.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from floe.config import PREFIX
from floe.errors import InvalidRequest
from floe.settings import KIB, MIB, format_size

__all__ = [
    "BASE_BYTES",
    "MINIMUM_BUDGET_BYTES",
    "MemoryLimit",
    "memory_limit",
    "resolve_budget",
]

# JVM metaspace, code cache, thread stacks and direct buffers, and the Python sidecar itself.
BASE_BYTES = 256 * MIB
# Below this a store spends its time moving groups in and out.
MINIMUM_BUDGET_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The most memory that this process's container may use, and which file or call says so."""

    limit_bytes: int
    source: str


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The smallest limit over this process, with the file system as seen from `root`."""
    limits = [_machine_memory(root)]
    for path in _limit_files(root):
        limit_bytes = _read_limit(path)
        if limit_bytes is not None:
            limits.append(MemoryLimit(limit_bytes, str(path)))
    return min(limits, key=lambda limit: limit.limit_bytes)


def _machine_memory(root: Path) -> MemoryLimit:
    meminfo = root / "proc" / "meminfo"
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        # Not a Linux: ask the C library.
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return MemoryLimit(pages, "sysconf")
    total_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
    return MemoryLimit(total_kib * KIB, str(meminfo))


def _limit_files(root: Path) -> Iterator[Path]:
    """Files that may hold a limit on this process, for both versions of control groups."""
    mount = root / "sys" / "fs" / "cgroup"
    try:
        memberships = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        hierarchy, controllers, group = line.split(":", 2)
        if hierarchy == "0" and not controllers:
            yield from _upwards(mount, group, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _upwards(mount / "memory", group, "memory.limit_in_bytes")


def _upwards(mount: Path, group: str, name: str) -> Iterator[Path]:
    inside = PurePosixPath(group.lstrip("/"))
    for directory in (inside, *inside.parents):
        yield mount / directory / name


def _read_limit(path: Path) -> int | None:
    """The number in the file; None if there is no file or it sets no limit.

    Version 1 writes "no limit" as a number near 2**63, which the machine's memory undercuts.
    """
    try:
        content = path.read_text().strip()
    except OSError:
        return None
    return None if content == "max" else int(content)


def resolve_budget(memory_bytes: int | None, jvm_max_heap_bytes: int, limit_bytes: int) -> int:
    """Floe's budget in bytes: the configured one if it fits, else chosen from what is there.

    None stands for `auto`. Raises InvalidRequest, with the numbers and what to set, when a
    configured budget cannot fit: better now than by the kernel's killing the executor at its peak.
    """
    if memory_bytes is None:
        return max(MINIMUM_BUDGET_BYTES, (limit_bytes - jvm_max_heap_bytes) // 2)
    needed_bytes = jvm_max_heap_bytes + memory_bytes + BASE_BYTES
    if needed_bytes > limit_bytes:
        raise InvalidRequest(_does_not_fit(memory_bytes, jvm_max_heap_bytes, limit_bytes))
    return memory_bytes


def _does_not_fit(memory_bytes: int, jvm_max_heap_bytes: int, limit_bytes: int) -> str:
    key = PREFIX + "memory"
    sentence = (
        f"{key}={format_size(memory_bytes)} does not fit: with the JVM heap of "
        f"{_mib(jvm_max_heap_bytes)} and {_mib(BASE_BYTES)} for everything else it needs "
        f"{_mib(jvm_max_heap_bytes + memory_bytes + BASE_BYTES)}, and the container's limit is "
        f"{_mib(limit_bytes)}. "
    )
    room_bytes = (limit_bytes - jvm_max_heap_bytes - BASE_BYTES) // MIB * MIB
    overhead = _mib(memory_bytes + BASE_BYTES).replace(" MiB", "m")
    larger = f"raise spark.executor.memoryOverhead to at least {overhead}"
    if room_bytes < MINIMUM_BUDGET_BYTES:
        return sentence + f"Lower the heap (spark.executor.memory), or {larger}."
    return sentence + f"Set {key}={format_size(room_bytes)} or less, or {larger}."


def _mib(size_bytes: int) -> str:
    return f"{-(-size_bytes // MIB)} MiB"
