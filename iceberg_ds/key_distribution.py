"""Brings rows of one key to one task, in a way that the tasks can prove.

The proof is Spark's hash of the key and the number of the task (`changes.spark_hash`), so nothing may move rows after
it, and the number of tasks is fixed: Spark's adaptive execution would make one task of several.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.layouts.terms import parse_columns
from iceberg_ds.schemas.names import AmbiguousNameError, find_position


def distributed_by_key(df: DataFrame, keys: Sequence[str] | str, count: int | None) -> DataFrame:
    """Return the rows of `df` in `count` tasks, those of one key in one of them.

    Args:
        df: A batch or streaming DataFrame.
        keys: Names of the key columns, or text with commas between them.
        count: Number of tasks, None if Spark tells no default.

    Raises:
        OptionError: No key is named, or there is no number of tasks.
        SchemaMismatchError: The DataFrame lacks a key column.
    """
    names = _names(keys)
    if count is None:
        raise OptionError("Cannot distribute: Spark tells no default number of tasks. Give num_partitions.")
    columns, problems = [], []
    for name in names:
        try:
            position = find_position(name, df.columns)
        except AmbiguousNameError as ambiguous:
            problems.append(f"key column {ambiguous}")
            continue
        if position is None:
            problems.append(f"the DataFrame has no key column '{name}' (columns: {', '.join(df.columns)})")
        else:
            columns.append(F.col(f"`{df.columns[position].replace('`', '``')}`"))
    if problems:
        raise SchemaMismatchError(f"Cannot distribute by key: {'; '.join(problems)}.")
    return df.repartition(count, *columns)


def _names(keys: Sequence[str] | str) -> tuple[str, ...]:
    try:
        names = parse_columns(keys) if isinstance(keys, str) else tuple(keys)
    except ValueError as problem:
        raise OptionError(f"Cannot distribute: keys is {keys!r}: {problem}.") from problem
    if not names:
        raise OptionError("Cannot distribute: keys names no column.")
    return names
