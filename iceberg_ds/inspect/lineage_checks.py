"""Checks that no two rows of a table of format version 3 have one id, and that the next ids are free.

A snapshot has a range of row ids and gives parts of it to the manifests that have none; the files that a manifest lists
without an id of their own inherit its ids in their order. A file of rows that have moved may have their ids in a column
instead; only the check of unique row ids reads those. Source: Iceberg spec, "Row Lineage" and "First Row ID
Inheritance".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.deletes.key_reader import KeyedRowReader
from iceberg_ds.deletes.search import SnapshotReader
from iceberg_ds.inspect.checklist import Checklist, NotTriedError
from iceberg_ds.inspect.contents import Contents, ListedFile, counted, found
from iceberg_ds.inspect.visible_rows import Place, VisibleRows, heads
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles
from iceberg_ds.snapshots.version_3 import lineage_of, manifest_first_row_id, next_row_id
from iceberg_ds.table.lineage import ROW_ID
from iceberg_ds.table.projection import field_id

ROW_IDS, UNIQUE_ROW_IDS = "row ids", "unique row ids"
_NEXT_STEP = (
    "Readers would take several rows for one. Find out who committed it before anyone writes again. A snapshot before "
    "it is whole."
)
# A manifest, and the first row id that a snapshot has given it.
_Listed: TypeAlias = tuple[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """The row ids of a data file: from the first one to before the end."""

    first: int
    end: int
    file: ListedFile


def check_row_ids(checklist: Checklist, io: FileIO, contents: Contents, scope: Collection[int] | None) -> None:
    """Make the check of row ids.

    Args:
        checklist: Gets the check.
        io: Opens the table's files.
        contents: The manifest lists and manifests of the table.
        scope: The snapshots whose files are looked at; None for all.
    """

    def once() -> tuple[str, None]:
        metadata = contents.metadata
        numbered = [snapshot for snapshot in metadata.snapshots if snapshot.first_row_id is not None]
        if not numbered:
            raise NotTriedError("no snapshot has given any")
        return found(
            row_id_problems(io, contents, scope),
            f"each of one row: those of {counted(len(numbered), 'snapshot')}, below the table's next, "
            f"{next_row_id(metadata):,}",
            _NEXT_STEP,
        )

    checklist.attempt(ROW_IDS, once)


def check_unique_row_ids(checklist: Checklist, table: Table, needs: Collection[str]) -> None:
    """Check that the snapshots that branches and tags point at show one row of each row id at most.

    Args:
        checklist: Gets the check.
        table: The table.
        needs: Names of checks without which the rows cannot be read, if they were made.
    """
    failed = [check.name for check in checklist.checks if check.name in needs and check.outcome == "failed"]
    checklist.attempt(UNIQUE_ROW_IDS, lambda: _unique_row_ids(table), needs=failed)


def _unique_row_ids(table: Table) -> tuple[str, None]:
    checked = [(name, head) for name, head in heads(table.metadata) if head.first_row_id is not None]
    if not checked:
        raise NotTriedError("no branch or tag is at a snapshot whose rows have ids")
    reader, rows, problems = SnapshotReader(), 0, []
    for name, head in checked:
        row_ids = _RowIds(table, reader.read(table.io, head).files)
        repeated = row_ids.repeated()
        rows += row_ids.count
        problems += row_ids.problems
        if repeated.values:
            examples = "; ".join(f"{one.values.column(0)[0].as_py():,} in {one}" for one in repeated.examples)
            problems.append(
                f"on {name}, snapshot {head.snapshot_id} shows {counted(repeated.rows, 'row')} of "
                f"{counted(repeated.values, 'row id')}: {examples}{repeated.and_more}"
            )
    well = f"each of one row: {counted(rows, 'row')} of {counted(len(checked), 'snapshot')}, stored and inherited ids"
    return found(problems, well, _NEXT_STEP)


class _RowIds(VisibleRows):
    """The row ids of all visible rows of a snapshot that have one, stored in a column or inherited.

    Args:
        table: The table.
        live: The files of the snapshot.

    Attributes:
        problems: Which files have ids that the table has not given; known after `repeated`.
    """

    def __init__(self, table: Table, live: LiveFiles) -> None:
        super().__init__(table, live, {ROW_ID.field_id: ROW_ID.field_type})
        self.problems: list[str] = []
        self._following = next_row_id(table.metadata)

    def read(self, found: LiveFile) -> Iterator[tuple[int, list[pa.Array]]]:
        """Yield the ids of all rows of a data file, with the position of the first row; nothing for rows without."""
        lineage = lineage_of(found.data_file, found.sequence_number)
        if lineage is None:
            return
        nothing_stored = {ROW_ID.field_id: None}
        is_told = False
        for rows in KeyedRowReader(self.io, self.types).read(found.path, nothing_stored):
            (stored,) = rows.keys
            row_ids = lineage.column(ROW_ID.name, stored, rows.positions)
            is_free = pc.or_(pc.less(row_ids, 0), pc.greater_equal(row_ids, self._following))
            wrong = pc.indices_nonzero(is_free)
            if len(wrong) and not is_told:
                is_told = True
                position = wrong[0].as_py()
                row_id, place = row_ids[position].as_py(), Place(path=found.path, position=rows.first + position)
                given = "first is 0" if row_id < 0 else f"next is {self._following:,}"
                self.problems.append(f"{place} has row id {row_id:,}, and the table's {given}")
            yield rows.first, [row_ids]


def row_id_problems(io: FileIO, contents: Contents, scope: Collection[int] | None) -> Iterator[str]:
    """Yield the row ids that are given twice, to no row, or without being reserved.

    Args:
        io: Opens the table's files.
        contents: The manifest lists and manifests of the table.
        scope: The snapshots whose files are looked at; None for all.
    """
    yield from _snapshot_problems(contents.metadata)
    whole = contents.read_snapshots()
    for snapshot in whole:
        yield from _manifest_problems(contents, snapshot)
    checked: list[frozenset[_Listed]] = []
    for snapshot in sorted(whole, key=lambda snapshot: -(snapshot.sequence_number or 0)):
        if scope is None or snapshot.snapshot_id in scope:
            data = frozenset(_listed(contents, snapshot))
            # The ids of a part share none if those of the whole share none.
            if not any(data <= others for others in checked):
                checked.append(data)
                yield from _file_problems(io, contents, snapshot)


def _snapshot_problems(metadata: TableMetadata) -> Iterator[str]:
    following = next_row_id(metadata)
    every = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    # Snapshots from before the table's upgrade have none.
    since = list(itertools.dropwhile(lambda snapshot: snapshot.first_row_id is None, every))
    end, before = 0, None
    for snapshot in since:
        name, first = f"snapshot {snapshot.snapshot_id}", snapshot.first_row_id
        if first is None:
            yield f"{name} has no first row id"
            continue
        if before is not None and first < end:
            yield f"{name} begins with row id {first:,}, and snapshot {before} has given those below {end:,}"
        end, before = _end(snapshot), snapshot.snapshot_id
        if end > following:
            yield f"{name} has given the row ids below {end:,}, and the table's next is {following:,}"


def _end(snapshot: Snapshot) -> int:
    """Return the first row id behind those of a snapshot."""
    return (snapshot.first_row_id or 0) + (snapshot.added_rows or 0)


def _manifest_problems(contents: Contents, snapshot: Snapshot) -> Iterator[str]:
    if snapshot.first_row_id is None:
        return
    for used in contents.lists[snapshot.snapshot_id]:
        if used.content != ManifestContent.DATA:
            continue
        first = manifest_first_row_id(used)
        if first is None:
            yield (
                f"snapshot {snapshot.snapshot_id} lists manifest {used.manifest_path} without a first row id: the rows "
                "of its files have no ids"
            )
            continue
        files = (entry.file for entry in contents.manifests[used.manifest_path].live)
        end = first + sum(file.record_count for file in files if file.first_row_id is None)
        if first >= snapshot.first_row_id and end > _end(snapshot):
            yield (
                f"manifest {used.manifest_path} has the row ids below {end:,}, and snapshot {snapshot.snapshot_id}, "
                f"which gives them, has those below {_end(snapshot):,}"
            )


def _file_problems(io: FileIO, contents: Contents, snapshot: Snapshot) -> Iterator[str]:
    following = next_row_id(contents.metadata)
    ranges = [ids for used in contents.lists[snapshot.snapshot_id] for ids in _ranges(contents, used)]
    for ids in ranges:
        if ids.end > following:
            yield f"data file {ids.file.path} has the row ids below {ids.end:,}, and the table's next is {following:,}"
    shared = list(_shared(ranges))
    files = {ids.file.path: ids.file for pair in shared for ids in pair}
    stored = dict(zip(files, in_parallel(lambda file: _may_store_ids(io, file), files.values()), strict=True))
    for one, other in shared:
        if not (stored[one.file.path] or stored[other.file.path]):
            yield (
                f"snapshot {snapshot.snapshot_id} has rows with ids from {other.first:,} to "
                f"{min(one.end, other.end) - 1:,} in {one.file.path} and in {other.file.path}"
            )


def _listed(contents: Contents, snapshot: Snapshot) -> Iterator[_Listed]:
    """Yield path and first row id of the manifests of data files that a snapshot lists."""
    for used in contents.lists[snapshot.snapshot_id]:
        if used.content == ManifestContent.DATA:
            yield used.manifest_path, manifest_first_row_id(used)


def _ranges(contents: Contents, used: ManifestFile) -> Iterator[_Range]:
    """Yield the row ids of the data files of a manifest, as a snapshot lists it."""
    following = manifest_first_row_id(used)
    if following is None:
        return
    for entry in contents.manifests[used.manifest_path].live:
        file = entry.file
        if file.content is not DataFileContent.DATA:
            continue
        first = following if file.first_row_id is None else file.first_row_id
        if file.first_row_id is None:
            following += file.record_count
        yield _Range(first=first, end=first + file.record_count, file=file)


def _shared(ranges: Iterable[_Range]) -> Iterator[tuple[_Range, _Range]]:
    """Yield the pairs of different files that have row ids in common, the one that begins first before the other."""
    open_ranges: list[_Range] = []
    for ids in sorted(ranges, key=lambda ids: (ids.first, ids.end, ids.file.path)):
        if ids.first == ids.end:
            continue
        open_ranges = [one for one in open_ranges if one.end > ids.first]
        yield from ((one, ids) for one in open_ranges if one.file.path != ids.file.path)
        open_ranges.append(ids)


def _may_store_ids(io: FileIO, file: ListedFile) -> bool:
    """Return whether a data file may have the ids of its rows in a column, so that they inherit none."""
    if file.file_format is not FileFormat.PARQUET or file.is_encrypted:
        return True
    try:
        with io.new_input(file.path).open() as stream:
            return any(field_id(column) == ROW_ID.field_id for column in pq.read_schema(stream))
    except Exception:  # the checks of data files say why
        return True
