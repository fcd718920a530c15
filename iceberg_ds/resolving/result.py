"""What a conversion of deletes did, as a value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """What became of the deletes by keys of a branch.

    Attributes:
        table: The table's identifier.
        branch: The branch.
        snapshot_id: The snapshot that has no such delete any more; None if there was none to convert.
        delete_files: Files of deletes by keys that it has dropped.
        data_files: Data files in which rows were hidden by them.
        rows: How many rows these were.
        position_delete_files: Files of position deletes that hide them now.
        rewritten_files: Data files that were written without them instead.
        read_bytes: Compressed bytes that tasks have read, position deletes left out.
        seconds: How long it took.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    delete_files: int = 0
    data_files: int = 0
    rows: int = 0
    position_delete_files: int = 0
    rewritten_files: int = 0
    read_bytes: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.snapshot_id is None:
            return f"Nothing to convert: {where} has no deletes by keys."
        now = (
            f"{self.rewritten_files:,} data files were written without them"
            if self.rewritten_files
            else f"{self.position_delete_files:,} files of position deletes hide them"
        )
        return (
            f"Converted {self.delete_files:,} files of deletes by keys of {where}: they hid {self.rows:,} rows of "
            f"{self.data_files:,} data files; {now}. Snapshot {self.snapshot_id}, {self.read_bytes:,} bytes read, "
            f"{self.seconds:.1f} s."
        )
