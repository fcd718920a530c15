"""What others do to columns, partitioning and order of a table between the plan and the commit of a write.

Held against an oracle that goes by field ids: rows that were asked for are replaced and no others, and values stand
under the column that they were written for; or the write is refused and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import unreferenced_files
from support.checks.reader import rows_of
from support.keys.conversions import meanwhile
from support.tables.changes_by_others import drop_branch, register_edited, set_columns
from support.tables.sink import Row, Sink, epoch

from iceberg_ds.deletes.convert import Conversion
from iceberg_ds.deletes.upsert import UpsertCommit
from iceberg_ds.errors import CommitConflictError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.messages import TaskCommit
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning.plan_write import WriteMode

pytestmark = pytest.mark.usefixtures("waits")

ID = NestedField(1, "id", LongType(), required=True)
REGION = NestedField(2, "region", StringType(), required=True)
A, B = NestedField(3, "a", IntegerType()), NestedField(4, "b", IntegerType())
COLUMNS = StructType(
    [
        StructField("id", spark.LongType(), nullable=False),
        StructField("region", spark.StringType(), nullable=False),
        StructField("a", spark.IntegerType()),
        StructField("b", spark.IntegerType()),
    ]
)
FIRST = [(1, "EU", 1, 10), (2, "EU", 2, 20), (3, "US", 3, 30)]
NEW = [(2, "US", 22, 220), (9, "US", 99, 990)]
OF_OTHERS = [(2, "DE", 5, 50), (20, "US", 6, 60)]

Others = Callable[[Sink], object]
Values = dict[int, Any]


def named(rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return rows by the names of `COLUMNS`."""
    return [dict(zip(COLUMNS.names, row, strict=True)) for row in rows]


def by_field(rows: Sequence[tuple[Any, ...]]) -> list[Values]:
    """Return rows by the field ids that the columns have in the beginning."""
    return [dict(enumerate(row, 1)) for row in rows]


def stored(sink: Sink) -> list[Values]:
    """Return the rows of `main` by field ids."""
    table = sink.table()
    if table.current_snapshot() is None:
        return []
    return [{table.schema().find_field(name).field_id: value for name, value in row.items()} for row in rows_of(table)]


def columns(*fields: NestedField) -> Others:
    """Return what gives a table these columns."""
    return lambda sink: set_columns(sink, *fields)


def made_anew(sink: Sink) -> None:
    """CREATE OR REPLACE TABLE: the uuid stays, names keep their ids, and no row is left."""
    set_columns(sink, ID, REGION, NestedField(3, "a", StringType()))
    drop_branch(sink, "main")


def partitioned(*fields: tuple[str, Transform[Any, Any]]) -> Others:
    """Return what gives a table another partitioning and another sort order, and appends rows by them."""

    def change(sink: Sink) -> None:
        with sink.table().update_spec() as spec:
            for field in sink.table().spec().fields:
                spec.remove_field(field.name)
        with sink.table().update_spec() as spec:
            for name, transform in fields:
                spec.add_field(name, transform)
        with sink.table().update_sort_order() as order:
            order.desc("b", IdentityTransform())
        sink.commit(sink.write(named(OF_OTHERS), schema=COLUMNS))

    return change


# What others do: and which writes it concerns, those that look at column `a`, or all.
HARMLESS: dict[str, Others] = {
    "add": columns(ID, REGION, A, B, NestedField(5, "c", IntegerType())),
    "reorder": columns(B, A, REGION, ID),
    "widen": columns(ID, REGION, A, NestedField(4, "b", LongType())),
    "make optional": columns(ID, NestedField(2, "region", StringType()), A, B),
    "drop": columns(ID, REGION, A),
    "rename": columns(ID, REGION, A, NestedField(4, "renamed", IntegerType())),
}
OF_A: dict[str, Others] = {
    "drop a": columns(ID, REGION, B),
    "rename a": columns(ID, REGION, NestedField(3, "renamed", IntegerType()), B),
    "widen a": columns(ID, REGION, NestedField(3, "a", LongType()), B),
}
HARMFUL: dict[str, Others] = {
    "drop and add": columns(ID, REGION, NestedField(5, "a", IntegerType()), B),
    "drop and add with another type": columns(ID, REGION, NestedField(5, "a", StringType()), B),
    "drop and add in another case": columns(ID, REGION, NestedField(5, "A", IntegerType()), B),
    "swap": columns(ID, REGION, NestedField(4, "a", IntegerType()), NestedField(3, "b", IntegerType())),
    "rename into one that was dropped": columns(ID, REGION, NestedField(4, "a", IntegerType())),
    "drop and add the key": columns(NestedField(5, "id", LongType()), REGION, A, B),
    "make required": columns(ID, REGION, A, NestedField(4, "b", IntegerType(), required=True)),
    "create or replace": made_anew,
}

