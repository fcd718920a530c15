"""From the rows that snapshots inserted and deleted to changes, as expressions of Spark.

A row that one snapshot deleted and inserted unchanged, because it wrote its file again, is no change. Rows are the same
if all their values are, bit by bit: null is null, NaN is NaN, but 0.0 is not -0.0; maps are the same in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    VariantType,
    VariantVal,
)

from iceberg_ds.reading.extras import (
    CHANGE_COLUMNS,
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)
from iceberg_ds.table.names import free_name, quoted

_COMMIT = tuple(name for name in CHANGE_COLUMNS if name != CHANGE_TYPE)


def without_carry_overs(rows: DataFrame) -> DataFrame:
    """Leave out rows that the same snapshot deleted and inserted, copy by copy."""
    columns = _table_columns(rows)
    copies = _free("__copies", columns)
    return _repeated(_counted(rows, columns, copies), columns, copies)


def net_changes(rows: DataFrame) -> DataFrame:
    """Leave out rows that were deleted and inserted, copy by copy, by any snapshots.

    What is left tells of the last snapshot that inserted, or deleted, such a row.
    """
    columns = _table_columns(rows)
    own, at = _free("__copies", columns), _free("__at", columns)
    commit, copies = F.struct(*_COMMIT), F.col(own)
    last = F.when(F.sum(copies) > 0, F.max(F.when(copies > 0, commit))).otherwise(F.max(F.when(copies < 0, commit)))
    counted = _counted(rows, columns, own).groupBy(*_same(columns))
    net = counted.agg(*_values(columns), last.alias(at), F.sum(copies).alias(own))
    return _repeated(net.select(*_names(columns), own, *_commit_of(at)), columns, own)


def with_updates(rows: DataFrame, name: str, keys: Sequence[str], *, is_net: bool) -> DataFrame:
    """Name a deleted and an inserted row of one key the row before and the row after an update.

    Of net changes both tell of the later snapshot. A query fails if rows of a key were deleted and inserted, and of
    either there were several: which one became which is not known.

    Args:
        rows: Changes without carry-overs.
        name: Identifier of the table, for messages.
        keys: Names of the key columns.
        is_net: Whether they are changes over all snapshots together, else snapshot by snapshot.
    """
    key = list(map(quoted, keys))
    of_key = Window.partitionBy(*key) if is_net else Window.partitionBy(CHANGE_ORDINAL, *key)
    deleted, inserted = (F.count(F.when(F.col(CHANGE_TYPE) == kind, 1)).over(of_key) for kind in (DELETE, INSERT))
    is_update = (deleted > 0) & (inserted > 0)
    word = F.when(F.col(CHANGE_TYPE) == DELETE, UPDATE_BEFORE).otherwise(UPDATE_AFTER)
    kind = (
        F.when(is_update & (F.greatest(deleted, inserted) > 1), _refusal(name, keys))
        .when(is_update, word)
        .otherwise(F.col(CHANGE_TYPE))
    )
    commit = F.struct(*_COMMIT)
    at = F.when(is_update, F.max(commit).over(of_key)).otherwise(commit) if is_net else commit
    columns = _table_columns(rows)
    last = _free("__at", columns)
    found = rows.select(*_names(columns), kind.alias(CHANGE_TYPE), at.alias(last))
    return found.select(*_names(columns), CHANGE_TYPE, *_commit_of(last))


def _refusal(name: str, keys: Sequence[str]) -> Column:
    told = F.concat(
        F.lit(f"Cannot read changes of {name} with keys {', '.join(keys)}: snapshot "),
        F.col(COMMIT_SNAPSHOT_ID).cast("string"),
        F.lit(" changed several rows of one key: "),
        F.to_json(F.struct(*map(quoted, keys))),
        F.lit(". Give columns that no two rows have in common, or leave keys out."),
    )
    return F.raise_error(told).cast("string")


def _table_columns(rows: DataFrame) -> list[StructField]:
    return [field for field in rows.schema.fields if field.name not in CHANGE_COLUMNS]


def _names(columns: Sequence[StructField]) -> list[str]:
    return [quoted(column.name) for column in columns]


def _free(name: str, columns: Sequence[StructField]) -> str:
    """Return the name of a column of our own, that no column of the table has in any case of letters."""
    return free_name(name, _taken(columns))


def _taken(columns: Sequence[StructField]) -> set[str]:
    return {column.name.lower() for column in columns}


def _commit_of(at: str) -> list[Column]:
    return [F.col(at)[name].alias(name) for name in _COMMIT]


def _counted(rows: DataFrame, columns: Sequence[StructField], copies: str) -> DataFrame:
    """Return each row once a snapshot, and in column `copies` how many more of it were inserted than deleted."""
    sign = F.when(F.col(CHANGE_TYPE) == INSERT, 1).otherwise(-1)
    grouped = rows.groupBy(*_same(columns), *_COMMIT).agg(*_values(columns), F.sum(sign).alias(copies))
    return grouped.select(*_names(columns), copies, *_COMMIT)


def _repeated(counted: DataFrame, columns: Sequence[StructField], copies: str) -> DataFrame:
    """Return so many changes of each row."""
    kind = F.when(F.col(copies) > 0, INSERT).otherwise(DELETE)
    each = F.explode(F.array_repeat(kind, F.abs(copies).cast("int"))).alias(CHANGE_TYPE)
    return counted.select(*_names(columns), each, *_COMMIT)


def _same(columns: Sequence[StructField]) -> list[Column]:
    """Return by what rows are grouped that are the same."""
    taken = _taken(columns)
    return [
        F.col(quoted(column.name))
        if _is_plain(column.dataType)
        else identity(F.col(quoted(column.name)), column.dataType).alias(free_name(f"__same_{number}", taken))
        for number, column in enumerate(columns)
    ]


def _values(columns: Sequence[StructField]) -> list[Column]:
    """Return the values of the columns that rows are not grouped by as they are."""
    return [F.first(quoted(one.name)).alias(one.name) for one in columns if not _is_plain(one.dataType)]


def _is_plain(kind: DataType) -> bool:
    """Return whether Spark groups values of a type by all their bits."""
    match kind:
        case FloatType() | DoubleType() | MapType() | VariantType():
            return False
        case ArrayType():
            return _is_plain(kind.elementType)
        case StructType():
            return all(_is_plain(field.dataType) for field in kind.fields)
    return True


def identity(value: Column, kind: DataType) -> Column:
    """Return what two values of a type have in common if, and only if, they are the same."""
    if _is_plain(kind):
        return value
    match kind:
        case ArrayType():
            return F.transform(value, lambda element: identity(element, kind.elementType))
        case MapType():
            return F.array_sort(
                F.transform(
                    F.map_entries(value),
                    lambda entry: F.struct(
                        identity(entry["key"], kind.keyType).alias("key"),
                        identity(entry["value"], kind.valueType).alias("value"),
                    ),
                )
            )
        case StructType():
            inside = [identity(value[one.name], one.dataType).alias(f"_{at}") for at, one in enumerate(kind.fields)]
            return F.when(value.isNotNull(), F.struct(*inside))
        case VariantType():
            return F.udf(_bytes_of, BinaryType(), useArrow=False)(value)
    return value.cast("string")  # different texts for different numbers, and for 0.0 and -0.0; one for all NaN


def _bytes_of(variant: VariantVal | None) -> bytes | None:
    """Return the bytes of a variant: two that print alike may be of different types."""
    if variant is None:
        return None
    return len(variant.metadata).to_bytes(4, "big") + variant.metadata + variant.value
