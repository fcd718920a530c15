"""The door to the catalog: which one, how it is opened, and what its errors become."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyiceberg.catalog
import pytest
from hive_metastore.ttypes import MetaException
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError, UnauthorizedError
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table.snapshots import Operation
from pyiceberg.utils.config import Config
from requests import HTTPError, Request, Response
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.tables.metadata import ID_AND_NAME, identity
from support.tables.sink import IDENTIFIER, NAME, Sink, embedded_options

from iceberg_ds.catalog import loading as catalog_loading
from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.metadata_files import files_at_hand
from iceberg_ds.catalog.settings import CatalogSettings, catalog_settings
from iceberg_ds.errors import CatalogError, OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import NewTable
from iceberg_ds.snapshots.snapshot import commit_request, new_snapshot
from iceberg_ds.table.requests import CommitRequest

SECRET = "hunter2-s3cr3t"  # noqa: S105  # the thing to hide


def options(**raw: str) -> SinkOptions:
    """Return parsed options; `__` in a name stands for a dot."""
    return parse_options({"table": NAME, **{key.replace("__", ".").replace("_", "-"): raw[key] for key in raw}})


def test_without_any_catalog_it_is_the_embedded_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user could not write a first table without setting up a catalog."""
    monkeypatch.chdir(tmp_path)

    settings = catalog_settings(options())

    assert settings.name == "default"
    properties = dict(settings.properties)
    assert properties["uri"].startswith(f"sqlite:///{tmp_path}/iceberg-warehouse/catalog.db")
    assert properties["warehouse"] == f"file://{tmp_path}/iceberg-warehouse"


def test_warehouse_is_the_folder_of_the_embedded_catalog(sink: Sink, warehouse: Path) -> None:
    """Tables would be written where nobody looks for them."""
    sink.append(1)

    assert (warehouse / "catalog.db").exists()
    assert sink.table().metadata.location == f"file://{warehouse}/db/t"


@pytest.mark.parametrize("name", ["with space", "ünïcode", "a&b=c", "per%cent", "per%20cent"])
def test_warehouse_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    """A user whose folder has an unusual name could not write at all, or would write elsewhere."""
    named = embedded_options(tmp_path / name)
    sink = Sink(catalog=connect(catalog_settings(named)), options=named)

    sink.append(1, 2)

    assert sink.ids() == [1, 2]
    assert (tmp_path / name / "catalog.db").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["hash#", "quest?ion"])
def test_warehouse_folder_whose_name_a_url_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    """Data would be written into another folder than the one that was named."""
    with pytest.raises(OptionError, match="warehouse"):
        embedded_options(tmp_path / name)


def test_catalog_may_be_described_by_options() -> None:
    """A user could not reach a catalog without a configuration file."""
    settings = catalog_settings(options(catalog="lake", catalog__uri="http://127.0.0.1:1", catalog__s3_region="x"))

    assert settings == CatalogSettings(name="lake", properties=(("s3-region", "x"), ("uri", "http://127.0.0.1:1")))


def test_catalog_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would have to put credentials into options."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")

    assert catalog_settings(options(catalog="lake")) == CatalogSettings(name="lake", properties=())


