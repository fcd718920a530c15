"""`merge`: changes the rows of a table by the rows of a DataFrame, by clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import TYPE_CHECKING

from pyiceberg.types import NestedField
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import OptionError
from iceberg_ds.reading.read import is_case_sensitive
from iceberg_ds.row_level.assignments import Assignments, types_of
from iceberg_ds.row_level.change_tasks import FILE, IS_ROW, POS
from iceberg_ds.row_level.clauses import Clause, Clauses, Delete, Insert, Update
from iceberg_ds.row_level.operation import PLACE, Isolation, Mode, Operation, RowLevelResult, RowLevelRun, call_options
from iceberg_ds.spark.sql_text import expression, refusing_sql
from iceberg_ds.table.lineage import ROW_ID
from iceberg_ds.table.names import AmbiguousNameError, find_position, free_name, quoted
from iceberg_ds.table.spark_types import spark_type, sql_constant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TARGET, _SOURCE = "target", "source"
# Columns of our own beside those of table and source.
_IS_SOURCE, _CLAUSE = "__row_level_is_source", "__row_level_clause"


def merge(  # noqa: PLR0913  # all but three by name
    spark: SparkSession,
    source: DataFrame,
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    on: str | Sequence[str],
    when_matched: Update | Delete | Sequence[Update | Delete] = (),
    when_not_matched: Insert | Sequence[Insert] = (),
    when_not_matched_by_source: Update | Delete | Sequence[Update | Delete] = (),
    mode: Mode | None = None,
    isolation_level: Isolation | None = None,
) -> RowLevelResult:
    """Change the rows of a table by the rows of a DataFrame, in one snapshot, as Spark's `MERGE INTO`.

    Of the clauses for a row, the first one whose condition is true is carried out; a row without any stays as it is.
    Expressions name columns as `target.x` and `source.x`, or without these words where one of the two alone has them.
    The table and the source are joined by Spark; if others commit meanwhile what the isolation level takes for a
    conflict, or delete rows of the same data files, this is done anew, so the source is computed again.

    Args:
        spark: The session; classic, or of Spark Connect.
        source: The rows to merge: a batch.
        table: Identifier of the table, such as `db.events`.
        options: As `delete_from`.
        branch: As `delete_from`.
        on: Which rows of source and table match: a predicate in Spark's SQL, or the names of columns that are equal.
        when_matched: What becomes of rows of the table with a row of the source: `iceberg_ds.Update`,
            `iceberg_ds.Delete`, or a list of these.
        when_not_matched: What becomes of rows of the source without a row of the table: `iceberg_ds.Insert`, or a list.
        when_not_matched_by_source: What becomes of rows of the table without a row of the source: `iceberg_ds.Update`,
            `iceberg_ds.Delete`, or a list.
        mode: As `delete_from`, with the table property `write.merge.mode`.
        isolation_level: As `delete_from`, with the table property `write.merge.isolation-level`; under `serializable`
            any row that others add meanwhile is a conflict.

    Returns:
        What was done; its `snapshot_id` is None if there was nothing to change.

    Raises:
        OptionError: The options, arguments or clauses are malformed.
        RefusedRowsError: More than one row of the source would change one row of the table; nothing was committed.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table cannot be read or written.
        SchemaMismatchError: A required column would become null.
        CommitConflictError: Others kept changing what is read; nothing was committed.
        IcebergSinkError: As a write with `format("icebergsink")`.
    """
    action = f"merge into {table}"
    if not hasattr(source, "isStreaming"):
        raise OptionError(f"Cannot {action}: the source is a {type(source).__name__}, expected a DataFrame of Spark.")
    if source.isStreaming:
        raise OptionError(f"Cannot {action}: the source is a stream. Merge its batches, in foreachBatch.")
    clauses = Clauses.of(action, when_matched, when_not_matched, when_not_matched_by_source)
    joined = _Merge(action, source, on, clauses)
    operation = Operation(
        command="merge",
        action=action,
        changes=joined.changes,
        takes_values=clauses.update_rows,
        allows_twice=not any(isinstance(clause, Update) for clause in clauses.matched),
    )
    return RowLevelRun(spark, operation, call_options(table, options, branch), mode, isolation_level).run()


class _Merge:
    """The rows that a merge changes.

    Args:
        action: What is being done, for errors.
        source: The rows to merge.
        on: As `merge`.
        clauses: What becomes of rows.
    """

    def __init__(self, action: str, source: DataFrame, on: str | Sequence[str], clauses: Clauses) -> None:
        if not (isinstance(on, Sequence) and all(isinstance(name, str) for name in on)):
            raise OptionError(f"Cannot {action}: on is {on!r}, expected a predicate, or names of columns.")
        self._action = action
        self._source = source
        self._on = on if isinstance(on, str) else " AND ".join(map(_equal, on))
        self._clauses = clauses
        self._is_exact = is_case_sensitive(source.sparkSession)
        if not self._on:
            raise OptionError(f"Cannot {action}: on names no column. Name those that are equal, or give a predicate.")

    def changes(self, rows: DataFrame, fields: Sequence[NestedField]) -> DataFrame:
        """Return the rows that change, as `Operation.changes` does."""
        taken = {name.lower() for name in (*rows.columns, *self._source.columns)}
        mark, chosen_clause = (free_name(name, taken) for name in (_IS_SOURCE, _CLAUSE))
        joined = self._joined(rows, mark)
        file, pos = (F.col(f"{_TARGET}.{name}") for name in PLACE)
        is_target, is_source = file.isNotNull(), F.col(mark).isNotNull()
        kinds = (
            (is_target & is_source, self._clauses.matched),
            (~is_target, self._clauses.not_matched),
            (~is_source, self._clauses.not_matched_by_source),
        )
        clauses = [clause for _, of_kind in kinds for clause in of_kind]
        # Of the side that a clause is not about all values are null.
        self._check_side(self._source.alias(_SOURCE), self._clauses.not_matched)
        self._check_side(rows.alias(_TARGET), self._clauses.not_matched_by_source)
        conditions = [self._condition(joined, kind, clause) for kind, of_kind in kinds for clause in of_kind]
        number = _first(conditions, [F.lit(number) for number in range(len(clauses))])
        # The number of a row's clause is found once, and each value is then that of its clause.
        joined = joined.select("*", number.alias(chosen_clause)).where(F.col(chosen_clause).isNotNull())
        chosen = [F.col(chosen_clause) == number for number in range(len(clauses))]
        by_clause = zip(*(self._values(joined, clause, fields) for clause in clauses), strict=True)
        values = [_first(chosen, of_field).alias(field.name) for field, of_field in zip(fields, by_clause, strict=True)]
        is_row = _first(chosen, [F.lit(not isinstance(clause, Delete)) for clause in clauses])
        ids = [F.col(f"{_TARGET}.{name}") for name in rows.columns if name == ROW_ID.name]
        return joined.select(file.alias(FILE), pos.alias(POS), is_row.alias(IS_ROW), *values, *ids)

    def _joined(self, rows: DataFrame, mark: str) -> DataFrame:
        """Return the rows of table and source side by side, as far as a clause may be about them.

        Column `mark` is null where there is no row of the source.

        Raises:
            OptionError: The condition is wrong.
        """
        needs = bool(self._clauses.not_matched), bool(self._clauses.not_matched_by_source)
        how = {(False, False): "inner", (True, False): "right", (False, True): "left", (True, True): "full"}[needs]
        source = self._source.select("*", F.lit(True).alias(mark))  # noqa: FBT003
        with self._refusing(self._on):
            joined = rows.alias(_TARGET).join(source.alias(_SOURCE), expression(self._on), how)
            joined.schema  # noqa: B018  # for its errors
        return joined

    def _refusing(self, text: str) -> AbstractContextManager[None]:
        return refusing_sql(text, f"Cannot {self._action}: {text!r} is no predicate on table and source")

    def _condition(self, joined: DataFrame, kind: Column, clause: Clause) -> Column:
        if clause.condition is None:
            return kind
        with self._refusing(clause.condition):
            joined.where(expression(clause.condition)).schema  # noqa: B018  # for its errors
        return kind & expression(clause.condition)

    def _check_side(self, rows: DataFrame, clauses: Sequence[Clause]) -> None:
        """Refuse clauses that name columns of the side that has no row then.

        Raises:
            OptionError: One does, or is wrong.
        """
        for clause in clauses:
            self._condition(rows, F.lit(True), clause)  # noqa: FBT003  # for its errors
            if not isinstance(clause, Delete):
                given = clause.values if isinstance(clause, Insert) else clause.assignments
                types_of(self._action, rows, [text for text in (given or {}).values() if isinstance(text, str)])

    def _values(self, joined: DataFrame, clause: Clause, fields: Sequence[NestedField]) -> list[Column]:
        """Return the value of each column of the table where a clause applies."""
        nothing = {field.field_id: _default(field) for field in fields}
        if isinstance(clause, Delete):
            return list(nothing.values())
        given = clause.values if isinstance(clause, Insert) else clause.assignments
        if given is None:
            given = {quoted(field.name): self._of_source(field.name) for field in fields}
        old = {field.field_id: F.col(f"{_TARGET}.{quoted(field.name)}") for field in fields}
        assigned = Assignments(self._action, fields, given, case_sensitive=self._is_exact)
        return assigned.values(joined, nothing if isinstance(clause, Insert) else old)

    def _of_source(self, name: str) -> str:
        """Return the expression of the source's column of a name.

        Raises:
            OptionError: It has none, or several.
        """
        try:
            place = find_position(name, self._source.columns, case_sensitive=self._is_exact)
        except AmbiguousNameError as problem:
            raise OptionError(f"Cannot {self._action}: of the columns of the source, {problem}.") from problem
        if place is None:
            raise OptionError(
                f"Cannot {self._action}: a clause takes all columns from the source, and it has no column '{name}'. "
                "Name the columns to set."
            )
        return f"{_SOURCE}.{quoted(self._source.columns[place])}"


def _default(field: NestedField) -> Column:
    """Return the value of a column that an insert does not name: its write default, or null."""
    data_type = spark_type(field.field_type)
    if field.write_default is None:
        return F.lit(None).cast(data_type)
    return F.expr(sql_constant(field.write_default, data_type))


def _equal(name: str) -> str:
    return f"{_TARGET}.{quoted(name)} = {_SOURCE}.{quoted(name)}"


def _first(conditions: Sequence[Column], values: Sequence[Column]) -> Column:
    """Return the value of the first condition that is true, or null."""
    pairs = list(zip(conditions, values, strict=True))
    return reduce(lambda found, pair: found.when(*pair), pairs[1:], F.when(*pairs[0]))
