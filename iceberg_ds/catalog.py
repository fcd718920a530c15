"""The only door to the catalog: connect, load, stage or create a table, send one commit.

Errors of PyIceberg, SQLAlchemy or HTTP become ours here, without any secret in them. Catalogs are
cached per process, because Spark's Python workers live across jobs and micro-batches; tables are
never cached. Runs on the driver only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyiceberg.catalog import Catalog, MetastoreCatalog, load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.utils.config import Config
from sqlalchemy.engine import URL, make_url

from iceberg_ds.errors import CatalogError, OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.option_table import CATALOG_PREFIX
from iceberg_ds.option_values import embedded_warehouse
from iceberg_ds.options import DEFAULT_WAREHOUSE, SinkOptions
from iceberg_ds.plan import NewTable
from iceberg_ds.secrets import mask_properties, mask_text, storage_properties

_SQLITE_LOCK_TIMEOUT_S = 60
_CONNECT_ATTEMPTS = 5
_CONNECT_WAIT_S = 0.2
# PyIceberg stages no table below several namespaces in catalogs that keep their metadata as files.
_FLAT_LEVELS = 2

# The catalog's own word that it did not do what it was asked.
_REFUSALS = (
    CommitFailedException,
    TableAlreadyExistsError,
    NoSuchTableError,
    NoSuchNamespaceError,
    BadRequestError,
    UnauthorizedError,
    ForbiddenError,
    TooManyRequestsError,
)
# Refusals that the same request meets again, unless the table has changed.
_LASTING_REFUSALS = (BadRequestError, UnauthorizedError, ForbiddenError, NoSuchNamespaceError)

_Result = TypeVar("_Result")


class CommitRefusedError(Exception):
    """The catalog says that it did not commit; whether to believe it, the table tells."""

    def __init__(self, reason: str, *, is_lasting: bool) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting


class CommitAnswerLostError(Exception):
    """The request was sent, and what became of it is unknown."""


def stays_refused(problem: Exception | None, before: TableMetadata | None, now: TableMetadata) -> bool:
    """Return whether the catalog refused for a reason that does not go away, as long as the table is as it was."""
    is_lasting = isinstance(problem, CommitRefusedError) and problem.is_lasting
    return is_lasting and before is not None and before.last_updated_ms == now.last_updated_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Which catalog: its name and, beside PyIceberg's own configuration, its properties."""

    name: str
    properties: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"catalog '{self.name}' {mask_properties(dict(self.properties))}"


def catalog_settings(options: SinkOptions) -> CatalogSettings:
    """Return the catalog that `options`, PyIceberg's configuration and its environment name.

    Without any of them it is the embedded one: SQLite and files under `warehouse`.

    Raises:
        OptionError: `catalog` names an unknown catalog, or `warehouse` is given beside a configured one.
    """
    config = Config()
    name = options.catalog or config.get_default_catalog_name()
    configured = bool(options.catalog_properties) or config.get_catalog_config(name) is not None
    if configured:
        if options.warehouse is not None:
            raise OptionError(
                f"Option 'warehouse' is the folder of the embedded catalog, and catalog '{name}' is configured "
                f"by options, ~/.pyiceberg.yaml or the environment: use '{CATALOG_PREFIX}warehouse', or drop one."
            )
        return CatalogSettings(name=name, properties=tuple(sorted(options.catalog_properties.items())))
    if options.catalog is not None:
        raise OptionError(
            f"Catalog '{name}' is not configured (known: {', '.join(sorted(config.get_known_catalogs())) or 'none'}): "
            f"describe it with '{CATALOG_PREFIX}*' options, in ~/.pyiceberg.yaml or in the environment."
        )
    return CatalogSettings(name=name, properties=_embedded(options.warehouse or embedded_warehouse(DEFAULT_WAREHOUSE)))


def _embedded(warehouse: str) -> tuple[tuple[str, str], ...]:
    uri = URL.create("sqlite", database=f"{warehouse}/catalog.db", query={"timeout": str(_SQLITE_LOCK_TIMEOUT_S)})
    return (("type", "sql"), ("uri", uri.render_as_string()), ("warehouse", f"file://{warehouse}"))


