"""Some epochs of changes by key into tables of every layout, which Iceberg's own Spark runtime reads, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.catalogs.shared_catalog import SharedCatalog
from support.checks.reader import rows_of
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds

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
