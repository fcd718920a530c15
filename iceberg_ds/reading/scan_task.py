"""What a task of a read is told of a data file. Frozen and picklable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pyiceberg.manifest import DataFile

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.reading.lives import FileId
from iceberg_ds.snapshots.live_files import HiddenBy
from iceberg_ds.snapshots.version_3 import lineage_of
from iceberg_ds.table.lineage import FileLineage

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """A data file to read.

    Attributes:
        work: The file, with the deletes that apply to it.
        absent: Values of identity partition fields whose columns the file may lack, by column id: physical values.
        change: What a snapshot did to its rows; None for a read of a snapshot.
    """

    work: FileWork
    absent: Mapping[int, object]
    change: Change | None = None

    @property
    def data_file(self) -> DataFile:
        """Manifest entry of the file, without metrics."""
        return self.work.data_file

    @property
    def file_id(self) -> FileId:
        """Which file it is over several snapshots."""
        return self.work.path, self.work.sequence_number

    @property
    def has_deletes(self) -> bool:
        """Whether rows of the file may be deleted."""
        return bool(self.work.keys or self.work.hidden_by.sources)

    @property
    def lineage(self) -> FileLineage | None:
        """What the rows of the file inherit; None if they have no ids, as before a table's upgrade to version 3."""
        return lineage_of(self.data_file, self.work.sequence_number)

    @property
    def hidden_by(self) -> ScanTask | None:
        """The same file with deletes: a row is read only if one of them hides it; None to read all visible rows."""
        return None if self.change is None else self.change.hidden_by

    @property
    def state(self) -> tuple[int, str]:
        """What the deletes are of: equal for files whose deletes may be looked for together.

        A delete file that came later than those of a file would apply to it, too, if its sequence number alone counted.
        """
        return (0, "") if self.change is None else (self.change.ordinal, self.change.kind)

    def beside(self, other: ScanTask) -> ScanTask:
        """Return the same file with those of its deletes alone that it does not have in another snapshot."""
        mine, others = self.work.hidden_by, other.work.hidden_by
        work = replace(
            self.work,
            keys=_without(self.work.keys, other.work.keys),
            hidden_by=HiddenBy(
                positions=_without(mine.positions, others.positions),
                vector=None if mine.vector == others.vector else mine.vector,
            ),
        )
        return replace(self, work=work)


def _without(these: tuple[_Item, ...], those: tuple[_Item, ...]) -> tuple[_Item, ...]:
    """Return what others lack, in order; at once if both begin alike, as deletes of following snapshots do."""
    common = min(len(these), len(those))
    if these[:common] == those[:common]:
        return these[common:]
    known = set(those)
    return tuple(item for item in these if item not in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a snapshot did to rows of a data file.

    Attributes:
        kind: `INSERT` or `DELETE`.
        ordinal: Number of the snapshot, from 0, among those that are read.
        snapshot_id: Id of the snapshot.
        timestamp_ms: When it was committed, in milliseconds since the Unix epoch.
        hidden_by: The same file with deletes: of its visible rows it is those that one of these hides; None for all.
    """

    kind: str
    ordinal: int
    snapshot_id: int
    timestamp_ms: int
    hidden_by: ScanTask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFiles:
    """The data files of one task of a stream.

    Attributes:
        tasks: The files.
        compared: Names of the columns by which deleted and inserted rows of one snapshot are compared; empty if no row
            may be both.
        keys: Names of columns that say which row is which, if they are compared; empty for none.
    """

    tasks: Sequence[ScanTask]
    compared: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
