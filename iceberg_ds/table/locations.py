"""Pure: where the new files of a table go: into the folder of their partition, each under a unique name.

A table's properties choose among Iceberg's own layouts (`write.*`), and no other property counts: a user who may set a
table's properties must not choose code that others run. A custom class (`write.py-location-provider.impl`) is imported
only where an option of the user names it, too. The only door to PyIceberg's location providers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Record

from iceberg_ds.table.partitioning import PartitionPath, has_sources

PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
_LAYOUT = frozenset(
    {
        TableProperties.WRITE_DATA_PATH,
        TableProperties.WRITE_METADATA_PATH,
        TableProperties.OBJECT_STORE_ENABLED,
        TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS,
    }
)


def data_locations(location: str, properties: Mapping[str, str], provider: str | None) -> LocationProvider:
    """Return the location provider for data files and delete files.

    Args:
        location: Location of the table.
        properties: The table's properties.
        provider: The location provider class that the user trusts, None for Iceberg's own layouts.
    """
    if provider is None:
        return metadata_locations(location, properties)
    return load_location_provider(location, {**properties, PROVIDER: provider})


def metadata_locations(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return the location provider for manifests and metadata files: as in Iceberg, no custom class places these."""
    return load_location_provider(location, {key: text for key, text in properties.items() if key in _LAYOUT})


def trusted_provider(properties: Mapping[str, str], asked: Mapping[str, str]) -> str | None:
    """Return the location provider class that a table names and the user trusts, or None.

    Args:
        properties: The table's properties.
        asked: The table properties that the user's options name.
    """
    named = properties.get(PROVIDER)
    return named if named == asked.get(PROVIDER) else None


def why_not_trusted(properties: Mapping[str, str], asked: Mapping[str, str]) -> str | None:
    """Return why files cannot go where a class that the table names would put them, or None if they can."""
    named = properties.get(PROVIDER)
    if named is None or trusted_provider(properties, asked) is not None:
        return None
    return (
        f"property {PROVIDER} names the Python class {named}, and code that a table names runs only if an option names "
        f"it, too: give option 'table-property.{PROVIDER}={named}' if you trust it"
    )


class FilePaths:
    """The paths of one attempt's files, one after the other.

    Args:
        places: The location provider, as `locations.data_locations` returns it.
        schema: The schema with the source columns of partition specs.
        name_prefix: Begins the name of every file, so that no two attempts share a path.
        are_deletes: Whether the files are delete files.
    """

    def __init__(self, places: LocationProvider, schema: Schema, name_prefix: str, *, are_deletes: bool) -> None:
        self._places = places
        self._schema = schema
        self._name_prefix = name_prefix
        self._name_end = "-deletes.parquet" if are_deletes else ".parquet"
        self._numbers = itertools.count()

    def next(self, spec: PartitionSpec, partition: Record) -> str:
        """Return the full location of the next file, which belongs to this partition of this spec."""
        name = f"{self._name_prefix}-{next(self._numbers):05d}{self._name_end}"
        # The folder has no meaning, and a dropped column gives it no name.
        if spec.is_unpartitioned() or not has_sources(spec, self._schema):
            return self._places.new_data_location(name)
        folder = PartitionPath(partition, spec, self._schema)
        # Location providers only ever ask a partition key for its path.
        return self._places.new_data_location(name, folder)  # type: ignore[arg-type]

    def next_of_vectors(self) -> str:
        """Return the full location of the next file of deletion vectors, which are of data files of any partition."""
        return self._places.new_data_location(f"{self._name_prefix}-{next(self._numbers):05d}-deletes.puffin")
