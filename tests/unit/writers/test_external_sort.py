"""More rows than memory: the same order as in memory, bounded memory, and nothing left on disk."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.types import NestedField

from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.sort_order import RowOrder
from iceberg_ds.writers import spill
from iceberg_ds.writers.spill import ExternalSort, SpillFile, spill_folder

SCHEMA = Schema(
    NestedField(1, "key", ice.LongType()),
    NestedField(2, "row", ice.LongType()),
    NestedField(3, "u", ice.UUIDType()),
    NestedField(4, "l", ice.ListType(element_id=5, element_type=ice.StringType())),
)
ARROW = file_shape(SCHEMA).schema
BY_KEY = RowOrder(SortOrder(SortField(1)), SCHEMA)

Keys = list[int | None]


def batch(keys: Keys, first_row: int = 0) -> pa.RecordBatch:
    """Return rows with these keys, numbered from `first_row`."""
    return pa.RecordBatch.from_pylist(
        [
            {"key": key, "row": row, "u": row.to_bytes(16, "big"), "l": [str(row)] * (row % 3)}
            for row, key in enumerate(keys, start=first_row)
        ],
        schema=ARROW,
    )


def batches(keys: Keys, size: int) -> Iterator[pa.RecordBatch]:
    """Yield rows with these keys, in batches of `size`."""
    for start in range(0, len(keys), size):
        yield batch(keys[start : start + size], start)


def sorted_rows(sort: ExternalSort) -> list[dict[str, Any]]:
    """Return all rows as the sort gives them back."""
    return [row for rows in sort.sorted_batches() for row in rows.to_pylist()]


def check_sorted(keys: Keys, batch_rows: int) -> None:
    """Sort rows with these keys and assert that the order is right, equal rows stay in order, and none is changed."""
    sort = ExternalSort(BY_KEY)
    for rows in batches(keys, batch_rows):
        sort.add(rows)
    result = sorted_rows(sort)
    sort.close()
    expected = batch(keys).to_pylist()

    assert result == sorted(expected, key=lambda row: (row["key"] is not None, row["key"] or 0))


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs have about 20 rows, chunks about 3, and a merge about 3 runs."""
    row_bytes = batch(list(range(100))).nbytes / 100
    monkeypatch.setattr(spill, "RUN_BYTES", int(20 * row_bytes))
    monkeypatch.setattr(spill, "CHUNK_BYTES", int(3 * row_bytes))
    monkeypatch.setattr(spill, "_BATCH_BYTES", int(7 * row_bytes))


@pytest.mark.usefixtures("little_memory")
@given(
    keys=st.lists(st.none() | st.integers(0, 5) | st.integers(-(2**63), 2**63 - 1), max_size=400),
    batch_rows=st.integers(1, 30),
)
def test_rows_come_back_in_order_however_many_runs_there_are(keys: Keys, batch_rows: int) -> None:
    """Rows would be lost, doubled or out of order as soon as they do not fit in memory."""
    check_sorted(keys, batch_rows)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "keys",
    [
        list(range(1000)),
        list(range(1000, 0, -1)),
        [7] * 1000,
        [number % 2 for number in range(1000)],
        [number // 300 for number in range(1000)],
        [None] * 500 + [1] * 500,
        [number * 7919 % 1009 for number in range(1000)],
    ],
    ids=["sorted", "reversed", "equal", "two values", "steps", "nulls", "mixed"],
)
def test_rows_of_any_shape_come_back_in_order(keys: Keys) -> None:
    """Data that is sorted already, or all the same, would break the merge."""
    check_sorted(keys, 10)


@pytest.mark.parametrize("given_keys", [[], [[]], [[], [1], []]])
def test_few_or_no_rows_come_back(given_keys: list[Keys]) -> None:
    """An empty task would fail."""
    sort = ExternalSort(BY_KEY)
    for keys in given_keys:
        sort.add(batch(keys))

    assert [row["key"] for row in sorted_rows(sort)] == [key for keys in given_keys for key in keys]


