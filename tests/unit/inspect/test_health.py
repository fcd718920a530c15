"""`table_health`: figures of real tables, of every writer and kind, and of histories that were built by hand."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from support.tables.changes_by_others import head_of, plain_table, set_tag
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.metadata import ID_AND_NAME, START_MS, Past, after_expiry, line, metadata_of
from support.tables.sink import NAME, QUERY, Sink, embedded_options, local, rows

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import DataFileError, OptionError, TableNotFoundError
from iceberg_ds.inspect import file_counts
from iceberg_ds.inspect.contents import ListedFile
from iceberg_ds.inspect.file_counts import FileCounter, FileCounts, SnapshotCounts
from iceberg_ds.inspect.health import HealthReader, age_text, health_of, size_text, small_below_bytes
from iceberg_ds.maintenance.rewrite_data_files import rewrite_data_files
from iceberg_ds.maintenance.rewrite_manifests import rewrite_manifests
from iceberg_ds.messages import TaskMetrics
from iceberg_ds.metrics.report import TaskFigures
from iceberg_ds.snapshots.txn import EPOCHS, TXNS, StreamRecord, TxnMarker, marker_property, stream_property

OTHER = "11111111-2222-4333-8444-555566667777"


def look(sink: Sink, branch: str | None = None) -> iceberg_ds.TableHealth:
    """Return how the table does, as a user asks."""
    return iceberg_ds.table_health(NAME, options={"warehouse": str(sink.options.warehouse)}, branch=branch)


def told(metadata: TableMetadata, now_ms: int = START_MS + 60_000, branch: str = "main") -> iceberg_ds.TableHealth:
    """Return how a table without files does at that time."""
    return health_of(metadata, NAME, branch, SnapshotCounts(), metadata_bytes=1000, now_ms=now_ms)


def stored(sink: Sink) -> dict[Path, int]:
    """Return all files of the warehouse with the time of their last change."""
    return {path: path.stat().st_mtime_ns for path in Path(str(sink.options.warehouse)).rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", ["1", "2"])
def test_table_of_another_writer_is_counted(sink: Sink, version: str) -> None:
    """A user could watch the tables of this sink only."""
    sink.create(ID_AND_NAME, format_version=version)
    for count in (1, 2, 3):
        plain_table(sink).append(pa.Table.from_pylist(rows(*range(count))))

    health = look(sink)

    files = [entry.data_file for entry in entries(sink)]
    sizes = [local(file.file_path).stat().st_size for file in files]
    assert (health.rows, health.data_files, health.delete_files, health.snapshots) == (6, 3, 0, 3)
    assert (health.bytes, health.average_file_bytes, health.small_files) == (sum(sizes), sum(sizes) / 3, 3)
    assert health.metadata_bytes == local(sink.table().metadata_location).stat().st_size
    assert (health.data_manifests, health.delete_manifests, health.format_version) == (3, 0, int(version))
    assert (health.files_read, health.is_complete, health.writers) == (3, True, ())
    assert health.lag_s is None
    assert health.last_commit_age_s is not None
    assert 0 <= health.last_commit_age_s < 60


def test_deletes_are_counted_by_kind(sink: Sink) -> None:
    """A user would not see why reads get slower, or how many rows readers drop."""
    sink.append(*range(10))
    sink.append(*range(10, 20))
    paths = [entry.data_file.file_path for entry in entries(sink)]
    delete_positions(sink, paths[0], [0, 1])
    delete_positions(sink, paths[1], [5])
    delete_ids(sink, 7, 8, 9, 10)

    health = look(sink)

    assert (health.rows, health.data_files, health.delete_files) == (20, 2, 3)
    assert (health.equality_delete_files, health.equality_deletes) == (1, 4)
    assert (health.position_delete_files, health.position_deletes) == (2, 3)
    assert (health.delete_manifests, health.deletes_per_file, health.hidden_rows_at_most) == (3, 1.5, 7)
    sizes = [local(entry.data_file.file_path).stat().st_size for entry in entries(sink)]
    assert health.bytes == sum(sizes)
    assert "1 equality and 2 position delete files, 1.50 for each data file; they hide at most 7 rows" in str(health)


def test_deletes_hide_no_more_rows_than_there_are(sink: Sink) -> None:
    """A stream by keys, which deletes keys that are new, would seem to hide a multiple of the table."""
    sink.append(1, 2)
    delete_ids(sink, 3, 4, 5)

    assert look(sink).hidden_rows_at_most == 2


def test_table_without_snapshots_has_zeros_and_no_age(sink: Sink) -> None:
    """A table that waits for its first write would end the command with an error."""
    sink.create(ID_AND_NAME)

    health = look(sink)

    assert (health.rows, health.data_files, health.bytes, health.snapshots, health.data_manifests) == (0, 0, 0, 0, 0)
    assert (health.last_commit_ms, health.last_commit_age_s, health.average_file_bytes) == (None, None, None)
    assert (health.forecast, health.deletes_per_file) == (None, 0)
    assert "too short" in str(health)


def test_table_that_was_emptied_has_an_age_and_no_files(sink: Sink) -> None:
    """A division by its number of files would end the command with an error."""
    sink.append(1, 2)
    plain_table(sink).delete(AlwaysTrue())

    health = look(sink)

    assert (health.rows, health.data_files, health.small_files, health.average_file_bytes) == (0, 0, 0, None)
    assert health.last_commit_age_s is not None


def test_each_branch_has_figures_of_its_own(sink: Sink) -> None:
    """A user would watch main in place of the branch that the stream writes."""
    sink.append(1)
    sink.commit(sink.write(rows(2, 3), plan=sink.plan(branch="audit", create_branch=True)))

    assert [look(sink, branch).rows for branch in ("main", "audit", None)] == [1, 3, 1]
    assert look(sink, "audit").branch == "audit"
    assert look(sink, "main").snapshots == look(sink, "audit").snapshots == 2


def test_missing_branch_is_refused_with_the_branches_there_are(sink: Sink) -> None:
    """A slip in the name would look like a table without rows."""
    sink.append(1)
    set_tag(sink, "v1", head_of(sink))

    with pytest.raises(OptionError, match=r"look at db\.t: 'audt' is no branch of it\. Its branches: 'main'\."):
        look(sink, "audt")
    with pytest.raises(OptionError, match=r"'v1' is a tag"):
        look(sink, "v1")


def test_missing_table_is_refused(sink: Sink) -> None:
    """A table that was dropped would look healthy."""
    with pytest.raises(TableNotFoundError, match=r"db\.t does not exist"):
        look(sink)


def test_looking_writes_nothing(sink: Sink) -> None:
    """A watcher with more rights than it needs could change tables."""
    sink.append(1)
    before = stored(sink)

    look(sink)

    assert stored(sink) == before


def test_missing_manifest_is_told_with_the_next_step(sink: Sink) -> None:
    """A user would see an error of a library, and not know that the table is damaged."""
    sink.append(1)
    table = sink.table()
    (manifest,) = table.inspect.manifests()["path"].to_pylist()
    local(manifest).unlink()

    with pytest.raises(DataFileError, match=r"Cannot read the manifests of db\.t: .*`iceberg-ds verify db\.t` names"):
        look(sink)


class _ExpiredOnce(FileCounter):
    """Meets files that expire while they are read, after another commit."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self.looks = 0

    def read(self, io: FileIO, snapshot: Snapshot | None, small_below_bytes: int) -> SnapshotCounts:
        """Fail once, after a commit, as if the snapshot had been expired behind it."""
        self.looks += 1
        if self.looks == 1:
            self._sink.append(2)
            raise FileNotFoundError("gone")
        return super().read(io, snapshot, small_below_bytes)


