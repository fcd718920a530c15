"""Which catalog a write goes to: by its options, PyIceberg's configuration, or the embedded one. Opens nothing.

On a server that many use, such as one of Spark Connect, file and environment are the server's and options are each
user's. Whoever may choose the host, the proxy, the certificates or the class of a catalog gets the credentials that are
sent there. So beside credentials of the configuration, options may set only what leads no request elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, CatalogType
from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import merge_config

from iceberg_ds.errors import OptionError
from iceberg_ds.io.configuration import configured_catalog, default_catalog, read_configuration
from iceberg_ds.io.local_paths import embedded_warehouse, is_folder_of_session
from iceberg_ds.options.sink_options import CATALOG_PREFIX, DEFAULT_WAREHOUSE, SinkOptions
from iceberg_ds.secrets import is_secret, mask_properties, mask_url

# PyIceberg reads these as trees, and ignores them in the flat form that options and the environment have.
_TREES = ("ssl.", "auth.")
# What is read and how much at a time, how long to wait, and how files are stored; all at the configured places.
_LEADS_NOWHERE = re.compile(
    r"warehouse|header\.x-iceberg-access-delegation|snapshot-loading-mode|rest-page-size|view-endpoints-supported"
    r"|rest\.client\.(connection-timeout-ms|socket-timeout-ms|max-retries)"
    r"|lock-check-(min-wait-time|max-wait-time|retries)|hive\.hive2-compatible"
    r"|(s3|client)\.region|s3\.(path-style-access|force-virtual-addressing|dualstack-enabled)"
    r"|s3\.(connect-timeout|request-timeout|retry\..+|multipart\..+)"
    r"|s3\.(server-side-encryption|sse\.type|sse\.key|sse-kms-key-id|write\.storage-class)"
    r"|gcs\.(project-id|requester-pays|consistency|cache-timeout)"
)
# Ways to sign in without any credential.
_NO_SIGN_IN = ("none", "noop")
_SQLITE_LOCK_TIMEOUT_S = 60
# A file of SQLite: an absolute path has a fourth slash.
_RELATIVE_DATABASE = re.compile(r"sqlite(\+\w+)?:///(?![/:])\S")
_SNAPSHOT_LOADING_MODE = "snapshot-loading-mode"  # PyIceberg's property of REST catalogs


def rest_properties(name: str, properties: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the properties of a REST catalog, with those that PyIceberg's configuration has for it.

    Args:
        name: Name of the catalog.
        properties: The properties that options give.

    Returns:
        None if it is a catalog of another kind, or if PyIceberg has to say what is wrong with them.
    """
    merged = merge_config(configured_catalog(name) or {}, cast("RecursiveDict", dict(properties)))
    uri = str(merged.get(URI, ""))
    if not uri or PY_CATALOG_IMPL in merged:
        return None
    kind = merged.get(TYPE, CatalogType.REST.value if uri.startswith("http") else None)
    return as_trees(merged) if str(kind).lower() == CatalogType.REST.value else None


