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
