"""Changes between snapshots, by both readers, held against the rows before and after each snapshot."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyspark.sql import DataFrame, SparkSession
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE
from support.spark.tables import Warehouse
from support.tables.changes_by_others import cherry_pick, head_of, register_edited
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import (
    commit_file,
    delete_equal,
    delete_ids,
    delete_positions,
    entries,
    take_deletes_back,
    with_ids,
)
from support.tables.random_history import RandomHistory
from support.tables.reading import differences_of, net_of
from support.tables.sink import NAME, Sink, embedded_options, local

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.reading import file_marks, spark_changes, spark_keys
from iceberg_ds.reading.change_rows import net_changes, with_updates, without_carry_overs

COPY = "db.copy"
EQUALITY_DELETES = DataFileContent.EQUALITY_DELETES


def sink_of(house: Warehouse) -> Sink:
    """Return the table without Spark."""
    options = embedded_options(house.folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def changes(spark: SparkSession, house: Warehouse, **arguments: Any) -> list[dict[str, Any]]:
    """Return the changes of the table."""
    frame = iceberg_ds.read_changes(spark, NAME, options=house.options, **arguments)
    return [row.asDict(recursive=True) for row in frame.collect()]


def orders(spark: SparkSession, first: int, last: int, name: str = "old") -> DataFrame:
    """Return rows of several types."""
    return spark.range(first, last).selectExpr(
        "id",
        "cast(id % 3 AS int) AS part",
        f"concat('{name} ', id) AS name",
        "CASE WHEN id % 4 = 0 THEN cast('NaN' AS double) WHEN id % 4 = 1 THEN -0.0D ELSE id / 4 END AS ratio",
        "map('k', id) AS pairs",
        "named_struct('x', array(cast(id AS float), null)) AS nested",
    )


def overwrite(rows: DataFrame, house: Warehouse, **options: str) -> None:
    """Overwrite the table; `_` in the name of an option stands for `-`."""
    more = {key.replace("_", "-"): text for key, text in options.items()}
    rows.write.format("icebergsink").mode("overwrite").options(**house.options, **more).save(NAME)


def fill(spark: SparkSession, house: Warehouse) -> Sink:
    """Let all that changes rows happen to a table."""
    house.append(orders(spark, 0, 12), partition_by="part")
    sink = sink_of(house)
    overwrite(orders(spark, 4, 5, "new"), house, replace_where="id = 4")
    overwrite(orders(spark, 0, 1, "dynamic"), house, overwrite_mode="dynamic")
    with house.table().update_schema() as update:
        update.rename_column("name", "label")
    renamed = orders(spark, 20, 23).withColumnRenamed("name", "label")
    house.append(renamed, partition_by="part")
    files = [entry.data_file for entry in entries(sink)]
    delete_positions(sink, files[0].file_path, [0])
    delete_equal(sink, ids(1, 2, 21), [1], of=files[0])
    delete_equal(sink, ids(21, 22), [1], of=next(f for f in files if f.partition != files[0].partition))
    rewrite(sink, rewrite_all="true")
    delete_positions(sink, entries(sink)[0].data_file.file_path, [0])
    take_deletes_back(sink)
    return sink


def ids(*numbers: int) -> pa.Table:
    """Return keys to delete by."""
    return with_ids(pa.table({"id": pa.array(numbers, pa.int64())}), id=1)


@EXHAUSTIVE
@pytest.mark.parametrize("reader", ["spark", pytest.param("python", marks=EXHAUSTIVE)])
def test_changes_are_the_differences_between_snapshots(spark: SparkSession, house: Warehouse, reader: Any) -> None:
    """A copy of the table by its changes would lack rows, have rows that are gone, or get rows that did not change."""
    wanted = differences_of(fill(spark, house))

    found = changes(spark, house, reader=reader)

    assert net_of(found) == wanted
    told = Counter((row["_commit_snapshot_id"], row["_change_type"]) for row in found)
    for number, counted in wanted.items():
        assert told[number, "INSERT"] == sum(count for count in counted.values() if count > 0)
        assert told[number, "DELETE"] == -sum(count for count in counted.values() if count < 0)


def happenings(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """Yield what happens to a table."""
    value = lambda: chance.choice([None, *range(10)])  # noqa: E731  # short
    for _ in range(12):
        pairs = [(value(), value()) for _ in range(chance.randint(1, 5))]
        keyed = [(key, value()) for key in chance.sample(range(10), 3)]
        yield chance.choice(
            [
                ("append", pairs),
                ("write keys", keyed),
                ("write keys", keyed),
                ("overwrite", chance.randrange(10), pairs),
                ("delete keys", chance.sample(range(10), 2)),
                ("delete row", chance.randrange(99)),
                (chance.choice(["rewrite", "convert", "take deletes back"]),),
                (chance.choice(["swap names", "widen", "partition", "drop", "add"]),),
            ]
        )


@pytest.mark.parametrize("seed", [1, *(pytest.param(number, marks=EXHAUSTIVE) for number in range(2, 21))])
def test_changes_of_any_history_are_the_differences_between_snapshots(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A row would be told of another snapshot, twice or not at all, where files and deletes come, go, and come back."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    monkeypatch.setattr(file_marks, "_MOST_FILES", chance.choice([2, 256]))
    monkeypatch.setattr(spark_keys, "MOST_KEYS", chance.choice([0, spark_keys.MOST_KEYS]))
    monkeypatch.setattr(spark_changes, "_MOST_BROADCAST", chance.choice([0, 1_000_000]))
    table = RandomHistory(tmp_path)
    for happening in happenings(chance):
        table.take(*happening)
    if seed > 1:  # seed 1 is for every run
        check_changes(spark, table.sink, chance)
    jumble(table.sink, chance)  # so that files and deletes go and come back
    check_changes(spark, table.sink, chance)


def check_changes(spark: SparkSession, sink: Sink, chance: random.Random) -> None:
    """Hold what Spark's reader reads of all snapshots, and after one of them, against their differences."""
    snapshots = [snapshot.snapshot_id for snapshot in sink.table().metadata.snapshots]
    start, wanted = chance.choice(snapshots[:-1]), differences_of(sink)
    for first in (None, start):
        frame = iceberg_ds.read_changes(
            spark, NAME, options={"warehouse": str(sink.options.warehouse)}, start=first, reader="spark"
        )
        later = snapshots[snapshots.index(start) + 1 :] if first else snapshots
        assert net_of([row.asDict() for row in frame.collect()]) == {
            number: wanted[number] for number in later if number in wanted
        }


