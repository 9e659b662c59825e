"""A delta: the net change of one commit, as an Arrow IPC stream with a trailer.

One row per touched key in order of first touch: op (0 put, 1 remove), family, the shim's hash of
the key, expiry, key and value as UnsafeRow bytes. `pyarrow.ipc.open_stream(path)` reads it.
"""

import numpy as np
import pyarrow as pa

from floe.config import Codec
from floe.errors import Corrupt
from floe.format import trailer
from floe.format.rows import Rows
from floe.format.trailer import Trailer
from floe.format.words import U64

__all__ = ["SCHEMA", "decode", "empty", "encode"]

# Part of the on-disk format.
SCHEMA = pa.schema(
    [
        pa.field("op", pa.uint8(), nullable=False),
        pa.field("family", pa.uint16(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("expiry", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)

# Arrow's 32-bit offsets end at 2 GiB; batches stay far below.
_BATCH_BYTES = 256 << 20
_BATCH_ROWS = 1 << 20


def encode(rows: Rows, codec: Codec) -> tuple[pa.Buffer, bytes]:
    """The body and a blank trailer for the shim to seal."""
    body = pa.BufferOutputStream()
    # Without threads: waking a pool costs more than it saves on the rows of a batch.
    options = pa.ipc.IpcWriteOptions(
        compression=None if codec is Codec.NONE else codec.value, use_threads=False
    )
    with pa.ipc.new_stream(body, SCHEMA, options=options) as stream:
        for part in _batches(rows):
            stream.write_batch(
                pa.RecordBatch.from_arrays(
                    [
                        _flat(pa.uint8(), part.op),
                        _flat(pa.uint16(), part.family),
                        _flat(pa.uint64(), part.hash),
                        _flat(pa.int64(), part.expiry),
                        _binary(part.key_len, part.keys),
                        _binary(part.value_len, part.values),
                    ],
                    schema=SCHEMA,
                )
            )
    buffer = body.getvalue()
    return buffer, trailer.blank(trailer.DELTA, buffer.size)


def empty() -> bytes:
    """The template of a commit that changed nothing."""
    body = pa.BufferOutputStream()
    pa.ipc.new_stream(body, SCHEMA).close()
    buffer = body.getvalue()
    return bytes(buffer) + trailer.blank(trailer.DELTA, buffer.size)


def decode(data: bytes | memoryview, name: str) -> tuple[Trailer, list[Rows]]:
    """The trailer and the rows, batch by batch. Raises Corrupt naming the file."""
    head, body = trailer.parse(trailer.DELTA, data, name)
    try:
        batches = list(pa.ipc.open_stream(pa.py_buffer(body)))
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"{name} is damaged: {error}", path=name) from error
    return head, [_rows(batch) for batch in batches]


def _batches(rows: Rows) -> list[Rows]:
    total = int(rows.keys.nbytes + rows.values.nbytes)
    if total <= _BATCH_BYTES and len(rows) <= _BATCH_ROWS:
        return [rows] if len(rows) else []
    sizes = np.cumsum((rows.key_words + rows.value_words) * np.uint64(8))
    parts, start = [], 0
    while start < len(rows):
        before = int(sizes[start - 1]) if start else 0
        stop = int(np.searchsorted(sizes, before + _BATCH_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _BATCH_ROWS)
        parts.append(rows.slice(start, stop))
        start = stop
    return parts


def _flat(type: pa.DataType, values: "np.typing.NDArray[np.generic]") -> pa.Array:
    """Without a copy, and without `pa.array`, which imports pandas to look for its types."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(type, len(values), [None, data])


def _binary(lengths: "np.typing.NDArray[np.uint32]", words: U64) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(words)]
    )


def _rows(batch: pa.RecordBatch) -> Rows:
    key_len, keys = _words(batch.column("key"))
    value_len, values = _words(batch.column("value"))
    return Rows(
        batch.column("op").to_numpy(),
        batch.column("family").to_numpy(),
        batch.column("hash").to_numpy(),
        batch.column("expiry").to_numpy(),
        key_len,
        value_len,
        keys,
        values,
    )


def _words(column: pa.Array) -> "tuple[np.typing.NDArray[np.uint32], U64]":
    _, offset_buffer, data = column.buffers()
    if len(column) == 0:
        return np.empty(0, np.uint32), np.empty(0, np.uint64)
    offsets = np.frombuffer(offset_buffer, np.int32)[: len(column) + 1]
    end = int(offsets[-1])
    words = np.frombuffer(data, np.uint8)[:end].view(np.uint64) if end else np.empty(0, np.uint64)
    return np.diff(offsets).astype(np.uint32), words
