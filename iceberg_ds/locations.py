"""Pure: where the new files of a table go.

A table's properties choose among Iceberg's own layouts, and nothing else in them counts: whoever may set a table's
properties must not choose code that others run. A class that decides (`write.py-location-provider.impl`) is imported
only where an option of the user names it, too. The only door to PyIceberg's location providers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider

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
    """Return what says where data files and files of deletes go.

    Args:
        location: Location of the table.
        properties: The table's properties.
        provider: The class that the user trusts with it, None for Iceberg's own layouts.
    """
    if provider is None:
        return metadata_locations(location, properties)
    return load_location_provider(location, {**properties, PROVIDER: provider})


def metadata_locations(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return what says where manifests and metadata files go: as in Iceberg, no class has a say in that."""
    return load_location_provider(location, {key: text for key, text in properties.items() if key in _LAYOUT})


def trusted_provider(properties: Mapping[str, str], asked: Mapping[str, str]) -> str | None:
    """Return the class that a table names and the user trusts, None if there is no such class.

    Args:
        properties: The table's properties.
        asked: The properties of tables that the user's options name.
    """
    named = properties.get(PROVIDER)
    return named if named == asked.get(PROVIDER) else None


def why_not_trusted(properties: Mapping[str, str], asked: Mapping[str, str]) -> str | None:
    """Return why files cannot go where a class that the table names would put them, None if they can."""
    named = properties.get(PROVIDER)
    if named is None or trusted_provider(properties, asked) is not None:
        return None
    return (
        f"property {PROVIDER} names the Python class {named}, and code that a table names runs only if an option names "
        f"it, too: give option 'table-property.{PROVIDER}={named}' if you trust it"
    )