def jumble(sink: Sink, chance: random.Random) -> None:
    """Let the history of a table be states that it was in, in any order, again and again."""

    def edit(document: dict[str, Any]) -> None:
        states, first = document["snapshots"], document["last-updated-ms"]
        document["snapshots"] = [
            {
                **chance.choice(states),
                "snapshot-id": number + 1,
                "parent-snapshot-id": number or None,
                "sequence-number": document["last-sequence-number"] + number + 1,
                "timestamp-ms": first + number,
                "summary": {"operation": "overwrite"},
            }
            for number in range(8)
        ]
        last = document["snapshots"][-1]
        document |= {
            "snapshot-log": [],
            "current-snapshot-id": last["snapshot-id"],
            "refs": {"main": {"snapshot-id": last["snapshot-id"], "type": "branch"}},
            "last-sequence-number": last["sequence-number"],
            "last-updated-ms": last["timestamp-ms"],
        }

    register_edited(sink, edit)


@EXHAUSTIVE
def test_file_that_comes_back_with_another_number_is_another_file(spark: SparkSession, tmp_path: Path) -> None:
    """Rows would be deleted by another snapshot than the one that did it, twice, or not at all."""
    options = embedded_options(tmp_path / "warehouse")
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    sink.append(1, 2, 3)
    first = head_of(sink)
    sink.commit(sink.write([{"id": 1, "name": "new"}], plan=sink.plan(keys=("id",))))
    (deletes,) = [one.data_file for one in entries(sink) if one.data_file.content is EQUALITY_DELETES]
    sink.overwrite([])
    cherry_pick(sink, first)  # the data file, which the keys do not concern by now
    delete_ids(sink, 2)
    sink.append(1, 7)
    commit_file(sink, deletes, "main")  # the delete file, which concerns all rows by now
    commit_file(sink, deletes, "main")  # and once more, under a later number
    wanted = differences_of(sink)

    for reader in ("spark", "python"):
        frame = iceberg_ds.read_changes(spark, NAME, options={"warehouse": str(sink.options.warehouse)}, reader=reader)
        assert net_of([row.asDict() for row in frame.collect()]) == wanted, reader


