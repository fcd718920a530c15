"""Which catalog a write goes to: by its options, PyIceberg's configuration, or the embedded one. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.engine import URL

from iceberg_ds.catalogs.configured_secrets import why_not_beside
from iceberg_ds.configuration import configured_catalog, default_catalog, read_configuration
from iceberg_ds.errors import OptionError
from iceberg_ds.option_table import CATALOG_PREFIX
from iceberg_ds.option_values import embedded_warehouse
from iceberg_ds.options import DEFAULT_WAREHOUSE, SinkOptions
from iceberg_ds.secrets import mask_properties

_SQLITE_LOCK_TIMEOUT_S = 60
_SNAPSHOT_LOADING_MODE = "snapshot-loading-mode"  # PyIceberg's property of REST catalogs


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
        check_history_is_shown(settings.name, _merged(settings, configured or {}))
        return settings
    if options.catalog is not None:
        known = ", ".join(sorted(configuration.get_known_catalogs())) or "none"
        raise OptionError(
            f"Catalog '{name}' is not configured (known: {known}): "
            f"describe it with '{CATALOG_PREFIX}*' options, in ~/.pyiceberg.yaml or in the environment."
        )
    return CatalogSettings(name=name, properties=_embedded(options.warehouse or embedded_warehouse(DEFAULT_WAREHOUSE)))


def configured_properties(settings: CatalogSettings) -> dict[str, str]:
    """Return all properties of a catalog: those of options, and those of PyIceberg's own configuration.

    As in PyIceberg, an option without a value takes the place of nothing.
    """
    return _merged(settings, configured_catalog(settings.name) or {})


def _merged(settings: CatalogSettings, configured: Mapping[str, object]) -> dict[str, str]:
    known = {key: str(value) for key, value in configured.items()}
    return {**known, **{key: value or known.get(key, value) for key, value in settings.properties}}


def check_history_is_shown(name: str, properties: Mapping[str, str]) -> None:
    """Refuse to see the snapshots of branches and tags alone: what landed, and what came meanwhile, history decides.

    Args:
        name: The catalog's name.
        properties: Its properties: those that are configured, or all, with what a REST server says, once connected.
    """
    mode = properties.get(_SNAPSHOT_LOADING_MODE, "all")
    if mode.lower() != "all":
        raise OptionError(
            f"Catalog '{name}' has {_SNAPSHOT_LOADING_MODE}={mode}, which leaves out of a table's history "
            "what tells whether a write has landed already. Set it to 'all' for this sink (option "
            f"'{CATALOG_PREFIX}{_SNAPSHOT_LOADING_MODE}'); where its server demands it, ask who runs that to drop it."
        )


def _embedded(warehouse: str) -> tuple[tuple[str, str], ...]:
    uri = URL.create("sqlite", database=f"{warehouse}/catalog.db", query={"timeout": str(_SQLITE_LOCK_TIMEOUT_S)})
    return (("type", "sql"), ("uri", uri.render_as_string()), ("warehouse", f"file://{warehouse}"))
