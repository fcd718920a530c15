"""Commits to tables of format version 3: numbers of rows, upgrades, and what does not go into such a table."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.checks.invariants import check_clean
from support.keys.conversions import meanwhile as at_step
from support.tables.sink import Sink, epoch, local, rows

from iceberg_ds.commit.validate import check_version
from iceberg_ds.errors import CommitConflictError, OptionError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.options.parse import parse_options
from iceberg_ds.snapshots.manifests import live_entries, live_manifests
from iceberg_ds.snapshots.version_3 import first_row_id

pytestmark = pytest.mark.usefixtures("waits")


def having(sink: Sink, **options: Any) -> Sink:
    """Return the same sink with further options."""
    return replace(sink, options=replace(sink.options, **options))


@pytest.fixture
def sink(sink: Sink) -> Sink:
    """Return the sink of a new table of version 3."""
    return having(sink, format_version="3")


def ids_of_files(sink: Sink, branch: str = "main") -> dict[str, int | None]:
    """Return the first row id of each live data file of a branch, by path."""
    table = sink.table()
    listed = live_manifests(table.io, table.snapshot_by_name(branch))
    entries = (entry for manifest in listed for entry in live_entries(table.io, manifest))
    return {entry.data_file.file_path: first_row_id(entry.data_file) for entry in entries}


def test_each_snapshot_numbers_the_rows_that_it_adds(sink: Sink) -> None:
    """Two rows would have one id, or readers find gaps that no snapshot explains."""
    sink.append(1, 2)
    sink.append(3, of_epoch=epoch(0))
    sink.append(3, of_epoch=epoch(0))
    sink.append(4, 5, 6)

    metadata = sink.table().metadata
    assert metadata.format_version == 3
    assert [(one.first_row_id, one.added_rows) for one in metadata.snapshots] == [(0, 2), (2, 1), (3, 3)]
    assert metadata.next_row_id == 6
    assert sorted(number for number in ids_of_files(sink).values() if number is not None) == [0, 2, 3]
    check_clean(sink.table())


def test_ids_of_files_stay_when_their_manifests_are_written_again(sink: Sink) -> None:
    """Rows beside those that are replaced would become other rows."""
    sink.append(1)
    sink.append(2)
    before = ids_of_files(sink)
    assert sorted(number for number in before.values() if number is not None) == [0, 1]
    sink.overwrite(rows(1), replace_where="id = 1")

    after = ids_of_files(sink)

    assert {path: number for path, number in after.items() if path in before} == {
        path: number for path, number in before.items() if path in after
    }
    assert len(after) == 2


def test_rows_of_a_file_that_is_written_again_carry_their_ids(sink: Sink) -> None:
    """A row that only moved would be another row to all who follow changes."""
    sink.append(1)
    sink.append(2, 3, 4)
    sink.overwrite(rows(3), replace_where="id = 3")
    sink.overwrite(rows(4), replace_where="id = 4")

    found = {
        row["id"]: (row.get("_row_id"), row.get("_last_updated_sequence_number"))
        for path in ids_of_files(sink)
        for row in pq.read_table(local(path)).to_pylist()
    }
    assert found == {1: (None, None), 2: (1, 2), 3: (None, None), 4: (None, None)}
    assert sink.ids() == [1, 2, 3, 4]


def test_number_that_another_branch_took_is_taken_anew(sink: Sink) -> None:
    """Two snapshots would have one sequence number, by which a commit's fate is told, or two rows one id."""
    sink.append(1)
    other = having(sink, branch="other", create_branch=True)
    other.append(2)

    with at_step(FaultPoint.MANIFESTS_WRITTEN, lambda: other.append(3)):
        sink.append(5)
    with at_step(FaultPoint.MANIFESTS_WRITTEN, lambda: other.overwrite(rows())):  # it takes no row id
        sink.append(6)

    snapshots = sink.table().metadata.snapshots
    assert [one.sequence_number for one in snapshots] == [1, 2, 3, 4, 5, 6]
    assert [one.first_row_id for one in snapshots] == [0, 1, 2, 3, 4, 4]
    assert sink.ids() == [1, 5, 6]


def test_table_is_upgraded_where_the_user_asks_for_it(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Rows from before would have no ids, or a user not learn who cannot read the table any more."""
    old = having(sink, format_version="2")
    old.append(1, 2)
    sink.append(3)
    assert sink.table().metadata.format_version == 2
    with caplog.at_level(logging.WARNING):
        having(sink, format_version="3", upgrade_format=True).append(4)

    metadata = sink.table().metadata
    assert (metadata.format_version, metadata.next_row_id) == (3, 4)
    assert sorted(number for number in ids_of_files(sink).values() if number is not None) == [0, 1, 2]
    assert "Not known to read its deletion vectors: athena" in caplog.text


def test_upgrade_needs_a_version() -> None:
    """A user would believe that the table is upgraded."""
    with pytest.raises(OptionError, match="'upgrade-format' needs 'format-version'"):
        parse_options({"table": "db.t", "upgrade-format": "true"})


def test_deletes_of_version_2_do_not_go_into_a_table_of_version_3(sink: Sink) -> None:
    """Readers refuse such a table, or apply no position delete file to a file with a vector."""
    sink.append(1)
    table = sink.table()
    (entry,) = live_entries(table.io, live_manifests(table.io, table.current_snapshot())[0])
    deletes = entry.data_file
    deletes[0] = 1

    with pytest.raises(CommitConflictError, match="its format version became 3 while the rows were written"):
        check_version(table.metadata, sink.plan().write, [deletes])


def test_files_of_one_manifest_are_numbered_one_after_the_other(sink: Sink) -> None:
    """Rows of two files would have one id."""
    plan = sink.plan()
    sink.commit(sink.write(rows(1, 2), rows(3), rows(4), plan=plan))

    assert sorted(number for number in ids_of_files(sink).values() if number is not None) == [0, 2, 3]