def test_table_that_moves_on_while_it_is_read_is_read_again(sink: Sink) -> None:
    """A watcher would report healthy tables whose maintenance runs as damaged."""
    sink.append(1)
    files = _ExpiredOnce(sink)

    health = HealthReader(sink.options, files).read()

    assert (health.rows, health.snapshots, files.looks) == (2, 2, 2)


def counting_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the manifests that are read from now on."""
    read: list[str] = []
    before = file_counts.live_entries

    def note(io: FileIO, manifest: ManifestFile) -> Any:
        read.append(manifest.manifest_path)
        return before(io, manifest)

    monkeypatch.setattr(file_counts, "live_entries", note)
    return read


def test_each_look_reads_new_manifests_only(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that looks every ten seconds would read the whole table's manifests each time."""
    read = counting_reads(monkeypatch)
    reader = HealthReader(sink.options)
    sink.append(1)
    sink.append(2)

    first, second = reader.read(), reader.read()
    assert len(read) == 2
    sink.append(3)
    third = reader.read()

    assert len(read) == len(set(read)) == 3
    ages = {"at_ms": 0, "last_commit_age_s": 0, "oldest_snapshot_age_s": 0}
    assert replace(second, **ages) == replace(first, **ages)
    assert (third.rows, third.files_read) == (3, 3)


