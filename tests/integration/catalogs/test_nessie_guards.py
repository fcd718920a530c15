"""What Nessie does not refuse, and that the sink loses no row by it: several writers against the real server."""

from __future__ import annotations

import secrets

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from support.services.servers import CatalogService
from support.tables.sink import SCHEMA, Sink, epoch, rows

from iceberg_ds.catalog import client as catalog_module
from iceberg_ds.catalog.answers import CommitRefusedError
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import CatalogSettings, catalog_settings
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.inspect.scratch import ScratchTables, total_records
from iceberg_ds.options.parse import parse_options

WRITERS = 3


def sink(service: CatalogService) -> Sink:
    """Return what writes to a table that no other test uses, and that does not exist yet."""
    options = parse_options({**service.options, "table": f"guards.t{secrets.token_hex(6)}"})
    catalog = connect(catalog_settings(options))
    catalog.raw.create_namespace_if_not_exists("guards")
    return Sink(catalog=catalog, options=options)


def first_commits(scratch: ScratchTables) -> int:
    """Let several writers look at an empty table before any of them commits; return how many of them are in it."""
    name = scratch.table().name()
    looked = [catalog.load_table(name) for catalog in scratch.connections(WRITERS)]
    for catalog, empty, request in [
        (catalog, table, scratch.with_snapshot(table))
        for catalog, table in zip(scratch.connections(WRITERS), looked, strict=True)
    ]:
        try:
            scratch.commit(empty, request, catalog=catalog, is_plain=False)
        except CommitRefusedError:
            now = catalog.load_table(name)
            scratch.commit(now, scratch.with_snapshot(now), catalog=catalog, is_plain=False)
    return total_records(scratch.load(name))


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "plain"])
def test_first_commits_at_once_are_all_kept(
    nessie: CatalogService, monkeypatch: pytest.MonkeyPatch, *, is_guarded: bool
) -> None:
    """Of writers that begin at once the last would replace the rows of the others."""
    if not is_guarded:
        monkeypatch.setattr(catalog_module, "guarded", lambda request, *_, **__: request)
    catalog = connect(CatalogSettings(name="nessie", properties=tuple(sorted(nessie.properties.items()))))
    with ScratchTables(catalog, ("guards",), catalog.another) as scratch:
        landed = first_commits(scratch)

    assert landed == (WRITERS if is_guarded else 1)


def test_table_is_born_with_its_rows_and_takes_a_new_column(nessie: CatalogService) -> None:
    """Nessie refuses a schema without the last column id: no table could be created, no column added."""
    writer = sink(nessie)
    wider = StructType([*SCHEMA.fields, StructField("more", LongType())])

    writer.append(1)
    plan = writer.plan(wider, schema_evolution="add-columns")
    writer.commit(writer.write([{"id": 2, "name": "b", "more": 3}], schema=wider, plan=plan))

    assert writer.table().schema().column_names == ["id", "name", "more"]
    assert writer.ids() == [1, 2]


def test_rows_do_not_take_back_a_change_of_the_schema(nessie: CatalogService) -> None:
    """A column that another writer adds at the same moment would be gone again."""
    writer = sink(nessie)
    writer.append(1)
    with ScratchTables(writer.catalog, ("guards",), writer.catalog.another) as scratch:
        before = writer.table()
        late = scratch.with_snapshot(before)
        writer.plan(StructType([*SCHEMA.fields, StructField("more", LongType())]), schema_evolution="add-columns")

        with pytest.raises(CommitRefusedError, match="current schema changed"):
            scratch.commit(before, late, is_plain=False)

    assert "more" in writer.table().schema().column_names


def test_rows_for_a_branch_do_not_replace_those_of_the_table(nessie: CatalogService) -> None:
    """Nessie takes a snapshot of any branch for the table's."""
    writer = sink(nessie)
    writer.append(1)

    for options in ({"branch": "audit", "create_branch": True}, {"staging_branch": "staging"}):
        with pytest.raises(UnsupportedTableError, match="Nessie holds no branches"):
            writer.plan(**options)

    assert writer.ids() == [1]


def test_epoch_is_written_once_after_others_have_written(nessie: CatalogService) -> None:
    """Nessie shows the newest snapshot only: a restarted stream would write its last micro-batch again."""
    writer = sink(nessie)
    writer.append(1, of_epoch=epoch(5))
    writer.append(2)

    result = writer.append(1, of_epoch=epoch(5))

    assert result.was_replayed
    assert len(writer.table().metadata.snapshots) == 1
    assert writer.ids() == [1, 2]


def test_first_rows_go_into_an_empty_table_with_its_schema(nessie: CatalogService) -> None:
    """The schema that guards a first commit would become the table's."""
    writer = sink(nessie)
    writer.catalog.raw.create_table(writer.options.table, sink_schema(writer))

    writer.append(1)
    writer.overwrite(rows(2))

    assert writer.table().schema().column_names == ["id", "name"]
    assert writer.ids() == [2]


def sink_schema(writer: Sink) -> object:
    """Return the schema that the first rows of a table would give it."""
    return writer.plan().schema
