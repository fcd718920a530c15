"""PySpark finds data sources by modules named `pyspark_*`; this one names ours that reads.

Importing it loads PySpark and the standard library alone, because a module that fails here would
switch off the discovery of every Python data source.
"""

from iceberg_ds.reading.source import IcebergSource as DefaultSource

__all__ = ["DefaultSource"]
