"""Deleting files: what is gone, what is left and said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_ds.cleanup import Proof, delete_files


class StubbornIO(PyArrowFileIO):
    """Storage that refuses to delete some files."""

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete, or refuse what is called stubborn."""
        if "stubborn" in str(location):
            raise PermissionError("read-only")
        super().delete(location)


def touched(folder: Path, *names: str) -> list[str]:
    """Create empty files and return their locations."""
    for name in names:
        (folder / name).touch()
    return [f"file://{folder / name}" for name in names]


def test_files_are_deleted(tmp_path: Path) -> None:
    """Space would be lost with every failed task."""
    left = delete_files(PyArrowFileIO(), touched(tmp_path, "a", "b"), Proof.TASK_FAILED)

    assert left == 0
    assert list(tmp_path.iterdir()) == []


def test_missing_file_counts_as_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user would be warned of files that are not there."""
    with caplog.at_level(logging.WARNING):
        left = delete_files(PyArrowFileIO(), [f"file://{tmp_path}/never"], Proof.TASK_FAILED)

    assert left == 0
    assert caplog.records == []


def test_file_that_cannot_be_deleted_is_named_and_the_rest_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A user would not learn of a file that takes space for ever, or lose the outcome of the commit."""
    paths = touched(tmp_path, "a", "stubborn", "b")

    with caplog.at_level(logging.WARNING):
        left = delete_files(StubbornIO(), paths, Proof.REFUSED)

    assert left == 1
    assert [path.name for path in tmp_path.iterdir()] == ["stubborn"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert paths[1] in caplog.text
    assert Proof.REFUSED.value in caplog.text
    assert "read-only" in caplog.text
