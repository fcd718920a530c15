"""Specs and sort orders of the options, beside PyIceberg's own; evolution on real tables of both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import NestedField

from iceberg_ds.table.specs import (
    describes,
    describes_order,
    evolved_spec,
    new_sort_order,
    new_spec,
    parse_partition_by,
    parse_sort_by,
    spec_text,
)

SCHEMA = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "ts", ice.TimestamptzType()),
    NestedField(3, "s", ice.StringType()),
    NestedField(4, "region", ice.StringType()),
    NestedField(5, "d", ice.DateType()),
    NestedField(6, "price", ice.DoubleType()),
    NestedField(7, "amount", ice.DecimalType(9, 2)),
    NestedField(8, "v", ice.StructType(NestedField(9, "kind", ice.StringType()), NestedField(10, "t", ice.DateType()))),
    NestedField(11, "l", ice.ListType(12, ice.LongType())),
    NestedField(13, "a.b", ice.StringType()),
    NestedField(14, "s_trunc_9", ice.StringType()),
)


@pytest.fixture
def stock(tmp_path: Path) -> SqlCatalog:
    """Return a new catalog of PyIceberg, with a namespace."""
    catalog = SqlCatalog("stock", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    return catalog


def create(stock: SqlCatalog, partition_by: str = "", format_version: int = 2) -> Table:
    """Create a table that is partitioned so."""
    spec = spec_of(partition_by) if partition_by else PartitionSpec()
    return stock.create_table("db.t", SCHEMA, partition_spec=spec, properties={"format-version": str(format_version)})


def spec_of(partition_by: str, schema: Schema = SCHEMA) -> PartitionSpec:
    """Return the spec of a new table."""
    return new_spec(parse_partition_by(partition_by), schema)


def evolve(table: Table, partition_by: str) -> Table:
    """Commit the evolution, as one who uses `evolved_spec` does, and return the table as the catalog has it."""
    spec = evolved_spec(parse_partition_by(partition_by), table.metadata)
    is_known = spec.spec_id in table.specs()
    updates = (SetDefaultSpecUpdate(spec_id=spec.spec_id),)
    table.catalog.commit_table(table, (), updates if is_known else (AddPartitionSpecUpdate(spec=spec), *updates))
    loaded = table.catalog.load_table("db.t")
    assert loaded.spec() == spec
    assert describes(parse_partition_by(partition_by), loaded.spec(), loaded.schema())
    return loaded


def shown(spec: PartitionSpec) -> list[tuple[int, str, str]]:
    """Return id, name and transform of each field."""
    return [(field.field_id, field.name, str(field.transform)) for field in spec.fields]


def test_fields_of_a_new_table_are_called_as_icebergs_java_library_calls_them() -> None:
    """Queries of metadata tables that name partition fields would differ between engines."""
    spec = spec_of("day(ts), bucket(16, id), truncate(4, s), region, v.kind, month(v.t), `a.b`, year(d)")

    assert shown(spec) == [
        (1000, "ts_day", "day"),
        (1001, "id_bucket", "bucket[16]"),
        (1002, "s_trunc", "truncate[4]"),
        (1003, "region", "identity"),
        (1004, "v.kind", "identity"),
        (1005, "v.t_month", "month"),
        (1006, "a.b", "identity"),
        (1007, "d_year", "year"),
    ]
    assert [field.source_id for field in spec.fields] == [2, 1, 3, 4, 9, 10, 13, 5]


def test_names_that_differ_in_case_alone_are_taken() -> None:
    """Iceberg's Spark runtime could neither read nor change the table."""
    spec = spec_of("truncate(2, s) as REGION_trunc, truncate(3, region)")

    assert [field.name for field in spec.fields] == ["REGION_trunc", "region_trunc_3"]
    with pytest.raises(ValueError, match="another partition field is called 'region'"):
        spec_of("truncate(2, s) as REGION, region")


def test_evolved_spec_has_no_names_that_differ_in_case_alone(stock: SqlCatalog) -> None:
    """Iceberg's Spark runtime could neither read nor change the table any more."""
    table = create(stock, "truncate(2, s) as short")

    names = [field.name for field in evolve(table, "truncate(2, s), region as SHORT").spec().fields]

    assert names == ["short_1000", "SHORT"]


