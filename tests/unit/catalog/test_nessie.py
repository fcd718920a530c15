"""What Nessie leaves out of the commit protocol, and that no row is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
)
from pyiceberg.types import LongType, NestedField
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost
from support.catalogs.lax_catalog import NESSIE, LaxCatalog
from support.tables.metadata import ID_AND_NAME, identity, metadata_of
from support.tables.sink import IDENTIFIER, QUERY, Sink, embedded_options, epoch, paths_of, rows

from iceberg_ds.catalog import client as catalog_module
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.nessie import guarded, is_nessie
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.plan import EpochId, Route
from iceberg_ds.snapshots.snapshot import commit_request, creation_request, new_snapshot
from iceberg_ds.table.requests import AddSchema, CommitRequest, UpgradeFormatVersion

pytestmark = pytest.mark.usefixtures("waits")

TOLD = {"nessie.is-nessie-catalog": "true"}


@pytest.fixture
def nessie(tmp_path: Path) -> LaxCatalog:
    """Return a catalog that does as Nessie does."""
    return LaxCatalog(tmp_path, NESSIE, TOLD)


@pytest.fixture
def unreliable(nessie: LaxCatalog) -> FaultyCatalog:
    """Return the same catalog, whose commits fail on demand."""
    return FaultyCatalog(nessie)


@pytest.fixture
def writer(unreliable: FaultyCatalog, tmp_path: Path) -> Sink:
    """Return what writes to `db.t` in it."""
    # The client only calls methods that the faulty catalog has, too.
    client = CatalogClient(unreliable, CatalogSettings(name="nessie", properties=()))  # type: ignore[arg-type]
    return Sink(catalog=client, options=embedded_options(tmp_path))


@pytest.fixture
def other(nessie: LaxCatalog, tmp_path: Path) -> Sink:
    """Return another writer to the same table."""
    client = CatalogClient(nessie, CatalogSettings(name="nessie", properties=()))
    return Sink(catalog=client, options=embedded_options(tmp_path))


def first_request(metadata: TableMetadata) -> CommitRequest:
    """Return what any catalog gets for the first snapshot of a table."""
    write = identity(table_uuid=metadata.table_uuid)
    return commit_request(metadata, write, new_snapshot(metadata, write, Operation.APPEND, {}, "x"), is_new=False)


def test_nessie_is_known_by_what_it_tells_its_clients() -> None:
    """Its traps would not be guarded against, or other catalogs' tables get schemas that nobody uses."""
    assert is_nessie(TOLD)
    assert not is_nessie({"nessie.is-nessie-catalog": "false"})
    assert not is_nessie({"uri": "http://127.0.0.1:1/nessie"})


def race(writer: Sink, other: Sink, unreliable: FaultyCatalog) -> None:
    """Let `other` commit its first rows between look and commit of the first rows of `writer`."""
    unreliable.before_commit(1, lambda: other.append(2) and None)
    writer.append(1)


def test_two_first_commits_into_an_empty_table_are_both_kept(
    nessie: LaxCatalog, writer: Sink, other: Sink, unreliable: FaultyCatalog
) -> None:
    """The second of two writers that begin at once would replace the rows of the first."""
    nessie.create_table(IDENTIFIER, ID_AND_NAME)

    race(writer, other, unreliable)

    assert writer.ids() == [1, 2]
    assert unreliable.commits == 2
    assert writer.table().schema() == ID_AND_NAME


