"""Which catalog a write goes to, and which ones it cannot be trusted to."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.catalogs.rest_fake import serve_rest_fake
from support.catalogs.rest_sinks import sink_of

from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError
from iceberg_ds.options.parse import parse_options


def test_catalog_that_leaves_out_history_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches would be doubled, and branches be called diverged: nothing shows what landed."""
    options = {"table": "db.t", "catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1"}

    with pytest.raises(OptionError, match=r"snapshot-loading-mode=refs.*catalog\.snapshot-loading-mode"):
        catalog_settings(parse_options({**options, "catalog.snapshot-loading-mode": "refs"}))
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__SNAPSHOT_LOADING_MODE", "refs")
    with pytest.raises(OptionError, match="snapshot-loading-mode=refs"):
        catalog_settings(parse_options(options))
    assert catalog_settings(parse_options({**options, "catalog.snapshot-loading-mode": "all"})).name == "default"


def test_server_that_leaves_out_history_is_refused(tmp_path: Path) -> None:
    """The same, by a word of the server: no user would know of it."""
    with serve_rest_fake(tmp_path) as fake:
        fake.defaults = {"snapshot-loading-mode": "refs"}
        with pytest.raises(OptionError, match=r"snapshot-loading-mode=refs.*catalog\.snapshot-loading-mode"):
            sink_of(fake)
        told = sink_of(fake, **{"snapshot-loading-mode": "all"}).catalog.raw.properties
        assert told["snapshot-loading-mode"] == "all"
        fake.overrides = {"snapshot-loading-mode": "refs"}
        with pytest.raises(OptionError, match="where its server demands it, ask who runs that to drop it"):
            sink_of(fake, **{"snapshot-loading-mode": "all"})


LAKE = {"catalog": "lake", "catalog.type": "sql", "catalog.warehouse": "file:///data/lake"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, r"embedded one cannot be in \./iceberg-warehouse: expected an absolute path.*option 'warehouse'"),
        ({"warehouse": "lake"}, r"'warehouse'.*expected an absolute path"),
        (
            {**LAKE, "catalog.uri": "sqlite:///lake.db"},
            r"sqlite:///lake\.db, a path relative to a folder.*would be lost",
        ),
    ],
)
def test_tables_are_not_put_into_the_folder_of_a_connect_session(
    options: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows would be gone: Spark deletes the folder, in which its Python processes run, when the session ends."""
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "88b30a94-cb1b-4e7c-94bb-a98ee0158837")

    with pytest.raises(OptionError, match=told):
        catalog_settings(parse_options({"path": "db.t", **options}))


@pytest.mark.parametrize("session", ["default", "88b30a94-cb1b-4e7c-94bb-a98ee0158837"])
@pytest.mark.parametrize("options", [{"warehouse": "/data/lake"}, {**LAKE, "catalog.uri": "sqlite:////data/lake.db"}])
def test_places_that_last_are_taken(session: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of Spark Connect could have no catalog in a file."""
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", session)

    assert ("uri", f"sqlite:////data/lake{'/catalog' if 'warehouse' in options else ''}.db") in {
        (key, value.partition("?")[0])
        for key, value in catalog_settings(parse_options({"path": "db.t", **options})).properties
    }


def test_session_without_a_folder_of_its_own_writes_beside_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's first example would be refused."""
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "default")

    assert catalog_settings(parse_options({"path": "db.t"})).properties[0] == ("type", "sql")
