"""Two writers at once: which pairs get along, which of them conflict, and what is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from support.checks.invariants import check_clean
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.regions import ids_by_region, in_region, partitioned, run, write
from support.tables.rewrites import manifests_of, rewrite_manifests
from support.tables.sink import Row, Sink

from iceberg_ds.errors import CommitConflictError, OptionError

Rows = dict[str | None, list[int]]
BASE: Rows = {"EU": [1, 2], "US": [3]}

ISOLATION_LEVELS = ["serializable", "snapshot"]


@pytest.fixture
def regions(sink: Sink) -> Sink:
    """Return a table partitioned by region with rows in two regions, a file each."""
    made = partitioned(sink)
    run(made, "append", [*in_region("EU", 1, 2), *in_region("US", 3)])
    return made


@dataclass(frozen=True, kw_only=True)
class Writer:
    """One of the two writers.

    Attributes:
        kind: As `regions.write` takes it.
        rows: What it writes.
    """

    kind: str
    rows: list[Row]

    def __str__(self) -> str:
        return f"{self.kind} {self.rows[0]['region'] if self.rows else 'nothing'}"


APPEND_EU, APPEND_US = Writer(kind="append", rows=in_region("EU", 10)), Writer(kind="append", rows=in_region("US", 10))
STATIC = Writer(kind="static", rows=in_region("EU", 10))
DYNAMIC_EU, DYNAMIC_US = (
    Writer(kind="dynamic", rows=in_region("EU", 10)),
    Writer(kind="dynamic", rows=in_region("US", 10)),
)
WHERE_EU = Writer(kind="where region = 'EU'", rows=in_region("EU", 10))
WHERE_US = Writer(kind="where region = 'US'", rows=in_region("US", 10))
WHERE_ID_1 = Writer(kind="where id = 1", rows=[])
WHERE_ID_2 = Writer(kind="where id = 2", rows=[])

# What the first writer does, then what the second one's rows become: the rows afterwards, or a conflict.
APPENDS: list[tuple[Writer, Rows]] = [
    (APPEND_EU, {"EU": [1, 2, 10, 20], "US": [3]}),
    (STATIC, {"EU": [10, 20]}),
    (DYNAMIC_EU, {"EU": [10, 20], "US": [3]}),
    (WHERE_EU, {"EU": [10, 20], "US": [3]}),
    (WHERE_ID_1, {"EU": [2, 20], "US": [3]}),
]
INTO_THE_RANGE: list[tuple[Writer, str, Rows]] = [
    (APPEND_EU, "static", {"EU": [10, 20]}),
    (APPEND_US, "static", {"EU": [20], "US": [10]}),
    (APPEND_EU, "dynamic", {"EU": [10, 20], "US": [3]}),
    (APPEND_EU, "where region = 'EU'", {"EU": [10, 20], "US": [3]}),
    (APPEND_EU, "where id >= 2", {"EU": [1, 10, 20]}),
    (WHERE_US, "where id >= 10", {"EU": [1, 2, 20], "US": [10]}),
    (DYNAMIC_US, "where id >= 10", {"EU": [1, 2, 20], "US": [10]}),
]
OUTSIDE_THE_RANGE: list[tuple[Writer, str, Rows]] = [
    (APPEND_US, "dynamic", {"EU": [20], "US": [3, 10]}),
    (APPEND_US, "where region = 'EU'", {"EU": [20], "US": [3, 10]}),
    (DYNAMIC_US, "dynamic", {"EU": [20], "US": [10]}),
    (DYNAMIC_US, "where region = 'EU'", {"EU": [20], "US": [10]}),
    (WHERE_US, "dynamic", {"EU": [20], "US": [10]}),
    (WHERE_US, "where region = 'EU'", {"EU": [20], "US": [10]}),
]
OF_REPLACED_FILES: list[tuple[Writer, str]] = [
    (first, second)
    for first in (STATIC, DYNAMIC_EU, WHERE_EU, WHERE_ID_1)
    for second in ("static", "dynamic", "where region = 'EU'", "where id in (2, 20)")
] + [(DYNAMIC_US, "static"), (WHERE_US, "static")]


def interleave(sink: Sink, first: Writer, second: str, isolation_level: str | None) -> Callable[[], object]:
    """Let both writers begin, let the first one commit, and return the commit of the second one, of row EU 20."""
    options = {} if second == "append" else {"isolation_level": isolation_level}
    messages = write(sink, second, in_region("EU", 20), **options)
    run(sink, first.kind, first.rows)
    return lambda: sink.commit(messages)


@pytest.mark.parametrize(("first", "expected"), APPENDS, ids=str)
def test_append_lands_beside_any_other_write(regions: Sink, first: Writer, expected: Rows) -> None:
    """Appends, which nothing can be in the way of, would be refused or lost because a table is replaced."""
    commit = interleave(regions, first, "append", None)

    commit()

    assert ids_by_region(regions) == expected
    check_clean(regions.table())


@pytest.mark.parametrize(("first", "second", "kept"), INTO_THE_RANGE, ids=str)
def test_rows_that_come_into_the_range_are_a_conflict_if_serializable(
    regions: Sink, first: Writer, second: str, kept: Rows
) -> None:
    """Rows of a write that ended well would be gone, or be there although the range was replaced after them."""
    commit = interleave(regions, first, second, "serializable")
    before = ids_by_region(regions)
    newest = regions.table().metadata.current_snapshot_id

    with pytest.raises(CommitConflictError, match=f"snapshot {newest} brought .*parquet.*isolation-level=snapshot"):
        commit()

    assert ids_by_region(regions) == before
    assert before != kept
    check_clean(regions.table())


@pytest.mark.parametrize(("first", "second", "kept"), INTO_THE_RANGE, ids=str)
def test_rows_that_come_into_the_range_are_kept_under_snapshot_isolation(
    regions: Sink, first: Writer, second: str, kept: Rows
) -> None:
    """Rows that the write never saw would be dropped by it."""
    commit = interleave(regions, first, second, "snapshot")

    commit()

    assert ids_by_region(regions) == kept
    check_clean(regions.table())


@pytest.mark.parametrize("first", [APPEND_EU, DYNAMIC_EU], ids=str)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("static", {"EU": [20]}),
        ("dynamic", {"EU": [20], "US": [3]}),
        ("where region = 'EU'", {"EU": [20], "US": [3]}),
        ("where id >= 2", {"EU": [20]}),
    ],
)
def test_rows_that_come_into_the_range_are_replaced_without_isolation(
    regions: Sink, first: Writer, kind: str, expected: Rows
) -> None:
    """A job that is run again while its first run still writes would leave the rows of both."""
    second = write(regions, kind, in_region("EU", 20), isolation_level="none")
    run(regions, first.kind, first.rows)

    regions.commit(second)

    stays = [1] if kind == "where id >= 2" and first is APPEND_EU else []
    assert ids_by_region(regions) == {**expected, "EU": [*stays, 20]}


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize(("first", "second", "expected"), OUTSIDE_THE_RANGE, ids=str)
def test_writes_to_different_ranges_do_not_conflict(
    regions: Sink, first: Writer, second: str, expected: Rows, isolation_level: str
) -> None:
    """Jobs that each load a region of their own could not run beside one another."""
    commit = interleave(regions, first, second, isolation_level)

    commit()

    assert ids_by_region(regions) == expected
    check_clean(regions.table())


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize(("first", "second"), OF_REPLACED_FILES, ids=str)
def test_removal_of_a_replaced_file_is_a_conflict(
    regions: Sink, first: Writer, second: str, isolation_level: str
) -> None:
    """Rows that the other writer put in the place of replaced ones would stay beside the new ones."""
    commit = interleave(regions, first, second, isolation_level)
    before = ids_by_region(regions)

    with pytest.raises(
        CommitConflictError, match=r"(which it replaces, was removed by another writer|brought .*parquet)"
    ):
        commit()

    assert ids_by_region(regions) == before
    check_clean(regions.table())


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_removal_of_rows_of_a_file_that_is_replaced_in_part_is_a_conflict(regions: Sink, isolation_level: str) -> None:
    """Rows that the other writer removed would come back with the ones that are written again."""
    commit = interleave(regions, WHERE_ID_2, "where id in (1, 20)", isolation_level)

    with pytest.raises(CommitConflictError):
        commit()

    assert ids_by_region(regions) == {"EU": [1], "US": [3]}
    check_clean(regions.table())


def compact(sink: Sink, region: str) -> int:
    """Write the rows of a region again in other files, as a compaction does; return the snapshot."""
    rows = [row for row in sink.rows() if row["region"] == region]
    result = run(sink, f"where region = '{region}'", rows)
    assert result.snapshot_id is not None
    return result.snapshot_id


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize("second", ["static", "dynamic", "where region = 'EU'", "where id = 20 or id = 1"])
def test_compaction_of_the_range_is_a_conflict(regions: Sink, second: str, isolation_level: str) -> None:
    """The compacted files hold the replaced rows, which would be doubled beside the new ones."""
    messages = write(regions, second, in_region("EU", 20), isolation_level=isolation_level)
    compact(regions, "EU")

    with pytest.raises(CommitConflictError):
        regions.commit(messages)

    assert ids_by_region(regions) == BASE
    check_clean(regions.table())


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_compaction_outside_the_range_is_no_conflict(regions: Sink, isolation_level: str) -> None:
    """Maintenance would stop the loads of all days."""
    messages = write(regions, "dynamic", in_region("EU", 20), isolation_level=isolation_level)
    compact(regions, "US")

    regions.commit(messages)

    assert ids_by_region(regions) == {"EU": [20], "US": [3]}
    check_clean(regions.table())


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize("kind", ["positions", "equality"])
def test_row_level_delete_in_a_file_that_is_replaced_in_part_is_a_conflict(
    regions: Sink, isolation_level: str, kind: str
) -> None:
    """A row that was deleted meanwhile would come back."""
    messages = write(regions, "where id = 2", [], isolation_level=isolation_level)
    if kind == "positions":
        path = next(entry.data_file.file_path for entry in entries(regions) if entry.data_file.partition[0] == "EU")
        snapshot_id = delete_positions(regions, path, [0])
    else:
        snapshot_id = delete_ids(regions, 1)

    with pytest.raises(CommitConflictError, match=f"snapshot {snapshot_id} deleted rows after this write began"):
        regions.commit(messages)


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize("is_deleted_meanwhile", [False, True])
def test_rewritten_delete_manifests_are_a_conflict_only_with_new_deletes(
    regions: Sink, isolation_level: str, *, is_deleted_meanwhile: bool
) -> None:
    """Maintenance would stop loads; or a delete that it has put among older ones would be taken back."""
    run(regions, "append", in_region("EU", 4, 5))
    other, file = (entry.data_file.file_path for entry in entries(regions) if entry.data_file.partition[0] == "EU")
    one_manifest_each = [delete_positions(regions, path, [0]) for path in (other, file)]
    messages = write(regions, "where id = 2", [], isolation_level=isolation_level)
    if is_deleted_meanwhile:
        one_manifest_each.append(delete_positions(regions, file, [1]))
    rewrite_manifests(regions)
    (deletes,) = manifests_of(regions.table(), content=ManifestContent.DELETES)
    assert deletes.added_snapshot_id not in one_manifest_each

    if is_deleted_meanwhile:
        with pytest.raises(CommitConflictError, match=f"snapshot {one_manifest_each[-1]} deleted rows after this"):
            regions.commit(messages)
    else:
        regions.commit(messages)
        assert ids_by_region(regions) == {"EU": [5], "US": [3]}
        check_clean(regions.table())


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_row_level_delete_in_a_file_that_is_replaced_whole_is_no_conflict(regions: Sink, kind: str) -> None:
    """Loads would be refused because of rows that go anyway."""
    messages = write(regions, kind, in_region("EU", 20))
    path = next(entry.data_file.file_path for entry in entries(regions) if entry.data_file.partition[0] == "EU")
    delete_positions(regions, path, [0])

    regions.commit(messages)

    assert ids_by_region(regions)["EU"] == [20]


@pytest.mark.parametrize("kind", ["static", "dynamic", "where region = 'EU'"])
def test_rows_that_came_before_the_plan_are_replaced(regions: Sink, kind: str) -> None:
    """Every second run of a job would conflict with the first."""
    run(regions, "append", in_region("EU", 4))

    run(regions, kind, in_region("EU", 20))

    assert ids_by_region(regions)["EU"] == [20]


@pytest.mark.parametrize("kind", ["static", "dynamic", "where region = 'EU'"])
def test_first_rows_of_a_table_are_a_conflict_for_an_overwrite_that_saw_none(sink: Sink, kind: str) -> None:
    """Rows of the writer that was faster would be lost, or doubled."""
    table = partitioned(sink)
    messages = write(table, kind, in_region("EU", 20))
    relaxed = write(table, kind, in_region("EU", 30), isolation_level="snapshot")
    run(table, "append", in_region("EU", 10))

    with pytest.raises(CommitConflictError, match=r"after this write began\. Run"):
        table.commit(messages)
    table.commit(relaxed)

    assert ids_by_region(table) == {"EU": [10, 30]}
    check_clean(table.table())


def test_changes_are_looked_for_from_the_named_snapshot_on(regions: Sink) -> None:
    """A job that read the table long before it writes would drop rows that it never saw."""
    read_at = regions.table().metadata.current_snapshot_id
    run(regions, "append", in_region("EU", 10))

    with pytest.raises(CommitConflictError, match=rf"after this write began \(at snapshot {read_at}\)"):
        run(regions, "dynamic", in_region("EU", 20), validate_from_snapshot_id=read_at)
    run(regions, "dynamic", in_region("US", 30), validate_from_snapshot_id=read_at)
    run(regions, "dynamic", in_region("EU", 20), validate_from_snapshot_id=read_at, isolation_level="snapshot")

    assert ids_by_region(regions) == {"EU": [10, 20], "US": [30]}
    check_clean(regions.table())


def test_snapshot_that_is_not_behind_the_branch_is_refused(regions: Sink) -> None:
    """Changes would be looked for in another history than that of the rows."""
    with pytest.raises(OptionError, match="'validate-from-snapshot-id' is 7, which does not lie behind branch 'main'"):
        run(regions, "static", [], validate_from_snapshot_id=7)


def roll_back(table: Table, snapshot_id: int) -> None:
    """Set the main branch back."""
    with table.manage_snapshots() as change:
        change.rollback_to_snapshot(snapshot_id)


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_overwrite_of_a_branch_that_was_set_back_is_a_conflict(regions: Sink, isolation_level: str) -> None:
    """The write would replace rows of a state that it was not planned for."""
    first = regions.table().metadata.current_snapshot_id
    assert first is not None
    run(regions, "append", in_region("EU", 4))
    messages = write(regions, "static", in_region("EU", 20), isolation_level=isolation_level)
    roll_back(regions.table(), first)

    with pytest.raises(CommitConflictError, match="does not lie behind branch 'main' any more"):
        regions.commit(messages)

    assert ids_by_region(regions) == BASE


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_overwrite_whose_base_has_expired_is_a_conflict(regions: Sink, isolation_level: str) -> None:
    """Changes that cannot be seen any more would be taken for none."""
    base = regions.table().metadata.current_snapshot_id
    messages = write(regions, "static", in_region("EU", 20), isolation_level=isolation_level)
    run(regions, "append", in_region("US", 4))
    with regions.table().maintenance.expire_snapshots() as expire:
        expire.by_id(base)

    with pytest.raises(CommitConflictError, match=f"snapshot {base}, from which changes are looked for"):
        regions.commit(messages)
