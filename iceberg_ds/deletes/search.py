"""Searches a branch for keys, again as long as others add data files, until a commit can rely on the result.

An equality delete may be removed once every live data file that it applies to was searched for its keys. Each attempt
to commit checks that anew, from the current manifests of the branch, so all that others commit meanwhile is covered:

* rows and equality deletes that a stream adds have higher sequence numbers; these equality deletes stay;
* a file that a compaction wrote, with the sequence number of its rows, was not searched: the work is stale;
* equality deletes that are gone were converted to position deletes, or undone by a rollback: the work is stale;
* a data file with new position deletes may be gone, and these with it; if it is live, the older position deletes of
  its rows must be live too, because their positions were not written again: else the work is stale;
* a data file that was rewritten must be live, and have the same position deletes: else the work is stale. The same
  holds for a data file with a row that wins over an incoming one, because that row may be gone.

A rewritten file keeps the data sequence number of the file whose rows it has. So every equality delete, whether it came
before, meanwhile or later, applies to the rewritten file if and only if it applied to that file. It finds the same rows
there unless it deletes by a column that the table has dropped: while there is such a delete, no file is rewritten.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType

from iceberg_ds.commit.overwrite import FilteredManifest, FilteredManifests, RewriteValidationError
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.index import KeySource, all_specs, key_types, plan_work, why_not_readable
from iceberg_ds.deletes.job import resolve
from iceberg_ds.deletes.work import FileAnswer, FileWork, GroupAnswer, SearchPlan, WrittenDeletes
from iceberg_ds.error_hints import advice
from iceberg_ds.errors import DataFileError, UnsupportedTableError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.known_files import KnownFiles
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles, applying_positions, name_of, only_path
from iceberg_ds.snapshots.manifests import live_entries, live_manifests, live_rows
from iceberg_ds.snapshots.version_3 import first_row_id, manifest_first_row_id
from iceberg_ds.writers.deletion_vectors import has_vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The largest number of entries of a manifest that replaces others.
MANIFEST_ENTRIES = 5_000


# The largest number of entries that a process keeps: each takes some kB.
_MOST_KNOWN_ENTRIES = 5_000
_Key: TypeAlias = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The live entries of a manifest, and what they inherit values by."""

    key: _Key
    live: list[ManifestEntry]


