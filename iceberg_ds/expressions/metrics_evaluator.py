"""Pure: what the metrics and the partition of a data file, or the summary of a manifest, prove about its rows.

They prove whether a file lies inside the range of rows that a write replaces, outside, or partly inside, and whether
the file may hold one of some keys. What metrics do not say, or say in a form that cannot be read, is unknown: the rows
are then read, so that a doubt costs time and never a row. A column that the schema calls required counts as optional
here, because it may have been optional when the file was written. Source: Iceberg spec, "Scan Planning", "Manifests",
"Partition Transforms" and appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from pyiceberg.manifest import DataFile, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.expressions.binding import typed_predicate
from iceberg_ds.expressions.domains import UNKNOWN, Values
from iceberg_ds.expressions.nodes import Column, Constant, Facts
from iceberg_ds.expressions.parser import Tree
from iceberg_ds.table.partitioning import PartitionKey

_Metric = TypeVar("_Metric")
_FLOAT_BYTES = _DATE_BYTES = 4
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_EPOCH_YEAR = 1970
_MONTHS = 12
_EPOCH_DAY = dt.date(_EPOCH_YEAR, 1, 1)
_TIMES = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """What the metrics of a file say about one column.

    Attributes:
        low: Lower bound of all values but NaN, or None if unknown.
        high: Upper bound of all values but NaN, or None if unknown.
        may_be_null: Whether a null is possible.
        is_all_null: Whether every value is null.
        may_be_nan: Whether a NaN, which lies within no bounds, is possible.
    """

    low: Any = None
    high: Any = None
    may_be_null: bool = True
    is_all_null: bool = False
    may_be_nan: bool = False


def facts_of(data_file: DataFile, field_id: int, field_type: IcebergType) -> ColumnFacts:
    """Return what the metrics of a file say about the column with this id, whose type in the table is `field_type`."""
    nulls, values = _metric(data_file.null_value_counts, field_id), _metric(data_file.value_counts, field_id)
    is_float = isinstance(field_type, FloatType | DoubleType)
    # Of a field of null structs, which some writers do not count at all.
    is_short = values is not None and values < data_file.record_count
    return ColumnFacts(
        low=bound_value(_metric(data_file.lower_bounds, field_id), field_type),
        high=bound_value(_metric(data_file.upper_bounds, field_id), field_type),
        may_be_null=nulls != 0 or is_short,
        is_all_null=nulls is not None and nulls == values and values > 0,
        may_be_nan=is_float and _metric(data_file.nan_value_counts, field_id) != 0,
    )


def _metric(metrics: Mapping[int, _Metric] | None, field_id: int) -> _Metric | None:
    """Return a metric of a column, or None if the file has none."""
    return None if metrics is None else metrics.get(field_id)


def bound_value(raw: bytes | None, field_type: IcebergType) -> Any:  # noqa: ANN401, PLR0911  # one return a type
    """Return a bound as a value that compares with others of the column, or None if there is no usable bound.

    A column may have been widened since the file was written, so the number of bytes tells the width of a number, and
    a date from a timestamp.
    """
    if not raw:
        return None if not isinstance(field_type, StringType | BinaryType) else raw
    match field_type:
        case TimestampType() | TimestamptzType() if len(raw) == _DATE_BYTES:  # it was a date then
            return int.from_bytes(raw, "little", signed=True) * _DAY_US
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            return int.from_bytes(raw, "little", signed=True)
        case BooleanType():
            return raw != b"\x00"
        case DecimalType():
            return int.from_bytes(raw, "big", signed=True)
        case FloatType() | DoubleType():
            (number,) = struct.unpack("<f" if len(raw) == _FLOAT_BYTES else "<d", raw)
            return None if number != number else number  # noqa: PLR0124  # NaN bounds nothing
        case StringType() | BinaryType() | FixedType():
            return raw
    return None  # writers do not agree on the order of UUIDs


class FileFacts:
    """What is known about the columns of data files under one partition spec.

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
        """Return what holds for every row of a file: its metrics, and partitions that are a column's value.

        A writer has seen these facts in the rows; the result of a transform only rules rows out.
        """
        return _remembered(lambda column: self._of_file(data_file, column, all_transforms=False))

    def of_partition(self, data_file: DataFile) -> Facts:
        """Return all that is known about a file, to rule rows out."""
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
    except Exception:  # bounds and partitions of other writers, and types that changed since
        return UNKNOWN


