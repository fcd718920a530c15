"""Commits of writes whose tasks wrote manifests: rows exactly once or not at all, and no file too many or too few."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, forbidden, refusal, throttled
from support.checks.invariants import check_clean, check_sound, stored_files
from support.tables.regions import REGIONS, in_region, partitioned
from support.tables.sink import IDENTIFIER, NAME, Sink, epoch, local, paths_of, rows

import iceberg_ds
from iceberg_ds.commit import retry, write_files
from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError, DataFileError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import TaskCommit
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers import reporting

pytestmark = pytest.mark.usefixtures("waits", "by_manifests")


@pytest.fixture
def by_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every task that wrote a file write a manifest."""
    monkeypatch.setattr(reporting, "MANY_FILES", 1)


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits be tried twice."""
    monkeypatch.setattr(retry.RetryPolicy, "of", lambda _: retry.RetryPolicy(num_retries=1))


def manifests_of(messages: list[TaskCommit]) -> list[str]:
    """Return the manifests that the tasks wrote."""
    return [manifest.path for message in messages for manifest in message.manifests]


def listed(sink: Sink) -> list[str]:
    """Return the manifests of the newest snapshot."""
    table = sink.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [manifest.manifest_path for manifest in snapshot.manifests(table.io)]


def refuse_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no manifest of a task be read."""

    def broken(*_: Any) -> None:
        raise OSError("cannot read it")

    monkeypatch.setattr(write_files, "live_entries", broken)


def version_1(sink: Sink) -> None:
    """Make the table in format version 1, with a row."""
    inner = sink.catalog._catalog
    inner.create_namespace("db")
    inner.create_table(IDENTIFIER, sink.plan().schema, properties={"format-version": "1"})
    sink.append(1)


def upgrade(sink: Sink) -> None:
    """Make it a table of format version 2."""
    with sink.table().transaction() as change:
        change.upgrade_table_version(2)


