"""What Spark Connect clients do: `python connect_client.py STEPS`, a file of names and arguments as JSON.

A client that is to have PySpark alone runs this file, so it imports nothing else at module level. What the steps
return is printed as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

FORMAT = "icebergsink"
TIMEOUT_S = 240
Options = dict[str, str]


def modules(spark: SparkSession) -> list[str]:
    """Return which of the modules that matter the client has."""
    names = ("iceberg_ds", "pyiceberg", "s3fs", "grpc")
    spark.range(1).collect()  # it is a client, of a server that answers
    return [name for name in names if importlib.util.find_spec(name) is not None]


def write(spark: SparkSession, table: str, options: Options, *batches: tuple[str, int, int]) -> None:
    """Write batches, each a mode, its first id and the one after its last."""
    for mode, first, end in batches:
        rows = spark.range(first, end, 1, 2).selectExpr("id", "concat('row ', id) AS name")
        rows.write.format(FORMAT).mode(mode).options(**options).save(table)


def stream(spark: SparkSession, table: str, options: Options, source: str, checkpoint: str) -> str:
    """Run a stream to its end, and return the query's id."""
    return _run(_rows(spark, source).writeStream.format(FORMAT).options(**options), checkpoint, table)


def split(spark: SparkSession, tables: list[str], options: Options, source: str, checkpoint: str) -> str:
    """Run a stream that writes every micro-batch into several tables, and return the query's id."""

    def write_to_all(rows: DataFrame, _: int) -> None:
        for table in tables:
            rows.write.format("icebergsink").mode("append").options(**options).save(table)

    return _run(_rows(spark, source).writeStream.foreachBatch(write_to_all), checkpoint, None)


def _rows(spark: SparkSession, source: str) -> DataFrame:
    return spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(source)


def _run(writer: DataStreamWriter, checkpoint: str, table: str | None) -> str:
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(table)
    if not query.awaitTermination(TIMEOUT_S):
        raise TimeoutError(f"The query did not end: {query.status}")
    return str(query.id)


def refusal(spark: SparkSession, table: str, options: Options) -> str:
    """Return what a client reads if ids are written as text."""
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS id")
    try:
        rows.write.format(FORMAT).mode("append").options(**options).save(table)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def package(spark: SparkSession, table: str, options: Options) -> str | None:
    """Use the functions of the package, which this client has; return the setting that `register` makes."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    iceberg_ds.register(spark)
    iceberg_ds.register(spark)
    asked = {**options, "partition-by": "bucket(4, id)"}
    rows = iceberg_ds.distribute(spark.range(40), table, options=asked, num_partitions=2)
    rows.write.format(FORMAT).mode("append").options(**asked).save(table)
    on_branch = {**options, "branch": "audit", "create-branch": "true"}
    spark.range(40, 50).write.format(FORMAT).mode("append").options(**on_branch).save(table)
    iceberg_ds.publish(table, "audit", options=options)
    return spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")


def convert(spark: SparkSession, table: str, options: Options) -> list[int | None]:
    """Replace half of a table's rows by key, convert the deletes twice; return counts and whether there was more."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    for first in (0, 20):
        rows = spark.range(first, first + 40, 1, 2).selectExpr("id", f"'from {first}' AS name")
        rows.write.format(FORMAT).mode("append").options(**options, keys="id").save(table)
    result = iceberg_ds.convert_deletes(table, spark, options=options)
    return [result.rows, result.data_files, iceberg_ds.convert_deletes(table, spark, options=options).snapshot_id]


def upsert(spark: SparkSession, table: str, options: Options) -> list[int]:
    """Replace half of a table's rows by key; return how many rows were written, and how many gave way."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    results = [
        iceberg_ds.upsert(
            spark.range(first, first + 40, 1, 2).selectExpr("id", f"'from {first}' AS name"),
            table,
            keys="id",
            options=options,
        )
        for first in (0, 20)
    ]
    return [results[-1].rows, results[-1].replaced_rows]


def read_back(spark: SparkSession, table: str, options: Options, reader: str) -> list[list[object]]:
    """Return the rows of a table by one of the readers, and by the predicate that only even ids are read."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    def rows(**arguments: Any) -> list[object]:
        found = iceberg_ds.read(spark, table, options=options, reader=reader, **arguments)  # type: ignore[arg-type]  # given
        return sorted([row["id"], row["name"]] for row in found.collect())

    return [rows(), rows(where="id % 2 = 0", columns=["name", "id"])]


