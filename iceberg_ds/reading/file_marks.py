"""What differs from file to file, such as a sequence number, as a Spark expression over the rows of several files.

Spark knows size and name of each row's file, but has no fast way to look a value up by them. So files are read in
portions in which each has a mark of its own: its size or, where many have the same, a hash of its name. The value of a
row's file is found by a few comparisons of the mark. A row whose file has no such mark fails the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.cdc.spark_hash import spark_hash
from iceberg_ds.reading.deleted_rows import word_count
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.spark.arrow_frame import arrow_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_PLAIN_NAME = re.compile(r"[\w.=-]+", re.ASCII)
_UNKNOWN = "a file that was read is none of the files of the table, by its size or its name"
# Name of the column with the marks.
MARK = "__file_mark"
_MOST_FILES = 256  # of a portion: 8 comparisons
# The bits of a portion's rows go to all tasks: at most 32 MiB, for 256 million rows, unless one file has more.
_MOST_WORDS = 4_000_000
# How many portions sizes may take beyond those that are needed: each is a scan of its own in the plan.
_FURTHER_PORTIONS = 8

_Marked = TypeVar("_Marked", ScanTask, DataFile)


@dataclass(slots=True)
class Portion(Generic[_Marked]):
    """Files that are read together.

    Attributes:
        is_by_name: Whether marks are hashes of names; else they are sizes.
        files: The files, in the order of their marks.
        marks: Their marks, all different, ascending.
    """

    is_by_name: bool
    files: list[_Marked] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    _words: int = 0

    def takes(self, file: _Marked, mark: int) -> bool:
        """Return whether there is room for a file whose mark is no lower than those before."""
        is_other = not self.marks or self.marks[-1] != mark
        return is_other and len(self.files) < _MOST_FILES and self._words + _words_of(file) <= _MOST_WORDS

    def add(self, file: _Marked, mark: int) -> None:
        """Add a file that it takes."""
        self.files.append(file)
        self.marks.append(mark)
        self._words += _words_of(file)

    def mark_text(self) -> str:
        """Return the mark of a row's file as SQL, by the name of the column in which `value` looks for it."""
        return f"{'hash(_metadata.file_name)' if self.is_by_name else '_metadata.file_size'} AS {MARK}"

    def number(self, of: Callable[[_Marked], int]) -> Column:
        """Return the number that `of` returns for a row's file."""
        return F.expr(self.number_text(of))

    def number_text(self, of: Callable[[_Marked], int]) -> str:
        """Return the number that `of` returns for a row's file, as SQL: each Column takes several calls of the JVM."""
        values = [of(file) for file in self.files]
        if len(set(values)) == 1:
            return str(values[0])

        def among(start: int, end: int) -> str:
            if end == start + 1:
                return f"CASE WHEN {MARK} = {self.marks[start]} THEN {values[start]} END"
            half = (start + end) // 2
            return f"CASE WHEN {MARK} < {self.marks[half]} THEN {among(start, half)} ELSE {among(half, end)} END"

        return f"coalesce({among(0, len(values))}, raise_error('{_UNKNOWN}'))"

    def text(self, spark: SparkSession, of: Callable[[_Marked], str | None]) -> Column:
        """Return the text that `of` returns for a row's file."""
        return self.value(spark, pa.array([of(file) for file in self.files], pa.string()))

    def value(self, spark: SparkSession, values: pa.Array) -> Column:
        """Return the value for a row's file, of values in the order of the files."""
        places = {id(file): place for place, file in enumerate(self.files)}
        return F.get(constant(spark, values), self.number(lambda file: places[id(file)]))


def constant(spark: SparkSession, values: pa.Array) -> Column:
    """Return an array of values that is evaluated once a query, and not shown in plans."""
    listed = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return arrow_frame(spark, pa.table({"constant": listed})).scalar()


def portions(files: Sequence[_Marked]) -> list[Portion[_Marked]]:
    """Return files in portions of a bounded number of files and rows."""
    by_size = _packed(files, [_data_file(file).file_size_in_bytes for file in files], is_by_name=False)
    if len(by_size) <= len(files) // _MOST_FILES + _FURTHER_PORTIONS:
        return by_size
    names = [_data_file(file).file_path.rpartition("/")[2] for file in files]
    is_plain = all(map(_PLAIN_NAME.fullmatch, names))  # Spark escapes other signs
    hashes = spark_hash([pa.array(names)]) if is_plain else None
    by_name = by_size if hashes is None else _packed(files, hashes.to_pylist(), is_by_name=True)
    return min(by_size, by_name, key=len)


def _packed(files: Sequence[_Marked], marks: Sequence[int], *, is_by_name: bool) -> list[Portion[_Marked]]:
    found: list[Portion[_Marked]] = []
    for mark, number in sorted(zip(marks, range(len(files)), strict=True)):
        file = files[number]
        fitting = next((portion for portion in found if portion.takes(file, mark)), None)
        if fitting is None:
            fitting = Portion(is_by_name)
            found.append(fitting)
        fitting.add(file, mark)
    return found


def _data_file(file: _Marked) -> DataFile:
    return file.data_file if isinstance(file, ScanTask) else file


def _words_of(file: _Marked) -> int:
    return word_count(file) if isinstance(file, ScanTask) else 0
