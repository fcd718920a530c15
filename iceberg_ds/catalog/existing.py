"""Connects to a catalog without making one: to connect to a SQLite file that does not exist would make it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import CatalogSettings, catalog_settings, configured_properties
from iceberg_ds.errors import TableNotFoundError
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.table.names import identifier_text


def connect_to_existing(options: SinkOptions) -> CatalogClient:
    """Return the catalog of the options, for a call on a table that has to be there.

    Raises:
        TableNotFoundError: The catalog would be in a file that does not exist.
        OptionError: The options name no catalog.
        CatalogError: The catalog could not be reached.
    """
    settings = catalog_settings(options)
    if (database := missing_database(settings)) is not None:
        raise TableNotFoundError(
            f"Table {identifier_text(options.table)} does not exist: there is no catalog in folder {database.parent} "
            f"(no file {database.name}), and only a write makes one. Correct option 'warehouse' or 'catalog.uri', or "
            "describe another catalog by 'catalog.*' options."
        )
    return connect(settings, options.reports)


def missing_database(settings: CatalogSettings) -> Path | None:
    """Return the file of a catalog in SQLite, such as the embedded one, if it does not exist; else None."""
    uri = configured_properties(settings).get("uri", "")
    if not uri.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url  # noqa: PLC0415  # catalogs without a database need none of it

    with suppress(Exception):  # the catalog itself says better what is wrong with the address
        database = make_url(uri).database or ""
        path = None if database in {"", ":memory:"} or database.startswith("file:") else Path(database).absolute()
        return None if path is None or path.exists() else path
    return None
