"""Warns of what Amazon S3 Tables, which compacts the tables that it keeps, does not compact.

Source: the service's "Considerations and limitations" for compaction: no column of type `fixed`, no files compressed by
`brotli` or `lz4`. Of equality deletes it says nothing, and Amazon's service was not tried. Such a write is right, so it
is not refused: its table gets slower to read with each commit.
"""

from __future__ import annotations

import logging

from pyiceberg.schema import Schema
from pyiceberg.types import FixedType

from iceberg_ds.plan import WriteIdentity

logger = logging.getLogger(__name__)

_CODECS_NOT_COMPACTED = ("brotli", "lz4")
# What this process has warned about, by table; Spark's planner goes on from write to write.
_warned: set[tuple[str, str]] = set()


def hindrances(write: WriteIdentity, schema: Schema) -> list[str]:
    """Return, in words, what of a write S3 Tables is not known to compact, with what to do instead."""
    fixed = [name for name in schema.column_names if isinstance(schema.find_type(name), FixedType)]
    found = []
    if write.delete_spec_id is not None:
        found.append("equality deletes (option 'keys'): use iceberg_ds.upsert")
    if write.files.compression_codec in _CODECS_NOT_COMPACTED:
        found.append(f"files compressed by {write.files.compression_codec}: use zstd, snappy or gzip")
    if fixed:
        found.append(f"columns of type fixed ({', '.join(fixed)}): use binary")
    return found


def warn_once(write: WriteIdentity, schema: Schema) -> None:
    """Log what of a write into a table of S3 Tables is not compacted, each once in this process and for its table."""
    new = [found for found in hindrances(write, schema) if (write.table, found) not in _warned]
    if new:
        _warned.update((write.table, found) for found in new)
        logger.warning(
            "Amazon S3 Tables is not known to compact all that is written to %s: %s", write.table, "; ".join(new)
        )
