"""What metrics and partitions say of a predicate allows whatever its rows give, for every predicate and any rows."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile, PartitionFieldSummary
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
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from support.checks.plain_metrics import physical
from support.predicates.as_in_spark import PREDICATES, ZONE

from iceberg_ds.expressions.binding import typed_predicate
from iceberg_ds.expressions.domains import Values
from iceberg_ds.expressions.metrics_evaluator import FileFacts
from iceberg_ds.expressions.nodes import Expression
from iceberg_ds.expressions.parser import parse_predicate

UTC = dt.timezone.utc
MOMENTS = (
    dt.datetime(1900, 1, 1),  # noqa: DTZ001  # without zone
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
    dt.datetime(1970, 1, 1),  # noqa: DTZ001
    dt.datetime(2026, 1, 2, 5),  # noqa: DTZ001
    dt.datetime(2026, 3, 8, 2, 30),  # noqa: DTZ001
    dt.datetime(2026, 3, 8, 7, 30),  # noqa: DTZ001
    dt.datetime(2026, 11, 1, 5, 30),  # noqa: DTZ001
    dt.datetime(2026, 11, 1, 6, 30),  # noqa: DTZ001
)
DAYS = (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 1, 2), dt.date(9999, 12, 31))
COLUMNS: dict[str, tuple[ice.IcebergType, Sequence[Any]]] = {
    "i": (ice.IntegerType(), (-(2**31), -7, 0, 1, 2, 3, 2**31 - 2)),
    "l": (ice.LongType(), (-(2**63), -7, 0, 1, 2, 3, 2**53 + 1, 2**63 - 2)),
    "f": (ice.FloatType(), (-math.inf, -1.5, -0.0, 0.0, 0.5, 16777216.0, math.inf, math.nan)),
    "x": (ice.DoubleType(), (-math.inf, -1.5, -0.0, 0.0, 0.1, 1.5, 7.0, 2.0**53, math.inf, math.nan)),
    "price": (ice.DecimalType(9, 2), tuple(map(Decimal, ("-1.50", "0.00", "0.10", "2.50", "19.99", "9999999.99")))),
    "s": (ice.StringType(), ("", "a", "ab", "a%", "a_b", "a_bc", "a\nb", "b", "ünï 😀", "İSTANBUL Σ")),
    "d": (ice.DateType(), DAYS),
    "flag": (ice.BooleanType(), (True, False)),
    "raw": (ice.BinaryType(), (b"", b"\x1f", b"\x1f\x00", b"a", b"\xff", b"\xff\xff\xff")),
    "ts": (ice.TimestamptzType(), tuple(moment.replace(tzinfo=UTC) for moment in MOMENTS)),
    "ntz": (ice.TimestampType(), MOMENTS),
}
STRUCT = ice.StructType(
    NestedField(21, "b", ice.IntegerType(), required=False), NestedField(22, "c d", ice.StringType(), required=False)
)
SCHEMA = Schema(
    *(NestedField(at, name, kind, required=False) for at, (name, (kind, _)) in enumerate(COLUMNS.items(), start=1)),
    NestedField(20, "a", STRUCT, required=False),
)
TYPED: list[tuple[str, Expression]] = [
    (text, typed_predicate(parse_predicate(text), SCHEMA, case_sensitive=False, time_zone=ZONE)) for text in PREDICATES
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(2),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]
_ROW = st.fixed_dictionaries(
    {
        **{name: st.none() | st.sampled_from(values) for name, (_, values) in COLUMNS.items()},
        "a": st.none()
        | st.fixed_dictionaries(
            {"b": st.sampled_from((None, -1, 1, 7)), "c d": st.sampled_from((None, "", "it", "x"))}
        ),
    }
)


@dataclass(frozen=True)
class File:
    """Rows of one partition, and what their writer says of them."""

    rows: list[dict[str, Any]]
    spec: PartitionSpec
    partition: Any
    metrics: Mapping[str, dict[int, Any]]

    @property
    def data_file(self) -> DataFile:
        """The entry of the manifest."""
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path="file:///t/a.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(self.partition) if self.spec.fields else Record(),
            record_count=len(self.rows),
            file_size_in_bytes=1,
            **self.metrics,
        )


def _leaves(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[NestedField, list[Any]]]:
    for field in SCHEMA.fields:
        if isinstance(field.field_type, ice.StructType):
            for inner in field.field_type.fields:
                yield inner, [None if row["a"] is None else row["a"][inner.name] for row in rows]
        else:
            yield field, [row[field.name] for row in rows]


def _cut(low: Any, high: Any, width: int) -> tuple[Any, Any]:
    """Return bounds cut as writers cut those of texts and bytes; None if none is above."""
    if isinstance(high, str) and len(high) > width:
        return low[:width], high[: width - 1] + chr(ord(high[width - 1]) + 1)
    if isinstance(high, bytes) and len(high) > width:
        return low[:width], None if high[width - 1] == 255 else high[: width - 1] + bytes([high[width - 1] + 1])
    return (low[:width] if isinstance(low, str | bytes) else low), high


@st.composite
def files(draw: st.DrawFn) -> File:
    """Draw rows, a partition that they share, and metrics that say all, some or nothing."""
    rows = draw(st.lists(_ROW, min_size=1, max_size=4))
    spec, partition = PartitionSpec(), None
    if draw(st.booleans()):
        name = draw(st.sampled_from([name for name in COLUMNS if name not in ("f", "x")] + ["x"]))
        kind = COLUMNS[name][0]
        transform = draw(st.sampled_from([one for one in TRANSFORMS if one.can_transform(kind)]))
        of = transform.transform(kind)
        partition = of(physical(rows[0][name]))
        rows = [row for row in rows if repr(of(physical(row[name]))) == repr(partition)]
        spec = PartitionSpec(PartitionField(SCHEMA.find_field(name).field_id, 1000, transform, "p"))
    metrics: dict[str, dict[int, Any]] = {
        key: {} for key in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }
    says = draw(st.fixed_dictionaries(dict.fromkeys(metrics, st.booleans())))
    width = draw(st.sampled_from((1, 2, 16)))
    for field, values in _leaves(rows):
        known = [value for value in values if value is not None and value == value]  # noqa: PLR0124  # NaN
        metrics["value_counts"][field.field_id] = len(values)
        metrics["null_value_counts"][field.field_id] = values.count(None)
        if isinstance(field.field_type, ice.FloatType | ice.DoubleType):
            metrics["nan_value_counts"][field.field_id] = len(values) - len(known) - values.count(None)
        if known:
            low, high = _cut(min(known, key=_sorts), max(known, key=_sorts), width)
            for key, bound in (("lower_bounds", low), ("upper_bounds", high)):
                if bound is not None:
                    metrics[key][field.field_id] = to_bytes(field.field_type, physical(bound))
    return File(rows, spec, partition, {key: found for key, found in metrics.items() if says[key]})


def _sorts(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_pylist(list(rows), schema=SCHEMA.as_arrow()).combine_chunks().to_batches()
    return batch


def _is_allowed(outcome: bool | None, allowed: Values) -> bool:  # noqa: FBT001
    if outcome is None:
        return allowed.has_nulls
    return allowed.may_be_true if outcome else allowed.may_be_false


@given(file=files())
def test_no_outcome_of_a_row_is_ruled_out(file: File) -> None:
    """A file would be dropped with rows outside the range, or passed over with rows in it."""
    facts, entry = FileFacts(SCHEMA, file.spec), file.data_file
    batch = _batch(file.rows)

    wrong = [
        (text, outcome, allowed)
        for text, typed in TYPED
        for allowed in (typed.among(facts.of_rows(entry)), typed.among(facts.of_partition(entry)))
        for outcome in _outcomes(typed, batch)
        if not _is_allowed(outcome, allowed)
    ]
    assert wrong == []


@given(file=files())
def test_no_true_row_is_ruled_out_by_its_manifest(file: File) -> None:
    """A manifest would be skipped with rows in the range."""
    if not file.spec.fields:
        return
    field = file.spec.fields[0]
    kind = field.transform.result_type(SCHEMA.find_type(field.source_id))  # type: ignore[arg-type]  # a primitive
    is_nan = isinstance(file.partition, float) and math.isnan(file.partition)
    raw = None if file.partition is None or is_nan else to_bytes(kind, file.partition)
    summary = PartitionFieldSummary(file.partition is None, is_nan, raw, raw)
    manifest = ManifestFile.from_args(partition_spec_id=0, partitions=[summary])
    facts, batch = FileFacts(SCHEMA, file.spec), _batch(file.rows)

    lost = [
        text
        for text, typed in TYPED
        if True in _outcomes(typed, batch) and not typed.among(facts.of_manifest(manifest)).may_be_true
    ]
    assert lost == []


def _outcomes(typed: Expression, batch: pa.RecordBatch) -> list[bool | None]:
    found = typed.rows(batch)
    return [found.as_py()] if isinstance(found, pa.Scalar) else found.to_pylist()
