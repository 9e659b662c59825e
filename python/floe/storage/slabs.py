"""The executor's state memory: slabs, handed out in extents.

A slab is a memfd that is allocated in full before anybody hears of it, so that a machine without
memory is a clean error here and not a SIGBUS in the JVM. Extents are powers of two from 4 KiB to
half a slab, kept by the buddy system: neighbours merge again when both come back. A larger request
gets a slab of its own. The budget counts whole slabs: it is what the container sees.

Used by one thread at a time (the engine's lock).
"""

import fcntl
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field

from floe.errors import Corrupt, InternalError, InvalidRequest, Unavailable
from floe.format.layout import (
    LAYOUT_VERSION,
    SLAB_BITS,
    SLAB_HEADER,
    SLAB_HEADER_BYTES,
    SLAB_MAGIC,
    SLAB_STRIDE,
)
from floe.storage.space import Space

__all__ = ["Extent", "Slab", "SlabPool"]

_SMALLEST = 12  # 4 KiB: a page
_F_ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
_F_SEAL_SHRINK = 0x0002


@dataclass(frozen=True, slots=True)
class Extent:
    """A piece of a slab."""

    ref: int
    bytes: int


@dataclass(slots=True)
class Slab:
    """A slab as this process holds it, with the free blocks in it by order."""

    number: int
    fd: int
    bytes: int
    free: dict[int, set[int]] = field(default_factory=dict)
    extents: int = 0  # how many are out