def test_catalog_may_come_from_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would have to put credentials into options."""
    text = "default-catalog: lake\ncatalog:\n  lake:\n    uri: http://127.0.0.1:1\n"
    (tmp_path / ".pyiceberg.yaml").write_text(text)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))

    assert catalog_settings(options()) == CatalogSettings(name="lake", properties=())


def test_configured_catalog_is_the_one_that_is_opened(tmp_path: Path) -> None:
    """Rows would go into another catalog than the configured one."""
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  lake:\n    type: sql\n    uri: sqlite:///{tmp_path}/lake.db\n    warehouse: file://{tmp_path}/wh\n"
    )
    script = (
        "from iceberg_ds.catalog.client import connect; from iceberg_ds.catalog.settings import catalog_settings\n"
        "from iceberg_ds.options.parse import parse_options\n"
        "client = connect(catalog_settings(parse_options({'table': 'db.t', 'catalog': 'lake'})))\n"
        "print(client.find_table(('db', 't')))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYICEBERG_HOME": str(tmp_path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "None"), done.stderr
    assert (tmp_path / "lake.db").exists()


@pytest.mark.parametrize("given", [{"catalog__uri": "http://127.0.0.1:1"}, {"catalog": "lake", "catalog__uri": "x"}])
def test_warehouse_beside_a_configured_catalog_is_refused(tmp_path: Path, given: dict[str, str]) -> None:
    """A user would believe that the folder is used."""
    with pytest.raises(OptionError, match=r"use 'catalog\.warehouse', or drop one"):
        catalog_settings(options(warehouse=str(tmp_path), **given))


def test_unknown_catalog_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name would create tables in the embedded catalog."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")

    with pytest.raises(OptionError, match=r"Catalog 'lkae' is not configured \(known: lake\)"):
        catalog_settings(options(catalog="lkae"))


def test_unknown_catalog_is_refused_where_none_is_known() -> None:
    """A misspelt name would create tables in the embedded catalog."""
    with pytest.raises(OptionError, match=r"known: none"):
        catalog_settings(options(catalog="lake"))


def test_settings_do_not_show_secrets() -> None:
    """Catalog credentials would stand in a log."""
    settings = catalog_settings(options(catalog__uri=f"postgresql://u:{SECRET}@h/d", catalog__token=SECRET))

    assert SECRET not in repr(settings)
    assert "'token': '***'" in repr(settings)


def test_catalog_is_connected_once_per_process(sink: Sink) -> None:
    """Every micro-batch would pay for a new connection."""
    assert connect(catalog_settings(sink.options)) is sink.catalog


@pytest.mark.parametrize(
    "properties",
    [
        {"catalog__type": "sql", "catalog__uri": f"postgresql+nodriver://writer:{SECRET}@127.0.0.1:1/db"},
        {"catalog__type": "sql", "catalog__uri": f"mysql://writer:{SECRET}@127.0.0.1:1/db", "catalog__token": SECRET},
        {"catalog__type": "sql", "catalog__uri": "nonsense", "catalog__credential": SECRET},
        {"catalog__type": "rest", "catalog__uri": f"http://u:{SECRET}@127.0.0.1:1", "catalog__token": SECRET},
        {"catalog__type": "bogus", "catalog__uri": "http://127.0.0.1:1", "catalog__token": SECRET},
    ],
    ids=["no driver", "no module", "no url", "nobody there", "no such type"],
)
def test_catalog_that_cannot_be_opened_is_named_without_secrets(properties: dict[str, str]) -> None:
    """A user would not learn which catalog failed, or its credentials would stand in the error."""
    settings = catalog_settings(options(catalog="lake", **properties))

    with pytest.raises(CatalogError, match="Cannot connect to catalog 'lake'") as raised:
        connect(settings)

    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_secrets_of_the_configuration_are_hidden_as_those_of_options_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps secrets out of options would find them in an error."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "quoted://nowhere")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "quoted")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())

    with pytest.raises(CatalogError, match="Cannot connect to catalog 'lake'") as raised:
        connect(catalog_settings(options(catalog="lake")))

    assert "***" in str(raised.value)
    assert "quoted" not in str(raised.value)


def test_error_that_no_place_understands_shows_no_secret() -> None:
    """Spark prints an unforeseen error of a library with all of its texts and causes."""
    client = CatalogClient(InMemoryCatalog("lake", token=SECRET), CatalogSettings(name="lake", properties=()))

    with pytest.raises(RuntimeError, match=r"KeyError: .*\*\*\*") as raised, client.hiding_secrets():
        raise KeyError(f"unforeseen {SECRET}")

    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_token_that_the_catalog_fetched_is_hidden_where_a_server_quotes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs would show a token that opens the catalog; no option says it, because a credential was changed for it."""
    request = Request("GET", "http://h.example/v1", headers={"Authorization": f"Bearer {SECRET}"}).prepare()
    refused = HTTPError(response=Response(), request=request)
    catalog = InMemoryCatalog("lake", credential="writer:of the option")
    client = CatalogClient(catalog, CatalogSettings(name="lake", properties=()))

    def refuse(*_: object) -> None:
        raise UnauthorizedError(f"NotAuthorized: the token {SECRET} has ended") from refused

    monkeypatch.setattr(catalog, "load_table", refuse)
    with pytest.raises(CatalogError, match=r"the token \*\*\* has ended") as raised:
        client.load_table(IDENTIFIER)
    with pytest.raises(RuntimeError, match=r"the token \*\*\* has ended") as unforeseen, client.hiding_secrets():
        refuse()
    monkeypatch.setattr(catalog_loading, "_load_rest", refuse)
    with pytest.raises(CatalogError, match=r"the token \*\*\* has ended") as unconnected:
        connect(CatalogSettings(name="another lake", properties=(("type", "rest"), ("uri", "http://h.example"))))

    for error in (raised, unforeseen, unconnected):
        assert SECRET not in "".join(traceback.format_exception(error.value))


def test_error_without_secrets_passes_as_it_is() -> None:
    """A user could not see the class of an unforeseen error."""
    client = CatalogClient(InMemoryCatalog("lake", token=SECRET), CatalogSettings(name="lake", properties=()))

    with pytest.raises(KeyError, match="unforeseen"), client.hiding_secrets():
        raise KeyError("unforeseen")


