"""The messages of a rewrite of data files: work and its plan go to the tasks, answers go back to the driver.

All of them are frozen and picklable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.plan import WritePlan
from iceberg_ds.table.zorder import Range, ZOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Data files that one task rewrites.

    Attributes:
        files: The files, all of one partition, each with the deletes that apply to it.
        file_size_bytes: Most bytes of a new file.
        ranges: The ranges of the columns of a Z-order in these files, by their ids, where they are known.
    """

    files: tuple[FileWork, ...]
    file_size_bytes: int
    ranges: Mapping[int, Range] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(item.size_bytes for item in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of its files."""
        return frozenset(item.path for item in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """What all tasks are told.

    Attributes:
        writing: How files are written, with the spec and the sort order of new files, and what opens storage.
        specs: The table's partition specs, by spec id.
        key_types: The types of the columns that equality deletes delete by, by field id.
        is_sorted: Whether the rows of a group are sorted, by the sort order of `writing` or by `z_order`.
        planned_at: Sequence number of the snapshot whose files are rewritten.
        sequence_number: The same, if new files are to have it as their data sequence number; else None.
        z_order: The Z-order to sort rows by; None if rows are not sorted, or by columns one after the other.
    """

    writing: WritePlan
    specs: Mapping[int, PartitionSpec]
    key_types: Mapping[int, IcebergType]
    is_sorted: bool
    planned_at: int
    sequence_number: int | None
    z_order: ZOrder | None = None

    def number_of(self, group: FileGroup) -> int | None:
        """Return the data sequence number of the new files of a group, or None for that of their commit.

        With a number, equality deletes that land after the planning delete the same rows of the new files as of the old
        ones. Files of another spec than the old ones have none: deletes of other partitions would apply to them.
        """
        stays = group.files[0].data_file.spec_id == self.writing.spec.spec_id
        return self.sequence_number if stays else None

    def keeps_order(self, group: FileGroup) -> bool:
        """Return whether the rows of a group stay in the order of its files."""
        return not self.is_sorted and group.files[0].data_file.spec_id == self.writing.spec.spec_id


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRewritten:
    """What became of a group.

    Attributes:
        files: The new files; none if no row is left, or if the task failed.
        kept: How many rows of each file of the group are in them, in the order of the group's files.
        read_bytes: Bytes of the files that were read.
        problem: Why the task failed, or None if it did not fail; a failed task has deleted its files.
    """

    files: tuple[DataFile, ...] = ()
    kept: tuple[int, ...] = ()
    read_bytes: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesToMove:
    """A group that was rewritten, with the position deletes that apply to some of its files now.

    Attributes:
        group: The group.
        rewritten: What became of it.
        now: By the path of each file whose position deletes have changed, the file with those that apply to it now.
    """

    group: FileGroup
    rewritten: GroupRewritten
    now: Mapping[str, FileWork]

    def files(self) -> list[tuple[FileWork, int]]:
        """Return these files, each with the number of rows of the group's files before it that were kept."""
        first, found = 0, []
        for item, kept in zip(self.group.files, self.rewritten.kept, strict=True):
            if item.path in self.now:
                found.append((item, first))
            first += kept
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesMoved:
    """What became of the position deletes of a group.

    Attributes:
        files: The position delete file, or the deletion vectors, for the group's new files; empty if no further row is
            hidden.
        is_undone: Whether the group has to be rewritten anew, because rows that were left out are visible again, or
            because more rows were deleted since than can be looked for.
        problem: Why the task failed, or None if it did not fail; a failed task has deleted its files.
    """

    files: tuple[DataFile, ...] = ()
    is_undone: bool = False
    problem: str | None = None
