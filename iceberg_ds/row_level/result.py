"""`RowLevelResult`: what `delete_from`, `update` and `merge` did to a branch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelResult:
    """What `delete_from`, `update` or `merge` did to a branch.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the snapshot that was committed; None if there was nothing to change.
        was_replayed: Whether the table already had this `txn-version` of the application, so that nothing was done.
        inserted_rows: Number of rows that were added.
        updated_rows: Number of rows that were changed.
        deleted_rows: Number of rows that were deleted.
        data_files: Number of data files that were added for new and changed rows.
        position_delete_files: Number of position delete files that were added to hide old rows.
        rewritten_files: Number of data files that were written again without some of their rows.
        removed_files: Number of data files that were removed, because no row of them stays.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    was_replayed: bool = False
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    data_files: int = 0
    position_delete_files: int = 0
    rewritten_files: int = 0
    removed_files: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.was_replayed:
            return f"Nothing to do: {where} has this version already."
        if self.snapshot_id is None:
            return f"Nothing to change in {where}."
        return (
            f"Inserted {self.inserted_rows:,}, updated {self.updated_rows:,} and deleted {self.deleted_rows:,} rows of "
            f"{where}: {self.data_files:,} data files and {self.position_delete_files:,} files of position deletes "
            f"were added, {self.rewritten_files:,} data files written again, {self.removed_files:,} removed. Snapshot "
            f"{self.snapshot_id}, {self.seconds:.1f} s."
        )
