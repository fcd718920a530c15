"""How a task tells of its files: by a manifest if they are many, and with nothing left behind if that fails."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, ManifestFile
from support.checks.invariants import stored_files
from support.keys.messages import by_keys
from support.tables.regions import REGIONS, in_region, partitioned
from support.tables.sink import Sink, arrow_batch, local

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.plan import WritePlan
from iceberg_ds.snapshots.manifests import live_entries
from iceberg_ds.writers import reporting
from iceberg_ds.writers.reporting import report_files
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

ATTEMPT = TaskAttempt(partition_id=3, task_attempt_id=41)
IO = LocalFileIO()


@pytest.fixture
def plan(sink: Sink) -> WritePlan:
    """Return the plan of a write into a table by region."""
    return partitioned(sink).plan(REGIONS)


def files_of(plan: WritePlan, count: int) -> tuple[DataFile, ...]:
    """Write so many files, one a region."""
    batch = arrow_batch([row for number in range(count) for row in in_region(f"R{number:03d}", number)], REGIONS)
    return write_task(plan, [batch], ATTEMPT)


def entries_of(manifest: ManifestFile) -> list[DataFile]:
    """Return the files that a manifest names."""
    return [entry.data_file for entry in live_entries(IO, manifest)]


@pytest.mark.parametrize(("count", "is_manifest"), [(63, False), (64, True)])
def test_many_files_are_told_by_a_manifest(plan: WritePlan, count: int, *, is_manifest: bool) -> None:
    """The driver would look at every file of a large write; or a small one would cost each task another file."""
    files = files_of(plan, count)

    report = report_files(plan, ATTEMPT, files)

    assert (len(report.data_files), len(report.manifests)) == ((0, 1) if is_manifest else (count, 0))


def test_write_by_keys_names_each_file(plan: WritePlan) -> None:
    """The commit could not hide a row whose key another task met later."""
    files = files_of(plan, 64)

    report = report_files(by_keys(plan), ATTEMPT, files)

    assert (report.data_files, report.manifests) == (files, ())


def test_manifest_says_all_that_the_commit_needs(plan: WritePlan) -> None:
    """Readers would skip files by wrong bounds, or the summary count wrong."""
    files = files_of(plan, 70)

    (manifest,) = report_files(plan, ATTEMPT, files).manifests

    assert [found.file_path for found in entries_of(manifest.file)] == [file.file_path for file in files]
    assert manifest.file.added_snapshot_id == plan.write.snapshot_id
    assert manifest.file.added_files_count == manifest.totals.files == 70
    assert manifest.file.added_rows_count == manifest.totals.rows == 70
    assert manifest.totals.size_bytes == sum(file.file_size_in_bytes for file in files)
    assert len(manifest.totals.partitions) == 70
    assert manifest.file.partitions is not None
    assert (manifest.file.partitions[0].lower_bound, manifest.file.partitions[0].upper_bound) == (b"R000", b"R069")
    assert manifest.file.manifest_length == local(manifest.path).stat().st_size
    assert f"00003-41-{plan.write.operation_id}" in manifest.path


def test_message_is_small_and_arrives_whole(plan: WritePlan) -> None:
    """The driver would run out of memory, because it holds the messages of all tasks."""
    files = files_of(plan, 100)
    report = report_files(plan, ATTEMPT, files)
    write = plan.write

    singly, by_manifest = (
        pickle.dumps(TaskCommit(write, 3, named, None, manifests=manifests, counts=RowCounts(received=100)))
        for named, manifests in ((files, ()), ((), report.manifests))
    )

    arrived = pickle.loads(by_manifest)  # noqa: S301  # our own bytes
    assert arrived.manifests[0].path == report.manifests[0].path
    assert arrived.manifests[0].totals == report.manifests[0].totals
    assert list(arrived.manifests[0].file.partitions[0]._data) == list(report.manifests[0].file.partitions[0]._data)
    assert (
        len(singly) - len(pickle.dumps(TaskCommit(write, 3, (), counts=RowCounts(received=0))))
        > 5 * len(by_manifest) / 2
    )


def test_plan_stays_a_few_kilobytes(plan: WritePlan) -> None:
    """Spark ships the plan to every task of every micro-batch."""
    assert len(pickle.dumps(plan)) < 8 * 1024
    assert len(pickle.dumps(replace(by_keys(plan), frame=plan.schema))) < 8 * 1024


def test_manifest_that_cannot_be_written_fails_nothing_and_leaves_nothing(
    plan: WritePlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job would fail although all its rows are written."""
    files = files_of(plan, 64)
    before = stored_files(plan.location)
    write_manifest = reporting.write_manifest

    def broken(*given: Any) -> None:
        write_manifest(*given)
        raise OSError("disk full")

    monkeypatch.setattr(reporting, "write_manifest", broken)

    with caplog.at_level(logging.WARNING):
        report = report_files(plan, ATTEMPT, files)

    assert report.data_files == files
    assert report.manifests == ()
    assert stored_files(plan.location) == before
    assert "disk full" in caplog.text


def test_task_that_is_stopped_meanwhile_leaves_nothing(plan: WritePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every killed task would leave its files behind."""
    files = files_of(plan, 64)
    write_manifest = reporting.write_manifest

    def stopped(*given: Any) -> None:
        write_manifest(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(reporting, "write_manifest", stopped)

    with pytest.raises(KeyboardInterrupt):
        report_files(plan, ATTEMPT, files)

    assert stored_files(plan.location) == set()