def test_large_table_is_counted_from_its_list_and_read_further_by_each_look(sink: Sink) -> None:
    """The first look at a table of a million files would take minutes, or its figures be wrong."""
    for number in range(4):
        sink.append(number)
    delete_ids(sink, 1)
    reader = HealthReader(sink.options, FileCounter(most_files=2))

    first, second, third = reader.read(), reader.read(), reader.read()

    assert [one.files_read for one in (first, second, third)] == [2, 4, 5]
    assert [one.is_complete for one in (first, second, third)] == [False, False, True]
    assert {(one.rows, one.data_files, one.delete_files, one.bytes) for one in (first, second, third)} == {
        (4, 4, 1, third.bytes)
    }
    assert (first.equality_deletes, first.small_files, third.small_files) == (1, 1, 4)
    assert "at least 1 small" in str(first)


def test_deletion_vectors_are_position_deletes_of_their_own_bytes() -> None:
    """A table of version 3 would seem to have no deletes, or as many bytes of them as its vectors share files."""
    vectors = [
        ListedFile(
            path="s3://b/t/data/v.puffin",
            content=DataFileContent.POSITION_DELETES,
            file_format=FileFormat.PUFFIN,
            record_count=count,
            size_bytes=10_000,
            vector=(offset, 40),
        )
        for offset, count in ((4, 3), (44, 5))
    ]

    counts = FileCounts.of(vectors, small_below_bytes=100_000)

    assert counts == FileCounts(position_delete_files=2, position_deletes=8, delete_bytes=80)


@pytest.mark.parametrize(
    ("properties", "below"),
    [
        ({}, 134_217_728),
        ({"write.target-file-size-bytes": "4000"}, 1000),
        ({"write.target-file-size-bytes": "large"}, 134_217_728),
        *(({"write.target-file-size-bytes": "9" * digits}, 134_217_728) for digits in (30, 400, 5000)),
    ],
)
def test_small_is_below_a_quarter_of_the_target_size(properties: dict[str, str], below: int) -> None:
    """A table that is meant to have small files would never be well."""
    assert small_below_bytes(metadata_of(properties=properties)) == below


def test_file_of_exactly_a_quarter_is_not_small(sink: Sink) -> None:
    """A user who compacts to that size would be told to compact for ever."""
    sink.append(1)
    size = entries(sink)[0].data_file.file_size_in_bytes

    def small(target: int) -> int:
        plain_table(sink).transaction().set_properties(
            {"write.target-file-size-bytes": str(target)}
        ).commit_transaction()
        return look(sink).small_files

    assert (small(4 * size), small(4 * size + 4)) == (0, 1)


def of_query(number: int, query: str = QUERY) -> dict[str, str]:
    """Return the summary of an epoch."""
    return {EPOCHS.writer_key: query, EPOCHS.number_key: str(number)}


def test_writers_are_told_with_their_last_number_and_age() -> None:
    """One of several streams could stand still, hidden behind the commits of another."""
    history = line(
        1,
        2,
        3,
        s1=of_query(7),
        s2=of_query(3, OTHER),
        s3={TXNS.writer_key: "nightly", TXNS.number_key: "20260101"},
    )
    named = stream_property("main", "clicks", StreamRecord(query_id=QUERY))

    health = told(metadata_of(history, properties=named), START_MS + 10_000)

    assert [(one.kind, one.name, one.query_id, one.number, one.age_s) for one in health.writers] == [
        ("application", "nightly", None, 20260101, 9.997),
        ("query", OTHER, OTHER, 3, 9.998),
        ("stream", "clicks", QUERY, 7, 9.999),
    ]
    assert "\n  stream clicks: 7, 10 s ago" in str(health)


def test_writer_whose_snapshots_have_expired_is_still_told() -> None:
    """A stream that stopped would vanish from the watch when its snapshots expire, just when it is missed."""
    marker = TxnMarker(number=4, snapshot_id=2, timestamp_ms=START_MS, sequence_number=2)
    properties = marker_property(EPOCHS, "main", QUERY, marker)

    (writer,) = told(metadata_of(after_expiry(5, 6), properties=properties)).writers

    assert (writer.number, writer.age_s, writer.lag_s) == (4, 60.0, None)


