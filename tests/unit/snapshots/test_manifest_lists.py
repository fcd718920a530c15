"""Manifest lists that a process knows: the next commit reads none again, and what it writes is what it would have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost
from support.checks.invariants import check_sound
from support.tables.sink import IDENTIFIER, SCHEMA, Sink, epoch, rows

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.snapshots import manifests
from iceberg_ds.snapshots.manifests import ManifestLists, write_list
from iceberg_ds.snapshots.version_3 import ManifestList, read_list
from iceberg_ds.table.spark_types import iceberg_schema

IO = LocalFileIO()
BLOCK = 3

pytestmark = pytest.mark.usefixtures("waits")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few commits fill several blocks, and let each test begin as a process does that knows no list."""
    monkeypatch.setattr(manifests, "_BLOCK_ENTRIES", BLOCK)
    monkeypatch.setattr(manifests.KNOWN_LISTS, "_known", ManifestLists()._known)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the manifest lists that commits read, in order."""
    read: list[str] = []

    def reading(io: FileIO, listed: ManifestList) -> Iterator[ManifestFile]:
        read.append(listed.path)
        return read_list(io, listed)

    monkeypatch.setattr(manifests, "read_list", reading)
    return read


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the manifests that lists encode, in order."""
    paths: list[str] = []
    before = manifests._encoded

    def encoding(writer: manifests.ManifestListWriter, manifest: ManifestFile) -> manifests._Entry:
        paths.append(manifest.manifest_path)
        return before(writer, manifest)

    monkeypatch.setattr(manifests, "_encoded", encoding)
    return paths


def stream(sink: Sink, first: int, last: int) -> None:
    """Commit these epochs, each with a row."""
    for number in range(first, last):
        sink.append(number, of_epoch=epoch(number))