@EXHAUSTIVE
def test_columns_may_have_the_names_that_are_used_in_between(spark: SparkSession, house: Warehouse) -> None:
    """A table would have changes that nobody can read."""
    names = ["__copies", "__AT", "__same_0", "__changes_moment", "__changes_since", "order id"]
    columns = ["-0.0D AS d", "1L AS id", *(f"{number} AS `{name}`" for number, name in enumerate(names))]
    house.append(spark.sql(f"SELECT {', '.join(columns)}"), keys="`order id`")
    columns[0] = "0.0D AS d"
    house.append(spark.sql(f"SELECT {', '.join(columns)}"), keys="`order id`")
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    try:
        for net, kinds in ((False, ["INSERT", "UPDATE_AFTER", "UPDATE_BEFORE"]), (True, ["INSERT"])):
            found = changes(spark, house, keys=["id"], net=net, reader="spark")
            assert sorted(row["_change_type"] for row in found) == kinds
            assert all(row[name] == number for row in found for number, name in enumerate(names))
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")


def test_delete_file_that_is_missing_or_damaged_is_named(spark: SparkSession, house: Warehouse) -> None:
    """A user would look for a fault in a data file, or in the query."""
    house.append(spark.range(6).coalesce(1))
    sink = sink_of(house)
    (file,) = [entry.data_file for entry in entries(sink)]
    delete_positions(sink, file.file_path, [0])
    delete_equal(sink, ids(1), [1], of=file)
    for kind in (DataFileContent.POSITION_DELETES, EQUALITY_DELETES):
        (path,) = [one.data_file.file_path for one in entries(sink) if one.data_file.content is kind]
        whole = local(path).read_bytes()
        for content in (None, b"x" * len(whole)):
            if content is None:
                local(path).unlink()
            else:
                local(path).write_bytes(content)
            for read in (changes, rows_by_spark):
                with pytest.raises(DataFileError, match=rf"Cannot read delete file {re.escape(path)}: .*come back"):
                    read(spark, house)
        local(path).write_bytes(whole)


def rows_by_spark(spark: SparkSession, house: Warehouse) -> list[Any]:
    """Return the rows of the table, by Spark's reader."""
    return iceberg_ds.read(spark, NAME, options=house.options, reader="spark").collect()


@EXHAUSTIVE
def test_row_that_several_deletes_hide_is_one_change(spark: SparkSession, house: Warehouse) -> None:
    """A row would be deleted twice, so that its copy beside it would be deleted, too."""
    house.append(spark.range(6).selectExpr("id", "id % 2 AS n").coalesce(1))
    sink = sink_of(house)
    start, (file,) = head_of(sink), [entry.data_file for entry in entries(sink)]
    delete_positions(sink, file.file_path, [0, 1])
    delete_equal(sink, ids(1, 2), [1], of=file)
    delete_equal(sink, with_ids(pa.table({"n": [0]}), n=2), [2], of=file)
    head = head_of(sink)

    def as_one_snapshot(document: dict[str, Any]) -> None:
        document["snapshots"] = [one for one in document["snapshots"] if one["snapshot-id"] in {start, head}]
        document["snapshots"][-1]["parent-snapshot-id"] = start
        document["snapshot-log"] = document["snapshot-log"][-1:]

    register_edited(sink, as_one_snapshot)
    for reader in ("spark", "python"):
        found = changes(spark, house, start=start, reader=reader)

        assert sorted((row["_change_type"], row["id"]) for row in found) == [
            ("DELETE", number) for number in (0, 1, 2, 4)
        ]


