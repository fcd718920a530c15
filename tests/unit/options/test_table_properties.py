"""Properties of a new table are what Iceberg takes them for, or are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyspark.sql import types as spark
from support.tables.metadata import ID_AND_NAME, metadata_of
from support.tables.sink import IDENTIFIER, SCHEMA, Sink, local, rows

from iceberg_ds.errors import IcebergSinkError, OptionError, SchemaMismatchError
from iceberg_ds.options.file_settings import file_settings
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.table_properties import COLUMN_TYPES, NOT_OF_NEW_TABLES, RESERVED, TYPES, new_table_properties
from iceberg_ds.planning.plan_write import foresee, foresee_creation
from iceberg_ds.table.names import METADATA_COLUMNS

MIXED = Schema(
    NestedField(1, "Id", LongType()),
    NestedField(2, "place", StructType(NestedField(3, "City", StringType()))),
    NestedField(4, "x", LongType()),
    NestedField(5, "X", LongType()),
)
REFUSED = [
    ("commit.retry.num-retries", "x", "expected a whole number from 0"),
    ("commit.retry.num-retries", "", "expected a whole number from 0"),
    ("commit.retry.num-retries", " 4", "expected a whole number from 0"),
    ("commit.retry.num-retries", "-1", "expected a whole number from 0"),
    ("commit.retry.num-retries", "1_000", "expected a whole number from 0"),
    ("commit.retry.min-wait-ms", "99999999999", "to 2147483647"),
    ("commit.manifest-merge.enabled", "yes", "expected true or false"),
    ("write.metadata.previous-versions-max", "x", "expected a whole number"),
    ("write.summary.partition-limit", "1.5", "expected a whole number from 0"),
    ("write.metadata.compression-codec", "zstd", "expected one of none, gzip"),
    ("write.distribution-mode", "x", "expected one of none, hash, range"),
    ("write.delete.mode", "x", "expected one of copy-on-write, merge-on-read"),
    ("write.merge.isolation-level", "x", "expected one of serializable, snapshot"),
    ("write.format.default", "csv", "expected one of parquet, avro, orc"),
    ("write.parquet.row-group-size-bytes", "0", "expected a whole number from 1"),
    ("write.parquet.page-size-bytes", "63", "expected a whole number from 64"),
    ("write.parquet.page-version", "v3", "expected v1 or v2"),
    ("write.parquet.page-version", "V2", "expected v1 or v2"),
    ("write.delete.parquet.page-version", "V1", "expected v1 or v2"),
    ("write.parquet.dict-size-bytes", "63", "expected a whole number from 64"),
    ("write.delete.parquet.dict-size-bytes", "10", "expected a whole number from 64"),
    ("write.parquet.bloom-filter-max-bytes", "31", "expected a whole number from 32"),
    ("write.parquet.compression-codec", "brotli", "Iceberg's Spark runtime neither reads nor writes it"),
    ("write.parquet.compression-codec", "lzo", "expected one of zstd, snappy, gzip, lz4, uncompressed"),
    ("write.object-storage.path", "s3://bucket/x", "write.data.path"),
    ("write.folder-storage.path", "s3://bucket/x", "write.data.path"),
    ("encryption.data-key-length", "16", "format version 3"),
    ("write.orc.bloom.filter.fpp", "\u0660.\u0665", "above 0 and below 1"),
    ("write.metadata.metrics.default", "truncate(\u0665)", "none, counts, truncate(n), full"),
    ("write.metadata.metrics.column.name", "truncate(2147483648)", "none, counts, truncate(n), full"),
    ("write.metadata.metrics.default", "truncate", "none, counts, truncate(n), full"),
    ("write.metadata.metrics.column.name", "all", "none, counts, truncate(n), full"),
    ("write.metadata.metrics.column.nope", "full", "the table has no column 'nope'"),
    ("write.metadata.metrics.max-inferred-column-defaults", "x", "expected a whole number"),
    ("write.parquet.bloom-filter-fpp.column.id", "7", "above 0 and below 1"),
    ("write.data.path", "", "expected a location"),
    ("write.data.path", "relative/x", "expected a location"),
    ("write.metadata.path", "./x", "expected a location"),
    ("schema.name-mapping.default", "x", "expected a name mapping in JSON"),
    ("schema.name-mapping.default", "", "expected a name mapping in JSON"),
    ("schema.name-mapping.default", '{"field-id": 1}', "expected a name mapping in JSON"),
    (
        "schema.name-mapping.default",
        '[{"field-id": 1, "names": ["id"]}, {"field-id": 1, "names": ["x"]}]',
        "each field id once in the name mapping, and 1 is there again",
    ),
    (
        "schema.name-mapping.default",
        '[{"names": ["a.b"]}, {"field-id": 2, "names": ["a"], "fields": [{"field-id": 3, "names": ["b"]}]}]',
        "each name once in the name mapping, and a.b is there again",
    ),
    ("read.split.target-size", "0", "expected a whole number from 1"),
    ("gc.enabled", "1", "expected true or false"),
    ("uuid", "7d3b0c52-6b1f-4f0e-8a0b-0e0f5a3d9f11", "Iceberg keeps that name"),
]
# One that each of them takes, and one that none of them takes.
TAKEN = (
    "5",
    "65536",
    "true",
    "none",
    "parquet",
    "zstd",
    "16",
    "speed",
    "v1",
    "hash",
    "snapshot",
    "file",
    "auto",
    "full",
    "0.5",
)
TAKEN_TEXTS = ("merge-on-read", "s3://bucket/x", '[{"field-id": 1, "names": ["id"]}]', "gzip")
GARBAGE = "no \u0661 value"


def refusal(sink: Sink, **options: Any) -> str:
    """Return the text of the error that the first write raises, and prove that it has made no table."""
    with pytest.raises(OptionError) as raised:
        sink.plan(**options)
    assert sink.catalog.find_table(IDENTIFIER) is None
    return str(raised.value)


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_value_that_iceberg_does_not_take_is_refused(sink: Sink, name: str, value: str, reason: str) -> None:
    """The sink would make a table that no other engine can write any more, or read."""
    text = refusal(sink, table_properties={name: value})

    assert text.startswith("Cannot create db.t: ")
    assert f"option 'table-property.{name}' is {value!r}: " in text
    assert reason in text


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_that_iceberg_keeps_are_refused(sink: Sink, name: str) -> None:
    """Catalogs would refuse the table, or say of it what is not so."""
    assert f"option 'table-property.{name}' is '1': Iceberg keeps that name" in refusal(
        sink, table_properties={name: "1"}
    )


def test_all_properties_that_are_wrong_are_named_at_once(sink: Sink) -> None:
    """A user would correct one in each run."""
    text = refusal(sink, table_properties={"uuid": "x", "owner": "me", "gc.enabled": "x"})

    assert text.count("option 'table-property.") == 2


def test_wrong_property_is_refused_where_a_branch_is_forked_at_once(sink: Sink) -> None:
    """The table would be there, and wrong, before the refusal."""
    text = refusal(sink, table_properties={"gc.enabled": "x"}, branch="audit", create_branch=True)

    assert "expected true or false" in text


def test_check_of_a_write_tells_of_a_wrong_property() -> None:
    """`iceberg-ds check` would find nothing wrong with a write that is refused."""
    options = parse_options({"path": "db.t", "table-property.gc.enabled": "x"})

    with pytest.raises(OptionError, match="expected true or false"):
        foresee_creation(options, SCHEMA)


@pytest.mark.parametrize(
    "name", [*sorted(TYPES.keys() - NOT_OF_NEW_TABLES), *(f"{prefix}id" for prefix in COLUMN_TYPES)]
)
def test_each_property_takes_a_value_of_its_type(name: str) -> None:
    """A property could not be set at all."""
    taken = []
    codec = {"write.parquet.compression-codec": "zstd"} if name.endswith("parquet.compression-level") else {}
    for value in (*TAKEN, *TAKEN_TEXTS):
        try:
            taken.append(new_table_properties({**codec, name: value}, ID_AND_NAME))
        except ValueError:
            continue

    assert taken
    assert all(list(properties) == [*codec, name] for properties in taken)


LEVEL, CODEC = "write.parquet.compression-level", "write.parquet.compression-codec"
DELETE_LEVEL, DELETE_CODEC = "write.delete.parquet.compression-level", "write.delete.parquet.compression-codec"


@pytest.mark.parametrize(
    ("properties", "level"),
    [
        ({LEVEL: "3"}, LEVEL),
        ({LEVEL: "3", CODEC: "GZIP"}, LEVEL),
        ({DELETE_LEVEL: "3"}, DELETE_LEVEL),
        ({DELETE_LEVEL: "3", CODEC: "zstd", DELETE_CODEC: "gzip"}, DELETE_LEVEL),
    ],
)
def test_level_of_gzip_is_refused(sink: Sink, properties: dict[str, str], level: str) -> None:
    """Iceberg's Spark runtime, whose default codec is gzip, could write nothing into the table."""
    text = refusal(sink, table_properties=properties)

    assert f"option 'table-property.{level}' is '3': Iceberg's Spark runtime takes no number" in text


