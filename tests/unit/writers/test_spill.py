"""More rows than memory, in the order in which they came."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_ds.writers.spill import Spool


def batch(*numbers: int | None) -> pa.RecordBatch:
    """Return rows with these numbers, and two columns of one name."""
    column = pa.array(numbers, pa.int64())
    return pa.RecordBatch.from_arrays([column, pa.array([str(number) for number in numbers])], names=["n", "n"])


def open_files() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


def test_rows_come_back_as_they_came() -> None:
    """Rows would be lost or doubled, or the sequence of a row would be taken for another one's."""
    spool = Spool()
    given = [batch(3, 1), batch(), batch(None, 2).slice(1)]
    for rows in given:
        spool.add(rows)

    found = list(spool.batches())
    spool.close()

    assert found == given


def test_without_rows_there_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every small task would pay for a file."""

    def refuse(**_: Any) -> None:
        raise AssertionError("a file")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    spool = Spool()

    assert list(spool.batches()) == []
    spool.close()


def test_rows_have_no_name_and_go_with_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed task would leave its rows on the disk, and a finished one as well."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    before = open_files()
    spool = Spool()
    spool.add(batch(1))
    assert open_files() == before + 1

    spool.close()

    assert open_files() == before
    assert list(tmp_path.iterdir()) == []
    assert list(spool.batches()) == []
