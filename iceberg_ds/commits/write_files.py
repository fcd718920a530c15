"""The files of a write: those of its tasks, and those that the commit makes of what else tasks report."""

from __future__ import annotations

from pyiceberg.table import Table

from iceberg_ds.commits.added import Added
from iceberg_ds.commits.gathering import GatheredRows
from iceberg_ds.commits.settling import KeyReports
from iceberg_ds.row_counts import check_rows, rows_in


class WriteFiles:
    """What one write brings into the table; it is complete once the table was loaded and looked at.

    Args:
        of_tasks: The files that its tasks wrote.
        gathered: The rows that they handed over instead, None if there are none.
        keys: What they say of the keys of their rows, None if the write knows no keys.
        row_count: How many rows the tasks say that there are, in files or handed over.

    Attributes:
        added: The files that a snapshot of the write adds.
        own_paths: Those of them that were written here.
        lost_paths: Data files of late rows alone, which are left out.
    """

    def __init__(
        self,
        of_tasks: Added,
        gathered: GatheredRows | None = None,
        keys: KeyReports | None = None,
        *,
        row_count: int = 0,
    ) -> None:
        self.added = of_tasks
        self.own_paths: list[str] = []
        self.lost_paths: list[str] = []
        self._gathered = gathered
        self._keys = keys
        self._row_count = row_count
        self._included_rows = 0
        self._lost_rows = 0

    @property
    def spec_ids(self) -> set[int]:
        """The partition specs of all files, of those too that are not written yet."""
        return self.added.spec_ids | (self._gathered.spec_ids if self._gathered else set())

    @property
    def record_count(self) -> int | None:
        """How many rows the write has, None if that cannot be said; those that it hides itself are none."""
        hidden = self._keys.hidden_count if self._keys else 0
        return None if hidden is None else self._row_count - hidden

    def include(self, added: Added) -> None:
        """Add files whose rows are not new."""
        self.added = self.added.with_files(added.data_files, added.delete_files)
        self._included_rows += added.record_count

    def check_rows(self, action: str) -> None:
        """Check that all rows of the tasks are in the files, which are complete.

        Args:
            action: What is being done, for errors.

        Raises:
            RowCountError: They are not.
        """
        in_files = self.added.record_count - self._included_rows
        found = {"in the files to add": in_files, "in files of late rows alone": self._lost_rows}
        check_rows(action, "its tasks tell of", self._row_count, found)

    def complete(self, table: Table, *, is_new: bool) -> bool:
        """Write the rows that tasks handed over, and hide those that lose to others, unless that was done before.

        Args:
            table: The table as the commit has just loaded it.
            is_new: Whether the commit creates it.

        Returns:
            Whether other files are added since.

        Raises:
            IcebergSinkError: As `GatheredRows.write_once` and `KeyReports.hide_once`.
        """
        data_files = self._gathered.write_once(table, is_new=is_new) if self._gathered else ()
        deletes = self._keys.hide_once(table) if self._keys else ()
        lost = self._keys.lost_files if self._keys else ()
        if not (data_files or deletes or len(lost) > len(self.lost_paths)):
            return False
        self.added = self.added.with_files(data_files, deletes).without(lost)
        self.own_paths += [file.file_path for file in (*data_files, *deletes)]
        self.lost_paths = [file.file_path for file in lost]
        self._lost_rows = rows_in(lost)
        return True
