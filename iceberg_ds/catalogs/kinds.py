"""Pure: what single kinds of catalogs need beside what the user says, and which of them cannot be used from Spark."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_ds.errors import OptionError

# A writer holds Hive's lock for some 100 ms. By PyIceberg's defaults one that waits looks again after 2, 4 and 8 s;
# by these it does so four times a second, for 20 s in each attempt to commit.
_HIVE_DEFAULTS = {
    "lock-check-min-wait-time": "0.05",
    "lock-check-max-wait-time": "0.25",
    "lock-check-retries": "80",
}
_IN_MEMORY_URIS = ("", "sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:")


def defaults_for(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to a catalog's properties; none of it replaces what they say.

    Raises:
        OptionError: The catalog would exist in one process only.
    """
    kind, uri = str(properties.get("type", "")).lower(), str(properties.get("uri", ""))
    if (kind == "in-memory" and uri in _IN_MEMORY_URIS) or (uri in _IN_MEMORY_URIS and uri.startswith("sqlite")):
        raise OptionError(
            "Cannot use a catalog in memory: Spark plans and commits a write in different processes, each of which "
            "would have a catalog of its own, and the rows would be lost. Leave out all catalog options for the "
            "embedded catalog in a folder (option 'warehouse'), or name a file: catalog.type=sql, "
            "catalog.uri=sqlite:////PATH/catalog.db, catalog.warehouse=file:///PATH."
        )
    is_hive = kind == "hive" or (not kind and uri.startswith("thrift"))
    return {key: text for key, text in _HIVE_DEFAULTS.items() if key not in properties} if is_hive else {}
