"""Searches a branch for keys, again and again as long as others bring data files, until a commit can rest on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.diagnosis.diagnosing import advice
from iceberg_ds.errors import DataFileError, UnsupportedTableError
from iceberg_ds.resolving.job import resolve
from iceberg_ds.resolving.live_files import LiveFiles
from iceberg_ds.resolving.resolution import Goal, Resolution
from iceberg_ds.resolving.scan import all_specs
from iceberg_ds.resolving.snapshot_reader import ReadSnapshot, SnapshotReader
from iceberg_ds.resolving.values import FileWork, ResolvePlan
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.storage.cleanup import Proof, delete_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KeySearch:
    """What is known of the rows with some keys in one branch.

    Args:
        action: What is done, such as `upsert db.t`, for messages.
        spark: Runs the tasks; None to run them here.
        base: Returns the snapshot of the branch.

    Attributes:
        resolution: What was found and written so far.
        read_bytes: Compressed bytes that tasks have read.
    """

    def __init__(
        self, action: str, spark: SparkSession | None, base: Callable[[TableMetadata], Snapshot | None]
    ) -> None:
        self.resolution = Resolution()
        self.read_bytes = 0
        self._reader = SnapshotReader()
        self._action = action
        self._spark = spark
        self._base = base

    def read(self, table: Table) -> ReadSnapshot:
        """Return the files of the branch.

        Raises:
            DataFileError: Its manifests cannot be read.
        """
        try:
            return self._reader.read(table.io, self._base(table.metadata))
        except Exception as error:  # of whatever storage library
            reason = mask_text(f"{type(error).__name__}: {error}", table.io.properties)
            raise DataFileError(
                f"Cannot {self._action}, nothing was committed: the table's manifests cannot be read: {reason}. "
                f"{advice(error)}".rstrip()
            ) from masked_cause(error, table.io.properties)

    def look(self, table: Table, goal: Goal) -> list[FileWork] | None:
        """Return what is left to be searched in the table, None if nothing is left to be done; forget what is stale.

        Raises:
            UnsupportedTableError: The table has files that cannot be searched.
        """
        live = self.read(table).files
        self.check_deletes(live, goal)
        delete_files(table.io, [file.file_path for file in self.resolution.prune(live)], Proof.REFUSED)
        sources = goal.sources(live)
        if not sources:
            return None
        work = self.resolution.plan(live, sources, all_specs(table.metadata), goal.key_types)
        searched = {item.path for item in work}
        read = [source.data_file for source in sources]
        read += [found.data_file for found in live.data if found.path in searched]
        self._check_readable([*read, *(found.data_file for found in live.positions)])
        return work

    def run(self, work: Sequence[FileWork], plan: ResolvePlan) -> None:
        """Search data files, and write what follows from what is found in them.

        Raises:
            DataFileError: A task failed time after time, or the whole job.
        """
        if not work:
            return
        answers = resolve(self._spark, plan, work)
        self.resolution.take(answers)
        self.read_bytes += sum(answer.read_bytes for answer in answers)
        if (problem := next((answer.problem for answer in answers if answer.problem), None)) is not None:
            raise DataFileError(f"Cannot {self._action}, nothing was committed: a task failed: {problem}")

    def discard(self, io: FileIO) -> None:
        """Delete what tasks have written; no commit has landed, and none can land any more."""
        delete_files(io, [file.file_path for file in self.resolution.added.files], Proof.REFUSED)
        self.resolution = Resolution()

    def check_deletes(self, live: LiveFiles, goal: Goal) -> None:
        """Refuse deletes by keys where it must be known which rows the table shows: only position deletes are read.

        Raises:
            UnsupportedTableError: There are some.
        """
        if goal.counts_stored and live.equalities:
            raise UnsupportedTableError(
                f"Cannot {self._action} with sequence-scope=table, nothing was committed: the branch has "
                f"{len(live.equalities)} files of deletes by keys, such as {live.equalities[0].path}, and the rows "
                "that they hide have no say. Take them out with iceberg_ds.convert_deletes, and let all writers of "
                "the table use iceberg_ds.upsert."
            )

    def _check_readable(self, files: Sequence[DataFile]) -> None:
        for file in files:
            if (reason := _why_not_readable(file)) is not None:
                raise UnsupportedTableError(
                    f"Cannot {self._action}: {file.file_path} {reason}. Rewrite its files with Iceberg's "
                    "rewrite_data_files instead."
                )


def _why_not_readable(file: DataFile) -> str | None:
    """Return why a file cannot be searched, or looked into for keys, None if it can."""
    if file.file_format is not FileFormat.PARQUET:
        return f"is a file of {file.file_format.value}, and only Parquet is read"
    if file.key_metadata is not None:
        return "is encrypted"
    if file.content == DataFileContent.EQUALITY_DELETES and not file.equality_ids:
        return "does not say by which columns it deletes"
    return None