def test_missing_table_is_named_with_what_to_do(sink: Sink) -> None:
    """A user would not learn what is missing."""
    assert sink.catalog.find_table(IDENTIFIER) is None
    with pytest.raises(TableNotFoundError, match=r"Table db\.t does not exist"):
        sink.catalog.load_table(IDENTIFIER)


def test_each_load_is_fresh(sink: Sink) -> None:
    """A commit would be decided by an old state of the table."""
    sink.append(1)
    before = sink.table()
    sink.append(2)

    assert sink.table() is not before
    assert len(before.metadata.snapshots) == 1
    assert len(sink.table().metadata.snapshots) == 2


def test_staged_table_is_seen_by_nobody(sink: Sink) -> None:
    """A failed write would leave an empty table behind."""
    sink.catalog.stage_table(IDENTIFIER, NewTable(schema=ID_AND_NAME))

    assert sink.catalog.find_table(IDENTIFIER) is None


def test_namespace_is_created_with_its_first_table(sink: Sink) -> None:
    """A user would have to create namespaces by hand."""
    for _ in range(2):
        sink.catalog.stage_table(IDENTIFIER, NewTable(schema=ID_AND_NAME))

    assert sink.catalog._catalog.namespace_exists("db")


def test_nested_namespaces_are_created_with_their_parents(sink: Sink) -> None:
    """A table below two levels of namespaces could not be created."""
    nested = Sink(catalog=sink.catalog, options=replace(sink.options, table=("a", "b", "t")))

    nested.append(1)

    assert nested.ids() == [1]
    assert sink.catalog._catalog.namespace_exists("a")


def test_existing_table_in_nested_namespaces_is_written(sink: Sink) -> None:
    """A table below two levels of namespaces could not be written."""
    for namespace in ("a", "a.b"):
        sink.catalog._catalog.create_namespace(namespace)
    sink.catalog._catalog.create_table("a.b.t", ID_AND_NAME)
    nested = Sink(catalog=sink.catalog, options=replace(sink.options, table=("a", "b", "t")))

    nested.append(1)

    assert nested.ids() == [1]


