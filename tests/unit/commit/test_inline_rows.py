"""Rows that tasks hand over: one file for all of them, each row once whatever fails, and no file too many."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, forbidden, refusal
from support.checks.invariants import check_clean, check_sound, stored_files, unreferenced_files
from support.tables.sink import SCHEMA, Sink, epoch, local, rows

from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    CommitStateUnknownError,
    DataFileError,
    RefusedRowsError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.messages import RowCounts
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers import rolling

pytestmark = pytest.mark.usefixtures("waits")

BY_NAME = {"partition_by": "name"}
IN_COMMIT = (
    FaultPoint.FILE_OPENED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
)


class DiedError(BaseException):
    """The process is gone: what would have run afterwards does not."""


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FaultPoint]]:
    """Let the process die at the step that a test puts into the list: not even files are deleted then."""
    steps: list[FaultPoint] = []

    def die(step: FaultPoint) -> None:
        if step in steps:
            monkeypatch.setattr("iceberg_ds.writers.task_writer.TaskWriter.discard", lambda _: None)
            raise DiedError

    listen(die)
    yield steps
    listen(None)


def data_files(sink: Sink) -> set[Path]:
    """Return the table's data files, those too that nothing refers to."""
    return {path for path in stored_files(sink.table().metadata.location) if path.suffix == ".parquet"}


def added(sink: Sink) -> int:
    """Return how many files the newest snapshot added."""
    snapshot = sink.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["added-data-files"] or 0)


def test_rows_of_all_tasks_become_one_file(sink: Sink) -> None:
    """Every micro-batch would leave as many small files as it has tasks."""
    messages = sink.hand_over(rows(1, 2), rows(), rows(3), rows(4))
    assert not any(message.data_files for message in messages)

    sink.commit(messages)

    assert sink.rows() == rows(1, 2, 3, 4)
    (path,) = data_files(sink)
    assert messages[0].write.operation_id in path.name  # or verify could not tell whose it is
    check_clean(sink.table())


def test_file_has_what_a_tasks_own_file_has(sink: Sink) -> None:
    """Readers would prune less, or not find columns by their ids."""
    sink.commit(sink.write(rows(1, 2)))
    sink.commit(sink.hand_over(rows(1), rows(2)))

    first, second = (task.file for task in sink.table().scan().plan_files())
    for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "spec_id", "sort_order_id"):
        assert getattr(first, name) == getattr(second, name)
    written = [pq.read_metadata(local(file.file_path)) for file in (first, second)]
    assert written[0].schema.to_arrow_schema() == written[1].schema.to_arrow_schema()
    assert written[0].row_group(0).column(0).compression == written[1].row_group(0).column(0).compression


def test_rows_of_one_partition_share_a_file_and_are_sorted(sink: Sink) -> None:
    """Files would hold rows of several partitions, or be out of the table's order."""
    sink = replace(sink, options=replace(sink.options, **_parsed(sink, partition_by="truncate(3, name)", sort_by="id")))

    sink.commit(sink.hand_over(rows(3, 1), rows(2)))

    assert added(sink) == 1
    (task,) = sink.table().scan().plan_files()
    assert pq.read_table(local(task.file.file_path))["id"].to_pylist() == [1, 2, 3]
    assert task.file.sort_order_id == 1


def _parsed(sink: Sink, **options: str) -> dict[str, object]:
    from support.tables.sink import embedded_options  # noqa: PLC0415

    made = embedded_options(Path(sink.options.warehouse or ""), **options)
    return {name: getattr(made, name) for name in options}


@pytest.mark.parametrize("step", IN_COMMIT, ids=lambda step: step.name)
def test_replay_after_a_death_in_the_commit_has_each_row_once(
    sink: Sink, dies_at: list[FaultPoint], step: FaultPoint
) -> None:
    """Rows of the epoch would be lost, or be there twice."""
    sink.commit(sink.hand_over(rows(1), rows(2), of_epoch=epoch(0)))
    dies_at.append(step)
    with pytest.raises(DiedError):
        sink.commit(sink.hand_over(rows(3), rows(4), of_epoch=epoch(1)))
    dies_at.clear()
    check_sound(sink.table())

    sink.commit(sink.hand_over(rows(3), rows(4), of_epoch=epoch(1)))

    assert sink.ids() == [1, 2, 3, 4]
    check_sound(sink.table())


