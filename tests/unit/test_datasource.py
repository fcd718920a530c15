"""The adapter to Spark without Spark: what each process gets, and what is refused."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyiceberg.manifest import DataFileContent
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import LongType, StructField, StructType, TimestampType
from support.keys.messages import by_keys
from support.tables.sink import IDENTIFIER, NAME, QUERY, SCHEMA, Sink, arrow_batch, paths_of, rows

from iceberg_ds import datasource
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.datasource import IcebergBatchWriter, IcebergSink, IcebergStreamWriter
from iceberg_ds.errors import CommitMessageError, OptionError, SchemaMismatchError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options.parse import parse_options
from iceberg_ds.spark.driver_secrets import KeptOnDriver

SECRET = "hunter2-s3cr3t"  # noqa: S105  # the thing to hide


class FakeTask:
    """What Spark tells a task about itself."""

    def __init__(self, partition_id: int = 0, **properties: str) -> None:
        self._partition_id = partition_id
        self._properties = {name.replace("__", "."): value for name, value in properties.items()}

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        """Return the number of the partition."""
        return self._partition_id

    def taskAttemptId(self) -> int:  # noqa: N802  # Spark's name
        """Return the number of the attempt."""
        return 100 + self._partition_id

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802  # Spark's name
        """Return what Spark sets for a job."""
        return self._properties.get(key)


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeTask | None], None]:
    """Return what puts this process into a task, or out of any."""

    def enter(task: FakeTask | None) -> None:
        monkeypatch.setattr(datasource.TaskContext, "get", lambda: task)

    return enter


def micro_batch(epoch_id: int, partition_id: int = 0) -> FakeTask:
    """Return a task of that micro-batch."""
    return FakeTask(
        partition_id,
        sql__streaming__queryId=QUERY,
        streaming__sql__batchId=str(epoch_id),
        spark__jobGroup__id="run",
    )


def source(warehouse: Path, **more: str) -> IcebergSink:
    """Return the data source as Spark makes it."""
    return IcebergSink({"path": NAME, "Warehouse": str(warehouse), **more})


def secret_source(tmp_path: Path) -> IcebergSink:
    """Return a data source whose catalog has a secret property."""
    return IcebergSink(
        {
            "path": NAME,
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{tmp_path}/c.db",
            "catalog.warehouse": f"file://{tmp_path}/wh",
            "catalog.token": SECRET,
        }
    )


def secret_sink(tmp_path: Path) -> Sink:
    """Return the table that `secret_source` writes into."""
    options = parse_options({**secret_source(tmp_path).options})
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def fail_as_planned(*_: object, **__: object) -> None:
    """Fail as a commit may."""
    raise OSError("planned")


def batches(*ids: int) -> Any:
    """Return an iterator of one batch with these ids."""
    return iter([arrow_batch(rows(*ids), SCHEMA)])


def shipped(value: Any) -> Any:
    """Return the object as another process gets it."""
    return pickle.loads(cloudpickle.dumps(value))  # noqa: S301  # our own bytes


def test_batch_takes_the_steps_of_sparks_processes(
    sink: Sink, warehouse: Path, in_task: Callable[[FakeTask | None], None]
) -> None:
    """No batch could be written."""
    writer = source(warehouse, **{"small-task-size-bytes": "0"}).writer(SCHEMA, overwrite=False)
    task_side, committer = shipped(writer), shipped(writer)
    messages = []
    for partition_id in range(2):
        in_task(FakeTask(partition_id))
        messages.append(shipped(task_side.write(batches(partition_id))))

    committer.commit(messages)

    assert sink.ids() == [0, 1]
    assert [path.name[:9] for path in sorted(paths_of(messages))] == ["00000-100", "00001-101"]


@pytest.mark.parametrize("is_keyed", [False, True])
@pytest.mark.parametrize("set_zone", [None, "Europe/Paris"])
def test_task_refuses_a_time_zone_that_is_not_the_sessions(
    sink: Sink, in_task: Callable[[FakeTask | None], None], set_zone: str | None, *, is_keyed: bool
) -> None:
    """Rows of another range than the one that was asked for would be replaced, or other rows be deletes."""
    seen = StructType([*SCHEMA, StructField("at", TimestampType())])
    plan = replace(sink.plan(seen), time_zone="Asia/Tokyo")
    writer = IcebergBatchWriter({}, by_keys(plan) if is_keyed else plan)
    in_task(FakeTask(**({} if set_zone is None else {"spark__sql__session__timeZone": set_zone})))
    told = [arrow_batch(rows(1), seen, timezone="Europe/Paris")] if set_zone is None else list(batches(1))

    with pytest.raises(OptionError, match="'time-zone' is Asia/Tokyo, and the session's time zone is Europe/Paris"):
        writer.write(iter(told))


def test_a_task_of_a_write_by_keys_tells_of_its_keys(sink: Sink, in_task: Callable[[FakeTask | None], None]) -> None:
    """No stream of changes could be committed."""
    plan = by_keys(replace(sink.plan(), small_task_size_bytes=10**6))
    messages = []
    batch, stream = IcebergBatchWriter({}, plan), IcebergStreamWriter(sink.options, plan)
    for writer, task in ((batch, FakeTask(3)), (stream, micro_batch(4, 3))):
        in_task(task)
        messages.append(shipped(writer.write(batches(1, 2))))

    for message in messages:
        assert [file.content for file in message.data_files] == [DataFileContent.DATA]
        assert [file.content for file in message.delete_files] == [DataFileContent.EQUALITY_DELETES]
        assert message.keys.count == 2
        assert (message.partition_id, message.rows, message.write.changes) == (3, None, plan.write.changes)
    assert messages[1].write.epoch.epoch_id == 4


def test_stream_takes_the_steps_of_sparks_processes(
    sink: Sink, warehouse: Path, in_task: Callable[[FakeTask | None], None]
) -> None:
    """No stream could be written, or a restarted one would have rows twice."""
    planner = source(warehouse)
    task_side = shipped(planner.streamWriter(SCHEMA, overwrite=False))
    in_task(micro_batch(4))
    message = shipped(task_side.write(batches(1)))
    committer = shipped(planner).streamWriter(SCHEMA, overwrite=False)

    committer.commit([message], 4)
    again = shipped(planner.streamWriter(SCHEMA, overwrite=False)).write(batches(1))
    committer.commit([again], 4)

    assert sink.ids() == [1]
    assert isinstance(message, TaskCommit)
    assert message.write.epoch is not None
    assert (message.write.epoch.query_id, message.write.epoch.epoch_id) == (QUERY, 4)
    assert message.write.epoch.run_id == "run"


@pytest.mark.parametrize("more", [{}, {"route-by": "name", "route-namespace": "db"}], ids=["one", "many"])
@pytest.mark.parametrize("maintenance", ["auto", "off"])
def test_committer_maintains_what_it_has_committed_if_asked(
    warehouse: Path,
    in_task: Callable[[FakeTask | None], None],
    monkeypatch: pytest.MonkeyPatch,
    maintenance: str,
    more: dict[str, str],
) -> None:
    """The option would have no effect in some writes, or maintenance be done that nobody asked for."""
    asked: list[Any] = []

    def note(_: object, options_of: Callable[[str], Any], results: Any) -> None:
        asked.extend((options_of(one.seen.table).maintenance, one.seen.table) for one in results)

    monkeypatch.setattr("iceberg_ds.maintenance.auto.maintain_after", note)
    planner = IcebergSink({"Warehouse": str(warehouse), "maintenance": maintenance, **(more or {"path": NAME})})
    in_task(micro_batch(4))
    message = shipped(planner.streamWriter(SCHEMA, overwrite=False)).write(batches(1))
    shipped(planner).streamWriter(SCHEMA, overwrite=False).commit([message], 4)

    table = "db.`row 1`" if more else NAME
    assert asked == ([("auto", table)] if maintenance == "auto" else [])


def test_committer_of_a_stream_plans_nothing(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every micro-batch would ask the catalog twice, and the committer would invent another write."""
    committer = shipped(source(warehouse))
    monkeypatch.setattr(datasource, "_plan", lambda *_: pytest.fail("planned"))

    writer = committer.streamWriter(SCHEMA, overwrite=False)

    with pytest.raises(CommitMessageError, match="made to commit"):
        writer.write(batches(1))


