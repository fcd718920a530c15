"""Commits by keys as Iceberg's own Spark runtime sees them: it reads, counts, changes and compacts what they left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.keyed_messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keyed_reader import rows_of
from support.shared_catalog import SharedCatalog
from support.tables import NAME, Sink, epoch

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

GLOBAL = PartitionSpec(spec_id=1)
LAYOUTS: Mapping[str, tuple[PartitionSpec, PartitionSpec | None]] = {
    "none": (PartitionSpec(), None),
    "by a column that moves": (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")), GLOBAL),
    "by the key": (PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")), None),
}
EPOCHS: Sequence[Sequence[Sequence[Event]]] = (
    [[("I", key, "EU", key, 0) for key in range(6)]],
    [
        [("U", 1, "EU", 10, 5), ("U", 2, "EU", 20, 5), ("U", 3, "US", 30, 5)],
        [("U", 2, "US", 21, 6), ("D", 3, "US", None, 7), ("U", 7, "EU", 70, 1)],
    ],
    [[("D", 4, "EU", None, 8), ("D", 7, "EU", None, 8)], [("U", 1, "US", 11, 9)]],
)
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def expected(count: int) -> list[list[Any]]:
    """Return the rows after so many epochs."""
    rows: dict[int, list[Any]] = {}
    for tasks in EPOCHS[:count]:
        events = [event for part in tasks for event in part]
        for operation, key, region, amount, _ in sorted(events, key=lambda event: event[4]):
            rows.pop(key, None)
            if operation != "D":
                rows[key] = [key, region, amount]
    return sorted(rows.values())


def make(shared: SharedCatalog, layout: str, **properties: str) -> Sink:
    """Create the table of a layout."""
    spec, deletes = LAYOUTS[layout]
    shared.create(KEYED_SCHEMA, spec, **{"format-version": "2", **properties})
    sink = shared.sink()
    if deletes is not None:
        sink.catalog.send(sink.table(), (), (AddPartitionSpecUpdate(spec=deletes),))
    return sink


def run(sink: Sink, layout: str, number: int) -> None:
    """Commit an epoch."""
    # A file for each row.
    plan = plan_by_keys(sink, delete_spec=LAYOUTS[layout][1], target_file_size_bytes=1)
    sink.commit(keyed_tasks(plan, *EPOCHS[number], of_epoch=epoch(number)))


def read_by_jvm(shared: SharedCatalog) -> list[list[Any]]:
    """Return the rows as the runtime reads them."""
    return sorted(shared.jvm.run(f"SELECT id, region, amount FROM {NAME}").rows)  # noqa: S608  # no outside input


def check(shared: SharedCatalog, rows: list[list[Any]]) -> None:
    """Assert that the runtime, and the spec read word by word, find these rows in a whole table."""
    assert read_by_jvm(shared) == rows
    assert [list(row.values()) for row in rows_of(shared.sink().table())] == rows
    result = iceberg_ds.verify(NAME, options={"warehouse": str(shared.folder)}, deep=True)
    assert result.ok, str(result)


def summary(table: Table) -> dict[str, str]:
    """Return the summary of the newest snapshot, and its operation."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_epoch_is_read_as_it_is_meant(shared: SharedCatalog, layout: str) -> None:
    """Users of Spark, Trino or Flink would see deleted rows, or two rows of a key."""
    sink = make(shared, layout)

    for number in range(len(EPOCHS)):
        run(sink, layout, number)
        check(shared, expected(number + 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keeps_numbers", ["true", "false"])
def test_compaction_between_epochs(shared: SharedCatalog, layout: str, keeps_numbers: str) -> None:
    """Deleted rows would come back with a compaction, or later epochs miss the rows that it has written."""
    sink = make(shared, layout)
    run(sink, layout, 0)
    run(sink, layout, 1)

    options = f"'rewrite-all', 'true', 'use-starting-sequence-number', '{keeps_numbers}'"
    shared.call("rewrite_data_files", f"options => map({options})")
    check(shared, expected(2))
    run(sink, layout, 1)  # replayed
    run(sink, layout, 2)

    check(shared, expected(3))


def test_rows_of_both_replace_each_other(shared: SharedCatalog) -> None:
    """An upsert would miss rows that the runtime has merged in, or bring back what it has deleted."""
    sink = make(shared, "none", **MERGE_ON_READ)
    run(sink, "none", 0)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 5")  # noqa: S608
    shared.jvm.run(f"UPDATE {NAME} SET amount = 99 WHERE id IN (0, 1)")  # noqa: S608

    run(sink, "none", 1)

    rows = [[0, "EU", 99], *(row for row in expected(2) if row[0] not in {0, 5})]
    check(shared, rows)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 2")  # noqa: S608
    check(shared, [row for row in rows if row[0] != 2])


def test_summary_is_what_the_runtime_writes_for_rows_and_position_deletes(shared: SharedCatalog) -> None:
    """Tools that read summaries would not understand those of commits by keys."""
    sink = make(shared, "none", **MERGE_ON_READ)
    run(sink, "none", 0)
    shared.jvm.run(f"UPDATE {NAME} SET amount = 99 WHERE id = 5")  # noqa: S608
    theirs = summary(sink.table())
    run(sink, "none", 1)
    ours = summary(sink.table())

    counted = {name for name in theirs if name.startswith(("added-", "total-", "deleted-", "removed-", "operation"))}
    assert "added-position-delete-files" in counted
    more = {"added-equality-delete-files", "added-equality-deletes"}
    of_ours = {name for name in ours if name.startswith(("added-", "total-", "deleted-", "removed-", "operation"))}
    assert of_ours == counted | more
    assert ours["operation"] == theirs["operation"] == "overwrite"


def test_files_are_what_the_runtime_makes_of_deletes(shared: SharedCatalog) -> None:
    """The runtime would take a delete file for another kind, or for one of other rows."""
    sink = make(shared, "none")
    run(sink, "none", 0)
    run(sink, "none", 1)

    found = shared.jvm.run(
        f"SELECT content, record_count, equality_ids, sort_order_id FROM {NAME}.all_delete_files ORDER BY 1, 2"  # noqa: S608
    ).rows
    positions = shared.jvm.run(f"SELECT pos FROM {NAME}.position_deletes ORDER BY 1").rows  # noqa: S608

    assert [row[:2] for row in found] == [[1, 2], [2, 3], [2, 3], [2, 6]]
    assert [row[2] for row in found] == [None, [1], [1], [1]]
    assert [row[3] for row in found] == [None] * 4
    assert len(positions) == 2
