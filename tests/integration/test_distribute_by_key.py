"""`distribute(df, keys=...)`: rows of one key come to one task, and the tasks can prove it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import StructType

import iceberg_ds
from iceberg_ds.cdc.spark_hash import LayoutProof
from iceberg_ds.errors import OptionError, SchemaMismatchError

ROWS = 400
TASKS = 7


def changes(spark: SparkSession) -> DataFrame:
    """Return rows in which each key comes in several tasks."""
    keys = "CAST(id % 100 AS BIGINT) AS id", "concat('r', id % 3) AS `the.region`", "id AS lsn"
    return spark.range(0, ROWS, 1, 5).selectExpr(*keys)


def told(df: DataFrame) -> list[dict[str, Any]]:
    """Return of each task with rows what it could prove of its keys, how many rows it has, and the keys."""
    found = df.select("id", "`the.region`", F.spark_partition_id().alias("task"))
    rows = found.collect()
    tasks = []
    for number in sorted({row.task for row in rows}):
        keys = [(row[0], row[1]) for row in rows if row.task == number]
        proof = LayoutProof(number)
        ids, regions = zip(*keys, strict=True)
        columns = [pa.array(ids, pa.int64()), pa.array(regions, pa.string())]
        proof.note(columns, [column.type for column in columns])
        tasks.append({"modulus": proof.modulus, "rows": len(keys), "keys": set(keys)})
    return tasks


@pytest.mark.parametrize("keys", ["id, `the.region`", ["ID", "the.region"]], ids=["text", "names"])
def test_rows_of_a_key_come_to_one_task_and_the_tasks_prove_it(spark: SparkSession, keys: list[str] | str) -> None:
    """Large tasks would be refused, or one key would be in the table twice."""
    tasks = told(iceberg_ds.distribute(changes(spark), keys=keys, num_partitions=TASKS))

    met = [key for task in tasks for key in task["keys"]]
    assert len(tasks) == TASKS
    assert sum(task["rows"] for task in tasks) == ROWS
    assert len(met) == len(set(met)) == 300
    assert math.gcd(*(task["modulus"] for task in tasks)) % TASKS == 0


def test_rows_that_are_not_distributed_prove_nothing(spark: SparkSession) -> None:
    """The test above could not fail."""
    tasks = told(changes(spark))

    assert math.gcd(*(task["modulus"] for task in tasks)) % 5 != 0


def test_number_of_tasks_is_fixed_without_one_too(spark: SparkSession) -> None:
    """Spark would make one task of all for few rows, whose numbers prove nothing."""
    moved = iceberg_ds.distribute(changes(spark), keys="id")

    assert moved.rdd.getNumPartitions() == spark.sparkContext.defaultParallelism > 1


def test_stream_is_distributed_by_key(spark: SparkSession, tmp_path: Path) -> None:
    """A stream with many keys an epoch would be refused."""
    source, schema = tmp_path / "source", changes(spark).schema
    changes(spark).write.parquet(str(source))
    seen: list[list[dict[str, Any]]] = []

    def look(batch: DataFrame, _: int) -> None:
        seen.append(told(batch))

    rows = spark.readStream.schema(StructType(schema.fields)).parquet(str(source))
    moved = iceberg_ds.distribute(rows, keys=["id", "the.region"], num_partitions=3)
    query = moved.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()

    assert [len(tasks) for tasks in seen] == [3]
    assert math.gcd(*(task["modulus"] for task in seen[0])) % 3 == 0


def test_wrong_arguments_are_refused(spark: SparkSession) -> None:
    """Rows would be distributed by something else than the key, and the write be refused after an hour."""
    df = changes(spark).select("*", F.lit(1).alias("Lsn"))

    with pytest.raises(OptionError, match="with 'keys', rows go where their key says"):
        iceberg_ds.distribute(df, "db.t", keys="id")
    with pytest.raises(OptionError, match="with 'keys', rows go where their key says"):
        iceberg_ds.distribute(df, keys="id", mode="hash")
    with pytest.raises(OptionError, match="name the table, or with 'keys' the key columns"):
        iceberg_ds.distribute(df)
    with pytest.raises(OptionError, match="keys is 'id, ': expected names of columns"):
        iceberg_ds.distribute(df, keys="id, ")
    with pytest.raises(OptionError, match="keys names no column"):
        iceberg_ds.distribute(df, keys=[])
    with pytest.raises(OptionError, match="num_partitions is 0"):
        iceberg_ds.distribute(df, keys="id", num_partitions=0)
    with pytest.raises(SchemaMismatchError) as refused:
        iceberg_ds.distribute(df, keys=["gone", "LSN"])
    assert "the DataFrame has no key column 'gone' (columns: id, the.region, lsn, Lsn)" in str(refused.value)
    assert "key column 'LSN' could be any of 'lsn', 'Lsn'" in str(refused.value)