@EXHAUSTIVE
@pytest.mark.parametrize("reader", ["spark", pytest.param("python", marks=EXHAUSTIVE)])
def test_updates_and_net_changes(spark: SparkSession, house: Warehouse, reader: Any) -> None:
    """An audit would show rows deleted and inserted instead of updated, or states that nobody asks for."""
    by_key = {"keys": "id"}
    values = "id BIGINT, name STRING"
    for rows in ([(1, "a"), (2, "a"), (3, "a")], [(1, "b"), (4, "b")], [(1, "c"), (2, "a")]):
        house.append(spark.createDataFrame(rows, values), **by_key)
    iceberg_ds.upsert(spark.createDataFrame([(2, "d"), (5, "d")], values), NAME, options=house.options, keys="id")
    delete_equal(sink_of(house), ids(4, 3), [1])
    house.append(spark.createDataFrame([(3, "a")], values), **by_key)
    first, *_, last = (snapshot.snapshot_id for snapshot in house.table().snapshots())

    def told(**arguments: Any) -> list[tuple[int, str, str, int]]:
        found = changes(spark, house, **{"keys": ["ID"], "start": first, "end": last, "reader": reader, **arguments})
        return sorted((row["_change_ordinal"], row["id"], row["_change_type"], row["name"]) for row in found)

    steps = [
        (0, 1, "UPDATE_AFTER", "b"),
        (0, 1, "UPDATE_BEFORE", "a"),
        (0, 4, "INSERT", "b"),
        (1, 1, "UPDATE_AFTER", "c"),
        (1, 1, "UPDATE_BEFORE", "b"),
        (2, 2, "UPDATE_AFTER", "d"),
        (2, 2, "UPDATE_BEFORE", "a"),
        (2, 5, "INSERT", "d"),
        (3, 3, "DELETE", "a"),
        (3, 4, "DELETE", "b"),
        (4, 3, "INSERT", "a"),
    ]
    net = [
        (1, 1, "UPDATE_AFTER", "c"),
        (1, 1, "UPDATE_BEFORE", "a"),
        (2, 2, "UPDATE_AFTER", "d"),
        (2, 2, "UPDATE_BEFORE", "a"),
        (2, 5, "INSERT", "d"),
    ]
    assert told() == steps
    assert told(net=True) == net


@EXHAUSTIVE
def test_rows_are_the_same_bit_by_bit(spark: SparkSession) -> None:
    """A change of a sign would be lost, and rows with NaN, nulls or maps be changes whenever files are rewritten."""
    value = "named_struct('d', {d}, 'f', cast({f} AS float), 's', {s}, 'm', {m}, 'a', array({d}), 'n', {n})"
    null = "cast(NULL AS struct<x: double>)"
    old = {"d": "0.0D", "f": "'NaN'", "s": "'x'", "m": "map(1, 0.5D, 2, null)", "n": null}
    same = [
        value.format(**{**old, **change})
        for change in ({}, {"d": "double('NaN')"}, {"s": "cast(NULL AS string)"}, {"n": "named_struct('x', 1.5D)"})
    ]
    rows = [(one, kind) for one in same for kind in ("DELETE", "INSERT")]
    rows += [(value.format(**{**old, "m": "map(2, null, 1, 0.5D)"}), kind) for kind in ("DELETE", "INSERT")]
    changed = [
        {"d": "-0.0D"},
        {"f": "-0.0"},
        {"m": "map(1, -0.0D, 2, null)"},
        {"n": "named_struct('x', cast(NULL AS double))"},
        {"s": "''"},
    ]
    rows += [(value.format(**{**old, **change}), "INSERT") for change in changed]
    rows += [(value.format(**{**old, "d": "1.0D"}), "DELETE")] * 3 + [(value.format(**{**old, "d": "1.0D"}), "INSERT")]
    query = " UNION ALL ".join(
        f"SELECT row.*, '{kind}' AS _change_type, 0 AS _change_ordinal, 7L AS _commit_snapshot_id, "  # noqa: S608
        f"timestamp_millis(5) AS _commit_timestamp FROM (SELECT {one} AS row)"
        for one, kind in rows
    )
    for left in (without_carry_overs(spark.sql(query)), net_changes(spark.sql(query))):
        found = Counter((row["_change_type"], str(row["d"])) for row in left.collect())

        assert found == {("INSERT", "-0.0"): 1, ("INSERT", "0.0"): 4, ("DELETE", "1.0"): 2}