def test_rows_that_fit_in_memory_touch_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every small micro-batch would pay for a file."""

    def refuse(**_: Any) -> None:
        raise AssertionError("a file")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)

    check_sorted([3, 1, 2], 1)


@pytest.mark.usefixtures("little_memory")
def test_no_more_rows_are_in_memory_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would need the more memory the more rows it has."""
    loaded: list[int] = []
    open_runs: list[int] = []
    original = spill._Merge._load
    original_schedule = spill._scheduled

    def spy(merge: spill._Merge) -> pa.RecordBatch:
        rows = original(merge)
        loaded.append(rows.num_rows)
        return rows

    def spy_schedule(runs: Any, order: RowOrder) -> Any:
        open_runs.append(len(runs))
        return original_schedule(runs, order)

    monkeypatch.setattr(spill._Merge, "_load", spy)
    monkeypatch.setattr(spill, "_scheduled", spy_schedule)

    check_sorted([number * 7919 % 10_007 for number in range(1_000)], 10)

    assert max(loaded) <= 20 + 3 + 3
    assert max(open_runs) <= 4
    assert len(open_runs) > 1_000 / 20 / 4  # that is, in passes


@pytest.mark.usefixtures("little_memory")
def test_each_row_is_merged_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting would take time with the square of the rows."""
    written: list[int] = []
    original = SpillFile.write

    def spy(file: SpillFile, rows: pa.RecordBatch) -> Any:
        written.append(rows.num_rows)
        return original(file, rows)

    monkeypatch.setattr(SpillFile, "write", spy)

    check_sorted([number * 7919 % 10_007 for number in range(1_000)], 10)

    assert sum(written) <= 1_000 * 8  # 50 runs, merged by two or three: their logarithm is 5.6 or 3.6


def test_rows_larger_than_a_chunk_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts would stop the sort."""
    monkeypatch.setattr(spill, "RUN_BYTES", 1)
    monkeypatch.setattr(spill, "CHUNK_BYTES", 1)

    check_sorted([5, 3, 4, 1, 2], 1)


def spilled(monkeypatch: pytest.MonkeyPatch) -> ExternalSort:
    """Return a sort that has a row on disk."""
    monkeypatch.setattr(spill, "RUN_BYTES", 1)
    sort = ExternalSort(BY_KEY)
    sort.add(batch([1]))
    return sort


def test_rows_are_spilled_where_spark_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small disk for temporary files would fill up though Spark was given a larger one."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folders[0]},{tmp_path}/missing,{folders[1]}")
    used: list[Path] = []
    original = tempfile.TemporaryFile

    def spy(*, dir: str) -> Any:  # noqa: A002  # the name that Python chose
        used.append(Path(dir))
        return original(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", spy)

    spilled(monkeypatch).close()

    assert used
    assert used[0] in folders


@pytest.mark.parametrize("local_dirs", ["", "/missing/a,/missing/b"])
def test_rows_are_spilled_into_the_systems_folder_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_dirs: str
) -> None:
    """A task would fail where Spark names no folder."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", local_dirs)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert spill_folder() == str(tmp_path)


def open_files() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


def test_spilled_rows_have_no_name_and_go_with_the_sort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed task would leave its rows on the disk, and a finished one as well."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    before = open_files()

    sort = spilled(monkeypatch)
    during = open_files()
    names = list(tmp_path.iterdir())
    sort.close()

    assert (names, during) == ([], before + 1)
    assert open_files() == before


class FullDisk:
    """A file that takes no more after so many writes."""

    def __init__(self, file: Any, writes: int) -> None:
        self._file = file
        self._left = writes

    def write(self, content: Any) -> int:
        """Write, or fail as a full disk does."""
        if not self._left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._left -= 1
        return int(self._file.write(content))

    def close(self) -> None:
        """Close, and fail to write what was buffered."""
        self._file.close()
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def fill_disk(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Let the disk for temporary files be full after so many writes."""
    original = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: FullDisk(original(**options), writes))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("writes", [0, 3, 70])
def test_full_disk_is_reported_with_its_folder_and_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """A user would not learn which disk is full."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    fill_disk(monkeypatch, writes)
    before = open_files()
    sort = ExternalSort(BY_KEY)

    def run() -> None:
        for rows in batches(list(range(200, 0, -1)), 10):
            sort.add(rows)
        sorted_rows(sort)

    with pytest.raises(OSError, match=rf"being sorted cannot be kept in {tmp_path}: .*No space left"):
        run()
    sort.close()

    assert open_files() == before