def change_rows(spark: SparkSession, table: str, options: Options, mode: str) -> list[object]:
    """Delete, update and merge rows; return how many each changed, and how many changes of each kind are read after."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    rows = spark.range(20).selectExpr("id", "concat('row ', id) AS name")
    rows.write.format(FORMAT).mode("append").options(**options).save(table)
    how: dict[str, Any] = {"options": options, "mode": mode}
    deleted = iceberg_ds.delete_from(table, "id < 3", spark, **how)
    updated = iceberg_ds.update(table, {"name": "'new'"}, "id < 7", spark, **how)
    source = spark.range(15, 30).selectExpr("id", "'merged' AS name")
    insert, change = iceberg_ds.Insert(), iceberg_ds.Update()
    merged = iceberg_ds.merge(spark, source, table, on=["id"], when_matched=change, when_not_matched=insert, **how)
    changes = iceberg_ds.read_changes(spark, table, options=options, keys=["id"])
    counted = {row["_change_type"]: row["count"] for row in changes.groupBy("_change_type").count().collect()}
    return [deleted.deleted_rows, updated.updated_rows, merged.updated_rows, merged.inserted_rows, counted]


def copy_by_changes(spark: SparkSession, table: str, copy: str, options: Options, checkpoint: str) -> str:
    """Bring a copy to where a table is, by a stream of its changes by id, and return the query's id."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    iceberg_ds.register(spark)
    given = {**options, "on-change": "changes", "keys": "id"}
    changes = spark.readStream.format("icebergsource").options(**given).load(table)
    changes = changes.selectExpr("id", "name", "_change_type", "_change_ordinal AS version")
    feed = {**options, "keys": "id", "operation-column": "_change_type", "sequence-by": "version"}
    return _run(changes.writeStream.format(FORMAT).options(**feed), checkpoint, copy)


def keep_small(spark: SparkSession, table: str, options: Options) -> list[int]:
    """Write small files, rewrite them into one, and let all other snapshots expire; return how many files went."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    for first in range(3):
        spark.range(first, first + 1, 1, 1).write.format(FORMAT).mode("append").options(**options).save(table)
    rewritten = iceberg_ds.rewrite_data_files(table, spark=spark, options={**options, "rewrite-all": "true"})
    expired = iceberg_ds.expire_snapshots(table, options=options, spark=spark, older_than="now", retain_last=1)
    return [rewritten.rewritten_data_files_count, expired.deleted_data_files_count]


def progress(spark: SparkSession, table: str, options: Options, source: str, checkpoint: str) -> list[object]:
    """Run a stream to its end; return the epoch, the source and the rows of its last commit, and Spark's batch."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    writer = _rows(spark, source).writeStream.format(FORMAT).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(table)
    query.awaitTermination(TIMEOUT_S)
    found = iceberg_ds.progress(query, table=table, options=options)
    return [found.number, found.source, found.counts["added-records"], found.batch_id]


def upsert_stream(spark: SparkSession, table: str, options: Options, source: str, checkpoint: str) -> str:
    """Upsert a stream to its end, and return the query's id."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    write = iceberg_ds.upsert_into(table, keys="id", options=options)
    return _run(_rows(spark, source).writeStream.foreachBatch(write), checkpoint, None)


def transaction(spark: SparkSession, tables: list[str], options: Options) -> list[tuple[int, bool]]:
    """Write two tables together, twice under one version; return the rows of each, and whether it was skipped."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    rows = spark.range(20).selectExpr("id", "concat('row ', id) AS name")
    told = []
    for _ in range(2):
        with iceberg_ds.transaction(spark, app_id="client", version=1, options=options) as epoch:
            epoch.append(rows, tables[0])
            epoch.upsert(rows, tables[1], keys="id")
        told += [(table.rows, table.was_replayed) for table in epoch.result.tables]
    return told


def whole_sevens(spark: SparkSession, table: str, options: Options, source: str, checkpoint: str) -> str:
    """Run a stream in which seven ids are a transaction to its end, and return the query's id."""
    import iceberg_ds  # noqa: PLC0415  # other clients have it not

    rows = _rows(spark, source).selectExpr("*", "CAST(id DIV 7 AS STRING) AS tx")
    whole = iceberg_ds.whole_transactions(rows, "tx", position="id").drop("tx")
    return _run(whole.writeStream.format(FORMAT).options(**options), checkpoint, table)


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        modules,
        write,
        stream,
        split,
        refusal,
        package,
        read_back,
        change_rows,
        copy_by_changes,
        keep_small,
        progress,
        convert,
        upsert,
        upsert_stream,
        transaction,
        whole_sevens,
    )
}


def main() -> None:
    """Take the steps that are asked for, one after the other, and print what they return."""
    spark = SparkSession.builder.getOrCreate()
    steps = json.loads(Path(sys.argv[1]).read_text())
    sys.stdout.write(f"{json.dumps([STEPS[name](spark, *arguments) for name, arguments in steps])}\n")


if __name__ == "__main__":
    main()
