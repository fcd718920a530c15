"""`update`: gives new values to columns of the rows of a table that satisfy a predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.types import NestedField
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import OptionError
from iceberg_ds.options.arguments import TEXT, ArgumentType, require_types
from iceberg_ds.reading.read import is_case_sensitive
from iceberg_ds.row_level.assignments import Assignments
from iceberg_ds.row_level.change_tasks import FILE, IS_ROW, POS
from iceberg_ds.row_level.operation import PLACE, Isolation, Mode, Operation, RowLevelResult, RowLevelRun, call_options
from iceberg_ds.table.lineage import ROW_ID
from iceberg_ds.table.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ASSIGNMENTS = ArgumentType(Mapping, "a mapping of columns to expressions")


def update(  # noqa: PLR0913  # all but four by name
    table: str,
    assignments: Mapping[str, str],
    where: str | None = None,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    mode: Mode | None = None,
    isolation_level: Isolation | None = None,
) -> RowLevelResult:
    """Give new values to columns of the rows that satisfy a predicate, in one snapshot, as Spark's `UPDATE`.

    Values are converted as Spark's `UPDATE` does by its default, with any setting of the session: a number that does
    not fit its column fails the call. If others commit meanwhile what the isolation level takes for a conflict, or
    delete rows of the same data files, the rows are read anew.

    Args:
        table: Identifier of the table, such as `db.events`.
        assignments: Expressions in Spark's SQL over the old values, by the name of the column, or of the field of a
            struct as `a.b`.
        where: A predicate in Spark's SQL. None for all rows.
        spark: As `delete_from`.
        options: As `delete_from`.
        branch: As `delete_from`.
        mode: As `delete_from`, with the table property `write.update.mode`.
        isolation_level: As `delete_from`, with the table property `write.update.isolation-level`.

    Returns:
        What was done; its `snapshot_id` is None if there was no such row.

    Raises:
        OptionError: The options or arguments are malformed.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table cannot be read or written.
        SchemaMismatchError: A required column would become null.
        CommitConflictError: Others kept changing what is read; nothing was committed.
        IcebergSinkError: As a write with `format("icebergsink")`.
    """
    action = f"update {table}"
    require_types(action, assignments=(assignments, _ASSIGNMENTS), where=(where, TEXT))
    if not assignments:
        raise OptionError(f"Cannot {action}: assignments names no column. Give one, as {{'price': 'price * 2'}}.")

    def changed(rows: DataFrame, fields: Sequence[NestedField]) -> DataFrame:
        file, pos = PLACE
        old = {field.field_id: F.col(quoted(field.name)) for field in fields}
        assigned = Assignments(action, fields, assignments, case_sensitive=is_case_sensitive(rows.sparkSession))
        named = [value.alias(field.name) for value, field in zip(assigned.values(rows, old), fields, strict=True)]
        ids = [F.col(name) for name in rows.columns if name == ROW_ID.name]
        return rows.select(F.col(file).alias(FILE), F.col(pos).alias(POS), F.lit(True).alias(IS_ROW), *named, *ids)  # noqa: FBT003

    operation = Operation(command="update", action=action, changes=changed, where=where, takes_values=True)
    return RowLevelRun(spark, operation, call_options(table, options, branch), mode, isolation_level).run()
