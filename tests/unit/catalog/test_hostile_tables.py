"""A table's properties name code, hosts and credentials; nobody who writes to the table believes them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.dynamodb import DynamoDbCatalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.locations import LocationProvider
from support.catalogs.rest_fake import serve_rest_fake
from support.catalogs.rest_sinks import sink_of
from support.keys.conversions import convert
from support.keys.messages import KEYED_SCHEMA, keyed_tasks, plan_by_keys
from support.keys.upserts import ENCODINGS, commit_upsert, upsert, upsert_plan
from support.tables.hostile_tables import CANARY, Canary, Listener, give_properties, listening
from support.tables.sink import IDENTIFIER, Sink, embedded_options, local, paths_of, rows

from iceberg_ds import convert_deletes, verify
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.own_storage import with_own_storage
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.commit.commit import abort_write
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.table.locations import PROVIDER


class Mine(LocationProvider):
    """A class that the user trusts with the places of files."""

    def new_data_location(self, data_file_name: str, partition_key: Any = None) -> str:  # noqa: ARG002  # PyIceberg's signature
        """Return a place that no layout of Iceberg's has."""
        return f"{self.table_location}/mine/{data_file_name}"


MINE = f"{Mine.__module__}.{Mine.__name__}"


@pytest.fixture(autouse=True)
def listener() -> Iterator[Listener]:
    """Return the host that the tables name; whatever the test does, nobody may come, and no canary sing."""
    Canary.calls.clear()
    with listening() as listener:
        yield listener
    assert listener.received == []
    assert Canary.calls == []


