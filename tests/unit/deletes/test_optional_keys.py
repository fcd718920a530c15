"""Writes by keys into tables whose key columns are optional: no row of another key, or of none, is touched."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.checks.reader import rows_of
from support.keys.conversions import ENCODINGS, convert, keyed_deletes
from support.keys.upserts import commit_upsert
from support.tables.sink import Sink, epoch

from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import OptionError, RefusedRowsError
from iceberg_ds.planning.plan_write import WriteMode

TABLE = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "region", StringType()), NestedField(3, "v", LongType())
)
BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
SENT = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("region", spark.StringType()),
        spark.StructField("v", spark.LongType()),
    ]
)
KEYS = ("id", "region")
STORED = [(1, "EU", 0), (1, None, 0), (None, "EU", 0), (None, None, 0), (2, "EU", 0), (0, "", 0)]
SPECS = pytest.mark.parametrize("spec", [PartitionSpec(), BY_KEY], ids=["unpartitioned", "by key"])


def rows(*values: tuple[int | None, str | None, int]) -> list[dict[str, Any]]:
    """Return rows of the table."""
    return [dict(zip(TABLE.column_names, found, strict=True)) for found in values]


def stored(sink: Sink) -> set[tuple[Any, ...]]:
    """Return the rows of the table, each of which is there once."""
    found = [tuple(row.values()) for row in rows_of(sink.table())]
    assert len(set(found)) == len(found)
    return set(found)


def create(sink: Sink, spec: PartitionSpec) -> None:
    """Create the table with rows of all kinds of keys."""
    sink.create(TABLE, spec)
    sink.commit(sink.write(rows(*STORED[:3]), rows(*STORED[3:]), schema=SENT))


@SPECS
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_epoch_replaces_rows_of_its_keys_alone(sink: Sink, spec: PartitionSpec, encoding: RowEncoding) -> None:
    """Rows without a key would be lost with the first epoch, or its own rows be there twice."""
    create(sink, spec)

    for number in (1, 2):
        plan = sink.plan(SENT, keys=KEYS)
        written = rows((1, "EU", number), (0, "", number), (7, "US", number))
        sink.commit(sink.write(written, schema=SENT, plan=plan, of_epoch=epoch(number)))
    expected = {(1, "EU", 2), (0, "", 2), (7, "US", 2), *STORED[1:5]}
    before = stored(sink)
    convert(sink, encoding)

    assert before == stored(sink) == expected
    assert keyed_deletes(sink.table()) == []
    assert sink.table().schema().identifier_field_ids == []


@SPECS
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_upsert_replaces_rows_of_its_keys_alone(sink: Sink, spec: PartitionSpec, encoding: RowEncoding) -> None:
    """Rows without a key would be lost with the first upsert, or its own rows be there twice."""
    create(sink, spec)

    for number in (1, 2):
        plan = sink.plan(SENT, WriteMode.UPSERT, keys=KEYS)
        written = rows((1, "EU", number), (0, "", number), (7, "US", number))
        commit_upsert(sink, plan, encoding, sink.write(written, schema=SENT, plan=plan))

    assert stored(sink) == {(1, "EU", 2), (0, "", 2), (7, "US", 2), *STORED[1:5]}


@pytest.mark.parametrize("bad", [(None, "EU", 1), (1, None, 1), (None, None, 1)])
def test_row_without_a_key_is_refused(sink: Sink, bad: tuple[int | None, str | None, int]) -> None:
    """It would replace all rows without a key, or be there once more with each run."""
    create(sink, PartitionSpec())
    plan = sink.plan(SENT, keys=KEYS)

    with pytest.raises(RefusedRowsError, match="1 rows have a null in a key column"):
        sink.commit(sink.write(rows((1, "EU", 5), bad), schema=SENT, plan=plan))

    assert stored(sink) == set(STORED)


def test_identifier_fields_are_not_given_up_for_optional_keys(sink: Sink) -> None:
    """Other engines would take other rows for the same than this write does."""
    sink.create(Schema(NestedField(1, "id", LongType(), required=True), *TABLE.fields[1:], identifier_field_ids=[1]))

    for evolves in (False, True):
        with pytest.raises(OptionError, match="'region' are optional in the table, and identifier fields, which"):
            sink.plan(SENT, keys=("region",), evolve_keys=evolves)


def test_keys_of_a_table_without_identifier_fields_change_nothing_in_it(sink: Sink) -> None:
    """The table would get identifier fields that the format forbids, or a commit with each write."""
    create(sink, BY_KEY)
    before = sink.table().metadata_location

    plan = sink.plan(SENT, keys=("id",), evolve_keys=True)

    assert plan.write.changes is not None
    assert plan.write.changes.key_ids == (1,)
    assert sink.table().metadata_location == before