# Paths of manifests that no other one ever has: writers name them by the id of the commit.
_UNIQUE_NAME = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[^/]+\.avro$")
_KNOWN_ENTRIES: KnownFiles[_Entries] = KnownFiles(_UNIQUE_NAME, lambda known: 1 + len(known.live), _MOST_KNOWN_ENTRIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSnapshot:
    """The files of a snapshot.

    Attributes:
        manifests: Its manifests that list a live file, each with its live entries.
        files: All live files of these manifests.
    """

    manifests: Mapping[ManifestFile, list[ManifestEntry]]
    files: LiveFiles


class SnapshotReader:
    """Reads snapshots of one table; a manifest that the snapshot read before also lists is not read again.

    Nor is one that the process has read lately, so that an epoch does not take longer for those before it.
    """

    def __init__(self) -> None:
        self._known: dict[_Key, list[ManifestEntry]] = {}

    def read(self, io: FileIO, snapshot: Snapshot | None) -> ReadSnapshot:
        """Return the files of a snapshot; for None, no files."""
        manifests = live_manifests(io, snapshot)
        known = {_key(found): self._known.get(_key(found)) or _kept(found) for found in manifests}
        missing = [found for found in manifests if known[_key(found)] is None]
        for found, live in zip(missing, in_parallel(partial(live_entries, io), missing), strict=True):
            known[_key(found)] = live
            _KNOWN_ENTRIES.keep(found.manifest_path, _Entries(key=_key(found), live=live))
        self._known = {key: live for key, live in known.items() if live is not None}
        entries = {found: self._known[_key(found)] for found in manifests}
        files = LiveFiles.of(LiveFile.of(entry) for listed in entries.values() for entry in listed)
        return ReadSnapshot(manifests=entries, files=files)


def _kept(manifest: ManifestFile) -> list[ManifestEntry] | None:
    known = _KNOWN_ENTRIES.find(manifest.manifest_path)
    return known.live if known is not None and known.key == _key(manifest) else None


def _key(manifest: ManifestFile) -> _Key:
    # Entries inherit values from the manifest list.
    return manifest.manifest_path, manifest.sequence_number or 0, manifest_first_row_id(manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysToDelete:
    """The keys whose rows are to be hidden, and the equality deletes to remove after that.

    Attributes:
        paths: Paths of the equality delete files to remove: those that the branch had at the beginning.
        key_types: The types of all key columns, by field id.
        written: Further files of keys, which are in no snapshot and are added to none.
        counts_stored: Whether visible rows of the table may win, so that it must be known which rows are visible.
    """

    paths: frozenset[str]
    key_types: Mapping[int, IcebergType]
    written: tuple[KeySource, ...] = ()
    counts_stored: bool = False

    def sources(self, live: LiveFiles) -> list[KeySource]:
        """Return all files of keys: the equality delete files that are still live, and the written files."""
        return [*(KeySource.of(found) for found in self.deletes(live)), *self.written]

    def deletes(self, live: LiveFiles) -> list[LiveFile]:
        """Return the equality delete files to remove that are still live."""
        return [found for found in live.equalities if found.path in self.paths]

    def is_whole(self, live: LiveFiles) -> bool:
        """Return whether all equality deletes are still live, so that the rows found by them are still hidden."""
        return len(self.deletes(live)) == len(self.paths)


class SearchAnswers:
    """The answers of all tasks so far."""

    def __init__(self) -> None:
        self._answers: dict[str, FileAnswer] = {}
        self._written_deletes: list[WrittenDeletes] = []
        self._looked_at: set[str] = set()  # paths of data files; the keys stay the same

    def take(self, answers: Iterable[GroupAnswer]) -> None:
        """Take the answers of tasks; they replace earlier answers for the same data files."""
        for answer in answers:
            self._answers.update({found.path: found for found in answer.files})
            self._looked_at.update(found.path for found in answer.files)
            self._written_deletes += answer.written_deletes

    def plan(
        self,
        live: LiveFiles,
        sources: Sequence[KeySource],
        specs: Mapping[int, PartitionSpec],
        key_types: Mapping[int, IcebergType],
    ) -> list[FileWork]:
        """Return the data files of a snapshot that are still to be searched; files once found without work are not.

        Rewritten data files count as searched; `changed` tells whether their answers still hold. The arguments are
        those of `plan_work`.
        """
        left = [found for found in live.data if found.path not in self._looked_at]
        work = plan_work(replace(live, data=left), sources, specs, key_types)
        self._looked_at |= {found.path for found in left} - {item.path for item in work}
        return work

    def prune(self, live: LiveFiles) -> list[DataFile]:
        """Forget the answers that are of no use any more, and return the files that tasks wrote for them."""
        changed = set(self.changed(live))
        present = {found.path for found in live.data}
        gone = {path for path in self._answers if path not in present or path in changed}
        useless = [file for path in gone for file in self._answers[path].rewritten or ()]
        self._answers = {path: answer for path, answer in self._answers.items() if path not in gone}
        self._looked_at -= gone
        useless += [deletes.file for deletes in self._written_deletes if deletes.paths.isdisjoint(self._answers)]
        self._written_deletes = [
            deletes for deletes in self._written_deletes if not deletes.paths.isdisjoint(self._answers)
        ]
        # A file of deletion vectors stays as long as one of them is of use.
        used = {deletes.file.file_path for deletes in self._written_deletes}
        return [file for file in useless if file.file_path not in used]

    @property
    def rewritten(self) -> dict[str, FileAnswer]:
        """The answers for data files that were rewritten, by path."""
        return {path: answer for path, answer in self._answers.items() if answer.rewritten is not None}

    def changed(self, live: LiveFiles) -> list[str]:
        """Return the paths of the data files whose answers no longer hold.

        Rows that were already hidden got no new position delete: if the old one is gone, they must be searched again.
        Rows that were written again, or were found, before they had ids would lose those that they have now.
        An answer that rests on position deletes also fails if others were added, or if the data file is gone. So does
        one with a deletion vector: it has the positions of the deletes in whose place it comes, and of no others.
        """
        resting = [path for path, answer in self._answers.items() if answer.rests_on_deletes]
        present = applying_positions(live, resting)
        changed = [path for path in resting if present.get(path) != self._answers[path].positions]
        data = {found.path: first_row_id(found.data_file) for found in live.data}
        changed += [
            path
            for path, answer in self._answers.items()
            if (answer.rewritten is not None or answer.has_vector) and data.get(path) != answer.first_row_id
        ]
        positions = {*(found.path for found in live.positions), *(vector.name for vector in live.vectors.values())}
        marked = (answer for path, answer in self._answers.items() if path in data and not answer.rests_on_deletes)
        return changed + [answer.path for answer in marked if not answer.positions <= positions]

    @property
    def with_vectors(self) -> set[str]:
        """The paths of the data files for which deletion vectors were written, in the place of their other ones."""
        return {path for path, answer in self._answers.items() if answer.has_vector}

    def fit(self, metadata: TableMetadata) -> bool:
        """Return whether the table may get what was written: else its format was upgraded meanwhile."""
        return {answer.with_vectors for answer in self.hit} <= {has_vectors(metadata)}

    @property
    def late_keys(self) -> pa.Table | None:
        """The keys with a table row that wins over the incoming row, with digests, each key once; None for no key."""
        told = [answer.late_keys for answer in self._answers.values() if answer.late_keys is not None]
        if not told:
            return None
        keys = pa.concat_tables(told)
        return keys.group_by(keys.column_names).aggregate([])

    @property
    def ids(self) -> dict[str, frozenset[str]]:
        """Paths of the files with ids of the rows that were found, each with the data files whose rows count in it."""
        found: dict[str, set[str]] = defaultdict(set)
        for answer in self._answers.values():
            if answer.ids_path is not None:
                found[answer.ids_path].add(answer.path)
        return {path: frozenset(data_files) for path, data_files in found.items()}

    @property
    def hit(self) -> list[FileAnswer]:
        """The answers for data files in which rows were found."""
        return [answer for answer in self._answers.values() if answer.rows]

    @property
    def sequence_numbers(self) -> dict[str, int]:
        """Data sequence number of each rewritten file, by path: that of the file whose rows it has."""
        return {
            file.file_path: answer.sequence_number
            for answer in self.rewritten.values()
            for file in answer.rewritten or ()
        }

    @property
    def added(self) -> Added:
        """All files that tasks wrote."""
        rewritten = (file for answer in self.rewritten.values() for file in answer.rewritten or ())
        return Added(tuple(rewritten), delete_files=tuple(deletes.file for deletes in self._written_deletes))


class BranchReader:
    """Reads the files of one branch, again and again; a manifest that is still listed is not read again.

    Args:
        action: The action, such as `upsert db.t`, for messages.
        base: Returns the head snapshot of the branch.
    """

    def __init__(self, action: str, base: Callable[[TableMetadata], Snapshot | None]) -> None:
        self._reader = SnapshotReader()
        self._action = action
        self._base = base

    def read(self, table: Table) -> ReadSnapshot:
        """Return the files of the branch.

        Raises:
            DataFileError: Its manifests cannot be read.
        """
        try:
            return self._reader.read(table.io, self._base(table.metadata))
        except Exception as error:  # of any storage library
            reason = mask_text(f"{type(error).__name__}: {error}", table.io.properties)
            raise DataFileError(
                f"Cannot {self._action}, nothing was committed: the table's manifests cannot be read: {reason}. "
                f"{advice(error)}".rstrip()
            ) from masked_cause(error, table.io.properties)


class KeySearch:
    """The search for the rows with some keys in one branch.

    Args:
        action: The action, such as `upsert db.t`, for messages.
        spark: Runs the tasks; None to run them in this process.
        base: Returns the head snapshot of the branch.

    Attributes:
        answers: What was found and written so far.
        live: The files of the branch at the last look.
        read: Returns the files of the branch, as `BranchReader.read`.
        read_bytes: Compressed bytes that tasks read so far.
        ids_paths: Paths of all files with ids of rows that tasks have written; they are in no table.
    """

    def __init__(
        self, action: str, spark: SparkSession | None, base: Callable[[TableMetadata], Snapshot | None]
    ) -> None:
        self.answers = SearchAnswers()
        self.live = LiveFiles.of(())
        self.read_bytes = 0
        self.ids_paths: set[str] = set()
        self.read = BranchReader(action, base).read
        self._action = action
        self._spark = spark

    def look(self, table: Table, to_delete: KeysToDelete) -> list[FileWork] | None:
        """Return the data files left to search, or None if there are no keys to look for; forget stale answers.

        Raises:
            UnsupportedTableError: The table has files that cannot be searched.
        """
        self.live = live = self.read(table).files
        if not self.answers.fit(table.metadata):
            self.discard(table.io)
        self.check_deletes(live, to_delete)
        self.check_listed_once(found.path for found in to_delete.deletes(live))
        delete_files(table.io, [file.file_path for file in self.answers.prune(live)], Proof.REFUSED)
        sources = to_delete.sources(live)
        if not sources:
            return None
        work = self.answers.plan(live, sources, all_specs(table.metadata), to_delete.key_types)
        searched = {item.path for item in work}
        read = [source.data_file for source in sources]
        read += [found.data_file for found in live.data if found.path in searched]
        self._check_readable([*read, *(found.data_file for found in live.positions)])
        return work

    def run(self, work: Sequence[FileWork], plan: SearchPlan) -> None:
        """Search data files, and write position deletes or rewritten files for the rows that are found.

        Raises:
            DataFileError: A task failed in every try, or the job failed as a whole.
            UnsupportedTableError: The table lists a data file to rewrite, or to hide rows of, more than once.
        """
        if not work:
            return
        if plan.encoding == "copy-on-write" or plan.with_vectors:
            self.check_listed_once(item.path for item in work)
        answers = resolve(self._spark, plan, work)
        self.answers.take(answers)
        self.ids_paths |= self.answers.ids.keys()
        self.read_bytes += sum(answer.read_bytes for answer in answers)
        if (problem := next((answer.problem for answer in answers if answer.problem), None)) is not None:
            raise DataFileError(f"Cannot {self._action}, nothing was committed: a task failed: {problem}")

    def discard(self, io: FileIO) -> None:
        """Delete the files that tasks wrote; no commit has landed, and none can land any more."""
        delete_files(io, dict.fromkeys(file.file_path for file in self.answers.added.files), Proof.REFUSED)
        self.answers = SearchAnswers()

    def check_deletes(self, live: LiveFiles, to_delete: KeysToDelete) -> None:
        """Refuse equality deletes where it must be known which rows are visible: only position deletes are read.

        Raises:
            UnsupportedTableError: The branch has equality deletes.
        """
        if to_delete.counts_stored and live.equalities:
            raise UnsupportedTableError(
                f"Cannot {self._action} with sequence-scope=table, nothing was committed: the branch has "
                f"{len(live.equalities)} files of deletes by keys, such as {live.equalities[0].path}, and the rows "
                "that they hide have no say. Take them out with iceberg_ds.convert_deletes, and let all writers of "
                "the table use iceberg_ds.upsert."
            )

    def check_listed_once(self, paths: Iterable[str]) -> None:
        """Refuse files that are listed more than once: one answer does not hold for all of their entries.

        Args:
            paths: Paths of the files, each as often as it is listed.

        Raises:
            UnsupportedTableError: A file is listed more than once.
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
            if (reason := why_not_readable(file)) is not None:
                raise UnsupportedTableError(
                    f"Cannot {self._action}: {file.file_path} {reason}. Rewrite its files with Iceberg's "
                    "rewrite_data_files instead."
                )


class RewriteByKeys:
    """Removes the equality deletes whose rows were found from a branch, and the data files that were rewritten.

    Args:
        goal: The keys and the equality deletes.
        search: The search, with all that it found.

    Attributes:
        dropped: The files that the last attempt removes.
        leaves_deletes: Whether the branch still has other equality deletes after the last attempt.
    """

    def __init__(self, to_delete: KeysToDelete, search: KeySearch) -> None:
        self.dropped: Sequence[DataFile] = ()
        self.leaves_deletes = True
        self._to_delete = to_delete
        self._search = search

    @property
    def added(self) -> Added:
        """The position delete files that hide the rows, and the rewritten data files that leave them out."""
        return self._search.answers.added

    @property
    def keeps_rows(self) -> bool:
        """Whether the commit hides only rows that were hidden before."""
        return not self._to_delete.written

    @property
    def sequence_numbers(self) -> dict[str, int]:
        """Data sequence number of each rewritten file, by path: that of the file whose rows it has."""
        return self._search.answers.sequence_numbers

    def filtered(self, table: Table) -> FilteredManifests:
        """Return the manifests that replace those of the current branch, without the files to remove.

        Raises:
            RewriteValidationError: A data file has to be searched first, or deletes or data files were removed
                meanwhile.
            UnsupportedTableError: A data file whose rows were found is listed more than once; or others delete rows of
                a file that was rewritten by a column that is not in it any more.
        """
        read = self._search.read(table)
        if not self._search.answers.fit(table.metadata):
            raise RewriteValidationError("the table's format was upgraded meanwhile")
        if not self._to_delete.is_whole(read.files):
            raise RewriteValidationError("another writer has taken out deletes by keys")
        sources = self._to_delete.sources(read.files)
        self._search.check_deletes(read.files, self._to_delete)
        self._check_unchanged(read.files)
        missing = self._search.answers.plan(read.files, sources, all_specs(table.metadata), self._to_delete.key_types)
        if missing:
            raise RewriteValidationError(
                f"another writer has brought {missing[0].path} and {len(missing) - 1} more data files that may have "
                "rows of the same keys"
            )
        rewritten = self._search.answers.rewritten.keys()
        vectors = self._search.answers.with_vectors
        at_stake = {answer.path for answer in self._search.answers.hit if self.keeps_rows} | rewritten | vectors
        self._search.check_listed_once(found.path for found in read.files.data if found.path in at_stake)
        staying = [found for found in read.files.equalities if found.path not in self._to_delete.paths]
        check_columns(table.metadata, replace(read.files, equalities=staying), rewritten)
        gone = {found.path for found in self._to_delete.deletes(read.files)} | rewritten
        replaced = left_alone(read.files, rewritten | vectors)
        found = without_files(read, gone | replaced)
        self.dropped = found.removed
        self.leaves_deletes = any(delete.path not in self._to_delete.paths for delete in read.files.equalities)
        return found

    def _check_unchanged(self, live: LiveFiles) -> None:
        changed = self._search.answers.changed(live)
        if changed:
            raise RewriteValidationError(f"another writer has removed {changed[0]} meanwhile, or deleted rows of it")


def check_columns(metadata: TableMetadata, live: LiveFiles, rewritten: Collection[str]) -> None:
    """Refuse to write data files again whose rows are deleted by a column that new files do not have.

    Args:
        metadata: The table.
        live: The files of the branch, with the equality delete files that stay.
        rewritten: Paths of the data files that are written again.

    Raises:
        UnsupportedTableError: There is such a data file.
    """
    columns = set(metadata.schema().field_ids)
    sources = [source for source in map(KeySource.of, live.equalities) if not columns.issuperset(source.field_ids)]
    again = [found for found in live.data if found.path in rewritten]
    types = key_types(metadata.schemas, sources)
    if hit := plan_work(replace(live, data=again), sources, all_specs(metadata), types):
        raise UnsupportedTableError(
            f"Cannot write {hit[0].path} again, nothing was committed: {hit[0].keys[0].path} deletes rows by a column "
            "that the table has dropped, and that a new file does not have. Run iceberg_ds.convert_deletes, or mark "
            "rows by position."
        )


def left_alone(files: LiveFiles, data_files: Iterable[str]) -> set[str]:
    """Return the names of the position deletes that only hide rows of these data files: of files, and of vectors.

    Args:
        files: The files of a snapshot.
        data_files: Paths of data files that go, or get new deletion vectors.
    """
    paths = set(data_files)
    vectors = {vector.name for path, vector in files.vectors.items() if path in paths}
    return vectors | {found.path for found in files.positions if only_path(found.data_file) in paths}


def without_files(read: ReadSnapshot, gone: Collection[str]) -> FilteredManifests:
    """Return the manifests without some files; manifests that must be rewritten anyway are merged.

    Args:
        read: The manifests.
        gone: The names of the files, and of the deletion vectors, as `name_of` gives them.
    """
    untouched: list[ManifestFile] = []
    alike: dict[tuple[ManifestContent, int], list[_Touched]] = defaultdict(list)
    for manifest, entries in read.manifests.items():
        if all(name_of(entry.data_file) not in gone for entry in entries):
            untouched.append(manifest)
            continue
        parts = alike[ManifestContent(manifest.content), manifest.partition_spec_id]
        if not parts or parts[-1].count + len(entries) > MANIFEST_ENTRIES:
            parts.append(_Touched(manifest=manifest))
        parts[-1].take(manifest, entries, gone)
    replaced = (touched.replaced() for parts in alike.values() for touched in parts)
    return FilteredManifests(untouched=tuple(untouched), replaced=tuple(replaced))


@dataclass(slots=True, kw_only=True)
class _Touched:
    """Entries of manifests of one content and spec, which become one manifest."""

    manifest: ManifestFile
    kept: list[ManifestEntry] = field(default_factory=list)
    dropped: list[ManifestEntry] = field(default_factory=list)
    listed_rows: int | None = 0

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.dropped)

    def take(self, manifest: ManifestFile, entries: Iterable[ManifestEntry], gone: Collection[str]) -> None:
        listed = live_rows(manifest)
        self.listed_rows = None if self.listed_rows is None or listed is None else self.listed_rows + listed
        for entry in entries:
            (self.dropped if name_of(entry.data_file) in gone else self.kept).append(entry)

    def replaced(self) -> FilteredManifest:
        return FilteredManifest(
            manifest=self.manifest,
            kept=tuple(self.kept),
            dropped=tuple(self.dropped),
            listed_rows=self.listed_rows,
        )
