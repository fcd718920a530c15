"""Which spellings name one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_ds.inspect.contents import file_key, folder_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://b/k/f", "s3://b/k/f"),
        ("s3n://b/k/f", "s3://b/k/f"),
        ("s3://b/k//f", "s3://b/k/f"),
        ("file:/nowhere/f", "file:///nowhere/f"),
        ("/nowhere/f", "file:///nowhere/f"),
        ("file://localhost/nowhere/f", "file:///nowhere/f"),
        ("file:///nowhere//x/../f", "/nowhere/f"),
        ("abfss://c@a.net/f", "abfs://c@a.net/f"),
    ],
)
def test_spellings_of_one_file_are_the_same(one: str, other: str) -> None:
    """A referenced file would be taken for an orphan, and deleted."""
    assert file_key(one) == file_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("s3://b/k/f", "s3://c/k/f"), ("s3://b/k/f", "gs://b/k/f"), ("s3://b/k/f", "s3://b/k/F"), ("/a/f", "/b/f")],
)
def test_different_files_are_told_apart(one: str, other: str) -> None:
    """An orphan would never be found."""
    assert file_key(one) != file_key(other)


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    """A table below a linked folder would seem to have no file that it refers to."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert file_key(f"file://{tmp_path}/link/f") == file_key(f"{tmp_path}/real/f")


def test_folder_does_not_contain_one_whose_name_goes_on() -> None:
    """Files of table t2 would be taken for those of t."""
    assert not file_key("s3://b/t2/f").startswith(folder_key("s3://b/t"))
    assert file_key("s3://b/t/f").startswith(folder_key("s3://b/t/"))
