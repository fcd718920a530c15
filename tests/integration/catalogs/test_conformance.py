"""The conformance check on real servers: what each keeps, and that nothing is left in catalog and store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.exhaustive import few
from support.services.servers import CatalogService, ObjectStore

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.inspect.conformance import check_conformance

ALL_OF_IT = "rows land exactly once"
# The reference server answers that it has changed both tables, and loses one of the changes, in most races of a run.
ONLY_IN_RACES = {"of a request for several tables, all changes are carried out or none"}
# What a server does not keep; all else holds.
GAPS: Mapping[str, set[str]] = {
    "rest_catalog": ONLY_IN_RACES,
    "postgres": set(),
    "hive_metastore": set(),
    "nessie": {
        "a commit for an empty branch is refused if it has a snapshot",
        "of two first commits into an empty table one is refused",
        "all snapshots are shown",
        "branches are held",
        "a snapshot does not take back a change of the schema",
    },
}


@pytest.mark.parametrize("server", few(1, GAPS))
def test_check_names_what_a_server_does_not_keep(
    request: pytest.FixtureRequest, object_store: ObjectStore, server: str
) -> None:
    """A user would trust a catalog that loses rows, mistrust a sound one, or find scratch tables in it."""
    service: CatalogService = request.getfixturevalue(server)
    catalog = connect(CatalogSettings(name=service.name, properties=tuple(sorted(service.properties.items()))))
    namespaces, left_by_others = catalog.raw.list_namespaces(), _scratch_files(object_store)

    results = check_conformance(catalog, ("conformance",))

    problems = {result.name: result.detail for result in results if result.passed is not True}
    assert problems.keys() | (GAPS[server] & ONLY_IN_RACES) == GAPS[server], problems
    assert results[-1].name == ALL_OF_IT
    assert catalog.raw.list_namespaces() == namespaces
    assert _scratch_files(object_store) == left_by_others


def _scratch_files(object_store: ObjectStore) -> set[Path]:
    return {path for path in object_store.folder.rglob("*iceberg_ds_check_*/**/*") if path.is_file()} | {
        path for path in object_store.folder.rglob("iceberg_ds_check_*") if path.is_file()
    }
