"""The files of a snapshot: written anew only as far as an attempt needs it, each of them accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.snapshots import Operation, Snapshot
from support.checks.invariants import stored_files
from support.tables.delete_files import entries
from support.tables.regions import REGIONS, in_region, partitioned, run
from support.tables.sink import Sink, local

from iceberg_ds.commit.producer import SnapshotProducer
from iceberg_ds.commit.write_files import Added
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import TaskCommit

IO = LocalFileIO()


def manifest_paths(io: FileIO, snapshot: Snapshot) -> set[str]:
    """Return the paths of all manifests of a snapshot."""
    return {listed.manifest_path for listed in snapshot.manifests(io)}


@pytest.fixture
def regions(sink: Sink) -> Sink:
    """Return a table partitioned by region with rows in two regions."""
    made = partitioned(sink)
    run(made, "append", [*in_region("EU", 1, 2, 3), *in_region("US", 4)])
    return made


def producer_of(messages: list[TaskCommit]) -> SnapshotProducer:
    """Return the producer of a write's snapshot."""
    return SnapshotProducer(messages[0].write, Added.of(messages))


def produce(producer: SnapshotProducer, sink: Sink) -> Snapshot:
    """Return the snapshot for the table as it is now."""
    snapshot = producer.produce(sink.table())
    assert snapshot is not None
    return snapshot


def partial(sink: Sink, **options: str) -> list[TaskCommit]:
    """Run the task of an overwrite that replaces a part of a file."""
    return sink.write_over(in_region("EU", 2), schema=REGIONS, replace_where="id = 2", **options)


def new_files(sink: Sink, before: set[Path]) -> set[Path]:
    """Return the files in the table's folder that were not there before."""
    return stored_files(sink.table().location()) - before


def test_all_paths_are_all_that_was_written(regions: Sink) -> None:
    """A failed write would leave files behind, or delete those of the table."""
    before = stored_files(regions.table().location())
    producer = producer_of(partial(regions))

    for _ in range(3):
        produce(producer, regions)

    assert {local(path) for path in producer.all_paths(IO)} == new_files(regions, before)
    assert producer.attempts == 3


def test_manifests_of_what_is_added_are_the_same_in_every_attempt(regions: Sink) -> None:
    """Each lost race of a large write would write its manifests anew."""
    producer = producer_of(regions.write(in_region("EU", 9), schema=REGIONS))

    first, second = (manifest_paths(IO, produce(producer, regions)) for _ in range(2))

    assert first == second


def test_what_is_replaced_is_found_anew_in_every_attempt(regions: Sink) -> None:
    """A second attempt would drop the entries of a write that landed in between."""
    producer = producer_of(partial(regions))
    produce(producer, regions)
    run(regions, "append", in_region("US", 5))

    snapshot = produce(producer, regions)

    listed = [entry for manifest in snapshot.manifests(IO) for entry in manifest.fetch_manifest_entry(IO)]
    assert sorted(entry.data_file.partition[0] for entry in listed) == ["EU", "EU", "US", "US"]
    assert snapshot.sequence_number == 3


def test_rewritten_files_are_the_same_in_every_attempt(regions: Sink) -> None:
    """Each lost race would read and write the same rows anew."""
    producer = producer_of(partial(regions))

    added = []
    for _ in range(2):
        snapshot = produce(producer, regions)
        listed = [entry for manifest in snapshot.manifests(IO) for entry in manifest.fetch_manifest_entry(IO)]
        added.append({entry.data_file.file_path for entry in listed if entry.status is ManifestEntryStatus.ADDED})

    assert added[0] == added[1]
    assert len(added[0]) == 2


def test_superseded_files_are_those_of_the_other_attempts(regions: Sink) -> None:
    """Files of the landed snapshot would be deleted, or those of lost attempts stay."""
    before = stored_files(regions.table().location())
    messages = partial(regions)
    producer = producer_of(messages)
    _, landed, _ = (produce(producer, regions) for _ in range(3))

    superseded = {local(path) for path in producer.superseded_paths(landed)}

    needed = {local(landed.manifest_list)} | {local(path) for path in manifest_paths(IO, landed)}
    needed |= {
        local(entry.data_file.file_path)
        for manifest in landed.manifests(IO)
        for entry in manifest.fetch_manifest_entry(IO)
    }
    assert not superseded & needed
    assert superseded | (needed - before) == new_files(regions, before)


def test_nothing_is_superseded_by_a_snapshot_that_was_not_made_here(regions: Sink) -> None:
    """Files would be deleted by the word of a snapshot that says nothing of them."""
    producer = producer_of(partial(regions))
    produce(producer, regions)
    other = regions.table().current_snapshot()
    assert other is not None

    assert producer.superseded_paths(other) == []


def test_manifest_paths_are_those_that_tell_that_the_write_has_landed(regions: Sink) -> None:
    """A write whose snapshot has expired would be taken for lost, and its files be deleted."""
    producer = producer_of(partial(regions))
    snapshot = produce(producer, regions)
    old = regions.table().current_snapshot()
    assert old is not None

    assert producer.manifest_paths <= manifest_paths(IO, snapshot)
    assert producer.manifest_paths
    assert not producer.manifest_paths & manifest_paths(IO, old)


@pytest.mark.parametrize("predicate", ["id = 77", "region = 'UK'", "false"])
def test_write_that_changes_nothing_makes_no_snapshot_and_no_file(regions: Sink, predicate: str) -> None:
    """The history and the folder would fill with nothing."""
    before = stored_files(regions.table().location())
    producer = producer_of(regions.write_over([], schema=REGIONS, replace_where=predicate))

    assert producer.produce(regions.table()) is None
    assert producer.all_paths(IO) == []
    assert new_files(regions, before) == set()


@pytest.mark.parametrize(
    ("kind", "rows", "operation"),
    [
        ("append", 1, Operation.APPEND),
        ("static", 1, Operation.OVERWRITE),
        ("static", 0, Operation.DELETE),
        ("dynamic", 1, Operation.OVERWRITE),
        ("where id = 99", 1, Operation.APPEND),
        ("where id = 2", 0, Operation.OVERWRITE),
    ],
)
def test_operation_says_what_the_snapshot_does(regions: Sink, kind: str, rows: int, operation: Operation) -> None:
    """Incremental readers would skip rows, or stop because of rows that only went. Spec: "Snapshots"."""
    run(regions, kind, in_region("EU", 99)[:rows])

    snapshot = regions.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is operation
    assert entries(regions) or kind == "static"


def test_manifest_that_could_not_be_written_is_accounted_for_and_tried_again(
    regions: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage hiccup would leave half a manifest behind, or the snapshot refer to it."""
    before = stored_files(regions.table().location())
    producer = producer_of(partial(regions))
    new_output, failures = LocalFileIO.new_output, [OSError("slow down")]

    def fail_once(io: LocalFileIO, location: str) -> object:
        if "-f0.avro" in location and failures:
            raise failures.pop()
        return new_output(io, location)

    monkeypatch.setattr(LocalFileIO, "new_output", fail_once)
    with pytest.raises(OSError, match="slow down"):
        producer.produce(regions.table())

    snapshot = produce(producer, regions)

    assert {local(path) for path in producer.all_paths(IO)} >= new_files(regions, before)
    assert all(local(path).exists() for path in manifest_paths(IO, snapshot))
    assert not set(producer.superseded_paths(snapshot)) & manifest_paths(IO, snapshot)
