"""Readers that are neither Spark nor Iceberg's own: what each makes of tables of format version 3.

ClickHouse (chdb), iceberg-rust (DataFusion) and PyIceberg read the same tables. Where one of them refuses a table, the
test expects it to, and where one shows WRONG ROWS, the test expects these: it fails once a new version reads the table,
and then `docs/version-3.md` and `docs/keys/readers.md` have to say so.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyspark.sql import DataFrame, SparkSession
from support.spark.session import shared_session
from support.spark.tables import Warehouse, read_with_chdb
from support.tables.changes_by_others import set_columns
from support.tables.sink import Sink, embedded_options

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.table.variant import knowing_variants

VERSION_3 = {"format_version": "3"}
Rows = list[tuple[Any, ...]]


def rows_of(ids: Iterable[int], state: str = "new") -> Rows:
    """Return rows of `id`, `part` and `state`."""
    return [(number, number % 3, state) for number in ids]


# What two writes by key leave, and what they would if the old rows came back.
BY_KEY = [*rows_of(range(8)), *rows_of(range(8, 14), "changed")]
WITH_OLD = sorted([*BY_KEY, *rows_of((8, 9))], key=str)
WITH_DEFAULTS = [(number, 7, "old") for number in range(3)] + [(3, 8, "new")]
EXPECTED: dict[str, Rows] = {
    "parts": rows_of(range(20)),
    "vectors": rows_of(number for number in range(20) if number not in {1, 2, 3, 11}),
    "upserted": BY_KEY,
    "by_keys": BY_KEY,
    "by_keys_in_parts": BY_KEY,
    "by_keys_across_parts": BY_KEY,
    "by_keys_and_vectors": [row for row in BY_KEY if row[0] not in {3, 9}],
    "upgraded": [*BY_KEY, *rows_of(range(20, 22))],
    "compacted": rows_of(number for number in range(22) if number not in {1, 11}),
    "defaults": WITH_DEFAULTS,
    "defaults_compacted": WITH_DEFAULTS,
    "defaults_in_structs": [(0, {"first": 0, "inside": 5})],
    "unknown": [(1, None, "a")],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The tables, with the session and the catalog that they were made in."""

    spark: SparkSession
    house: Warehouse

    def append(self, name: str, *rows: DataFrame, **options: str) -> None:
        """Append each of the DataFrames in a commit of its own."""
        for each in rows:
            self.house.append(each.coalesce(1), f"db.{name}", **VERSION_3, **options)

    def some(self, first: int, last: int, state: str = "new") -> DataFrame:
        """Return rows with these ids."""
        return self.spark.range(first, last).selectExpr("id", "CAST(id % 3 AS int) AS part", f"'{state}' AS state")

    def halves_of_keys(self) -> tuple[DataFrame, DataFrame]:
        """Return the rows of two writes by key, the second of which changes rows of the first."""
        return self.some(0, 10), self.some(8, 14, "changed")

    def upsert(self, name: str, options: dict[str, str]) -> None:
        """Write twice by key; the old rows are hidden by their positions."""
        for rows in self.halves_of_keys():
            iceberg_ds.upsert(rows, f"db.{name}", keys="id", options={**self.house.options, **options})

    def delete(self, name: str, *predicates: str) -> None:
        """Hide rows by deletion vectors, in a commit for each predicate."""
        for predicate in predicates:
            iceberg_ds.delete_from(f"db.{name}", predicate, self.spark, options=self.house.options)

    def compact(self, name: str) -> None:
        """Write the rows of all data files again."""
        options = {**self.house.options, "rewrite-all": "true"}
        iceberg_ds.rewrite_data_files(f"db.{name}", self.spark, options=options)

    def set_columns(self, name: str, *fields: NestedField) -> None:
        """Let columns follow the first one, as an engine adds or changes them."""
        options = embedded_options(self.house.folder, table=f"db.{name}")
        sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        set_columns(sink, sink.table().schema().fields[0], *fields)

    def load(self, name: str) -> StaticTable:
        """Load a table as another process does."""
        location = self.house.table(f"db.{name}").metadata_location
        with knowing_variants():
            return StaticTable.from_metadata(location)

    def folder(self, name: str) -> Path:
        """Return the folder of a table."""
        return self.house.folder / "db" / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return all tables."""
    spark = shared_session("local[2]").newSession()
    made = Made(spark=spark, house=Warehouse(folder=tmp_path_factory.mktemp("version-3") / "warehouse"))
    halves = made.some(0, 10), made.some(10, 20)
    made.append("parts", *halves, partition_by="part")
    made.append("vectors", *halves)
    made.delete("vectors", "id IN (1, 2, 11)", "id = 3")  # two vectors in a Puffin file, one of them replaced
    made.upsert("upserted", {"format-version": "3"})
    made.append("by_keys", *made.halves_of_keys(), keys="id")
    made.append("by_keys_in_parts", *made.halves_of_keys(), keys="id, part", partition_by="part")
    made.append("by_keys_across_parts", *made.halves_of_keys(), keys="id", partition_by="part")
    made.append("by_keys_and_vectors", *made.halves_of_keys(), keys="id")
    made.delete("by_keys_and_vectors", "id IN (3, 9)")
    made.upsert("upgraded", {})
    made.append("upgraded", made.some(20, 22), upgrade_format="true")
    made.append("compacted", *halves)
    made.delete("compacted", "id IN (1, 11)")
    made.compact("compacted")
    made.append("compacted", made.some(20, 22))
    number = NestedField(2, "number", LongType(), initial_default=7, write_default=8)
    text = NestedField(3, "text", StringType(), initial_default="old", write_default="new")
    for name in ("defaults", "defaults_compacted"):
        made.append(name, spark.range(3))
        made.set_columns(name, number, text)
        made.append(name, spark.range(3, 4))
    made.compact("defaults_compacted")
    made.append("defaults_in_structs", spark.range(1).selectExpr("id", "named_struct('first', id) AS s"))
    struct = made.load("defaults_in_structs").schema().find_field("s")
    assert isinstance(struct.field_type, StructType)
    inside = NestedField(9, "inside", LongType(), required=False, initial_default=5, write_default=6)
    both = StructType(*struct.field_type.fields, inside)
    made.set_columns("defaults_in_structs", struct.model_copy(update={"field_type": both}))
    made.append("unknown", spark.sql("SELECT 1L AS id, NULL AS note, 'a' AS state"))
    made.append("variant", spark.sql("SELECT 1L AS id, parse_json('[1]') AS document"))
    return made


def by_clickhouse(made: Made, name: str, columns: str = "*") -> Rows:
    """Return the rows as ClickHouse reads them."""
    return [tuple(row.values()) for row in read_with_chdb(made.folder(name), columns)]


def by_iceberg_rust(made: Made, name: str) -> Rows:
    """Return the rows as iceberg-rust reads them for DataFusion."""
    import datafusion  # noqa: PLC0415  # only the tests of readers need it

    context = datafusion.SessionContext()
    context.register_table("t", made.load(name))
    found = context.sql("SELECT * FROM t ORDER BY id").to_arrow_table().to_pylist()
    return [tuple(row.values()) for row in found]


def by_pyiceberg(made: Made, name: str) -> Rows:
    """Return the rows as PyIceberg reads them."""
    return [tuple(row.values()) for row in made.load(name).scan().to_arrow().sort_by("id").to_pylist()]


READERS: dict[str, Callable[[Made, str], Rows]] = {
    "clickhouse": by_clickhouse,
    "iceberg-rust": by_iceberg_rust,
    "pyiceberg": by_pyiceberg,
}
_NO_VECTORS = "Position deletes are supported only for parquet format"
_PUFFIN_IS_NO_PARQUET = "Invalid Parquet file. Corrupt footer"
_NO_EQUALITY = "PyIceberg does not yet support equality deletes"
REFUSED: dict[tuple[str, str], str] = {
    **{("clickhouse", name): _NO_VECTORS for name in ("vectors", "upserted", "by_keys_and_vectors")},
    # iceberg-rust reads vectors from version 0.11 of pyiceberg-core on.
    **{("iceberg-rust", name): _PUFFIN_IS_NO_PARQUET for name in ("vectors", "upserted", "by_keys_and_vectors")},
    **{("pyiceberg", name): _NO_EQUALITY for name in EXPECTED if name.startswith("by_keys")},
    ("clickhouse", "unknown"): "Unknown Iceberg type: unknown",
    ("iceberg-rust", "unknown"): "Failed to parse json string",
    ("clickhouse", "variant"): "Unknown Iceberg type: variant",
    ("iceberg-rust", "variant"): "Failed to parse json string",
}
# What is shown without a word, and is not in the table.
WRONG: dict[tuple[str, str], Rows] = {
    ("clickhouse", "by_keys_across_parts"): WITH_OLD,
    ("clickhouse", "defaults"): [(number, None, None) for number in range(3)] + [(3, 8, "new")],
    ("clickhouse", "defaults_in_structs"): [(0, {"first": 0, "inside": None})],
    ("iceberg-rust", "defaults_in_structs"): [(0, {"first": 0})],
}
RIGHT = [(reader, name) for reader in READERS for name in EXPECTED if not {(reader, name)} & {*REFUSED, *WRONG}]


@pytest.mark.parametrize("case", RIGHT, ids="-".join)
def test_rows_are_right(made: Made, case: tuple[str, str]) -> None:
    """A user would get deleted rows, too few rows, or other values, from a reader that the docs say reads them."""
    reader, name = case

    assert READERS[reader](made, name) == EXPECTED[name]


@pytest.mark.parametrize("case", REFUSED, ids="-".join)
def test_reader_refuses_what_it_does_not_know(made: Made, case: tuple[str, str]) -> None:
    """A user would get wrong rows without a word; or the docs keep him from a reader that has learned to read them."""
    reader, name = case

    with pytest.raises(Exception, match=REFUSED[case]):
        READERS[reader](made, name)


@pytest.mark.parametrize("case", WRONG, ids="-".join)
def test_reader_shows_wrong_rows(made: Made, case: tuple[str, str]) -> None:
    """WRONG ROWS, without an error: the docs would warn of a reader that has learned better, or not warn of another.

    ClickHouse passes over equality deletes of a whole table whose rows lie in partitions, and shows nulls for initial
    defaults; iceberg-rust leaves fields out that structs have got since.
    """
    reader, name = case
    found = sorted(READERS[reader](made, name), key=str)

    assert found == WRONG[case]
    assert found != EXPECTED[name]


def test_filters_take_a_default_for_a_null(made: Made) -> None:
    """WRONG ROWS, without an error: ClickHouse also looks for rows by the nulls that it shows for initial defaults."""
    found = read_with_chdb(
        made.folder("defaults"), "countIf(number = 7) AS sevens, countIf(number IS NULL) AS nulls", "1"
    )

    assert found == [{"sevens": 0, "nulls": 3}]


def test_clickhouse_reads_row_ids(made: Made) -> None:
    """A user would take one row for another after a compaction."""
    lineage = "id, _row_id, _last_updated_sequence_number"
    read = iceberg_ds.read(made.spark, "db.compacted", options=made.house.options, columns=lineage.split(", "))

    assert by_clickhouse(made, "compacted", lineage) == sorted(map(tuple, read.collect()))


def test_pyiceberg_by_itself_loads_no_variants(made: Made) -> None:
    """The docs would keep a user from a reader that has learned to read them."""
    program = "import sys; from pyiceberg.table import StaticTable; StaticTable.from_metadata(sys.argv[1])"
    location = made.house.table("db.variant").metadata_location
    ended = subprocess.run([sys.executable, "-c", program, location], capture_output=True, text=True, check=False)

    assert "Unsupported field type: 'variant'" in ended.stderr
