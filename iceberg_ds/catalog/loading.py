"""Makes PyIceberg's catalog from settings, and sets up what PyIceberg leaves open for each kind.

The libraries of a kind of catalog are loaded only where that kind is used; kinds that cannot be used from Spark are
refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from iceberg_ds.catalog.answers import sent_login
from iceberg_ds.catalog.own_storage import with_own_storage
from iceberg_ds.catalog.pyiceberg_patches import fit_rest_messages, know_upgrades, know_variants, share_metadata_files
from iceberg_ds.catalog.settings import CatalogSettings, check_history_is_shown, configured_properties, rest_properties
from iceberg_ds.error_hints import catalog_service, hint_for
from iceberg_ds.errors import CatalogError, OptionError
from iceberg_ds.io.files import default_file_io
from iceberg_ds.secrets import mask_text

# A writer holds Hive's lock for some 100 ms. With PyIceberg's defaults a waiting writer looks again after 2, 4 and 8 s;
# with these it looks four times a second, for 20 s in each attempt to commit.
_HIVE_DEFAULTS = {
    "lock-check-min-wait-time": "0.05",
    "lock-check-max-wait-time": "0.25",
    "lock-check-retries": "80",
}
_IN_MEMORY_URIS = ("", "sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:")
_CONNECT_ATTEMPTS = 5
_CONNECT_WAIT_S = 0.2


def defaults_for(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties to add to a catalog's own; none of them replaces one that is set.

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


def load(settings: CatalogSettings) -> Catalog:
    """Return a new connection to the catalog of `settings`.

    Raises:
        CatalogError: The catalog could not be reached, or its properties do not make a catalog.
        OptionError: The catalog would exist in this process only, or it hides history.
    """
    catalog = _connected(settings)
    check_history_is_shown(settings.name, catalog.properties)  # a REST server may say so, too
    return catalog


def _connected(settings: CatalogSettings) -> Catalog:
    configured = configured_properties(settings)
    asked = dict(settings.properties)
    properties = {
        **default_file_io(settings.name),
        **defaults_for(configured),
        **asked,
    }
    rest = rest_properties(settings.name, properties)
    know_upgrades()
    know_variants()
    share_metadata_files()
    _create_sqlite_folder(properties)
    for attempt in range(1, _CONNECT_ATTEMPTS + 1):
        try:
            if rest is not None:
                return _load_rest(settings.name, rest)
            return with_own_storage(load_catalog(settings.name, **properties))
        except Exception as error:
            # Two processes that make the tables of one new SQL catalog at once: the second finds the tables made.
            if attempt < _CONNECT_ATTEMPTS and "already exists" in str(error):
                time.sleep(_CONNECT_WAIT_S)
                continue
            described = rest or {**configured, **properties}
            reason = mask_text(f"{type(error).__name__}: {error}", {**described, **sent_login(error)})
            step = hint_for(error, catalog_service(described)).next_step
            raise CatalogError(
                f"Cannot connect to {settings!r}: {reason}. {step}"
            ) from None  # the cause may show credentials
    raise AssertionError("unreachable: the last attempt returns or raises")


def _load_rest(name: str, properties: Mapping[str, Any]) -> Catalog:
    from iceberg_ds.catalog.rest import SinkRestCatalog  # noqa: PLC0415  # it loads the REST catalog's libraries

    fit_rest_messages()
    return SinkRestCatalog(name, **properties)


def _create_sqlite_folder(properties: Mapping[str, str]) -> None:
    uri = properties.get("uri", "")
    if uri.startswith("sqlite:///"):
        from sqlalchemy.engine import make_url  # noqa: PLC0415  # catalogs without a database need none of it

        with suppress(OSError):  # the catalog itself says better what is wrong with the folder
            Path(make_url(uri).database or "").parent.mkdir(parents=True, exist_ok=True)
