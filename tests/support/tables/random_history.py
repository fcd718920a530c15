"""A table to which things happen: writes, deletes by position and by key, overwrites, and changes of its columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType
from pyspark.sql import types as spark
from support.checks.reader import visible_rows
from support.keys.conversions import convert
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_equal, delete_positions, take_deletes_back, with_ids
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.spark_types import iceberg_schema

COLUMNS = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("n", spark.IntegerType()),
        spark.StructField("name", spark.StringType()),
    ]
)
_VALUES = st.none() | st.integers(0, 9)
_PAIRS = st.lists(st.tuples(_VALUES, _VALUES), min_size=1, max_size=5)
_KEYED = st.lists(st.tuples(st.integers(0, 9), _VALUES), min_size=1, max_size=4, unique_by=lambda pair: pair[0])
# What `RandomHistory.take` takes.
HAPPENINGS = st.one_of(
    st.tuples(st.just("append"), _PAIRS),
    st.tuples(st.just("write keys"), _KEYED),
    st.tuples(st.just("overwrite"), st.integers(0, 9), _PAIRS),
    st.tuples(st.just("delete keys"), st.lists(_VALUES, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("delete row"), st.integers(0, 99)),
    st.sampled_from([("rewrite",), ("convert",), ("take deletes back",)]),
    st.sampled_from([("swap names",), ("widen",), ("partition",), ("drop",), ("add",)]),
)


class RandomHistory:
    """A table in an embedded catalog.

    Args:
        folder: The catalog's folder.
    """

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
            case "write keys":
                self._append(*what, keys=("id",))
            case "overwrite":
                self._overwrite(*what)
            case "rewrite":
                rewrite(self.sink, rewrite_all="true")
            case "convert":
                convert(self.sink)
            case "take deletes back":
                take_deletes_back(self.sink)
            case "delete keys":
                self._delete_keys(*what)
            case "delete row":
                self._delete_row(*what)
            case "partition":
                self._partition()
            case _:
                self._change_columns(name)

    def _append(self, pairs: Sequence[tuple[int | None, int | None]], **options: Any) -> None:
        rows, schema = self._rows(pairs)
        self.sink.commit(self.sink.write(rows, schema=schema, plan=self.sink.plan(schema, **options)))

    def _overwrite(self, number: int, pairs: Sequence[tuple[int | None, int | None]]) -> None:
        """Replace the rows of one id; files that have others, too, are written again."""
        rows, schema = self._rows([(number, second) for _, second in pairs])
        with suppress(UnsupportedTableError):  # such a file has equality deletes
            plan = self.sink.plan(schema, WriteMode.OVERWRITE, replace_where=f"id = {number}")
            self.sink.commit(self.sink.write(rows, schema=schema, plan=plan))

    def _rows(self, pairs: Sequence[tuple[int | None, int | None]]) -> tuple[list[dict[str, Any]], spark.StructType]:
        """Return rows with these values, and the table's columns as they are now."""
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
        return rows, spark.StructType(fields)

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
