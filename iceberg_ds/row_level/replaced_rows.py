"""What a row-level operation takes out of a branch, and whether that still fits the branch when it is committed.

The operation read one snapshot. Each attempt to commit looks at what came since:

* a data file with rows that go must be live, and the position deletes that the answer rests on must be the same;
* under `serializable`, no data file may have come that could have rows of the operation's predicate; files that a
  rewrite made have the rows that were there before it, which are new ones too if others had added rows by then;
* an operation that takes over values of old rows, as an update does, meets no new delete of these rows: a row that
  was deleted meanwhile would come back with its new values.

Else the work is stale, and the operation is done anew on the newest snapshot. Source: Iceberg spec, "Commit Conflict
Resolution and Retry"; Iceberg's Java library, `RowDelta` and `OverwriteFiles`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from pyiceberg.manifest import DataFileContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.commit.overwrite import FilteredManifests, RewriteValidationError
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.index import KeySource, all_specs, key_types, plan_work
from iceberg_ds.deletes.search import (
    BranchReader,
    ReadSnapshot,
    SearchAnswers,
    check_columns,
    left_alone,
    without_files,
)
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange
from iceberg_ds.expressions.parser import Tree
from iceberg_ds.plan import Route
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles, applying_positions
from iceberg_ds.snapshots.refs import keeps_rows, snapshots_since, write_base


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """What a row-level operation rests on.

    Attributes:
        route: The branch.
        base_snapshot_id: The snapshot that was read; None if the branch had none.
        is_serializable: Whether data files that came since are a conflict.
        where: The rows that the operation is about; None for all rows, or if only Spark knows which.
        case_sensitive: How names in it are matched.
        time_zone: Time zone of times in it, or None if unknown.
        takes_values: Whether new rows have values of rows that go.
    """

    route: Route
    base_snapshot_id: int | None
    is_serializable: bool
    where: Tree | None
    case_sensitive: bool
    time_zone: str | None
    takes_values: bool


class ReplacedRows:
    """Takes rows out of a branch: by position deletes, by files that are written again, and whole files.

    Args:
        rows: What the operation rests on.
        answers: What tasks found and wrote for data files that lose some of their rows.
        whole: Paths of further data files, all of whose rows go.
        reader: Reads the branch.
    """

    keeps_rows = False

    def __init__(self, rows: RowsRead, answers: SearchAnswers, whole: Collection[str], reader: BranchReader) -> None:
        self._rows = rows
        self._answers = answers
        self._whole = frozenset(whole)
        self._reader = reader

    @property
    def added(self) -> Added:
        """The position delete files that hide rows, and the rewritten data files that leave them out."""
        return self._answers.added

    @property
    def sequence_numbers(self) -> Mapping[str, int]:
        """Data sequence number of each rewritten file, by path: that of the file whose rows it has."""
        return self._answers.sequence_numbers

    def filtered(self, table: Table) -> FilteredManifests:
        """Return the manifests that replace those of the current branch, without the files that go.

        Raises:
            RewriteValidationError: Others have changed what the operation rests on.
            UnsupportedTableError: Others delete rows of a rewritten file by a column that is not in it any more.
        """
        metadata, read = table.metadata, self._reader.read(table)
        since = snapshots_since(metadata, write_base(metadata, self._rows.route), self._rows.base_snapshot_id)
        if since is None:
            raise RewriteValidationError("the snapshot that was read does not lie behind the branch any more")
        rewritten = self._answers.rewritten.keys()
        if not self._answers.fit(metadata):
            raise RewriteValidationError("the table's format was upgraded meanwhile")
        touched = {answer.path for answer in self._answers.hit} | self._whole
        self._check_live(read.files, touched)
        if self._rows.is_serializable:
            self._check_new_rows(metadata, read, _with_new_rows(since))
        if self._rows.takes_values:
            self._check_new_deletes(metadata, read, {one.snapshot_id for one in since})
        check_columns(metadata, read.files, rewritten)
        gone = rewritten | self._whole
        return without_files(read, gone | left_alone(read.files, gone | self._answers.with_vectors))

    def _check_live(self, live: LiveFiles, touched: Collection[str]) -> None:
        """Refuse data files that are gone, or listed twice, and answers that no longer hold."""
        listed = sorted(found.path for found in live.data if found.path in touched)
        if listed != sorted(touched) or (changed := self._answers.changed(live)):
            path = next((path for path in touched if listed.count(path) != 1), None) or changed[0]
            raise RewriteValidationError(
                f"another writer has removed {path} meanwhile, or added it again, or deleted rows of it"
            )

    def _check_new_rows(self, metadata: TableMetadata, read: ReadSnapshot, new: Collection[int]) -> None:
        meant = self._meant(metadata)
        for entry in _entries_of(read, new):
            file = entry.data_file
            if file.content == DataFileContent.DATA and (meant is None or meant.coverage(file) is not Coverage.OUTSIDE):
                raise RewriteValidationError(
                    f"snapshot {entry.snapshot_id} has brought {file.file_path} meanwhile, which may have rows that "
                    "the operation is about"
                )

    def _meant(self, metadata: TableMetadata) -> FilterRange | None:
        rows = self._rows
        if rows.where is None:
            return None
        try:
            return FilterRange(metadata, rows.where, case_sensitive=rows.case_sensitive, time_zone=rows.time_zone)
        except ValueError as problem:
            raise RewriteValidationError(
                f"another writer has changed the table's columns meanwhile: {problem}"
            ) from problem

    def _check_new_deletes(self, metadata: TableMetadata, read: ReadSnapshot, new: Collection[int]) -> None:
        hit = {answer.path: answer for answer in self._answers.hit}
        positions = applying_positions(read.files, hit)
        again = next((path for path, answer in hit.items() if positions.get(path) != answer.positions), None)
        if again is None:
            keys = [
                KeySource.of(LiveFile.of(entry))
                for entry in _entries_of(read, new)
                if entry.data_file.content == DataFileContent.EQUALITY_DELETES
            ]
            data = [found for found in read.files.data if found.path in hit]
            types = key_types([*metadata.schemas, metadata.schema()], keys)
            work = plan_work(replace(read.files, data=data), keys, all_specs(metadata), types)
            again = work[0].path if work else None
        if again is not None:
            raise RewriteValidationError(
                f"another writer has deleted rows of {again} meanwhile, or of other rows beside them"
            )


def _with_new_rows(since: Sequence[Snapshot]) -> set[int]:
    """Return the snapshots, of some that are given newest first, that may have brought files with new rows."""
    return {one.snapshot_id for one in dropwhile(keeps_rows, reversed(since))}


def _entries_of(read: ReadSnapshot, snapshots: Collection[int]) -> Iterable[ManifestEntry]:
    return (entry for entries in read.manifests.values() for entry in entries if entry.snapshot_id in snapshots)
