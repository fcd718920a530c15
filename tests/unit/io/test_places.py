"""Places are read by all as they stand, or refused by name before anything is written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from support.checks.invariants import check_clean
from support.keys.messages import KEYED_SCHEMA
from support.tables.sink import Sink, embedded_options, local, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CatalogError, IcebergSinkError, OptionError, UnsupportedTableError
from iceberg_ds.io.files import ObjectIO
from iceberg_ds.io.local_paths import warehouse
from iceberg_ds.io.places import check_place, misplaced, why_not_a_place
from iceberg_ds.parsing import location

# Of a folder's name.
TAKEN = [
    "a b",
    "100%",
    "a%20b",
    "a%2Fb",
    "a+b",
    "a:b",
    "a;b",
    "ü日本👍",
    "a&b=c,d",
    "a'b\"c",
    "a*b",
    "...",
    "..a",
    "a\\b",
]
REFUSED = {
    "a#b": "'#'",
    "a?b": r"'\?'",
    "a\nb": r"U\+000A",
    "a\tb": r"U\+0009",
    "\x7f": r"U\+007F",
    "..": r"step '\.\.'",
    ".": r"step '\.'",
}
STORES = ["file://", "file:", "", "s3://bucket", "gs://bucket", "abfss://c@a.dfs.core.windows.net"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", TAKEN)
def test_most_characters_are_taken_as_they_stand(store: str, name: str) -> None:
    """Tables that other engines write and read would be refused."""
    assert why_not_a_place(f"{store}/x/{name}/f.parquet") is None


@pytest.mark.parametrize("scheme", ["hdfs", "dbfs", "s3", "S3", "gs", "abfss", "viewfs", "unknown"])
def test_store_is_not_taken_for_a_folder(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a table at `dbfs:/x` would go below the working directory of whichever process writes them."""
    monkeypatch.chdir(tmp_path)
    io = ObjectIO({})
    io.new_output(f"{tmp_path}/local").create().close()

    for place in (f"{scheme}:/warehouse/t/f.parquet", f"{scheme}:t"):
        with pytest.raises(ValueError, match=f"scheme '{scheme}' is not followed by two slashes"):
            io.new_output(place)

    assert [path.name for path in tmp_path.iterdir()] == ["local"]


@pytest.mark.parametrize("place", ["file:", "file:/", "file://", "file:///", "/"])
def test_root_of_the_disk_is_no_place_for_a_table(place: str) -> None:
    """An option left half empty would put files into folders of the machine itself."""
    assert misplaced(place, {})
    assert misplaced("file:///x", {"write.data.path": place})


def test_place_with_a_password_is_refused_without_showing_it() -> None:
    """Hadoop took keys in locations; every error and log line of a file below would show them."""
    location = "s3a://writer:hunter2@bucket/db/t"

    assert "password" in str(why_not_a_place(location))
    assert "hunter2" not in misplaced(location, {"write.data.path": f"{location}/data"})[0]
    with pytest.raises(ValueError, match=r"s3a://\*\*\*@bucket/db/t.* has a password in it"):
        check_place(location)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_readers_do_not_agree_on_is_neither_read_written_nor_deleted(store: str, name: str, reason: str) -> None:
    """Files of the table would be written over each other, or over a stranger's."""
    io, location = ObjectIO(), f"{store}/x/{name}/f.parquet"

    for use in (io.new_input, io.new_output, io.delete, lambda found: io.delete_many([found])):
        with pytest.raises(ValueError, match=f"names no one file: .*{reason}"):
            use(location)


def test_last_step_of_a_local_file_is_not_cut_off() -> None:
    """PyIceberg takes what follows for parameters, and opens another file."""
    assert "';'" in (why_not_a_place("file:///x/f;1.parquet") or "")
    assert why_not_a_place("s3://bucket/f;1.parquet") is None


