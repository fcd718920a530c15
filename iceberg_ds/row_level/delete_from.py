"""`delete_from`: deletes the rows of a table that satisfy a predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.types import NestedField
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import OptionError
from iceberg_ds.row_level.change_tasks import FILE, IS_ROW, POS
from iceberg_ds.row_level.operation import PLACE, Isolation, Mode, Operation, RowLevelResult, RowLevelRun, call_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def delete_from(  # noqa: PLR0913  # all but three by name
    table: str,
    where: str,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    mode: Mode | None = None,
    isolation_level: Isolation | None = None,
) -> RowLevelResult:
    """Delete the rows that satisfy a predicate, in one snapshot, as Spark's `DELETE FROM`.

    Data files all of whose rows satisfy it by their partition or metrics are removed without being read. If others
    commit meanwhile what the isolation level takes for a conflict, the rows are looked for anew.

    Args:
        table: Identifier of the table, such as `db.events`.
        where: A predicate in Spark's SQL; `true` for all rows. Rows for which it is null stay.
        spark: The session; classic, or of Spark Connect. None for the active one.
        options: Options that a write has too: catalog, branch, `txn-app-id` and `txn-version`, `snapshot-property.*`,
            those of files and of reports. None for no options.
        branch: Name of the branch; None for option `branch`, else `main`.
        mode: `merge-on-read` hides rows by position deletes, `copy-on-write` writes their data files again without
            them. None for the table property `write.delete.mode`, else `merge-on-read`; `copy-on-write` in a table of
            format version 1.
        isolation_level: `serializable`: data files that came meanwhile and may have rows of the predicate are a
            conflict; `snapshot`: their rows stay. None for the table property `write.delete.isolation-level`, else
            `serializable`.

    Returns:
        What was done; its `snapshot_id` is None if there was no such row.

    Raises:
        OptionError: The options or arguments are malformed.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table cannot be read or written.
        CommitConflictError: Others kept changing what is read; nothing was committed.
        IcebergSinkError: As a write with `format("icebergsink")`.
    """
    action = f"delete rows of {table}"
    if not isinstance(where, str):
        raise OptionError(f"Cannot {action}: where is {where!r}, expected a predicate; 'true' deletes all rows.")
    operation = Operation(command="delete", action=action, changes=_gone, where=where)
    return RowLevelRun(spark, operation, call_options(table, options, branch), mode, isolation_level).run()


def _gone(rows: DataFrame, _: Sequence[NestedField]) -> DataFrame:
    file, pos = PLACE
    return rows.select(F.col(file).alias(FILE), F.col(pos).alias(POS), F.lit(False).alias(IS_ROW))  # noqa: FBT003
