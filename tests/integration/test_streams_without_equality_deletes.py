"""Streams by keys that look for the old rows: no snapshot has an equality delete, and every reader reads each epoch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from support.checks.invariants import check_clean, check_sound, live_entries
from support.exhaustive import few
from support.hooks.faults import Action, Fault
from support.keys.streams import BY_KEY, FEED, KeyedStream, rows_after

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint

ENCODINGS = {"2": "position", "3": "deletion-vector"}
KINDS = few(
    1,
    [
        ("2", ""),
        ("3", ""),
        ("3", "region"),  # rows move between partitions
        ("2", "bucket(4, id)"),
    ],
)
STEPS = few(
    1, [FaultPoint.MANIFESTS_WRITTEN, FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMIT_BEGUN, FaultPoint.FILE_CLOSED]
)


def stream_of(folder: Path, version: str, partition_by: str = "") -> KeyedStream:
    """Return a stream into a table of that format version."""
    stream = KeyedStream(folder=folder / "stream", options=BY_KEY).asking(
        delete_encoding=ENCODINGS[version], key_index_folder=str(folder / "keys"), format_version=version
    )
    return stream.asking(partition_by=partition_by) if partition_by else stream


def rows_of(spark: SparkSession, stream: KeyedStream) -> list[tuple[Any, ...]]:
    """Return the rows of the table as two readers read them, after a look at every snapshot."""
    table = stream.house.table()
    check_sound(table)
    for snapshot in table.metadata.snapshots:
        entries = (entry for manifest in snapshot.manifests(table.io) for entry in live_entries(table, manifest))
        assert all(entry.data_file.content != DataFileContent.EQUALITY_DELETES for entry in entries)
    found = sorted(map(tuple, iceberg_ds.read(spark, "db.t", options=stream.house.options).collect()))
    assert sorted(tuple(row.values()) for row in stream.house.rows().to_pylist()) == found
    return found


def ids_of(spark: SparkSession, stream: KeyedStream) -> dict[int, int]:
    """Return the row ids by key; no two rows have one id."""
    rows = iceberg_ds.read(spark, "db.t", columns=["id", "_row_id"], options=stream.house.options).collect()
    found = {row["id"]: row["_row_id"] for row in rows}
    assert len(set(found.values())) == len(rows)
    return found


@pytest.mark.parametrize(("version", "partition_by"), KINDS)
def test_each_epoch_is_one_snapshot_that_every_reader_reads(
    spark: SparkSession, tmp_path: Path, version: str, partition_by: str
) -> None:
    """Keys would have two rows, deleted ones come back, or readers that know no equality deletes read wrong rows."""
    stream = stream_of(tmp_path, version, partition_by)
    known: dict[int, int] = {}

    for number in range(len(FEED)):
        stream.run(spark, FEED[number])
        assert rows_of(spark, stream) == rows_after(FEED[: number + 1])
        assert stream.snapshots() == number + 1
        if version == "3":
            before, known = known, ids_of(spark, stream)
            assert {key: known[key] for key in before if key in known} == {
                key: row_id for key, row_id in before.items() if key in known
            }
            assert {known[key] for key in known if key not in before}.isdisjoint(before.values())

    check_clean(stream.house.table())
    assert list((tmp_path / "keys").iterdir())


def test_index_is_made_anew_where_it_is_not(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that goes on in another place, as after a driver was lost, would add its rows beside the old ones."""
    stream = stream_of(tmp_path, "3")
    for number in range(len(FEED)):
        shutil.rmtree(tmp_path / "keys", ignore_errors=True)
        stream.asking(key_index_folder=str(tmp_path / "keys" / str(number))).run(spark, FEED[number])

    assert rows_of(spark, stream) == rows_after(FEED)


@pytest.mark.exhaustive
def test_others_change_the_table_between_epochs(spark: SparkSession, tmp_path: Path) -> None:
    """An index that does not follow the table would leave old rows, or hide those of others."""
    stream = stream_of(tmp_path, "3").run(spark, FEED[0])
    options = stream.house.options
    before = ids_of(spark, stream)

    iceberg_ds.rewrite_data_files("db.t", spark, options={**options, "rewrite-all": "true"})
    iceberg_ds.update("db.t", {"amount": "amount + 1"}, "id = 3", spark, options=options)
    iceberg_ds.delete_from("db.t", "id = 4", spark, options=options)
    stream.run(spark, FEED[1])
    iceberg_ds.rewrite_data_files("db.t", spark, options={**options, "rewrite-all": "true"})
    stream.run(spark, FEED[2])

    changed = [row for row in rows_after(FEED[:1]) if row[0] != 4]
    changed = [(*row[:2], row[2] + (row[0] == 3), *row[3:]) for row in changed]
    assert rows_of(spark, stream) == rows_after(FEED[1:], changed)
    after = ids_of(spark, stream)
    assert {key: after[key] for key in (3, 5) if key in after} == {key: before[key] for key in (3, 5) if key in after}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_worker_dies(spark: SparkSession, tmp_path: Path, step: FaultPoint) -> None:
    """The repeated epoch would add its rows twice, bring deleted ones back, or not be there at all."""
    stream = stream_of(tmp_path, "3").run(spark, FEED[0]).feed(*FEED[1:])
    fault = Fault(point=step, action=Action.KILL_WORKER, fuse=tmp_path / "fuse")
    with pytest.raises(StreamingQueryException):
        stream.job(fault).run(spark)
    assert fault.has_struck
    landed = step is FaultPoint.REQUEST_ANSWERED
    assert rows_of(spark, stream) == rows_after(FEED[: 2 if landed else 1])

    stream.run(spark)

    assert rows_of(spark, stream) == rows_after(FEED)
    assert stream.snapshots() == len(FEED)


@pytest.mark.parametrize(
    ("options", "reason"),
    few(
        1,
        [
            ({"delete_encoding": "copy-on-write"}, "must be looked for by a job of Spark"),
            ({"delete_encoding": "position"}, "which is not in format version 3"),
            ({"publish_converted": "true"}, "Drop one of the options"),
            ({"sequence_scope": "table"}, "does not compare with the table's rows"),
        ],
    ),
)
def test_what_cannot_be_done_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    """An option would be ignored, or rows be written in a way that the user has not asked for."""
    stream = stream_of(tmp_path, "3").run(spark, FEED[0]).asking(**options).feed(FEED[1])

    with pytest.raises(PySparkException, match=reason):
        stream.run(spark)

    assert rows_of(spark, stream) == rows_after(FEED[:1])
