"""Pure: the columns that the table format reserves: those of position deletes, and those that tell where a row is.

Source: Iceberg spec, "Reserved Field IDs".
"""

from __future__ import annotations

from pyiceberg.types import LongType, NestedField, StringType

FILE_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
POS = NestedField(2147483545, "pos", LongType(), required=True)

# Iceberg's runtime offers them beside a table's own columns, and reads no table that has one of that name. Fields of
# structs may have it, and so may columns whose name differs in case.
METADATA_COLUMNS = frozenset(
    {"_file", "_pos", "_deleted", "_partition", "_spec_id", "_row_id", "_last_updated_sequence_number"}
)


def why_reserved(name: str) -> str | None:
    """Return why a table's column cannot have that name, None if it can."""
    if name not in METADATA_COLUMNS:
        return None
    return f"column '{name}' has the name of a column that Iceberg adds to every table as it is read: rename it"
