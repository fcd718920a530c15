"""A table that is renamed while a write to it is under way, and another one that gets its name: nothing is deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, false_refusal, forbidden
from support.checks.invariants import check_sound, unreferenced_files
from support.faults.kinds import Kind, Way
from support.tables.changes_by_others import plain_catalog, rename
from support.tables.sink import IDENTIFIER, Sink, epoch, paths_of, rows

from iceberg_ds.catalog import own_storage
from iceberg_ds.commit.create_table import with_first_snapshot
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import CommitConflictError, CommitMessageError, CommitStateUnknownError
from iceberg_ds.messages import TaskCommit

pytestmark = pytest.mark.usefixtures("waits")

WRITES: dict[str, Callable[[Sink], list[TaskCommit]]] = {
    "batch": lambda sink: sink.write(rows(2)),
    "numbered batch": lambda sink: sink.write(rows(2), plan=sink.plan(txn_app_id="load", txn_version=1)),
    "epoch": lambda sink: sink.write(rows(2), of_epoch=epoch(0)),
    "overwrite": lambda sink: sink.write_over([*rows(1), *rows(2)]),
}


def take_name(sink: Sink, schema: Schema | None = None) -> Sink:
    """Rename the table, and make another one of its name, in a folder of its own; return the first one."""
    schema = schema or sink.table().schema()
    old = rename(sink, "db.t_old")
    location = f"{old.table().metadata.location}_new"
    plain_catalog(sink).create_table(sink.options.table, schema, location=location)
    return old


def not_found() -> Exception:
    """Return what PyIceberg raises if the table lost its name before a gateway sent the request once more."""
    return Kind(way=Way.STATUS, status=404).error("commit_table")


def called(sink: Sink, name: str) -> Sink:
    """Return the sink of a table of that name."""
    return replace(sink, options=replace(sink.options, table=("db", name)))


@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "with rows"])
@pytest.mark.parametrize("answer", [connection_lost, false_refusal, not_found])
@pytest.mark.parametrize("kind", WRITES)
def test_rows_that_landed_before_the_table_was_renamed_stay(  # noqa: PLR0913  # fixtures, and what varies
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    kind: str,
    answer: Callable[[], Exception],
    *,
    is_empty: bool,
) -> None:
    """The renamed table would be unreadable for good: the files of its newest snapshot were deleted."""
    sink.commit(sink.write([] if is_empty else rows(1)))
    messages = WRITES[kind](faulty_sink)
    faulty_catalog.fail_next(1, answer, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: take_name(sink) and None)

    with pytest.raises(CommitStateUnknownError, match=r"unknown: .*No files were deleted"):
        faulty_sink.commit(messages)

    check_sound(called(sink, "t_old").table())
    assert 2 in called(sink, "t_old").ids()
    assert sink.ids() == []


@pytest.mark.parametrize("answer", [connection_lost, false_refusal, not_found])
@pytest.mark.parametrize("kind", WRITES)
def test_rows_that_landed_in_a_table_that_left_its_name_are_not_called_refused(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str, answer: Callable[[], Exception]
) -> None:
    """A user would be told of a conflict, run the write again, and have its rows twice."""
    sink.append(1)
    messages = WRITES[kind](faulty_sink)
    faulty_catalog.fail_next(1, answer, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: rename(sink, "db.t_old") and None)

    with pytest.raises(CommitStateUnknownError, match=r"If it was renamed.*No files were deleted"):
        faulty_sink.commit(messages)

    check_sound(called(sink, "t_old").table())
    assert called(sink, "t_old").ids() == [1, 2]


def test_created_table_that_left_its_name_before_the_next_look_can_be_read(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Its only metadata file would be deleted, because another table has the name by now."""
    plain = plain_catalog(sink)

    def take() -> None:  # by the library's own catalog: the sink does not see the table in between
        plain.rename_table("db.t", "db.t_old")
        plain.create_table("db.t", Schema(NestedField(1, "id", LongType())), location=f"{sink.options.warehouse}/new")

    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, take)

    with pytest.raises(CommitStateUnknownError, match="No files were deleted"):
        faulty_sink.commit(messages)

    assert [row["id"] for row in plain.load_table("db.t_old").scan().to_arrow().to_pylist()] == [2]


