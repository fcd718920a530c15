"""Which files are rewritten, and which of them together."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.maintenance.file_groups import new_file_size, plan_groups
from iceberg_ds.maintenance.rewrite_options import RewriteOptions
from iceberg_ds.snapshots.live_files import HiddenBy

TARGET = 1000
OPTIONS = {"target_file_size_bytes": TARGET, "min_file_size_bytes": 750, "max_file_size_bytes": 1800}


def file(  # noqa: PLR0913  # most by name
    path: str, size: int, place: str = "EU", *, spec_id: int = 0, deletes: int = 0, number: int = 1
) -> FileWork:
    """Return a data file with so many position delete files."""
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(place),
        record_count=100,
        file_size_in_bytes=size,
    )
    data_file.spec_id = spec_id
    hidden_by = HiddenBy(positions=tuple(f"{path}-{number}" for number in range(deletes)))
    return FileWork(data_file=data_file, sequence_number=number, keys=(), hidden_by=hidden_by)


def groups(
    *files: FileWork, deleted: dict[str, int] | None = None, is_sorted: bool = False, **more: object
) -> list[str]:
    """Return the paths of each group's files, joined."""
    options = RewriteOptions(**{**OPTIONS, **more})  # type: ignore[arg-type]
    planned = plan_groups(files, deleted or {}, options, spec_id=0, is_sorted=is_sorted)
    return ["".join(item.path for item in group.files) for group in planned]


def small(*paths: str, size: int = 100, place: str = "EU") -> list[FileWork]:
    """Return files of a partition."""
    return [file(path, size, place) for path in paths]


def test_enough_small_files_of_a_partition_make_a_group() -> None:
    """A partition with four small files would be written anew with each call, or one with a hundred never."""
    assert groups(*small(*"abcde"), *small(*"vwxy", place="US")) == ["abcde"]
    assert groups(*small(*"abcd"), min_input_files=4) == ["abcd"]


def test_files_of_the_right_size_stay() -> None:
    """A table would be written anew with each call."""
    assert groups(file("a", 800), file("b", 1700), file("c", 900), file("d", 751), file("e", 1000)) == []


def test_few_files_that_make_one_of_the_right_size_are_a_group() -> None:
    """Two halves of a file would stay two files."""
    assert groups(file("a", 700), file("b", 350)) == ["ab"]
    assert groups(file("a", 700), file("b", 250)) == []


def test_files_that_would_stay_as_many_are_left() -> None:
    """Two files would be made of two."""
    assert groups(file("a", 700), file("b", 700)) == []


def test_file_that_is_too_large_is_divided_alone() -> None:
    """One reader would read it for hours."""
    assert groups(file("a", 5000), file("b", 900)) == ["a"]


def test_large_group_is_divided_into_tasks_of_equal_sizes() -> None:
    """One core would work, and the others wait."""
    assert groups(*small(*"abcdefghijklmnopqrst")) == ["abcdefghij", "klmnopqrst"]
    assert groups(*small(*"abcdefghijklmn")) == ["abcdefg", "hijklmn"]
    assert groups(*small(*"abcdefghijk")) == ["abcdefghijk"]


def test_sorted_group_is_one_task() -> None:
    """Its files would overlap, and readers skip none of them."""
    assert groups(*small(*"abcdefghijklmnopqrst"), is_sorted=True) == ["abcdefghijklmnopqrst"]


def test_task_of_one_small_file_is_not_run() -> None:
    """The file would be copied, and again with each call."""
    assert groups(*small(*"abcd", size=700), min_input_files=4) == ["ab"]


@pytest.mark.parametrize(
    ("work", "deleted", "options"),
    [
        (file("a", 900), {"a": 30}, {}),
        (file("a", 900, deletes=2), {}, {"delete_file_threshold": 2}),
        (file("a", 900, spec_id=7), {}, {}),
        (file("a", 900), {}, {"rewrite_all": True}),
    ],
    ids=["deleted rows", "delete files", "another spec", "all"],
)
def test_reasons_to_rewrite_one_file(work: FileWork, deleted: dict[str, int], options: dict[str, object]) -> None:
    """Deleted rows would be read for ever."""
    assert groups(work, deleted=deleted, **options) == ["a"]


def test_few_deleted_rows_are_no_reason() -> None:
    """Each delete would write a file of 512 MB anew."""
    assert groups(file("a", 900, deletes=1), deleted={"a": 29}) == []


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("none", ["abcde", "vwxyz", "pqrstu"]),
        ("bytes-asc", ["abcde", "pqrstu", "vwxyz"]),
        ("bytes-desc", ["vwxyz", "pqrstu", "abcde"]),
        ("files-desc", ["pqrstu", "abcde", "vwxyz"]),
        ("files-asc", ["abcde", "vwxyz", "pqrstu"]),
    ],
)
def test_order_of_the_groups(order: str, expected: list[str]) -> None:
    """Partial progress would begin with what helps least."""
    files = [*small(*"abcde"), *small(*"vwxyz", size=130, place="US"), *small(*"pqrstu", place="DE")]

    assert groups(*files, rewrite_job_order=order) == expected


def test_most_files_of_a_call() -> None:
    """A budget would be overdrawn."""
    files = [*small(*"abcde"), *small(*"vwxyz", place="US")]

    assert groups(*files, max_files_to_rewrite=9) == ["abcde", "vwxy"]
    assert groups(*files, max_files_to_rewrite=10) == ["abcde", "vwxyz"]
    assert groups(*files, max_files_to_rewrite=6) == ["abcde"]  # one file alone would be copied


def test_group_of_more_files_than_the_limit_is_begun() -> None:
    """A partition with many files would never be rewritten by calls with a budget."""
    assert groups(*small(*"abcdefghij"), max_files_to_rewrite=4) == ["abcd"]
    assert groups(*small(*"abcde"), max_files_to_rewrite=4, is_sorted=True) == ["abcd"]
    assert groups(file("a", 5000), max_files_to_rewrite=1) == ["a"]


@pytest.mark.parametrize(
    ("size", "most"),
    [(400, 1800), (1000, 1800), (1090, 1800), (1200, 630), (1900, 998), (2000, 1050), (2090, 1098)],
)
def test_size_of_new_files(size: int, most: int) -> None:
    """A tiny file would be left behind each large one."""
    assert new_file_size(size, RewriteOptions(**OPTIONS)) == most  # type: ignore[arg-type]


def test_partitions_that_are_written_now_come_last() -> None:
    """A rewrite beside a stream would meet its deletes, and be undone by its next small files."""
    hot = [file(path, 100, "hot", number=number) for path, number in zip("abcde", (1, 2, 3, 4, 90), strict=True)]
    cold = [file(path, 100, "cold", number=50) for path in "vwxyz"]
    large = file("L", 1000, "warm", number=80)  # is not rewritten, and tells of a writer all the same
    warm = [file(path, 100, "warm", number=40) for path in "klmno"]

    assert groups(*hot, *cold, large, *warm, rewrite_job_order="cold-first") == ["vwxyz", "klmno", "abcde"]
    assert groups(*hot, *cold, rewrite_job_order="cold-first", max_files_to_rewrite=5) == ["vwxyz"]
