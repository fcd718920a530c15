"""Old rows are found in their partitions, whatever its values are and whoever wrote them down: tasks or manifests."""

from __future__ import annotations

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import FixedType
from support.checks.reader import rows_of
from support.keys.conversions import ENCODINGS, convert, keyed_deletes
from support.tables.every_partition import BY_KEYS, BY_OTHERS, COUNT, EveryPartition, values_of
from support.tables.sink import Sink

from iceberg_ds.deletes.work import RowEncoding

TABLES = pytest.mark.parametrize("every", [BY_KEYS, BY_OTHERS], ids=["by key", "by others"])


@TABLES
@pytest.mark.parametrize("encodings", [ENCODINGS, ENCODINGS[::-1]], ids=["position first", "copy-on-write first"])
def test_upsert_finds_old_rows_in_every_partition(
    sink: Sink, every: EveryPartition, encodings: tuple[RowEncoding, ...]
) -> None:
    """Every upsert would double every key, or bring rows back that an earlier one has hidden."""
    sink.create(every.schema, every.spec)
    every.append(sink, 1)

    replaced = [every.upsert(sink, encoding, 2 + n).replaced_rows for n, encoding in enumerate(encodings * 2)]

    assert values_of(rows_of(sink.table())) == [5] * COUNT
    assert replaced == [COUNT] * 4


@TABLES
def test_late_rows_are_seen_in_every_partition(sink: Sink, every: EveryPartition) -> None:
    """A late row would undo a newer one."""
    sink.create(every.schema, every.spec)
    every.append(sink, 1)
    scope = {"sequence_by": ("lsn",), "sequence_scope": "table"}

    late = every.upsert(sink, "position", 2, lsn=0, **scope)
    every.upsert(sink, "position", 3, lsn=2, **scope)

    assert late.late_rows == COUNT
    assert values_of(rows_of(sink.table())) == [3] * COUNT


@TABLES
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_conversion_finds_deleted_rows_in_every_partition(
    sink: Sink, every: EveryPartition, encoding: RowEncoding
) -> None:
    """Deletes would be dropped though their rows are still shown."""
    sink.create(every.schema, every.spec)
    every.append(sink, 1)
    every.write_by_keys(sink, 2)

    convert(sink, encoding)

    assert keyed_deletes(sink.table()) == []
    assert values_of(rows_of(sink.table())) == [2] * COUNT


@TABLES
def test_dynamic_overwrite_replaces_every_partition(sink: Sink, every: EveryPartition) -> None:
    """Rows of a partition that is written anew would stay."""
    sink.create(every.schema, every.spec)
    every.append(sink, 1)

    sink.overwrite(every.rows(2), schema=every.sent, overwrite_mode="dynamic")

    assert values_of(rows_of(sink.table())) == [2] * COUNT


@TABLES
def test_dynamic_overwrite_leaves_every_other_partition(sink: Sink, every: EveryPartition) -> None:
    """Rows of a partition that is equal to a written one for Python alone would be lost."""
    sink.create(every.schema, every.spec)
    every.append(sink, 1)

    sink.overwrite(every.rows(2)[1:2], schema=every.sent, overwrite_mode="dynamic")

    assert values_of(rows_of(sink.table())) == [1] * (COUNT - 1) + [2]


@TABLES
def test_replaced_range_leaves_hidden_rows_hidden_in_every_partition(sink: Sink, every: EveryPartition) -> None:
    """Rows that an upsert has hidden would come back where a file is written again in part."""
    sink.create(every.schema, every.spec)
    # Two files in each partition, whose deletes are in one file, and further rows of other keys.
    others = [{**row, "id": 8, "flag": False, "text": "other"} for row in every.rows(8)]
    sink.commit(sink.write([*every.rows(1), *others], [*every.rows(1), *others], schema=every.sent))
    every.upsert(sink, "position", 2)
    before = values_of(rows_of(sink.table()))

    sink.overwrite([], schema=every.sent, replace_where="value = 8")

    assert values_of(rows_of(sink.table())) == [value for value in before if value != 8]


@TABLES
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_upsert_finds_rows_by_columns_that_stand_in_their_partition_alone(
    sink: Sink, every: EveryPartition, encoding: RowEncoding
) -> None:
    """An upsert into a table that was taken over from Hive would double every key."""
    sink.create(every.schema, every.spec)
    every.append_lacking(sink, every.rows(1))

    late = every.upsert(sink, "position", 0, lsn=0, sequence_by=("lsn",), sequence_scope="table")
    result = every.upsert(sink, encoding, 2)

    assert (late.late_rows, result.replaced_rows) == (COUNT, COUNT)
    assert values_of(rows_of(sink.table())) == [2] * COUNT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_conversion_finds_rows_by_columns_that_stand_in_their_partition_alone(
    sink: Sink, encoding: RowEncoding
) -> None:
    """Deletes would be dropped, and the rows that they hid come back."""
    sink.create(BY_KEYS.schema, BY_KEYS.spec)
    BY_KEYS.append_lacking(sink, BY_KEYS.rows(1))
    BY_KEYS.write_by_keys(sink, 2)

    convert(sink, encoding)

    assert keyed_deletes(sink.table()) == []
    assert values_of(rows_of(sink.table())) == [2] * COUNT


def alike(value: bytes) -> bytes:
    """Return another value of `three` in the same bucket."""
    bucket = BucketTransform(4).transform(FixedType(3))
    return next(other for other in (f"{n:03}".encode() for n in range(1000)) if bucket(other) == bucket(value))


@TABLES
@pytest.mark.parametrize("writes", ["upsert", "replace-where"])
def test_rows_that_are_written_again_get_the_columns_of_their_partition(
    sink: Sink, every: EveryPartition, writes: str
) -> None:
    """Neighbours of the rows that are meant would have null in these columns."""
    sink.create(every.schema, every.spec)
    others = [{**row, "id": row["id"] + COUNT, "three": alike(row.get("three", b""))} for row in every.rows(8)]
    full = every.append_lacking(sink, [*every.rows(1), *others])

    if writes == "upsert":
        every.upsert(sink, "copy-on-write", 2)
    else:
        sink.overwrite([], schema=every.sent, replace_where="value = 1")

    neighbours = [row for row in rows_of(sink.table()) if row["value"] == 8]
    assert sorted(map(str, neighbours)) == sorted(str(row) for row in full if row["value"] == 8)
