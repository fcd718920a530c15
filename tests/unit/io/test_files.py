"""Which files are local, and how large they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_ds.io.files import file_io
from iceberg_ds.io.local_paths import is_local, local_size


@pytest.mark.parametrize("path", ["/data/x", "file:///data/x", "file:/data/x"])
def test_paths_on_a_disk_are_local(path: str) -> None:
    """Files that other machines cannot see would be committed."""
    assert is_local(path)


@pytest.mark.parametrize("path", ["s3://bucket/x", "gs://bucket/x", "abfss://c@a.dfs.core.windows.net/x", "hdfs://n/x"])
def test_objects_are_not_local(path: str) -> None:
    """No table in an object store could be written."""
    assert not is_local(path)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["x.parquet", "with space", "ü=ä", "day=2026-11-21", "a%2Fb"])
def test_size_of_a_local_file_is_found_however_its_path_is_written(tmp_path: Path, prefix: str, name: str) -> None:
    """A commit would be refused for a file that is there: Hadoop writes `file:/data/x`."""
    (tmp_path / name).write_bytes(b"12345")

    assert local_size(f"{prefix}{tmp_path}/{name}") == 5


def test_missing_file_has_no_size(tmp_path: Path) -> None:
    """Files that the driver does not see would be committed."""
    assert local_size(f"file://{tmp_path}/nothing") is None


def test_storage_is_opened_once_per_process(tmp_path: Path) -> None:
    """Every micro-batch would pay for a new connection."""
    assert file_io({"s3.region": "x"}, f"file://{tmp_path}") is file_io({"s3.region": "x"}, f"file://{tmp_path}")
    assert file_io({"s3.region": "x"}, f"file://{tmp_path}") is not file_io({"s3.region": "y"}, f"file://{tmp_path}")
