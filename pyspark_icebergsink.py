"""PySpark finds data sources by modules named `pyspark_*`; this one names ours.

Importing it loads PySpark and the standard library alone, because a module that fails here would
switch off the discovery of every Python data source.
"""

from iceberg_ds.datasource import IcebergSink as DefaultSource

__all__ = ["DefaultSource"]