def as_trees(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties with `ssl.*` and `auth.*` as trees, whether they are flat or trees already."""
    trees: dict[str, Any] = {}
    for key, value in flat(properties):
        *branches, leaf = key.split(".") if key.startswith(_TREES) else [key]
        place = trees
        for branch in branches:
            place = place.setdefault(branch, {})
        # The names below a kind of authentication are parameters in Python.
        place[leaf.replace("-", "_") if branches[:1] == ["auth"] else leaf] = value
    return trees


def flat(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the properties, those of trees under their whole names, such as `auth.type`."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", leaf) for name, leaf in flat(value))
        else:
            yield key, value


def why_not_beside(configured: Mapping[str, Any], asked: Mapping[str, str]) -> str | None:
    """Return why options must not set these properties of a catalog, or None if they may.

    Args:
        configured: The properties that PyIceberg's configuration has for the catalog; empty if it does not know it.
        asked: The properties that options give, which take the place of configured ones of the same name; empty ones
            do not, in PyIceberg.
    """
    known = {str(key).lower(): str(value) for key, value in flat(configured)}
    secrets = sorted(key for key, value in known.items() if not asked.get(key) and _signs_in(key, value))
    leading = sorted(
        key for key, value in asked.items() if known.get(key) != value and not _LEADS_NOWHERE.fullmatch(key)
    )
    if not secrets or not leading:
        return None
    return (
        f"options {', '.join(f'catalog.{key}' for key in leading)} could lead credentials elsewhere that file or "
        f"environment of the driver hold for it ({', '.join(secrets)})"
    )


def _signs_in(key: str, value: str) -> bool:
    """Return whether a property is a credential, or makes the catalog's client fetch one from the machine."""
    if key == "auth.type":
        return value.lower() not in _NO_SIGN_IN
    return is_secret(key) or mask_url(value) != value


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
        OptionError: `catalog` names an unknown catalog, `warehouse` is given beside a configured one, options could
            lead the credentials of a configured one elsewhere, or it is to show a part of a table's history only; or
            PyIceberg's configuration is malformed.
    """
    configuration = read_configuration()
    name = options.catalog or default_catalog(configuration)
    configured = configured_catalog(name, configuration)
    if options.catalog_properties or configured is not None:
        if (reason := why_not_beside(configured or {}, options.catalog_properties)) is not None:
            raise OptionError(
                f"Cannot use catalog '{name}': {reason}. Set them there, too, or drop them; or describe another "
                "catalog by options alone, under a name that is not configured, with credentials of your own."
            )
        if options.warehouse is not None:
            raise OptionError(
                f"Option 'warehouse' is the folder of the embedded catalog, and catalog '{name}' is configured "
                f"by options, ~/.pyiceberg.yaml or the environment: use '{CATALOG_PREFIX}warehouse', or drop one."
            )
        settings = CatalogSettings(name=name, properties=tuple(sorted(options.catalog_properties.items())))
        merged = _merged(settings, configured or {})
        check_history_is_shown(settings.name, merged)
        _check_database_lasts(settings.name, merged.get(URI, ""))
        return settings
    if options.catalog is not None:
        known = ", ".join(sorted(configuration.get_known_catalogs())) or "none"
        raise OptionError(
            f"Catalog '{name}' is not configured (known: {known}): "
            f"describe it with '{CATALOG_PREFIX}*' options, in ~/.pyiceberg.yaml or in the environment."
        )
    return CatalogSettings(name=name, properties=_embedded(options.warehouse or _default_warehouse()))


def _default_warehouse() -> str:
    try:
        return embedded_warehouse(DEFAULT_WAREHOUSE)
    except ValueError as error:
        raise OptionError(
            f"No catalog is configured, and the embedded one cannot be in ./{DEFAULT_WAREHOUSE}: {error}. Describe a "
            f"catalog by '{CATALOG_PREFIX}*' options, in ~/.pyiceberg.yaml or in the environment; or give option "
            "'warehouse' an absolute path."
        ) from error


def _check_database_lasts(name: str, uri: str) -> None:
    """Refuse a database file in a folder that Spark deletes with its session."""
    if _RELATIVE_DATABASE.match(uri) and is_folder_of_session():
        raise OptionError(
            f"Catalog '{name}' is in {mask_url(uri)}, a path relative to a folder that Spark makes for a session of "
            "Spark Connect and deletes with it: the tables would be lost. Give an absolute path, as in "
            "sqlite:////data/catalog.db."
        )


def configured_properties(settings: CatalogSettings) -> dict[str, str]:
    """Return all properties of a catalog: those of options, and those of PyIceberg's own configuration.

    As in PyIceberg, an option without a value replaces nothing.
    """
    return _merged(settings, configured_catalog(settings.name) or {})


def _merged(settings: CatalogSettings, configured: Mapping[str, object]) -> dict[str, str]:
    known = {key: str(value) for key, value in configured.items()}
    return {**known, **{key: value or known.get(key, value) for key, value in settings.properties}}


def check_history_is_shown(name: str, properties: Mapping[str, str]) -> None:
    """Refuse to see the snapshots of branches and tags alone: history decides what landed, and what came meanwhile.

    Args:
        name: The catalog's name.
        properties: Its properties: the configured ones or, once connected, also those that a REST server sends.
    """
    mode = properties.get(_SNAPSHOT_LOADING_MODE, "all")
    if mode.lower() != "all":
        raise OptionError(
            f"Catalog '{name}' has {_SNAPSHOT_LOADING_MODE}={mode}, which leaves out of a table's history "
            "what tells whether a write has landed already. Set it to 'all' for this sink (option "
            f"'{CATALOG_PREFIX}{_SNAPSHOT_LOADING_MODE}'); where its server demands it, ask who runs that to drop it."
        )


def _embedded(warehouse: str) -> tuple[tuple[str, str], ...]:
    from sqlalchemy.engine import URL  # noqa: PLC0415  # catalogs without a database need none of it

    uri = URL.create("sqlite", database=f"{warehouse}/catalog.db", query={"timeout": str(_SQLITE_LOCK_TIMEOUT_S)})
    return (("type", "sql"), ("uri", uri.render_as_string()), ("warehouse", f"file://{warehouse}"))