def test_replayed_epoch_writes_nothing(sink: Sink) -> None:
    """Every restart of a stream would leave a file that nobody reads, or write one for nothing."""
    sink.commit(sink.hand_over(rows(1), rows(2), of_epoch=epoch(0)))
    before = stored_files(sink.table().metadata.location)
    steps: list[FaultPoint] = []
    replayed = sink.hand_over(rows(1), rows(2), of_epoch=epoch(0))
    listen(steps.append)
    try:
        result = sink.commit(replayed)
    finally:
        listen(None)

    assert result.was_replayed
    assert FaultPoint.FILE_OPENED not in steps
    assert stored_files(sink.table().metadata.location) == before
    assert sink.ids() == [1, 2]


def test_same_messages_twice_land_once(sink: Sink) -> None:
    """Rows would be there twice if a commit that landed were asked for again."""
    messages = sink.hand_over(rows(1), rows(2))
    first = sink.commit(messages)

    assert sink.commit(messages) == first
    assert sink.ids() == [1, 2]
    assert len(data_files(sink)) == 1


def test_doubled_message_is_refused(sink: Sink) -> None:
    """Its rows would be there twice."""
    message, _ = sink.hand_over(rows(1), rows(2))

    with pytest.raises(CommitMessageError, match="must come once"):
        sink.commit([message, message])


def test_missing_message_is_refused(sink: Sink) -> None:
    """The rows of a task would be lost."""
    message, _ = sink.hand_over(rows(1), rows(2))

    with pytest.raises(CommitMessageError, match="missing"):
        sink.commit([message, None])


def test_file_is_written_once_whatever_the_number_of_attempts(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Each lost race would write the rows again and leave a file behind."""
    sink.append(1)
    messages = faulty_sink.hand_over(rows(2), rows(3))
    faulty_catalog.fail_next(3, refusal)

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())
    assert len(data_files(sink)) == 2


def test_refused_write_leaves_no_file(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """Storage would fill with files of writes that never were."""
    sink.append(1)
    messages = faulty_sink.hand_over(rows(2), rows(3))
    faulty_catalog.fail_next(200, forbidden)

    with pytest.raises(CatalogError):
        faulty_sink.commit(messages)

    assert sink.ids() == [1]
    assert not unreferenced_files(sink.table())


def test_file_of_an_unknown_outcome_stays(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """The table would lose its rows if the request was carried out late."""
    sink.append(1)
    messages = faulty_sink.hand_over(rows(2), rows(3))
    faulty_catalog.fail_next(200, connection_lost)

    with pytest.raises(CommitStateUnknownError):
        faulty_sink.commit(messages)
    abort_write(sink.catalog, messages)

    assert len(data_files(sink)) == 2


def test_answer_that_was_lost_after_landing_is_found(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows would be there twice."""
    sink.append(1)
    messages = faulty_sink.hand_over(rows(2), rows(3))
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())


def test_table_that_another_writer_creates_first_gets_the_rows(sink: Sink) -> None:
    """The rows would be lost, or be written below a table that is not there."""
    messages = sink.hand_over(rows(2), rows(3))
    sink.append(1)

    sink.commit(messages)

    assert sink.ids() == [1, 2, 3]