class SlabPool:
    """Allocates, frees and adopts; knows nothing of what extents hold."""

    def __init__(self, budget_bytes: int, slab_bytes: int, fallback_dir: str | None = None) -> None:
        self.space = Space()
        self.budget_bytes = budget_bytes
        self.slab_bytes = slab_bytes
        self.slabs: dict[int, Slab] = {}
        self._used: dict[int, int] = {}  # ref -> bytes of every extent that is out
        self.used_bytes = 0
        self.total_bytes = 0
        self._dirty: set[int] = set()  # slabs in which some extent was used before
        self._fallback_dir = fallback_dir
        self._last = -1  # the slab number given out last

    def allocate(self, wanted: int, *, owner: str) -> Extent:
        """An extent of at least `wanted` zeroed bytes."""
        order = max(_SMALLEST, (wanted - 1).bit_length())
        if 1 << order > self.slab_bytes // 2:
            return self._whole_slab(wanted, owner)
        for slab in self.slabs.values():
            ref = self._take(slab, order) if slab.free else None
            if ref is not None:
                return self._handed_out(ref, 1 << order, fresh=slab.number not in self._dirty)
        slab = self._new_slab(self.slab_bytes, owner)
        ref = self._take(slab, order)
        if ref is None:
            raise InternalError(f"a new slab of {slab.bytes} bytes has no room for 2^{order}")
        return self._handed_out(ref, 1 << order, fresh=True)

    def free(self, refs: Iterable[int]) -> None:
        """Takes extents back. A ref that is not out is ignored: a message may be repeated."""
        for ref in refs:
            size = self._used.pop(ref, None)
            if size is None:
                continue
            slab = self.slabs[ref >> SLAB_BITS]
            slab.extents -= 1
            self.used_bytes -= size
            self._dirty.add(slab.number)
            offset = ref & (SLAB_STRIDE - 1)
            if offset == SLAB_HEADER_BYTES and size == slab.bytes - SLAB_HEADER_BYTES:
                slab.free = _whole(slab.bytes)
            else:
                self._merge(slab, offset, size.bit_length() - 1)

    def trim(self) -> list[int]:
        """Releases empty slabs beyond a small reserve; their numbers."""
        empty = [slab for slab in self.slabs.values() if slab.extents == 0]
        spare = max(2 * self.slab_bytes, self.used_bytes // 4)
        gone = []
        for slab in sorted(empty, key=lambda slab: slab.bytes):
            if slab.bytes <= spare:
                spare -= slab.bytes
                continue
            self.space.unmap(slab.number)
            os.close(slab.fd)
            del self.slabs[slab.number]
            self.total_bytes -= slab.bytes
            self._dirty.discard(slab.number)
            gone.append(slab.number)
        return gone

    def adopt(self, number: int, path: str, size: int) -> None:
        """Maps a slab that an earlier sidecar made, all of it in use until `settle`."""
        fd = os.open(path, os.O_RDWR)
        if os.fstat(fd).st_size != size:
            raise Corrupt(f"slab {number} has {os.fstat(fd).st_size} bytes, not {size}", path=path)
        self.space.map(number, fd, size)
        header = self.space.structs(number << SLAB_BITS, 1, SLAB_HEADER)[0]
        if (header["magic"], header["layout"], header["number"], header["bytes"]) != (
            SLAB_MAGIC,
            LAYOUT_VERSION,
            number,
            size,
        ):
            raise Corrupt(f"{path} is not slab {number} of memory layout {LAYOUT_VERSION}")
        self.slabs[number] = Slab(number, fd, size)
        self.total_bytes += size
        self._dirty.add(number)
        self._last = max(self._last, number)

    def settle(self, extents: Iterable[Extent]) -> None:
        """After adopting: `extents` are in use, everything else is free."""
        for extent in extents:
            if extent.bytes < 1 << _SMALLEST or extent.ref in self._used:
                raise InternalError(f"{extent} cannot be in use")
            self._used[extent.ref] = extent.bytes
            self.used_bytes += extent.bytes
            self.slabs[extent.ref >> SLAB_BITS].extents += 1
        for slab in self.slabs.values():
            used = sorted(
                (ref & (SLAB_STRIDE - 1), size)
                for ref, size in self._used.items()
                if ref >> SLAB_BITS == slab.number
            )
            slab.free = {}
            at = SLAB_HEADER_BYTES
            for offset, size in [*used, (slab.bytes, 0)]:
                while at < offset:  # the largest aligned block that fits the gap
                    order = min((at & -at).bit_length(), (offset - at).bit_length()) - 1
                    self._merge(slab, at, order)
                    at += 1 << order
                at = max(at, offset + size)

    # -- slabs ------------------------------------------------------------------------------------

    def _whole_slab(self, wanted: int, owner: str) -> Extent:
        size = 1 << max(20, (wanted + SLAB_HEADER_BYTES - 1).bit_length())
        if size > SLAB_STRIDE:
            raise InvalidRequest(
                f"store {owner}: {wanted} bytes in one piece; the largest row that Floe holds is"
                f" {SLAB_STRIDE - SLAB_HEADER_BYTES} bytes",
                store=owner,
            )
        for slab in self.slabs.values():
            if slab.bytes == size and slab.extents == 0:
                slab.free = {}
                break
        else:
            slab = self._new_slab(size, owner)
            slab.free = {}
        ref = (slab.number << SLAB_BITS) + SLAB_HEADER_BYTES
        return self._handed_out(ref, size - SLAB_HEADER_BYTES, fresh=slab.number not in self._dirty)

    def _new_slab(self, size: int, owner: str) -> Slab:
        if self.total_bytes + size > self.budget_bytes:
            raise InvalidRequest(
                f"store {owner} needs {size} more bytes, but the executor's state memory of"
                f" {self.budget_bytes} bytes is used up: raise"
                " spark.sql.streaming.stateStore.floe.memory (and the executor's memoryOverhead"
                " with it), or spread the state over more executors",
                store=owner,
                budget=self.budget_bytes,
                used=self.used_bytes,
            )
        number = self._next_number()
        fd = self._memory_file(number)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            os.close(fd)
            raise Unavailable(
                f"store {owner}: the machine cannot give {size} bytes of state memory"
                f" ({error.strerror}); {self.total_bytes} of {self.budget_bytes} bytes are in use",
                store=owner,
            ) from error
        self.space.map(number, fd, size)
        header = self.space.structs(number << SLAB_BITS, 1, SLAB_HEADER)
        header[0] = (SLAB_MAGIC, LAYOUT_VERSION, number, size)
        slab = Slab(number, fd, size, _whole(size))
        self.slabs[number] = slab
        self.total_bytes += size
        return slab

    def _next_number(self) -> int:
        """Round and round: the shim may not have heard yet that a number's last slab is gone."""
        count = self.space.max_slabs
        order = range(self._last + 1, self._last + 1 + count)
        number = next((n for n in order if n % count not in self.slabs), None)
        if number is None:
            raise Unavailable(f"all {count} slabs are in use; set a larger floe.slabBytes")
        self._last = number % count
        return self._last

    def _memory_file(self, number: int) -> int:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create(f"floe-slab-{number}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK)
            return fd
        fd, path = tempfile.mkstemp(prefix="floe-slab-", dir=self._fallback_dir)
        os.unlink(path)
        return fd

    # -- buddies ----------------------------------------------------------------------------------

    def _handed_out(self, ref: int, size: int, *, fresh: bool) -> Extent:
        if not fresh:
            self.space.bytes[ref : ref + size] = 0
        self._used[ref] = size
        self.used_bytes += size
        self.slabs[ref >> SLAB_BITS].extents += 1
        return Extent(ref, size)

    def _take(self, slab: Slab, order: int) -> int | None:
        have = min((o for o, blocks in slab.free.items() if o >= order and blocks), default=None)
        if have is None:
            return None
        offset = slab.free[have].pop()
        if not slab.free[have]:
            del slab.free[have]  # a full slab has no orders at all: quickly passed over
        while have > order:
            have -= 1
            slab.free.setdefault(have, set()).add(offset + (1 << have))
        return (slab.number << SLAB_BITS) + offset

    def _merge(self, slab: Slab, offset: int, order: int) -> None:
        while offset ^ (1 << order) in slab.free.get(order, ()):
            slab.free[order].remove(offset ^ (1 << order))
            if not slab.free[order]:
                del slab.free[order]
            offset &= ~(1 << order)
            order += 1
        slab.free.setdefault(order, set()).add(offset)


def _whole(size: int) -> dict[int, set[int]]:
    """The free blocks of an empty slab: what the header page leaves of the buddy tree."""
    return {order: {1 << order} for order in range(_SMALLEST, size.bit_length() - 1)}
