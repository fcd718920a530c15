"""What becomes of rows at the moments that matter most, each with the one condition or proof that saves them there."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost
from support.checks.invariants import check_clean, check_sound
from support.tables.sink import Sink, epoch, paths_of, rows

from iceberg_ds.errors import CommitStateUnknownError

pytestmark = pytest.mark.usefixtures("waits")

COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


def test_rows_that_come_into_an_empty_table_meanwhile_stay(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The first rows of a table would vanish when another writer's come at the same moment."""
    sink.create(COLUMNS)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.before_commit(1, lambda: sink.append(1))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_rows_that_come_into_a_table_of_version_1_meanwhile_stay(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows would vanish when another writer's come at the same moment: version 1 has no numbers that would tell."""
    sink.create(COLUMNS, format_version="1")
    sink.append(1)
    messages = faulty_sink.write(rows(3))
    faulty_catalog.before_commit(1, lambda: sink.append(2))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())


def test_files_of_an_epoch_that_may_have_landed_stay_where_they_are(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A table would lose the files of an epoch that landed unanswered and expired before anybody looked."""
    sink.append(1, of_epoch=epoch(4))
    messages = faulty_sink.write(rows(2), of_epoch=epoch(5))
    snapshot_id = messages[0].write.snapshot_id

    def go_on_and_forget() -> None:
        sink.append(3, of_epoch=epoch(6))
        sink.table().maintenance.expire_snapshots().by_id(snapshot_id).commit()

    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, go_on_and_forget)

    with pytest.raises(CommitStateUnknownError):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))
    assert sink.ids() == [1, 2, 3]
    check_sound(sink.table())
