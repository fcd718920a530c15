"""A listing that is divided into parts: together they list what a whole one does, each file once."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_ds.io.listing import file_at, files_of_part, listing_parts, stored_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with files at several depths, a folder without files, and names that need no escaping."""
    root = tmp_path / "t a%20b"
    for name in ("x", "data/x", "data/p=1/x", "data/p=1/q=a b/x", "data/p=2/x%2F", "metadata/x"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"123")
    (root / "empty").mkdir()
    return root


@pytest.mark.parametrize("wanted", [1, 2, 4, 100])
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_parts_list_each_file_once(folder: Path, scheme: str, wanted: int) -> None:
    """Files would be missed, whose tables look smaller, or be counted twice."""
    location = f"{scheme}{folder}"

    parts = listing_parts({}, location, wanted)
    found = [file for part in parts for file in files_of_part({}, part)]

    assert len(parts) >= min(wanted, 7)
    assert sorted(found, key=lambda file: file.path) == sorted(stored_files({}, location), key=lambda file: file.path)


def test_links_that_go_round_end(folder: Path) -> None:
    """A listing would never end."""
    (folder / "data" / "round").symlink_to(folder)

    parts = listing_parts({}, str(folder), 50)
    found = {Path(file.path).resolve() for part in parts for file in files_of_part({}, part)}

    assert found == {path for path in folder.rglob("*") if path.is_file()}


def test_file_is_looked_up_by_its_path(folder: Path) -> None:
    """A row of an old inventory would be taken for a file."""
    found = file_at({}, f"file://{folder}/data/p=1/q=a b/x")

    assert found is not None
    assert (found.path, found.size_bytes) == (f"file://{folder}/data/p=1/q=a b/x", 3)
    assert file_at({}, f"file://{folder}/data/p=1/q=a b/y") is None
    assert file_at({}, f"file://{folder}/data/p=1") is None
