"""A new schema that lands in one commit with the rows that replace all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.types import LongType as IcebergLong
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal
from support.checks.invariants import check_clean, check_sound, unreferenced_files
from support.tables.changes_by_others import head_of, set_branch, set_tag
from support.tables.sink import SCHEMA, Row, Sink, rows

from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, SchemaMismatchError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.snapshots.refs import branch_history

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


# Types are replaced for the whole table, and rows that the write does not replace would read nulls.


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_types_are_not_replaced_under_rows_of_another_branch(sink: Sink, branch: str) -> None:
    """A branch that nobody has written to would read nulls, without a word."""
    sink.append(1, 2)
    set_branch(sink, "audit", head_of(sink))
    other = "audit" if branch == "main" else "main"

    with pytest.raises(SchemaMismatchError, match=f"the type of column 'name' .* '{other}' has rows that would stay"):
        replacement(sink, branch=branch)

    assert sink.rows_of(other) == rows(1, 2)
    check_clean(sink.table())


@pytest.mark.parametrize("options", [{"branch": "new", "create_branch": True}, {"staging_branch": "staging"}])
def test_types_are_not_replaced_on_a_branch_that_is_forked_for_it(sink: Sink, options: dict[str, Any]) -> None:
    """Readers of `main` would see nulls as soon as somebody tries a type out beside it."""
    sink.append(1)

    with pytest.raises(SchemaMismatchError, match="'main' has rows that would stay"):
        replacement(sink, **options)


def test_types_are_not_replaced_under_rows_of_a_tag(sink: Sink) -> None:
    """What a tag was to keep would be read as nulls."""
    sink.append(1)
    set_tag(sink, "audited", head_of(sink))

    with pytest.raises(SchemaMismatchError, match="'audited' has rows that would stay"):
        replacement(sink)


def test_types_are_replaced_where_other_branches_have_no_rows(sink: Sink) -> None:
    """A branch without rows would keep a table from ever changing its types."""
    sink.append(1)
    sink.overwrite([])
    set_branch(sink, "empty", head_of(sink))
    sink.append(2)

    sink.commit(replacement(sink))

    assert sink.rows() == DATA


def test_columns_that_only_change_otherwise_may_have_rows_of_other_branches(sink: Sink) -> None:
    """A column could not be added or widened any more by an overwrite, because a branch has rows."""
    sink.append(1)
    set_branch(sink, "audit", head_of(sink))
    wider = StructType([*SCHEMA, StructField("new", LongType())])

    sink.overwrite([{"id": 7, "name": "x", "new": 1}], schema=wider, schema_evolution="full")

    assert sink.rows_of("audit")[0]["name"] == "row 1"


@pytest.mark.parametrize("make", [set_branch, set_tag], ids=["branch", "tag"])
def test_branch_that_others_make_meanwhile_is_a_conflict(sink: Sink, make: Any) -> None:
    """Rows that somebody has just kept would be read as nulls."""
    sink.append(1)
    messages = replacement(sink)
    make(sink, "kept", head_of(sink))

    with pytest.raises(CommitConflictError, match=r"the type of column 'name' .* 'kept' has rows that would stay"):
        sink.commit(messages)

    assert (sink.rows_of("kept"), name_type(sink)) == (rows(1), "string")
    check_clean(sink.table())


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
def test_rows_that_others_append_meanwhile_keep_their_values(sink: Sink, level: str) -> None:
    """They would stay, and read nulls in the column whose type was replaced."""
    sink.append(1)
    messages = replacement(sink, isolation_level=level)
    sink.append(2)

    with pytest.raises(CommitConflictError, match="Run the write again"):
        sink.commit(messages)

    assert sink.rows() == rows(1, 2)
    check_clean(sink.table())


def test_rows_that_others_append_meanwhile_are_replaced_where_nothing_is_isolated(sink: Sink) -> None:
    """With isolation-level=none they go like all others, so that none can lose a value."""
    sink.append(1)
    messages = replacement(sink, isolation_level="none")
    sink.append(2)

    sink.commit(messages)

    assert sink.rows() == DATA


@pytest.mark.usefixtures("waits")
def test_branch_that_moves_to_rows_in_the_moment_of_the_request_keeps_their_values(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A look at the other branches would be worth nothing in the moment of the commit."""
    sink.append(1)
    before = head_of(sink)
    sink.overwrite([])
    set_branch(sink, "empty", head_of(sink))
    messages = replacement(faulty_sink)
    faulty_catalog.before_commit(1, lambda: set_branch(sink, "empty", before))

    # While `main` stands where it was, no refusal proves that the request cannot land any more.
    with pytest.raises(CommitStateUnknownError, match="'empty' has rows that would stay"):
        faulty_sink.commit(messages)

    assert (sink.rows_of("empty"), name_type(sink)) == (rows(1), "string")
