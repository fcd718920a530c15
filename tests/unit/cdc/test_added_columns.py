"""Columns that tasks fill in, in appends and in writes by keys."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from iceberg_ds.cdc.reader import AppendedFeed, ColumnFiller
from iceberg_ds.cdc.row_kind import RowKind
from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.plan import DIFF, METADATA_COLUMNS, AddedColumns, DeleteMark

INSTANT = dt.datetime(2026, 11, 22, 9, 30, 0, 123456, tzinfo=dt.timezone.utc)
MICROSECONDS = 1_795_339_800_123_456
ALL = AddedColumns(names=METADATA_COLUMNS, instant_us=MICROSECONDS, number=7, operation_column="op")
WORDS = ["c", "+U", "r", "-U", "D", "UPDATE_POSTIMAGE", "update_preimage"]


def batch(words: list[Any], data_type: pa.DataType | None = None) -> pa.RecordBatch:
    """Return rows with these operations."""
    return pa.record_batch({"op": pa.array(words, data_type or pa.string()), "id": pa.array(range(len(words)))})


def filled(mark: DeleteMark, own: pa.Array | None = None) -> pa.Array:
    """Return the marks of a delete, an image before a change, an upsert and an insert."""
    kinds = pa.array([RowKind.DELETE, RowKind.BEFORE, RowKind.UPSERT, RowKind.INSERT], pa.int8())
    sent = pa.record_batch({"id": [1, 2, 3, 4], **({} if own is None else {mark.column: own})})
    found = ColumnFiller(AddedColumns(names=(), instant_us=MICROSECONDS, mark=mark)).fill(sent, kinds, None)
    assert found.schema.names == ["id", mark.column]
    return found.column(mark.column)


def test_every_event_of_a_feed_becomes_a_row_that_says_what_it_was() -> None:
    """Sums of a change feed would be wrong, and nobody could tell deletes from rows."""
    found = AppendedFeed(ALL).read(batch(WORDS))

    assert found.schema.names == ["op", "id", *METADATA_COLUMNS]
    assert set(found.column("_extracted_at").to_pylist()) == {INSTANT}
    assert found.column("_extracted_at").type == pa.timestamp("us", tz="UTC")
    assert found.column("_epoch_id").to_pylist() == [7] * len(WORDS)
    names = ["insert", "update", "read", "update_before", "delete", "update", "update_before"]
    assert found.column("_operation").to_pylist() == names
    assert found.column("_diff").to_pylist() == [1, 1, 1, -1, -1, 1, -1]


def test_numbers_are_differences() -> None:
    """Materialize's feed would be summed up with other signs."""
    found = AppendedFeed(ALL).read(batch([1, -1], pa.int64()))

    assert found.column("_diff").to_pylist() == [1, -1]
    assert found.column("_operation").to_pylist() == ["upsert", "update_before"]


def test_rows_without_operations_are_inserts() -> None:
    """An append would say of its rows what nobody has said."""
    found = AppendedFeed(replace(ALL, operation_column=None, number=None)).read(batch(["d"]))

    assert found.column("_operation").to_pylist() == ["insert"]
    assert found.column("_diff").to_pylist() == [1]
    assert found.column("_epoch_id").to_pylist() == [None]
    assert found.column("_epoch_id").type == pa.int64()


def test_predicate_makes_deletes_of_events() -> None:
    """Deletes that a flag tells would be summed up as rows."""
    feed = AppendedFeed(ALL, lambda found: pc.greater(found.column("id"), 0))

    found = feed.read(batch(["c", "c", "-U", "u"]))

    assert found.column("_operation").to_pylist() == ["insert", "delete", "update_before", "delete"]
    assert found.column("_diff").to_pylist() == [1, -1, -1, -1]


@pytest.mark.parametrize(("word", "name"), [("u", "update"), ("Update", "update"), ("upsert", "upsert")])
def test_updates_that_do_not_show_what_they_replace_have_no_difference(word: str, name: str) -> None:
    """The old row would stay in every sum for ever."""
    with pytest.raises(SchemaMismatchError, match=r"1 of 2 rows here are updates without the row .* as -U and \+U"):
        AppendedFeed(ALL).read(batch(["c", word]))

    others = AppendedFeed(replace(ALL, names=tuple(name for name in METADATA_COLUMNS if name != DIFF)))
    assert others.read(batch(["c", word])).column("_operation").to_pylist() == ["insert", name]


def test_unknown_operations_are_refused_with_those_that_are_known() -> None:
    """Rows would be appended with a null in place of what they do."""
    with pytest.raises(SchemaMismatchError, match=r"'op' has 't' \(2 rows\), null \(1 rows\), and known words are i, "):
        AppendedFeed(ALL).read(batch(["t", "c", None, "t"]))


def test_marks_are_true_or_false() -> None:
    """Deleted rows would look as if they were there, or all others as deleted."""
    mark = DeleteMark(column="gone")

    assert filled(mark).to_pylist() == [True, True, False, False]
    assert filled(mark, pa.array([None, False, True, None])).to_pylist() == [True, True, False, False]


def test_marks_are_times() -> None:
    """A user would see when a key was deleted wrongly, or would see a time where it is there again."""
    here = INSTANT.replace(tzinfo=None)
    own = pa.array([None, dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1), None], pa.timestamp("us"))  # noqa: DTZ001  # without a zone
    abroad = own.cast(pa.timestamp("us", tz="Asia/Tokyo"))

    assert filled(DeleteMark(column="gone", is_time=True, has_zone=True)).to_pylist() == [INSTANT, INSTANT, None, None]
    assert filled(DeleteMark(column="gone", is_time=True)).to_pylist() == [here, here, None, None]
    assert filled(DeleteMark(column="gone", is_time=True), own).to_pylist() == [here, own[1].as_py(), None, None]
    in_zone = filled(DeleteMark(column="gone", is_time=True, has_zone=True), abroad)
    assert in_zone.type == abroad.type
    assert in_zone.to_pylist() == [INSTANT, abroad[1].as_py(), None, None]