def test_two_transforms_of_one_kind_get_different_names() -> None:
    """A table by two prefixes of one column could not be made."""
    spec = spec_of("truncate(2, s), truncate(4, s)")

    assert [field.name for field in spec.fields] == ["s_trunc", "s_trunc_4"]


def test_fields_of_a_new_table_are_called_as_the_option_says() -> None:
    """Tables of partitions would have other columns than the ones that queries ask for."""
    spec = spec_of("bucket(16, id) as id_b, day(ts) AS d_1, region as `by region`, bucket(8, id) as id_bucket, year(d)")

    assert [field.name for field in spec.fields] == ["id_b", "d_1", "by region", "id_bucket", "d_year"]


def test_given_name_goes_before_the_one_that_iceberg_would_give() -> None:
    """Two fields would have one name, and no engine could load the table."""
    assert [field.name for field in spec_of("bucket(4, id), day(ts) as id_bucket").fields] == [
        "id_bucket_4",
        "id_bucket",
    ]


@pytest.mark.parametrize("text", ["day(ts) as region", "region as s", "bucket(4, id) as id"])
def test_name_of_a_column_is_refused_as_that_of_a_field(text: str) -> None:
    """No engine could load the table."""
    with pytest.raises(ValueError, match="as a column is"):
        spec_of(text)


@pytest.mark.parametrize("format_version", [1, 2])
def test_table_with_the_new_spec_can_be_created(stock: SqlCatalog, format_version: int) -> None:
    """The first write with `partition-by` would fail."""
    text = "day(ts), bucket(16, id), truncate(4, s), region, v.kind, `a.b`, price"

    table = create(stock, text, format_version)

    assert shown(table.spec()) == shown(spec_of(text))
    assert spec_text(table.spec(), table.schema()) == text


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("nothing", "nothing: there is no column nothing among id, ts, s, region"),
        ("day(id)", "day(id): column id is long, to which day"),
        ("hour(d)", "hour(d): column d is date, to which hour"),
        ("bucket(4, price)", "bucket(4, price): column price is double, to which bucket[4]"),
        ("truncate(4, ts)", "column ts is timestamptz, to which truncate[4]"),
        ("l", "l: column l is list<long>, to which identity"),
        ("v", "to which identity does not apply"),
        ("l.element", "column l is list<long>, and only structs have fields"),
        ("REGION, region", "region: is given more than once"),
        ("year(ts), hour(ts)", "ts has several of year, month, day and hour"),
    ],
)
def test_term_that_the_schema_does_not_allow_is_named_with_the_reason(text: str, fragment: str) -> None:
    """People would have to guess which term is meant, or the table would be one that other engines refuse."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is checked below
        spec_of(text)

    assert fragment in str(refused.value)


def test_all_bad_terms_are_named_at_once() -> None:
    """People would mend one after the other."""
    with pytest.raises(ValueError, match=r"^x: there is no .*; day\(s\): column s is string"):
        spec_of("x, region, day(s)")


def test_field_that_would_be_called_as_a_column_is_refused() -> None:
    """Other engines would refuse to load the table."""
    schema = Schema(NestedField(1, "ts", ice.DateType()), NestedField(2, "ts_day", ice.StringType()))

    with pytest.raises(ValueError, match=r"day\(ts\): the partition field would be called 'ts_day', as a column is"):
        spec_of("day(ts)", schema)


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("day(ts), region", "day(ts), region", True),
        ("day(ts), region", "days(TS), Region", True),
        ("day(ts), region", "region, day(ts)", False),
        ("day(ts), region", "day(ts)", False),
        ("day(ts)", "day(ts), region", False),
        ("bucket(8, id)", "bucket(16, id)", False),
        ("day(ts)", "day(d)", False),
        ("v.kind", "v.kind", True),
        ("day(ts)", "gone", False),
    ],
)
def test_terms_describe_a_spec_of_the_same_transforms_in_the_same_order(text: str, other: str, *, same: bool) -> None:
    """A write with the table's own partitioning would be refused, or one with another would be let through."""
    assert describes(parse_partition_by(other), spec_of(text), SCHEMA) is same


