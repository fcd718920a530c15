"""RisingWave: the cases of its Iceberg sink."""

from __future__ import annotations

from datetime import date

import pytest
from pyiceberg import types as iceberg
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql.types import VariantVal
from support.keys.conversions import convert
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import PeerTable, columns
from support.peer.writes import check, count, found, operations, put, sink_of, upsert
from support.tables.reading import read_by_tasks

from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError

RISINGWAVE = Peer(name="risingwavelabs/risingwave", suites="e2e_test/iceberg")

WIDE = columns(id="integer", v1="integer", v2="long", v3="string", v4="date")
LAYOUTS = pytest.mark.parametrize(
    "layout", [{}, {"partition_by": "v1, v2"}, {"partition_by": "month(v4)"}], ids=["plain", "values", "months"]
)
KEYED = {"keys": "v1"}


def wide(*keys: int, version: int = 2) -> list[tuple[int, int, int, str, date]]:
    """Return rows with these keys."""
    return [(1, key, version, f"{key}-{version}", date(2022, 3, key)) for key in keys]


@RISINGWAVE.case(
    "iceberg_sink_no_partition_append_only_table",
    "iceberg_sink_partition_append_only_table",
    "iceberg_sink_range_partition_append_only_table",
    "append_only_with_checkpoint_interval",
)
@LAYOUTS
def test_append_only_sink(table: PeerTable, layout: dict[str, str]) -> None:
    """Rows of an append-only sink would be lost between its commits."""
    put(table, WIDE, wide(1, 2), wide(3, 5), of_epoch=0, **layout)
    put(table, WIDE, wide(8), wide(13), wide(21), of_epoch=1)

    check(table, *wide(1, 2, 3, 5, 8, 13, 21))
    assert operations(table) == ["append", "append"]


@RISINGWAVE.case(
    "iceberg_sink_no_partition_upsert_table",
    "iceberg_sink_partition_upsert_table",
    "iceberg_sink_range_partition_upsert_table",
    "iceberg_sink_upsert",
)
@LAYOUTS
def test_upsert_sink(table: PeerTable, layout: dict[str, str]) -> None:
    """An update would leave the old row in its partition."""
    put(table, WIDE, wide(1, 2, 3, 5), wide(8, 13, 21), of_epoch=0, **KEYED, **layout)
    put(table, WIDE, wide(1, version=50), of_epoch=1, **KEYED)

    check(table, *wide(2, 3, 5, 8, 13, 21), *wide(1, version=50))


@RISINGWAVE.case("iceberg_sink_partition_upsert_with_hidden_column")
def test_key_that_is_made_for_the_sink(table: PeerTable) -> None:
    """A table whose source has no key could not be kept."""
    schema = columns(hidden_id="long", v1="integer", v4="date")
    put(table, schema, [(1, 1, date(2022, 3, 1)), (2, 1, date(2022, 4, 1))], keys="hidden_id", partition_by="month(v4)")
    put(table, schema, [(2, 5, date(2022, 3, 1))], keys="hidden_id")

    check(table, (1, 1, date(2022, 3, 1)), (2, 5, date(2022, 3, 1)))


@RISINGWAVE.case("iceberg_sink_case_sensitive_column_upsert_table")
def test_keys_with_capital_letters(table: PeerTable) -> None:
    """A key would not be found under its own name."""
    schema = columns(Id="integer", myValue="string")
    put(table, schema, [(1, "a"), (2, "b")], keys="Id")
    put(table, schema, [(1, "c")], keys="Id", case_sensitive="true")

    check(table, (1, "c"), (2, "b"))


@RISINGWAVE.case("iceberg_sink_field_id_gap_upsert_table")
def test_keys_of_a_table_whose_ids_have_gaps(table: PeerTable) -> None:
    """Deletes would name the id of another column."""
    fields = [
        NestedField(1, "gone", iceberg.StringType()),
        NestedField(2, "id", iceberg.IntegerType(), required=True),
        NestedField(3, "also_gone", iceberg.StringType()),
        NestedField(4, "name", iceberg.StringType()),
    ]
    table.create(Schema(*fields, identifier_field_ids=[2]))
    with table.load().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("gone").delete_column("also_gone").add_column("late", iceberg.StringType())
    schema = columns(id="integer", name="string", late="string")
    put(table, schema, [(1, "a", "x"), (2, "b", "y")], keys="id", partition_by="")
    put(table, schema, [(1, "c", "z")], keys="id")

    check(table, (2, "b", "y"), (1, "c", "z"))


@RISINGWAVE.case(
    "iceberg_sink_column_order_validation",
    verdict=DIFFERS("columns are matched by name, so their order does not count", see="columns.md"),
)
def test_columns_in_another_order(table: PeerTable) -> None:
    """Values of two columns of one type would change places."""
    put(table, columns(a="integer", b="integer"), [(1, 2)])
    put(table, columns(b="integer", a="integer"), [(20, 10)])
    with pytest.raises(SchemaMismatchError, match="order"):
        put(table, columns(b="integer", a="integer"), [(20, 10)], check_ordering="true")

    check(table, (1, 2), (10, 20))


@RISINGWAVE.case("iceberg_sink_auto_schema_change_drop_column")
@pytest.mark.parametrize("is_dropped", [False, True])
def test_source_drops_a_column(table: PeerTable, *, is_dropped: bool) -> None:
    """The stream would stop, or the column be dropped without being asked."""
    asked = {"schema_evolution": "full", "drop_missing_columns": "true"} if is_dropped else {}
    put(table, columns(id="integer", v="string", w="string"), [(1, "a", "b")], of_epoch=0, keys="id")
    put(table, columns(id="integer", w="string"), [(2, "c")], of_epoch=1, keys="id", **asked)

    check(table, *([(1, "b"), (2, "c")] if is_dropped else [(1, "a", "b"), (2, None, "c")]))


