"""Rows of tables of version 3 that are hidden: by one deletion vector of each data file, whoever writes beside."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyspark.sql.types import StructType
from support.checks.invariants import unreferenced_files
from support.checks.version_3 import check_version_3
from support.keys.conversions import convert
from support.keys.conversions import meanwhile as at_step
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import apart, upsert
from support.tables.data_rewrites import data_paths, rewrite
from support.tables.delete_files import delete_ids, delete_positions
from support.tables.reading import read_by_tasks
from support.tables.row_ids import row_ids
from support.tables.sink import Sink, epoch, local

from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import OptionError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.snapshots.live_files import DeletionVector, vector_of
from iceberg_ds.snapshots.manifests import all_entries, live_manifests
from iceberg_ds.snapshots.version_3 import referenced_data_file
from iceberg_ds.table.requests import UpgradeFormatVersion
from iceberg_ds.writers.deletion_vectors import vector_positions

pytestmark = pytest.mark.usefixtures("waits")

COLUMNS = StructType().add("id", "long", nullable=False).add("region", "string").add("amount", "long")
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
FIRST: list[Event] = [("I", number, "EU" if number % 2 else "US", number, 1) for number in range(8)]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table with key `id` and the rows of `FIRST`, in three data files."""
    sink.create(KEYED_SCHEMA, format_version="3")
    upsert(sink, "position", *apart(FIRST))
    return sink


def changed(*ids: int) -> list[Event]:
    """Return an event of each row, whose amount becomes its id times 100."""
    return [("U", number, "EU", number * 100, 2) for number in ids]


def values(sink: Sink) -> dict[int, Any]:
    """Return the amounts of all rows by id, as both PyIceberg and this package read them."""
    found = [(row["id"], row["amount"]) for row in sink.rows()]
    assert sorted((row["id"], row["amount"]) for row in read_by_tasks(sink)) == found
    assert len(dict(found)) == len(found)
    return dict(found)


def expected(*ids: int, without: tuple[int, ...] = ()) -> dict[int, int]:
    """Return the amounts of all rows by id after `changed` of these."""
    return {number: number * 100 if number in ids else number for number in range(8) if number not in without}


def vectors(sink: Sink) -> dict[str, list[int]]:
    """Return what the live deletion vectors hide, by data file; assert that each file has one, and is live."""
    table, data, found = sink.table(), set[str](), defaultdict[str, list[DeletionVector]](list)
    for manifest in live_manifests(table.io, table.current_snapshot()):
        for entry in all_entries(table.io, manifest):
            if entry.status is ManifestEntryStatus.DELETED:
                continue
            vector = vector_of(entry.data_file)
            if entry.data_file.content == DataFileContent.DATA:
                data.add(entry.data_file.file_path)
            else:
                assert vector is not None, f"{entry.data_file.file_path} is no file of vectors"
                found[str(referenced_data_file(entry.data_file))].append(vector)
    assert data >= found.keys()
    assert {path: len(those) for path, those in found.items() if len(those) != 1} == {}
    return {path: vector_positions(table.io, those[0], 10).to_pylist() for path, those in found.items()}


def puffins(sink: Sink) -> set[str]:
    """Return the paths of the live files of vectors."""
    table = sink.table()
    listed = (
        entry for one in live_manifests(table.io, table.current_snapshot()) for entry in all_entries(table.io, one)
    )
    return {
        entry.data_file.file_path
        for entry in listed
        if entry.status is not ManifestEntryStatus.DELETED and entry.data_file.file_format is FileFormat.PUFFIN
    }


def hidden_rows(sink: Sink) -> int:
    """Return how many rows vectors hide."""
    return sum(map(len, vectors(sink).values()))


