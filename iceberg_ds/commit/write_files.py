"""The files of a write: those of its tasks, and those that the commit makes from the rest of the tasks' reports.

Tasks name files one by one, or manifests that name further data files. Rows that tasks handed over become files here,
through the same code that tasks use, so that sort orders, partitions, sizes and metrics are the same. Nothing is
written before the table is loaded and looked at, so the replay of an epoch writes nothing; and a file written here
counts as a file of the write from then on, with the same rules for when it may be deleted.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.commit.cross_task import KeyReports
from iceberg_ds.errors import CommitMessageError
from iceberg_ds.messages import HandedOverRows, TaskCommit, TaskManifest, check_rows, rows_in
from iceberg_ds.plan import WriteIdentity, WritePlan
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.manifest_merge import Merged
from iceberg_ds.snapshots.manifests import live_entries
from iceberg_ds.writers.task_writer import TaskAttempt, TaskWriter, discarding

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Added:
    """The files of one write.

    Attributes:
        data_files: Data files that messages name.
        manifests: Manifests that name further data files.
        delete_files: Equality and position delete files.
        merged: Manifests that take the place of others, and add no file.
    """

    data_files: tuple[DataFile, ...]
    manifests: tuple[TaskManifest, ...] = ()
    delete_files: tuple[DataFile, ...] = ()
    merged: tuple[Merged, ...] = ()

    @classmethod
    def of(cls, commits: Sequence[TaskCommit]) -> Added:
        """Return the files that the tasks report."""
        return cls(
            tuple(itertools.chain.from_iterable(commit.data_files for commit in commits)),
            tuple(itertools.chain.from_iterable(commit.manifests for commit in commits)),
            tuple(itertools.chain.from_iterable(commit.delete_files for commit in commits)),
        )

    def with_files(self, data_files: Iterable[DataFile] = (), delete_files: Iterable[DataFile] = ()) -> Added:
        """Return these files with further data files and delete files."""
        return replace(
            self,
            data_files=(*self.data_files, *data_files),
            delete_files=(*self.delete_files, *delete_files),
        )

    def without(self, files: Iterable[DataFile]) -> Added:
        """Return all files but these data files and delete files."""
        paths = {file.file_path for file in files}
        return replace(
            self,
            data_files=tuple(found for found in self.data_files if found.file_path not in paths),
            delete_files=tuple(found for found in self.delete_files if found.file_path not in paths),
        )

    def __bool__(self) -> bool:
        return bool(self.files or self.manifests)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All data files and delete files that messages name."""
        return (*self.data_files, *self.delete_files)

    @cached_property
    def file_count(self) -> int:
        """Number of data files and delete files, those that manifests name included."""
        return len(self.files) + sum(manifest.totals.files for manifest in self.manifests)

    @cached_property
    def record_count(self) -> int:
        """Number of rows in the data files; deletes do not count."""
        named = sum(data_file.record_count for data_file in self.data_files)
        return named + sum(manifest.totals.rows for manifest in self.manifests)

    @cached_property
    def size_bytes(self) -> int:
        """Size of the data files and delete files in bytes, without the manifests themselves.

        Several deletion vectors share a file.
        """
        named = {data_file.file_path: data_file.file_size_in_bytes for data_file in self.files}
        return sum(named.values()) + sum(manifest.totals.size_bytes for manifest in self.manifests)

    @cached_property
    def spec_ids(self) -> set[int]:
        """Ids of the files' partition specs."""
        named = {data_file.spec_id for data_file in self.files}
        return named | {manifest.file.partition_spec_id for manifest in self.manifests}

    @property
    def manifest_paths(self) -> list[str]:
        """Paths of the manifests."""
        own = [manifest.path for manifest in self.manifests]
        return [*own, *(path for merged in self.merged for path in merged.paths)]

    def any_path(self) -> str | None:
        """Return the path of one of the files, or None if there are no files."""
        return next((path for path, _ in self.told_sizes()), None)

    def told_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield path and size in bytes of each file that messages name, of each manifest, and of a new file in it."""
        for data_file in self.files:
            yield data_file.file_path, data_file.file_size_in_bytes
        for manifest in self.manifests:
            yield manifest.path, manifest.file.manifest_length
            yield manifest.example
        for merged in self.merged:
            yield from ((file.manifest_path, file.manifest_length) for file in merged.files)

    def every_path(self, io: FileIO) -> list[str]:
        """Return the paths to delete if the write is given up: data files and delete files, then the manifests.

        A manifest that cannot be read stays and is logged, because nothing else tells what it names.
        """
        paths = list(dict.fromkeys(data_file.file_path for data_file in self.files))  # vectors share files
        read = []
        for manifest in self.manifests:
            try:
                paths += [data_file.file_path for data_file in _files_in(io, manifest)]
            except Exception as problem:  # of any storage library; the caller has its own outcome to report
                reason = mask_text(f"{type(problem).__name__}: {problem}", io.properties)
                logger.warning(
                    "Left behind %s and the %d files that it names, which no table refers to: it cannot be read: %s",
                    manifest.path,
                    manifest.totals.files,
                    reason,
                )
            else:
                read.append(manifest.path)
        return [*paths, *read, *(path for merged in self.merged for path in merged.paths)]

    def one_by_one(self, io: FileIO) -> Added:
        """Return the same files without manifests: the files that manifests name are read from them."""
        read = (found for manifest in self.manifests for found in _files_in(io, manifest))
        return replace(self.with_files(read), manifests=())


def _files_in(io: FileIO, manifest: TaskManifest) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(io, manifest.file)]


class InlineRows:
    """The rows of one write that tasks handed over and did not write.

    Args:
        catalog: The catalog of the table.
        write: The write.
        commits: What its tasks report.
    """

    def __init__(self, catalog: CatalogClient, write: WriteIdentity, commits: Sequence[TaskCommit]) -> None:
        self._catalog = catalog
        self._write = write
        self._parts = [commit.rows for commit in commits if commit.rows is not None]
        # No task has this number, so no task's file has such a name.
        self._partition_id = len(commits)
        self._tries = itertools.count()
        self._is_written = not self._parts

    @property
    def record_count(self) -> int:
        """Number of rows."""
        return sum(part.record_count for part in self._parts)

    @property
    def spec_ids(self) -> set[int]:
        """Ids of the rows' partition specs."""
        return {part.spec_id for part in self._parts}

    def write_once(self, table: Table, *, is_new: bool) -> tuple[DataFile, ...]:
        """Write the rows, unless that was done before, and return the new files.

        Args:
            table: The table as the commit has just loaded it.
            is_new: Whether the commit creates it.

        Raises:
            DataFileError: The rows could not be written; no file of them is left, or its path was logged.
            CommitMessageError: The rows do not have the columns of the table.
        """
        if self._is_written:
            return ()
        plan = _plan(self._catalog, table, self._write, self._parts[0], is_new=is_new)
        writer = TaskWriter(plan, TaskAttempt(partition_id=self._partition_id, task_attempt_id=next(self._tries)))
        with discarding(writer, plan):
            for rows in self._batches(writer.file_schema):
                writer.write_conformed(rows)
            data_files = writer.close()
        self._is_written = True
        return data_files

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            rows = pa.ipc.open_stream(part.arrow_stream).read_all()
            if rows.schema != schema or rows.num_rows != part.record_count:
                raise CommitMessageError(
                    f"Cannot commit {self._write}, nothing was committed: {rows.num_rows} rows that a task handed over "
                    f"have the columns {rows.schema.names}, and {part.record_count} were to have {schema.names}."
                )
            yield from rows.to_batches()


