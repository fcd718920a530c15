"""Properties and columns of a new table: the sink takes what Iceberg's own Spark runtime can live with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer import JvmPeer, PeerCatalog, PeerError
from support.tables.event_rows import struct
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import SCHEMA, rows

from iceberg_ds.options.table_properties import COLUMN_TYPES, NOT_OF_NEW_TABLES, RESERVED, TYPES, new_table_properties
from iceberg_ds.table.names import METADATA_COLUMNS

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

CODEC = "write.parquet.compression-codec"
FILTER = "write.parquet.bloom-filter-enabled.column.name"
MERGE_ON_READ = {"format-version": "2", "write.delete.mode": "merge-on-read"}
CONSTANTS = "org.apache.iceberg.TableProperties"


def taken(name: str, words: Iterable[str]) -> list[str]:
    """Return the words that the sink takes for a property."""
    found = []
    for word in words:
        try:
            TYPES[name](word)
        except ValueError:
            continue
        found.append(word)
    return found


def test_every_property_of_the_jvm_has_its_type(peer: JvmPeer) -> None:
    """A property of a newer runtime would be taken with any value, or one that is gone be checked for ever."""
    constants = peer.constants(CONSTANTS)
    names = {
        key: value
        for key, value in constants.items()
        if isinstance(value, str) and not key.endswith(("_DEFAULT", "_SINCE_1_4_0")) and "DISTRIBUTION_MODE_" not in key
    }
    prefixes = {value if value.endswith(".") else f"{value}." for value in names.values() if "column" in value}
    prefixes &= set(COLUMN_TYPES)

    assert set(constants["RESERVED_PROPERTIES"]) == RESERVED
    assert prefixes == set(COLUMN_TYPES)
    assert {value for value in names.values() if value not in RESERVED and value not in prefixes} == set(TYPES)


def test_types_are_those_of_the_defaults_of_the_jvm(peer: JvmPeer) -> None:
    """The sink would take a value that the runtime cannot parse, or refuse the runtime's own default."""
    constants = peer.constants(CONSTANTS)
    checked = 0
    for key, name in constants.items():
        default = constants.get(f"{key}_DEFAULT")
        if default is None or name not in TYPES or name in NOT_OF_NEW_TABLES:
            continue
        text = str(default).lower() if isinstance(default, bool) else str(default)
        if text:  # none of ORC's columns
            assert taken(name, [text]) == [text], name
        if isinstance(default, int | float):
            assert taken(name, ["x", ""]) == [], name
            assert (taken(name, ["true"]) == ["true"]) == isinstance(default, bool), name
        checked += 1
    assert checked > len(TYPES) // 2


@pytest.mark.parametrize("codec", few(2, ["zstd", "gzip", None]))
@EXHAUSTIVE
def test_peer_writes_with_a_level_unless_the_codec_is_gzip(shared: SharedCatalog, codec: str | None) -> None:
    """The sink would make a table that the runtime cannot write, or refuse one that it can."""
    properties = {"write.parquet.compression-level": "3", **({} if codec is None else {CODEC: codec})}
    shared.create(ID_AND_NAME, **properties)

    if codec == "zstd":
        shared.append_by_jvm(rows(1), SCHEMA)
        shared.check_rows(rows(1))
    else:
        with pytest.raises(PeerError, match="CompressionLevel"):
            shared.append_by_jvm(rows(1), SCHEMA)
    assert bool(wrong_for_new_table(properties)) == (codec != "zstd")


AVRO = {"write.format.default": "avro", "write.delete.format.default": "avro"}
# The least and the most that the runtime works with, and what is next to it.
TAKEN = [
    {
        "write.parquet.page-version": "v2",
        "write.parquet.dict-size-bytes": "64",
        "write.delete.parquet.page-size-bytes": "64",
        CODEC: "LZ4",
        "write.manifest.compression-level": "9",
        "write.parquet.row-group-check-min-record-count": "10000",
        FILTER: "true",
        "write.parquet.bloom-filter-max-bytes": "32",
    },
    {**AVRO, "write.avro.compression-level": "-1", "write.delete.avro.compression-level": "9"},
]
REFUSED = [
    {"write.parquet.page-version": "V2"},
    {"write.parquet.dict-size-bytes": "63"},
    {"write.delete.parquet.page-size-bytes": "63"},
    {CODEC: "brotli"},
    {"write.manifest.compression-level": "10"},
    {**AVRO, "write.avro.compression-level": "-2"},
    {**AVRO, "write.delete.avro.compression-level": "10"},
    {"write.parquet.row-group-check-min-record-count": "10001"},
    {"write.delete.parquet.row-group-check-max-record-count": "99"},
    {FILTER: "true", "write.parquet.bloom-filter-max-bytes": "31"},
    {"write.folder-storage.path": "file:/data"},
    {"write.object-storage.enabled": "true", "write.object-storage.path": "file:/data"},
    {"encryption.data-key-length": "16"},
]


