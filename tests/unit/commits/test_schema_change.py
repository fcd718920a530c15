"""A new schema that lands in one commit with the rows that replace all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.types import LongType as IcebergLong
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from support.faulty_catalog import FaultyCatalog, When, connection_lost, refusal
from support.invariants import check_sound, unreferenced_files
from support.tables import Row, Sink, rows

from iceberg_ds.errors import CommitConflictError, SchemaMismatchError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.planning import WriteMode, plan_write
from iceberg_ds.snapshots.branches import branch_history

# The type of `name` is another one than in the table.
REPLACED = StructType([StructField("id", LongType()), StructField("name", IntegerType())])
DATA: list[Row] = [{"id": 7, "name": 70}]


def replacement(sink: Sink, data: Sequence[Row] = (*DATA,), **options: Any) -> list[TaskCommit]:
    """Write rows of `REPLACED` that replace all rows, and return what the tasks report."""
    chosen = replace(sink.options, **{"schema_evolution": "full", **options})
    plan = plan_write(sink.catalog, chosen, REPLACED, WriteMode.OVERWRITE)
    return sink.write(data, schema=REPLACED, plan=plan)


def name_type(sink: Sink) -> str:
    """Return the type of column `name` in the table as it is now."""
    return str(sink.table().schema().find_field("name").field_type)


def test_schema_and_rows_land_in_one_commit(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """Readers would see the old rows without their columns, or new rows under old types."""
    sink.append(1, 2)

    messages = replacement(faulty_sink)

    assert faulty_catalog.commits == 0
    assert (name_type(sink), sink.ids()) == ("string", [1, 2])

    faulty_sink.commit(messages)

    table = sink.table()
    assert faulty_catalog.commits == 1
    assert sink.rows() == DATA
    assert len(table.metadata.snapshots) == 2
    assert table.current_snapshot().schema_id == table.metadata.current_schema_id  # type: ignore[union-attr]
    check_sound(table)


def test_old_rows_are_still_there_in_the_old_snapshot(sink: Sink) -> None:
    """A replacement by mistake could not be undone."""
    before = sink.append(1, 2).snapshot_id

    sink.commit(replacement(sink))

    old = sink.table().scan(snapshot_id=before).to_arrow()
    assert old.sort_by("id").to_pylist() == rows(1, 2)


def test_replaced_column_gets_a_new_id(sink: Sink) -> None:
    """Old files would be read with values of another type."""
    sink.append(1)
    before = sink.table().schema().find_field("name").field_id

    sink.commit(replacement(sink))

    assert sink.table().schema().find_field("name").field_id > before


@pytest.mark.parametrize(
    "options",
    [{"schema_evolution": "add-columns"}, {"replace_where": "id = 7"}, {"overwrite_mode": "dynamic"}],
    ids=["add-columns", "replace-where", "dynamic"],
)
def test_types_are_replaced_only_together_with_all_rows(sink: Sink, options: dict[str, Any]) -> None:
    """Rows that stay would lose their values."""
    sink.append(1, 2)

    with pytest.raises(SchemaMismatchError, match="'name' is int in the DataFrame and string in the table"):
        replacement(sink, **options)

    assert sink.ids() == [1, 2]


def test_schema_that_changed_meanwhile_is_a_conflict(sink: Sink) -> None:
    """A column that somebody has just added would vanish, or its id be given twice."""
    sink.append(1)
    messages = replacement(sink)
    with sink.table().update_schema() as update:
        update.add_column("added", IcebergLong())

    with pytest.raises(CommitConflictError, match="its schema changed while rows of a new schema were written"):
        sink.commit(messages)

    assert sink.ids() == [1]
    assert name_type(sink) == "string"
    assert unreferenced_files(sink.table()) == set()


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [refusal, connection_lost])
@pytest.mark.usefixtures("waits")
def test_failed_attempt_changes_schema_and_rows_together_in_the_end(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Any, when: When
) -> None:
    """A table would be left with half of the change, or have it twice."""
    sink.append(1)
    messages = replacement(faulty_sink)
    faulty_catalog.fail_next(1, error, when=when)

    faulty_sink.commit(messages)

    table = sink.table()
    assert sink.rows() == DATA
    assert len(list(branch_history(table.metadata, "main"))) == 2
    assert len(table.metadata.schemas) == 2
    assert unreferenced_files(table) == set()


def test_replacement_without_rows_empties_the_table_and_changes_its_schema(sink: Sink) -> None:
    """A refresh that has nothing today would fail tomorrow."""
    sink.append(1)

    sink.commit(replacement(sink, data=()))

    assert sink.rows() == []
    assert name_type(sink) == "int"