@pytest.fixture(params=["embedded", "memory", "rest"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, listener: Listener) -> Iterator[Sink]:
    """Return what writes to a table with a row and hostile properties, by each kind of catalog in turn."""
    if request.param == "rest":
        with serve_rest_fake(tmp_path) as fake:
            yield hostile(sink_of(fake), listener)
        return
    found: Sink = request.getfixturevalue("embedded")
    if request.param == "memory":
        catalog = with_own_storage(InMemoryCatalog("lake", warehouse=f"file://{tmp_path}/lake"))
        client = CatalogClient(catalog, CatalogSettings(name="lake", properties=()))
        found = Sink(catalog=client, options=found.options)
    yield hostile(found, listener)


@pytest.fixture
def embedded(catalog: CatalogClient, warehouse: Path) -> Sink:
    """Return what writes to the embedded catalog."""
    return Sink(catalog=catalog, options=embedded_options(warehouse))


def hostile(sink: Sink, listener: Listener) -> Sink:
    """Return the sink, whose table has a row and hostile properties."""
    sink.append(1)
    give_properties(sink, **listener.properties)
    return sink


def test_hostile_table_is_written_and_nobody_believes_it(sink: Sink, listener: Listener) -> None:
    """Whoever may set a table's properties would run code as others, and get their credentials and rows."""
    sink.append(2)
    sink.commit(sink.hand_over(rows(3)))
    sink.overwrite(rows(1, 4), replace_where="id = 1 OR id = 4")
    failed = sink.write(rows(5))
    abort_write(sink.catalog, [*failed, None])

    assert sink.ids() == [1, 2, 3, 4]
    assert not any(path.exists() for path in paths_of(failed))
    assert sink.table().properties.items() >= listener.properties.items()


def test_what_opens_the_files_of_a_hostile_table_has_nothing_of_it(sink: Sink, listener: Listener) -> None:
    """Tasks would open files by the table's host, with the user's credentials."""
    table, plan = sink.table(), sink.plan()
    opened = sink.catalog.file_io(IDENTIFIER, table.location())

    for properties in (table.io.properties, plan.io_properties, opened.properties):
        assert {key for key, text in listener.properties.items() if properties.get(key) == text} == set()
    assert listener.address not in json.dumps({**plan.properties, **plan.io_properties})


def test_functions_of_the_package_do_not_believe_a_hostile_table(
    embedded: Sink, warehouse: Path, listener: Listener
) -> None:
    """An upkeep job, which has more rights than others, would be taken over by the table that it looks after."""
    hostile(embedded, listener)

    result = verify("db.t", options={"warehouse": str(warehouse)}, deep=True)
    converted = convert_deletes("db.t", options={"warehouse": str(warehouse)})

    assert result.ok
    assert converted.delete_files == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_upserts_and_conversions_do_not_believe_a_hostile_table(
    embedded: Sink, listener: Listener, encoding: RowEncoding
) -> None:
    """They look for rows in tasks of their own, and write files in the committer."""
    embedded.create(KEYED_SCHEMA)
    upsert(embedded, encoding, [("I", 1, "EU", 1, 1), ("I", 2, "EU", 2, 2)])
    upserted, streamed = upsert_plan(embedded), plan_by_keys(embedded)
    give_properties(embedded, **listener.properties)

    result = commit_upsert(embedded, upserted, encoding, keyed_tasks(upserted, [("U", 2, "EU", 3, 3)]))
    embedded.commit(keyed_tasks(streamed, [("U", 1, "EU", 4, 4)]))
    converted = convert(embedded, encoding)

    assert result.replaced_rows == 1
    assert converted.delete_files == 1
    assert [row["amount"] for row in embedded.rows()] == [4, 3]


def test_what_a_rest_catalog_vends_counts_and_what_the_table_says_does_not(tmp_path: Path, listener: Listener) -> None:
    """Vended credentials would be lost with the table's, or a table could take their place."""
    with serve_rest_fake(tmp_path) as fake:
        sink = hostile(sink_of(fake, **{"s3.access-key-id": "mine", "s3.secret-access-key": "mine"}), listener)
        fake.vend = lambda _: {"config": {"s3.endpoint": "https://store.example", "gcs.project-id": "vended"}}
        properties = sink.table().io.properties

    assert properties["s3.endpoint"] == "https://store.example"
    assert properties["gcs.project-id"] == "vended"
    assert properties["s3.access-key-id"] == "mine"
    assert not any(listener.address in text for text in properties.values())


def test_class_that_a_table_names_for_its_files_places_is_refused_unless_an_option_names_it(sink: Sink) -> None:
    """Whoever may set a table's properties would run code in planner and tasks, or files would go elsewhere unseen."""
    give_properties(sink, provider=CANARY)
    for asked in ({}, {PROVIDER: MINE}):
        with pytest.raises(UnsupportedTableError, match=f"table-property.{PROVIDER}={CANARY}"):
            sink.plan(table_properties=asked)

    assert sink.ids() == [1]


def test_class_that_a_table_names_between_plan_and_commit_does_not_run(sink: Sink) -> None:
    """The committer, which has the catalog's credentials, would run it."""
    written, handed_over = sink.write(rows(2)), sink.hand_over(rows(3))
    replaced = sink.write_over(rows(4), replace_where="id = 4")
    give_properties(sink, provider=CANARY)

    for messages in (written, handed_over, replaced):
        sink.commit(messages)

    assert sink.ids() == [1, 2, 3, 4]


def test_class_that_the_user_names_too_says_where_files_go(embedded: Sink) -> None:
    """A table with a layout of its user's could not be written at all."""
    trusting = replace(embedded, options=replace(embedded.options, table_properties={PROVIDER: MINE}))
    trusting.append(1)
    trusting.commit(trusting.hand_over(rows(2)))
    table = trusting.table()
    paths = [local(task.file.file_path) for task in table.scan().plan_files()]

    assert trusting.ids() == [1, 2]
    assert {path.parent for path in paths} == {local(table.location()) / "mine"}
    assert local(table.metadata_location).parent == local(table.location()) / "metadata"


@pytest.mark.parametrize(
    "kind",
    [SqlCatalog, InMemoryCatalog, HiveCatalog, GlueCatalog, DynamoDbCatalog],
)
def test_every_kind_of_catalog_opens_storage_by_its_own_properties(kind: type[MetastoreCatalog]) -> None:
    """A catalog that no test can start would believe its tables."""
    catalog: Any = kind.__new__(kind)
    Catalog.__init__(catalog, "lake", warehouse="file:///lake", token="mine")  # noqa: S106  # no secret
    own: Any = with_own_storage(catalog)
    io = own._load_file_io({"py-io-impl": CANARY, "token": "of-the-table"}, "file:///lake/t/metadata.json")

    assert isinstance(own, kind)
    assert io.properties["token"] == "mine"  # noqa: S105
    functions = [member for part in kind.__mro__ for member in vars(part).values() if inspect.isfunction(member)]
    assert any("_load_file_io" in function.__code__.co_names for function in functions)


def test_catalog_of_the_users_own_class_opens_storage_as_it_was_written_to() -> None:
    """A user's class that opens storage in its own way would lose it."""

    class Own(InMemoryCatalog):
        def _load_file_io(self, *_: Any, **__: Any) -> FileIO:
            return LocalFileIO({"own": "true"})

    catalog = with_own_storage(Own("lake", warehouse="file:///lake"))

    assert type(catalog) is Own


def test_a_catalog_is_told_once(tmp_path: Path) -> None:
    """Each client of a catalog would wrap it anew."""
    catalog = with_own_storage(InMemoryCatalog("lake", warehouse=f"file://{tmp_path}"))
    kind = type(catalog)

    assert type(with_own_storage(catalog)) is kind
    assert kind.__name__ == "InMemoryCatalog"
