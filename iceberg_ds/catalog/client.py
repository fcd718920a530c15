"""The only door to the catalog: connect, load, stage or create a table, send one commit.

Errors of PyIceberg, SQLAlchemy or HTTP become ours here, without any secret in them. Catalogs are
cached per process, because Spark's Python workers live across jobs and micro-batches; tables are
never cached. Runs on the driver only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from iceberg_ds.catalog.answers import (
    ManyTablesRefusedError,
    StagingRefusedError,
    TogetherRefusedError,
    behind_immutable,
    commit_failure,
    sent_login,
)
from iceberg_ds.catalog.loading import load
from iceberg_ds.catalog.metadata_files import MetadataFiles
from iceberg_ds.catalog.nessie import guarded, is_nessie
from iceberg_ds.catalog.pyiceberg_patches import keep_in_force
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.catalog.staged_metadata import see_table
from iceberg_ds.catalog.unparsed import UnparsedMetadataError
from iceberg_ds.error_hints import catalog_service, hint_for
from iceberg_ds.errors import CatalogError, IcebergSinkError, OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.io.vended_credentials import renewal_properties
from iceberg_ds.metrics.delivery import NO_REPORTING, Reporting
from iceberg_ds.metrics.reporters import NO_REPORTS, ReportSettings, reporting
from iceberg_ds.plan import NewTable
from iceberg_ds.secrets import mask_text, masked_cause, storage_properties
from iceberg_ds.snapshots.version_3 import VERSION_3, in_version, staged_metadata
from iceberg_ds.table.encryption import evidence_of_encryption
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.variant import knowing_variants

# PyIceberg cannot stage a table below several namespaces in catalogs that keep their metadata as files.
_FLAT_LEVELS = 2
_HIVE = "pyiceberg.catalog.hive"

_Result = TypeVar("_Result")


class CatalogClient:
    """A connected catalog. Get one from `connect`.

    Attributes:
        reporting: Where reports on commits to its tables go.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: CatalogSettings,
        files: MetadataFiles | None = None,
        reporting: Reporting = NO_REPORTING,
    ) -> None:
        self.reporting = reporting
        self._catalog = catalog
        self._settings = settings
        self._metadata_files = files or MetadataFiles()

    def __repr__(self) -> str:
        return repr(self._settings)

    @property
    def io_properties(self) -> dict[str, str]:
        """The properties that open storage; safe to ship to executors."""
        return storage_properties(self._catalog.properties)

    @property
    def raw(self) -> Catalog:
        """PyIceberg's own catalog, for code that looks at the catalog itself."""
        return self._catalog

    def reporting_to(self, reports: ReportSettings) -> CatalogClient:
        """Return the same catalog over the same connection, with reports that go where `reports` says.

        Raises:
            OptionError: There is no reporter of a name in it.
        """
        # Only the REST catalog has this attribute.
        rest = getattr(self._catalog, "report_commit", None)
        return CatalogClient(self._catalog, self._settings, self._metadata_files, reporting(reports, rest))

    def another(self) -> CatalogClient:
        """Return the same catalog over a connection of its own.

        Raises:
            CatalogError: The catalog could not be reached.
        """
        return CatalogClient(load(self._settings), self._settings)

    def reading_anew(self) -> CatalogClient:
        """Return the same catalog, but with metadata files read at each load, for checks of the files themselves."""
        return CatalogClient(self._catalog, self._settings, MetadataFiles(max_snapshots=0))

    @property
    def places_tables(self) -> bool:
        """Whether this process places new tables by their names; else a server gives each table a place."""
        return isinstance(self._catalog, MetastoreCatalog)

    @property
    def holds_branches(self) -> bool:
        """Whether a table in this catalog can have branches of its own."""
        return not is_nessie(self._catalog.properties)

    @property
    def holds_variants(self) -> bool:
        """Whether a table in this catalog can have columns of type variant: Hive's metastore refuses them."""
        return not any(kind.__module__ == _HIVE for kind in type(self._catalog).__mro__)

    @property
    def is_s3_tables(self) -> bool:
        """Whether Amazon S3 Tables keeps the tables, by its own endpoint or that of Glue."""
        properties = self._catalog.properties
        warehouse = str(properties.get("warehouse", ""))
        is_named = warehouse.startswith("arn:aws:s3tables:") or ":s3tablescatalog/" in warehouse
        return is_named or str(properties.get("rest.signing-name", "")).lower() == "s3tables"

    def load_table(self, identifier: Sequence[str]) -> Table:
        """Load the table afresh.

        Raises:
            TableNotFoundError: The table does not exist.
            UnsupportedTableError: The identifier names a view.
            CatalogError: The catalog could not be reached or refused, or the table's metadata cannot be parsed.
        """
        table = self.find_table(identifier)
        if table is None:
            raise TableNotFoundError(
                f"Table {identifier_text(identifier)} does not exist in {self!r}: "
                "create it, fix its name, or let a write create it with create-table=true."
            )
        return table

    def find_table(self, identifier: Sequence[str]) -> Table | None:
        """Load the table afresh, or return None if it does not exist; raises otherwise as `load_table` does."""

        def load() -> Table | None:
            try:
                with self._files_at_hand():
                    return self._catalog.load_table(tuple(identifier))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

        table = self._translated(load, f"load table {identifier_text(identifier)}")
        if table is not None:
            see_table(table.name(), table.metadata, table.metadata_location)
        if table is None and self._is_view(identifier):
            raise UnsupportedTableError(
                f"Cannot write to {identifier_text(identifier)}: it is a view. Write to its table."
            )
        return table

    def tables_in(self, namespace: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the identifiers of the tables of a namespace, in order; none if there is no such namespace.

        Raises:
            CatalogError: The catalog could not be reached or refused.
        """

        def tables() -> list[tuple[str, ...]]:
            try:
                return sorted(self._catalog.list_tables(tuple(namespace)))
            except NoSuchNamespaceError:
                return []

        return self._translated(tables, f"list the tables of {identifier_text(namespace)}")

    def namespaces(self, depth: int) -> list[tuple[str, ...]]:
        """Return the namespaces of so many levels, in order.

        Raises:
            CatalogError: The catalog could not be reached or refused.
        """

        def found() -> list[tuple[str, ...]]:
            known: list[tuple[str, ...]] = [()]
            for level in range(1, depth + 1):
                below = [inner for outer in known for inner in self._catalog.list_namespaces(outer)]
                known = sorted({tuple(namespace) for namespace in below if len(namespace) == level})
            return known

        return self._translated(found, "list the namespaces")

    def _is_view(self, identifier: Sequence[str]) -> bool:
        with suppress(Exception):  # many catalogs have no views at all, and say so in many ways
            return bool(self._catalog.view_exists(tuple(identifier)))
        return False

    def stage_table(self, identifier: Sequence[str], new_table: NewTable) -> TableMetadata | None:
        """Return the metadata of a new table that no reader sees before it is committed.

        Creates the namespace, parents first, if it is missing.

        Returns:
            None if the table exists now: the catalog had to create it at once, or another writer has.

        Raises:
            CatalogError: The catalog could not be reached or refused.
        """
        properties = dict(new_table.properties)  # PyIceberg removes entries
        wanted = new_table.format_version
        if wanted is not None:
            properties[TableProperties.FORMAT_VERSION] = wanted

        def wanted_version(staged: TableMetadata) -> TableMetadata:
            # PyIceberg makes tables of version 3 without a next row id.
            return in_version(staged, VERSION_3) if wanted == str(VERSION_3) else staged

        def stage() -> TableMetadata | None:
            self._create_namespaces(identifier[:-1])
            location = new_table.location or self._nested_location(identifier)
            if location is not None and self.places_tables:
                return wanted_version(
                    new_table_metadata(new_table.schema, new_table.spec, new_table.sort_order, location, properties)
                )
            try:
                staged = staged_metadata(
                    self._catalog.create_table_transaction(
                        tuple(identifier), new_table.schema, location, new_table.spec, new_table.sort_order, properties
                    )
                )
                return wanted_version(staged)
            except StagingRefusedError:
                with suppress(TableAlreadyExistsError):  # another writer was first
                    self._catalog.create_table(
                        tuple(identifier), new_table.schema, location, new_table.spec, new_table.sort_order, properties
                    )
                return None
            except TableAlreadyExistsError:  # another writer has made it in between
                return None

        return self._translated(stage, f"create table {identifier_text(identifier)}")

    def _nested_location(self, identifier: Sequence[str]) -> str | None:
        """Return the location of a table below several namespaces, or None if PyIceberg can stage it by itself."""
        warehouse = self._catalog.properties.get("warehouse")
        is_flat = len(identifier) == _FLAT_LEVELS
        if is_flat or warehouse is None or not self.places_tables:
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
        """Return a handle of a table that is not in the catalog yet, to send its first commit."""
        return StagedTable(
            identifier=tuple(identifier),
            metadata=metadata,
            metadata_location="",
            io=self.storage_of(metadata.location),
            catalog=self._catalog,
        )

    def plan_properties(self, table: Table) -> dict[str, str]:
        """Return what opens the table's files in tasks, and renews vended credentials there if the user allowed it."""
        # Only the REST catalog has this attribute.
        may_renew = getattr(self._catalog, "may_renew", False)
        return storage_properties(table.io.properties) | (renewal_properties(table.io.properties) if may_renew else {})

    def file_io(self, identifier: Sequence[str], path: str) -> FileIO:
        """Return the FileIO for `path`, a file of the table or of one that was to be created."""
        table = self.find_table(identifier)
        return table.io if table is not None else self.storage_of(path)

    def storage_of(self, path: str) -> FileIO:
        """Return the FileIO for `path`, without asking the catalog."""
        return load_file_io(self._catalog.properties, path)

    def send(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Send one commit and return the table's new metadata and its location.

        Raises:
            CommitRefusedError: The catalog says that it did not commit.
            CommitAnswerLostError: Anything else: it may have committed.
            UnsupportedTableError: The table is encrypted, or the catalog cannot carry it out; nothing was sent.
        """
        request = self._checked(table, CommitRequest(requirements=requirements, updates=updates))
        try:
            response = self.send_as_it_is(table, request)
        except Exception as failure:  # every library below raises its own
            raise commit_failure(failure, self.describe(failure)) from None  # the cause may show credentials
        see_table(table.name(), response.metadata, response.metadata_location)
        return response

    def _checked(self, table: Table, request: CommitRequest) -> CommitRequest:
        """Return the request as this catalog has to get it; refuse it for a table that a commit would break.

        Raises:
            UnsupportedTableError: The table is encrypted, or the catalog cannot carry the request out.
        """
        name = identifier_text(table.name())
        if (evidence := evidence_of_encryption(table.metadata)) is not None:
            raise UnsupportedTableError(
                f"Cannot commit to {name}: it is encrypted ({evidence}), and this sink writes plain files and keeps no "
                "keys in metadata, without which encrypted files cannot be read. Nothing was committed. Change the "
                "table with an engine that encrypts, such as Iceberg's Spark runtime."
            )
        return request if self.holds_branches else guarded(request, table.metadata, table_name=name)

    def send_as_it_is(self, table: Table, request: CommitRequest) -> CommitTableResponse:
        """Send one commit without what `send` adds for catalogs with known gaps; errors are the catalog library's."""
        with self._files_at_hand():
            return self._catalog.commit_table(table, request.requirements, request.updates)

    @property
    def takes_many_tables(self) -> bool:
        """Whether one request can change several tables; only the tables tell whether all of it was carried out."""
        # PyIceberg's catalogs have no such attribute; `sql` and `rest` give it to theirs.
        return bool(getattr(self._catalog, "can_commit_tables", False))

    @property
    def is_atomic_over_tables(self) -> bool:
        """Whether such a request surely changes all of its tables or none, by one transaction of the database here."""
        return self.takes_many_tables and bool(getattr(type(self._catalog), "commits_in_one_transaction", False))

    def send_together(self, changes: Sequence[tuple[Table, CommitRequest]]) -> None:
        """Send one request that changes several existing tables.

        That the catalog confirms it says nothing certain of any table: load each of them.

        Args:
            changes: Each table, freshly loaded, with the part of the request that changes it; no table twice.

        Raises:
            ManyTablesRefusedError: The catalog takes no such request, although it says that it does.
            CommitRefusedError: The catalog says that it changed no table.
            CommitAnswerLostError: Anything else: it may have changed some or all.
            UnsupportedTableError: A table is encrypted, or the catalog cannot carry it out; nothing was sent.
        """
        changes = [(table, self._checked(table, request)) for table, request in changes]
        commit = getattr(self._catalog, "commit_tables", None)
        if commit is None:
            raise UnsupportedTableError(f"Cannot commit to several tables at once: {self!r} takes no such request.")
        try:
            with self._files_at_hand():
                commit(changes)
        except TogetherRefusedError as refusal:
            raise ManyTablesRefusedError(self.describe(refusal), is_lasting=True) from None
        except Exception as failure:  # every library below raises its own
            raise commit_failure(failure, self.describe(failure)) from None  # the cause may show credentials

    @contextmanager
    def _files_at_hand(self) -> Iterator[None]:
        """Let PyIceberg do what the sink needs in the block, in this thread."""
        keep_in_force()
        with self._metadata_files.at_hand():
            yield

    def _translated(self, call: Callable[[], _Result], action: str) -> _Result:
        try:
            with knowing_variants():
                return call()
        except OptionError:  # the properties of the store are wrong
            raise
        except Exception as error:  # every library below raises its own
            # The cause may show credentials.
            raise CatalogError(
                f"Cannot {action} in {self!r}: {self.describe(error)}. {self._next_step(error)}"
            ) from None

    def _next_step(self, error: Exception) -> str:
        if isinstance(error, UnparsedMetadataError):  # the catalog has done its part
            return error.next_step
        return hint_for(error, catalog_service(self._catalog.properties)).next_step

    @contextmanager
    def hiding_secrets(self) -> Iterator[None]:
        """Let no error of another library pass with a secret in it: Spark prints an error with all of its causes."""
        try:
            yield
        except IcebergSinkError:
            raise
        except Exception as error:  # no code below has handled it
            shown = masked_cause(error, {**self._catalog.properties, **sent_login(error)})
            if shown is error:
                raise
            raise shown from None

    def describe(self, error: BaseException) -> str:
        """Return an error of another library in words, without any secret in them."""
        told = behind_immutable(error)
        return mask_text(f"{type(told).__name__}: {told}", {**self._catalog.properties, **sent_login(error)})


_clients: dict[tuple[CatalogSettings, ReportSettings], CatalogClient] = {}


def connect(settings: CatalogSettings, reports: ReportSettings = NO_REPORTS) -> CatalogClient:
    """Return the catalog of `settings`, connected at most once per process.

    Args:
        settings: Which catalog.
        reports: Where reports on commits go, beside the catalog itself.

    Raises:
        CatalogError: The catalog could not be reached, or its properties do not make a catalog.
        OptionError: There is no reporter of a name in `reports`.
    """
    client = _clients.get((settings, reports))
    if client is None:
        connected = next((found for key, found in _clients.items() if key[0] == settings), None)
        client = (connected or CatalogClient(load(settings), settings)).reporting_to(reports)
        _clients[settings, reports] = client
    return client