ELSEWHERE = {
    "file://elsewhere/x": "the host 'elsewhere'",
    "file://localhost/x": "the host 'localhost'",
    "FILE:///x": "scheme 'FILE'",
    "//elsewhere/x": "two slashes",
}


@pytest.mark.parametrize(("place", "reason"), ELSEWHERE.items())
def test_local_place_that_is_another_folder_for_some_is_refused(sink: Sink, place: str, reason: str) -> None:
    """Rows would be in the working directory of each task, and the summary say that they are in the table."""
    with pytest.raises(ValueError, match=f"names no one file: .*{reason}"):
        check_place(f"{place}/f.parquet")
    with pytest.raises(OptionError, match=rf"Cannot create db\.t: its location is .*{reason}"):
        sink.plan(location=place)
    with pytest.raises(OptionError, match=rf"Cannot create db\.t: its property write\.data\.path is .*{reason}"):
        sink.plan(table_properties={"write.data.path": place})


@pytest.mark.parametrize("place", ["lake/t", "./lake", "://b/t", "lake"])
def test_place_below_the_working_directory_is_refused(place: str) -> None:
    """The table would be there only for processes that work in the same folder, and its rows in that of each task."""
    with pytest.raises(ValueError, match="names no one file: it is relative to the folder that a process works in"):
        check_place(f"{place}/f.parquet")
    (problem,) = misplaced(place, {})
    assert problem.startswith(f"its location is '{place}', which readers do not agree on: it is relative to the folder")
    with pytest.raises(ValueError, match="expected a location"):
        location(place)


@pytest.mark.parametrize("text", ["", " ", "/lake\0"])
def test_folder_of_no_name_is_no_warehouse(text: str) -> None:
    """The catalog would be made in the working directory itself."""
    with pytest.raises(ValueError, match="expected the path of a local folder"):
        warehouse(text)


def test_stores_have_hosts_and_schemes_of_all_kinds() -> None:
    """Tables in other stores would be refused with local ones."""
    for place in ("s3://bucket//x", "S3://bucket/x", "hdfs://host:8020/x", "file:////x", "file:/x", "/x"):
        assert why_not_a_place(place) is None, place


def files_in(folder: Path) -> list[Path]:
    """Return all files below a folder but the catalog's own."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("catalog.db"))


@pytest.mark.parametrize("name", TAKEN)
def test_tables_in_such_folders_are_whole(sink: Sink, warehouse: Path, name: str) -> None:
    """A second append would take the place of the first, or of a stranger's file."""
    beside = warehouse.parent / "data"
    stranger = beside / "a"
    stranger.parent.mkdir()
    stranger.write_text("mine")
    options = replace(
        sink.options,
        location=f"file://{beside}/{name}/t",
        table_properties={
            "write.data.path": f"file://{beside}/{name} d",
            "write.metadata.path": f"file://{beside}/{name} m",
        },
    )
    writer = Sink(catalog=sink.catalog, options=options)

    writer.append(1, 2)
    writer.append(3, 4)

    assert writer.ids() == [1, 2, 3, 4]
    check_clean(writer.table())
    assert stranger.read_text() == "mine"
    assert {path.parent.name for path in files_in(beside) if path != stranger} == {f"{name} d", f"{name} m"}


PLACES = ["location", "write.data.path", "write.metadata.path"]


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
@pytest.mark.parametrize("place", PLACES)
def test_new_table_in_another_place_is_refused_before_anything_is_written(
    sink: Sink, warehouse: Path, place: str, name: str, reason: str
) -> None:
    """A stranger's file would be written over, and rows of the table lost."""
    folder = f"file://{warehouse.parent}/x{name if len(name) > 2 else f'/{name}/d'}"
    options = {"location": folder} if place == "location" else {"table_properties": {place: folder}}

    with pytest.raises(OptionError, match=rf"Cannot create db\.t: its (property )?{place} is .*{reason}"):
        sink.plan(**options)

    assert files_in(warehouse.parent) == []