@pytest.mark.parametrize("spec", [PartitionSpec(), BY_REGION], ids=["plain", "by region"])
def test_one_file_of_vectors_hides_the_rows_of_all_data_files(sink: Sink, spec: PartitionSpec) -> None:
    """Each data file and partition would take a small file, or rows would stay beside their new values."""
    sink.create(KEYED_SCHEMA, spec, format_version="3")
    upsert(sink, "position", *apart(FIRST))

    result = upsert(sink, "position", changed(1, 2, 3))

    assert values(sink) == expected(1, 2, 3)
    assert (result.replaced_rows, hidden_rows(sink), len(puffins(sink))) == (3, 3, 1)
    assert not unreferenced_files(sink.table())


def test_new_vector_takes_over_the_old_one_and_leaves_those_beside_it(keyed: Sink) -> None:
    """Rows that the old vector hides would come back; so would those of the vectors that share its file."""
    upsert(keyed, "position", changed(0, 1))
    before = vectors(keyed)

    upsert(keyed, "position", changed(3))

    after = vectors(keyed)
    assert values(keyed) == expected(0, 1, 3)
    assert hidden_rows(keyed) == 3
    assert sorted(after) == sorted(before)
    assert sum(after[path] == before[path] for path in before) == 1
    assert len(puffins(keyed)) == 2
    assert not unreferenced_files(keyed.table())


def test_position_deletes_of_version_2_become_part_of_the_vector(keyed: Sink) -> None:
    """Readers apply no position delete file to a data file with a vector: its rows would come back."""
    paths = [task.file.file_path for task in keyed.table().scan().plan_files()]
    path = next(path for path in paths if pq.read_table(local(path))["id"].to_pylist() == [1, 4, 7])
    delete_positions(keyed, path, [1])
    assert 4 not in values(keyed)

    upsert(keyed, "position", changed(7))

    assert values(keyed) == expected(7, without=(4,))
    assert vectors(keyed) == {path: [1, 2]}
    assert not unreferenced_files(keyed.table())


@pytest.mark.parametrize("theirs", [(4,), (1, 4), (3, 2)], ids=["same file", "same row", "other files"])
@pytest.mark.parametrize("ours", [(1,), (0, 1, 2)], ids=["one file", "all files"])
def test_vector_that_others_replace_meanwhile_is_merged_anew(
    keyed: Sink, theirs: tuple[int, ...], ours: tuple[int, ...]
) -> None:
    """Rows that the other writer deletes would come back, or a data file would have two vectors."""
    upsert(keyed, "position", changed(7))

    with at_step(FaultPoint.COMMIT_BEGUN, lambda: upsert(keyed, "position", changed(*theirs))):
        upsert(keyed, "position", changed(*ours))

    assert values(keyed) == expected(7, *theirs, *ours)
    _ = vectors(keyed)
    assert not unreferenced_files(keyed.table())


def test_vectors_go_with_the_data_files_that_are_written_again(keyed: Sink) -> None:
    """Deletes of files that are gone would stay for good."""
    upsert(keyed, "position", changed(0, 1))

    upsert(keyed, "copy-on-write", changed(4))

    assert values(keyed) == expected(0, 1, 4)
    assert hidden_rows(keyed) == 1


@pytest.mark.parametrize(
    ("step", "times"),
    [(FaultPoint.PLANNED, 1), (FaultPoint.TASK_WRITTEN, 1), (FaultPoint.MANIFESTS_WRITTEN, 3)],
)
@pytest.mark.parametrize("wish", [{}, {"strategy": "sort", "sort_order": "amount desc"}], ids=["binpack", "sort"])
def test_vectors_that_land_while_files_are_rewritten_are_moved(
    keyed: Sink, step: FaultPoint, times: int, wish: dict[str, Any]
) -> None:
    """A table that a stream changes all the time would never be compacted, or deleted rows would come back."""
    upsert(keyed, "position", changed(6))
    ids_of_rows = row_ids(keyed)
    left = [(1, 2), (2, 5), (7,)][:times]
    done: list[int] = []

    def land() -> None:
        ids = left.pop()
        done.extend(ids)
        upsert(keyed, "position", changed(*ids))

    old = set(data_paths(keyed))
    with at_step(step, land, times=times):
        result = rewrite(keyed, rewrite_all="true", **wish)

    assert values(keyed) == expected(6, *done)
    assert row_ids(keyed) == ids_of_rows
    assert not old & set(data_paths(keyed))
    assert result.rewritten_data_files_count == len(old)
    assert hidden_rows(keyed) >= len({1, 2, 5, 7} & set(done))
    check_version_3(keyed.table())
    assert not unreferenced_files(keyed.table())