def test_names_and_void_fields_do_not_count_when_specs_are_compared() -> None:
    """A table made by another engine, or of version 1, could not be written with `partition-by`."""
    spec = PartitionSpec(
        PartitionField(3, 1000, VoidTransform(), "s_null"), PartitionField(2, 1001, DayTransform(), "my day")
    )

    assert describes(parse_partition_by("day(ts)"), spec, SCHEMA)
    assert spec_text(spec, SCHEMA) == "day(ts) as `my day`"


def test_names_that_are_given_count_when_specs_are_compared() -> None:
    """A name that is asked for would be another one, without a word."""
    spec = spec_of("day(ts) as moment, bucket(16, id)")

    assert describes(parse_partition_by("day(ts) as moment, bucket(16, id)"), spec, SCHEMA)
    assert describes(parse_partition_by("day(ts), bucket(16, id)"), spec, SCHEMA)
    assert describes(parse_partition_by("day(ts), bucket(16, id) as id_bucket"), spec, SCHEMA)
    assert not describes(parse_partition_by("day(ts) as ts_day, bucket(16, id)"), spec, SCHEMA)
    assert spec_text(spec, SCHEMA) == "day(ts) as moment, bucket(16, id)"


def test_text_of_a_spec_is_the_option_that_describes_it() -> None:
    """Errors would propose an option that does not work."""
    text = "day(ts), bucket(16, id), truncate(4, s), region, v.kind, month(v.t), `a.b`, year(d)"

    assert spec_text(spec_of(text), SCHEMA) == text
    assert spec_text(PartitionSpec(), SCHEMA) == ""


SORT_FIELDS = [
    SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
    SortField(1, BucketTransform(4), SortDirection.ASC, NullOrder.NULLS_FIRST),
    SortField(9, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST),
]
SORT_TEXT = "ts desc nulls last, bucket(4, id) asc nulls first, v.kind asc nulls last"


def test_sort_order_has_the_terms_fields() -> None:
    """Files would be recorded as sorted otherwise than they are."""
    order = new_sort_order(parse_sort_by("TS desc, bucket(4, id), v.kind nulls last"), SCHEMA, 3)

    assert order == SortOrder(*SORT_FIELDS, order_id=3)
    assert describes_order(parse_sort_by(SORT_TEXT), order, SCHEMA)


@pytest.mark.parametrize("text", ["ts", "ts desc nulls last", "ts desc nulls last, bucket(4, id)", "gone"])
def test_sort_order_of_other_terms_is_another_one(text: str) -> None:
    """Rows would be written in the table's order when another was asked for."""
    order = SortOrder(*SORT_FIELDS, order_id=1)

    assert not describes_order(parse_sort_by(text), order, SCHEMA)