@EXHAUSTIVE
def test_key_of_several_rows_is_refused(spark: SparkSession) -> None:
    """Rows that have nothing to do with each other would be shown as one before and one after an update."""

    def updates(*words: str) -> list[str]:
        made = [(1, number, word, 0, 7) for number, word in enumerate(words)]
        schema = "id INT, n INT, _change_type STRING, _change_ordinal INT, _commit_snapshot_id BIGINT"
        rows = spark.createDataFrame(made, schema).selectExpr("*", "timestamp_millis(0) AS _commit_timestamp")
        return sorted(row["_change_type"] for row in with_updates(rows, NAME, ["id"], is_net=False).collect())

    assert updates("INSERT", "INSERT") == ["INSERT", "INSERT"]
    assert updates("INSERT", "DELETE") == ["UPDATE_AFTER", "UPDATE_BEFORE"]
    assert updates("DELETE", "DELETE") == ["DELETE", "DELETE"]
    for words in (("DELETE", "DELETE", "INSERT"), ("DELETE", "INSERT", "INSERT")):
        with pytest.raises(
            Exception, match=r'db.t with keys id: snapshot 7 changed several rows of one key: \{"id":1\}'
        ):
            updates(*words)


@EXHAUSTIVE
def test_columns_are_those_of_the_table_now(spark: SparkSession, house: Warehouse) -> None:
    """Values of renamed columns would be missing, or the columns that say what has changed."""
    house.append(spark.range(2).selectExpr("id", "'x' AS name"))
    with house.table().update_schema() as update:
        update.rename_column("name", "label")
    house.append(spark.range(2, 3).selectExpr("id", "'y' AS label", "1 AS more"), schema_evolution="add-columns")

    frame = iceberg_ds.read_changes(spark, NAME, options=house.options, columns=["more", "Label"])

    told = ["_change_type", "_change_ordinal", "_commit_snapshot_id", "_commit_timestamp"]
    assert frame.columns == ["more", "label", *told]
    assert [kind for _, kind in frame.dtypes[2:]] == ["string", "int", "bigint", "timestamp"]
    found = sorted(frame.collect(), key=lambda row: (row["_change_ordinal"], row["label"]))
    assert [(row["more"], row["label"]) for row in found] == [(None, "x"), (None, "x"), (1, "y")]
    times = [snapshot.timestamp_ms for snapshot in house.table().snapshots()]
    assert [round(row["_commit_timestamp"].timestamp() * 1000) for row in found] == [times[0], times[0], times[1]]


def test_changes_of_a_branch(spark: SparkSession, house: Warehouse) -> None:
    """Nobody could look at what an audited branch would change."""
    house.append(spark.range(3).toDF("id"))
    start = head_of(sink_of(house))
    house.table().manage_snapshots().create_branch(start, "side").commit()
    house.append(spark.range(5, 6).toDF("id"), branch="side")
    house.append(spark.range(7, 8).toDF("id"))

    assert [row["id"] for row in changes(spark, house, start=start, branch="side")] == [5]
    assert [row["id"] for row in changes(spark, house, start=start)] == [7]
    assert changes(spark, house, start=head_of(sink_of(house))) == []


def test_first_read_of_a_table_without_rows(spark: SparkSession, house: Warehouse) -> None:
    """A job that copies changes could only be started after the first write."""
    house.append(spark.range(0).toDF("id"))

    assert changes(spark, house, keys=["id"], net=True) == []
    assert iceberg_ds.read_changes(spark, NAME, options=house.options, columns=["id"]).columns[:2] == [
        "id",
        "_change_type",
    ]