def test_malformed_records_of_streams_hide_no_figures() -> None:
    """A property that anybody may set would keep a table from being watched."""
    properties = {"icebergsink.stream.main.clicks": "{", "icebergsink.last-epoch.main.q": "[]"}

    assert told(metadata_of(line(1), properties=properties)).writers == ()


def newest(event_ms: int | None) -> dict[str, str]:
    """Return the summary of a commit whose newest row is of that time."""
    return TaskFigures(newest_event_ms=event_ms).summary()


def test_lag_is_that_of_the_newest_row_among_the_newest_snapshots() -> None:
    """A backfill of old rows, or a commit by another engine, would look like a source that stands still."""
    history = line(
        1, 2, 3, s1={**newest(START_MS - 5_000), **of_query(0)}, s2={**newest(START_MS - 90_000), **of_query(0, OTHER)}
    )

    health = told(metadata_of(history), START_MS)

    assert (health.newest_event_ms, health.lag_s) == (START_MS - 5_000, 5.0)
    assert {writer.name: writer.lag_s for writer in health.writers} == {QUERY: 5.0, OTHER: 90.0}


def test_lag_follows_from_what_a_commit_leaves_in_its_summary(warehouse: Path) -> None:
    """A user who sets option `snapshot-metrics`, as the page says, would still see no lag."""
    options = embedded_options(warehouse, snapshot_metrics="true")
    sink = Sink(catalog=connect(catalog_settings(options), options.reports), options=options)
    two_hours_ago_us = (time.time_ns() // 1000) - 7_200_000_000
    messages = sink.write(rows(1), rows(2))
    times = (TaskMetrics(newest_event_us=two_hours_ago_us), TaskMetrics(newest_event_us=5))
    sink.commit([replace(message, metrics=taken) for message, taken in zip(messages, times, strict=True)])

    health = look(sink)

    assert health.newest_event_ms == two_hours_ago_us // 1000
    assert health.lag_s == pytest.approx(7200, abs=60)
    assert "newest row: 2.0 h old" in str(health)


@pytest.mark.parametrize("said", [{}, newest(None), {"icebergsink.metrics.newest-event-ms": "soon"}])
def test_lag_is_unknown_without_an_event_time(said: dict[str, str]) -> None:
    """A user would trust a lag that nothing tells."""
    health = told(metadata_of(line(1, s1=said)))

    assert (health.newest_event_ms, health.lag_s) == (None, None)


def test_ages_are_never_negative_when_clocks_are_ahead() -> None:
    """An alert on ages would be confused by a machine whose clock is ahead, or by events of the future."""
    history = line(1, s1={**newest(START_MS + 900_000), **of_query(0)})

    health = told(metadata_of(history), START_MS - 60_000)

    assert (health.last_commit_age_s, health.lag_s, health.writers[0].age_s, health.writers[0].lag_s) == (0, 0, 0, 0)
    assert health.forecast is None


def test_commits_count_since_data_files_were_rewritten(sink: Sink, warehouse: Path) -> None:
    """A policy by commits would call for a compaction right after one, or never again."""
    reader, options = HealthReader(sink.options), {"warehouse": str(warehouse)}
    sink.append(1)
    sink.append(2)
    assert reader.read().commits_since_rewrite == 2

    rewrite_data_files(NAME, options={**options, "rewrite-all": "true"})
    assert reader.read().commits_since_rewrite == 0
    sink.append(3)
    rewrite_manifests(NAME, options=options)

    assert reader.read().commits_since_rewrite == 2


def test_oldest_snapshot_is_one_that_may_expire() -> None:
    """A policy by age would call for an expiry for ever, of the snapshot that has the rows."""
    history = line(1, 2, 3)
    times = [snapshot.timestamp_ms for snapshot in metadata_of(history).snapshots]
    now_ms = times[-1] + 60_000

    assert told(metadata_of(history), now_ms).oldest_snapshot_age_s == (now_ms - times[0]) / 1000
    tagged = metadata_of(history, branches={"main": 3, "kept": 1})
    assert told(tagged, now_ms).oldest_snapshot_age_s == (now_ms - times[1]) / 1000
    assert told(metadata_of(line(1)), now_ms).oldest_snapshot_age_s is None
    assert told(metadata_of(), now_ms).oldest_snapshot_age_s is None


def test_branch_without_snapshots_of_a_table_with_some_is_empty() -> None:
    """A table whose rows all wait on a staging branch could not be watched."""
    health = told(metadata_of([Past(snapshot_id=1)], branches={"staging": 1}))

    assert (health.last_commit_age_s, health.snapshots, health.writers) == (None, 1, ())


def test_json_has_every_attribute(sink: Sink) -> None:
    """A program could not read a figure that people see."""
    sink.append(1)
    health = replace(look(sink), writers=told(metadata_of(line(1, s1=of_query(0)))).writers)

    back = json.loads(health.to_json())

    assert back == {**asdict(health), "writers": [asdict(writer) for writer in health.writers]}
    assert back["rows"] == 1
    assert back["writers"][0]["number"] == 0


@pytest.mark.parametrize("digits", [30, 400, 5000])
def test_absurd_numbers_in_a_summary_are_unknown(sink: Sink, monkeypatch: pytest.MonkeyPatch, digits: int) -> None:
    """One snapshot of a foreign writer would keep a table from being watched, or send its user to the catalog."""
    sink.append(1)
    sink.append(2)
    absurd = {"total-files-size": "9" * digits, "icebergsink.metrics.newest-event-ms": "9" * digits}
    monkeypatch.setattr(file_counts, "summary_entries", lambda _: absurd)

    health = HealthReader(sink.options, FileCounter(most_files=1)).read()

    assert (health.rows, health.bytes, health.is_complete) == (2, None, False)
    assert told(metadata_of(line(1, s1=absurd))).lag_s is None


def test_event_far_ahead_of_its_commit_does_not_count() -> None:
    """One row with a wrong clock would show no lag for the next hundred commits, while the source stands still."""
    day_ms = 86_400_000
    ahead = {**newest(START_MS + 2 * day_ms), **of_query(0)}
    history = line(1, 2, s1=newest(START_MS - 5_000), s2=ahead)

    health = told(metadata_of(history), START_MS)

    assert (health.newest_event_ms, health.lag_s, health.writers[0].lag_s) == (START_MS - 5_000, 5.0, None)
    assert told(metadata_of(line(1, s1=newest(START_MS + day_ms))), START_MS).lag_s == 0


@pytest.mark.parametrize(
    "options", [{"warehouse": "{}/lak"}, {"catalog.type": "sql", "catalog.uri": "sqlite:///{}/lak/c.db"}]
)
def test_mistyped_warehouse_is_refused_and_not_made(tmp_path: Path, options: dict[str, str]) -> None:
    """A slip in a path would leave an empty catalog behind, and look like a table that was dropped."""
    given = {key: text.format(tmp_path) for key, text in options.items()}

    with pytest.raises(TableNotFoundError, match=rf"does not exist: there is no catalog in folder {tmp_path}/lak "):
        iceberg_ds.table_health(NAME, options=given)
    assert "there is no catalog in folder" in str(iceberg_ds.verify(NAME, options=given))

    assert list(tmp_path.iterdir()) == []


def test_folder_without_a_catalog_gets_none(tmp_path: Path) -> None:
    """A folder of something else would get the database of a catalog."""
    with pytest.raises(TableNotFoundError, match=r"no file catalog\.db"):
        iceberg_ds.table_health(NAME, options={"warehouse": str(tmp_path)})

    assert list(tmp_path.iterdir()) == []


def test_printed_names_have_escapes_for_control_characters() -> None:
    """Whoever names an application could write to the terminal of the user who prints the figures."""
    history = line(1, s1={TXNS.writer_key: "a\x1b[2J", TXNS.number_key: "1"})

    text = str(told(metadata_of(history)))

    assert r"application a\x1b[2J: 1, " in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("size", "text"),
    [(999, "999 B"), (999.6, "1.0 kB"), (999_949, "999.9 kB"), (999_960, "1.0 MB"), (5e15, "5,000.0 TB")],
)
def test_sizes_are_below_a_thousand_of_their_unit(size: float, text: str) -> None:
    """A user would read 1000.0 kB."""
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.4, "59 s"), (59.6, "1.0 min"), (3_599.0, "1.0 h"), (86_399.0, "1.0 d"), (86_400_000.0, "1,000.0 d")],
)
def test_ages_are_below_the_next_unit(seconds: float, text: str) -> None:
    """A user would read 60.0 min."""
    assert age_text(seconds) == text
