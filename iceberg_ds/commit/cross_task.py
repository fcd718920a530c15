"""Deduplication across the tasks of a write: from the tasks' key reports to a refusal or to position deletes.

Rows that lose to another task's change of the same key, or to a newer row in the table, are hidden in the very
snapshot that adds them; the snapshot leaves out data files with late rows only. No keys are compared before the table
is loaded and looked at, so the replay of an epoch is not refused and hides nothing. Only keys in doubt are read from
the written files, one row group at a time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.cdc.cross_task import CrossTaskDuplicates, file_positions, find_duplicates, why_refused
from iceberg_ds.cdc.dedup import RANK, Rank, decode_key_report
from iceberg_ds.cdc.keys import plain
from iceberg_ds.cdc.reader import key_texts
from iceberg_ds.errors import CommitMessageError, RefusedRowsError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.parquet_files import open_parquet
from iceberg_ds.messages import TaskCommit, check_rows
from iceberg_ds.plan import TaskKeys, WriteIdentity
from iceberg_ds.table.locations import FilePaths, data_locations
from iceberg_ds.table.partitioning import place_of
from iceberg_ds.table.projection import field_id
from iceberg_ds.writers.deletion_vectors import has_vectors, write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows, write_position_deletes

# A delete file for one data file only does not conflict with a concurrent compaction of other data files. Beyond this
# many delete files, which are written one after another, there is one for each partition.
_MOST_SINGLE_FILES = 10


def read_keys(io: FileIO, path: str, positions: Sequence[int], key_ids: Sequence[int]) -> pa.Table:
    """Return the key columns of some rows of a data file, in the types of the file.

    Args:
        io: Opens the table's storage.
        path: The data file, with the keys among its top-level columns.
        positions: Positions of the rows in the file, from 0, ascending.
        key_ids: Field ids of the key columns, in the order in which they are returned.
    """
    wanted = pa.array(positions, pa.int64())
    with io.new_input(path).open() as stream:
        file = open_parquet(stream)
        by_id = {field_id(field): field.name for field in file.schema_arrow}
        names = [by_id[key_id] for key_id in key_ids]
        read, start = [], 0
        for group in range(file.metadata.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            is_here = pc.and_(
                pc.greater_equal(wanted, pa.scalar(start, pa.int64())), pc.less(wanted, pa.scalar(end, pa.int64()))
            )
            if is_here.true_count:
                places = pc.subtract(wanted.filter(is_here), pa.scalar(start, pa.int64()))
                read.append(file.read_row_group(group, columns=names).select(names).take(places))
            start = end
    return pa.concat_tables(read).combine_chunks()


class KeyReports:
    """The key reports of the tasks of one write; empty for a write without keys.

    Args:
        write: The write.
        commits: What its tasks report.
        storage: Opens the storage of a file that a task has written, where no table is loaded to open it.
        late: Digests and keys whose rows lose to rows of the table, in the form that `find_duplicates` takes; None
            for no keys.

    Attributes:
        lost_files: Data files with late rows only, which no snapshot needs; known after `hide`.
    """

    def __init__(
        self,
        write: WriteIdentity,
        commits: Sequence[TaskCommit],
        storage: Callable[[str], FileIO],
        late: pa.Table | None = None,
    ) -> None:
        self.lost_files: tuple[DataFile, ...] = ()
        self._write = write
        self._late = late
        self._storage = storage
        self._io: FileIO | None = None
        keyed = [commit for commit in commits if commit.keys is not None] if write.changes is not None else []
        self._commits = sorted(keyed, key=lambda commit: commit.partition_id)
        self._tries = itertools.count()
        self._hiding: tuple[DataFile, ...] = ()
        self._are_vectors: bool | None = None  # None as long as nothing is hidden

    @property
    def have_unreadable_rows(self) -> bool:
        """Whether a task met rows without a key or with an unknown operation, which no file records."""
        return any(keys.null_keys.count or keys.unknown_operations for keys in self._keys)

    @property
    def hidden_count(self) -> int | None:
        """Number of written rows that lose; None if unknown."""
        if not self._duplicates.is_known:
            return None
        return sum(len(rows) for rows in self._duplicates.losers.values())

    def hide(self, table: Table) -> tuple[DataFile, ...]:
        """Write position deletes for the rows that lose, unless that was done before, and return the files.

        They are written anew if the table's format was upgraded meanwhile. If the write has late keys, a data file
        whose rows all lose gets no deletes: the snapshot leaves it out.

        Args:
            table: The table as the commit has just loaded it.

        Raises:
            RefusedRowsError: Rows cannot be read as changes of keys, or nothing tells which of them win.
            CommitMessageError: A task reports other rows than it has written.
            RowCountError: Not all rows that lose are found in the files.
        """
        if not self._commits or self._are_vectors == has_vectors(table.metadata):
            return self._hiding
        self._io = table.io
        self._refuse(table)
        hidden = list(self._hidden_rows())
        count = sum(len(rows.positions) for rows in hidden)
        check_rows(f"commit {self._write}", "what tasks tell of keys hides", self.hidden_count or 0, {"found": count})
        lost = {rows.data_file.file_path: rows.data_file for rows in hidden if self._is_needless(rows)}
        left = [rows for rows in hidden if rows.data_file.file_path not in lost]
        self._hiding = self._write_deletes(table, left)
        self.lost_files = tuple(lost.values())
        self._are_vectors = has_vectors(table.metadata)
        return self._hiding

    @property
    def _keys(self) -> list[TaskKeys]:
        return [commit.keys for commit in self._commits if commit.keys is not None]

    @cached_property
    def _duplicates(self) -> CrossTaskDuplicates:
        feed = self._write.changes
        if feed is None or not self._commits:
            return CrossTaskDuplicates(losers={})
        return find_duplicates(
            self._keys,
            feed.sequence,
            read_keys=self._read_keys,
            is_enforced=feed.is_enforced,
            keeps_deleted=feed.keeps_deleted,
            late=self._late,
        )

    @property
    def _key_ids(self) -> tuple[int, ...]:
        return self._write.changes.key_ids if self._write.changes else ()

    def _read_keys(self, task: int, rows: Sequence[int]) -> list[pa.Array]:
        """Return the keys of rows that a task has written, in the form in which keys are compared."""
        self._check_key_report(task)
        data_files = self._commits[task].data_files
        found = []
        for number, positions in self._positions(task, rows).items():
            path = data_files[number].file_path
            found.append(read_keys(self._io or self._storage(path), path, positions, self._key_ids))
        return [
            pa.concat_arrays([plain(chunk) for part in found for chunk in part.column(place).chunks])
            for place in range(len(self._key_ids))
        ]

    def _refuse(self, table: Table) -> None:
        schema, duplicates = table.metadata.schema(), self._duplicates
        if duplicates.tied_rows:
            texts = tuple(self._key_at(table.io, task, row) for task, row in duplicates.tied_rows)
            duplicates = replace(duplicates, tied_keys=(*duplicates.tied_keys, *texts))
        reasons = why_refused(
            self._keys, duplicates, [str(schema.find_column_name(number)) for number in self._key_ids]
        )
        if reasons:
            raise RefusedRowsError(
                f"Cannot commit to {self._write.table}, nothing was committed: {'; '.join(reasons)}."
            )

    def _key_at(self, io: FileIO, task: int, row: int) -> str:
        """Return the key of a written row as text, or where the row is if it cannot be read."""
        ((number, (position,)),) = self._positions(task, [row]).items()
        path = self._commits[task].data_files[number].file_path
        try:
            (batch,) = read_keys(io, path, [position], self._key_ids).to_batches()
        except Exception:  # of any storage library; the refusal is what counts
            return f"row {position} of {path}"
        return key_texts(batch)[0]

    def _hidden_rows(self) -> Iterator[HiddenRows]:
        for task, rows in self._duplicates.losers.items():
            self._check_key_report(task)
            data_files = self._commits[task].data_files
            for number, positions in self._positions(task, rows).items():
                yield HiddenRows(data_file=data_files[number], positions=positions)

    def _is_needless(self, rows: HiddenRows) -> bool:
        # Few rows lose to each other; late rows may be whole batches.
        return self._late is not None and len(rows.positions) == rows.data_file.record_count

    def _positions(self, task: int, rows: Sequence[int]) -> dict[int, list[int]]:
        return file_positions(rows, [data_file.record_count for data_file in self._commits[task].data_files])

    def _check_key_report(self, task: int) -> None:
        """Refuse to hide rows by their number if the task does not number the rows that it has written."""
        commit = self._commits[task]
        written = sum(data_file.record_count for data_file in commit.data_files)
        ranks = decode_key_report(self._keys[task].key_report or b"").column(RANK)
        keeps_deleted = self._write.changes is not None and self._write.changes.keeps_deleted
        is_row = ranks.is_valid() if keeps_deleted else pc.equal(ranks, pa.scalar(Rank.ROW, pa.int8()))
        if pc.sum(is_row).as_py() != written or not pc.all(is_row.slice(0, written)).as_py():
            raise CommitMessageError(
                f"Cannot commit {self._write}, nothing was committed: task {commit.partition_id} reports keys of other "
                f"rows than the {written} that it has written."
            )

    def _write_deletes(self, table: Table, hidden: Sequence[HiddenRows]) -> tuple[DataFile, ...]:
        written: list[DataFile] = []
        paths, specs = self._new_paths(table.metadata), table.metadata.specs()
        with_vectors = has_vectors(table.metadata)
        try:
            if hidden and with_vectors:
                written += write_deletion_vectors(table.io, paths.next_of_vectors(), hidden)
                fault_point(FaultPoint.FILE_CLOSED)
            for rows in () if with_vectors else _by_file_of_deletes(hidden):
                first = rows[0].data_file
                path = paths.next(specs[first.spec_id], first.partition)
                written.append(write_position_deletes(table.io, path, rows, self._write.files))
                fault_point(FaultPoint.FILE_CLOSED)
        except BaseException:
            delete_files(table.io, dict.fromkeys(found.file_path for found in written), Proof.NEVER_SENT)
            raise
        return tuple(written)

    def _new_paths(self, table: TableMetadata) -> FilePaths:
        # No task has this number, so no task's file has such a name.
        prefix = f"{len(self._commits):05d}-{next(self._tries)}-{self._write.operation_id}"
        places = data_locations(table.location, table.properties, self._write.location_provider)
        return FilePaths(places, table.schema(), prefix, are_deletes=True)


def _by_file_of_deletes(hidden: Sequence[HiddenRows]) -> list[list[HiddenRows]]:
    """Return the rows grouped by data file, or by spec and partition if the data files are many."""
    if len(hidden) <= _MOST_SINGLE_FILES:
        return [[rows] for rows in hidden]
    found: dict[tuple[int, str], list[HiddenRows]] = defaultdict(list)
    for rows in hidden:
        found[place_of(rows.data_file)].append(rows)
    return list(found.values())
