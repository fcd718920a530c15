"""What a search for keys has found so far, and whether that still fits the table.

Deletes by keys may go once every live data file that they apply to was searched for them. That is found out anew at
each attempt to commit, from the manifests of the branch as it is then, so it does not matter what came meanwhile:

* rows and deletes that a stream adds have higher sequence numbers; its deletes stay;
* a file that a compaction has written, with the sequence number of its rows, was not searched: the work is stale;
* a data file that was marked by position and is gone takes its marks with it;
* a data file that was rewritten must be there still, and no other position deletes may have come: else the same.

A rewritten file keeps the data sequence number of the file whose rows it has. So every delete by keys, whether it came
before, meanwhile or later, applies to it if and only if it applied to that file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from iceberg_ds.commits.added import Added
from iceberg_ds.commits.replacing import ReplacedManifest, Replacement
from iceberg_ds.commits.swapping import StaleWorkError
from iceberg_ds.resolving.live_files import ReadSnapshot, SnapshotReader
from iceberg_ds.resolving.scan import KeySource, LiveFile, LiveFiles, applying_positions, only_path, plan_work
from iceberg_ds.resolving.values import FileAnswer, FileWork, GroupAnswer, Marks
from iceberg_ds.snapshots.branches import branch_head

# Entries of a manifest that is written in place of others at most.
MANIFEST_ENTRIES = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The keys whose rows are to be hidden, and the deletes by keys that are to go then.

    Attributes:
        paths: The files of deletes that are to go: those that the branch had at the beginning.
        key_types: The types of all key columns, by field id.
        written: Further files of keys, which are in no snapshot and come into none.
    """

    paths: frozenset[str]
    key_types: Mapping[int, IcebergType]
    written: tuple[KeySource, ...] = ()

    def sources(self, live: LiveFiles) -> list[KeySource]:
        """Return all keys, of the deletes those that are still there."""
        return [*(KeySource.of(found) for found in self.deletes(live)), *self.written]

    def deletes(self, live: LiveFiles) -> list[LiveFile]:
        """Return the deletes that are still there."""
        return [found for found in live.equalities if found.path in self.paths]


class Resolution:
    """The answers of all tasks so far."""

    def __init__(self) -> None:
        self._answers: dict[str, FileAnswer] = {}
        self._marks: list[Marks] = []

    def take(self, answers: Iterable[GroupAnswer]) -> None:
        """Take the answers of tasks, in place of earlier ones for the same data files."""
        for answer in answers:
            self._answers.update({found.path: found for found in answer.files})
            self._marks += answer.marks

    def covers(self, work: FileWork) -> bool:
        """Return whether a data file was searched already, and what was made of it still fits."""
        answer = self._answers.get(work.path)
        if answer is None or answer.sequence_number != work.sequence_number:
            return False
        return answer.rewritten is None or answer.positions == {file.path for file in work.positions}

    def prune(self, live: LiveFiles) -> list[DataFile]:
        """Forget what is of no use any more, and return the files that tasks have written for it."""
        present = applying_positions(live, self._answers)
        gone = {path for path, answer in self._answers.items() if not _still_fits(answer, present)}
        useless = [file for path in gone for file in self._answers[path].rewritten or ()]
        self._answers = {path: answer for path, answer in self._answers.items() if path not in gone}
        useless += [marks.file for marks in self._marks if marks.paths.isdisjoint(self._answers)]
        self._marks = [marks for marks in self._marks if not marks.paths.isdisjoint(self._answers)]
        return useless

    @property
    def rewritten(self) -> dict[str, FileAnswer]:
        """The answers for data files that were rewritten, by path."""
        return {path: answer for path, answer in self._answers.items() if answer.rewritten is not None}

    @property
    def hit(self) -> list[FileAnswer]:
        """The answers for data files in which rows were found."""
        return [answer for answer in self._answers.values() if answer.rows]

    @property
    def added(self) -> Added:
        """All files that tasks have written."""
        rewritten = (file for answer in self.rewritten.values() for file in answer.rewritten or ())
        return Added(tuple(rewritten), delete_files=tuple(marks.file for marks in self._marks))


def _still_fits(answer: FileAnswer, present: Mapping[str, frozenset[str]]) -> bool:
    if answer.path not in present:
        return False
    return answer.rewritten is None or answer.positions == present[answer.path]


class ResolvedSwap:
    """Takes deletes by keys out of a branch whose rows were found, and the data files that were rewritten.

    Args:
        goal: The keys and the deletes.
        resolution: What was found.
        branch: The branch.
        reader: Reads its snapshots.
        specs: The table's partition specs, by id.

    Attributes:
        dropped: The files that the last attempt takes out.
    """

    def __init__(
        self,
        goal: Goal,
        resolution: Resolution,
        branch: str,
        reader: SnapshotReader,
        specs: Mapping[int, PartitionSpec],
    ) -> None:
        self._goal = goal
        self._resolution = resolution
        self._branch = branch
        self._reader = reader
        self._specs = specs
        self.dropped: Sequence[DataFile] = ()

    @property
    def keeps_rows(self) -> bool:
        """Whether nothing is hidden that was not hidden before."""
        return not self._goal.written

    @property
    def sequence_numbers(self) -> dict[str, int]:
        """Each rewritten file has the number of the file whose rows it has."""
        return {
            file.file_path: answer.sequence_number
            for answer in self._resolution.rewritten.values()
            for file in answer.rewritten or ()
        }

    def replacement(self, table: Table) -> Replacement:
        """Return what to drop from the branch as it is now.

        Raises:
            StaleWorkError: A data file has to be searched first, or a rewritten one is not as it was.
        """
        read = self._reader.read(table.io, branch_head(table.metadata, self._branch))
        sources = self._goal.sources(read.files)
        if not sources:
            raise StaleWorkError(f"another writer has taken all deletes by keys out of branch '{self._branch}'")
        self._check_rewritten(read)
        work = plan_work(read.files, sources, self._specs, self._goal.key_types)
        missing = [item.path for item in work if not self._resolution.covers(item)]
        if missing:
            raise StaleWorkError(
                f"another writer has brought {missing[0]} and {len(missing) - 1} more data files that deletes by keys "
                f"of branch '{self._branch}' apply to"
            )
        rewritten = self._resolution.rewritten.keys()
        gone = {found.path for found in self._goal.deletes(read.files)} | rewritten
        found = _replacement(read, gone | _left_alone(read.files, rewritten))
        self.dropped = found.removed
        return found

    def _check_rewritten(self, read: ReadSnapshot) -> None:
        rewritten = self._resolution.rewritten
        present = applying_positions(read.files, rewritten)
        changed = [path for path, answer in rewritten.items() if present.get(path) != answer.positions]
        if changed:
            raise StaleWorkError(f"another writer has removed, or deleted rows of, {changed[0]} while it was rewritten")


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
        parts[-1].take(entries, gone)
    replaced = (touched.replaced() for parts in alike.values() for touched in parts)
    return Replacement(untouched=tuple(untouched), replaced=tuple(replaced))


@dataclass(slots=True, kw_only=True)
class _Touched:
    """Entries of manifests of one kind, which become one manifest."""

    manifest: ManifestFile
    kept: list[ManifestEntry] = field(default_factory=list)
    dropped: list[ManifestEntry] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.dropped)

    def take(self, entries: Iterable[ManifestEntry], gone: set[str]) -> None:
        for entry in entries:
            (self.dropped if entry.data_file.file_path in gone else self.kept).append(entry)

    def replaced(self) -> ReplacedManifest:
        return ReplacedManifest(manifest=self.manifest, kept=tuple(self.kept), dropped=tuple(self.dropped))