def test_trial_commits_are_the_sinks_own(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of trials would be made otherwise than those of writes, and Nessie would refuse them."""
    sink.append(1)
    asked: list[bool] = []

    def note(*_: object) -> None:
        asked.append(files_at_hand() is not None)

    monkeypatch.setattr(sink.catalog.raw, "commit_table", note)
    sink.catalog.send_as_it_is(sink.table(), CommitRequest(requirements=(), updates=()))

    assert asked == [True]
    assert files_at_hand() is None


@pytest.mark.parametrize(
    ("error", "step"),
    [(connection_lost, "Check host"), (server_error, "Look into"), (forbidden, "Grant"), (timed_out, "firewall")],
)
def test_unreachable_catalog_is_our_error(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], step: str
) -> None:
    """A user would get another library's error, without a hint at what to do."""
    faulty_catalog.fail_next_loads(1, error)

    with pytest.raises(CatalogError, match=rf"Cannot load table db\.t in catalog 'default'.*{step}"):
        faulty_sink.catalog.find_table(IDENTIFIER)


def test_view_is_refused_by_name(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table would be created beside, or instead of, the view."""
    monkeypatch.setattr(faulty_catalog, "view_exists", lambda _: True, raising=False)

    with pytest.raises(UnsupportedTableError, match=r"Cannot write to db\.t: it is a view"):
        faulty_sink.plan()


@dataclass(frozen=True)
class Answer:
    """What a catalog raises, and what it means.

    Attributes:
        error: Makes what is raised.
        is_refusal: The catalog says that it did not commit.
        is_lasting: The same request would meet it again.
    """

    error: Callable[[], Exception]
    is_refusal: bool
    is_lasting: bool = False


ANSWERS = {
    "conflict": Answer(refusal, is_refusal=True),
    "throttled": Answer(throttled, is_refusal=True),
    "forbidden": Answer(forbidden, is_refusal=True, is_lasting=True),
    "unauthorized": Answer(lambda: UnauthorizedError("who are you"), is_refusal=True, is_lasting=True),
    "bad request": Answer(lambda: BadRequestError("what"), is_refusal=True, is_lasting=True),
    "no namespace": Answer(lambda: NoSuchNamespaceError("gone"), is_refusal=True, is_lasting=True),
    "state unknown": Answer(state_unknown, is_refusal=False),
    "server error": Answer(server_error, is_refusal=False),
    "connection lost": Answer(connection_lost, is_refusal=False),
    "timed out": Answer(timed_out, is_refusal=False),
    "does not parse": Answer(lambda: ValueError("not JSON"), is_refusal=False),
}


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_answers_of_the_catalog_are_told_apart(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, when: When, answer: Answer
) -> None:
    """Files would be deleted that may be committed, or a hopeless commit would be tried for minutes."""
    faulty_sink.append(1)
    table = faulty_sink.table()
    snapshot = new_snapshot(table.metadata, identity(), Operation.APPEND, {}, table.metadata.snapshots[0].manifest_list)
    request = commit_request(table.metadata, identity(table_uuid=table.metadata.table_uuid), snapshot, is_new=False)
    faulty_catalog.fail_next(1, answer.error, when=when)

    with pytest.raises((CommitRefusedError, CommitAnswerLostError), match=str(answer.error())) as raised:
        faulty_sink.catalog.send(table, request.requirements, request.updates)

    assert isinstance(raised.value, CommitRefusedError) == answer.is_refusal
    assert getattr(raised.value, "is_lasting", False) == answer.is_lasting


def test_errors_of_a_commit_show_no_secret(sink: Sink) -> None:
    """A library's error that quotes a credential would put it into our error."""
    inner = FaultyCatalog(sink.catalog._catalog)
    inner.properties = {"token": SECRET}  # type: ignore[attr-defined]  # shadows the real catalog's
    client = CatalogClient(inner, CatalogSettings(name="lake", properties=(("token", SECRET),)))  # type: ignore[arg-type]  # calls it alike
    sink.append(1)
    inner.fail_next(1, lambda: RuntimeError(f"401 for {SECRET}"))
    inner.fail_next_loads(1, lambda: RuntimeError(f"401 for {SECRET}"))

    with pytest.raises(CommitAnswerLostError) as of_commit:
        client.send(sink.table(), (), ())
    with pytest.raises(CatalogError) as of_load:
        client.find_table(IDENTIFIER)

    assert SECRET not in str(of_commit.value)
    assert SECRET not in str(of_load.value)
    assert SECRET not in repr(client)


def test_tasks_get_no_credential_of_the_catalog(tmp_path: Path) -> None:
    """The catalog's credential would travel to every executor."""
    named = options(
        catalog="with-secrets",
        catalog__type="sql",
        catalog__uri=f"sqlite:///{tmp_path}/c.db",
        catalog__warehouse=f"file://{tmp_path}/wh",
        catalog__token=SECRET,
        **{"catalog.s3.endpoint": "http://127.0.0.1:1"},
    )
    sink = Sink(catalog=connect(catalog_settings(named)), options=named)

    of_new_table = sink.plan().io_properties
    sink.append(1)
    of_existing_table = sink.plan().io_properties

    assert dict(of_new_table) == dict(of_existing_table)
    assert dict(of_new_table) == {
        "s3.endpoint": "http://127.0.0.1:1",
        "py-io-impl": "iceberg_ds.io.files.ObjectIO",
    }


def test_storage_of_a_dropped_table_can_still_be_opened(sink: Sink) -> None:
    """Files of a write that was given up could not be deleted any more."""
    io = sink.catalog.file_io(IDENTIFIER, "file:///x/y.parquet")

    assert not isinstance(io, FsspecFileIO)


def test_two_processes_may_create_the_embedded_catalog_at_once(tmp_path: Path) -> None:
    """One of two first jobs on a machine would fail."""
    script = (
        "import sys\n"
        "from iceberg_ds.catalog.client import connect; from iceberg_ds.catalog.settings import catalog_settings\n"
        "from iceberg_ds.options.parse import parse_options\n"
        "settings = catalog_settings(parse_options({'table': 'db.t', 'warehouse': sys.argv[1]}))\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(connect(settings).find_table(('db', 't')))\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "wh")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate(timeout=60) for process in started]

    assert [out for out, _ in results] == ["None\n"] * 2, results


def test_tables_that_another_process_is_creating_are_waited_for(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """One of two first jobs on a machine would fail."""
    original = catalog_loading.load_catalog
    failures = iter([RuntimeError("table iceberg_tables already exists")] * 2)

    def racing(*args: object, **properties: str) -> object:
        if (error := next(failures, None)) is not None:
            raise error
        return original(*args, **properties)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(catalog_loading, "load_catalog", racing)

    client = connect(catalog_settings(embedded_options(warehouse)))

    assert client.find_table(IDENTIFIER) is None
    assert len(waits) == 2


def test_answer_of_a_hive_metastore_is_told(tmp_path: Path) -> None:
    """A user would read `can't modify immutable instance`, whatever the metastore has against a commit."""
    client = connect(catalog_settings(embedded_options(tmp_path)))

    @contextmanager
    def surrounded() -> Iterator[None]:
        yield

    with pytest.raises(TypeError) as raised, surrounded():
        raise MetaException(f"no space left, uri=thrift://writer:{SECRET}@metastore:9083")

    assert client.describe(raised.value) == (
        "MetaException: MetaException(message='no space left, uri=thrift://***@metastore:9083')"
    )