MANIFEST_LEVEL, AVRO_LEVEL, DELETE_AVRO_LEVEL = (
    f"write.{kind}.compression-level" for kind in ("manifest", "avro", "delete.avro")
)
AVRO_CODEC = "write.avro.compression-codec"
MIN_CHECK, MAX_CHECK = (f"write.parquet.row-group-check-{end}-record-count" for end in ("min", "max"))
DELETE_MIN_CHECK, DELETE_MAX_CHECK = (
    f"write.delete.parquet.row-group-check-{end}-record-count" for end in ("min", "max")
)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({MANIFEST_LEVEL: "10"}, MANIFEST_LEVEL),
        ({MANIFEST_LEVEL: "-2", "write.manifest.compression-codec": "GZIP"}, MANIFEST_LEVEL),
        ({AVRO_LEVEL: "10"}, AVRO_LEVEL),
        ({DELETE_AVRO_LEVEL: "10"}, DELETE_AVRO_LEVEL),
        (
            {DELETE_AVRO_LEVEL: "10", AVRO_CODEC: "zstd", "write.delete.avro.compression-codec": "gzip"},
            DELETE_AVRO_LEVEL,
        ),
        ({MIN_CHECK: "10001"}, MIN_CHECK),
        ({MAX_CHECK: "99"}, MAX_CHECK),
        ({MIN_CHECK: "200", MAX_CHECK: "199"}, MAX_CHECK),
        ({DELETE_MIN_CHECK: "10001"}, DELETE_MIN_CHECK),
        ({MIN_CHECK: "1", MAX_CHECK: "5", DELETE_MIN_CHECK: "6"}, DELETE_MIN_CHECK),
        ({MIN_CHECK: "200", DELETE_MAX_CHECK: "199"}, DELETE_MAX_CHECK),
    ],
)
def test_values_that_do_not_go_together_are_refused(sink: Sink, properties: dict[str, str], named: str) -> None:
    """The runtime could write no file, or no manifest, of the table any more."""
    assert f"option 'table-property.{named}' is {properties[named]!r}: " in refusal(sink, table_properties=properties)


