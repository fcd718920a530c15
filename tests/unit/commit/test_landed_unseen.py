"""Batches without a number that land while the answer says otherwise, and whose snapshot is gone at the next look."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.catalogs.faulty_catalog import FaultyCatalog, Strike
from support.checks.invariants import check_sound
from support.faults.kinds import CONFLICT_AFTER_LANDING
from support.tables.changes_by_others import expire, plain_table
from support.tables.sink import SCHEMA, Sink, epoch, local, paths_of, rows

from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError

COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


def rewrite(sink: Sink) -> None:
    """Write all rows again, as a compaction by PyIceberg does."""
    table = plain_table(sink)
    table.overwrite(table.scan().to_arrow())


def append_twice(sink: Sink) -> None:
    """Commit twice more; these commits merge the manifests that are there."""
    sink.append(8)
    sink.append(9)


def append_by_pyiceberg(sink: Sink) -> None:
    """Append a row with PyIceberg."""
    table = plain_table(sink)
    table.append(pa.Table.from_pylist([{"id": 9, "name": "x"}], table.schema().as_arrow()))


def prepare(sink: Sink, version: str = "2", retries: int = 4) -> None:
    """Create the table, with a row in it."""
    sink.create(COLUMNS, format_version=version)
    with sink.table().transaction() as change:
        change.set_properties(
            {
                "commit.retry.num-retries": str(retries),
                "commit.retry.min-wait-ms": "1",
                "commit.retry.max-wait-ms": "2",
                "commit.manifest-merge.enabled": "true",
                "commit.manifest.min-count-to-merge": "2",
            }
        )
    sink.append(1)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("cuts_parents", [True, False])
@pytest.mark.parametrize("others", [rewrite, append_twice, append_by_pyiceberg])
@pytest.mark.parametrize("retries", [0, 5])
def test_batch_that_landed_unseen_is_neither_deleted_nor_written_again(  # noqa: PLR0913  # fixtures and a matrix
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    version: str,
    *,
    cuts_parents: bool,
    others: Callable[[Sink], None],
    retries: int,
) -> None:
    """A gateway that sends twice, and an expiry at once: rows would be doubled, or files deleted that readers need."""
    prepare(sink, version, retries)
    messages = faulty_sink.write(rows(2, 3))

    def go_on() -> None:
        others(sink)
        expire(sink, cuts_parents=cuts_parents)

    faulty_catalog.begin(Strike(method="commit_table", number=1, kind=CONFLICT_AFTER_LANDING))
    faulty_catalog.after_commit(faulty_catalog.commits + 1, go_on)
    with suppress(CommitStateUnknownError):  # it may be found, too
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))
    assert [number for number in sink.ids() if number < 8] == [1, 2, 3]
    check_sound(sink.table())


def test_child_that_names_the_batch_as_its_parent_proves_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A job would fail in doubt although the table tells that its rows are there."""
    prepare(sink, retries=0)
    messages = faulty_sink.write(rows(2, 3))

    def go_on() -> None:
        append_by_pyiceberg(sink)
        expire(sink, cuts_parents=False)

    faulty_catalog.begin(Strike(method="commit_table", number=1, kind=CONFLICT_AFTER_LANDING))
    faulty_catalog.after_commit(faulty_catalog.commits + 1, go_on)
    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert sink.ids() == [1, 2, 3, 9]


def test_lost_race_is_known_from_the_number_of_the_faster_commit(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Each race beside an expiry would end in doubt, although the branch shows who won."""
    prepare(sink)
    messages = faulty_sink.write(rows(2, 3))
    faulty_catalog.before_commit(faulty_catalog.commits + 1, lambda: (sink.append(7), expire(sink, cuts_parents=True)))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3, 7]


@pytest.mark.parametrize("min_count", ["2", "100"])
def test_lost_race_is_known_from_the_files_of_the_faster_commit(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, min_count: str
) -> None:
    """Where a catalog shows the newest snapshot alone, as Nessie does, each race of three would end in doubt."""
    prepare(sink)
    with sink.table().transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": min_count})
    messages = faulty_sink.write(rows(2, 3))

    def win() -> None:
        append_twice(sink)
        expire(sink, cuts_parents=False)

    faulty_catalog.before_commit(faulty_catalog.commits + 1, win)
    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert sink.ids() == [1, 2, 3, 8, 9]
    check_sound(sink.table())


def test_list_that_is_deleted_while_it_is_read_leaves_the_outcome_open(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A raw error of a file that is missing would not say whether the rows are there."""
    prepare(sink)
    messages = faulty_sink.write(rows(2, 3))

    def expire_and_delete() -> None:
        append_twice(sink)
        expire(sink, cuts_parents=False)
        Path(local(sink.table().metadata.snapshots[-1].manifest_list)).unlink()

    faulty_catalog.begin(Strike(method="commit_table", number=1, kind=CONFLICT_AFTER_LANDING))
    faulty_catalog.after_commit(faulty_catalog.commits + 1, expire_and_delete)

    with pytest.raises(CommitStateUnknownError):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))


def test_rows_that_others_wrote_again_are_named_as_a_cause(sink: Sink) -> None:
    """Whoever follows the advice for a rollback would write rows a second time that are there."""
    sink.create(COLUMNS)
    sink.append(1)
    plan = sink.plan(SCHEMA, is_stream=True)
    sink.commit(sink.write(rows(3, 4), plan=plan, of_epoch=epoch(0)))
    rewrite(sink)
    expire(sink, cuts_parents=True)

    with pytest.raises(
        CommitConflictError, match=r"written all rows again .* Look whether the rows of epoch 0 are there"
    ):
        sink.commit(sink.write(rows(3, 4), plan=sink.plan(SCHEMA, is_stream=True), of_epoch=epoch(0)))

    assert sink.ids() == [1, 3, 4]
