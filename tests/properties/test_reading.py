"""Random writes, deletes and changes of columns: a read returns the rows that the spec says, and no others."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType
from pyspark.sql import types as spark
from support.checks.reader import rows_of, visible_rows
from support.exhaustive import examples
from support.tables.delete_files import delete_equal, delete_positions, with_ids
from support.tables.reading import in_order, read_by_tasks
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.table.spark_types import iceberg_schema

COLUMNS = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("n", spark.IntegerType()),
        spark.StructField("name", spark.StringType()),
    ]
)
VALUES = st.none() | st.integers(0, 9)
changes = st.one_of(
    st.tuples(st.just("append"), st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5)),
    st.tuples(st.just("delete keys"), st.lists(VALUES, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("delete row"), st.integers(0, 99)),
    st.sampled_from([("swap names",), ("widen",), ("partition",), ("drop",), ("add",)]),
)
Test = Callable[[Mapping[str, Any]], bool]
# Predicates over columns that are always there, and what they say of a row.
PREDICATES: Mapping[str, Test] = {
    "true": lambda _: True,
    "id < 5": lambda row: row["id"] is not None and row["id"] < 5,
    "id IS NULL": lambda row: row["id"] is None,
    "id = 3 OR id > 7": lambda row: row["id"] is not None and (row["id"] == 3 or row["id"] > 7),
    "NOT id BETWEEN 2 AND 6": lambda row: row["id"] is not None and not 2 <= row["id"] <= 6,
}


@settings(max_examples=examples(60))
@given(history=st.lists(changes, min_size=2, max_size=12), where=st.sampled_from(sorted(PREDICATES)))
def test_read_returns_the_rows_that_the_spec_says(history: Any, where: str) -> None:
    """Rows would be lost, doubled, or come back, or columns would have the values of other ones."""
    folder = Path(tempfile.mkdtemp())
    try:
        history_of = _History(folder)
        for change in history:
            history_of.take(*change)
        wanted = in_order([row for row in rows_of(history_of.sink.table()) if PREDICATES[where](row)])

        assert read_by_tasks(history_of.sink, where=where) == wanted
    finally:
        shutil.rmtree(folder)


class _History:
    def __init__(self, folder: Path) -> None:
        options = embedded_options(folder)
        self.sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        self.sink.create(iceberg_schema(COLUMNS))
        self._names = itertools.count()
        self._append([(0, 0), (1, None)])

    def take(self, name: str, *what: Any) -> None:
        """Let something happen to the table."""
        match name:
            case "append":
                self._append(*what)
            case "delete keys":
                self._delete_keys(*what)
            case "delete row":
                self._delete_row(*what)
            case "partition":
                self._partition()
            case _:
                self._change_columns(name)

    def _append(self, pairs: Sequence[tuple[int | None, int | None]]) -> None:
        schema = self.sink.table().schema()
        types = {"id": spark.LongType(), **{name: spark.StringType() for name in ("name", "n", "other")}}
        fields, rows = [], [dict[str, Any]() for _ in pairs]
        for field in schema.fields:
            is_text = isinstance(field.field_type, StringType)
            kind = types[field.name] if is_text else spark.LongType()
            if not is_text and not isinstance(field.field_type, LongType):
                kind = spark.IntegerType()
            fields.append(spark.StructField(field.name, kind))
            for row, (first, second) in zip(rows, pairs, strict=True):
                row[field.name] = first if field.name == "id" else f"x {next(self._names)}" if is_text else second
        self.sink.commit(
            self.sink.write(rows, schema=spark.StructType(fields), plan=self.sink.plan(spark.StructType(fields)))
        )

    def _delete_keys(self, ids: Sequence[int | None]) -> None:
        everywhere = DataFile.from_args(content=DataFileContent.DATA, file_path="", partition=Record())
        everywhere.spec_id = 0
        delete_equal(self.sink, with_ids(pa.table({"id": pa.array(ids, pa.int64())}), id=1), [1], of=everywhere)

    def _delete_row(self, chosen: int) -> None:
        found = [(path, position) for path, position, _ in visible_rows(self.sink.table())]
        if found:
            path, position = found[chosen % len(found)]
            delete_positions(self.sink, path, [position])

    def _partition(self) -> None:
        table = self.sink.table()
        if len(table.specs()) == 1:
            spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=1)
            with table.transaction() as transaction:
                transaction._apply((AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)), ())

    def _change_columns(self, what: str) -> None:
        columns = {field.name: field for field in self.sink.table().schema().fields}
        if what == "swap names" and {"n", "name"} <= columns.keys():
            for old, new in (("n", "between"), ("name", "n"), ("between", "name")):
                self.sink.table().update_schema().rename_column(old, new).commit()
        elif what == "widen":
            for name in [name for name, field in columns.items() if str(field.field_type) == "int"]:
                self.sink.table().update_schema().update_column(name, LongType()).commit()
        elif what == "drop" and "name" in columns:
            self.sink.table().update_schema().delete_column("name").commit()
        elif what == "add" and "name" not in columns:
            self.sink.table().update_schema().add_column("name", StringType()).commit()