def _of_metrics(data_file: DataFile, column: Column, kind: IcebergType) -> Values:
    found = facts_of(data_file, column.field_id, kind)
    is_all_nan = found.may_be_nan and _has_nans_alone(data_file, column.field_id)
    if len(column.path) > 1:
        # Writers differ on whether the fields of null structs count as null.
        found = ColumnFacts(low=found.low, high=found.high, may_be_nan=found.may_be_nan)
        is_all_nan = False
    return Values(
        low=_comparable(found.low, kind),
        high=_comparable(found.high, kind),
        has_values=not (found.is_all_null or is_all_nan),
        has_nulls=found.may_be_null,
        has_nans=found.may_be_nan and not found.is_all_null,
    )


def _has_nans_alone(data_file: DataFile, field_id: int) -> bool:
    """Return whether every value that is no null is a NaN, and there is one."""
    nans, nulls = _metric(data_file.nan_value_counts, field_id), _metric(data_file.null_value_counts, field_id)
    values = _metric(data_file.value_counts, field_id) or 0
    return nulls is not None and nans is not None and 0 < nans == values - nulls


def _comparable(bound: Any, kind: IcebergType) -> Any:  # noqa: ANN401  # of the column's type
    """Return a bound as values of its type compare; the bound of a decimal is a whole number."""
    return _shifted(bound, -kind.scale) if isinstance(kind, DecimalType) and bound is not None else bound


def _shifted(number: int, exponent: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), exponent))


def _of_value(value: Any, transform: Transform[Any, Any], kind: IcebergType) -> Values:  # noqa: ANN401  # of any type
    """Return what a partition value says about the column that it was computed from."""
    if value is None:
        return Values(has_values=False, has_nans=False) if _keeps_nulls(transform) else UNKNOWN
    if isinstance(value, float) and math.isnan(value):
        return Values(has_values=False, has_nulls=False)
    return _unless_unreadable(lambda: _between(value, value, transform, kind, Values(has_nulls=False, has_nans=False)))


def _of_summary(summary: PartitionFieldSummary, transform: Transform[Any, Any], kind: IcebergType) -> Values:
    """Return what the lowest and the highest partition value say about the column that they were computed from."""
    if not _keeps_nulls(transform) or not kind.is_primitive:
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
    """Return what partition values from `first` to `last`, and `others` of nulls and NaN, say about the column."""
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
    """Return an upper bound of all values that are cut to `last`, None if unknown, and whether they end below it."""
    if isinstance(kind, IntegerType | LongType):
        return last + width - 1, False
    if isinstance(kind, DecimalType):
        return _shifted(_unscaled(last, kind.scale) + width - 1, -kind.scale), False
    raw = _physical(last)
    # A value shorter than the width was not cut.
    is_whole = len(raw.decode() if isinstance(kind, StringType) else raw) < width
    return (raw, False) if is_whole else (_after(raw), True)


def _unscaled(number: Decimal, scale: int) -> int:
    sign, digits, exponent = number.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits))) * int(10 ** (int(exponent) + scale))


def _after(beginning: bytes) -> bytes | None:
    """Return the lowest bound above all bytes that start with `beginning`, or None if nothing is above."""
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


class Coverage(Enum):
    """How much of a file lies in a range."""

    OUTSIDE = auto()
    PARTIAL = auto()
    INSIDE = auto()


class Range(ABC):
    """The rows of a branch that a write replaces."""

    is_everything = False

    @abstractmethod
    def may_touch(self, manifest: ManifestFile) -> bool:
        """Return whether a file of `manifest`, which lists data files, may lie in the range."""

    @abstractmethod
    def coverage(self, data_file: DataFile) -> Coverage:
        """Return how much of `data_file` lies in the range."""


class FilterRange(Range):
    """The rows that satisfy a predicate.

    Args:
        metadata: The table.
        predicate: As `parser.parse_predicate` returns it.
        case_sensitive: As in `binding.typed_predicate`.
        time_zone: As in `binding.typed_predicate`.

    Raises:
        ValueError: The predicate no longer fits the table's columns.
    """

    def __init__(
        self, metadata: TableMetadata, predicate: Tree, *, case_sensitive: bool, time_zone: str | None = None
    ) -> None:
        self._metadata = metadata
        self._predicate = typed_predicate(
            predicate, metadata.schema(), case_sensitive=case_sensitive, time_zone=time_zone
        )
        self.is_everything = isinstance(self._predicate, Constant) and self._predicate.value.as_py() is True
        self._facts = lru_cache(maxsize=None)(self._facts_of_spec)

    def may_touch(self, manifest: ManifestFile) -> bool:
        """Return whether the partitions of `manifest` allow rows that satisfy the predicate."""
        return _or_else(lambda: self._of_manifest(manifest).may_be_true, True)  # noqa: FBT003

    def coverage(self, data_file: DataFile) -> Coverage:
        """Return what the partition and the metrics of `data_file` say."""
        if self.is_everything:
            return Coverage.INSIDE
        if data_file.record_count == 0:
            return Coverage.OUTSIDE
        if not _or_else(lambda: self._of_partition(data_file).may_be_true, True):  # noqa: FBT003
            return Coverage.OUTSIDE
        is_inside = _or_else(lambda: _is_true(self._of_rows(data_file)), False)  # noqa: FBT003
        return Coverage.INSIDE if is_inside else Coverage.PARTIAL

    def _of_manifest(self, manifest: ManifestFile) -> Values:
        return self._predicate.among(self._facts(manifest.partition_spec_id).of_manifest(manifest))

    def _of_partition(self, data_file: DataFile) -> Values:
        return self._predicate.among(self._facts(data_file.spec_id).of_partition(data_file))

    def _of_rows(self, data_file: DataFile) -> Values:
        return self._predicate.among(self._facts(data_file.spec_id).of_rows(data_file))

    def _facts_of_spec(self, spec_id: int) -> FileFacts:
        return FileFacts(self._metadata.schema(), self._metadata.specs()[spec_id])