class CatalogClient:
    """A connected catalog. Get one from `connect`."""

    def __init__(self, catalog: Catalog, settings: CatalogSettings) -> None:
        self._catalog = catalog
        self._settings = settings

    def __repr__(self) -> str:
        return repr(self._settings)

    @property
    def io_properties(self) -> dict[str, str]:
        """What opens storage; safe to ship to executors."""
        return storage_properties(self._catalog.properties)

    def load_table(self, identifier: Sequence[str]) -> Table:
        """Load the table afresh.

        Raises:
            TableNotFoundError: There is none.
            UnsupportedTableError: It is a view.
            CatalogError: The catalog could not be reached or refused.
        """
        table = self.find_table(identifier)
        if table is None:
            raise TableNotFoundError(
                f"Table {'.'.join(identifier)} does not exist in {self!r}: "
                "create it, fix its name, or let the write create it with create-table=true."
            )
        return table

    def find_table(self, identifier: Sequence[str]) -> Table | None:
        """Load the table afresh, None if there is none; raises otherwise as `load_table` does."""

        def load() -> Table | None:
            try:
                return self._catalog.load_table(tuple(identifier))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

        table = self._translated(load, f"load table {'.'.join(identifier)}")
        if table is None and self._is_view(identifier):
            raise UnsupportedTableError(f"Cannot write to {'.'.join(identifier)}: it is a view. Write to its table.")
        return table

    def _is_view(self, identifier: Sequence[str]) -> bool:
        with suppress(Exception):  # many catalogs have no views at all, and say so in many ways
            return bool(self._catalog.view_exists(tuple(identifier)))
        return False

    def stage_table(self, identifier: Sequence[str], new_table: NewTable) -> TableMetadata:
        """Return the metadata of a new table that nobody sees before it is committed.

        Creates the namespace, parents first, if it is missing.

        Raises:
            CatalogError: The catalog could not be reached or refused.
        """
        properties = dict(new_table.properties)  # PyIceberg takes entries out of it
        if new_table.format_version is not None:
            properties[TableProperties.FORMAT_VERSION] = new_table.format_version

        def stage() -> TableMetadata:
            self._create_namespaces(identifier[:-1])
            location = new_table.location or self._nested_location(identifier)
            if location is not None and isinstance(self._catalog, MetastoreCatalog):
                return new_table_metadata(new_table.schema, new_table.spec, new_table.sort_order, location, properties)
            return self._catalog.create_table_transaction(
                tuple(identifier), new_table.schema, location, new_table.spec, new_table.sort_order, properties
            ).table_metadata

        return self._translated(stage, f"create table {'.'.join(identifier)}")

    def _nested_location(self, identifier: Sequence[str]) -> str | None:
        """Return where a table below several namespaces goes, None where PyIceberg can stage it by itself."""
        warehouse = self._catalog.properties.get("warehouse")
        is_flat = len(identifier) == _FLAT_LEVELS
        if is_flat or warehouse is None or not isinstance(self._catalog, MetastoreCatalog):
            return None
        return "/".join([warehouse.rstrip("/"), *identifier])

    def _create_namespaces(self, namespace: Sequence[str]) -> None:
        if self._catalog.namespace_exists(tuple(namespace)):
            return
        for depth in range(1, len(namespace) + 1):
            try:
                self._catalog.create_namespace_if_not_exists(tuple(namespace[:depth]))
            except Exception:
                # Another writer may have made it in between; catalogs say so in different ways.
                if not self._catalog.namespace_exists(tuple(namespace[:depth])):
                    raise

    def staged_table(self, identifier: Sequence[str], metadata: TableMetadata) -> Table:
        """Return a handle of a table that is not in the catalog yet, to send its first commit with."""
        io = load_file_io({**self._catalog.properties, **metadata.properties}, metadata.location)
        return StagedTable(
            identifier=tuple(identifier), metadata=metadata, metadata_location="", io=io, catalog=self._catalog
        )

    def file_io(self, identifier: Sequence[str], path: str) -> FileIO:
        """Return what opens `path`, a file of the table or of one that was to be created."""
        table = self.find_table(identifier)
        return table.io if table is not None else self.storage_of(path)

    def storage_of(self, path: str) -> FileIO:
        """Return what opens `path`, without asking the catalog."""
        return load_file_io(self._catalog.properties, path)

    def send(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> TableMetadata:
        """Send one commit and return the table's new metadata.

        Raises:
            CommitRefusedError: The catalog says that it did not commit.
            CommitAnswerLostError: Anything else: it may have committed.
        """
        try:
            return self._catalog.commit_table(table, requirements, updates).metadata
        except _REFUSALS as refusal:
            reason = self._describe(refusal)
            raise CommitRefusedError(reason, is_lasting=isinstance(refusal, _LASTING_REFUSALS)) from None
        except Exception as error:  # connection, time-out, 5xx, an answer that does not parse: all the same
            raise CommitAnswerLostError(self._describe(error)) from None

    def _translated(self, call: Callable[[], _Result], action: str) -> _Result:
        try:
            return call()
        except Exception as error:  # every library below raises its own
            raise CatalogError(
                f"Cannot {action} in {self!r}: {self._describe(error)}. "
                "Check that the catalog runs, that its address is right and that you may use it."
            ) from None  # the cause may show credentials

    def _describe(self, error: BaseException) -> str:
        return mask_text(f"{type(error).__name__}: {error}", {**self._catalog.properties})


_clients: dict[CatalogSettings, CatalogClient] = {}


def connect(settings: CatalogSettings) -> CatalogClient:
    """Return the catalog of `settings`, connected at most once per process.

    Raises:
        CatalogError: It could not be reached, or its properties do not make a catalog.
    """
    client = _clients.get(settings)
    if client is None:
        client = _clients[settings] = CatalogClient(_load(settings), settings)
    return client


def _load(settings: CatalogSettings) -> Catalog:
    properties = dict(settings.properties)
    _create_sqlite_folder(properties)
    for attempt in range(1, _CONNECT_ATTEMPTS + 1):
        try:
            return load_catalog(settings.name, **properties)
        except Exception as error:
            # Two processes that make the tables of one new SQL catalog at once: the second finds them made.
            if attempt < _CONNECT_ATTEMPTS and "already exists" in str(error):
                time.sleep(_CONNECT_WAIT_S)
                continue
            reason = mask_text(f"{type(error).__name__}: {error}", properties)
            raise CatalogError(
                f"Cannot connect to {settings!r}: {reason}. Check its properties, and that it runs and can be reached."
            ) from None  # the cause may show credentials
    raise AssertionError("unreachable: the last attempt returns or raises")


def _create_sqlite_folder(properties: Mapping[str, str]) -> None:
    uri = properties.get("uri", "")
    if uri.startswith("sqlite:///"):
        with suppress(OSError):  # the catalog itself says better what is wrong with the folder
            Path(make_url(uri).database or "").parent.mkdir(parents=True, exist_ok=True)