@pytest.mark.parametrize(
    "properties",
    [
        {MANIFEST_LEVEL: "9"},
        {MANIFEST_LEVEL: "-1"},
        {MANIFEST_LEVEL: "22", "write.manifest.compression-codec": "zstd"},
        {DELETE_AVRO_LEVEL: "10", AVRO_CODEC: "zstd"},
        {MIN_CHECK: "10000"},
        {MIN_CHECK: "20000", MAX_CHECK: "20000"},
        {MIN_CHECK: "1", MAX_CHECK: "5", DELETE_MIN_CHECK: "5"},
    ],
)
def test_values_that_go_together_are_taken(properties: dict[str, str]) -> None:
    """A user could not tune a table as in Spark."""
    assert new_table_properties(properties, ID_AND_NAME) == properties


@pytest.mark.parametrize(
    "properties", [{LEVEL: "3", CODEC: "zstd"}, {DELETE_LEVEL: "3", CODEC: "zstd"}, {CODEC: "gzip"}]
)
def test_level_of_another_codec_is_taken(properties: dict[str, str]) -> None:
    """A user could not say how well a table is compressed."""
    assert new_table_properties(properties, ID_AND_NAME) == properties


def test_properties_of_the_user_may_be_any_text() -> None:
    """Tools that keep notes in a table's properties could not do so."""
    given = {"owner": "", "write.py-location-provider.impl": "a.b", "my.uuid": "x", "comment": "  "}

    assert new_table_properties(given, ID_AND_NAME) == given