@RISINGWAVE.case("iceberg_sink_variant")
def test_column_of_type_variant(table: PeerTable) -> None:
    """Values would be changed, or be taken for something else."""
    schema = columns(v="variant")
    with pytest.raises(UnsupportedTableError, match="'v' is of type variant, which tables have from format version 3"):
        sink_of(table).plan(schema)
    assert not table.exists()

    texts = ['{"a": [1, "x", null]}', "17"]
    sent = [{"value": value.value, "metadata": value.metadata} for value in map(VariantVal.parseJson, texts)]
    put(table, schema, *([(value,)] for value in sent), format_version="3")

    read = read_by_tasks(sink_of(table))
    assert [VariantVal(**row["v"]).toJson() for row in read] == ['{"a":[1,"x",null]}', "17"]


@RISINGWAVE.case("iceberg_v3/sink_no_partition", "iceberg_v3/with_pk_index")
def test_table_of_version_3(table: PeerTable) -> None:
    """Deletes would be written that version 3 does not allow."""
    put(table, WIDE, wide(1, 2), format_version="3", **KEYED)
    upsert(table, WIDE, wide(2, version=50), keys="v1")

    check(table, *wide(1), *wide(2, version=50))


@RISINGWAVE.case("iceberg_append_only_write_mode_validation")
def test_way_of_deleting_without_keys(table: PeerTable) -> None:
    """An option that cannot count would be passed over in silence."""
    with pytest.raises(OptionError, match="delete-encoding"):
        put(table, WIDE, wide(1), delete_encoding="copy-on-write")

    assert not table.exists()


@RISINGWAVE.case("iceberg_copy_on_write", "iceberg_v2_with_pk_index", "iceberg_with_pk_index")
@LAYOUTS
def test_old_rows_are_marked_by_position(table: PeerTable, layout: dict[str, str]) -> None:
    """Readers that know no equality deletes would see old rows."""
    put(table, WIDE, wide(1, 2, 3), **layout)
    upsert(table, WIDE, wide(2, version=50), keys="v1")

    check(table, *wide(1, 3), *wide(2, version=50))
    assert count(table, DataFileContent.EQUALITY_DELETES) == 0


@RISINGWAVE.case("iceberg_v3/row_lineage_reserved_names")
@pytest.mark.parametrize("name", ["_row_id", "_last_updated_sequence_number", "_pos", "_file"])
def test_reserved_names_of_columns(table: PeerTable, name: str) -> None:
    """A table would be made that other engines cannot read."""
    with pytest.raises(SchemaMismatchError, match=name):
        put(table, columns(**{"id": "integer", name: "long"}), [(1, 1)])

    assert not table.exists()


@RISINGWAVE.case("iceberg_sink", "iceberg_engine", "iceberg_sink_singleton")
def test_create_table_if_not_exists(table: PeerTable) -> None:
    """A sink would make a table that should be there, under a misspelt name."""
    with pytest.raises(LookupError, match=r"db\.t"):
        put(table, WIDE, wide(1), create_table="false")
    put(table, WIDE, wide(1))
    put(table, WIDE, wide(2), create_table="false")

    check(table, *wide(1, 2))


@RISINGWAVE.case("alter_iceberg_sink_props", "iceberg_replace_sink")
def test_options_change_between_two_runs(table: PeerTable) -> None:
    """A stream whose options are tuned would write its rows again."""
    put(table, WIDE, wide(1), of_epoch=0, compression_codec="snappy")
    put(table, WIDE, wide(1), of_epoch=0, compression_codec="zstd")
    put(table, WIDE, wide(2), of_epoch=1, compression_codec="zstd", target_file_size_bytes="1000")

    check(table, *wide(1, 2))


@RISINGWAVE.case("iceberg_database_name_validation")
@pytest.mark.parametrize("name", ["", "t", "db..t"])
def test_names_that_are_none(table: PeerTable, name: str) -> None:
    """Rows would go into a table that nobody meant."""
    with pytest.raises(OptionError, match="table"):
        put(table.named(name), WIDE, wide(1))


@RISINGWAVE.case("compaction_round", "iceberg_compaction_delete_cleanup")
def test_deletes_go_when_they_are_converted(table: PeerTable) -> None:
    """Deletes would pile up, or rows come back as they are cleaned up."""
    put(table, WIDE, wide(1, 2, 3), of_epoch=0, **KEYED)
    for number in (1, 2):
        put(table, WIDE, wide(1, version=number), of_epoch=number, **KEYED)
    convert(sink_of(table), "copy-on-write")

    check(table, *wide(2, 3), *wide(1, version=2))
    assert count(table, DataFileContent.EQUALITY_DELETES) == 0


@RISINGWAVE.case("iceberg_pk_index/compaction_delete_then_reinsert", "iceberg_pk_index/compaction_concurrent_delete")
def test_key_that_is_deleted_and_comes_again(table: PeerTable) -> None:
    """The key would stay deleted, or its first row come back."""
    schema = columns(id="integer", v="string", op="string")
    feed = {"keys": "id", "operation_column": "op"}
    put(table, schema, [(1, "a", "+I"), (2, "b", "+I")], of_epoch=0, **feed)
    put(table, schema, [(1, None, "-D")], of_epoch=1, **feed)
    convert(sink_of(table))
    put(table, schema, [(1, "c", "+I")], of_epoch=2, **feed)
    convert(sink_of(table))
    put(table, schema, [(2, None, "-D")], of_epoch=3, **feed)

    check(table, (1, "c"))
    assert len(found(table)) == 1
