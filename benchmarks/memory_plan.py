"""Prepares the measurements of `bench_memory.py`: JSON on stdin says what, files are the result.

The driver's part of a write, in a process of its own, as in Spark: a task's process gets a pickled plan
and has never loaded a catalog.
"""

from __future__ import annotations

import itertools
import json
import pickle
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning.plan_write import plan_write
from iceberg_ds.table.spark_types import iceberg_schema

BATCH_ROWS = 10_000  # Spark's default
PREPARED_BATCHES = 100
_TABLE = "bench.t"


def copy_batches(source: Path, target: Path) -> StructType:
    """Copy the first rows of a Parquet file into an Arrow stream of batches of the size that Spark sends."""
    with pq.ParquetFile(source) as file, target.open("wb") as sink:
        batches = itertools.islice(file.iter_batches(BATCH_ROWS), PREPARED_BATCHES)
        with pa.ipc.new_stream(sink, file.schema_arrow) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return from_arrow_schema(file.schema_arrow)


def make_plan(folder: Path, dataframe: StructType, partitions: int) -> WritePlan:
    """Create a table with so many partitions, 0 for none, and return what the planner decides for it.

    Args:
        folder: New folder of catalog and table.
        dataframe: Schema of the rows, which has the column `l_partkey`.
        partitions: Buckets of that column, so that each occurs in every batch.
    """
    folder.mkdir(parents=True)
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    schema = iceberg_schema(dataframe)
    key = schema.find_field("l_partkey").field_id
    bucket = PartitionField(source_id=key, field_id=1000, transform=BucketTransform(partitions or 1), name="bucket")
    catalog.create_table(_TABLE, schema, partition_spec=PartitionSpec(*([bucket] if partitions else [])))
    options = parse_options({"table": _TABLE, "warehouse": str(folder)})
    return plan_write(connect(catalog_settings(options)), options, dataframe)


def main() -> None:
    """Write the batches and the pickled plan."""
    case = json.load(sys.stdin)
    dataframe = copy_batches(Path(case["source"]), Path(case["batches"]))
    plan = make_plan(Path(case["folder"]), dataframe, case["partitions"])
    Path(case["plan"]).write_bytes(pickle.dumps(plan))
    print("{}")


if __name__ == "__main__":
    main()