def test_equality_deletes_become_vectors(keyed: Sink) -> None:
    """Rows would come back that are deleted by key, or by a vector that was there before."""
    upsert(keyed, "position", changed(1))
    delete_ids(keyed, 4, 3)

    result = convert(keyed)

    assert values(keyed) == expected(1, without=(3, 4))
    assert (result.rows, hidden_rows(keyed)) == (2, 3)
    assert not unreferenced_files(keyed.table())


def test_rows_that_lose_to_other_tasks_are_hidden_by_vectors(sink: Sink) -> None:
    """A key would have two rows, or a table of version 3 a position delete file."""
    sink.create(KEYED_SCHEMA, format_version="3")

    upsert(sink, "position", [("U", 1, "EU", 10, 1)], [("U", 1, "EU", 20, 2)], [("U", 2, "EU", 30, 1)])

    assert values(sink) == {1: 20, 2: 30}
    assert hidden_rows(sink) == 1


@pytest.mark.parametrize("encoding", ["position", "copy-on-write"])
def test_table_that_is_upgraded_meanwhile_gets_no_position_delete_file(sink: Sink, encoding: RowEncoding) -> None:
    """A table of version 3 would have new deletes that only version 2 allows, or rows without their ids."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))
    upgrade = UpgradeFormatVersion(format_version=3)

    def upgraded() -> None:
        sink.catalog.send(sink.table(), (), (upgrade,))
        upsert(sink, "position", changed(7))

    with at_step(FaultPoint.COMMIT_BEGUN, upgraded):
        upsert(sink, encoding, changed(1, 2))

    assert values(sink) == expected(1, 2, 7)
    assert hidden_rows(sink) == (3 if encoding == "position" else 0)
    assert not unreferenced_files(sink.table())


@pytest.mark.parametrize("encoding", ["position", "copy-on-write"])
def test_bare_upgrade_before_the_request_is_no_doubt(sink: Sink, encoding: RowEncoding) -> None:
    """An upsert whose request the catalog surely refused would end as one whose outcome nobody knows."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))

    with at_step(FaultPoint.MANIFESTS_WRITTEN, lambda: upgrade(sink)):
        upsert(sink, encoding, changed(1, 2))

    assert values(sink) == expected(1, 2)
    assert hidden_rows(sink) == (2 if encoding == "position" else 0)
    assert not unreferenced_files(sink.table())


@pytest.mark.parametrize("step", [FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN])
def test_rows_that_lose_are_hidden_anew_if_the_table_is_upgraded_meanwhile(sink: Sink, step: FaultPoint) -> None:
    """The epoch would be refused, or a table of version 3 get a position delete file."""
    sink.create(KEYED_SCHEMA)
    parts: list[list[Event]] = [[("U", 1, "EU", 10, 1)], [("U", 1, "EU", 20, 2)], [("U", 2, "EU", 30, 1)]]
    written = keyed_tasks(plan_by_keys(sink), *parts, of_epoch=epoch(0))

    with at_step(step, lambda: upgrade(sink)):
        sink.commit(written)

    assert sorted((row["id"], row["amount"]) for row in read_by_tasks(sink)) == [(1, 20), (2, 30)]
    assert len(puffins(sink)) == 1
    assert not unreferenced_files(sink.table())


def upgrade(sink: Sink) -> None:
    """Upgrade the table to version 3, as another writer does."""
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))


