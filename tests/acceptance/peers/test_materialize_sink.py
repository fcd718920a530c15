"""Materialize: the cases of its Iceberg sink."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

import pytest
from pyiceberg import types as iceberg
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import PeerTable, array, columns, mapping
from support.peer.writes import check, count, found, operations, put, tasks

from iceberg_ds.errors import CommitConflictError, OptionError, SchemaMismatchError

MATERIALIZE = Peer(name="MaterializeInc/materialize", suites="test/iceberg")

OTHER_QUERY = "11111111-2222-4333-8444-555555555555"
PAIR = columns(a="integer", b="string")
CHANGES = columns(a="integer", b="string", _mz_diff="integer", _mz_timestamp="long")
FEED = {"keys": "a", "operation_column": "_mz_diff", "sequence_by": "_mz_timestamp"}


def pairs(table: PeerTable) -> list[tuple[Any, ...]]:
    """Return the rows without the time of their change."""
    return sorted(row[:2] for row in found(table))


@MATERIALIZE.case("catalog", "finite-source", "finite-source-verify", "prefix-writer-setup")
def test_first_rows_of_a_source(table: PeerTable) -> None:
    """The snapshot of a source would not land as it is."""
    put(table, CHANGES, [(1, "one", 1, 0), (2, "two", 1, 0), (3, "three", 1, 0)], of_epoch=0, **FEED)

    assert pairs(table) == [(1, "one"), (2, "two"), (3, "three")]


@MATERIALIZE.case("idle-gap", "commit-overlap-setup", "commit-overlap-verify", "alter-commit-interval")
def test_updates_are_a_retraction_and_an_addition(table: PeerTable) -> None:
    """The retraction of an update would delete the row that it made."""
    put(table, CHANGES, [(1, "one", 1, 0), (2, "two", 1, 0)], of_epoch=0, **FEED)
    put(table, CHANGES, [(1, "ONE", 1, 10), (1, "one", -1, 10)], of_epoch=1, **FEED)
    put(table, CHANGES, [(2, "two", -1, 20)], [(3, "three", 1, 20)], of_epoch=2, **FEED)

    assert pairs(table) == [(1, "ONE"), (3, "three")]


@MATERIALIZE.case("large-upsert-batch")
def test_many_updates_in_one_epoch(table: PeerTable) -> None:
    """Of many updates some would be lost, or old rows stay."""
    put(table, CHANGES, [(number, "old", 1, 0) for number in range(5000)], of_epoch=0, **FEED)
    updates = [(number, text, diff, 1) for number in range(5000) for text, diff in (("old", -1), ("new", 1))]
    put(table, CHANGES, updates, of_epoch=1, **FEED)

    assert pairs(table) == [(number, "new") for number in range(5000)]


@MATERIALIZE.case("empty-source")
def test_source_without_rows(table: PeerTable) -> None:
    """A source that is empty yet would stop the sink."""
    put(table, CHANGES, [], of_epoch=0, **FEED)
    put(table, CHANGES, [(1, "one", 1, 5)], of_epoch=1, **FEED)

    assert pairs(table) == [(1, "one")]


@MATERIALIZE.case("idempotent-retry-setup", "idempotent-retry-verify")
def test_retried_commit(table: PeerTable) -> None:
    """An epoch would be applied twice after a lost answer."""
    put(table, CHANGES, [(1, "one", 1, 0)], of_epoch=0, **FEED)
    for _ in range(2):
        put(table, CHANGES, [(2, "two", 1, 1)], of_epoch=1, **FEED)

    assert pairs(table) == [(1, "one"), (2, "two")]
    assert len(table.snapshots()) == 2


@MATERIALIZE.case("commit-conflict-setup", "commit-conflict-verify")
def test_another_writer_commits_in_between(table: PeerTable) -> None:
    """A lost race would lose the epoch, or the other writer's rows."""
    put(table, PAIR, [(1, "one")], of_epoch=0)
    under_way = tasks(table, PAIR, [(2, "two")], of_epoch=1)
    put(table, PAIR, [(9, "other")])
    under_way.commit()

    check(table, (1, "one"), (2, "two"), (9, "other"))