@EXHAUSTIVE
def test_peer_uses_no_table_with_values_that_the_sink_refuses(shared: SharedCatalog) -> None:
    """The sink would make tables that are locked, or refuse what the runtime has nothing against."""
    shared.jvm.run("CREATE NAMESPACE db")
    different = [
        properties
        for number, properties in enumerate([*TAKEN, *REFUSED])
        if is_used_by(shared.jvm, f"db.t{number}", properties) is bool(wrong_for_new_table(properties))
    ]

    assert different == []
    assert [wrong_for_new_table(properties) for properties in TAKEN] == ["", ""]


def is_used_by(jvm: PeerCatalog, table: str, properties: Mapping[str, str]) -> bool:
    """Return whether the runtime makes a table, writes rows and deletes some of them."""
    named = ", ".join(f"'{key}' = '{value}'" for key, value in {**MERGE_ON_READ, **properties}.items())
    try:
        jvm.run(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ({named})")
        jvm.run(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b')")  # noqa: S608  # no outside input
        jvm.run(f"DELETE FROM {table} WHERE id = 1")  # noqa: S608
    except PeerError:
        return False
    return jvm.values(f"SELECT id FROM {table}") == [2]  # noqa: S608


def wrong_for_new_table(properties: dict[str, str]) -> str:
    """Return what the sink says of properties for a new table, nothing if it takes them."""
    try:
        new_table_properties(properties, ID_AND_NAME)
    except ValueError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("name", few(2, sorted(METADATA_COLUMNS)))
def test_peer_reads_no_table_with_a_column_that_the_sink_refuses(shared: SharedCatalog, name: str) -> None:
    """The sink would refuse columns that nothing is wrong with."""
    shared.create(Schema(NestedField(1, "id", LongType()), NestedField(2, name, LongType())))

    with pytest.raises(PeerError, match="conflict with names reserved for Iceberg metadata columns"):
        shared.jvm.sql("SELECT * FROM db.t")


@pytest.mark.parametrize("name", few(1, ["_FILE", "_Pos", "_PARTITION", "_Spec_id"]))
def test_peer_updates_no_table_with_a_column_whose_name_differs_in_case(shared: SharedCatalog, name: str) -> None:
    """The sink would refuse columns that nothing is wrong with."""
    shared.create_by_jvm(f"id BIGINT, {name} STRING", "TBLPROPERTIES ('write.update.mode' = 'merge-on-read')")
    shared.jvm.run("INSERT INTO db.t VALUES (1, 'a')")

    with pytest.raises(PeerError, match=r"NULLABLE_ROW_ID_ATTRIBUTES|metadata schema is incompatible"):
        shared.jvm.run(f"UPDATE db.t SET {name} = 'b'")  # noqa: S608  # no outside input


def test_peer_uses_columns_of_such_names_that_the_sink_takes(shared: SharedCatalog) -> None:
    """The sink would make a table that the runtime cannot read."""
    inner = struct(**dict.fromkeys(METADATA_COLUMNS, spark.LongType()))
    others = dict.fromkeys(["_change_type", "_change_ordinal", "_commit_snapshot_id", "file_path", "pos"], 1)
    columns = struct(id=spark.LongType(), s=inner, **dict.fromkeys(others, spark.LongType()))
    row = {"id": 1, "s": dict.fromkeys(METADATA_COLUMNS, 1), **others}

    shared.append([row], columns)
    shared.append_by_jvm([{**row, "id": 2}], columns)

    shared.check_rows([row, {**row, "id": 2}])
    assert len(shared.jvm.sql("DESCRIBE db.t")) >= len(columns)