@pytest.mark.parametrize("is_like", [True, False])
@pytest.mark.parametrize("kind", ["batch", "numbered batch", "epoch"])
def test_created_table_that_was_renamed_keeps_its_rows_to_itself(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str, *, is_like: bool
) -> None:
    """Two tables would have the same files, or the renamed one would be unreadable."""
    messages = WRITES[kind](faulty_sink)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: take_name(sink, None if is_like else Schema()) and None)

    with pytest.raises(CommitStateUnknownError, match=r"another table has that name by now.*UUID"):
        faulty_sink.commit(messages)

    check_sound(called(sink, "t_old").table())
    assert called(sink, "t_old").ids() == [2]
    assert sink.table().metadata.snapshots == []


@pytest.mark.parametrize("of_server", [True, False])
@pytest.mark.parametrize("answer", [connection_lost, false_refusal])
@pytest.mark.parametrize("kind", ["batch", "numbered batch", "epoch"])
def test_created_table_whose_name_is_free_again_stays_whole(  # noqa: PLR0913, PLR0917  # fixtures, and what varies
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    answer: Callable[[], Exception],
    *,
    of_server: bool,
) -> None:
    """The renamed table would be unreadable for good: the manifest list of its only snapshot was deleted."""
    if of_server:  # which writes the metadata files itself, so that no writer knows of them
        monkeypatch.setattr(own_storage, "note_staged", lambda table, **_: table)
    messages = WRITES[kind](faulty_sink)
    faulty_catalog.fail_next(1, answer, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: rename(sink, "db.t_old") and None)

    faulty_sink.commit(messages)

    for table in (sink, called(sink, "t_old")):
        check_sound(table.table())
        assert table.ids() == [2]


def test_write_that_was_refused_before_the_table_was_renamed_leaves_nothing(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Files would be left that nobody knows of, although the catalog gave its reason."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, forbidden)
    faulty_catalog.after_commit(1, lambda: take_name(sink) and None)

    with pytest.raises(CommitMessageError, match="dropped and made again"):
        faulty_sink.commit(messages)

    assert not any(path.exists() for path in paths_of(messages))
    assert unreferenced_files(called(sink, "t_old").table()) == set()


@pytest.mark.parametrize("when", When)
def test_first_snapshot_goes_into_its_own_table_alone(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, when: When
) -> None:
    """A table would refer to a file in the folder of another one, whose owner deletes it as an orphan."""
    sink.commit(sink.write([]))
    loaded = faulty_sink.table()
    faulty_catalog.fail_next(1, connection_lost, when=when)
    faulty_catalog.after_commit(1, lambda: take_name(sink) and None)

    with pytest.raises(CommitConflictError, match="another table has that name by now"):
        with_first_snapshot(faulty_sink.catalog, faulty_sink.options, loaded)

    check_sound(called(sink, "t_old").table())
    assert sink.table().metadata.snapshots == []


def test_name_that_goes_there_and_back_loses_nothing(sink: Sink) -> None:
    """A job that meets a rename would lose its rows, or write them twice."""
    sink.append(1)
    messages = WRITES["numbered batch"](sink)
    away = rename(sink, "db.away")

    with pytest.raises(CommitConflictError, match="files were left where they are"):
        sink.commit(messages)
    rename(away, "db.t")
    sink.commit(messages)

    assert sink.ids() == [1, 2]


@pytest.mark.parametrize("answer", [connection_lost, false_refusal, None])
def test_branch_that_was_published_before_the_table_was_renamed_is_not_called_missing(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, answer: Callable[[], Exception] | None
) -> None:
    """A user would be told that there is no table, and publish again or write again what readers have."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="audit", create_branch=True)))
    if answer is not None:
        faulty_catalog.fail_next(1, answer, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: rename(sink, "db.t_old") and None)

    with pytest.raises(CommitStateUnknownError, match="it may be renamed, and have the change"):
        publish_branch(faulty_sink.catalog, IDENTIFIER, "audit", "main")

    assert called(sink, "t_old").ids() == [1, 2]
