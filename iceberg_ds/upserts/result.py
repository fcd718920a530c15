"""What an upsert did, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertResult:
    """What became of the rows of an upsert.

    Attributes:
        table: The table's identifier.
        branch: The branch.
        snapshot_id: The snapshot that has the rows; None if there was nothing to change.
        was_replayed: The table had this version of the application's; this one changed nothing.
        rows: How many rows the table got.
        late_rows: How many rows, deletes among them, lost to newer ones that the table has (`sequence-scope=table`).
        replaced_rows: How many rows of the table gave way to them, or were deleted.
        data_files: Data files that were added for the rows.
        position_delete_files: Files of position deletes that hide the old rows.
        rewritten_files: Data files that were written again without the old rows.
        read_bytes: Compressed bytes of data files that were read to find the old rows.
        seconds: How long it took.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    was_replayed: bool = False
    rows: int = 0
    late_rows: int = 0
    replaced_rows: int = 0
    data_files: int = 0
    position_delete_files: int = 0
    rewritten_files: int = 0
    read_bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.was_replayed:
            return f"Nothing to upsert: {where} has this version already."
        late = f" {self.late_rows:,} rows were late: the table has newer ones." if self.late_rows else ""
        if self.snapshot_id is None:
            return f"Nothing to upsert into {where}.{late}"
        hidden = (
            f"{self.rewritten_files:,} data files were written again"
            if self.rewritten_files
            else f"{self.position_delete_files:,} files of position deletes hide them"
        )
        return (
            f"Upserted {self.rows:,} rows into {where}, in place of {self.replaced_rows:,}; {hidden}. Snapshot "
            f"{self.snapshot_id}, {self.read_bytes:,} bytes read, {self.seconds:.1f} s.{late}"
        )
