"""A folder of which not all can be listed: `--delete-orphans` sees what is behind links, or deletes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tables.changes_by_others import plain_catalog, rename
from support.tables.sink import NAME, Sink, local

import iceberg_ds
from iceberg_ds.inspect.verify import VerifyResult

_OLD_S = 1_000_000_000


def cleaned(sink: Sink) -> VerifyResult:
    """Let all files of the table be old, and delete its orphans."""
    folder = local(sink.table().metadata.location)
    for path in (*folder.rglob("*"), *(folder / "metadata").rglob("*")):
        os.utime(path, (_OLD_S, _OLD_S))
    return iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, delete_orphans=True)


def test_metadata_of_another_table_is_seen_through_a_link(sink: Sink, tmp_path: Path) -> None:
    """Rows of a table that was renamed would be deleted where the metadata lies on another disk."""
    sink.append(1)
    schema, folder = sink.table().schema(), local(sink.table().metadata.location)
    (folder / "metadata").rename(tmp_path / "disk")
    (folder / "metadata").symlink_to(tmp_path / "disk")
    renamed = rename(sink, "db.renamed")
    plain_catalog(sink).create_table(NAME, schema, location=f"file://{folder}")
    sink.append(2)

    result = cleaned(sink)

    assert "is the metadata of another table" in result.failures[0].detail
    assert renamed.ids() == [1]


def test_links_that_go_round_are_followed_once(sink: Sink) -> None:
    """The listing would never end, or name a file many times."""
    sink.append(1)
    folder = local(sink.table().metadata.location)
    (folder / "data" / "round").symlink_to(folder)

    result = cleaned(sink)

    assert result.ok, str(result)
    assert result.orphans == ()


def test_folder_that_cannot_be_listed_stops_the_deletion(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a table below would be deleted whose metadata may not be seen."""
    sink.append(1)
    below = replace(sink, options=replace(sink.options, table=("db", "below")))
    location = f"{sink.table().metadata.location}/below"
    plain_catalog(sink).create_table("db.below", sink.table().schema(), location=location)
    below.append(2)
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("below/metadata"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        result = cleaned(sink)

    assert [check.name for check in result.failures] == ["orphans", "deletion of orphans"]
    assert below.ids() == [2]
