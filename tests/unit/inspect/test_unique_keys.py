"""`verify` finds keys that have several visible rows, if it is asked to."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from click.testing import CliRunner
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import IdentityTransform
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import apart, upsert
from support.tables.delete_files import entries
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.cli import main
from iceberg_ds.inspect.checklist import Check
from iceberg_ds.inspect.unique_keys import UNIQUE
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.writers import spill

pytestmark = pytest.mark.usefixtures("waits")

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def checked(sink: Sink) -> Check:
    """Return what the check found."""
    result = iceberg_ds.verify(
        NAME, options={"warehouse": str(sink.options.warehouse)}, unique_keys=True, orphans=False
    )
    (found,) = [check for check in result.checks if check.name == UNIQUE]
    assert all(check.outcome != "failed" for check in result.checks if check.name != UNIQUE), str(result)
    return found


def append(sink: Sink, *ids: int, **options: str) -> None:
    """Append rows that nobody holds against the keys that are there."""
    rows = [{"id": number, "region": "EU", "amount": number} for number in ids]
    sink.commit(sink.write(rows, schema=COLUMNS, plan=sink.plan(COLUMNS, **options)))


def put(sink: Sink, *events: Event) -> None:
    """Write by keys, with deletes by key that are meant for the whole table."""
    specs = sink.table().specs()
    if not specs[max(specs)].is_unpartitioned():
        sink.catalog.send(sink.table(), (), (AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=max(specs) + 1)),))
        specs = sink.table().specs()
    sink.commit(keyed_tasks(plan_by_keys(sink, delete_spec=specs[max(specs)]), *apart(events)))


@pytest.mark.parametrize("spec", [PartitionSpec(), BY_REGION], ids=["plain", "by region"])
def test_rows_that_deletes_hide_do_not_count(sink: Sink, spec: PartitionSpec) -> None:
    """Every table with upserts would look broken."""
    sink.create(KEYED_SCHEMA, spec)
    append(sink, *range(10))
    upsert(sink, "position", *apart([("U", number, "EU", 0, 1) for number in range(5)]))
    put(sink, ("U", 4, "EU", 1, 2), ("D", 5, "EU", None, 2), ("U", 6, "EU", 1, 2))

    found = checked(sink)

    assert (found.outcome, found.detail) == ("ok", "each has one row: 9 rows of 1 snapshot")


def test_keys_with_several_rows_are_named(sink: Sink) -> None:
    """A user would find out from wrong sums, and not know which writer did it."""
    sink.create(KEYED_SCHEMA)
    append(sink, 1, 2, 3)
    put(sink, ("U", 2, "EU", 0, 1))
    append(sink, 2, 2, 7)

    found = checked(sink)

    assert found.outcome == "failed"
    assert "shows 3 rows of 1 key: {'id': 2} in row 0 of file://" in found.detail
    assert "append without `keys`" in (found.next_step or "")


def test_each_branch_is_looked_at(sink: Sink) -> None:
    """What is to be published would have doubled rows, and nobody would know."""
    sink.create(KEYED_SCHEMA)
    append(sink, 1, 2)
    sink.commit(
        sink.write(
            [{"id": 1, "region": "EU", "amount": 1}],
            schema=COLUMNS,
            plan=sink.plan(COLUMNS, branch="audit", create_branch=True),
        )
    )

    found = checked(sink)

    assert found.detail.startswith("on audit, snapshot ")
    assert "main" not in found.detail


def test_keys_that_do_not_fit_in_memory_are_all_compared(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubled rows of a large table would be overlooked, or its check would fill the memory."""
    monkeypatch.setattr(spill, "RUN_BYTES", 2_000)
    monkeypatch.setattr(spill, "CHUNK_BYTES", 200)
    monkeypatch.setattr(spill, "_BATCH_BYTES", 300)
    draw = random.Random(1)  # noqa: S311  # the same keys every time
    drawn = [draw.randrange(400) for _ in range(500)]
    sink.create(KEYED_SCHEMA)
    append(sink, *drawn)

    found = checked(sink)

    counts = [count for count in Counter(drawn).values() if count > 1]
    assert f"shows {sum(counts)} rows of {len(counts)} keys: " in found.detail
    assert found.detail.endswith("; and more")
    assert found.detail.count("{'id'") == 5


def test_keys_are_compared_on_request_alone(sink: Sink) -> None:
    """Each look at a large table would read all of its keys."""
    sink.create(KEYED_SCHEMA)
    append(sink, 1, 1)
    asked = ["verify", NAME, "--option", f"warehouse={sink.options.warehouse}"]

    assert CliRunner().invoke(main, asked).exit_code == 0
    found = CliRunner().invoke(main, [*asked, "--unique-keys"])
    assert found.exit_code == 1
    assert "2 rows of 1 key" in " ".join(found.output.split())


def test_keys_of_a_file_that_is_listed_twice_are_not_compared(sink: Sink) -> None:
    """The check would end with an error of Python, beside the one that says what is wrong."""
    sink.create(KEYED_SCHEMA)
    append(sink, 1, 2)
    (entry,) = entries(sink)
    again = sink.plan(COLUMNS).write
    sink.commit([TaskCommit(again, 0, (entry.data_file,), counts=RowCounts(received=2))])
    put(sink, ("U", 2, "EU", 0, 1))

    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, unique_keys=True)

    (found,) = [check for check in result.checks if check.name == UNIQUE]
    assert found.outcome == "skipped"
    assert "is listed 2 times" in found.detail
    assert not result.ok


def test_table_without_identifier_fields_has_no_keys_to_compare(sink: Sink) -> None:
    """A table of events would look broken, or as if each of them came once."""
    sink.append(1, 1)

    found = checked(sink)

    assert (found.outcome, found.detail) == ("skipped", "the table has no identifier fields")
