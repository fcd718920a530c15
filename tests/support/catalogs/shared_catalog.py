"""One embedded catalog in the hands of two: the sink, and Iceberg's own Spark runtime (`jvm_peer`).

Whatever one writes, both read, and values are compared in their types, bit by bit. Options of the sink are given
as users give them, so a test of a new option needs nothing new here.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import types as spark
from support.peer.jvm_peer import CATALOG, PeerCatalog, Row, sql_literal
from support.spark.tables import Warehouse
from support.tables.sink import NAME, Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.planning.plan_write import WriteMode, plan_write

# A comparison's name in SQL, and what it makes of two values.
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "<>": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    ">=": lambda left, right: bool(left >= right),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCatalog:
    """An embedded catalog and the table `db.t` in it.

    Attributes:
        folder: The catalog's folder.
        jvm: The catalog as the peer sees it.
    """

    folder: Path
    jvm: PeerCatalog

    def sink(self, **options: str) -> Sink:
        """Return what writes to `db.t`; `_` in the name of an option stands for `-`."""
        parsed = embedded_options(self.folder, **options)
        return Sink(catalog=connect(catalog_settings(parsed)), options=parsed)

    def append(self, rows: Sequence[Row], schema: spark.StructType, **options: str) -> CommitResult:
        """Append rows through the sink, in two tasks, with these options."""
        sink = self.sink(**options)
        middle = (len(rows) + 1) // 2
        return sink.commit(sink.write(rows[:middle], rows[middle:], schema=schema))

    def overwrite(self, rows: Sequence[Row], schema: spark.StructType, **options: str) -> CommitResult:
        """Overwrite through the sink, in one task, with these options."""
        sink = self.sink(**options)
        plan = plan_write(sink.catalog, sink.options, schema, WriteMode.OVERWRITE)
        return sink.commit(sink.write(rows, schema=schema, plan=plan))

    def append_by_jvm(self, rows: Sequence[Row], schema: spark.StructType) -> None:
        """Append rows through the peer."""
        self.jvm.append(NAME, rows, schema)

    def create(self, schema: Schema, spec: PartitionSpec | None = None, **properties: str) -> None:
        """Create `db.t` through PyIceberg."""
        catalog = Warehouse(folder=self.folder).catalog()
        catalog.create_namespace_if_not_exists("db")
        catalog.create_table(NAME, schema, partition_spec=spec or PartitionSpec(), properties=properties)

    def create_by_jvm(self, columns: str, rest: str = "") -> None:
        """Create `db.t` through the peer; `rest` is what follows USING iceberg."""
        self.jvm.run("CREATE NAMESPACE IF NOT EXISTS db")
        self.jvm.run(f"CREATE TABLE {NAME} ({columns}) USING iceberg {rest}")

    def alter(self, *changes: str) -> None:
        """Change `db.t` through the peer, by what follows ALTER TABLE db.t."""
        for change in changes:
            self.jvm.run(f"ALTER TABLE {NAME} {change}")

    def call(self, procedure: str, arguments: str = "") -> None:
        """Call one of the runtime's procedures for `db.t`."""
        self.jvm.run(f"CALL {CATALOG}.system.{procedure}(table => '{NAME}'{arguments and ', ' + arguments})")

    def table(self) -> Table:
        """Load `db.t` afresh through PyIceberg."""
        return Warehouse(folder=self.folder).table()

    def rows(self, branch: str = "main") -> list[Row]:
        """Return all rows of a branch as PyIceberg reads them, ordered by id."""
        rows: list[Row] = self.table().scan().use_ref(branch).to_arrow().to_pylist()
        return sorted(rows, key=lambda row: int(row["id"]))

    def rows_of_jvm(self, branch: str = "main") -> list[Row]:
        """Return all rows of a branch as the peer reads them, ordered by id."""
        # A version has the columns of its time, the table those of now.
        source = NAME if branch == "main" else f"{NAME} VERSION AS OF '{branch}'"
        return self.jvm.sql(f"SELECT * FROM {source} ORDER BY id")  # noqa: S608  # no outside input

    def metadata(self, table: str, columns: str = "*", order: str = "1") -> list[Row]:
        """Return rows of one of the peer's metadata tables, such as `files`."""
        return self.jvm.sql(f"SELECT {columns} FROM {NAME}.{table} ORDER BY {order}")  # noqa: S608  # no outside input

    def check_rows(self, expected: Sequence[Row]) -> None:
        """Assert that both read exactly these rows, and that the newest snapshot's numbers agree with its files."""
        self.check_branch("main", expected)
        self._check_totals()

    def check_branch(self, branch: str, expected: Sequence[Row]) -> None:
        """Assert that both read exactly these rows of a branch or tag."""
        wanted = sorted(expected, key=lambda row: int(row["id"]))

        for reader, found in (("the peer", self.rows_of_jvm(branch)), ("PyIceberg", self.rows(branch))):
            problems = differences(found, wanted)
            assert not problems, "\n".join([f"{reader} reads other rows of {branch}:", *problems])

    def _check_totals(self) -> None:
        snapshot = self.table().current_snapshot()
        files = self.metadata("files", "content, file_path, record_count, file_size_in_bytes")
        data_files = [file for file in files if file["content"] == 0]
        assert snapshot is not None
        assert snapshot.summary is not None
        assert len({file["file_path"] for file in files}) == len(files), "a file is listed twice"
        assert snapshot.summary["total-data-files"] == str(len(data_files))
        assert snapshot.summary["total-records"] == str(sum(file["record_count"] for file in data_files))
        assert snapshot.summary["total-files-size"] == str(sum(file["file_size_in_bytes"] for file in files))

    def check_filters(self, rows: Sequence[Row], schema: spark.StructType) -> None:
        """Assert that the peer, which skips files by partitions and bounds, finds what every filter keeps."""
        for column in schema:
            filters = filters_on(column, rows)
            found = self._matches([text for text, _ in filters])
            for number, (text, keeps) in enumerate(filters):
                assert sorted(found[number]) == sorted(row["id"] for row in rows if keeps(row[column.name])), text

    def _matches(self, conditions: Sequence[str]) -> list[list[int]]:
        """Return the ids that each condition keeps, each found by a scan of its own."""
        scans = [
            f"SELECT {number} AS filter, id FROM {NAME} WHERE {condition}"  # noqa: S608  # no outside input
            for number, condition in enumerate(conditions)
        ]
        found: list[list[int]] = [[] for _ in conditions]
        for row in self.jvm.sql(" UNION ALL ".join(scans)) if scans else []:
            found[row["filter"]].append(row["id"])
        return found

    def partitions_by_id(self) -> dict[int, Row]:
        """Return the partition tuple, as the peer reads it, of the file that each row lies in."""
        rows = self.jvm.sql(
            f"SELECT id, partition FROM (SELECT id, _file FROM {NAME}) JOIN {NAME}.files ON _file = file_path"  # noqa: S608
        )
        return {row["id"]: row["partition"] for row in rows}