def head(table: Table) -> Snapshot:
    """Return the newest snapshot."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


def in_file(snapshot: Snapshot) -> list[ManifestFile]:
    """Return what any reader finds in the manifest list of a snapshot."""
    return list(read_list(IO, ManifestList.of(snapshot)))


def values(manifests: Sequence[ManifestFile]) -> list[list[object]]:
    """Return all fields of entries, which are equal as soon as their paths are."""
    return [[manifest[position] for position in range(len(manifest))] for manifest in manifests]


def check_known(sink: Sink) -> None:
    """Check that what is known of the newest list is what stands in it, and that the table is whole."""
    table = sink.table()
    snapshot = head(table)
    live = [manifest for manifest in in_file(snapshot) if manifest.has_added_files() or manifest.has_existing_files()]
    assert values(manifests.KNOWN_LISTS.live(IO, ManifestList.of(snapshot))) == values(live)
    assert snapshot.manifest_list in manifests.KNOWN_LISTS._known._by_path
    check_sound(table)


def test_stream_reads_no_list_and_encodes_what_it_adds(sink: Sink, reads: list[str], encoded: list[str]) -> None:
    """Each commit of a stream would read and encode all that came before it, and get slower and slower."""
    stream(sink, 0, 3 * BLOCK + 2)

    assert reads == []
    assert len(encoded) == len(set(encoded)) == 3 * BLOCK + 2
    check_known(sink)
    assert sink.ids() == list(range(3 * BLOCK + 2))


def blocks_of(path: str) -> tuple[manifests._Block, ...]:
    """Return the blocks of a list that is known."""
    known = manifests.KNOWN_LISTS._known.find(path)
    assert known is not None
    return known.blocks


def test_full_blocks_go_into_the_next_list_as_they_are(sink: Sink) -> None:
    """Each commit would compress a long list anew, or readers would find entries missing or twice."""
    stream(sink, 0, 2 * BLOCK + 1)
    path = head(sink.table()).manifest_list
    before = blocks_of(path)

    sink.append(99, of_epoch=epoch(99))

    snapshot = head(sink.table())
    after = blocks_of(snapshot.manifest_list)
    assert [len(block.entries) for block in after] == [2, BLOCK, BLOCK]
    assert after[1] is before[1]
    assert after[2] is before[2]
    listed = in_file(snapshot)
    assert [manifest.sequence_number for manifest in listed] == list(range(2 * BLOCK + 2, 0, -1))
    assert all(block.content in IO.new_input(snapshot.manifest_list).open().read() for block in after)


def test_header_says_what_the_snapshot_is(sink: Sink) -> None:
    """Readers that look there would take the list for that of another snapshot."""
    stream(sink, 0, BLOCK + 1)
    snapshot = head(sink.table())

    with AvroFile[ManifestFile](IO.new_input(snapshot.manifest_list)) as avro:
        meta = avro.header.meta

    assert meta["snapshot-id"] == str(snapshot.snapshot_id)
    assert meta["parent-snapshot-id"] == str(snapshot.parent_snapshot_id)
    assert meta["sequence-number"] == str(BLOCK + 1)
    assert meta["format-version"] == "2"


def append_by_pyiceberg(table: Table, *ids: int) -> None:
    """Append rows as another engine does."""
    table.append(pa.Table.from_pylist(rows(*ids), schema=table.schema().as_arrow()))


def test_commit_of_another_writer_in_between_is_kept(sink: Sink, reads: list[str]) -> None:
    """Rows that another engine has written would vanish with the next commit of the stream."""
    stream(sink, 0, 2 * BLOCK)
    append_by_pyiceberg(sink.table(), 100)
    theirs = head(sink.table()).manifest_list

    stream(sink, 2 * BLOCK, 2 * BLOCK + 2)

    assert reads == [theirs]
    assert sink.ids() == [*range(2 * BLOCK + 2), 100]
    check_known(sink)


def test_list_of_a_lost_race_is_not_gone_on_from(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, encoded: list[str]
) -> None:
    """Rows of the faster writer would vanish, or ours carry a sequence number that is not theirs."""
    stream(sink, 0, BLOCK + 1)
    faulty_catalog.before_commit(1, lambda: sink.append(100))

    faulty_sink.append(50, of_epoch=epoch(50))

    newest = in_file(head(sink.table()))[0]
    assert encoded.count(newest.manifest_path) == 2
    assert newest.sequence_number == newest.min_sequence_number == BLOCK + 3
    assert sink.ids() == [*range(BLOCK + 1), 50, 100]
    check_known(sink)


@pytest.mark.parametrize("is_landed", [True, False])
def test_lost_answer_leaves_the_right_list(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, *, is_landed: bool
) -> None:
    """A stream would go on from a list that is not in the table."""
    stream(sink, 0, BLOCK + 1)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER if is_landed else When.BEFORE)

    faulty_sink.append(50, of_epoch=epoch(50))
    sink.append(51, of_epoch=epoch(51))

    assert sink.ids() == [*range(BLOCK + 1), 50, 51]
    check_known(sink)


def test_rows_of_a_table_that_was_replaced_stay_away(sink: Sink) -> None:
    """A stream would bring rows of a dropped table back, or name files that are gone."""
    stream(sink, 0, 2 * BLOCK)
    sink.catalog.raw.drop_table(IDENTIFIER)

    sink.append(100, of_epoch=epoch(100))
    sink.append(101, of_epoch=epoch(101))

    assert sink.ids() == [100, 101]
    check_known(sink)


def test_rollback_is_followed(sink: Sink) -> None:
    """Rows that somebody has taken back would be there again after the next commit."""
    stream(sink, 0, BLOCK + 1)
    good = head(sink.table()).snapshot_id
    stream(sink, BLOCK + 1, 2 * BLOCK + 1)
    sink.table().manage_snapshots().rollback_to_snapshot(good).commit()

    sink.append(100)

    assert sink.ids() == [*range(BLOCK + 1), 100]
    check_known(sink)


def test_tables_do_not_get_each_others_entries(sink: Sink) -> None:
    """A table would list files of another one."""
    other = replace(sink, options=replace(sink.options, table=("db", "other")))
    for number in range(BLOCK + 2):
        sink.append(number, of_epoch=epoch(number))
        other.append(100 + number, of_epoch=epoch(number))

    assert sink.ids() == list(range(BLOCK + 2))
    assert other.ids() == list(range(100, 102 + BLOCK))
    check_known(sink)
    check_known(other)


def test_branches_do_not_get_each_others_entries(sink: Sink) -> None:
    """Rows that wait for an audit would be seen on the main branch."""
    sink.append(0)
    sink.table().manage_snapshots().create_branch(head(sink.table()).snapshot_id, "audit").commit()
    audit = replace(sink, options=replace(sink.options, branch="audit"))
    for number in range(1, BLOCK + 2):
        sink.append(number, of_epoch=epoch(number))
        audit.append(100 + number)

    assert sink.ids() == list(range(BLOCK + 2))
    assert [row["id"] for row in sink.rows_of("audit")] == [0, *range(101, 102 + BLOCK)]


def test_merges_and_overwrites_take_entries_away(sink: Sink) -> None:
    """Rows that were replaced would be there still, or rows beside them vanish."""
    few = {"commit.manifest.min-count-to-merge": "4"}
    merging = replace(sink, options=replace(sink.options, table_properties=few))
    for number in range(3 * BLOCK):
        merging.append(number)
        check_known(merging)
    merging.overwrite(rows(100), replace_where="id = 100 or id = 1 or id = 7")
    check_known(merging)
    for number in range(101, 104):
        merging.append(number)
        check_known(merging)

    assert merging.ids() == [0, 2, 3, 4, 5, 6, 8, 100, 101, 102, 103]


@pytest.mark.parametrize("later", ["zstd", "uncompressed"])
def test_list_is_compressed_as_the_table_wants_it_now(sink: Sink, later: str) -> None:
    """Blocks of two codecs would stand in one file, which nobody could read."""
    stream(sink, 0, 2 * BLOCK)
    with sink.table().transaction() as change:
        change.set_properties({"write.avro.compression-codec": later})

    stream(sink, 2 * BLOCK, 2 * BLOCK + 2)

    check_known(sink)
    assert sink.ids() == list(range(2 * BLOCK + 2))


def test_upgraded_table_goes_on(sink: Sink) -> None:
    """Entries of version 1, which say less, would be copied into lists of version 2 as they are."""
    sink.create(iceberg_schema(SCHEMA), format_version="1")
    stream(sink, 0, BLOCK + 1)
    with sink.table().transaction() as change:
        change.upgrade_table_version(2)

    stream(sink, BLOCK + 1, 2 * BLOCK + 2)

    check_known(sink)
    assert {manifest.sequence_number for manifest in in_file(head(sink.table()))} == {0, *range(1, BLOCK + 2)}
    assert sink.ids() == list(range(2 * BLOCK + 2))


def test_no_more_than_so_many_entries_are_kept(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that writes to many tables would fill its memory."""
    lists = ManifestLists(max_entries=2 * manifests._LIST_WEIGHT + 5)
    monkeypatch.setattr(manifests, "KNOWN_LISTS", lists)
    stream(sink, 0, 6)

    kept = list(lists._known._by_path)

    newest, before = (snapshot.manifest_list for snapshot in sink.table().metadata.snapshots[:-3:-1])
    assert kept == [newest]
    assert before not in kept
    small = ManifestLists(max_entries=10)
    assert len(small.live(IO, ManifestList(0, newest))) == 6
    assert not small._known._by_path


def test_list_of_a_name_that_may_come_again_is_read_again(sink: Sink, reads: list[str]) -> None:
    """A file that was overwritten in its place would be taken for what it was before."""
    sink.append(1)
    snapshot = head(sink.table())
    path = f"{sink.table().location()}/metadata/list.avro"
    write_list(IO, sink.table().metadata, snapshot.model_copy(update={"manifest_list": path}), in_file(snapshot))

    for _ in range(2):
        assert len(manifests.KNOWN_LISTS.live(IO, ManifestList(0, path))) == 1

    assert reads == [path, path]


def test_what_could_not_be_written_is_not_known(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit would go on from a list that nobody can read."""
    stream(sink, 0, 2)
    known = set(manifests.KNOWN_LISTS._known._by_path)

    def full(*_: object) -> None:
        raise OSError("disk full")

    snapshot = head(sink.table())
    again = snapshot.model_copy(update={"manifest_list": snapshot.manifest_list.replace("snap-", "snap-1")})
    monkeypatch.setattr(manifests, "_write_blocks", full)
    with pytest.raises(OSError, match="disk full"):
        write_list(IO, sink.table().metadata, again, in_file(snapshot))

    assert set(manifests.KNOWN_LISTS._known._by_path) == known