def test_store_that_fails_once_is_tried_again(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment's trouble of the store would fail the stream."""
    sink.append(1)
    messages = sink.hand_over(rows(2), rows(3))
    close = rolling.ParquetFile.close
    failures = [OSError("slow down")]

    def fail_once(self: rolling.ParquetFile, *given: object) -> object:
        if failures:
            raise failures.pop()
        return close(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(rolling.ParquetFile, "close", fail_once)

    sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())


def test_store_that_refuses_for_good_fails_the_commit_at_once(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """A wrong certificate or a missing right would be told of after many minutes, and not as tasks tell of it."""
    sink.append(1)
    messages = sink.hand_over(rows(2), rows(3))

    def refuse(*_: object) -> object:
        raise PermissionError(errno.EACCES, "AccessDenied when calling PutObject: Access Denied")

    monkeypatch.setattr(rolling.ParquetFile, "close", refuse)

    with pytest.raises(DataFileError, match=r"Cannot write a data file.*Access Denied"):
        sink.commit(messages)

    assert len(waits) == 1
    assert sink.ids() == [1]
    check_clean(sink.table())


def test_dynamic_overwrite_replaces_the_partitions_of_the_rows(sink: Sink) -> None:
    """Partitions would keep rows that were replaced, or lose rows that were not."""
    sink = replace(sink, options=replace(sink.options, **_parsed(sink, partition_by="id")))
    sink.append(1, 2)
    plan = sink.plan(SCHEMA, WriteMode.OVERWRITE, overwrite_mode="dynamic")

    sink.commit(sink.hand_over([{"id": 2, "name": "new"}], rows(3), plan=plan))

    assert sink.rows() == [*rows(1), {"id": 2, "name": "new"}, *rows(3)]


def test_static_overwrite_replaces_all_rows(sink: Sink) -> None:
    """Old rows would stay beside the new ones."""
    sink.append(1, 2)

    sink.commit(sink.hand_over(rows(3), rows(4), plan=sink.plan(SCHEMA, WriteMode.OVERWRITE)))

    assert sink.ids() == [3, 4]


def test_rows_outside_the_replaced_range_are_refused_as_ever(sink: Sink) -> None:
    """They would stay beside the rows that the next such write replaces."""
    sink.append(1, 2)
    plan = sink.plan(SCHEMA, WriteMode.OVERWRITE, replace_where="id >= 2")

    with pytest.raises(RefusedRowsError, match="2 rows do not satisfy replace-where"):
        sink.commit(sink.hand_over(rows(2, 1), rows(0), plan=plan))

    assert sink.ids() == [1, 2]
    assert not unreferenced_files(sink.table())


def test_columns_and_rows_can_be_replaced_at_once(sink: Sink) -> None:
    """Rows of a new schema would be written in the old one."""
    sink.append(1, 2)
    wider = StructType([*SCHEMA.fields, StructField("n", LongType())])
    plan = sink.plan(wider, WriteMode.OVERWRITE, schema_evolution="full")

    sink.commit(sink.hand_over([{**rows(3)[0], "n": 7}], schema=wider, plan=plan))

    assert sink.rows() == [{"id": 3, "name": "row 3", "n": 7}]


def test_columns_that_another_writer_adds_meanwhile_are_null(sink: Sink) -> None:
    """The rows would be refused, or be read under the wrong columns."""
    sink.append(1)
    messages = sink.hand_over(rows(2), rows(3))
    wider = StructType([*SCHEMA.fields, StructField("note", StringType())])
    sink.plan(wider, schema_evolution="add-columns")

    sink.commit(messages)

    assert sink.rows() == [{**row, "note": None} for row in rows(1, 2, 3)]


def test_rows_of_another_table_made_again_are_refused(sink: Sink) -> None:
    """Rows would land in a table that only has the same name."""
    sink.append(1)
    messages = sink.hand_over(rows(2))
    sink.catalog.raw.drop_table(sink.options.table)
    sink.append(3)

    with pytest.raises(CommitMessageError, match="dropped and made again"):
        sink.commit(messages)

    assert sink.ids() == [3]


def test_rows_that_do_not_fit_the_schema_are_refused_at_once(sink: Sink) -> None:
    """Values of a damaged message would land under the wrong columns."""
    sink.append(1)
    (message,) = sink.hand_over(rows(2))
    assert message.rows is not None
    damaged = replace(message, rows=replace(message.rows, record_count=7), counts=RowCounts(received=7))

    with pytest.raises(CommitMessageError, match="handed over"):
        sink.commit([damaged])

    assert sink.ids() == [1]
    assert not unreferenced_files(sink.table())


def test_spec_that_is_gone_is_refused(sink: Sink) -> None:
    """The table would get files that no reader can plan."""
    sink.append(1)
    (message,) = sink.hand_over(rows(2))
    assert message.rows is not None
    strange = replace(message, rows=replace(message.rows, spec_id=9))

    with pytest.raises(CommitMessageError, match=r"no partition spec \[9\]"):
        sink.commit([strange])

    assert sink.ids() == [1]


def test_fenced_write_writes_nothing(sink: Sink) -> None:
    """A second driver of a query would leave a file with each epoch."""
    sink.commit(sink.hand_over(rows(1), of_epoch=epoch(5)))
    before = stored_files(sink.table().metadata.location)

    with pytest.raises(CommitConflictError, match="already holds epoch 5"):
        sink.commit(sink.hand_over(rows(2), of_epoch=epoch(4)))

    assert stored_files(sink.table().metadata.location) == before
