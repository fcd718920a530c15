"""Metadata files are read once per process and written fast, and nobody can tell by what the table shows."""

from __future__ import annotations

import gzip
import json
import operator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import MetastoreCatalog, load_catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from support.tables.metadata import line, metadata_of
from support.tables.sink import Sink, local

from iceberg_ds.catalog import metadata_files
from iceberg_ds.catalog.metadata_files import KnownMetadata, MetadataFiles, continued, files_at_hand, read_whole
from iceberg_ds.catalog.pyiceberg_patches import share_metadata_files
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CatalogError
from iceberg_ds.io.local_io import LocalFileIO

IO = LocalFileIO()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the metadata files that are read, in order."""
    read: list[str] = []
    before = metadata_files._content

    def reading(file: InputFile) -> bytes:
        read.append(file.location)
        return before(file)

    monkeypatch.setattr(metadata_files, "_content", reading)
    return read


def load(sink: Sink) -> Table:
    """Load the table as a commit does."""
    return sink.catalog.load_table(sink.options.table)


def new_path(folder: Path) -> str:
    """Return the path of a metadata file as PyIceberg names it."""
    return f"file://{folder}/00001-{uuid4()}.metadata.json"


def test_file_is_read_once(sink: Sink, reads: list[str]) -> None:
    """Each look at a table with a long history would read and parse all of it."""
    sink.append(1)
    other = Sink(catalog=sink.catalog.another(), options=sink.options)

    first, second = load(other), load(other)

    assert reads == [first.metadata_location]
    assert first.metadata == second.metadata


def test_own_commits_read_no_file(sink: Sink, reads: list[str]) -> None:
    """Each commit of a stream would read the whole history, which it has written itself."""
    sink.append(1)
    sink.append(2)

    assert reads == []
    assert sink.ids() == [1, 2]


def test_commit_of_another_writer_is_seen_at_once(sink: Sink, reads: list[str]) -> None:
    """A stream would commit on top of an old table, and lose every race that it could have seen coming."""
    sink.append(1)
    Sink(catalog=sink.catalog.another(), options=sink.options).append(2)
    reads.clear()

    assert len(load(sink).metadata.snapshots) == 2
    assert reads == [load(sink).metadata_location]


def test_of_another_writers_commit_only_what_is_new_is_parsed(sink: Sink) -> None:
    """The planner of a stream would parse the whole history for each micro-batch, because another process commits."""
    sink.append(1)
    planner = Sink(catalog=sink.catalog.another(), options=sink.options)
    (first,) = load(planner).metadata.snapshots
    for number in (2, 3):
        sink.append(number)
        seen = load(planner).metadata

        assert seen == sink.table().metadata
        assert seen.snapshots[0] is first
        assert len(seen.snapshots) == len(seen.snapshot_log) == number


def test_only_what_is_new_is_parsed_again_soon_after_snapshots_have_expired(sink: Sink) -> None:
    """A stream into a table that is looked after would be slow from the first maintenance on."""
    planner = Sink(catalog=sink.catalog.another(), options=sink.options)
    sink.create(metadata_of().schema())
    assert load(planner).metadata.snapshots == []
    sink.append(1)
    sink.append(2)
    (old, _) = load(planner).metadata.snapshots
    sink.table().maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    (kept,) = load(planner).metadata.snapshots
    sink.append(3)

    assert load(planner).metadata == sink.table().metadata
    assert load(planner).metadata.snapshots[0] is kept


def in_other_words(metadata: TableMetadata, indent: int | None) -> str:
    """Return metadata as JSON in another order, and with other spaces, than PyIceberg writes it in."""
    content = json.loads(metadata.model_dump_json())
    content["snapshots"] = [dict(reversed(snapshot.items())) for snapshot in content["snapshots"]]
    separators = (",", ":") if indent is None else (",", " : ")
    return json.dumps(dict(reversed(content.items())), indent=indent, separators=separators)


@pytest.mark.parametrize("indent", [None, 2])
def test_files_in_other_words_are_read_right(tmp_path: Path, indent: int | None) -> None:
    """Of a table that Java and this sink write in turn, snapshots would be missing or doubled."""
    files = MetadataFiles()
    for number in range(1, 5):
        metadata = metadata_of(line(*range(1, number + 1)))
        path = new_path(tmp_path)
        local(path).write_text(in_other_words(metadata, indent))

        assert files.read(IO.new_input(path)) == TableMetadataUtil.parse_raw(local(path).read_text())
        files.write(metadata, IO.new_output(path := new_path(tmp_path)), overwrite=False)
        assert local(path).read_text() == metadata.model_dump_json()


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_of_another_engines_commits_only_what_is_new_is_parsed(tmp_path: Path, indent: int | None) -> None:
    """A stream would parse the whole history after each commit of Java, such as those of a compaction."""
    files = MetadataFiles()
    read: TableMetadata | None = None
    for number in range(1, 9, 2):
        path = new_path(tmp_path)
        local(path).write_text(in_other_words(metadata_of(line(*range(1, number + 1))), indent))

        seen = files.read(IO.new_input(path))

        assert seen == TableMetadataUtil.parse_raw(local(path).read_text())
        if read is not None:  # the objects of before, among them that of the sink's own commit
            assert all(map(operator.is_, seen.snapshots, read.snapshots))
            assert len(seen.snapshots) == len(read.snapshots) + 1
        more = metadata_of(line(*range(1, number + 2)))
        read = more.model_copy(update={"snapshots": [*seen.snapshots, more.snapshots[-1]]})
        files.write(read, IO.new_output(path := new_path(tmp_path)), overwrite=False)
        assert local(path).read_text() == more.model_dump_json()


@settings(max_examples=200)
@given(
    texts=st.lists(
        st.sampled_from(['"]', '],"a":', '"snapshots":[', "\\", '"', ' ] , "b" : ', "x", "}]}"]), max_size=6
    ),
    indent=st.sampled_from([None, 2]),
    cut=st.integers(0, 3),
)
def test_whatever_snapshots_say_they_are_told_apart(texts: list[str], indent: int | None, cut: int) -> None:
    """Words in the summary of a snapshot would be taken for the end of the list, and snapshots be lost."""
    known: KnownMetadata | None = None
    for number in (3, 4, 4 - cut + 2):
        metadata = metadata_of(line(*range(1 + cut, number + cut)))
        for snapshot in metadata.snapshots:
            assert snapshot.summary is not None
            snapshot.summary.additional_properties["said"] = "".join(texts)
        content = in_other_words(metadata, indent).encode()

        found = None if known is None else continued(known, content)
        known = read_whole(content) if found is None else found

        assert known.metadata == TableMetadataUtil.parse_raw(content.decode())


def test_compressed_files_are_read_and_written(tmp_path: Path) -> None:
    """A table whose metadata is compressed could not be written."""
    writer, reader = MetadataFiles(), MetadataFiles()
    for number in range(1, 4):
        metadata = metadata_of(line(*range(1, number + 1)))
        path = new_path(tmp_path).replace(".metadata.json", ".gz.metadata.json")
        writer.write(metadata, IO.new_output(path), overwrite=False)

        assert gzip.decompress(local(path).read_bytes()).decode() == metadata.model_dump_json()
        assert reader.read(IO.new_input(path)) == metadata


def test_table_made_anew_under_the_name_is_seen(sink: Sink) -> None:
    """Rows would go into a table that is gone."""
    sink.append(1)
    sink.catalog.raw.drop_table(sink.options.table)
    sink.append(2)

    assert len(load(sink).metadata.snapshots) == 1
    assert sink.ids() == [2]


def test_what_is_kept_cannot_be_changed_through_what_was_handed_out(sink: Sink) -> None:
    """One part of the process would see a table that another part has made up."""
    sink.append(1)
    metadata = load(sink).metadata
    metadata.properties["a"] = "b"
    metadata.snapshots.clear()
    metadata.refs.clear()

    assert load(sink).metadata == sink.table().metadata


def test_checks_of_files_read_them_anew(sink: Sink) -> None:
    """`verify` would call a table whole whose metadata file is damaged."""
    sink.append(1)
    path = local(load(sink).metadata_location)
    path.write_text("{}")

    load(sink)
    with pytest.raises(CatalogError):
        sink.catalog.reading_anew().load_table(sink.options.table)


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("00012-3dfcce86-e3c6-4975-bc27-cadd49175f97.metadata.json", True),
        ("00012-44106ccf-1b76-4a90-88f6-a780369d40d5.gz.metadata.json", True),
        ("v3.metadata.json", False),
        ("00012.metadata.json", False),
        ("metadata.json", False),
    ],
)
def test_file_whose_name_may_come_again_is_read_each_time(
    tmp_path: Path, reads: list[str], name: str, *, is_kept: bool
) -> None:
    """A table of Hadoop's catalog, whose files are numbered, would seem to stand still."""
    path = f"file://{tmp_path}/{name}"
    writer, reader = MetadataFiles(), MetadataFiles()
    writer.write(metadata_of(line(1)), IO.new_output(path), overwrite=False)

    for files in (reader, reader, writer):
        assert len(files.read(IO.new_input(path)).snapshots) == 1

    assert len(reads) == (1 if is_kept else 3)


