"""Checks of the catalog and the table, made one after the other on the driver; they leave nothing behind."""

from __future__ import annotations

import secrets
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID
from pyspark.sql.types import StructType

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import missing_database
from iceberg_ds.catalog.loading import load
from iceberg_ds.catalog.settings import CatalogSettings, catalog_settings, configured_properties
from iceberg_ds.error_hints import Cause, Service, catalog_service, hint_for
from iceberg_ds.errors import TableNotFoundError
from iceberg_ds.inspect.checklist import Check, CheckFailedError, Checklist, CheckWarnedError, NotTriedError, within
from iceberg_ds.inspect.machine_checks import missing_folders, quick_properties, remove_folders
from iceberg_ds.inspect.scratch import ScratchTables
from iceberg_ds.io.local_paths import is_local
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.planning.plan_write import foresee, foresee_creation
from iceberg_ds.secrets import storage_properties
from iceberg_ds.snapshots.growth import NEXT_STEP, growth_of, timed
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.names import identifier_text

GROWTH = "length of history"
OPTIONS, REACHED, ACCEPTED = "options", "catalog is reached", "catalog accepts the credentials"
NAMESPACE, TABLE, SCHEMA = "namespace", "table", "schema"
CREATE, COMMIT = "right to create the table", "right to commit to the table"
REMOVAL = "removal of the scratch table"
_REFUSED_CREDENTIALS = (
    Cause.UNAUTHORIZED,
    Cause.FORBIDDEN,
    Cause.EXPIRED_CREDENTIALS,
    Cause.NO_CREDENTIALS,
    Cause.CLOCK_SKEW,
)
_SQLITE = "sqlite:///"


