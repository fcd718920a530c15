"""SIGKILL of a committer that maintains its table: no row is lost, the stream goes on, and so does maintenance."""

from __future__ import annotations

import pytest
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.programs.auto_committer import die_in_maintenance
from support.tables.rewrites import options_of
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.maintenance.auto import maintain_after
from iceberg_ds.maintenance.lease import LEASE_KEY
from iceberg_ds.options.parse import parse_options

EPOCHS = 15  # the last one makes snapshots due
OPTIONS = {
    "maintenance": "auto",
    "table-property.history.expire.min-snapshots-to-keep": "5",
    "table-property.history.expire.max-snapshot-age-ms": "0",
}


@pytest.mark.parametrize("step", [FaultPoint.SNAPSHOTS_EXPIRED, FaultPoint.CLEANING_UP])
def test_stream_goes_on_after_its_committer_was_killed(sink: Sink, step: FaultPoint) -> None:
    """Rows would be lost or doubled by a clean-up, or the table never be looked after again."""
    given = {**options_of(sink), **OPTIONS}

    die_in_maintenance(NAME, given, EPOCHS, step)

    assert [row["id"] for row in rows_of(sink.table())] == [*sorted(range(EPOCHS), key=str)]
    check_sound(sink.table())
    replayed = sink.append(EPOCHS - 1, of_epoch=epoch(EPOCHS - 1))  # Spark does not know that it landed
    assert replayed.was_replayed
    assert LEASE_KEY in sink.table().properties
    table = sink.table()
    sink.catalog.send(  # as time does
        table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (RemovePropertiesUpdate(removals=[LEASE_KEY]),)
    )
    options = parse_options({**given, "table": NAME})
    for number in range(EPOCHS, 2 * EPOCHS):
        maintain_after(sink.catalog, lambda _: options, [sink.append(number, of_epoch=epoch(number))])
    assert len(sink.table().metadata.snapshots) <= EPOCHS
    assert sorted(row["id"] for row in rows_of(sink.table())) == list(range(2 * EPOCHS))
    result = iceberg_ds.verify(NAME, options=options_of(sink), older_than="0s", delete_orphans=True, force=True)
    assert result.ok, str(result)
    assert unreferenced_files(sink.table()) == set()
