"""Pure: what the metrics and the partition of a data file, or the summary of a manifest, say of columns.

What they do not say, or say in a form that cannot be read, is unknown. A column that the schema calls required counts
as optional here, because it may have been optional when the file was written. Source: Iceberg spec, "Manifests",
"Partition Transforms" and appendix D.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from iceberg_ds.predicates.expressions import Column, Facts
from iceberg_ds.predicates.metrics import ColumnFacts, bound_value, facts_of
from iceberg_ds.predicates.values import UNKNOWN, Values

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_EPOCH_YEAR = 1970
_MONTHS = 12
_EPOCH_DAY = dt.date(_EPOCH_YEAR, 1, 1)
_TIMES = (DateType, TimestampType, TimestamptzType)


class FileFacts:
    """What is known of the columns of data files under one partition spec.

    Args:
        schema: The table's schema.
        spec: The partition spec.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._schema = schema
        self._sources: dict[int, list[tuple[int, PartitionField]]] = {}
        for position, field in enumerate(spec.fields):
            self._sources.setdefault(field.source_id, []).append((position, field))

    def of_rows(self, data_file: DataFile) -> Facts:
        """Return what every row of a file is known to hold to: its metrics, and partitions that are a column's value.

        These are what a writer has seen of the rows; what a transform makes of a row only rules rows out.
        """
        return _remembered(lambda column: self._of_file(data_file, column, all_transforms=False))

    def of_partition(self, data_file: DataFile) -> Facts:
        """Return all that is known of a file, by which rows may be ruled out."""
        return _remembered(lambda column: self._of_file(data_file, column, all_transforms=True))

    def of_manifest(self, manifest: ManifestFile) -> Facts:
        """Return what the partitions of a manifest's files say together."""
        return _remembered(lambda column: self._of_manifest(manifest, column))

    def _of_file(self, data_file: DataFile, column: Column, *, all_transforms: bool) -> Values:
        kind = self._schema.find_type(column.field_id)
        found = _unless_unreadable(lambda: _of_metrics(data_file, column, kind))
        for position, field in self._sources.get(column.field_id, ()):
            is_own = isinstance(field.transform, IdentityTransform)
            if is_own or all_transforms:
                found = found.and_also(_of_value(data_file.partition[position], field.transform, kind))
        return found

    def _of_manifest(self, manifest: ManifestFile, column: Column) -> Values:
        kind, found = self._schema.find_type(column.field_id), UNKNOWN
        for position, field in self._sources.get(column.field_id, ()):
            if manifest.partitions is not None and position < len(manifest.partitions):
                found = found.and_also(_of_summary(manifest.partitions[position], field.transform, kind))
        return found


def _remembered(facts: Facts) -> Facts:
    known: dict[int, Values] = {}

    def find(column: Column) -> Values:
        if column.field_id not in known:
            known[column.field_id] = facts(column)
        return known[column.field_id]

    return find


def _unless_unreadable(read: Callable[[], Values]) -> Values:
    try:
        return read()
    except Exception:  # what other writers wrote for bounds and partitions, and what types were since
        return UNKNOWN


def _of_metrics(data_file: DataFile, column: Column, kind: IcebergType) -> Values:
    found = facts_of(data_file, column.field_id, kind)
    nans = (data_file.nan_value_counts or {}).get(column.field_id)
    nulls = (data_file.null_value_counts or {}).get(column.field_id)
    values = (data_file.value_counts or {}).get(column.field_id)
    is_all_nan = nulls is not None and nans is not None and 0 < nans == (values or 0) - nulls
    if len(column.path) > 1:
        # Whether fields of structs that are null count as null is not the same with all writers.
        found = ColumnFacts(low=found.low, high=found.high, may_be_nan=found.may_be_nan)
        is_all_nan = False
    return Values(
        low=_comparable(found.low, kind),
        high=_comparable(found.high, kind),
        has_values=not (found.is_all_null or is_all_nan),
        has_nulls=found.may_be_null,
        has_nans=found.may_be_nan and not found.is_all_null,
    )


def _comparable(bound: Any, kind: IcebergType) -> Any:  # noqa: ANN401  # of the column's type
    """Return a bound as values of its type compare: of decimals bounds are whole numbers."""
    return _shifted(bound, -kind.scale) if isinstance(kind, DecimalType) and bound is not None else bound


def _shifted(number: int, exponent: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), exponent))


