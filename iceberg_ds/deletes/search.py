"""Searches a branch for keys, again and again as long as others bring data files, until a commit can rest on it.

Deletes by keys may go once every live data file that they apply to was searched for them. That is found out anew at
each attempt to commit, from the manifests of the branch as it is then, so it does not matter what came meanwhile:

* rows and deletes that a stream adds have higher sequence numbers; its deletes stay;
* a file that a compaction has written, with the sequence number of its rows, was not searched: the work is stale;
* deletes by keys that are gone were replaced by marks, or taken back by a rollback: the work is stale;
* a data file that was marked by position and is gone takes its marks with it; if it is there still, so must be the
  position deletes that hid rows of it, which were not marked again;
* a data file that was rewritten must be there still, and no other position deletes may have come: else the same. So
  must one with a row that wins over an incoming one, because that row may be gone.

A rewritten file keeps the data sequence number of the file whose rows it has. So every delete by keys, whether it came
before, meanwhile or later, applies to it if and only if it applied to that file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType

from iceberg_ds.commit.overwrite import ReplacedManifest, Replacement, StaleWorkError
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.index import KeySource, LiveFile, LiveFiles, all_specs, applying_positions, only_path, plan_work
from iceberg_ds.deletes.job import resolve
from iceberg_ds.deletes.work import FileAnswer, FileWork, GroupAnswer, Marks, ResolvePlan
from iceberg_ds.error_hints import advice
from iceberg_ds.errors import DataFileError, UnsupportedTableError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.snapshots.manifests import live_entries, live_manifests, live_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_READERS = 8
# Entries of a manifest that is written in place of others at most.
MANIFEST_ENTRIES = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSnapshot:
    """The files of a snapshot.

    Attributes:
        manifests: Its manifests that list a live file, each with its live entries.
        files: All these files.
    """

    manifests: Mapping[ManifestFile, list[ManifestEntry]]
    files: LiveFiles


class SnapshotReader:
    """Reads snapshots of one table; what one of them has in common with the one before is not read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], list[ManifestEntry]] = {}

    def read(self, io: FileIO, snapshot: Snapshot | None) -> ReadSnapshot:
        """Return the files of a snapshot, none if there is no snapshot."""
        manifests = live_manifests(io, snapshot)
        missing = [found for found in manifests if _key(found) not in self._known]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="iceberg-ds-read") as readers:
            read = list(readers.map(lambda found: live_entries(io, found), missing))
        known = {**self._known, **{_key(found): entries for found, entries in zip(missing, read, strict=True)}}
        self._known = {_key(found): known[_key(found)] for found in manifests}
        entries = {found: self._known[_key(found)] for found in manifests}
        files = LiveFiles.of(_live(entry) for listed in entries.values() for entry in listed)
        return ReadSnapshot(manifests=entries, files=files)


def _live(entry: ManifestEntry) -> LiveFile:
    return LiveFile(data_file=entry.data_file, sequence_number=entry.sequence_number or 0)