def test_sort_order_goes_through_a_catalog(stock: SqlCatalog) -> None:
    """The order of `sort-by` could not be recorded."""
    table = create(stock)
    order = new_sort_order(parse_sort_by(SORT_TEXT), table.schema(), 1)

    stock.commit_table(table, (), (AddSortOrderUpdate(sort_order=order), SetDefaultSortOrderUpdate(sort_order_id=1)))

    assert describes_order(parse_sort_by(SORT_TEXT), stock.load_table("db.t").sort_order(), table.schema())


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("gone desc", "gone desc nulls last: there is no column gone"),
        ("l", "column l is list<long>"),
        ("hour(d)", "column d is date, to which hour"),
        ("id, ID desc", "ID desc nulls last: is given more than once"),
    ],
)
def test_sort_term_that_the_schema_does_not_allow_is_named(text: str, fragment: str) -> None:
    """People would have to guess which term is meant."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is checked below
        new_sort_order(parse_sort_by(text), SCHEMA, 1)

    assert fragment in str(refused.value)


def test_text_of_a_dropped_column_is_its_number() -> None:
    """An error about an old partition spec would be an error of its own."""
    spec = PartitionSpec(PartitionField(99, 1000, DayTransform(), "gone"))

    assert spec_text(spec, SCHEMA) == "day(`column 99`) as gone"


EVOLUTIONS: list[tuple[tuple[str, str], list[str], list[tuple[str, Any]]]] = [
    (("", "day(ts)"), [], [("ts", DayTransform())]),
    (("day(ts)", "day(ts), bucket(16, id)"), [], [("id", BucketTransform(16))]),
    (("day(ts), region", "day(ts)"), ["region"], []),
    (("region", "day(ts), truncate(4, s)"), ["region"], [("ts", DayTransform()), ("s", TruncateTransform(4))]),
    (("bucket(16, id)", "bucket(32, id)"), ["id_bucket"], [("id", BucketTransform(32))]),
    (("region", "v.kind"), ["region"], [("v.kind", IdentityTransform())]),
]


@pytest.mark.parametrize("format_version", [1, 2])
@pytest.mark.parametrize(("texts", "removed", "added"), EVOLUTIONS)
def test_evolution_is_the_one_of_pyicebergs_update_spec(
    stock: SqlCatalog, format_version: int, texts: tuple[str, str], removed: list[str], added: list[tuple[str, Any]]
) -> None:
    """A table evolved here would differ from one that another library has evolved."""
    before, after = texts
    table = create(stock, before, format_version)

    ours = evolved_spec(parse_partition_by(after), table.metadata)

    with table.update_spec() as update:
        for name in removed:
            update.remove_field(name)
        for name, transform in added:
            update.add_field(name, transform)
    assert ours == table.spec()


def test_version_2_takes_up_the_field_ids_and_names_of_any_spec_in_the_new_order(stock: SqlCatalog) -> None:
    """Partition values of old files would not be found under the field that has them."""
    table = evolve(create(stock, "day(ts), bucket(16, id)"), "region")

    table = evolve(table, "region, truncate(4, s), bucket(16, id), day(ts)")

    assert shown(table.spec()) == [
        (1002, "region", "identity"),
        (1003, "s_trunc_4", "truncate[4]"),
        (1001, "id_bucket", "bucket[16]"),
        (1000, "ts_day", "day"),
    ]
    assert table.spec().spec_id == 2
    assert table.metadata.last_partition_id == 1003


def test_version_1_keeps_fields_in_their_places_as_void(stock: SqlCatalog) -> None:
    """Readers that know no field ids would take one partition value for another."""
    table = evolve(create(stock, "day(ts), region", 1), "region, bucket(4, id)")

    assert shown(table.spec()) == [
        (1000, "ts_day", "void"),
        (1001, "region", "identity"),
        (1002, "id_bucket_4", "bucket[4]"),
    ]


def test_version_1_field_that_comes_back_takes_its_name_from_the_void_one(stock: SqlCatalog) -> None:
    """The spec would have two fields of one name, which no engine loads."""
    table = evolve(create(stock, "day(ts), region", 1), "region, day(ts)")

    assert shown(table.spec()) == [
        (1000, "ts_day_1000", "void"),
        (1001, "region", "identity"),
        (1002, "ts_day", "day"),
    ]


@pytest.mark.parametrize("format_version", [1, 2])
def test_evolution_back_returns_to_the_old_spec(stock: SqlCatalog, format_version: int) -> None:
    """Every change back and forth would leave another spec in the metadata."""
    table = evolve(create(stock, "day(ts), region", format_version), "bucket(4, id)")

    table = evolve(table, "day(ts), region")

    assert table.spec().spec_id == 0
    assert len(table.specs()) == 2


def test_evolution_to_the_present_spec_is_that_spec(stock: SqlCatalog) -> None:
    """A write that changes nothing would make a new spec."""
    table = create(stock, "day(ts)")

    assert evolved_spec(parse_partition_by("days(ts)"), table.metadata) == table.spec()


@pytest.mark.parametrize("format_version", [1, 2])
def test_field_of_the_present_spec_gets_another_name_and_keeps_its_id(stock: SqlCatalog, format_version: int) -> None:
    """Rows of one partition would lie in two, for who looks at field ids."""
    table = evolve(create(stock, "bucket(4, id), region", format_version), "bucket(4, id) as shard, region")

    assert shown(table.spec()) == [(1000, "shard", "bucket[4]"), (1001, "region", "identity")]
    assert evolve(table, "bucket(4, id), region").spec() == table.spec()
    assert evolve(table, "bucket(4, id) as id_bucket, region").spec().spec_id == 0


@pytest.mark.parametrize("format_version", [1, 2])
def test_new_fields_get_the_names_that_the_option_gives(stock: SqlCatalog, format_version: int) -> None:
    """Tables of partitions would have other columns than the ones that queries ask for."""
    table = evolve(create(stock, "region", format_version), "region, day(ts) as d_1, truncate(9, s) as prefix")

    assert shown(table.spec()) == [
        (1000, "region", "identity"),
        (1001, "d_1", "day"),
        (1002, "prefix", "truncate[9]"),
    ]


def test_past_field_comes_back_under_its_own_name_alone(stock: SqlCatalog) -> None:
    """Two fields of one id would have two names, and engines take one of them."""
    table = evolve(evolve(create(stock, "day(ts) as d_1"), "region"), "region, day(ts) as d_2")

    assert shown(table.spec()) == [(1001, "region", "identity"), (1002, "d_2", "day")]
    assert shown(evolve(table, "day(ts) as d_1").spec()) == [(1000, "d_1", "day")]


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("bucket(8, id) as shard", "another partition field of the table was"),
        ("bucket(8, id) as s", "a column is"),
    ],
)
def test_name_that_is_taken_is_refused_and_not_changed(stock: SqlCatalog, text: str, fragment: str) -> None:
    """A name that is asked for would be another one, without a word, or tables of partitions could not be read."""
    table = create(stock, "bucket(4, id) as shard")

    with pytest.raises(ValueError, match=f"cannot be called .*{fragment}"):
        evolved_spec(parse_partition_by(text), table.metadata)


@pytest.mark.parametrize("format_version", [1, 2])
def test_no_term_removes_the_partitioning_and_leaves_old_specs(stock: SqlCatalog, format_version: int) -> None:
    """A table that was partitioned by mistake would stay so."""
    table = evolve(create(stock, "bucket(4, id), region", format_version), " ")

    assert spec_text(table.spec(), table.schema()) == ""
    assert len(table.specs()) == 2
    assert len(table.spec().fields) == (2 if format_version == 1 else 0)
    assert evolve(table, "bucket(4, id), region").spec().spec_id == 0


def test_new_field_avoids_the_names_of_columns_and_of_past_fields(stock: SqlCatalog) -> None:
    """Metadata tables would have two columns of one name, and engines fail to read them."""
    table = create(stock)
    spec = PartitionSpec(PartitionField(4, 1000, TruncateTransform(3), "ts_day"), spec_id=1)
    stock.commit_table(table, (), (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=1)))

    table = evolve(stock.load_table("db.t"), "day(ts), truncate(9, s)")

    assert shown(table.spec()) == [(1001, "ts_day_1001", "day"), (1002, "s_trunc_9_1002", "truncate[9]")]


def test_returning_field_gives_way_to_a_column_that_took_its_name(stock: SqlCatalog) -> None:
    """Engines would refuse to load the table."""
    table = evolve(create(stock, "day(ts)"), "region")
    schema = Schema(*SCHEMA.fields, NestedField(15, "ts_day", ice.StringType()), schema_id=1)
    # PyIceberg itself would refuse the column; other engines add it.
    stock.commit_table(table, (), (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=1)))

    table = evolve(stock.load_table("db.t"), "region, day(ts)")

    assert shown(table.spec()) == [(1001, "region", "identity"), (1000, "ts_day_1000", "day")]


def test_finer_time_may_be_added_to_the_one_that_is_there(stock: SqlCatalog) -> None:
    """A table by day could not be evolved as Iceberg's Java library allows."""
    table = evolve(create(stock, "day(ts)"), "day(ts), hour(ts)")

    assert shown(table.spec()) == [(1000, "ts_day", "day"), (1001, "ts_hour", "hour")]
    with pytest.raises(ValueError, match="d has several of year, month, day and hour"):
        evolved_spec(parse_partition_by("year(d), month(d)"), table.metadata)


def test_evolution_names_what_the_schema_does_not_allow(stock: SqlCatalog) -> None:
    """People would have to guess which term is meant."""
    with pytest.raises(ValueError, match=r"day\(id\): column id is long"):
        evolved_spec(parse_partition_by("day(id)"), create(stock).metadata)
