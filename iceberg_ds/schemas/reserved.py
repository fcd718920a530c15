"""Pure: the columns of position deletes, whose field ids the table format reserves.

Source: Iceberg spec, "Reserved Field IDs".
"""

from __future__ import annotations

from pyiceberg.types import LongType, NestedField, StringType

FILE_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
POS = NestedField(2147483545, "pos", LongType(), required=True)
