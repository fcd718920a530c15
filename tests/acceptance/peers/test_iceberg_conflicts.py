"""apache/iceberg, Spark and core: the suites of overwrites, and of what others do before their commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from support.peer.cases import DIFFERS, ICEBERG
from support.peer.tables import PeerTable, simple
from support.tables.delete_files import delete_positions
from support.tables.sink import Row

from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.errors import CommitConflictError, RefusedRowsError
from iceberg_ds.planning.plan_write import WriteMode

CONFLICTS = "coming-from/iceberg-runtime.md#overwrites-beside-other-writers"

Other = Callable[[PeerTable], object]


def appends(*pairs: tuple[int, str]) -> Other:
    """Return what appends rows."""
    return lambda table: table.append(simple(*pairs))


def replaces(*pairs: tuple[int, str]) -> Other:
    """Return what replaces the partitions of these rows."""
    return lambda table: table.overwrite(simple(*pairs), overwrite_mode="dynamic")


def drops(data: str) -> Other:
    """Return what deletes the files of a partition, as `DELETE` without delete files does."""
    return lambda table: table.load().delete(f"data = '{data}'")


def hides_first_row(data: str) -> Other:
    """Return what deletes the first row of a partition's file by its position, as merge-on-read does."""

    def hide(table: PeerTable) -> None:
        (path,) = [file.file_path for file in table.files() if file.partition[0] == data]
        delete_positions(table.sink(), path, [0])

    return hide