PARTITIONED: dict[str, Others] = {
    "by another column": partitioned(("b", IdentityTransform())),
    "by another function": partitioned(("region", BucketTransform(2)), ("id", BucketTransform(2))),
    "as before": partitioned(("region", IdentityTransform())),
    "not at all": partitioned(),
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of write of `NEW`.

    Attributes:
        options: Its options.
        mode: Its mode.
        keeps: Which ids of `FIRST` it keeps.
        encoding: How an upsert takes old rows away; None for what is no upsert.
        looks_at_a: Whether which rows it replaces depends on column `a`.
        hands_over: Whether the committer writes its rows.
    """

    options: Mapping[str, Any]
    mode: WriteMode = WriteMode.APPEND
    keeps: tuple[int, ...] = (1, 2, 3)
    encoding: Any = None
    looks_at_a: bool = False
    hands_over: bool = False

    def write(self, sink: Sink) -> Callable[[], object]:
        """Plan and run the tasks; return what commits."""
        plan = sink.plan(COLUMNS, self.mode, **self.options)
        of_epoch = epoch(0) if "publish_converted" in self.options else None
        messages = sink.write(named(NEW), schema=COLUMNS, plan=plan, of_epoch=of_epoch, may_hand_over=self.hands_over)
        return lambda: self._commit(sink, plan, messages)

    def _commit(self, sink: Sink, plan: WritePlan, messages: Sequence[TaskCommit]) -> object:
        if self.encoding is None:
            return sink.commit(messages)
        return UpsertCommit(sink.catalog, plan, self.encoding, None).run(messages)


KEYED: dict[str, Any] = {"keys": ("id",)}
KINDS = {
    "append": Kind(options={}),
    "handed over": Kind(options={}, hands_over=True),
    "staged": Kind(options={"staging_branch": "staging"}),
    "static": Kind(options={}, mode=WriteMode.OVERWRITE, keeps=()),
    "dynamic": Kind(options={"overwrite_mode": "dynamic"}, mode=WriteMode.OVERWRITE, keeps=(1, 2)),
    "where": Kind(options={"replace_where": "a >= 2"}, mode=WriteMode.OVERWRITE, keeps=(1,), looks_at_a=True),
    "keys": Kind(options=KEYED, keeps=(1, 3)),
    "converted": Kind(options={**KEYED, "publish_converted": True}, keeps=(1, 3)),
    "position": Kind(options=KEYED, mode=WriteMode.UPSERT, keeps=(1, 3), encoding="position"),
    "copy-on-write": Kind(options=KEYED, mode=WriteMode.UPSERT, keeps=(1, 3), encoding="copy-on-write"),
}


# Each of these looks at the table in a way of its own; the others take the same steps as an append.
APART = {"append", "dynamic", "where", "keys", "copy-on-write"}
COMMON = {"widen", "drop", "drop and add", "drop and add the key", "create or replace"}


def each(changes: Mapping[str, Others]) -> pytest.MarkDecorator:
    """Return the parameters of kinds of writes and changes: all that tell something else."""
    pairs = [(kind, change) for kind in KINDS for change in changes if kind in APART or change in COMMON]
    return pytest.mark.parametrize(("kind", "change"), pairs, indirect=["kind"])


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return a kind of write."""
    return KINDS[request.param]


@pytest.fixture
def table(sink: Sink, kind: Kind) -> Sink:
    """Return the sink of a table with the rows of `FIRST`, partitioned by region for what replaces partitions."""
    is_dynamic = "overwrite_mode" in kind.options
    return with_first_rows(sink, kind, BY_REGION if is_dynamic else PartitionSpec())


BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region_part"))


def with_first_rows(sink: Sink, kind: Kind, spec: PartitionSpec) -> Sink:
    """Return the sink of a table with the rows of `FIRST`, and with the keys of the write."""
    sink.create(Schema(ID, REGION, A, B, identifier_field_ids=[1] if "keys" in kind.options else []), spec)
    sink.commit(sink.write(named(FIRST), schema=COLUMNS))
    return sink


def check_landed(sink: Sink, kind: Kind, of_others: Sequence[tuple[Any, ...]] = ()) -> None:
    """Assert that the rows that were asked for were replaced, no others, and that all values are where they belong."""
    known = {field.field_id for field in sink.table().schema().fields}
    expected = by_field([row for row in FIRST if row[0] in kind.keeps] + [*of_others, *NEW])
    shown = [{number: row.get(number) for number in known} for row in expected]
    assert sorted(map(str, map(sorted_items, stored(sink)))) == sorted(map(str, map(sorted_items, shown)))
    assert unreferenced_files(sink.table()) == set()


def sorted_items(row: Values) -> list[tuple[int, Any]]:
    """Return a row's values in the order of their fields."""
    return sorted(row.items())


def check_refused(
    sink: Sink,
    commit: Callable[[], object],
    error: type[Exception] | tuple[type[Exception], ...] = (CommitConflictError, SchemaMismatchError),
    saying: str = "Run the write again",
) -> None:
    """Assert that a commit is refused, changes nothing and leaves no file."""
    before = stored(sink)
    with pytest.raises(error, match=saying):
        commit()

    assert stored(sink) == before
    assert unreferenced_files(sink.table()) == set()


@each(HARMLESS)
def test_harmless_change_lets_the_write_land_by_field_ids(table: Sink, kind: Kind, change: str) -> None:
    """A long write would be thrown away for nothing, or its values would stand under other columns."""
    commit = kind.write(table)
    HARMLESS[change](table)

    commit()

    check_landed(table, kind)


@each(OF_A)
def test_change_of_what_the_range_looks_at_is_a_conflict(table: Sink, kind: Kind, change: str) -> None:
    """Other rows would be replaced than those that were asked for."""
    commit = kind.write(table)
    OF_A[change](table)

    if kind.looks_at_a:
        check_refused(table, commit)
    else:
        commit()
        check_landed(table, kind)


@each(HARMFUL)
def test_name_that_means_another_column_by_now_is_a_conflict(table: Sink, kind: Kind, change: str) -> None:
    """Values would be lost, stand under another column, or other rows would be replaced."""
    commit = kind.write(table)
    HARMFUL[change](table)

    check_refused(table, commit)


# What others do to partitioning and sort order, and the rows that they write by the new ones.


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, change) for name in KINDS for change in PARTITIONED if name in APART or change == "by another function"],
)
def test_other_partitioning_and_order_let_the_write_land_or_refuse_it(sink: Sink, name: str, change: str) -> None:
    """Rows of files by the new partitioning would be passed over: kept beside those that replace them, or lost."""
    kind = KINDS[name]
    if kind.mode is WriteMode.OVERWRITE:
        kind = replace(kind, options={**kind.options, "isolation_level": "snapshot"})
    with_first_rows(sink, kind, BY_REGION)
    commit = kind.write(sink)
    PARTITIONED[change](sink)

    if name == "dynamic" and change != "as before":
        check_refused(sink, commit, UnsupportedTableError, "was written by partition spec")
        return
    commit()

    has_keys = "keys" in kind.options
    check_landed(sink, kind, [row for row in OF_OTHERS if not has_keys or row[0] != NEW[0][0]])
    check_deletes(sink.table())