@MATERIALIZE.case("fenced-writer-setup")
def test_writer_that_was_replaced(table: PeerTable) -> None:
    """A driver that was believed dead would write over the one that took its place."""
    put(table, PAIR, [(1, "one")], of_epoch=0, stream_name="sink")
    late = tasks(table, PAIR, [(2, "late")], of_epoch=1, stream_name="sink")
    put(table, PAIR, [(3, "new")], of_epoch=0, query=OTHER_QUERY, stream_name="sink", accept_new_checkpoint="true")
    with pytest.raises(CommitConflictError, match="sink"):
        late.commit()

    check(table, (1, "one"), (3, "new"))


@MATERIALIZE.case("mode-append")
def test_changes_are_appended_with_their_diff(table: PeerTable) -> None:
    """A delete would take rows of the history away."""
    told = {"operation_column": "op", "metadata_columns": "_diff"}
    schema = columns(a="integer", b="string", op="string")
    put(table, schema, [(1, "one", "+I"), (2, "two", "+I")], of_epoch=0, **told)
    put(table, schema, [(2, "two", "-D"), (1, "one", "-U"), (1, "ONE", "+U")], of_epoch=1, **told)

    check(table, (1, "one", 1), (2, "two", 1), (2, "two", -1), (1, "one", -1), (1, "ONE", 1))
    assert operations(table) == ["append", "append"]
    assert count(table, DataFileContent.EQUALITY_DELETES) == 0


@MATERIALIZE.case("mode-append: clash with system columns")
@pytest.mark.parametrize("name", ["_diff", "_epoch_id"])
def test_columns_that_clash_with_those_that_are_filled_in(table: PeerTable, name: str) -> None:
    """Values of the source would be written over."""
    schema = columns(**{"a": "integer", name: "integer", "op": "string"})
    with pytest.raises((OptionError, SchemaMismatchError), match=name):
        put(table, schema, [(1, 1, "+I")], operation_column="op", metadata_columns=f"_operation, {name}")

    assert not table.exists()


@MATERIALIZE.case("key-validation")
@pytest.mark.parametrize(
    "of", ["float", "double", array("integer"), mapping("string", "string"), columns(low="integer", high="integer")]
)
def test_keys_of_types_that_cannot_be_compared(table: PeerTable, of: Any) -> None:
    """Equal keys would not be found, and rows be doubled."""
    with pytest.raises(OptionError, match="key"):
        put(table, columns(k=of, v="string"), [], keys="k")
    put(table, columns(k="integer", v=of), [(1, None)], keys="k")

    check(table, (1, None))


TIMES = columns(region="string", ts="timestamp_ntz", user_id="integer")
ROW = ("eu", datetime.fromisoformat("2026-02-03T04:05:06"), 7)


@MATERIALIZE.case("partition-by: accepted specs")
@pytest.mark.parametrize(
    ("by", "keys"),
    [("region", {}), ("day(ts)", {}), ("bucket(16, user_id)", {"keys": "user_id"}), ("region, month(ts)", {})],
)
def test_partitionings_of_new_tables(table: PeerTable, by: str, keys: dict[str, str]) -> None:
    """Rows would be filed by another column than was asked for."""
    for number in range(2):
        put(table, TIMES, [(*ROW[:2], number)], of_epoch=number, partition_by=by, **keys)

    check(table, (*ROW[:2], 0), (*ROW[:2], 1))
    assert len(table.load().spec().fields) == len(by.split("), ", maxsplit=1)[0].split(", ")) - ("bucket" in by)


@MATERIALIZE.case("partition-by: refused specs")
@pytest.mark.parametrize(
    ("by", "said"), [("no_such_col", "no_such_col"), ("day(region)", "day"), ("month(user_id)", "month")]
)
def test_partitionings_that_do_not_fit(table: PeerTable, by: str, said: str) -> None:
    """A table would be made whose rows cannot be filed."""
    with pytest.raises((OptionError, SchemaMismatchError), match=said):
        put(table, TIMES, [ROW], partition_by=by)

    assert not table.exists()


