"""Pure: what a task reports of its keys, as bytes.

For each key: the digest; the key if it is short, or if no file has a row of it; the sequence and the rank of what won
in the task, and whether that is a tie. Digests do not compress: a message grows by 9 bytes a key, and by what the
sequence and a short key take themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from iceberg_ds.changes.digests import DIGEST
from iceberg_ds.changes.equality import plain_type
from iceberg_ds.changes.winners import RANK

IS_TIED = "is_tied"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def evidence_schema(keys: Sequence[pa.Field], sequence: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of evidence; a key is null where it is to be read from the row."""
    plain_keys = [field.with_type(plain_type(field.type)) for field in keys]
    outcome = [pa.field(RANK, pa.int8()), pa.field(IS_TIED, pa.bool_())]
    return pa.schema([pa.field(DIGEST, pa.uint64()), *plain_keys, *sequence, *outcome])


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
