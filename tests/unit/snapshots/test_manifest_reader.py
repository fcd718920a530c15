"""Entries of manifests, read with all that they say: what PyIceberg's inner parts must do, and what they do not."""

from __future__ import annotations

import contextlib
import math
import struct
import zlib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import SYNC_SIZE
from pyiceberg.avro.reader import DecimalReader
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from support.tables.changes_by_others import plain_table
from support.tables.damage import cut_off, edit_list, edit_summary, header_bytes
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import Sink, local, rows

from iceberg_ds.errors import CommitConflictError
from iceberg_ds.io.files import file_io
from iceberg_ds.snapshots import manifests
from iceberg_ds.snapshots.manifests import ManifestLists, Recorded, live_entries, live_manifests, live_paths

NOT_RECORDED = Recorded(entries=0, size_bytes=0)


def partitioned(sink: Sink, kind: ice.PrimitiveType, spark_kind: spark.DataType, values: list[Any]) -> Table:
    """Return a table partitioned by a column of that type, with a file for each value."""
    schema = Schema(NestedField(1, "p", kind))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    sink.create(schema, spec)
    frame = spark.StructType([spark.StructField("p", spark_kind)])
    sink.commit(sink.write([{"p": value} for value in values], schema=frame))
    return sink.table()


def partition_values(table: Table) -> list[Any]:
    """Return the partition values of the table's files."""
    (manifest,) = live_manifests(table.io, table.current_snapshot())
    return [entry.data_file.partition[0] for entry in live_entries(table.io, manifest)]