def _plan(
    catalog: CatalogClient, table: Table, write: WriteIdentity, part: HandedOverRows, *, is_new: bool
) -> WritePlan:
    """Return the plan that the tasks had, with storage opened as it is now."""
    metadata = table.metadata
    # Another writer may have created an identical table first: the ids are those that were planned.
    planned = metadata if write.new_table is None else planned_metadata(write.new_table)
    schema = write.schema_change.schema if write.schema_change else planned.schema_by_id(write.schema_id)
    io_properties = catalog.io_properties if is_new else catalog.plan_properties(table)
    return replace(
        WritePlan.into(metadata, write, io_properties),
        schema=schema or planned.schema(),
        spec=planned.specs()[part.spec_id],
        sort_order=None if part.sort_order_id is None else planned.sort_order_by_id(part.sort_order_id),
    )


class WriteFiles:
    """The files that one write adds to the table; they are complete once the table is loaded and looked at.

    Args:
        of_tasks: The files that its tasks wrote.
        gathered: The rows that its tasks handed over instead; None if they handed over none.
        keys: The key reports of its tasks; None for a write without keys.
        row_count: Number of rows that its tasks report, in files or handed over.

    Attributes:
        added: The files that a snapshot of the write adds.
        own_paths: Paths of the files that were written here.
        lost_files: Data files with late rows only, which are left out.
    """

    def __init__(
        self,
        of_tasks: Added,
        gathered: InlineRows | None = None,
        keys: KeyReports | None = None,
        *,
        row_count: int = 0,
    ) -> None:
        self.added = of_tasks
        self.own_paths: list[str] = []
        self.lost_files: tuple[DataFile, ...] = ()
        self._hiding: tuple[DataFile, ...] = ()  # deletes that were written here
        self._replaced: list[str] = []  # paths of such deletes that others took the place of
        self._gathered = gathered
        self._keys = keys
        self._row_count = row_count
        self._included_rows = 0

    @property
    def spec_ids(self) -> set[int]:
        """Ids of the partition specs of all files, those not written yet included."""
        return self.added.spec_ids | (self._gathered.spec_ids if self._gathered else set())

    @property
    def lost_paths(self) -> list[str]:
        """Paths of the files that are left out: data files with late rows only, and deletes that were written anew."""
        return [*(file.file_path for file in self.lost_files), *self._replaced]

    @property
    def record_count(self) -> int | None:
        """Rows visible after this commit, hidden rows excluded; None if unknown."""
        hidden = self._keys.hidden_count if self._keys else 0
        return None if hidden is None else self._row_count - hidden

    def include(self, added: Added) -> None:
        """Add files whose rows are not new, and manifests of files that are there."""
        self.added = replace(self.added.with_files(added.data_files, added.delete_files), merged=added.merged)
        self._included_rows += added.record_count

    def check_rows(self, action: str) -> None:
        """Check that the files, which must be complete, hold all rows of the tasks.

        Args:
            action: What is being done, for errors.

        Raises:
            RowCountError: The counts of rows differ.
        """
        in_files = self.added.record_count - self._included_rows
        found = {"in the files to add": in_files, "in files of late rows alone": rows_in(self.lost_files)}
        check_rows(action, "its tasks tell of", self._row_count, found)

    def complete(self, table: Table, *, is_new: bool) -> bool:
        """Write the rows that tasks handed over, and hide the rows that lose, unless that was done before.

        Args:
            table: The table as the commit has just loaded it.
            is_new: Whether the commit creates it.

        Returns:
            Whether the files to add have changed.

        Raises:
            IcebergSinkError: As `InlineRows.write_once` and `KeyReports.hide`.
        """
        data_files = self._gathered.write_once(table, is_new=is_new) if self._gathered else ()
        hiding = self._keys.hide(table) if self._keys else ()
        lost = self._keys.lost_files if self._keys else ()
        if not data_files and hiding is self._hiding and lost is self.lost_files:
            return False
        new, replaced = ((), ()) if hiding is self._hiding else (hiding, self._hiding)
        self.added = self.added.with_files(data_files, new).without((*lost, *replaced))
        self.own_paths += [file.file_path for file in (*data_files, *new)]
        self._replaced += dict.fromkeys(file.file_path for file in replaced)
        self._hiding, self.lost_files = hiding, lost
        return True
