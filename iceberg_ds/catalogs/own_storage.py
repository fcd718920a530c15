"""PyIceberg's catalogs, told not to believe what a table says of code, hosts, credentials and clients.

PyIceberg opens a table's files with the catalog's properties and, over these, the table's own. Whoever may set a
table's properties could choose the class that opens files, which gets the catalog's password, or the host that gets
the credentials of storage. Here the catalog's properties count alone, which are the user's. It imports the class that
a table names for the places of its files, too; the metadata files of a commit go where Iceberg puts them.

What a REST server sends with a table is another matter: `rest_client.py` tells it from what the table says.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from iceberg_ds.catalogs.metadata_updates import updated_metadata
from iceberg_ds.catalogs.staged_metadata import note_staged, see_table
from iceberg_ds.locations import metadata_locations


class _OwnStorage(Catalog):
    """A catalog that opens storage with its own properties."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002  # PyIceberg's signature; they are the table's
        return load_file_io(self.properties, location)


class _OwnStaging(_OwnStorage, MetastoreCatalog):
    """A catalog that writes tables' metadata files itself, in the folder of the table's metadata."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        base, stands_at = None, None
        if current_table is not None:
            base, stands_at = current_table.metadata, current_table.metadata_location
            see_table(base, stands_at)
        for requirement in requirements:
            requirement.validate(base)
        metadata = updated_metadata(
            base_metadata=self._empty_table_metadata() if base is None else base,
            updates=updates,
            enforce_validation=base is None,
            metadata_location=stands_at,
        )
        version = 0 if stands_at is None else self._parse_metadata_version(stands_at) + 1
        places = metadata_locations(metadata.location, metadata.properties)
        location = places.new_table_metadata_file_location(version)
        return note_staged(
            StagedTable(
                identifier=table_identifier,
                metadata=metadata,
                metadata_location=location,
                io=self._load_file_io(location=location),
                catalog=self,
            ),
            follows=stands_at,
        )


def with_own_storage(catalog: Catalog) -> Catalog:
    """Return the catalog, which from now on takes nothing from tables that opens storage or names code.

    A class of the user's that opens storage in its own way is left alone.
    """
    kind = type(catalog)
    opens = next(parent for parent in kind.__mro__ if "_load_file_io" in vars(parent))
    if opens is Catalog:
        own = _OwnStaging if isinstance(catalog, MetastoreCatalog) else _OwnStorage
        catalog.__class__ = type(kind.__name__, (own, kind), {"__module__": kind.__module__})
    return catalog
