"""The bytes that the sidecar and the shim share: twin of `MemoryLayout.scala`.

A *ref* is a place in the executor's memory that both processes understand: the slab's number above
bit 26, the offset inside the slab below. Every slab begins with a header page, so ref 0 never names
data and stands for "none".

All structures are multiples of 8 bytes and little endian. They are described here as numpy dtypes;
`tests/test_layout.py` writes each on one side and reads it on the other.
"""

import numpy as np

LAYOUT_VERSION = 1

# Refs. Part of the layout: the shim splits refs in the same place.
SLAB_BITS = 26
SLAB_STRIDE = 1 << SLAB_BITS
SLAB_HEADER_BYTES = 4096
SLAB_MAGIC = int.from_bytes(b"FLOESLB1", "little")

SLAB_HEADER = np.dtype([("magic", "<u8"), ("layout", "<u4"), ("number", "<u4"), ("bytes", "<u8")])

# An entry is one cache line, so that a hit touches one line of metadata.
PAGE_BITS = 10
PAGE_ENTRIES = 1 << PAGE_BITS
ENTRY = np.dtype(
    [
        ("key", "<u8"),  # ref of [hash: 8 bytes][key bytes]
        ("hot", "<u8"),  # ref of the value, 0 when it is not in memory
        ("cold", "<u8"),  # marker of the value in the log, 0 when none: the entry is dirty
        ("expiry", "<i8"),
        ("key_len", "<u4"),
        ("value_len", "<u4"),
        ("epoch", "<u4"),
        ("kind", "<u4"),  # family in the low 16 bits, flags above
        ("group", "<u4"),
        ("next", "<u4"),
        ("prev", "<u4"),
        ("used", "<u4"),  # the epoch that last asked for the entry
    ]
)
PAGE_BYTES = PAGE_ENTRIES * ENTRY.itemsize
FAMILY_MASK = 0xFFFF
DEAD_FLAG = 0x10000
GROUP_FLAG = 0x20000
FREE_FLAG = 0x40000
NOT_A_ROW = DEAD_FLAG | GROUP_FLAG | FREE_FLAG

UNDO = np.dtype(
    [
        ("entry", "<u4"),
        ("born", "<u4"),
        ("hot", "<u8"),
        ("cold", "<u8"),
        ("expiry", "<i8"),
        ("value_len", "<u4"),
        ("epoch", "<u4"),
        ("kind", "<u4"),
        ("spare", "<u4"),
    ]
)

STAGED = np.dtype(
    [
        ("key", "<u8"),
        ("value", "<u8"),
        ("cold", "<u8"),
        ("expiry", "<i8"),
        ("key_len", "<u4"),
        ("value_len", "<u4"),
        ("family", "<u4"),
        ("op", "<u4"),
    ]
)
OP_PUT = 0
OP_REMOVE = 1

SWITCH = np.dtype([("entry", "<u4"), ("epoch", "<u4"), ("cold", "<u8")])

NEVER = np.iinfo(np.int64).max