def test_wrong_arguments_are_refused(spark: SparkSession, house: Warehouse) -> None:
    """A user would not learn what is wrong."""
    house.append(spark.range(3).selectExpr("id", "array(id) AS list"))

    def refusal(**arguments: Any) -> str:
        with pytest.raises(OptionError) as raised:
            iceberg_ds.read_changes(spark, NAME, **{"options": house.options, **arguments})
        return str(raised.value)

    assert refusal(columns=["nope"]) == "Cannot read db.t: it has no column 'nope' (columns: id, list)."
    assert refusal(columns=["_file"]) == "Cannot read changes of db.t: '_file' is no column of the table. Leave it out."
    assert "it comes with a stream of changes" in refusal(columns=["_row_id"])
    assert refusal(columns=["_change_type"]) == "Cannot read db.t: it has no column '_change_type' (columns: id, list)."
    assert refusal(keys="id") == "Cannot read db.t: keys is the text 'id', expected a list of names."
    assert refusal(keys=["list"]).endswith("of one value, such as a number or a text.")
    assert "keys names no column" in refusal(keys=[])
    assert "option 'where' is none of a read of changes" in refusal(options={**house.options, "where": "id = 1"})
    assert "start is '2026-01-01', expected a time with a time zone" in refusal(start="2026-01-01")
    assert "it has no snapshot 5" in refusal(start=5)
    assert "it has no branch 'nope'" in refusal(branch="nope")
    with pytest.raises(OptionError, match="it is a metadata table"):
        iceberg_ds.read_changes(spark, f"{NAME}.snapshots", options=house.options)

    with house.table().update_schema() as update:
        update.rename_column("list", "_Change_Type")
    with pytest.raises(UnsupportedTableError, match="it has a column '_Change_Type' of its own"):
        iceberg_ds.read_changes(spark, NAME, options=house.options)


def copy_changes(spark: SparkSession, house: Warehouse) -> None:
    """Write what has changed since the last time into the copy, as docs/reading.md does."""
    head = iceberg_ds.read(spark, f"{NAME}.metadata_log_entries", options=house.options).tail(1)[0]
    start = None
    if house.has_table(COPY):
        snapshots = iceberg_ds.read(spark, f"{COPY}.snapshots", options=house.options)
        (last,) = snapshots.where("summary['copied-up-to'] IS NOT NULL").orderBy("committed_at").tail(1)
        start = int(last["summary"]["copied-up-to"])
    end = head["latest_snapshot_id"]
    changed = iceberg_ds.read_changes(
        spark, NAME, options=house.options, start=start, end=end, keys=["id"], net=True
    ).drop("_change_ordinal", "_commit_snapshot_id", "_commit_timestamp")
    written = changed.write.format("icebergsink").mode("append").options(**house.options)
    written = written.option("keys", "id").option("operation-column", "_change_type")
    written = written.option("txn-app-id", f"copy of {NAME}").option("txn-version", head["latest_sequence_number"])
    written.option("snapshot-property.copied-up-to", end).save(COPY)


@pytest.mark.parametrize("seed", [1, *(pytest.param(number, marks=EXHAUSTIVE) for number in range(2, 6))])
def test_table_is_copied_by_its_changes(spark: SparkSession, house: Warehouse, seed: int) -> None:
    """A copy of a table would drift away from it."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    sink = sink_of(house)
    columns = "id BIGINT, n BIGINT, op STRING"
    for number in range(8 if seed > 1 else 4):
        for _ in range(chance.randint(1, 2)):
            keys = chance.sample(range(12), 4)
            rows = [(key, chance.randint(0, 2), chance.choice(["u", "u", "d"])) for key in keys]
            frame, options = spark.createDataFrame(rows, columns), {"operation-column": "op"}
            if number and chance.random() < 0.5:
                encoding = {"delete-encoding": chance.choice(["position", "copy-on-write"])}
                iceberg_ds.upsert(frame, NAME, options={**house.options, **options, **encoding}, keys="id")
            else:
                house.append(frame, keys="id", **options)
        if chance.random() < 0.3:
            rewrite(sink, rewrite_all="true")
        copy_changes(spark, house)
        if chance.random() < 0.5:
            copy_changes(spark, house)  # a job that is run again

        assert rows_of(house.table(COPY)) == rows_of(house.table())
