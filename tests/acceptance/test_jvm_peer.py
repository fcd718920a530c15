"""Iceberg's own Spark runtime and the sink write the same tables in turn, and read what the other wrote.

The peer is the reference: it is where the format comes from. `shared_catalog` says what "the same" means.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from support.catalogs.shared_catalog import SharedCatalog, exact
from support.exhaustive import EXHAUSTIVE, few
from support.tables.event_rows import EVENT, EVENT_COLUMNS, EVENT_SCHEMA, make_events

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

Fields = list[tuple[str, Transform[Any, Any]]]

SPECS: dict[str, Fields] = {
    "unpartitioned": [],
    "identity": [("region", IdentityTransform())],
    "bucket": [("id", BucketTransform(16)), ("s", BucketTransform(3))],
    "truncate": [("s", TruncateTransform(4)), ("id", TruncateTransform(10))],
    "times": [("ts", DayTransform()), ("naive", HourTransform()), ("day", MonthTransform())],
    "year-and-void": [("ts", YearTransform()), ("region", VoidTransform())],
}
FOUR_FIELDS = "PARTITIONED BY (days(ts), bucket(16, id), truncate(4, s), region)"


def spec_of(fields: Fields) -> PartitionSpec:
    """Return the partition spec of a table of events."""
    return PartitionSpec(
        *(
            PartitionField(
                source_id=EVENT_SCHEMA.find_field(name).field_id,
                field_id=1000 + number,
                transform=transform,
                name=f"part_{number}",
            )
            for number, (name, transform) in enumerate(fields)
        )
    )


@pytest.mark.parametrize("fields", few(1, SPECS.values()), ids=SPECS.keys())
def test_both_write_one_table_in_turn(shared: SharedCatalog, fields: Fields) -> None:
    """A table that several engines write would show each of them other rows."""
    shared.create(EVENT_SCHEMA, spec_of(fields))
    first, second, third = make_events(0), make_events(12), make_events(24)

    shared.append(first, EVENT)
    shared.check_rows(first)
    shared.append_by_jvm(second, EVENT)
    shared.check_rows([*first, *second])
    shared.append(third, EVENT)

    shared.check_rows([*first, *second, *third])
    shared.check_filters([*first, *second, *third], EVENT)
    check_partitions(shared)
    check_history(shared)


def test_table_that_the_sink_makes(shared: SharedCatalog) -> None:
    """A table whose first writer was the sink would be of no use to other engines."""
    first, second, third = make_events(0), make_events(12), make_events(24)

    shared.append(first, EVENT)
    shared.append_by_jvm(second, EVENT)
    shared.append(third, EVENT)

    shared.check_rows([*first, *second, *third])
    shared.check_filters([*first, *second, *third], EVENT)
    check_history(shared)


@EXHAUSTIVE
@pytest.mark.parametrize("version", few(1, [1, 2]))
def test_table_that_the_jvm_makes(shared: SharedCatalog, version: int) -> None:
    """A table that was made in SQL, as most are, would lose rows for queries that use its partitions."""
    shared.create_by_jvm(EVENT_COLUMNS, f"{FOUR_FIELDS} TBLPROPERTIES ('format-version' = '{version}')")
    first, second, third = make_events(0), make_events(12), make_events(24)

    shared.append(first, EVENT)
    shared.append_by_jvm(second, EVENT)
    shared.append(third, EVENT)

    shared.check_rows([*first, *second, *third])
    shared.check_filters([*first, *second, *third], EVENT)
    check_partitions(shared)
    check_history(shared)


def check_partitions(shared: SharedCatalog) -> None:
    """Assert that the peer's `partitions` are the sums of its `files`."""
    if shared.table().spec().is_unpartitioned():
        return
    files, rows, sizes = Counter[str](), Counter[str](), Counter[str]()
    for file in shared.metadata("files"):
        key = str(exact(file["partition"]))
        files[key] += 1
        rows[key] += file["record_count"]
        sizes[key] += file["file_size_in_bytes"]

    told = {str(exact(row["partition"])): row for row in shared.metadata("partitions", order="spec_id")}

    assert {key: row["file_count"] for key, row in told.items()} == files
    assert {key: row["record_count"] for key, row in told.items()} == rows
    assert {key: row["total_data_file_size_in_bytes"] for key, row in told.items()} == sizes


def check_history(shared: SharedCatalog) -> None:
    """Assert that the peer sees three appends of twelve rows, one after the other."""
    snapshots = shared.metadata("snapshots", order="committed_at")
    summaries = [dict(snapshot["summary"]) for snapshot in snapshots]

    assert [snapshot["operation"] for snapshot in snapshots] == ["append"] * 3
    assert [snapshot["parent_id"] for snapshot in snapshots] == [
        None,
        *(snapshot["snapshot_id"] for snapshot in snapshots[:-1]),
    ]
    assert [summary["added-records"] for summary in summaries] == ["12"] * 3
    assert [summary["total-records"] for summary in summaries] == ["12", "24", "36"]
    assert [row["snapshot_id"] for row in shared.metadata("history", order="made_current_at")] == [
        snapshot["snapshot_id"] for snapshot in snapshots
    ]