def check_growth(checklist: Checklist, table: Table, branch: str, load_ms: float) -> None:
    """Make the check, which never fails: it passes or warns.

    Args:
        checklist: Gets the result.
        table: The table.
        branch: The branch that is committed to.
        load_ms: How long it took to load the table, in milliseconds.
    """

    def length() -> tuple[str, None]:
        growth = growth_of(table, branch, load_ms)
        if growth.is_much:
            raise CheckWarnedError(f"{growth}: commits are slowed down by it", NEXT_STEP)
        return str(growth), None

    checklist.attempt(GROWTH, length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The place in the storage to try.

    Attributes:
        folder: Folder for the test files, below the place where data files go.
        properties: The properties that open the storage, as tasks get them.
    """

    folder: str
    properties: Mapping[str, str]


def warehouse_target(options: SinkOptions) -> Target | None:
    """Return where files go according to the settings alone, if no catalog answers; None if they do not tell."""
    properties = configured_properties(catalog_settings(options))
    base = options.location or properties.get("warehouse", "")
    return Target(folder=_folder(base), properties=storage_properties(properties)) if "://" in base else None


def _folder(base: str) -> str:
    """Return a folder that only this check uses."""
    return f"{base.rstrip('/')}/iceberg-ds-check-{secrets.token_hex(6)}"


@contextmanager
def checked_catalog(checklist: Checklist, options: SinkOptions) -> Iterator[CatalogClient | None]:
    """Check that the catalog answers and accepts the credentials, and yield it, or None if it does not.

    A SQLite file that does not exist yet is not created: a temporary one takes its place.
    """
    settings = catalog_settings(options)
    configured = configured_properties(settings)
    checklist.secrets.update(configured)
    missing = missing_database(settings)
    quick = quick_properties({}, configured.get("warehouse", ""))
    settings = _with(settings, {key: value for key, value in quick.items() if key not in configured})
    with no_new_database(settings) as tried:
        yield _connect(checklist, tried, options, missing)


@contextmanager
def no_new_database(settings: CatalogSettings) -> Iterator[CatalogSettings]:
    """Yield the settings with a temporary file in the place of a SQLite file that does not exist."""
    with tempfile.TemporaryDirectory(prefix="iceberg-ds-check-") as folder:
        is_missing = missing_database(settings) is not None
        yield _with(settings, {"uri": f"{_SQLITE}{folder}/catalog.db"}) if is_missing else settings


def _with(settings: CatalogSettings, more: Mapping[str, str]) -> CatalogSettings:
    properties = {**dict(settings.properties), **more}
    return CatalogSettings(name=settings.name, properties=tuple(sorted(properties.items())))


def _connect(
    checklist: Checklist, settings: CatalogSettings, options: SinkOptions, missing: Path | None
) -> CatalogClient | None:
    asked = catalog_service(configured_properties(settings))
    started = time.monotonic()
    try:
        client, exists = within(checklist.limit_s, lambda: _ask(settings, options))
    except Exception as error:  # each library below raises its own errors
        _note_refusal(checklist, error, time.monotonic() - started, asked)
        return None
    seconds = time.monotonic() - started
    name = f"'{settings.name}' ({asked.value if asked else type(client.raw).__name__})"
    detail = name if missing is None else f"{name}; a first write makes {missing}"
    checklist.note(Check(name=REACHED, outcome="ok", seconds=seconds, detail=detail))
    checklist.note(Check(name=ACCEPTED, outcome="ok", detail="it answers questions"))
    checklist.attempt(NAMESPACE, lambda: _namespace(options, exists=exists))
    return client


def _ask(settings: CatalogSettings, options: SinkOptions) -> tuple[CatalogClient, bool]:
    client = CatalogClient(load(settings), settings)
    return client, client.raw.namespace_exists(options.table[:-1])


def _note_refusal(checklist: Checklist, error: Exception, seconds: float, asked: Service | None) -> None:
    if hint_for(error, asked).cause in _REFUSED_CREDENTIALS:
        checklist.note(Check(name=REACHED, outcome="ok", seconds=seconds, detail="it answers"))
        checklist.fail(ACCEPTED, error, seconds=0.0, asked=asked)
        return
    checklist.fail(REACHED, error, seconds=seconds, asked=asked)
    checklist.skip(ACCEPTED, f"not tried, because '{REACHED}' did not pass")


def _namespace(options: SinkOptions, *, exists: bool) -> tuple[str, None]:
    name = identifier_text(options.table[:-1])
    if exists:
        return f"{name} exists", None
    if options.create_table:
        return f"{name} does not exist; a first write creates it", None
    raise CheckFailedError(
        f"{name} does not exist, and option 'create-table' is false",
        "Create the namespace, correct the table's identifier, or allow both with create-table=true.",
    )


@contextmanager
def no_new_folders(client: CatalogClient, namespace: Sequence[str]) -> Iterator[None]:
    """Remove the empty local folders that tables of a namespace leave behind, unless they existed before."""
    warehouse = str(client.raw.properties.get("warehouse", ""))
    made = missing_folders("/".join([warehouse.rstrip("/"), *namespace, "x"])) if is_local(warehouse) else []
    try:
        yield
    finally:
        remove_folders(made)


@contextmanager
def checked_table(
    checklist: Checklist, client: CatalogClient, options: SinkOptions, dataframe: StructType | None
) -> Iterator[Target | None]:
    """Check the table, or the right to create it, and yield where its files go, or None if that is unknown.

    If the table does not exist, a scratch table in the same namespace takes its place, and is removed at the end.
    """
    asked = catalog_service(client.raw.properties)
    found = checklist.attempt(TABLE, lambda: _table(client, options), needs=[NAMESPACE], asked=asked)
    table, load_ms = found or (None, 0.0)
    if table is not None:
        _check_schema(checklist, options, table, dataframe)
        checklist.attempt(COMMIT, lambda: _commit(client, table), asked=asked)
        check_growth(checklist, table, options.branch or MAIN_BRANCH, load_ms)
        yield _target(client, table, None)
        return
    if dataframe is not None:
        checklist.attempt(SCHEMA, lambda: _new_schema(options, dataframe), needs=[TABLE])
    if not checklist.passed(TABLE):
        checklist.skip(CREATE, f"not tried, because '{TABLE}' did not pass")
        yield None
        return
    scratch = ScratchTables(client, options.table[:-1], client.another)
    with no_new_folders(client, options.table[:-1]):
        try:
            made = checklist.attempt(CREATE, lambda: _create(scratch), asked=asked)
            yield None if made is None else _target(client, made, options.location)
        finally:
            checklist.attempt(REMOVAL, lambda: _leave(scratch), asked=asked)


def _table(client: CatalogClient, options: SinkOptions) -> tuple[str, tuple[Table | None, float]]:
    """Return the table, or None if the first write creates it, and how many milliseconds loading it took."""
    name = identifier_text(options.table)
    table, load_ms = timed(lambda: client.find_table(options.table))
    if table is None:
        if not options.create_table:
            raise TableNotFoundError(
                f"Table {name} does not exist, and option 'create-table' is false: create it, or allow its creation "
                "with create-table=true."
            )
        return f"{name} does not exist; a first write creates it", (None, load_ms)
    foresee(options, table.metadata, None)
    metadata = table.metadata
    return f"{name} exists, format version {metadata.format_version}, in {metadata.location}", (table, load_ms)


def _check_schema(checklist: Checklist, options: SinkOptions, table: Table, dataframe: StructType | None) -> None:
    if dataframe is not None:
        checklist.attempt(SCHEMA, lambda: (foresee(options, table.metadata, dataframe), None))


def _new_schema(options: SinkOptions, dataframe: StructType) -> tuple[str, None]:
    return foresee_creation(options, dataframe), None


def _commit(client: CatalogClient, table: Table) -> tuple[str, None]:
    """Send a commit that must be refused: a user without the right to commit is refused for that reason."""
    if catalog_service(client.raw.properties) is not Service.REST:
        raise NotTriedError("this kind of catalog tells only when something is committed")
    try:
        client.send(table, (AssertTableUUID(uuid=uuid.uuid4()),), ())
    except CommitRefusedError as refusal:
        if refusal.is_lasting:
            raise
    except CommitAnswerLostError as lost:
        raise NotTriedError(f"the catalog does not tell ({lost})") from None
    return "a commit for another table of that name was refused for that reason alone", None


def _create(scratch: ScratchTables) -> tuple[str, Table]:
    scratch.__enter__()
    table = scratch.table()
    return f"a scratch table was created in {table.metadata.location}", table


def _leave(scratch: ScratchTables) -> tuple[str, None]:
    scratch.__exit__(None, None, None)
    if scratch.left_behind:
        raise CheckFailedError(
            f"could not be removed: {', '.join(scratch.left_behind)}", "Remove by hand what is there."
        )
    return "removed", None


def _target(client: CatalogClient, table: Table, location: str | None) -> Target:
    base = location or table.metadata.location
    data = f"{base}/data" if location else table.metadata.properties.get("write.data.path", f"{base}/data")
    return Target(folder=_folder(data), properties=client.plan_properties(table))