def set_by_another_writer(sink: Sink, warehouse: Path, key: str, value: str) -> None:
    """Set a property of the table, as a writer does that agrees with such places."""
    path = local(sink.table().metadata_location)
    metadata = json.loads(path.read_text())
    metadata["properties"][key] = value
    changed = path.with_name("00009-changed.metadata.json")
    changed.write_text(json.dumps(metadata))
    with closing(sqlite3.connect(warehouse / "catalog.db")) as database, database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{changed}",))


@pytest.mark.parametrize("place", PLACES[1:])
def test_property_that_is_set_later_is_refused(sink: Sink, warehouse: Path, place: str) -> None:
    """The next write would lose rows of a table that was whole."""
    sink.append(1)
    set_by_another_writer(sink, warehouse, place, f"file://{warehouse}/x#1")
    before = files_in(warehouse)

    with pytest.raises(UnsupportedTableError, match=f"Cannot write to db.t: its property {place} is .*'#'"):
        sink.append(2)

    assert files_in(warehouse) == before


@pytest.mark.parametrize("place", PLACES[1:])
def test_property_that_is_set_meanwhile_is_refused(sink: Sink, warehouse: Path, place: str) -> None:
    """Files would be written where a stranger's are."""
    sink.append(1)
    messages = sink.write(rows(2))
    set_by_another_writer(sink, warehouse, place, f"file://{warehouse}/x#1")

    if place == "write.metadata.path":
        with pytest.raises(IcebergSinkError, match="names no one file"):
            sink.commit(messages)
    else:
        sink.commit(messages)

    assert not (warehouse / "x").exists()


@pytest.mark.parametrize("table", ["db.a#b", "db.a?b", "d#b.t"])
def test_names_that_make_such_places_are_refused(warehouse: Path, table: str) -> None:
    """The table would be created where another one is, and be unknown then."""
    options = replace(embedded_options(warehouse), table=tuple(table.split(".")))
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)

    with pytest.raises(
        OptionError, match=r"Cannot create .*: readers would not agree on a place of that name: .*'[#?]'"
    ):
        sink.append(1)

    assert files_in(warehouse) == []
    settings = catalog_settings(options)
    assert load_catalog(settings.name, **dict(settings.properties)).list_namespaces() == []


def test_table_of_such_a_name_may_have_a_place_of_its_own(warehouse: Path) -> None:
    """A table that its users call so could not be written at all."""
    location = f"file://{warehouse}/elsewhere"
    options = replace(embedded_options(warehouse), table=("d#b", "a?b"), location=location)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)

    sink.append(1)
    sink.append(2)

    assert sink.ids() == [1, 2]


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_table_of_another_writer_in_such_a_place_is_refused_with_the_reason(
    sink: Sink, warehouse: Path, name: str
) -> None:
    """People would look for a file that is there."""
    folder = warehouse / name
    sink.create(KEYED_SCHEMA)
    found = sink.table()
    metadata = Path(found.metadata_location.removeprefix("file://"))
    (folder / "metadata").mkdir(parents=True)
    other = folder / "metadata" / metadata.name
    other.write_text(metadata.read_text().replace(found.location(), f"file://{folder}"))
    settings = catalog_settings(sink.options)
    catalog = load_catalog(settings.name, **dict(settings.properties))
    catalog.drop_table("db.t")
    register(warehouse, f"file://{other}")

    with pytest.raises(CatalogError, match=r"names no one file: it has '[#?]' in it"):
        sink.append(1)


def register(warehouse: Path, metadata_location: str) -> None:
    """Enter a table into the catalog as Iceberg's Java library does, which reads the file."""
    with closing(sqlite3.connect(warehouse / "catalog.db")) as database, database:
        database.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            "VALUES ('default', 'db', 't', ?, 'TABLE')",
            (metadata_location,),
        )