@pytest.mark.parametrize("name", ["static", "dynamic", "where"])
def test_rows_that_came_by_another_partitioning_are_a_conflict(sink: Sink, name: str) -> None:
    """Rows would stay in the range of an overwrite that must not have any beside its own."""
    with_first_rows(sink, KINDS[name], BY_REGION)
    commit = KINDS[name].write(sink)
    PARTITIONED["by another column"](sink)

    check_refused(sink, commit, (CommitConflictError, UnsupportedTableError), "nothing was committed")


@pytest.mark.parametrize("name", ["keys", "converted", "position", "copy-on-write"])
def test_other_partitioning_under_deletes_of_a_partition_is_a_conflict(sink: Sink, name: str) -> None:
    """Deletes of a partition reach files of its spec alone: old rows would stay beside the new ones of their keys."""
    with_first_rows(sink, KINDS[name], PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_part")))
    commit = KINDS[name].write(sink)
    PARTITIONED["by another column"](sink)

    check_refused(sink, commit)


# What only some writes rest on.


def unkeyed(sink: Sink) -> Sink:
    """Return the sink of a table without keys, with the rows of `FIRST`."""
    sink.create(Schema(ID, REGION, A, B))
    sink.commit(sink.write(named(FIRST), schema=COLUMNS))
    return sink


def test_new_column_that_fits_a_name_better_is_a_conflict(sink: Sink) -> None:
    """A column that somebody adds in another case would say which rows are replaced."""
    unkeyed(sink)
    commit = Kind(options={"replace_where": "A >= 2"}, mode=WriteMode.OVERWRITE).write(sink)
    set_columns(sink, ID, REGION, A, B, NestedField(5, "A", IntegerType()))

    check_refused(sink, commit)


def test_column_whose_old_name_another_one_has_is_a_conflict_for_the_range_alone(sink: Sink) -> None:
    """Row 2 would be replaced where row 1 was meant, by an empty write that has no values to lose."""
    unkeyed(sink)
    plan = sink.plan(COLUMNS, WriteMode.OVERWRITE, replace_where="a = 1")
    messages = sink.write([], schema=COLUMNS, plan=plan)
    set_columns(sink, ID, REGION, NestedField(4, "a", IntegerType()), NestedField(3, "b", IntegerType()))

    check_refused(sink, lambda: sink.commit(messages))


def test_schema_that_was_removed_meanwhile_is_a_conflict(sink: Sink) -> None:
    """What names meant when rows were written could not be told any more."""
    unkeyed(sink)
    commit = Kind(options={}).write(sink)
    set_columns(sink, ID, REGION, A)
    register_edited(sink, lambda document: document.update(schemas=document["schemas"][1:]))

    with pytest.raises(CommitConflictError, match="schema 0, by which its rows were written, was removed"):
        commit()


def test_rows_of_version_2_land_in_a_table_that_became_one_of_version_3(sink: Sink) -> None:
    """An append would fail, or its rows have no ids, because another writer upgraded the table meanwhile."""
    unkeyed(sink)
    commit = Kind(options={}).write(sink)
    register_edited(sink, lambda document: document.update({"format-version": 3, "next-row-id": 0}))

    commit()

    metadata = sink.table().metadata
    head = metadata.current_snapshot()
    assert head is not None
    assert (head.first_row_id, head.added_rows) == (0, metadata.next_row_id)
    assert not unreferenced_files(sink.table())


def with_its_id_given_again(kept: int, **again: Any) -> Others:
    """Return what removes unused schemas and specs, as `expire_snapshots` does if asked, and adds one by a free id.

    Args:
        kept: How many of the older ones stay.
        again: What is added, and is the current one from then on: `schemas` or `partition_specs`.
    """

    def edit(document: dict[str, Any]) -> None:
        for name, added in again.items():
            document[name.replace("_", "-")] = [*document[name.replace("_", "-")][:kept], added]
        document["last-column-id"], document["last-partition-id"] = 9, 1009

    return lambda sink: register_edited(sink, edit)


@pytest.mark.parametrize("name", ["append", "static", "replacing types"])
def test_schema_whose_id_another_one_has_by_now_is_a_conflict(sink: Sink, name: str) -> None:
    """Values would be lost: they would stand under a column that was dropped, whose name another column has."""
    unkeyed(sink)
    set_columns(sink, ID, REGION, A, B, NestedField(5, "c", IntegerType()))
    options = {"schema_evolution": "full"} if name == "replacing types" else {}
    kind = Kind(options=options, mode=WriteMode.APPEND if name == "append" else WriteMode.OVERWRITE)
    frame = StructType([*COLUMNS, StructField("c", spark.StringType() if options else spark.IntegerType())])
    plan = sink.plan(frame, kind.mode, **kind.options)
    messages = sink.write([{**row, "c": "7" if options else 7} for row in named(NEW)], schema=frame, plan=plan)
    fields = [*sink.table().metadata.schemas[0].fields, NestedField(9, "c", IntegerType())]
    with_its_id_given_again(1, schemas=Schema(*fields, schema_id=1).model_dump(mode="json"))(sink)

    check_refused(sink, lambda: sink.commit(messages))


def test_partition_spec_whose_id_another_one_has_by_now_is_a_conflict(sink: Sink) -> None:
    """No filter would find the rows: readers would look for them in other partitions."""
    unkeyed(sink)
    with sink.table().update_spec() as change:
        change.add_field("id", BucketTransform(4))
    commit = Kind(options={}).write(sink)
    spec = PartitionSpec(PartitionField(1, 1009, BucketTransform(16), "id_part"), spec_id=1)
    with_its_id_given_again(1, partition_specs=spec.model_dump(mode="json"))(sink)

    check_refused(sink, commit)


@pytest.mark.parametrize("encoding", ["position", "copy-on-write"])
def test_values_of_a_column_that_is_new_survive_an_upsert_that_does_not_know_it(sink: Sink, encoding: str) -> None:
    """An upsert that was planned before would write a file again without the values that others have just written."""
    sink.create(Schema(ID, REGION, A, B, identifier_field_ids=[1]))
    sink.commit(sink.write(named(FIRST), schema=COLUMNS))
    commit = Kind(options=KEYED, mode=WriteMode.UPSERT, encoding=encoding).write(sink)
    set_columns(sink, ID, REGION, A, B, NestedField(5, "c", IntegerType()))
    wider = StructType([*COLUMNS, StructField("c", spark.IntegerType())])
    sink.commit(sink.write([{**row, "c": 7} for row in named([(9, "EU", 0, 0), (50, "EU", 5, 50)])], schema=wider))

    commit()

    found = {row["id"]: row["c"] for row in rows_of(sink.table())}
    assert found == {1: None, 2: None, 3: None, 9: None, 50: 7}


@pytest.mark.parametrize("field", [ID, B], ids=["key", "sequence"])
def test_type_by_which_rows_are_looked_up_may_not_change_meanwhile(sink: Sink, field: NestedField) -> None:
    """Rows of values that the planned type cannot hold would be passed over, or compare as others."""
    number = NestedField(1, "id", IntegerType(), required=True)
    sink.create(Schema(number, REGION, A, B, identifier_field_ids=[1]))
    frame = StructType([StructField("id", spark.IntegerType(), nullable=False), *COLUMNS.fields[1:]])
    sink.commit(sink.write(named(FIRST), schema=frame))
    options = {**KEYED, "sequence_by": ("b",), "sequence_scope": "table"}
    plan = sink.plan(frame, WriteMode.UPSERT, **options)
    messages = sink.write(named(NEW), schema=frame, plan=plan)
    wider = NestedField(field.field_id, field.name, LongType(), required=field.required)
    set_columns(sink, *(wider if old.name == field.name else old for old in (number, REGION, A, B)))

    check_refused(sink, lambda: UpsertCommit(sink.catalog, plan, "position", None).run(messages))


@pytest.mark.parametrize("change", ["add", "drop", "rename a", "widen a"])
def test_conversion_keeps_all_rows_whatever_changes_meanwhile(sink: Sink, change: str) -> None:
    """Rows would come back or go, because somebody changed a column while their deletes were converted."""
    sink.create(Schema(ID, REGION, A, B, identifier_field_ids=[1]))
    sink.commit(sink.write(named(FIRST), schema=COLUMNS))
    kind = KINDS["keys"]
    kind.write(sink)()
    conversion = Conversion(sink.catalog, sink.options, None, "copy-on-write")

    with meanwhile(FaultPoint.PLANNED, lambda: (HARMLESS | OF_A)[change](sink)):
        conversion.run(CommitMeter())

    check_landed(sink, kind)
