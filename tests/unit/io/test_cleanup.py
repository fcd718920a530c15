"""Deleting files: what is gone, what is left and said."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyiceberg.io import InputFile, OutputFile

from iceberg_ds.io.cleanup import Proof, delete_files, delete_in_portions
from iceberg_ds.io.local_io import LocalFileIO


class StubbornIO(LocalFileIO):
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
    left = delete_files(LocalFileIO(), touched(tmp_path, "a", "b"), Proof.TASK_FAILED)

    assert left == 0
    assert list(tmp_path.iterdir()) == []


def test_missing_file_counts_as_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user would be warned of files that are not there."""
    with caplog.at_level(logging.WARNING):
        left = delete_files(LocalFileIO(), [f"file://{tmp_path}/never"], Proof.TASK_FAILED)

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


class BulkIO(LocalFileIO):
    """Storage that deletes many files at once.

    Attributes:
        requests: The files of each request.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.requests: list[list[str]] = []
        self._failure = failure

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete all but what is called stubborn, or fail."""
        self.requests.append(list(locations))
        if self._failure is not None:
            raise self._failure
        return {path: "AccessDenied" for path in self.requests[-1] if "stubborn" in path}


def test_many_files_go_in_one_request(caplog: pytest.LogCaptureFixture) -> None:
    """A failed write of many files would be cleaned up one request after the other."""
    io = BulkIO()

    assert delete_files(io, ["s3://b/a", "s3://b/stubborn"], Proof.TASK_FAILED) == 1
    assert io.requests == [["s3://b/a", "s3://b/stubborn"]]
    assert "Left behind s3://b/stubborn, which no table refers to" in caplog.text
    assert "AccessDenied" in caplog.text


def test_files_go_one_by_one_where_many_at_once_are_refused(tmp_path: Path) -> None:
    """Files of failed writes would stay in stores that only speak like S3."""
    io = BulkIO(NotImplementedError())

    assert delete_files(io, touched(tmp_path, "a", "b"), Proof.TASK_FAILED) == 0
    assert list(tmp_path.iterdir()) == []


def test_one_file_takes_the_plain_request(tmp_path: Path) -> None:
    """A store that only speaks like S3 would be asked twice for each file."""
    io = BulkIO()
    delete_files(io, touched(tmp_path, "a"), Proof.TASK_FAILED)

    assert io.requests == []


@pytest.mark.parametrize("at_once", [None, 1, 3])
def test_files_of_a_stream_are_deleted_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int | None
) -> None:
    """All paths of millions of files would be in memory, or a file be left that the others wait for."""
    monkeypatch.setattr("iceberg_ds.io.cleanup._BULK", 2)
    paths = touched(tmp_path, *(f"{number}" for number in range(9)), "stubborn")
    taken: list[str] = []

    def stream() -> Iterator[str]:
        for path in paths:
            taken.append(path)
            yield path

    done = delete_in_portions(StubbornIO(), stream(), Proof.UNREFERENCED, at_once)
    first = next(done)

    assert first == (paths[0], True)
    assert len(taken) == 2 * (at_once or 1)
    assert [first, *done] == [(path, "stubborn" not in path) for path in paths]
    assert [path.name for path in tmp_path.iterdir()] == ["stubborn"]
