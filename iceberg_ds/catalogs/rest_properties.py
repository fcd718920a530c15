"""Which catalogs are REST catalogs, and their properties in the form that PyIceberg's REST catalog wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, CatalogType
from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import merge_config

from iceberg_ds.configuration import configured_catalog

# PyIceberg reads them as trees, and does not heed them flat, as options and the environment hold them.
_TREES = ("ssl.", "auth.")


def rest_properties(name: str, properties: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the properties of a REST catalog, with those that PyIceberg's configuration has for it.

    Args:
        name: Name of the catalog.
        properties: Those that options give.

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
    """Return the properties with `ssl.*` and `auth.*` as trees, flat or trees as they are."""
    trees: dict[str, Any] = {}
    for key, value in flat(properties):
        *branches, leaf = key.split(".") if key.startswith(_TREES) else [key]
        place = trees
        for branch in branches:
            place = place.setdefault(branch, {})
        # What lies below a kind of authentication are parameters in Python.
        place[leaf.replace("-", "_") if branches[:1] == ["auth"] else leaf] = value
    return trees


def flat(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the properties with those of trees under their whole names, such as `auth.type`."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", leaf) for name, leaf in flat(value))
        else:
            yield key, value