def _of_value(value: Any, transform: Transform[Any, Any], kind: IcebergType) -> Values:  # noqa: ANN401  # of any type
    """Return what a partition value says of the column that it was made from."""
    if value is None:
        return Values(has_values=False, has_nans=False) if _keeps_nulls(transform) else UNKNOWN
    if isinstance(value, float) and math.isnan(value):
        return Values(has_values=False, has_nulls=False)
    return _unless_unreadable(lambda: _between(value, value, transform, kind, Values(has_nulls=False, has_nans=False)))


def _of_summary(summary: PartitionFieldSummary, transform: Transform[Any, Any], kind: IcebergType) -> Values:
    """Return what the lowest and the highest partition value say of the column that they were made from."""
    if not _keeps_nulls(transform) or not isinstance(kind, PrimitiveType):
        return UNKNOWN

    def read() -> Values:
        result = transform.result_type(kind)
        low, high = (
            _comparable(bound_value(raw, result), result) for raw in (summary.lower_bound, summary.upper_bound)
        )
        has_nans = isinstance(kind, FloatType | DoubleType) and summary.contains_nan is not False
        others = Values(has_nulls=summary.contains_null, has_nans=has_nans)
        return others if low is None or high is None else _between(low, high, transform, kind, others)

    return _unless_unreadable(read)


def _keeps_nulls(transform: Transform[Any, Any]) -> bool:
    return isinstance(
        transform,
        IdentityTransform
        | BucketTransform
        | TruncateTransform
        | YearTransform
        | MonthTransform
        | DayTransform
        | HourTransform,
    )


def _between(
    first: Any,  # noqa: ANN401  # of the transform's type
    last: Any,  # noqa: ANN401
    transform: Transform[Any, Any],
    kind: IcebergType,
    others: Values,
) -> Values:
    """Return what partition values from `first` to `last`, and `others` of nulls and NaN, say of the column."""
    low, high, is_open = None, None, False
    rules_out = None
    if isinstance(transform, IdentityTransform):
        low, high = _physical(first), _physical(last)
    elif isinstance(transform, BucketTransform):
        rules_out = _not_in_buckets(transform, kind, first, last)
    elif isinstance(transform, TruncateTransform):
        low = _physical(first)
        high, is_open = _end_of_width(last, transform.width, kind)
    elif isinstance(kind, _TIMES):
        # Early writers rounded times before 1970 up, to the next hour, day, month or year.
        low = _begin(first - 1 if first <= 0 else first, transform, kind)
        high, is_open = _begin(last + 1, transform, kind), True
    return replace(others, low=low, high=high, is_open=is_open, rules_out=rules_out)


def _physical(value: Any) -> Any:  # noqa: ANN401  # of any type
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, UUID) else value


def _not_in_buckets(transform: BucketTransform[Any], kind: IcebergType, first: int, last: int) -> Callable[[Any], bool]:
    bucket = transform.transform(kind)

    def rules_out(value: Any) -> bool:  # noqa: ANN401  # of the column's type
        if isinstance(kind, StringType):
            value = value.decode()
        found = bucket(value)
        return found is not None and not first <= found <= last

    return rules_out


def _end_of_width(last: Any, width: int, kind: IcebergType) -> tuple[Any, bool]:  # noqa: ANN401  # of the column's type
    """Return what all values that are cut to `last` end at, and whether they end below it; None if it is not known."""
    if isinstance(kind, IntegerType | LongType):
        return last + width - 1, False
    if isinstance(kind, DecimalType):
        return _shifted(_unscaled(last, kind.scale) + width - 1, -kind.scale), False
    raw = _physical(last)
    # What is shorter than the width was not cut.
    is_whole = len(raw.decode() if isinstance(kind, StringType) else raw) < width
    return (raw, False) if is_whole else (_after(raw), True)


def _unscaled(number: Decimal, scale: int) -> int:
    sign, digits, exponent = number.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits))) * int(10 ** (int(exponent) + scale))


def _after(beginning: bytes) -> bytes | None:
    """Return what is above all that begins so, None if nothing is."""
    kept = beginning.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _begin(ordinal: int, transform: Transform[Any, Any], kind: IcebergType) -> int:
    """Return the first moment of a year, month, day or hour, as the column stores it."""
    if isinstance(transform, HourTransform):
        return ordinal * _HOUR_US
    if isinstance(transform, YearTransform):
        days = (dt.date(_EPOCH_YEAR + ordinal, 1, 1) - _EPOCH_DAY).days
    elif isinstance(transform, MonthTransform):
        days = (dt.date(_EPOCH_YEAR + ordinal // _MONTHS, 1 + ordinal % _MONTHS, 1) - _EPOCH_DAY).days
    else:
        days = ordinal
    return days if isinstance(kind, DateType) else days * _DAY_US