def test_manifests_of_tasks_are_listed_as_they_are_and_not_read(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver would look at every file of a write of very many."""
    sink.append(1)
    messages = sink.write(rows(2), [], rows(3, 4))
    refuse_to_read(monkeypatch)

    sink.commit(messages)

    assert len(manifests_of(messages)) == 2
    assert all(not message.data_files for message in messages)
    assert listed(sink)[:2] == manifests_of(messages)
    assert sink.ids() == [1, 2, 3, 4]
    check_clean(sink.table())
    found = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)})
    assert "failed" not in {check.outcome for check in found.checks}


def test_first_write_creates_the_table_with_them(sink: Sink) -> None:
    """A first write of very many files would fail."""
    sink.commit(sink.write(rows(1), rows(2), of_epoch=epoch(0)))

    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_tasks_with_few_files_and_with_many_are_one_snapshot(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one kind of task would be lost."""
    plan = sink.plan()
    many = sink.write(rows(1), rows(2), plan=plan)
    monkeypatch.setattr(reporting, "MANY_FILES", 10)
    few = sink.write([], rows(3), plan=plan)

    sink.commit([many[0], few[1]])

    assert sink.ids() == [1, 3]
    assert [len(message.manifests) for message in (many[0], few[1])] == [1, 0]
    assert len(listed(sink)) == 2
    check_sound(sink.table())


def test_summary_is_that_of_single_files(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Totals, and the counts of partitions, would be wrong for good, because each builds on the one before."""
    regional = partitioned(sink, table_properties={"write.summary.partition-limit": "3"})
    parts = [in_region("EU", 1, 2), [*in_region("US", 3), *in_region("EU", 4), *in_region(None, 5)]]
    counts = []
    for many_files in (1, 99):
        monkeypatch.setattr(reporting, "MANY_FILES", many_files)
        regional.commit(regional.write(*parts, schema=REGIONS))
        snapshot = regional.table().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        found = snapshot.summary.additional_properties
        counts.append({name: count for name, count in found.items() if not name.startswith("total-")})

    assert counts[0] == counts[1]
    assert counts[0]["changed-partition-count"] == "3"
    assert counts[0]["partitions.region=EU"].startswith("added-files-size=")
    check_clean(regional.table())


def test_writer_that_loses_a_race_lists_the_same_manifests_with_later_numbers(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Deletes of other engines would apply to the wrong rows, or manifests be written twice."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), rows(3))
    faulty_catalog.before_commit(1, lambda: sink.append(9))
    faulty_catalog.before_commit(2, lambda: sink.append(10))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3, 9, 10]
    entries = sink.table().inspect.entries().to_pylist()
    assert sorted(entry["sequence_number"] for entry in entries) == [1, 2, 3, 4, 4]
    assert listed(sink)[:2] == manifests_of(messages)
    check_clean(sink.table())


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", [refusal, throttled, forbidden])
def test_refused_write_leaves_neither_files_nor_manifests(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """A failed write of very many files would leave them all behind."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), rows(3))
    paths = paths_of(messages)
    faulty_catalog.fail_next(999, error)

    with pytest.raises((CommitConflictError, CatalogError), match=r"[Nn]othing was committed"):
        faulty_sink.commit(messages)

    assert len(paths) == 4
    assert not any(path.exists() for path in paths)
    assert sink.ids() == [1]
    check_clean(sink.table())


@pytest.mark.usefixtures("few_retries")
def test_lost_answers_delete_nothing(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A request that arrives late would bring deleted manifests into the table: a broken table."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(999, connection_lost)

    with pytest.raises(CommitStateUnknownError):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))


@pytest.mark.usefixtures("few_retries")
def test_landing_without_an_answer_keeps_them(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """The manifests of the table's newest rows would be deleted: a broken table."""
    sink.append(1)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    faulty_sink.commit(faulty_sink.write(rows(2)))

    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_write_whose_snapshot_expired_is_known_by_its_manifests(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A batch would be there twice because its answer was lost."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    def others() -> None:
        sink.append(3)
        for snapshot in sink.table().metadata.snapshots[:-1]:
            sink.table().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()

    faulty_catalog.after_commit(1, others)

    assert faulty_sink.commit(messages).snapshot_id == messages[0].write.snapshot_id
    assert sink.ids() == [1, 2, 3]
    check_sound(sink.table())


def test_replayed_epoch_is_skipped_and_its_files_and_manifests_deleted(sink: Sink) -> None:
    """Rows would come twice, or the files of each repetition stay for ever."""
    sink.append(1, of_epoch=epoch(0))
    again = sink.write(rows(1), rows(2), of_epoch=epoch(0))
    paths = paths_of(again)

    assert sink.commit(again).was_replayed
    assert not any(path.exists() for path in paths)
    assert sink.ids() == [1]
    check_clean(sink.table())


def test_with_a_message_missing_files_and_manifests_go(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Every failed job would leave the files of its successful tasks behind."""
    sink.append(1)
    messages = sink.write(rows(2), rows(3))
    paths = paths_of(messages)

    with caplog.at_level(logging.INFO):
        abort_write(sink.catalog, [messages[0], None, messages[1]])

    assert not any(path.exists() for path in paths)
    assert "2 files" in caplog.text
    check_clean(sink.table())


@pytest.mark.usefixtures("few_retries")
def test_catalog_that_stays_away_leaves_no_file(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A failed write would leave files behind that nobody names."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next_loads(999, connection_lost)

    with pytest.raises(CatalogError):
        faulty_sink.commit(messages)

    check_clean(sink.table())


def test_manifest_that_cannot_be_read_stays_with_its_files_and_hides_no_error(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Nobody could find the files any more, or a user would read of the tidying up and not of the failure."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    paths = paths_of(messages)
    faulty_catalog.fail_next(999, forbidden)
    refuse_to_read(monkeypatch)

    with caplog.at_level(logging.WARNING), pytest.raises(CatalogError, match="Nothing was committed"):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths)
    assert f"Left behind {manifests_of(messages)[0]} and the 1 files" in caplog.text
    assert "cannot read it" in caplog.text


@pytest.mark.parametrize("gone", ["manifest", "data file"])
def test_local_files_that_the_driver_does_not_see_are_refused(sink: Sink, gone: str) -> None:
    """On a cluster without a shared disk, a table of missing files would come into being."""
    sink.append(1)
    messages = sink.write(rows(2))
    (manifest,) = messages[0].manifests
    local(manifest.path if gone == "manifest" else manifest.example[0]).unlink()

    with pytest.raises(DataFileError, match=r"the driver sees None"):
        sink.commit(messages)

    assert sink.ids() == [1]


def test_table_that_was_upgraded_meanwhile_gets_manifests_of_its_version(sink: Sink) -> None:
    """Readers would take the rows for older than deletes that were there before them."""
    version_1(sink)
    messages = sink.write(rows(2), rows(3))
    upgrade(sink)

    sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    entries = sink.table().inspect.entries().to_pylist()
    assert sorted(entry["sequence_number"] for entry in entries) == [0, 1, 1]
    assert not set(listed(sink)) & set(manifests_of(messages))
    check_clean(sink.table())


def test_table_that_was_upgraded_between_two_attempts_gets_manifests_of_its_version(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The manifests of the first attempt would be listed, or stay for ever."""
    version_1(sink)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.before_commit(1, lambda: (sink.append(9), upgrade(sink)))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 9]
    assert not set(listed(sink)) & set(manifests_of(messages))
    check_clean(sink.table())


def test_version_1_table_takes_them(sink: Sink) -> None:
    """Old tables could not take many files."""
    version_1(sink)

    messages = sink.write(rows(2), rows(3))
    sink.commit(messages)

    assert listed(sink)[:2] == manifests_of(messages)
    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())


def test_files_of_the_spec_before_an_evolution_keep_it(sink: Sink) -> None:
    """Point look-ups would miss rows, because files would be read under another partitioning."""
    sink.append(1)
    messages = sink.write(rows(2, 3))
    with sink.table().update_spec() as update:
        update.add_field("id", BucketTransform(16), "bucket")
    sink.commit(messages)
    sink.append(4)

    assert sink.ids() == [1, 2, 3, 4]
    for number in range(1, 5):
        assert sink.table().scan(f"id = {number}").to_arrow().num_rows == 1
    check_clean(sink.table())


@pytest.mark.parametrize("options", [{}, {"overwrite_mode": "dynamic"}, {"replace_where": "id >= 0"}], ids=str)
def test_write_that_replaces_rows_names_each_file(sink: Sink, options: dict[str, str]) -> None:
    """The commit could not tell which partitions are replaced."""
    sink.append(1)
    plan = sink.plan(mode=WriteMode.OVERWRITE, **options)

    messages = sink.write(rows(2), plan=plan)

    assert plan.manifests is None
    assert [len(message.data_files) for message in messages] == [1]


def test_log_counts_files_and_rows(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A user could not tell from the log what was written."""
    with caplog.at_level(logging.INFO, logger="iceberg_ds"):
        sink.commit(sink.write(rows(1, 2), rows(3)))

    assert "2 files, 3 rows" in caplog.text


def test_refused_manifests_of_a_fenced_driver_go(sink: Sink) -> None:
    """Each epoch of a second driver would leave files behind."""
    sink.append(1, of_epoch=epoch(4))
    late = sink.write(rows(2), of_epoch=epoch(3))
    before = stored_files(sink.table().location()) - set(paths_of(late))

    with pytest.raises(CommitConflictError, match="already holds epoch 4"):
        sink.commit(late)

    assert stored_files(sink.table().location()) == before


def test_commit_that_failed_on_storage_is_tried_again_with_the_same_manifests(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write would be thrown away because one request to the store failed."""
    messages = sink.write(rows(1))
    new_output, failures = LocalFileIO.new_output, [OSError("slow down")]

    def fail_once(io: LocalFileIO, location: str) -> object:
        if "snap-" in location and failures:
            raise failures.pop()
        return new_output(io, location)

    monkeypatch.setattr(LocalFileIO, "new_output", fail_once)

    sink.commit(messages)

    assert listed(sink) == manifests_of(messages)
    check_clean(sink.table())
