"""Ids of new rows begin at the table's next-row-id: where they cannot, nothing is written, and no id given twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec
from support.checks.version_3 import check_version_3
from support.tables.changes_by_others import register_edited, set_tag
from support.tables.data_rewrites import rewrite
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import Sink, paths_of, rows

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.plan import NewTable
from iceberg_ds.planning.plan_write import foresee
from iceberg_ds.table.requests import UpgradeFormatVersion

pytestmark = pytest.mark.usefixtures("waits")

Json = dict[str, Any]
HIGHEST = 2**63 - 1
# Two snapshots of the table give its rows the ids 0 to 2.
NEXT = 3


def following(number: int | None) -> Callable[[Json], None]:
    """Return what sets the table's next row id, or takes it out."""

    def edit(document: Json) -> None:
        document.pop("next-row-id")
        document |= {} if number is None else {"next-row-id": number}

    return edit


@pytest.fixture
def numbered(sink: Sink) -> Sink:
    """Return a table of version 3 with rows of two snapshots."""
    sink = replace(sink, options=replace(sink.options, format_version="3"))
    sink.append(1, 2)
    sink.append(3)
    assert sink.table().metadata.next_row_id == NEXT
    return sink


WRONG = [
    pytest.param(None, "its metadata has no next-row-id, and its new rows would get ids", id="missing"),
    pytest.param(1, "its next-row-id is 1, and snapshot {} has given the row ids below 3", id="low"),
    pytest.param(-5, "its next-row-id is -5, and row ids begin at 0", id="negative"),
    pytest.param(
        HIGHEST + 1, f"its next-row-id is {HIGHEST + 1}, row ids end at {HIGHEST}, and its new rows need", id="high"
    ),
]


@pytest.mark.parametrize(("number", "reason"), WRONG)
def test_table_that_would_give_row_ids_twice_is_refused_before_rows_are_written(
    numbered: Sink, number: int | None, reason: str
) -> None:
    """Whoever follows rows by their ids would take one row for another."""
    register_edited(numbered, following(number))
    before = numbered.table().metadata_location
    text = reason.format(numbered.table().metadata.snapshots[-1].snapshot_id)

    for write in (
        numbered.plan,
        lambda: numbered.overwrite(rows(1), replace_where="id = 1"),
        lambda: rewrite(numbered, rewrite_all="true"),
        lambda: foresee(numbered.options, numbered.table().metadata, None),
    ):
        with pytest.raises(UnsupportedTableError, match=rf"^Cannot write to db\.t: {text}"):
            write()

    assert numbered.table().metadata_location == before


@pytest.mark.parametrize(("number", "reason"), WRONG)
def test_commit_is_refused_and_its_files_are_deleted(numbered: Sink, number: int | None, reason: str) -> None:
    """The table would be damaged while the rows were written."""
    messages = numbered.write(rows(4))
    register_edited(numbered, following(number))
    before = numbered.table().metadata_location

    with pytest.raises(UnsupportedTableError, match=r"^Cannot commit to db\.t, nothing was committed: its ") as raised:
        numbered.commit(messages)

    assert "`iceberg-ds verify` says more" in str(raised.value)
    assert reason.format(numbered.table().metadata.snapshots[-1].snapshot_id) in str(raised.value)
    assert numbered.table().metadata_location == before
    assert not any(path.exists() for path in paths_of(messages))


def test_rows_that_need_ids_beyond_the_highest_are_refused(numbered: Sink) -> None:
    """Their ids would be no numbers of type long, and no reader could open the table."""
    register_edited(numbered, following(HIGHEST - 2))
    numbered.append(4)

    with pytest.raises(UnsupportedTableError, match=f"its next-row-id is {HIGHEST - 1}, .* and its new rows need 2"):
        numbered.append(5, 6)

    numbered.append(5)
    assert numbered.table().metadata.next_row_id == HIGHEST
    assert numbered.ids() == [1, 2, 3, 4, 5]


def test_higher_next_row_id_is_taken(numbered: Sink) -> None:
    """Ids that were given by snapshots that have expired leave a gap, which is no damage."""
    register_edited(numbered, following(100))

    numbered.append(4)

    head = numbered.table().metadata.snapshots[-1]
    assert (head.first_row_id, head.added_rows) == (100, 1)
    check_version_3(numbered.table())


def test_table_that_was_upgraded_is_written(sink: Sink) -> None:
    """Its snapshots from before state no row ids, and its next one is 0."""
    sink.append(1, 2)
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))

    sink.append(3)

    assert sink.ids() == [1, 2, 3]
    check_version_3(sink.table(), was_upgraded=True)


@pytest.mark.parametrize("is_placed", [True, False])
def test_new_table_begins_with_row_id_0(sink: Sink, *, is_placed: bool) -> None:
    """PyIceberg makes tables without a next row id, and a new one would be refused."""
    location = f"file://{sink.options.warehouse}/elsewhere" if is_placed else None
    new = NewTable(schema=ID_AND_NAME, spec=PartitionSpec(), format_version="3", location=location)

    staged = sink.catalog.stage_table(sink.options.table, new)

    assert staged is not None
    assert (staged.format_version, staged.next_row_id) == (3, 0)


def test_what_gives_no_ids_is_done(numbered: Sink) -> None:
    """Nobody could tag the last whole snapshot of a damaged table."""
    register_edited(numbered, following(1))

    set_tag(numbered, "whole", numbered.table().metadata.snapshots[0].snapshot_id)

    assert "whole" in numbered.table().metadata.refs