def test_no_more_is_kept_than_agreed(tmp_path: Path, reads: list[str]) -> None:
    """A process that writes to many tables would grow until it dies."""
    table = metadata_of(line(1, 2))
    files = MetadataFiles(max_snapshots=2 * metadata_files._weight(KnownMetadata(metadata=table)))
    paths = [new_path(tmp_path) for _ in range(3)]
    for path in paths:
        files.write(table.model_copy(update={"table_uuid": uuid4()}), IO.new_output(path), overwrite=False)

    for path in reversed(paths):
        files.read(IO.new_input(path))

    assert reads == [paths[0]]


def test_table_with_too_long_a_history_is_not_kept(tmp_path: Path, reads: list[str]) -> None:
    """It would be thrown away right after all others had been for its sake."""
    files = MetadataFiles(max_snapshots=metadata_files._weight(KnownMetadata(metadata=metadata_of(line(1, 2)))) - 1)
    path = new_path(tmp_path)
    files.write(metadata_of(line(1, 2)), IO.new_output(path), overwrite=False)

    assert len(files.read(IO.new_input(path)).snapshots) == 2
    assert reads == [path]


def test_others_that_use_pyiceberg_in_the_process_are_left_alone(sink: Sink, reads: list[str]) -> None:
    """A user's own PyIceberg calls would share objects with ours, and change them."""
    sink.append(1)
    settings = catalog_settings(sink.options)
    catalog = load_catalog(settings.name, **dict(settings.properties))
    with catalog.load_table(sink.options.table).transaction() as change:
        change.set_properties({"a": "b"})

    assert reads == []
    assert files_at_hand() is None
    assert load(sink).metadata.properties["a"] == "b"