def test_without_the_guard_two_first_commits_lose_rows(
    nessie: LaxCatalog, writer: Sink, other: Sink, unreliable: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of the guard would prove nothing."""
    monkeypatch.setattr(catalog_module, "guarded", lambda request, *_, **__: request)
    nessie.create_table(IDENTIFIER, ID_AND_NAME)

    race(writer, other, unreliable)

    assert writer.ids() == [1]


def test_first_commit_that_arrives_late_does_not_replace_rows(nessie: LaxCatalog, writer: Sink, other: Sink) -> None:
    """A request that hung in the network would replace what was written meanwhile."""
    nessie.create_table(IDENTIFIER, ID_AND_NAME)
    table = other.table()
    late = first_request(table.metadata)
    writer.append(1)

    with pytest.raises(Exception, match="last assigned field id"):
        other.catalog.send(table, late.requirements, late.updates)

    assert writer.ids() == [1]


def test_table_is_born_with_its_rows(writer: Sink, other: Sink, unreliable: FaultyCatalog) -> None:
    """Nessie refuses a schema without the last column id, and no table could be created."""
    race(writer, other, unreliable)

    assert writer.ids() == [1, 2]


def test_stream_creates_its_table(writer: Sink) -> None:
    """Nessie refuses a request that sets properties twice: no stream could create its table."""
    writer.append(1, of_epoch=epoch(0))
    result = writer.append(1, of_epoch=epoch(0))

    assert result.was_replayed
    assert writer.ids() == [1]


def add_column(sink: Sink) -> None:
    """Add a column to the table, without any snapshot."""
    table = sink.table()
    wider = Schema(*table.schema().fields, NestedField(3, "more", LongType()), schema_id=1)
    sink.catalog.send(table, (), (AddSchema(schema_=wider, last_column_id=3), SetCurrentSchemaUpdate(schema_id=1)))


def test_rows_do_not_take_back_a_change_of_the_schema(writer: Sink, other: Sink, unreliable: FaultyCatalog) -> None:
    """A column that another writer adds at the same moment would be gone again."""
    writer.append(1)
    unreliable.before_commit(2, lambda: add_column(other))

    writer.append(2)

    assert [field.name for field in writer.table().schema().fields] == ["id", "name", "more"]
    assert writer.ids() == [1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "audit"},
        {"branch": "audit", "create_branch": True},
        {"staging_branch": "s"},
        {"publish_converted": True},
    ],
)
def test_branches_are_refused_before_anything_is_written(writer: Sink, options: dict[str, object]) -> None:
    """Rows for a branch would replace those of the table."""
    writer.append(1)

    with pytest.raises(UnsupportedTableError, match=r"branch '\w+' of db\.t: Nessie holds no branches.*catalog\.uri"):
        writer.plan(**options)

    assert writer.ids() == [1]


def test_no_request_moves_another_branch(writer: Sink) -> None:
    """A caller that did not ask first would replace the rows of the table."""
    writer.append(1)
    metadata = writer.table().metadata
    write = replace(identity(table_uuid=metadata.table_uuid), route=Route(branch="audit", fork_from="main"))
    request = commit_request(metadata, write, new_snapshot(metadata, write, Operation.APPEND, {}, "x"), is_new=False)

    with pytest.raises(UnsupportedTableError, match="Nessie holds no branches"):
        writer.catalog.send(writer.table(), request.requirements, request.updates)

    assert writer.ids() == [1]


def test_overwrite_that_others_have_overtaken_keeps_their_rows(writer: Sink, other: Sink) -> None:
    """Nessie shows no history to find conflicts in: rows of another writer would be overwritten unseen."""
    writer.append(1)
    messages = writer.write_over(rows(9))
    other.append(2)
    other.append(3)

    with pytest.raises(CommitConflictError):
        writer.commit(messages)

    assert writer.ids() == [1, 2, 3]


LOOKS = {"batch": None, "stream": epoch(5)}


@pytest.mark.parametrize("kind", LOOKS)
def test_landing_is_found_after_its_answer_was_lost_and_others_have_written(
    writer: Sink, other: Sink, unreliable: FaultyCatalog, kind: str
) -> None:
    """Nessie shows one snapshot only: a write below another one's would be doubled, or its files deleted."""
    writer.append(1)
    unreliable.fail_next(1, connection_lost, when=When.AFTER)
    unreliable.after_commit(2, lambda: other.append(3) and None)

    messages = writer.write(rows(2), of_epoch=LOOKS[kind])
    writer.commit(messages)

    assert writer.ids() == [1, 2, 3]
    assert all(path.exists() for path in paths_of(messages))


@pytest.mark.parametrize("kind", LOOKS)
def test_first_rows_are_found_after_their_answer_was_lost_and_others_have_written(
    nessie: LaxCatalog, writer: Sink, other: Sink, unreliable: FaultyCatalog, kind: str
) -> None:
    """A first write below another one's would be doubled, or its files deleted."""
    nessie.create_table(IDENTIFIER, ID_AND_NAME)
    unreliable.fail_next(1, connection_lost, when=When.AFTER)
    unreliable.after_commit(1, lambda: other.append(3) and None)

    writer.append(2, of_epoch=LOOKS[kind])

    assert writer.ids() == [2, 3]


def test_batch_that_was_replaced_before_it_was_seen_is_known_by_its_child(
    writer: Sink, other: Sink, unreliable: FaultyCatalog
) -> None:
    """A batch that landed and was then overwritten would be written again, or fail in doubt."""
    writer.append(1)
    unreliable.fail_next(1, connection_lost, when=When.AFTER)
    unreliable.after_commit(2, lambda: other.overwrite(rows(9)) and None)

    messages = writer.write(rows(2))
    result = writer.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert writer.ids() == [9]
    assert all(path.exists() for path in paths_of(messages))


def test_epoch_that_was_replaced_before_it_was_seen_is_not_written_again(
    writer: Sink, other: Sink, unreliable: FaultyCatalog
) -> None:
    """A micro-batch that landed and was then overwritten would come back."""
    writer.append(1)
    unreliable.fail_next(1, connection_lost, when=When.AFTER)
    unreliable.after_commit(2, lambda: other.overwrite(rows(9)) and None)

    writer.append(2, of_epoch=epoch(5))

    assert writer.ids() == [9]


def test_epoch_is_skipped_after_others_have_written(writer: Sink, other: Sink) -> None:
    """A restarted stream would write its last micro-batch twice."""
    writer.append(1, of_epoch=epoch(5))
    other.append(2)

    result = writer.append(1, of_epoch=epoch(5))

    assert result.was_replayed
    assert writer.ids() == [1, 2]


def test_second_driver_is_told_from_a_restart_after_others_have_written(writer: Sink, other: Sink) -> None:
    """Of two live drivers on one checkpoint, which divide its rows differently, one would skip rows in silence."""
    ours, theirs = ((lambda number, run=run: EpochId(query_id=QUERY, epoch_id=number, run_id=run)) for run in "ab")
    writer.append(1, of_epoch=ours(5))
    for number in (6, 7):
        other.append(number, of_epoch=theirs(number))

    with pytest.raises(CommitConflictError, match="another live driver"):
        writer.append(8, of_epoch=ours(7))

    assert writer.ids() == [1, 6, 7]


def with_more(metadata: TableMetadata) -> AddSchemaUpdate:
    """Return an update that adds a column."""
    return AddSchema(schema_=Schema(*metadata.schema().fields, NestedField(3, "more", LongType())), last_column_id=3)


def test_first_rows_with_a_new_schema_use_up_an_id_with_that_schema() -> None:
    """The schema that the rows need would not become the table's, or a second first commit be accepted."""
    metadata = metadata_of()
    request = first_request(metadata)
    changing = CommitRequest(
        requirements=(
            *request.requirements,
            AssertCurrentSchemaId(current_schema_id=0),
            AssertLastAssignedFieldId(last_assigned_field_id=2),
        ),
        updates=(with_more(metadata), SetCurrentSchemaUpdate(schema_id=-1), *request.updates),
    )

    found = guarded(changing, metadata, table_name="db.t")

    (added,) = [update for update in found.updates if isinstance(update, AddSchema)]
    assert (added.schema_.field_ids, added.last_column_id) == ({1, 2, 3}, 4)
    assert len([need for need in found.requirements if isinstance(need, AssertLastAssignedFieldId)]) == 1
    assert len([need for need in found.requirements if isinstance(need, AssertCurrentSchemaId)]) == 1


def test_schema_that_is_added_once_more_differs_from_every_one() -> None:
    """Nessie drops a schema that it knows, and with it the guard."""
    commented = Schema(NestedField(1, "id", LongType(), doc="the key"), identifier_field_ids=[])

    for schema in (ID_AND_NAME, commented):
        metadata = metadata_of(schemas=[schema])
        added, *_ = guarded(first_request(metadata), metadata, table_name="db.t").updates
        assert isinstance(added, AddSchema)
        assert added.schema_.as_struct() != schema.as_struct()
        assert added.schema_.schema_id == 1
        assert [(field.field_id, field.name) for field in added.schema_.fields] == [
            (field.field_id, field.name) for field in schema.fields
        ]


def test_upgrade_to_version_3_is_refused_by_name() -> None:
    """A user would get an answer of the server that says nothing, or a table that it can no longer load."""
    request = CommitRequest(requirements=(), updates=(UpgradeFormatVersion(format_version=3),))

    with pytest.raises(
        UnsupportedTableError, match=r"Cannot upgrade db\.t to format version 3: Nessie does not know it"
    ):
        guarded(request, metadata_of(), table_name="db.t")


@pytest.mark.parametrize("make", [creation_request])
def test_creation_is_sent_as_it_is(make: Callable[[TableMetadata], CommitRequest]) -> None:
    """A new table would be refused, or begin with a schema that nobody uses."""
    request = make(metadata_of())

    assert guarded(request, metadata_of(), table_name="db.t") == request


def test_branches_are_not_published(writer: Sink) -> None:
    """A user would be told that rows were published that are in the table already."""
    writer.append(1)

    with pytest.raises(Exception, match="it has no branch 'audit'"):
        publish_branch(writer.catalog, IDENTIFIER, "audit", "main")