def test_vectors_come_whole_from_tasks(keyed: Sink) -> None:
    """The driver would not know which part of a file a vector is, or in which partition."""
    upsert(keyed, "position", changed(1))
    table = keyed.table()
    (entry,) = (
        entry.data_file
        for one in live_manifests(table.io, table.current_snapshot())
        for entry in all_entries(table.io, one)
        if vector_of(entry.data_file) is not None
    )
    entry.spec_id = 0

    sent = pickle.loads(pickle.dumps(entry))  # noqa: S301  # just pickled

    assert (vector_of(sent), referenced_data_file(sent)) == (vector_of(entry), referenced_data_file(entry))
    assert (sent.partition, sent.spec_id) == (entry.partition, 0)


@pytest.mark.parametrize(("version", "encoding"), [("2", "deletion-vector"), ("3", "position")])
def test_encoding_of_the_other_version_is_refused_before_anything_is_written(
    sink: Sink, version: str, encoding: str
) -> None:
    """Rows would be written that the commit then refuses, or deletes that the format forbids."""
    sink.create(KEYED_SCHEMA, format_version=version)

    with pytest.raises(OptionError, match=f"is {encoding}, which is not in format version {version}, the table's"):
        upsert(sink, "position", changed(1), delete_encoding=encoding)


@pytest.mark.parametrize("encoding", ["deletion-vector", "auto"])
def test_first_upsert_creates_a_table_of_version_3(sink: Sink, encoding: str) -> None:
    """The first write would be refused, because of a version that its table does not have."""
    upsert(sink, "position", [("U", 1, "EU", 10, 1)], format_version="3", delete_encoding=encoding)
    upsert(sink, "position", [("U", 1, "EU", 20, 2)], format_version="3", delete_encoding=encoding)

    assert sink.table().metadata.format_version == 3
    assert values(sink) == {1: 20}
    assert hidden_rows(sink) == 1


def test_first_upsert_into_version_3_by_position_delete_files_is_refused(sink: Sink) -> None:
    """A table would be created that the next write could not write."""
    with pytest.raises(OptionError, match="is position, which is not in format version 3, the table's"):
        upsert(sink, "position", changed(1), format_version="3", delete_encoding="position")

    assert sink.catalog.find_table(sink.options.table) is None


def test_rows_beside_replaced_ones_stay_hidden(sink: Sink) -> None:
    """Rows that a vector hides would come back when their file is written again."""
    sink.create(KEYED_SCHEMA, format_version="3")
    upsert(sink, "position", *apart(FIRST))
    upsert(sink, "position", changed(1))
    row = {"id": 4, "region": "EU", "amount": 5}

    sink.overwrite([row], schema=COLUMNS, replace_where="id = 4")

    assert values(sink) == {**expected(1), 4: 5}
    assert vectors(sink) == {}


def test_overwrite_takes_the_vectors_of_its_files_along(sink: Sink) -> None:
    """Vectors of files that are gone would stay for good, and be read by every reader."""
    sink.create(KEYED_SCHEMA, BY_REGION, format_version="3")
    upsert(sink, "position", *apart(FIRST))
    upsert(sink, "position", changed(1, 3))
    row = {"id": 50, "region": "EU", "amount": 5}

    sink.overwrite([row], schema=COLUMNS, overwrite_mode="dynamic")

    assert values(sink) == {50: 5, 0: 0, 2: 2, 4: 4, 6: 6}
    assert vectors(sink) == {}


def test_vector_that_comes_meanwhile_goes_with_its_data_file(keyed: Sink) -> None:
    """Under snapshot isolation rows that come meanwhile stay: vectors of files that go would stay for good."""
    messages = keyed.write_over([{"id": 50, "region": "EU", "amount": 5}], schema=COLUMNS, isolation_level="snapshot")
    upsert(keyed, "position", changed(1, 2))  # hides rows of files that are replaced, and adds a file
    upsert(keyed, "position", [("U", 1, "EU", 7, 3)])  # hides a row of the added file, which stays

    keyed.commit(messages)

    assert values(keyed) == {50: 5, 1: 7, 2: 200}
    assert hidden_rows(keyed) == 1
    assert not unreferenced_files(keyed.table())