def _key(manifest: ManifestFile) -> tuple[str, int]:
    # What entries inherit stands in the manifest list.
    return manifest.manifest_path, manifest.sequence_number or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The keys whose rows are to be hidden, and the deletes by keys that are to go then.

    Attributes:
        paths: The files of deletes that are to go: those that the branch had at the beginning.
        key_types: The types of all key columns, by field id.
        written: Further files of keys, which are in no snapshot and come into none.
        counts_stored: Whether rows that the table shows may win, so that it must be known which ones it shows.
    """

    paths: frozenset[str]
    key_types: Mapping[int, IcebergType]
    written: tuple[KeySource, ...] = ()
    counts_stored: bool = False

    def sources(self, live: LiveFiles) -> list[KeySource]:
        """Return all keys, of the deletes those that are still there."""
        return [*(KeySource.of(found) for found in self.deletes(live)), *self.written]

    def deletes(self, live: LiveFiles) -> list[LiveFile]:
        """Return the deletes that are still there."""
        return [found for found in live.equalities if found.path in self.paths]

    def is_whole(self, live: LiveFiles) -> bool:
        """Return whether all deletes are still there, so that what was found by them is hidden still."""
        return len(self.deletes(live)) == len(self.paths)


class Resolution:
    """The answers of all tasks so far."""

    def __init__(self) -> None:
        self._answers: dict[str, FileAnswer] = {}
        self._marks: list[Marks] = []
        self._looked_at: set[str] = set()  # data files, for keys that stay the same

    def take(self, answers: Iterable[GroupAnswer]) -> None:
        """Take the answers of tasks, in place of earlier ones for the same data files."""
        for answer in answers:
            self._answers.update({found.path: found for found in answer.files})
            self._looked_at.update(found.path for found in answer.files)
            self._marks += answer.marks

    def plan(
        self,
        live: LiveFiles,
        sources: Sequence[KeySource],
        specs: Mapping[int, PartitionSpec],
        key_types: Mapping[int, IcebergType],
    ) -> list[FileWork]:
        """Return what is still to be searched in a snapshot; data files without work are not looked at again.

        Those that were rewritten count as looked at; whether they are as they were is asked elsewhere. Arguments as of
        `plan_work`.
        """
        left = [found for found in live.data if found.path not in self._looked_at]
        work = plan_work(replace(live, data=left), sources, specs, key_types)
        self._looked_at |= {found.path for found in left} - {item.path for item in work}
        return work

    def prune(self, live: LiveFiles) -> list[DataFile]:
        """Forget what is of no use any more, and return the files that tasks have written for it."""
        changed = set(self.changed(live))
        present = {found.path for found in live.data}
        gone = {path for path in self._answers if path not in present or path in changed}
        useless = [file for path in gone for file in self._answers[path].rewritten or ()]
        self._answers = {path: answer for path, answer in self._answers.items() if path not in gone}
        self._looked_at -= gone
        useless += [marks.file for marks in self._marks if marks.paths.isdisjoint(self._answers)]
        self._marks = [marks for marks in self._marks if not marks.paths.isdisjoint(self._answers)]
        return useless

    @property
    def rewritten(self) -> dict[str, FileAnswer]:
        """The answers for data files that were rewritten, by path."""
        return {path: answer for path, answer in self._answers.items() if answer.rewritten is not None}

    def changed(self, live: LiveFiles) -> list[str]:
        """Return the data files whose answers are wrong by now.

        Rows that position deletes hid were not marked: if these deletes are gone, the rows must be looked for again. An
        answer that rests on deletes is wrong, too, if others have come, or if the data file is gone.
        """
        resting = [path for path, answer in self._answers.items() if answer.rests_on_deletes]
        present = applying_positions(live, resting)
        changed = [path for path in resting if present.get(path) != self._answers[path].positions]
        data, positions = {found.path for found in live.data}, {found.path for found in live.positions}
        marked = (answer for path, answer in self._answers.items() if path in data and not answer.rests_on_deletes)
        return changed + [answer.path for answer in marked if not answer.positions <= positions]

    @property
    def late_keys(self) -> pa.Table | None:
        """The keys of which the table has a row that wins over the incoming one, with digests; each once, or None."""
        told = [answer.late_keys for answer in self._answers.values() if answer.late_keys is not None]
        if not told:
            return None
        keys = pa.concat_tables(told)
        return keys.group_by(keys.column_names).aggregate([])

    @property
    def hit(self) -> list[FileAnswer]:
        """The answers for data files in which rows were found."""
        return [answer for answer in self._answers.values() if answer.rows]

    @property
    def added(self) -> Added:
        """All files that tasks have written."""
        rewritten = (file for answer in self.rewritten.values() for file in answer.rewritten or ())
        return Added(tuple(rewritten), delete_files=tuple(marks.file for marks in self._marks))


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
        self.check_listed_once(found.path for found in goal.deletes(live))
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
            UnsupportedTableError: A data file would be written again that the table lists more than once.
        """
        if not work:
            return
        if plan.encoding == "copy-on-write":
            self.check_listed_once(item.path for item in work)
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

    def check_listed_once(self, paths: Iterable[str]) -> None:
        """Refuse files that are listed more than once: one answer does not hold for all of their entries.

        Args:
            paths: Those of files, each as often as it is listed.

        Raises:
            UnsupportedTableError: One of them is there again.
        """
        path, count = next(iter(Counter(paths).most_common(1)), ("", 0))
        if count > 1:
            raise UnsupportedTableError(
                f"Cannot {self._action}, nothing was committed: the table lists {path} {count} times, as after files "
                "were added twice, and what is found in it does not hold for all of these. Rewrite the table's files "
                "with Iceberg's rewrite_data_files first."
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


class ResolvedSwap:
    """Takes deletes by keys out of a branch whose rows were found, and the data files that were rewritten.

    Args:
        goal: The keys and the deletes.
        search: What was found.

    Attributes:
        dropped: The files that the last attempt takes out.
        leaves_deletes: Whether the branch has other deletes by keys after it.
    """

    def __init__(self, goal: Goal, search: KeySearch) -> None:
        self.dropped: Sequence[DataFile] = ()
        self.leaves_deletes = True
        self._goal = goal
        self._search = search

    @property
    def added(self) -> Added:
        """The files that hide the rows, or hold the others."""
        return self._search.resolution.added

    @property
    def keeps_rows(self) -> bool:
        """Whether nothing is hidden that was not hidden before."""
        return not self._goal.written

    @property
    def sequence_numbers(self) -> dict[str, int]:
        """Each rewritten file has the number of the file whose rows it has."""
        return {
            file.file_path: answer.sequence_number
            for answer in self._search.resolution.rewritten.values()
            for file in answer.rewritten or ()
        }

    def replacement(self, table: Table) -> Replacement:
        """Return what to drop from the branch as it is now.

        Raises:
            StaleWorkError: A data file has to be searched first, or a rewritten one is not as it was.
            UnsupportedTableError: One whose rows were found is listed more than once.
        """
        read = self._search.read(table)
        if not self._goal.is_whole(read.files):
            raise StaleWorkError("another writer has taken out deletes by keys")
        sources = self._goal.sources(read.files)
        self._search.check_deletes(read.files, self._goal)
        self._check_unchanged(read.files)
        missing = self._search.resolution.plan(read.files, sources, all_specs(table.metadata), self._goal.key_types)
        if missing:
            raise StaleWorkError(
                f"another writer has brought {missing[0].path} and {len(missing) - 1} more data files that may have "
                "rows of the same keys"
            )
        rewritten = self._search.resolution.rewritten.keys()
        at_stake = {answer.path for answer in self._search.resolution.hit if self.keeps_rows} | rewritten
        self._search.check_listed_once(found.path for found in read.files.data if found.path in at_stake)
        gone = {found.path for found in self._goal.deletes(read.files)} | rewritten
        found = _replacement(read, gone | _left_alone(read.files, rewritten))
        self.dropped = found.removed
        self.leaves_deletes = any(delete.path not in self._goal.paths for delete in read.files.equalities)
        return found

    def _check_unchanged(self, live: LiveFiles) -> None:
        changed = self._search.resolution.changed(live)
        if changed:
            raise StaleWorkError(f"another writer has removed, or deleted rows of, {changed[0]} meanwhile")


def _left_alone(files: LiveFiles, rewritten: Iterable[str]) -> set[str]:
    """Return the position deletes that hide rows of rewritten files alone."""
    paths = set(rewritten)
    return {found.path for found in files.positions if only_path(found.data_file) in paths}


def _replacement(read: ReadSnapshot, gone: set[str]) -> Replacement:
    """Return what drops these files; manifests that have to be written anyway become few."""
    untouched: list[ManifestFile] = []
    alike: dict[tuple[ManifestContent, int], list[_Touched]] = defaultdict(list)
    for manifest, entries in read.manifests.items():
        if all(entry.data_file.file_path not in gone for entry in entries):
            untouched.append(manifest)
            continue
        parts = alike[ManifestContent(manifest.content), manifest.partition_spec_id]
        if not parts or parts[-1].count + len(entries) > MANIFEST_ENTRIES:
            parts.append(_Touched(manifest=manifest))
        parts[-1].take(manifest, entries, gone)
    replaced = (touched.replaced() for parts in alike.values() for touched in parts)
    return Replacement(untouched=tuple(untouched), replaced=tuple(replaced))


@dataclass(slots=True, kw_only=True)
class _Touched:
    """Entries of manifests of one kind, which become one manifest."""

    manifest: ManifestFile
    kept: list[ManifestEntry] = field(default_factory=list)
    dropped: list[ManifestEntry] = field(default_factory=list)
    listed_rows: int | None = 0

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.dropped)

    def take(self, manifest: ManifestFile, entries: Iterable[ManifestEntry], gone: set[str]) -> None:
        listed = live_rows(manifest)
        self.listed_rows = None if self.listed_rows is None or listed is None else self.listed_rows + listed
        for entry in entries:
            (self.dropped if entry.data_file.file_path in gone else self.kept).append(entry)

    def replaced(self) -> ReplacedManifest:
        return ReplacedManifest(
            manifest=self.manifest,
            kept=tuple(self.kept),
            dropped=tuple(self.dropped),
            listed_rows=self.listed_rows,
        )