def _is_true(outcome: Values) -> bool:
    return outcome.may_be_true and not outcome.may_be_false and not outcome.has_nulls


def _or_else(decide: Callable[[], bool], otherwise: bool) -> bool:  # noqa: FBT001  # the answer, not a switch
    """Return the decision, or `otherwise`, which is always safe, if the values cannot be compared."""
    try:
        return decide()
    except Exception:  # such as partitions and bounds of other types than the columns have
        return otherwise


class PartitionRange(Range):
    """The partitions that a set of data files belongs to, or all rows of an unpartitioned table.

    Args:
        metadata: The table.
        data_files: The files.
        name: The table's name, for errors.
    """

    def __init__(self, metadata: TableMetadata, data_files: Sequence[DataFile], name: str) -> None:
        # The spec of the files, because the table's may have changed since they were written.
        self._spec_id = data_files[0].spec_id if data_files else metadata.default_spec_id
        spec = metadata.specs()[self._spec_id]
        is_unpartitioned = all(isinstance(field.transform, VoidTransform) for field in spec.fields)
        self.is_everything = is_unpartitioned and bool(data_files)
        self._partitions = {PartitionKey.of(data_file.partition) for data_file in data_files}
        self._name = name

    def may_touch(self, manifest: ManifestFile) -> bool:  # noqa: ARG002  # the files tell it as fast
        """Return whether the range has any partitions."""
        return bool(self._partitions)

    def coverage(self, data_file: DataFile) -> Coverage:
        """Return whether the file's partition is one of the range's.

        Raises:
            UnsupportedTableError: The file was written by another partition spec.
        """
        if self.is_everything:
            return Coverage.INSIDE
        if data_file.spec_id != self._spec_id:
            raise UnsupportedTableError(
                f"Cannot write to {self._name} with overwrite-mode=dynamic, nothing was committed: "
                f"{data_file.file_path} was written by partition spec {data_file.spec_id} and these rows by "
                f"{self._spec_id}, so it cannot be told to which partitions its rows belong. Use replace-where."
            )
        return Coverage.INSIDE if PartitionKey.of(data_file.partition) in self._partitions else Coverage.OUTSIDE


def may_share_rows(one: Sequence[ColumnFacts], other: Sequence[ColumnFacts]) -> bool:
    """Return whether a row of one file may equal a row of the other in all these columns."""
    return all(map(_may_share_value, one, other))


def _may_share_value(one: ColumnFacts, other: ColumnFacts) -> bool:
    if (one.may_be_null and other.may_be_null) or (one.may_be_nan and other.may_be_nan):
        return True
    if one.is_all_null or other.is_all_null:
        return False
    return not (_is_below(one, other) or _is_below(other, one))


def _is_below(one: ColumnFacts, other: ColumnFacts) -> bool:
    return one.high is not None and other.low is not None and bool(one.high < other.low)


class FactsOf:
    """The facts of files, computed once for each file and set of columns.

    Args:
        types: The types of the columns, by field id.
    """

    def __init__(self, types: Mapping[int, IcebergType]) -> None:
        self._types = types
        self._known: dict[tuple[str, tuple[int, ...]], tuple[ColumnFacts, ...]] = {}

    def __call__(self, data_file: DataFile, field_ids: tuple[int, ...]) -> tuple[ColumnFacts, ...]:
        """Return the facts of these columns, in their order."""
        key = data_file.file_path, field_ids
        if key not in self._known:
            self._known[key] = tuple(facts_of(data_file, number, self._types[number]) for number in field_ids)
        return self._known[key]
