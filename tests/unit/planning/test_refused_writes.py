"""A write that is refused for one of its options has made none of the changes that its other options ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.catalogs.faulty_catalog import FaultyCatalog
from support.tables.sink import IDENTIFIER, SCHEMA, Sink, embedded_options

from iceberg_ds.errors import IcebergSinkError, OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.planning import decide
from iceberg_ds.planning.plan_write import WriteMode, plan_write

_REQUIRED = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
_NEW = spark.StructField("new", spark.LongType())
_MORE = spark.StructField("more", spark.LongType())
_BY_KEY = {"keys": "id", "evolve-keys": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What options ask to change in a table with columns `id` and `name`."""

    options: Mapping[str, str]
    columns: tuple[spark.StructField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """What a write is refused for, and a part of what it is told."""

    message: str
    options: Mapping[str, str] = field(default_factory=dict)
    column: spark.StructField | None = None
    is_overwrite: bool = False
    error: type[IcebergSinkError] = OptionError


_CHANGES = {
    "columns": _Change(options={"schema-evolution": "add-columns"}, columns=(_MORE,)),
    "keys": _Change(options=_BY_KEY),
    "partitioning": _Change(options={"partition-by": "name", "evolve-partitioning": "true"}),
    "order": _Change(options={"sort-by": "name"}),
    "columns by which rows are partitioned and sorted": _Change(
        options={
            "schema-evolution": "add-columns",
            "partition-by": "more",
            "evolve-partitioning": "true",
            "sort-by": "more",
        },
        columns=(_MORE,),
    ),
    "partitioning and a spec for deletes": _Change(
        options={**_BY_KEY, "partition-by": "name", "evolve-partitioning": "true"}
    ),
    "first snapshot": _Change(options={**_BY_KEY, "publish-converted": "true"}),
}
_EVERYTHING = _Change(
    options={**_BY_KEY, **_CHANGES["columns by which rows are partitioned and sorted"].options}, columns=(_MORE,)
)
_REFUSALS = {
    "column of another type": _Refusal(
        message="column 'name'", column=spark.StructField("name", spark.LongType()), error=SchemaMismatchError
    ),
    "new column": _Refusal(message="'new'", column=_NEW, error=SchemaMismatchError),
    "partitioning by a missing column": _Refusal(message="nope", options={"partition-by": "nope"}),
    "partitioning that may not change": _Refusal(message="evolve-partitioning", options={"partition-by": "id"}),
    "order by a missing column": _Refusal(message="nope", options={"sort-by": "nope"}),
    "missing key": _Refusal(message="nope", options={"keys": "nope"}),
    "keys that may not change": _Refusal(message="give evolve-keys=true", options={**_BY_KEY, "evolve-keys": "false"}),
    "sequence without a column": _Refusal(message="'lsn'", options={**_BY_KEY, "sequence-by": "lsn"}),
    "readers that lack deletes": _Refusal(
        message="'readers'", options={**_BY_KEY, "readers": "pyiceberg", "publish-converted": "false"}
    ),
    "missing branch": _Refusal(message="no branch 'nope'", options={"branch": "nope"}),
    "level out of range": _Refusal(message="compression-level", options={"compression-level": "99"}),
    "predicate of a missing column": _Refusal(
        message="'replace-where'", options={"replace-where": "nope = 1"}, is_overwrite=True
    ),
    "snapshot that is not there": _Refusal(
        message="'validate-from-snapshot-id'", options={"validate-from-snapshot-id": "7"}, is_overwrite=True
    ),
    "column that is filled in": _Refusal(
        message="'metadata-columns'",
        options={"metadata-columns": "_extracted_at"},
        column=spark.StructField("_extracted_at", spark.TimestampType()),
    ),
}


def _planned(sink: Sink, change: _Change, refusal: _Refusal | None = None) -> None:
    """Plan a write with both options; those of the refusal win."""
    refusal = refusal or _Refusal(message="")
    columns = {column.name: column for column in (*SCHEMA, *change.columns)}
    if refusal.column is not None:
        columns[refusal.column.name] = refusal.column
    options = embedded_options(Path(sink.options.warehouse or ""), **{**change.options, **refusal.options})
    mode = WriteMode.OVERWRITE if refusal.is_overwrite else WriteMode.APPEND
    plan_write(sink.catalog, options, spark.StructType(list(columns.values())), mode)


def _contradict(change: _Change, refusal: _Refusal) -> bool:
    """Return whether the options of a refusal say the contrary of those of a change, or do not go with them."""
    asked = {**refusal.options, **({"schema-evolution": "strict"} if refusal.column is _NEW else {})}
    is_other = any(change.options.get(option, text) != text for option, text in asked.items())
    return is_other or (refusal.is_overwrite and "keys" in change.options)


def _refused(sink: Sink, change: _Change, refusal: _Refusal) -> bool:
    """Return whether a write with both options is refused for what it is to be refused for."""
    try:
        _planned(sink, change, refusal)
    except refusal.error as error:
        return refusal.message in str(error)
    return False


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_write_that_is_refused_changes_nothing(sink: Sink, change: _Change) -> None:
    """A table would change with each attempt that comes to nothing."""
    sink.create(_REQUIRED)
    before = sink.table().metadata_location
    refusals = {name: refusal for name, refusal in _REFUSALS.items() if not _contradict(change, refusal)}

    left = {
        name: (_refused(sink, change, refusal), sink.table().metadata_location) for name, refusal in refusals.items()
    }
    _planned(sink, change)

    assert left == dict.fromkeys(refusals, (True, before))
    assert sink.table().metadata_location != before


def test_keys_and_columns_change_in_one_commit(sink: Sink) -> None:
    """Between the commits of each change a crash would leave a table that nobody has asked for."""
    sink.create(_REQUIRED)
    before = sink.table().metadata

    _planned(sink, _EVERYTHING)
    metadata = sink.table().metadata

    assert len(metadata.metadata_log) == len(before.metadata_log) + 1
    assert metadata.schema().identifier_field_ids == [1]
    assert metadata.schema().column_names == ["id", "name", "more"]
    assert [field.name for field in metadata.spec().fields] == ["more"]
    assert [order.fields[0].source_id for order in metadata.sort_orders if order.fields] == [3]


def test_what_was_decided_for_the_changed_table_is_carried_out(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan could say something else than what the change of the table was decided with."""
    sink.create(_REQUIRED)
    looks: list[int] = []
    looked = decide.check_supported
    monkeypatch.setattr(decide, "check_supported", lambda *given: looks.append(1) or looked(*given))

    _planned(sink, _EVERYTHING)
    _planned(sink, _EVERYTHING)

    assert len(looks) == 3  # before the change and after it, and once where nothing is to change


def test_table_that_others_change_meanwhile_is_looked_at_anew(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A table would change for a write that is refused because of what another writer has just done."""
    sink.create(_REQUIRED)

    def change() -> None:
        table = sink.table()
        with table.transaction() as transaction:
            transaction.set_properties({"write.parquet.page-size-bytes": "large"})
            transaction.update_schema().add_column("theirs", LongType()).commit()

    faulty_catalog.before_commit(1, change)
    with pytest.raises(UnsupportedTableError, match="page-size-bytes"):
        _planned(faulty_sink, _EVERYTHING)
    metadata = sink.table().metadata

    assert metadata.schema().column_names == ["id", "name", "theirs"]
    assert metadata.spec().is_unpartitioned()


def test_types_are_not_replaced_by_which_the_same_write_partitions(sink: Sink) -> None:
    """The layout of a table would change with an attempt that comes to nothing."""
    sink.create(_REQUIRED)
    before = sink.table().metadata_location
    change = _Change(
        options={"overwriteschema": "true", "partition-by": "name", "evolve-partitioning": "true"},
        columns=(spark.StructField("name", spark.LongType()),),
    )

    with pytest.raises(SchemaMismatchError, match="cannot be replaced, because the table is, or was, partitioned by"):
        _planned(sink, change, _Refusal(message="", is_overwrite=True))

    assert sink.table().metadata_location == before


@pytest.mark.parametrize("options", [{"compression-level": "99"}, {"branch": "nope", "publish-converted": "false"}])
def test_table_of_a_refused_write_is_not_created(sink: Sink, options: Mapping[str, str]) -> None:
    """A table without rows would be there after an attempt that comes to nothing."""
    change = _CHANGES["first snapshot"]

    with pytest.raises(OptionError):
        _planned(sink, change, _Refusal(message="", options=options))

    assert sink.catalog.find_table(IDENTIFIER) is None
