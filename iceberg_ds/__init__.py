"""Write batch and streaming Spark DataFrames into Apache Iceberg tables, exactly once, without a JVM jar.

import iceberg_ds
iceberg_ds.register(spark)
df.write.format("icebergsink").mode("append").save("db.events")
"""

from __future__ import annotations

from iceberg_ds._version import __version__
from iceberg_ds.datasource import IcebergSink
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from iceberg_ds.registration import register

__all__ = [
    "CatalogError",
    "CommitConflictError",
    "CommitMessageError",
    "CommitStateUnknownError",
    "DataFileError",
    "IcebergSink",
    "IcebergSinkError",
    "OptionError",
    "SchemaMismatchError",
    "TableNotFoundError",
    "UnsupportedTableError",
    "__version__",
    "register",
]
