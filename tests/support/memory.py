"""Slab pools that give their memory and their addresses back when a test is over.

A pool lives as long as its sidecar and never ends by itself; its reserved range of addresses is so
large that a hundred forgotten ones exhaust the process.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from floe.format.layout import SLAB_STRIDE
from floe.storage.slabs import SlabPool

_MIB = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@contextmanager
def slab_pool(budget_bytes: int = 16 * _MIB, slab_bytes: int = _MIB) -> Iterator[SlabPool]:
    pool = SlabPool(budget_bytes, slab_bytes)
    try:
        yield pool
    finally:
        close(pool)


def close(pool: SlabPool) -> None:
    """Nothing of the pool, or of arrays that point into it, may be touched afterwards."""
    for slab in pool.slabs.values():
        os.close(slab.fd)
    size = pool.space.max_slabs * SLAB_STRIDE
    assert _LIBC.munmap(pool.space.words.ctypes.data, size) == 0
