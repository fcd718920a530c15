"""Pure: what a task reports of its keys, as bytes.

For each key: the digest, the sequence and the rank of what won in the task. Digests do not compress; 17 bytes a key
and the sequence's own are what a message grows by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from iceberg_ds.changes.digests import HIGH, LOW
from iceberg_ds.changes.winners import RANK

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def evidence_schema(sequence: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of evidence, with the sequence columns in the middle."""
    return pa.schema([pa.field(HIGH, pa.uint64()), pa.field(LOW, pa.uint64()), *sequence, pa.field(RANK, pa.int8())])


def encode_evidence(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Return evidence of `evidence_schema` as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as stream:
        for batch in batches:
            stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_evidence(content: bytes) -> pa.Table:
    """Return evidence that `encode_evidence` made."""
    return pa.ipc.open_stream(content).read_all()