def plain(value: Any) -> Any:
    """Return a record as lists and dictionaries, which compare by what they hold, without what only version 3 has."""
    if isinstance(value, Record):
        count = len(DATA_FILE_TYPE[2].fields) if isinstance(value, DataFile) else len(value)
        return [plain(value[position]) for position in range(count)]
    return dict(value) if isinstance(value, Mapping) else value


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_paths_alone_are_those_of_the_entries(sink: Sink, version: str) -> None:
    """Files would be looked for under wrong names: live ones be deleted as orphans, or with an expired snapshot."""
    schema = Schema(NestedField(1, "p", ice.DecimalType(9, 2)))
    sink.create(schema, PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p")), format_version=version)
    frame = spark.StructType([spark.StructField("p", spark.DecimalType(9, 2))])
    for number in range(3):
        sink.commit(sink.write([{"p": Decimal(number)}, {"p": None}], schema=frame))
    sink.overwrite([{"p": Decimal(7)}], schema=frame)
    table = sink.table()
    manifests = [used for one in table.snapshots() for used in one.manifests(table.io)]

    assert any(used.deleted_files_count for used in manifests)
    for used in manifests:
        entries = [(one.data_file.content, one.data_file.file_path) for one in live_entries(table.io, used)]
        assert live_paths(table.io, used.manifest_path, Recorded.of(used)) == entries


@pytest.fixture(params=["gzip", "uncompressed"])
def manifest(request: pytest.FixtureRequest, sink: Sink) -> ManifestFile:
    """Return a manifest of a file, whose blocks are compressed in some way."""
    sink.create(ID_AND_NAME)
    with plain_table(sink).transaction() as transaction:
        transaction.set_properties({"write.avro.compression-codec": request.param})
    sink.append(1)
    return live_manifests(sink.table().io, sink.table().current_snapshot())[0]


def paths_in(content: bytes, path: Path, recorded: Recorded = NOT_RECORDED) -> list[tuple[DataFileContent, str]]:
    """Return what a manifest of these bytes lists."""
    path.write_bytes(content)
    return live_paths(file_io({}, str(path)), str(path), recorded)


def test_manifest_that_is_cut_off_anywhere_is_refused(manifest: ManifestFile, tmp_path: Path) -> None:
    """It would seem to list fewer files, and the others be deleted, or left out of what is written in its place."""
    whole, path = local(manifest.manifest_path).read_bytes(), tmp_path / "cut.avro"
    assert len(paths_in(whole, path, Recorded.of(manifest))) == 1

    for size in range(len(whole)):
        with pytest.raises(ValueError, match="was cut off"):
            paths_in(whole[:size], path, Recorded.of(manifest))
    silent = []
    for size in range(len(whole)):
        with contextlib.suppress(ValueError):
            silent.append((size, paths_in(whole[:size], path)))
    assert [found for _, found in silent] == [[]]  # right behind the header, as a file without a block is


@pytest.mark.parametrize("recorded", [Recorded(entries=9, size_bytes=1), Recorded(entries=1, size_bytes=10**6)])
def test_wrong_count_or_size_in_a_list_is_no_damage(manifest: ManifestFile, tmp_path: Path, recorded: Recorded) -> None:
    """Writers that count wrongly, and copies that the runtime made, would be refused."""
    assert len(paths_in(local(manifest.manifest_path).read_bytes(), tmp_path / "whole.avro", recorded)) == 1


def test_list_without_manifests_is_no_damage_whatever_the_totals_say(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals count on from wrong ones: the table could never be written again."""
    sink.append(1)
    sink.overwrite([])
    edit_list(sink, lambda _: [])
    edit_summary(sink, -1, total_data_files="1")
    monkeypatch.setattr(manifests, "KNOWN_LISTS", ManifestLists())

    sink.append(2)

    assert sink.ids() == [2]


def test_damaged_frame_is_refused(manifest: ManifestFile, tmp_path: Path) -> None:
    """Records would be read from bytes that are none."""
    whole = bytearray(local(manifest.manifest_path).read_bytes())
    whole[-1] ^= 1

    with pytest.raises(ValueError, match="is damaged before byte"):
        paths_in(bytes(whole), tmp_path / "damaged.avro")


def test_empty_block_is_not_the_end(manifest: ManifestFile, tmp_path: Path) -> None:
    """Other writers may have one: what comes behind it would seem to be no part of the table."""
    whole = local(manifest.manifest_path).read_bytes()
    begin = header_bytes(whole)
    nothing = zlib.compress(b"", wbits=-15) if b"deflate" in whole[:begin] else b""
    empty = bytes([0, 2 * len(nothing)]) + nothing + whole[-SYNC_SIZE:]

    assert len(paths_in(whole[:begin] + empty + whole[begin:] + empty, tmp_path / "more.avro")) == 1


@pytest.mark.parametrize("behind_header", [0, 1])
def test_nothing_is_added_to_a_list_that_was_cut_off(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, behind_header: int
) -> None:
    """The next snapshot would list the new rows alone."""
    sink.append(1)
    head = sink.table().current_snapshot()
    assert head is not None
    cut_off(head.manifest_list, behind_header=behind_header)
    monkeypatch.setattr(manifests, "KNOWN_LISTS", ManifestLists())

    with pytest.raises(CommitConflictError, match=r"nothing was sent to the catalog: .* was cut off"):
        sink.append(2)

    assert sink.table().current_snapshot() == head


def test_pyiceberg_still_takes_a_manifest_that_is_cut_off_for_an_empty_one(sink: Sink) -> None:
    """Once it does not, its frame can be read by PyIceberg."""
    sink.append(1)
    used = live_manifests(sink.table().io, sink.table().current_snapshot())[0]
    cut_off(used.manifest_path, behind_header=1)

    assert used.fetch_manifest_entry(sink.table().io) == []


def test_fast_decoder_still_cuts_doubles() -> None:
    """Once it does not, this module can go and PyIceberg's own reader be used."""
    assert new_decoder(struct.pack("<d", 0.1)).read_double() == pytest.approx(0.1)
    assert new_decoder(struct.pack("<d", 0.1)).read_double() != 0.1


def test_skipping_a_decimal_still_loses_the_place() -> None:
    """Once it does not, values that are not asked for can be skipped by PyIceberg's own reader."""
    decoder = new_decoder(b"\0\0\0\x07*")
    DecimalReader(9, 2).skip(decoder)

    assert decoder.read(1) != b"*"


def test_partition_values_of_type_double_keep_all_their_digits(sink: Sink) -> None:
    """A replaced partition would not be recognised, and rows be doubled; rewritten entries would name another one."""
    values = [0.1, 1e300, 5e-324, -2.5, math.inf, None]

    assert sorted(
        map(str, partition_values(partitioned(sink, ice.DoubleType(), spark.DoubleType(), values)))
    ) == sorted(map(str, values))


def test_partition_values_of_type_float_are_those_that_were_written(sink: Sink) -> None:
    """A replaced partition would not be recognised."""
    nearest = struct.unpack("<f", struct.pack("<f", 0.1))[0]

    assert partition_values(partitioned(sink, ice.FloatType(), spark.FloatType(), [0.1])) == [nearest]


def test_entries_say_what_pyicebergs_own_reader_says(sink: Sink) -> None:
    """An entry that is written again would lose metrics, or its place in the sequence of commits."""
    sink.append(1, 2)
    sink.append(3)
    sink.overwrite(rows(3), replace_where="id = 3")
    table = sink.table()

    for manifest in live_manifests(table.io, table.current_snapshot()):
        ours = live_entries(table.io, manifest)
        theirs = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        assert [plain(entry) for entry in ours] == [plain(entry) for entry in theirs]
        assert [entry.data_file.spec_id for entry in ours] == [entry.data_file.spec_id for entry in theirs]
        assert all(entry.data_file.lower_bounds for entry in ours)


def test_entries_of_dropped_files_are_left_out(sink: Sink) -> None:
    """Rows that were replaced would be replaced again, or come back."""
    sink.append(1)
    sink.overwrite(rows(2))
    table = sink.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None

    found = [entry for manifest in snapshot.manifests(table.io) for entry in live_entries(table.io, manifest)]

    assert [entry.status for entry in found] == [ManifestEntryStatus.ADDED]