@pytest.mark.parametrize("times_pickled", [0, 1, 5])
def test_no_pickle_of_a_batch_tells_the_catalogs_options_and_each_can_commit(
    tmp_path: Path, in_task: Callable[[FakeTask | None], None], times_pickled: int
) -> None:
    """A Spark that pickles in another order, or once more, would send the credential to every executor."""
    writer = secret_source(tmp_path).writer(SCHEMA, overwrite=False)
    pickles = [cloudpickle.dumps(writer) for _ in range(times_pickled)]
    pickles.append(cloudpickle.dumps((lambda: writer, "as Spark ships it to tasks")))
    pickles.append(cloudpickle.dumps(writer))
    in_task(FakeTask())
    message = shipped(shipped(writer).write(batches(1)))

    pickle.loads(pickles[0 if times_pickled else -1]).commit([message])  # noqa: S301  # our own bytes

    assert not any(SECRET.encode() in pickled for pickled in pickles)
    assert not any(b"catalog." in pickled for pickled in pickles)
    assert secret_sink(tmp_path).ids() == [1]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_what_the_driver_keeps_is_noise_and_goes_with_the_end_of_the_batch(
    tmp_path: Path, in_task: Callable[[FakeTask | None], None], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The credential would lie on the driver's disk, where a backup or another user finds it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    writer = secret_source(tmp_path).writer(SCHEMA, overwrite=False)
    (kept,) = (tmp_path / "tmp").iterdir()
    content, mode = kept.read_bytes(), stat.S_IMODE(kept.stat().st_mode)
    in_task(FakeTask())

    getattr(shipped(writer), end)([shipped(shipped(writer).write(batches(1)))])

    assert SECRET.encode() not in content
    assert mode == stat.S_IRUSR | stat.S_IWUSR
    assert list((tmp_path / "tmp").iterdir()) == []


def test_batch_keeps_what_it_needs_to_clean_up_until_it_has(
    tmp_path: Path, in_task: Callable[[FakeTask | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts in another process after a commit that failed, and the files of the job would stay for ever."""
    writer = secret_source(tmp_path).writer(SCHEMA, overwrite=False)
    in_task(FakeTask())
    message = shipped(shipped(writer).write(batches(1)))
    committer = shipped(writer)
    monkeypatch.setattr(datasource, "_commit", fail_as_planned)
    with pytest.raises(OSError, match="planned"):
        committer.commit([message])

    shipped(writer).abort([message, None])

    assert not any(path.exists() for path in paths_of([message]))


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda kept: kept.write_bytes(b"noise")], ids=["gone", "changed"])
def test_batch_on_another_machine_than_its_planners_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, damage: Callable[[Path], object]
) -> None:
    """A user would look for a broken catalog, or take an unknown state for a commit."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    writer = secret_source(tmp_path).writer(SCHEMA, overwrite=False)
    (kept,) = (tmp_path / "tmp").iterdir()
    damage(kept)

    with pytest.raises(CommitMessageError, match=r"nothing was committed .*no file was deleted"):
        getattr(shipped(writer), end)([None])


def test_batch_whose_catalog_cannot_be_kept_from_tasks_is_refused_when_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job would run for hours before it fails, or send the credential to every executor."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    with pytest.raises(OptionError, match="Set TMPDIR"):
        secret_source(tmp_path).writer(SCHEMA, overwrite=False)


def test_batch_that_finds_the_drivers_disk_full_leaves_nothing_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try of a job would leave a further file on a disk that is full already."""

    def disk_full(descriptor: int, _: str) -> NoReturn:
        os.close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fdopen", disk_full)

    with pytest.raises(OptionError, match="No space left on device"):
        KeptOnDriver.keep({"catalog.token": SECRET})

    assert list(tmp_path.iterdir()) == []


def test_batch_without_options_of_the_catalog_leaves_nothing_on_the_driver(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch of a catalog that the environment configures would cost a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    assert shipped(source(warehouse).writer(SCHEMA, overwrite=False))._of_catalog.file is None


def test_tasks_of_a_stream_get_no_options(tmp_path: Path) -> None:
    """The catalog's credential would travel to every executor."""
    writer = secret_source(tmp_path).streamWriter(SCHEMA, overwrite=False)

    assert all(SECRET.encode() not in cloudpickle.dumps(writer) for _ in range(2))


def test_messages_hold_no_secret(tmp_path: Path, in_task: Callable[[FakeTask | None], None]) -> None:
    """The catalog's credential would travel through Spark's messages."""
    writer = secret_source(tmp_path).writer(SCHEMA, overwrite=False)
    in_task(FakeTask())

    assert SECRET.encode() not in pickle.dumps(writer.write(batches(1)))


def test_abort_deletes_what_no_commit_knows(warehouse: Path, in_task: Callable[[FakeTask | None], None]) -> None:
    """Every failed job would leave the files of its successful tasks behind."""
    batch = source(warehouse).writer(SCHEMA, overwrite=False)
    stream = source(warehouse).streamWriter(SCHEMA, overwrite=False)
    in_task(micro_batch(0))
    of_batch, of_stream = batch.write(batches(1)), stream.write(batches(1))

    batch.abort([of_batch, None])
    stream.abort([of_stream, None], 0)

    assert not any(path.exists() for path in paths_of([of_batch, of_stream]))


def test_refused_epoch_is_logged_because_a_continuous_query_shows_no_exception(
    warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A continuous query would lose every row without a word."""
    writer = shipped(source(warehouse)).streamWriter(SCHEMA, overwrite=False)

    with pytest.raises(CommitMessageError, match="continuous"):
        writer.commit([], 3)

    assert "Epoch 3 was not committed" in caplog.text


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
@pytest.mark.parametrize(("overwrite", "kept"), [(True, False), (False, True)], ids=["overwrite", "append"])
def test_sparks_mode_decides_what_becomes_of_the_old_rows(
    warehouse: Path,
    kind: str,
    overwrite: bool,  # noqa: FBT001  # as Spark passes it
    kept: bool,  # noqa: FBT001
) -> None:
    """A user who asks for a replacement would get an append, or lose a table by an append."""
    writer = getattr(source(warehouse), kind)(SCHEMA, overwrite=overwrite)

    assert (writer._plan.write.overwrite is None) == kept


@pytest.mark.parametrize(
    "read",
    [
        lambda given: given.schema(),
        lambda given: given.reader(SCHEMA),
        lambda given: given.streamReader(SCHEMA),
    ],
    ids=["schema", "reader", "streamReader"],
)
def test_reading_is_refused_with_what_to_use(warehouse: Path, read: Callable[[IcebergSink], Any]) -> None:
    """A user would be told that something is not implemented, and not what to use."""
    with pytest.raises(OptionError, match="it only writes"):
        read(source(warehouse))


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_bad_options_are_refused_when_planning(warehouse: Path, kind: str) -> None:
    """A job would run for hours before it fails."""
    with pytest.raises(OptionError, match="unknown option 'bogus'"):
        getattr(source(warehouse, bogus="1"), kind)(SCHEMA, overwrite=False)


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_bad_columns_are_refused_when_planning(sink: Sink, warehouse: Path, kind: str) -> None:
    """A job would run for hours before it fails."""
    sink.append(1)
    others = StructType([*SCHEMA, StructField("other", LongType())])

    with pytest.raises(SchemaMismatchError, match="column 'other'"):
        getattr(source(warehouse), kind)(others, overwrite=False)


def test_option_names_are_taken_in_any_case(warehouse: Path) -> None:
    """A user of `DataFrameWriter.options` would be refused for the spelling that they are used to."""
    writer = IcebergSink({"PATH": NAME, "WareHouse": str(warehouse), "Target-File-Size-Bytes": "7"}).writer(
        SCHEMA, overwrite=False
    )

    assert writer._plan.write.files.target_file_size_bytes == 7


def test_making_the_source_touches_no_catalog(tmp_path: Path) -> None:
    """Every start of a process would create folders and connections."""
    source(tmp_path / "never")

    assert list(tmp_path.iterdir()) == []


def test_writing_outside_a_task_is_refused(warehouse: Path, in_task: Callable[[FakeTask | None], None]) -> None:
    """Files would get names that other tasks use."""
    writer = source(warehouse).writer(SCHEMA, overwrite=False)
    in_task(None)

    with pytest.raises(CommitMessageError, match="not a Spark task"):
        writer.write(batches(1))


def test_micro_batch_without_its_identity_is_refused(
    sink: Sink, warehouse: Path, in_task: Callable[[FakeTask | None], None]
) -> None:
    """A stream would have no record of what landed, and rows twice after a restart."""
    writer = source(warehouse).streamWriter(SCHEMA, overwrite=False)
    in_task(FakeTask())

    with pytest.raises(CommitMessageError, match="neither its query nor its epoch"):
        writer.write(batches(1))

    assert sink.catalog.find_table(IDENTIFIER) is None


def test_spark_gets_arrow_writers(warehouse: Path) -> None:
    """Rows would be turned into Python objects one by one."""
    batch = source(warehouse).writer(SCHEMA, overwrite=False)
    stream = source(warehouse).streamWriter(SCHEMA, overwrite=False)

    assert isinstance(batch, DataSourceArrowWriter)
    assert isinstance(stream, datasource.DataSourceStreamArrowWriter)
