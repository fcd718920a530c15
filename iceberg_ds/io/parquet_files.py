"""Opens Parquet files of any writer: 96-bit timestamps, which older engines write, count microseconds as Iceberg's."""

from __future__ import annotations

import pyarrow.parquet as pq
from pyiceberg.io import InputStream


def open_parquet(stream: InputStream) -> pq.ParquetFile:
    """Return a Parquet file, ready to be read.

    Arrow would read 96-bit timestamps as nanoseconds, which reach from 1677 to 2262: a later one would be another time.
    """
    return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