@MATERIALIZE.case("partition-by: field named as a column")
def test_partition_field_that_would_be_named_as_a_column(table: PeerTable) -> None:
    """Readers could not tell the column from the partition."""
    with pytest.raises((OptionError, SchemaMismatchError), match="foo_day"):
        put(table, columns(foo="date", foo_day="string"), [(date(2026, 1, 1), "x")], partition_by="day(foo)")

    assert not table.exists()


@MATERIALIZE.case("partition-by: other spec than the table's")
@pytest.mark.parametrize(("before", "after"), [("day(ts)", "month(ts)"), ("", "region"), ("region", "user_id")])
def test_partitioning_that_differs_from_the_tables(table: PeerTable, before: str, after: str) -> None:
    """A table's partitioning would change by mistake."""
    put(table, TIMES, [ROW], partition_by=before)
    put(table, TIMES, [ROW], partition_by=before)
    with pytest.raises(OptionError, match="partition-by"):
        put(table, TIMES, [ROW], partition_by=after)

    check(table, ROW, ROW)


@MATERIALIZE.case(
    "partition-by: partitioned table, none given",
    verdict=DIFFERS(
        "without `partition-by` the table's own spec counts, always",
        see="coming-from/rivven.md",
    ),
)
def test_no_partitioning_into_a_partitioned_table(table: PeerTable) -> None:
    """Rows would be filed without their partition."""
    put(table, TIMES, [ROW], partition_by="region")
    put(table, TIMES, [("us", *ROW[1:])])

    check(table, ROW, ("us", *ROW[1:]))
    assert sorted(file.partition[0] for file in table.files()) == ["eu", "us"]


@MATERIALIZE.case("nested-records", "range-noncanonical")
def test_records_within_records(table: PeerTable) -> None:
    """Values deep within a record would be lost."""
    inner = columns(lower="integer", upper="integer", lower_inclusive="boolean")
    schema = columns(a="integer", rec=columns(x=columns(y=array(inner)), range=inner))
    row = (1, {"x": {"y": [{"lower": 1, "upper": None, "lower_inclusive": True}, None]}, "range": None})
    put(table, schema, [row, (2, None)], of_epoch=0, keys="a")
    put(
        table,
        schema,
        [(2, {"x": None, "range": {"lower": 5, "upper": 6, "lower_inclusive": False}})],
        of_epoch=1,
        keys="a",
    )

    check(table, row, (2, {"x": None, "range": {"lower": 5, "upper": 6, "lower_inclusive": False}}))


@MATERIALIZE.case("uuid-column", "legacy-uuid-column")
def test_texts_into_a_column_of_uuids(table: PeerTable) -> None:
    """UUIDs would be other values, or their rows not be found by key."""
    fields = [NestedField(1, "k", iceberg.UUIDType(), required=True), NestedField(2, "v", iceberg.IntegerType())]
    table.create(Schema(*fields, identifier_field_ids=[1]))
    schema = columns(k="string", v="integer")
    texts = [str(UUID(int=number)) for number in (1, 2)]
    put(table, schema, [(text, 1) for text in texts], of_epoch=0, keys="k")
    put(table, schema, [(texts[0].upper(), 2)], of_epoch=1, keys="k")

    values = {UUID(bytes=key) if isinstance(key, bytes) else UUID(str(key)): value for key, value in found(table)}
    assert values == {UUID(int=1): 2, UUID(int=2): 1}


@MATERIALIZE.case("alter-table-add-column")
def test_source_gets_a_column(table: PeerTable) -> None:
    """The sink would stop, or rows that are there lose their values."""
    put(table, PAIR, [(1, "one"), (2, "two")], of_epoch=0, keys="a")
    wider = columns(a="integer", b="string", c="integer")
    with pytest.raises(SchemaMismatchError, match="c"):
        put(table, wider, [(1, "ONE", 10)], of_epoch=1, keys="a")
    put(table, wider, [(1, "ONE", 10)], of_epoch=1, keys="a", merge_schema="true")

    check(table, (1, "ONE", 10), (2, "two", None))
