"""Overwrites of random ranges: exactly the rows go that plain Python says, whatever types, files and partitions."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from pyiceberg.types import LongType, NestedField, UUIDType
from pyspark.sql import types as spark
from support.checks.invariants import check_clean
from support.checks.plain_metrics import physical
from support.predicates.strategies import KINDS, Kind, Predicate, predicates, values
from support.tables.sink import Row, Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import RefusedRowsError

TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(3),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]
METRICS = ["truncate(16)", "truncate(1)", "full", "counts", "none"]
_folders = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table and a range of it.

    Attributes:
        kinds: The types of its columns `v` and `w`.
        transforms: How it is partitioned by each of them; None for not.
        files: Rows of each append.
        new: Rows that an overwrite may write.
        predicate: The range.
        format_version: The table's version.
        metrics: What is measured of each column.
    """

    kinds: tuple[Kind, Kind]
    transforms: tuple[Transform[Any, Any] | None, Transform[Any, Any] | None]
    files: list[list[Row]]
    new: list[Row]
    predicate: Predicate
    format_version: str
    metrics: str

    @property
    def schema(self) -> spark.StructType:
        """The DataFrame's schema."""
        columns = [spark.StructField(name, kind.spark) for name, kind in zip("vw", self.kinds, strict=True)]
        return spark.StructType([spark.StructField("id", spark.LongType()), *columns])

    def partition(self, row: Row) -> tuple[str, ...]:
        """Return the partition of a row, as PyIceberg's scalar transforms compute it."""
        return tuple(
            _plain(kind, transform, row[name])
            for name, kind, transform in zip("vw", self.kinds, self.transforms, strict=True)
            if transform is not None
        )

    def create(self, sink: Sink) -> None:
        """Create the table."""
        fields = [
            NestedField(at, name, kind.iceberg) for at, (name, kind) in enumerate(zip("vw", self.kinds, strict=True), 2)
        ]
        parts = [
            PartitionField(at, 998 + at, transform, f"p{at}")
            for at, transform in enumerate(self.transforms, 2)
            if transform is not None
        ]
        sink.create(
            Schema(NestedField(1, "id", LongType()), *fields), PartitionSpec(*parts), format_version=self.format_version
        )
        with sink.table().transaction() as change:
            change.set_properties({"write.metadata.metrics.default": self.metrics})


def _plain(kind: Kind, transform: Transform[Any, Any], value: Any) -> str:
    physical_value = uuid.UUID(value) if isinstance(kind.iceberg, UUIDType) and value is not None else value
    return str(transform.transform(kind.iceberg)(physical(physical_value)))


def _transforms(kind: Kind) -> st.SearchStrategy[Transform[Any, Any] | None]:
    return st.none() | st.sampled_from([one for one in TRANSFORMS if one.can_transform(kind.iceberg)])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a table and a range of it."""
    kinds = (draw(st.sampled_from(list(KINDS.values()))), draw(st.sampled_from(list(KINDS.values()))))
    ids = itertools.count()
    row = st.tuples(values(kinds[0]), values(kinds[1])).map(lambda pair: {"v": pair[0], "w": pair[1]})
    files = draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=3))
    new = draw(st.lists(row, max_size=3))
    return Case(
        kinds=kinds,
        transforms=(draw(_transforms(kinds[0])), draw(st.none() | _transforms(kinds[1]))),
        files=[[{"id": next(ids), **one} for one in file] for file in files],
        new=[{"id": 100 + next(ids), **one} for one in new],
        predicate=draw(predicates({"v": kinds[0], "w": kinds[1]})),
        format_version=draw(st.sampled_from("12")),
        metrics=draw(st.sampled_from(METRICS)),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the tables of all examples."""
    return tmp_path_factory.mktemp("overwrite")


def new_sink(folder: Path) -> Sink:
    """Return what writes to a table that does not exist yet."""
    options = embedded_options(folder / str(next(_folders)))
    return Sink(catalog=connect(catalog_settings(options)), options=options)


@given(case=cases())
def test_exactly_the_rows_in_the_range_are_replaced(folder: Path, case: Case) -> None:
    """Rows outside the range would be lost, or rows in it stay beside the new ones."""
    sink = new_sink(folder)
    case.create(sink)
    for file in case.files:
        sink.commit(sink.write(file, schema=case.schema))
    new = [row for row in case.new if case.predicate.holds(row)]

    sink.overwrite(new, schema=case.schema, replace_where=case.predicate.text)

    kept = [row["id"] for file in case.files for row in file if not case.predicate.holds(row)]
    assert sink.ids() == sorted([*kept, *(row["id"] for row in new)])
    check_clean(sink.table())


@given(case=cases())
def test_exactly_the_rows_outside_the_range_are_refused(folder: Path, case: Case) -> None:
    """Rows would be added that the next run of the job does not replace, or a right one be refused."""
    sink = new_sink(folder)
    case.create(sink)
    data = [row for file in case.files for row in file]
    outside = [row for row in data if not case.predicate.holds(row)]
    messages = sink.write_over(data, schema=case.schema, replace_where=case.predicate.text)

    if not outside:
        sink.commit(messages)
        assert sink.ids() == [row["id"] for row in data]
    else:
        with pytest.raises(RefusedRowsError, match=f": {len(outside)} rows do not satisfy"):
            sink.commit(messages)
        assert sink.ids() == []
    check_clean(sink.table())


@given(case=cases())
def test_exactly_the_partitions_in_the_data_are_replaced(folder: Path, case: Case) -> None:
    """Rows of other partitions would be lost, or those of replaced ones stay beside the new ones."""
    sink = new_sink(folder)
    case.create(sink)
    for file in case.files:
        sink.commit(sink.write(file, schema=case.schema))
    partitions = {row["id"]: case.partition(row) for row in [*case.new, *itertools.chain(*case.files)]}
    replaced = {partitions[row["id"]] for row in case.new}

    sink.overwrite(case.new, schema=case.schema, overwrite_mode="dynamic")

    kept = [row["id"] for file in case.files for row in file if partitions[row["id"]] not in replaced]
    assert sink.ids() == sorted([*kept, *(row["id"] for row in case.new)])
    check_clean(sink.table())