def filters_on(column: spark.StructField, rows: Sequence[Row]) -> list[tuple[str, Callable[[Any], bool]]]:
    """Return filters on one column, as SQL and as plain Python; on a nested column only those for nulls."""
    name = f"`{column.name}`"
    filters: list[tuple[str, Callable[[Any], bool]]] = [
        (f"{name} IS NULL", lambda found: found is None),
        (f"{name} IS NOT NULL", lambda found: found is not None),
    ]
    if isinstance(column.dataType, spark.ArrayType | spark.MapType | spark.StructType):
        return filters
    values = [row[column.name] for row in rows if row[column.name] is not None]
    if isinstance(column.dataType, spark.FloatType | spark.DoubleType):
        return filters + _filters_on_floats(name, column.dataType, values)
    first, middle = values[0], values[len(values) // 2]
    literals = [sql_literal(value, column.dataType) for value in (first, middle)]
    filters += [(f"{name} {sign} {literals[1]}", _comparison(sign, middle)) for sign in _COMPARISONS]
    filters.append((f"{name} IN ({', '.join(literals)})", lambda found: found in (first, middle)))
    if isinstance(middle, str):
        filters.append((f"startswith({name}, {literals[1]})", _begins_with(middle)))
    return filters


def _filters_on_floats(
    name: str, data_type: spark.DataType, values: Sequence[float]
) -> list[tuple[str, Callable[[Any], bool]]]:
    """Return filters on which the peer agrees with itself.

    It skips its own files by bounds, which tell -0.0 from 0.0 and know no NaN; where it compares rows, zeros
    are equal and a NaN is above all numbers.
    """
    comparisons = [
        (f"{name} {sign} {sql_literal(value, data_type)} AND NOT isnan({name})", _without_nan(_comparison(sign, value)))
        for value in [value for value in values if value and math.isfinite(value)][:1]
        for sign in _COMPARISONS
    ]
    return [(f"isnan({name})", _is_nan), *comparisons]


def _is_nan(found: Any) -> bool:
    return found is not None and math.isnan(found)


def _without_nan(keeps: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda found: keeps(found) and not math.isnan(found)


def _comparison(sign: str, value: Any) -> Callable[[Any], bool]:
    return lambda found: found is not None and _COMPARISONS[sign](found, value)


def _begins_with(prefix: str) -> Callable[[Any], bool]:
    return lambda found: found is not None and found.startswith(prefix)


def differences(found: Sequence[Row], expected: Sequence[Row]) -> list[str]:
    """Return what differs, one sentence for each value or for the ids; rows stand in the same order."""
    ids = [row["id"] for row in found], [row["id"] for row in expected]
    if ids[0] != ids[1]:
        return [f"ids {ids[0]} instead of {ids[1]}"]
    return [
        f"id {wanted['id']}, {name}: {row.get(name, 'missing')!r} instead of {wanted.get(name, 'missing')!r}"
        for row, wanted in zip(found, expected, strict=True)
        for name in {**row, **wanted}
        if name not in row or name not in wanted or exact(row[name]) != exact(wanted[name])
    ]


def exact(value: Any) -> Any:
    """Return what is equal only for values of one type and the same bits: NaN is itself, zeros have a sign."""
    match value:
        case Mapping():
            return {key: exact(item) for key, item in value.items()}
        case list() | tuple():
            items = [exact(item) for item in value]
            is_map = value and all(isinstance(item, tuple) for item in value)
            return sorted(items, key=repr) if is_map else items  # the order of a map means nothing
    return (type(value).__name__, _bits(value))


def _bits(value: Any) -> Any:
    match value:
        case float():
            return "nan" if math.isnan(value) else value.hex()
        case dt.datetime() if value.tzinfo is not None:
            return ("instant", value.astimezone(dt.timezone.utc))
        case decimal.Decimal():
            return value.as_tuple()
    return value
