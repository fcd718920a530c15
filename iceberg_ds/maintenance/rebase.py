"""Groups of rewritten files, compared with the branch as it is: what still holds, what can be moved, what is stale.

A rewrite reads the files of a snapshot, and commits later: the table has moved on by then. Each attempt to commit looks
at the branch as it is, and a group whose rows were written anew is committed only if all of this holds:

* Each of its files is live still, once. A file that is gone had its rows written, or deleted, by somebody else.
* The equality deletes that were applied are all there still, and no others of that age. Those that landed since apply
  to the new files as they did to the old ones, because new files count as old as the snapshot that the rewrite began
  with; but not if they delete by a column that the table has dropped, and that new files do not have. Rows that go to
  another partition spec would meet the deletes of other partitions: their files are as old as their commit, and no
  equality delete may have landed on them.
* The position deletes that were applied are the ones that are there. Those that landed since name rows of the old
  files, and are moved to the new files: they are written again, for the same rows, and land in the same commit.

The condition on the branch that guards all commits makes sure that this still holds when the request is carried out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType

from iceberg_ds.commit.overwrite import FilteredManifests, RewriteValidationError
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.index import KeySource, all_specs, key_types, plan_work
from iceberg_ds.deletes.search import BranchReader, left_alone, without_files
from iceberg_ds.deletes.work import FileWork, KeyFile
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.maintenance.dangling_deletes import dangling_deletes, dangling_vectors
from iceberg_ds.maintenance.rewrite_work import DeletesToMove, FileGroup, GroupRewritten, RewritePlan
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles
from iceberg_ds.snapshots.refs import last_sequence_number
from iceberg_ds.snapshots.version_3 import first_row_id

# How often deletes are moved to the files of a group, at most: as long as one is behind, no other is committed. Where
# rows are looked for by their values, each time takes longer.
_MOST_MOVES, _MOST_MOVES_BY_VALUE = 10, 3


class Standing(Enum):
    """How a rewritten group stands in the branch as it is."""

    HOLDS = auto()  # it may be committed
    BEHIND = auto()  # position deletes landed on its files, and can be moved
    STALE = auto()  # its rows are not those of its files any more, or are deleted faster than deletes are moved


@dataclass(slots=True, kw_only=True)
class RewrittenGroup:
    """A group that was rewritten, and the deletes that its new files take into account.

    Attributes:
        group: The group.
        rewritten: What became of it.
        positions: By path of each of its files, the names of the position deletes that were applied, or moved.
        moved: The position delete file, or the deletion vectors, for its new files; empty without any.
        moves: How often deletes were moved.
    """

    group: FileGroup
    rewritten: GroupRewritten
    positions: dict[str, frozenset[str]]
    moved: tuple[DataFile, ...] = ()
    moves: int = 0

    @classmethod
    def of(cls, group: FileGroup, rewritten: GroupRewritten) -> RewrittenGroup:
        """Return a group as it was rewritten, with the deletes that it was planned with."""
        positions = {item.path: item.hidden_by.names for item in group.files}
        return cls(group=group, rewritten=rewritten, positions=positions)

    def take(self, moved: tuple[DataFile, ...], work: DeletesToMove) -> tuple[DataFile, ...]:
        """Take the deletes that were moved to the new files, and return those that they replace."""
        before, self.moved = self.moved, moved
        self.moves += 1
        self.positions = {item.path: work.now.get(item.path, item).hidden_by.names for item in self.group.files}
        return before

    @property
    def files(self) -> list[DataFile]:
        """All files that were written for it."""
        return [*self.rewritten.files, *self.moved]


def files_with_deletes(metadata: TableMetadata, live: LiveFiles, action: str) -> list[FileWork]:
    """Return all data files of a snapshot, each with the deletes that apply to it; arguments as `types_of_keys`."""
    sources = [*map(KeySource.of, live.equalities)]
    types = types_of_keys(metadata, live, action)
    return plan_work(live, sources, all_specs(metadata), types, with_all=True)


def types_of_keys(metadata: TableMetadata, live: LiveFiles, action: str) -> dict[int, IcebergType]:
    """Return the types of the columns that a snapshot's equality deletes delete by, by field id.

    Args:
        metadata: The table.
        live: The files of the snapshot.
        action: What is being done, such as `rewrite data files of db.t`, for the error.

    Raises:
        UnsupportedTableError: An equality delete file deletes by what is no column.
    """
    schemas = [*sorted(metadata.schemas, key=lambda schema: schema.schema_id), metadata.schema()]
    try:
        return key_types(schemas, map(KeySource.of, live.equalities))
    except ValueError as problem:
        raise UnsupportedTableError(f"Cannot {action}, nothing was committed: {problem}.") from problem


class Rebase:
    """Some rewritten groups, which are committed together.

    Args:
        plan: The plan of the rewrite.
        action: What is being done, for errors.
        reader: Reads the branch.
        groups: The groups.
        drops_dangling: Whether delete files that apply to no data file any more are dropped, too.

    Attributes:
        groups: The groups that are left.
        dropped: The files that the last attempt removes.
    """

    def __init__(
        self,
        plan: RewritePlan,
        action: str,
        reader: BranchReader,
        groups: Sequence[RewrittenGroup],
        *,
        drops_dangling: bool,
    ) -> None:
        self.groups = list(groups)
        self.dropped: Sequence[DataFile] = ()
        self._plan = plan
        self._action = action
        self._reader = reader
        self._drops_dangling = drops_dangling

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has the same rows afterwards: always."""
        return True

    @property
    def added(self) -> Added:
        """The new data files, and the position deletes that were moved to them."""
        data = (file for found in self.groups for file in found.rewritten.files)
        moved = (file for found in self.groups for file in found.moved)
        return Added(tuple(data), delete_files=tuple(moved))

    @property
    def sequence_numbers(self) -> Mapping[str, int]:
        """Data sequence numbers, by path, of new data files that are not as old as their commit."""
        return {
            file.file_path: number
            for found in self.groups
            if (number := self._plan.number_of(found.group)) is not None
            for file in found.rewritten.files
        }

    def filtered(self, table: Table) -> FilteredManifests:
        """Return the manifests of the branch without the files that were rewritten.

        Raises:
            RewriteValidationError: A group does not hold any more, or has deletes to be moved.
        """
        read = self._reader.read(table)
        now = self._now(table.metadata, read.files)
        for group in self.groups:
            if (standing := self._standing(group, now)) is not Standing.HOLDS:
                raise RewriteValidationError(
                    f"others have {'deleted rows of' if standing is Standing.BEHIND else 'changed'} files that were "
                    f"rewritten, such as {group.group.files[0].path}"
                )
        gone = {path for group in self.groups for path in group.group.paths}
        gone |= left_alone(read.files, gone)
        if self._drops_dangling:
            added = self._data_files(last_sequence_number(table.metadata) + 1)
            found = dangling_deletes(read.files, table.metadata.specs(), gone=gone, added=added)
            gone |= {deletes.path for deletes in found}
            gone |= dangling_vectors(read.files)
        filtered = without_files(read, gone)
        self.dropped = filtered.removed
        return filtered

    def sort_out(self, table: Table) -> tuple[list[tuple[RewrittenGroup, DeletesToMove]], list[RewrittenGroup]]:
        """Return the groups with deletes to be moved, with that work, and the groups that are stale.

        The stale groups are not among `groups` any more.

        Raises:
            DataFileError, UnsupportedTableError: As `filtered` of any rewrite.
        """
        now = self._now(table.metadata, self._reader.read(table).files)
        standings = [(found, self._standing(found, now)) for found in self.groups]
        self.groups = [found for found, standing in standings if standing is not Standing.STALE]
        moves = [(found, _to_move(found, now)) for found, standing in standings if standing is Standing.BEHIND]
        return moves, [found for found, standing in standings if standing is Standing.STALE]

    def _now(self, metadata: TableMetadata, live: LiveFiles) -> dict[str, list[FileWork]]:
        """Return the entries of the groups' files that are live, by path, each with the deletes that apply to it."""
        wanted = {path for found in self.groups for path in found.group.paths}
        theirs = replace(live, data=[there for there in live.data if there.path in wanted])
        found: dict[str, list[FileWork]] = defaultdict(list)
        for item in files_with_deletes(metadata, theirs, self._action):
            found[item.path].append(item)
        return found

    def _standing(self, found: RewrittenGroup, now: Mapping[str, Sequence[FileWork]]) -> Standing:
        is_behind = False
        for item in found.group.files:
            there = now.get(item.path, ())
            if len(there) != 1 or _numbers(there[0]) != _numbers(item):
                return Standing.STALE
            applied = {key.path for key in there[0].keys if key.applies_below <= self._plan.planned_at}
            if applied != {key.path for key in item.keys}:
                return Standing.STALE
            late = [key for key in there[0].keys if key.path not in applied]
            if late and (self._plan.number_of(found.group) is None or not self._has_columns_of(late)):
                return Standing.STALE
            is_behind = is_behind or there[0].hidden_by.names != found.positions[item.path]
        if not is_behind:
            return Standing.HOLDS
        most = _MOST_MOVES if self._plan.keeps_order(found.group) else _MOST_MOVES_BY_VALUE
        return Standing.BEHIND if found.moves < most else Standing.STALE

    def _has_columns_of(self, keys: Iterable[KeyFile]) -> bool:
        """Return whether new files have all columns that these files delete by: those of the table when planned."""
        written = set(self._plan.writing.schema.field_ids)
        return all(written.issuperset(key.field_ids) for key in keys)

    def _data_files(self, number: int) -> list[LiveFile]:
        """Return the new data files; the commit's sequence number is `number`."""
        numbers = self.sequence_numbers
        files = (file for found in self.groups for file in found.rewritten.files)
        return [LiveFile(data_file=file, sequence_number=numbers.get(file.file_path, number)) for file in files]


def _to_move(found: RewrittenGroup, now: Mapping[str, Sequence[FileWork]]) -> DeletesToMove:
    """Return the work of moving all deletes that landed since the group was rewritten, those moved before, too."""
    there = ((item, now[item.path][0]) for item in found.group.files)
    changed = {item.path: is_now for item, is_now in there if is_now.hidden_by.names != item.hidden_by.names}
    return DeletesToMove(group=found.group, rewritten=found.rewritten, now=changed)


def _numbers(item: FileWork) -> tuple[int, int | None]:
    # Rows that got ids since they were written again would lose them.
    return item.sequence_number, first_row_id(item.data_file)