def compacts(data: str) -> Other:
    """Return what writes the rows of a partition again in other files."""
    return lambda table: table.overwrite([row for row in table.rows() if row["data"] == data], overwrite_mode="dynamic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """An overwrite of ours, and what somebody else does after it began.

    Attributes:
        base: Rows that are there before.
        ours: Rows that the overwrite brings.
        how: Its options.
        other: What happens meanwhile.
        after: The rows after both; None if ours is a conflict.
    """

    base: list[Row] = field(default_factory=lambda: simple((1, "a"), (2, "b")))
    ours: list[Row] = field(default_factory=lambda: simple((10, "a")))
    how: dict[str, str] = field(default_factory=dict)
    other: Other
    after: list[Row] | None


DYNAMIC = {"overwrite_mode": "dynamic"}
WHERE_A = {"replace_where": "data = 'a'"}
SNAPSHOT = {"isolation_level": "snapshot"}
NO_ISOLATION = {"isolation_level": "none"}

CORE = "TestReplacePartitions"
RANGE = "TestOverwriteWithValidation"
SPARK = "TestConflictValidation"

# Partitioned tables.
PARTITIONED: dict[str, Race] = {
    f"{SPARK}.testOverwriteFilterSerializableIsolation": Race(how=WHERE_A, other=appends((3, "a")), after=None),
    f"{SPARK}.testOverwriteFilterSerializableIsolation3": Race(how=WHERE_A, other=drops("a"), after=None),
    f"{SPARK}.testOverwriteFilterSnapshotIsolation2": Race(
        how=WHERE_A | SNAPSHOT, other=appends((3, "a")), after=simple((2, "b"), (3, "a"), (10, "a"))
    ),
    f"{SPARK}.testOverwritePartitionSerializableIsolation": Race(how=DYNAMIC, other=appends((3, "a")), after=None),
    f"{SPARK}.testOverwritePartitionSnapshotIsolation2": Race(how=DYNAMIC | SNAPSHOT, other=drops("a"), after=None),
    f"{SPARK}.testOverwritePartitionSnapshotIsolation3": Race(
        how=DYNAMIC | SNAPSHOT, other=appends((3, "a")), after=simple((2, "b"), (3, "a"), (10, "a"))
    ),
    f"{CORE}.testValidationNotInvoked": Race(
        how=DYNAMIC | NO_ISOLATION, other=replaces((3, "a")), after=simple((2, "b"), (10, "a"))
    ),
    f"{CORE}.testValidateWithNullPartition": Race(
        base=[{"id": 1, "data": None}],
        ours=[{"id": 10, "data": None}],
        how=DYNAMIC,
        other=lambda table: table.append([{"id": 3, "data": None}]),
        after=None,
    ),
    f"{CORE}.testConcurrentReplaceConflict": Race(how=DYNAMIC, other=replaces((3, "a")), after=None),
    f"{CORE}.testConcurrentReplaceNoConflict": Race(
        how=DYNAMIC, other=replaces((3, "b")), after=simple((3, "b"), (10, "a"))
    ),
    f"{CORE}.testAppendReplaceConflict": Race(
        ours=simple((10, "a"), (20, "b")), how=DYNAMIC, other=appends((3, "b")), after=None
    ),
    f"{CORE}.testAppendReplaceNoConflict": Race(
        how=DYNAMIC, other=appends((3, "b")), after=simple((2, "b"), (3, "b"), (10, "a"))
    ),
    f"{CORE}.testDeleteReplaceNoConflict": Race(how=DYNAMIC, other=hides_first_row("b"), after=simple((10, "a"))),
    f"{CORE}.testOverwriteReplaceConflict": Race(how=DYNAMIC, other=drops("a"), after=None),
    f"{CORE}.testOverwriteReplaceNoConflict": Race(how=DYNAMIC, other=drops("b"), after=simple((10, "a"))),
    f"{CORE}.testValidateOnlyDeletes": Race(
        how=DYNAMIC | SNAPSHOT, other=appends((3, "b")), after=simple((2, "b"), (3, "b"), (10, "a"))
    ),
    f"{RANGE}.testOverwriteEmptyTableNotValidated": Race(
        base=[], how=WHERE_A | NO_ISOLATION, other=lambda _: None, after=simple((10, "a"))
    ),
    f"{RANGE}.testOverwriteEmptyTableStrictValidated": Race(base=[], other=lambda _: None, after=simple((10, "a"))),
    f"{RANGE}.testOverwriteEmptyTableValidated": Race(
        base=[], how=WHERE_A, other=lambda _: None, after=simple((10, "a"))
    ),
    f"{RANGE}.testOverwriteTableNotValidated": Race(
        how=WHERE_A | NO_ISOLATION, other=lambda _: None, after=simple((2, "b"), (10, "a"))
    ),
    f"{RANGE}.testOverwriteTableStrictValidated": Race(other=lambda _: None, after=simple((10, "a"))),
    f"{RANGE}.testOverwriteTableValidated": Race(how=WHERE_A, other=lambda _: None, after=simple((2, "b"), (10, "a"))),
    f"{RANGE}.testOverwriteCompatibleAdditionNotValidated": Race(
        how=WHERE_A | NO_ISOLATION, other=appends((3, "b")), after=simple((2, "b"), (3, "b"), (10, "a"))
    ),
    f"{RANGE}.testOverwriteCompatibleAdditionStrictValidated": Race(other=appends((3, "b")), after=None),
    f"{RANGE}.testOverwriteCompatibleAdditionValidated": Race(
        how=WHERE_A, other=appends((3, "b")), after=simple((2, "b"), (3, "b"), (10, "a"))
    ),
    f"{RANGE}.testOverwriteCompatibleDeletionValidated": Race(how=WHERE_A, other=drops("b"), after=simple((10, "a"))),
    f"{RANGE}.testOverwriteIncompatibleAdditionValidated": Race(
        base=simple((2, "b")), how=WHERE_A, other=appends((3, "a")), after=None
    ),
    f"{RANGE}.testOverwriteIncompatibleDeletionValidated": Race(how=WHERE_A, other=drops("a"), after=None),
    f"{RANGE}.testOverwriteAnotherRangeValidated": Race(
        base=[],
        how={"replace_where": "data = 'a' and id < 100"},
        other=appends((3, "b")),
        after=simple((3, "b"), (10, "a")),
    ),
    f"{RANGE}.testOverwriteAnotherRangeWithinPartitionValidated": Race(
        base=[],
        how={"replace_where": "data = 'a' and id < 100"},
        other=appends((300, "a")),
        after=simple((10, "a"), (300, "a")),
    ),
    f"{RANGE}.testTransactionIncompatibleAdditionValidated": Race(
        base=[], how=WHERE_A, other=lambda table: (appends((3, "b"))(table), appends((4, "a"))(table)), after=None
    ),
    f"{RANGE}.testConcurrentConflictingDataFileDeleteOverwriteByFilter": Race(
        how=WHERE_A, other=drops("a"), after=None
    ),
    f"{RANGE}.testConcurrentNonConflictingDataFileDeleteOverwriteByFilter": Race(
        how=WHERE_A, other=drops("b"), after=simple((10, "a"))
    ),
    f"{RANGE}.testConcurrentNonConflictingPositionDeletesOverwriteByFilter": Race(
        base=simple((1, "a"), (2, "b"), (3, "b")),
        how=WHERE_A,
        other=hides_first_row("b"),
        after=simple((3, "b"), (10, "a")),
    ),
    f"{RANGE}.testConcurrentNonConflictingPositionDeletes": Race(
        base=simple((1, "a"), (2, "b"), (3, "b")),
        how=WHERE_A | SNAPSHOT,
        other=hides_first_row("b"),
        after=simple((3, "b"), (10, "a")),
    ),
    f"{RANGE}.testConcurrentConflictingPositionDeletes": Race(
        base=simple((1, "a"), (2, "a")),
        ours=simple((2, "a")),
        how={"replace_where": "id = 2"} | SNAPSHOT,
        other=hides_first_row("a"),
        after=None,
    ),
}

# The same for tables without partitions, which are replaced whole.
UNPARTITIONED: dict[str, Race] = {
    f"{CORE}.testConcurrentReplaceConflictNonPartitioned": Race(how=DYNAMIC, other=replaces((3, "a")), after=None),
    f"{CORE}.testAppendReplaceConflictNonPartitioned": Race(how=DYNAMIC, other=appends((3, "a")), after=None),
    f"{CORE}.testOverwriteReplaceConflictNonPartitioned": Race(
        how=DYNAMIC, other=lambda table: table.load().delete("id > 0"), after=None
    ),
    f"{CORE}.testReplaceWithUnpartitionedTable": Race(how=DYNAMIC, other=lambda _: None, after=simple((10, "a"))),
}

# What is a conflict for the runtime, and none here: the replaced rows go anyway.
HIDDEN_ROWS: dict[str, Race] = {
    f"{SPARK}.testOverwriteFilterSerializableIsolation2": Race(
        how=WHERE_A, other=hides_first_row("a"), after=simple((2, "b"), (10, "a"))
    ),
    f"{SPARK}.testOverwriteFilterSnapshotIsolation": Race(
        how=WHERE_A | SNAPSHOT, other=hides_first_row("a"), after=simple((2, "b"), (10, "a"))
    ),
    f"{SPARK}.testOverwritePartitionSnapshotIsolation": Race(
        how=DYNAMIC | SNAPSHOT, other=hides_first_row("a"), after=simple((2, "b"), (10, "a"))
    ),
    f"{CORE}.testDeleteReplaceConflict": Race(
        how=DYNAMIC, other=hides_first_row("a"), after=simple((2, "b"), (10, "a"))
    ),
    f"{RANGE}.testConcurrentConflictingPositionDeletesOverwriteByFilter": Race(
        how=WHERE_A, other=hides_first_row("a"), after=simple((2, "b"), (10, "a"))
    ),
}

GOES_ANYWAY = DIFFERS(
    "a row that was deleted in a file that is replaced whole is no conflict: it goes anyway", see=CONFLICTS
)


def run(table: PeerTable, race: Race, **layout: str) -> Callable[[], CommitResult]:
    """Make the table, let the overwrite begin and the other one finish; return the overwrite's commit."""
    table.append(race.base, **layout)
    if not race.base:
        # A table without rows, as the next write finds it.
        table.append(simple((0, "z")), **layout)
        table.overwrite([])
    ours = table.begin(race.ours, mode=WriteMode.OVERWRITE, **race.how)
    race.other(table)
    return ours


def check(table: PeerTable, race: Race, ours: Callable[[], CommitResult]) -> None:
    """Let the overwrite finish, and compare the rows with those that are to be there."""
    if race.after is not None:
        ours()
        assert table.rows() == race.after
        return
    before = table.rows()
    with pytest.raises(CommitConflictError, match=r"Cannot"):
        ours()
    assert table.rows() == before


@ICEBERG.case(*PARTITIONED)
@pytest.mark.parametrize("case", PARTITIONED)
def test_overwrite_beside_another_writer(table: PeerTable, case: str) -> None:
    """Rows of the other writer would be lost, or the replaced ones come back."""
    race = PARTITIONED[case]

    ours = run(table, race, partition_by="data")

    check(table, race, ours)


@ICEBERG.case(*UNPARTITIONED)
@pytest.mark.parametrize("case", UNPARTITIONED)
def test_overwrite_of_an_unpartitioned_table_beside_another_writer(table: PeerTable, case: str) -> None:
    """A table without partitions is one partition: rows that came to it would be lost."""
    race = UNPARTITIONED[case]

    ours = run(table, race)

    check(table, race, ours)


@ICEBERG.case(
    *HIDDEN_ROWS,
    verdict=GOES_ANYWAY,
)
@pytest.mark.parametrize("case", HIDDEN_ROWS)
def test_deletes_in_files_that_are_replaced_whole(table: PeerTable, case: str) -> None:
    """Loads would be refused because of rows that go anyway, or a deleted row would come back."""
    race = HIDDEN_ROWS[case]

    ours = run(table, race, partition_by="data")

    check(table, race, ours)


@ICEBERG.case(
    f"{CORE}.testDeleteReplaceConflictNonPartitioned",
    verdict=GOES_ANYWAY,
)
def test_deletes_in_an_unpartitioned_table_that_is_replaced(table: PeerTable) -> None:
    """The delete of an old row would hide a new one, or the load be refused."""
    table.append(simple((1, "a"), (2, "b")))
    ours = table.begin(simple((1, "a")), mode=WriteMode.OVERWRITE, **DYNAMIC)
    delete_positions(table.sink(), table.files()[0].file_path, [0])

    ours()

    assert table.rows() == simple((1, "a"))


@ICEBERG.case(
    f"{SPARK}.testOverwriteFilterNoSnapshotIdValidation",
    f"{SPARK}.testOverwritePartitionNoSnapshotIdValidation",
    f"{CORE}.testValidateWithDefaultSnapshotId",
    verdict=DIFFERS(
        "changes count from the moment the write began, not from the table's first snapshot, where none is named",
        see=CONFLICTS,
    ),
)
@pytest.mark.parametrize("how", [WHERE_A, DYNAMIC])
def test_rows_from_before_the_write_began_are_no_conflict(table: PeerTable, how: dict[str, str]) -> None:
    """No job could replace the rows of its run of yesterday."""
    table.append(simple((1, "a"), (2, "b")), partition_by="data")
    first = table.last().snapshot_id
    table.append(simple((3, "a")))

    with pytest.raises(CommitConflictError, match=rf"snapshot {first}"):
        table.overwrite(simple((10, "a")), validate_from_snapshot_id=str(first), **how)
    table.overwrite(simple((10, "a")), isolation_level="serializable", **how)

    assert table.rows() == simple((2, "b"), (10, "a"))


@ICEBERG.case(
    f"{RANGE}.testOverwriteCompatibleRewriteAllowed",
    verdict=DIFFERS(
        "a compaction of the replaced files is a conflict: the compacted rows are in the range", see=CONFLICTS
    ),
)
def test_compaction_of_the_replaced_files(table: PeerTable) -> None:
    """The compacted rows would stay beside those that replace them."""
    race = Race(how=WHERE_A, other=compacts("a"), after=None)

    ours = run(table, race, partition_by="data")

    check(table, race, ours)


@ICEBERG.case(
    f"{RANGE}.testOverwriteCompatibleExpirationAdditionValidated",
    f"{RANGE}.testOverwriteCompatibleExpirationDeletionValidated",
    verdict=DIFFERS("an overwrite whose first snapshot has expired is refused, whatever came after it", see=CONFLICTS),
)
@ICEBERG.case(
    f"{RANGE}.testOverwriteIncompatibleExpirationValidated",
    f"{RANGE}.testOverwriteIncompatibleBaseExpirationEmptyTableValidated",
)
@pytest.mark.parametrize("other", [appends((3, "b")), drops("b"), appends((3, "a"))])
def test_history_that_cannot_be_seen_any_more(table: PeerTable, other: Other) -> None:
    """Changes that have expired would be taken for none."""
    table.append(simple((1, "a"), (2, "b")), partition_by="data")
    base = table.last().snapshot_id
    ours = table.begin(simple((10, "a")), mode=WriteMode.OVERWRITE, **WHERE_A)
    other(table)
    with table.load().maintenance.expire_snapshots() as expire:
        expire.by_id(base)
    before = table.rows()

    with pytest.raises(CommitConflictError, match=rf"snapshot {base}, from which changes are looked for"):
        ours()

    assert table.rows() == before


@ICEBERG.case("TestReplacePartitions.testReplaceOnePartition", "TestReplacePartitions.testReplaceAndMergeOnePartition")
@pytest.mark.parametrize("properties", [{}, {"table-property.commit.manifest.min-count-to-merge": "1"}])
def test_replacing_one_partition_leaves_the_files_of_others(table: PeerTable, properties: dict[str, str]) -> None:
    """Untouched partitions would be written again, or lost with a merge of manifests."""
    table.append(simple((1, "a"), (2, "b")), partition_by="data", options=properties)
    (kept,) = [file.file_path for file in table.files() if file.partition[0] == "b"]

    table.overwrite(simple((10, "a")), **DYNAMIC)

    assert table.rows() == simple((2, "b"), (10, "a"))
    assert kept in {file.file_path for file in table.files()}
    assert table.summary()["operation"] == "overwrite"
    assert table.summary()["deleted-data-files"] == "1"


@ICEBERG.case("TestOverwrite.testOverwriteWithoutAppend", "TestOverwrite.overwriteByRowFilterProducesDeleteOperation")
def test_range_without_new_rows_is_deleted(table: PeerTable) -> None:
    """Rows of a range that has become empty would stay."""
    table.append(simple((1, "a"), (2, "b")), partition_by="data")

    table.overwrite([], **WHERE_A)

    assert table.rows() == simple((2, "b"))
    assert table.summary()["operation"] == "delete"


@ICEBERG.case(
    "TestOverwrite.addAndOverwriteByRowFilterProducesOverwriteOperation",
    "TestOverwrite.testValidatedOverwriteWithAppendSuccess",
)
def test_range_with_new_rows_is_an_overwrite(table: PeerTable) -> None:
    """Readers of changes would take replaced rows for new ones."""
    table.append(simple((1, "a"), (2, "b")), partition_by="data")

    table.overwrite(simple((10, "a")), **WHERE_A)

    assert table.rows() == simple((2, "b"), (10, "a"))
    assert table.summary()["operation"] == "overwrite"


@ICEBERG.case(
    "TestOverwrite.testOverwriteFailsDelete",
    verdict=DIFFERS("a file that is replaced in part is written again without the replaced rows", see=CONFLICTS),
)
def test_file_that_is_replaced_in_part_is_written_again(table: PeerTable) -> None:
    """Rows outside the range would be lost with their file."""
    table.append(simple((1, "a"), (2, "a"), (3, "a")))

    table.overwrite(simple((20, "b")), replace_where="id = 2 or id = 20")

    assert table.rows() == simple((1, "a"), (3, "a"), (20, "b"))


@ICEBERG.case(
    "TestOverwrite.testOverwriteWithAppendOutsideOfDelete",
    "TestOverwrite.testOverwriteWithMergedAppendOutsideOfDelete",
    verdict=DIFFERS("rows that the next run would not replace are always refused", see=CONFLICTS),
)
@ICEBERG.case(
    "TestOverwrite.testValidatedOverwriteWithAppendOutsideOfDelete",
    "TestOverwrite.testValidatedOverwriteWithAppendOutsideOfDeleteMetrics",
)
@pytest.mark.parametrize("replace_where", ["data = 'a'", "id < 5"])
def test_rows_outside_the_replaced_range_are_refused(table: PeerTable, replace_where: str) -> None:
    """A load that is run again would double the rows outside its range."""
    table.append(simple((1, "a"), (2, "b")), partition_by="data")

    with pytest.raises(RefusedRowsError, match=r"1 rows do not satisfy replace-where"):
        table.overwrite(simple((4, "a"), (10, "b")), replace_where=replace_where)

    assert table.rows() == simple((1, "a"), (2, "b"))


@ICEBERG.case("TestOverwrite.addFilesProducesAppendOperation")
def test_overwrite_of_nothing_adds_rows(table: PeerTable) -> None:
    """Readers of appended rows would stop at a snapshot that replaces nothing."""
    table.append(simple((2, "b")), partition_by="data")

    table.overwrite(simple((10, "a")), **DYNAMIC)

    assert table.rows() == simple((2, "b"), (10, "a"))
    assert table.summary()["operation"] == "append"
