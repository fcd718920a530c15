"""Writes into tables whose columns have default values, without a column of the DataFrame for them."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyspark.sql import types as spark
from support.tables.changes_by_others import set_columns
from support.tables.reading import read_by_tasks
from support.tables.sink import SCHEMA, Sink, rows

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.planning.plan_write import WriteMode

pytestmark = pytest.mark.usefixtures("waits")

ID = NestedField(1, "id", LongType())
NAME = NestedField(2, "name", StringType())
WITH_NUMBER = spark.StructType([*SCHEMA, spark.StructField("n", spark.LongType())])
NUMBER = NestedField(3, "n", LongType(), initial_default=5, write_default=6)
BY_NUMBER = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="n"))


@pytest.fixture
def of_version_3(sink: Sink) -> Sink:
    """Return a table with rows 1 and 2 from before column `n`, and row 3 that was written without it."""
    sink.create(Schema(ID, NAME), format_version="3")
    sink.append(1, 2)
    set_columns(sink, ID, NAME, NUMBER)
    sink.append(3)
    return sink


def numbers(sink: Sink) -> dict[int, Any]:
    """Return column `n` of each row, by id."""
    return {row["id"]: row["n"] for row in read_by_tasks(sink)}


def test_ranges_mean_the_default(of_version_3: Sink) -> None:
    """An overwrite would keep rows that it is to replace, replace others, or refuse rows that lie in its range."""
    of_version_3.overwrite(rows(7), replace_where="n = 6")
    assert numbers(of_version_3) == {1: 5, 2: 5, 7: 6}

    with pytest.raises(RefusedRowsError, match="1 rows do not satisfy replace-where"):
        of_version_3.overwrite(rows(8), replace_where="n = 5")
    of_version_3.overwrite([{"id": 8, "name": None, "n": 5}], schema=WITH_NUMBER, replace_where="n = 5")

    assert numbers(of_version_3) == {8: 5, 7: 6}


def test_partition_is_that_of_the_default(sink: Sink) -> None:
    """Rows would lie in a partition where nobody looks for them."""
    sink.create(Schema(ID, NAME, NestedField(3, "n", LongType())), BY_NUMBER, format_version="3")
    set_columns(sink, ID, NAME, NUMBER)
    sink.append(1)
    sink.overwrite(rows(2), overwrite_mode="dynamic")

    assert numbers(sink) == {2: 6}
    (task,) = sink.table().scan().plan_files()
    assert task.file.partition[0] == 6


@pytest.mark.parametrize("policy", ["quarantine", "drop", "null"])
def test_defaults_are_no_bad_values(of_version_3: Sink, policy: str) -> None:
    """A row would count as bad for a column that it need not have."""
    required = NestedField(4, "needed", LongType(), required=True, initial_default=7, write_default=8)
    set_columns(of_version_3, ID, NAME, NUMBER, required)

    plan = of_version_3.plan(SCHEMA, on_bad_row=policy, schema_evolution="add-columns")
    of_version_3.commit(of_version_3.write(rows(4), plan=plan))

    (row,) = (row for row in read_by_tasks(of_version_3, columns="id, name, n, needed") if row["id"] == 4)
    assert row == {"id": 4, "name": "row 4", "n": 6, "needed": 8}


def test_required_column_without_write_default_is_refused(of_version_3: Sink) -> None:
    """Rows would have a null where none may be."""
    set_columns(of_version_3, ID, NAME, NestedField(4, "needed", LongType(), required=True, initial_default=7))

    with pytest.raises(SchemaMismatchError, match="'needed' bigint is required in the table and missing"):
        of_version_3.append(4)


def test_rows_are_not_looked_for_by_a_column_with_an_initial_default(of_version_3: Sink) -> None:
    """Rows of files that lack the column would be passed over, and old rows stay beside new ones."""
    reason = "column 'n' has an initial default, and rows are not looked for by the values of such a column"

    with pytest.raises(OptionError, match=f"{reason}: name other keys"):
        of_version_3.plan(WITH_NUMBER, keys=("n",))
    with pytest.raises(OptionError, match=reason):
        of_version_3.plan(WITH_NUMBER, WriteMode.UPSERT, keys=("id",), sequence_by=("n",), sequence_scope="table")


def test_equality_deletes_of_others_by_such_a_column_are_refused(sink: Sink) -> None:
    """Deleted rows would come back in a read."""
    sink.create(Schema(ID, NAME, NestedField(3, "n", LongType())), format_version="3")
    for number in (1, 2):
        plan = sink.plan(WITH_NUMBER, keys=("n",))
        sink.commit(sink.write([{"id": number, "name": None, "n": 5}], schema=WITH_NUMBER, plan=plan))
    assert numbers(sink) == {2: 5}
    set_columns(sink, ID, NAME, NUMBER)

    with pytest.raises(UnsupportedTableError, match="column 'n' has an initial default"):
        read_by_tasks(sink)


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_field_of_a_struct_may_be_missing_if_it_has_a_default(sink: Sink, policy: str) -> None:
    """Each row would count as bad, or the write be refused."""
    first = NestedField(4, "first", LongType())
    needed = NestedField(5, "needed", LongType(), required=True, initial_default=7, write_default=8)
    sink.create(Schema(ID, NestedField(3, "s", StructType(first))), format_version="3")
    set_columns(sink, ID, NestedField(3, "s", StructType(first, needed)))
    sent = spark.StructType().add("id", "long").add("s", spark.StructType().add("first", "long"))

    plan = sink.plan(sent, on_bad_row=policy)
    sink.commit(sink.write([{"id": 1, "s": {"first": 1}}, {"id": 2, "s": None}], schema=sent, plan=plan))

    assert read_by_tasks(sink) == [{"id": 1, "s": {"first": 1, "needed": 8}}, {"id": 2, "s": None}]