def test_version_1_is_written_as_before(sink: Sink) -> None:
    """Snapshots of version 1 would get sequence numbers, which the spec does not know there."""
    sink.create(metadata_of().schema(), format_version="1")
    sink.append(1)
    sink.append(2)

    text = local(load(sink).metadata_location).read_text()
    assert '"format-version":1' in text
    assert '"sequence-number"' not in text
    assert sink.ids() == [1, 2]


def test_commit_copies_no_snapshot(sink: Sink) -> None:
    """Each commit would take longer than the one before it."""
    sink.append(1)
    (first,) = load(sink).metadata.snapshots
    sink.append(2)

    assert load(sink).metadata.snapshots[0] is first


@pytest.mark.parametrize("kind", [SqlCatalog, HiveCatalog, GlueCatalog])
def test_catalogs_read_and_write_through_the_replaced_functions(kind: type[MetastoreCatalog]) -> None:
    """With a new PyIceberg, each commit would read and copy the whole history again, and nobody would notice."""
    functions = [member for part in kind.__mro__ for member in vars(part).values() if hasattr(member, "__code__")]
    names = {name for function in functions for name in function.__code__.co_names}

    assert {"FromInputFile", "table_metadata", "_update_and_stage_table"} <= names
    share_metadata_files()
    replaced = [FromInputFile.table_metadata, ToOutputFile.table_metadata]
    assert [function.__module__ for function in replaced] == ["pyiceberg.serializers"] * 2  # as wrapped
    assert all(files_at_hand.__name__ in function.__code__.co_names for function in replaced)
