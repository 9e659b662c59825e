"""One flat range of addresses that all slabs of this process are mapped into.

Slab n lies at `n * SLAB_STRIDE`, so a ref is an index: gathering the fields of ten thousand entries
that live in thirty slabs is one numpy expression on `words`. The range is only reserved; touching a
place where no slab is mapped is a segmentation fault, hence refs from outside are checked by
`SlabPool` before they are used.
"""

import ctypes
import mmap
import os
import sys

import numpy as np
import numpy.typing as npt

from floe.errors import Unavailable
from floe.format.layout import SLAB_STRIDE

__all__ = ["Space"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_PROT_NONE = 0
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x40 if sys.platform == "darwin" else 0x4000
_FAILED = ctypes.c_void_p(-1).value

# 16,384 slabs of 16 MiB are 256 GiB of state; the reservation costs nothing but addresses.
MAX_SLABS = 1 << 14


class Space:
    """A reserved range of addresses and numpy views over all of it."""

    def __init__(self, max_slabs: int = MAX_SLABS) -> None:
        self.max_slabs = max_slabs
        size = max_slabs * SLAB_STRIDE
        self._base = self._map(
            None, size, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1
        )
        raw = (ctypes.c_uint64 * (size // 8)).from_address(self._base)
        self.words: npt.NDArray[np.uint64] = np.ctypeslib.as_array(raw)
        self.bytes: npt.NDArray[np.uint8] = self.words.view(np.uint8)

    def map(self, number: int, fd: int, size: int) -> None:
        self._map(
            self._base + number * SLAB_STRIDE,
            size,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_SHARED | _MAP_FIXED,
            fd,
        )

    def unmap(self, number: int) -> None:
        """Lets go of a slab; its place stays reserved."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
        self._map(self._base + number * SLAB_STRIDE, SLAB_STRIDE, _PROT_NONE, flags, -1)

    def structs(self, ref: int, count: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """The `count` structures that begin at `ref`, as a view."""
        return self.bytes[ref : ref + count * dtype.itemsize].view(dtype)

    def _map(self, address: int | None, size: int, protection: int, flags: int, fd: int) -> int:
        mapped = _LIBC.mmap(address, size, protection, flags, fd, 0)
        if mapped is None or mapped == _FAILED:
            error = ctypes.get_errno()
            raise Unavailable(
                f"cannot map {size} bytes of state memory: {os.strerror(error)}"
                " (an address space limit, `ulimit -v`, must be unlimited)",
                errno=error,
            )
        return int(mapped)