@pytest.mark.parametrize("prefix", COLUMN_TYPES)
def test_columns_are_named_as_the_table_has_them(prefix: str) -> None:
    """Spark puts options into lower case: no property of a column with a capital letter could be set."""
    values = [value for value in ("full", "true", "0.5", "5") if _is_taken(prefix, value)]

    given = {f"{prefix}id": values[0], f"{prefix}place.city": values[0], f"{prefix}x": values[0]}

    assert list(new_table_properties(given, MIXED)) == [f"{prefix}Id", f"{prefix}place.City", f"{prefix}x"]


def _is_taken(prefix: str, value: str) -> bool:
    try:
        COLUMN_TYPES[prefix](value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("value", [GARBAGE, "", "-1"])
def test_existing_table_is_written_or_refused_by_name(sink: Sink, value: str) -> None:
    """What another tool wrote into a table's properties would end a job with a riddle."""
    passed_over = {}
    for name in (*TYPES, *RESERVED, *(f"{prefix}id" for prefix in COLUMN_TYPES)):
        metadata = metadata_of(schemas=[ID_AND_NAME], properties={name: value})
        try:
            foresee(sink.options, metadata, SCHEMA)
            file_settings(sink.options, metadata, "db.t")
        except IcebergSinkError as refused:
            assert name in str(refused)  # noqa: PT017  # written or refused, both are right
        else:
            passed_over[name] = value
    assert len(passed_over) > len(TYPES) // 2

    sink.create(ID_AND_NAME)
    path = local(sink.table().metadata_location)
    path.write_text(json.dumps({**json.loads(path.read_text()), "properties": passed_over}))
    sink.append(1)
    sink.append(2)

    table = sink.table()
    assert passed_over.items() <= table.properties.items()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == "2"


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title], ids=["lower", "upper", "title"])
@pytest.mark.parametrize("column", sorted(METADATA_COLUMNS))
def test_columns_that_iceberg_adds_itself_are_refused(sink: Sink, column: str, spelling: Callable[[str], str]) -> None:
    """Iceberg's runtime would not read the table any more, or update none of its rows."""
    name = spelling(column)
    columns = spark.StructType([*SCHEMA, spark.StructField(name, spark.LongType())])
    with pytest.raises(SchemaMismatchError, match=f"column '{name}' has the name of a column that Iceberg adds"):
        sink.plan(columns)
    assert sink.catalog.find_table(IDENTIFIER) is None

    sink.append(1)

    with pytest.raises(SchemaMismatchError, match=f"column '{name}' has the name of a column that Iceberg adds"):
        sink.plan(columns, schema_evolution="add-columns")


def test_fields_of_such_names_are_written(sink: Sink) -> None:
    """A feed with such a field, which Iceberg's runtime reads, could not be stored."""
    inner = spark.StructType([spark.StructField("_file", spark.StringType())])
    feed = [spark.StructField("s", inner), spark.StructField("_change_type", spark.StringType())]
    columns = spark.StructType([*SCHEMA, *feed])
    row = {**rows(1)[0], "s": {"_file": "a"}, "_change_type": "insert"}

    sink.commit(sink.write([row], schema=columns))

    assert sink.table().scan().to_arrow().to_pylist() == [row]


@pytest.mark.parametrize("location", ["events", "./events", "../x/y"])
def test_relative_location_is_refused(location: str) -> None:
    """A table's files would be where the process that reads happens to run."""
    with pytest.raises(OptionError, match="expected a location, such as s3://bucket/events"):
        parse_options({"path": "db.t", "location": location})


@pytest.mark.parametrize("location", ["s3://b/x", "file:/x", "/x", f"file://{Path('/x')}"])
def test_location_with_or_without_scheme_is_taken(location: str) -> None:
    """A user could not say where a table's files go."""
    assert parse_options({"path": "db.t", "location": location}).location == location
