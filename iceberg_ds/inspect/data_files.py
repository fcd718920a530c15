"""Checks that the files that a table refers to exist, with the recorded size and row count, and with true metrics.

Each file is opened once, with one request where the storage allows it: the end of a Parquet file tells size and rows.
The deep check recomputes metrics from the rows, batch by batch. A bound only has to bound: it may be truncated. Columns
inside lists and maps have no bounds, and writers count their values in several ways, so these columns are left out.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.table import Table

from iceberg_ds.inspect.contents import Contents, ListedFile, why_unreadable
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.io.parquet_files import open_parquet
from iceberg_ds.snapshots.manifests import live_entries
from iceberg_ds.table.projection import field_id

_BATCH_ROWS = 64 * 1024
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # in one Arrow time unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a file showed.

    Attributes:
        file: The file as it is listed.
        problem: Why it is not the recorded file, or None if it is.
        rows: Number of rows in its footer, or None if the footer was not read.
        rows_problem: Why the footer could not be read, or None if it was read or need not be.
    """

    file: ListedFile
    problem: str | None = None
    rows: int | None = None
    rows_problem: str | None = None

    @property
    def is_miscounted(self) -> bool:
        """Whether the number of rows in the file differs from the recorded one."""
        return self.rows is not None and self.rows != self.file.record_count


def look_at(io: FileIO, files: Iterable[ListedFile]) -> Iterator[Look]:
    """Look at each file, and yield what that shows."""
    return in_parallel(lambda file: _look(io, file), files)


def kind(file: ListedFile) -> str:
    """Return `data file` or `delete file`."""
    return "data file" if file.content is DataFileContent.DATA else "delete file"


def _look(io: FileIO, file: ListedFile) -> Look:
    name = f"{kind(file)} {file.path}"
    try:
        found = io.new_input(file.path)
        if file.file_format is not FileFormat.PARQUET or file.is_encrypted:
            return Look(file=file, problem=_wrong_size(name, len(found), file.size_bytes))
        with found.open() as stream:
            problem = _wrong_size(name, stream.seek(0, os.SEEK_END), file.size_bytes)
            if problem is not None:
                return Look(file=file, problem=problem)
            try:
                return Look(file=file, rows=pq.read_metadata(stream).num_rows)
            except Exception as error:  # errors of Arrow and of the storage library
                return Look(file=file, rows_problem=f"the footer of {name} {why_unreadable(error)}")
    except Exception as error:  # any error of a storage library
        return Look(file=file, problem=f"{name} {why_unreadable(error)}")


def _wrong_size(name: str, size: int, recorded: int) -> str | None:
    return None if size == recorded else f"{name} has {size:,} bytes, its recorded size is {recorded:,}"


def statistics_problems(table: Table) -> Iterator[str]:
    """Yield the statistics files of a table that are missing, or whose size differs from the recorded one."""
    metadata = table.metadata
    every = [*metadata.statistics, *metadata.partition_statistics]
    recorded = [(found.statistics_path, found.file_size_in_bytes) for found in every]
    for (path, size), (actual, problem) in zip(
        recorded, in_parallel(lambda found: _size(table.io, found[0]), recorded), strict=True
    ):
        name = f"statistics file {path}"
        if problem is not None:
            yield f"{name} {problem}"
        elif actual is not None and (wrong := _wrong_size(name, actual, size)) is not None:
            yield wrong


def metadata_problems(table: Table, load: Callable[[], Table]) -> Iterator[str]:
    """Yield the metadata files that are missing or unreadable: the current one first, then those of the table's log.

    Args:
        table: The table.
        load: Loads the table anew: a commit meanwhile may have dropped files from the log, and deleted them.
    """
    paths = _metadata_files(table)
    looks = in_parallel(lambda path: _size(table.io, path), paths)
    problems = {path: problem for path, (_, problem) in zip(paths, looks, strict=True) if problem is not None}
    still = _metadata_files(load()) if problems else []
    yield from (f"metadata file {path} {problem}" for path, problem in problems.items() if path in still)


def _metadata_files(table: Table) -> list[str]:
    return [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]


def _size(io: FileIO, path: str) -> tuple[int | None, str | None]:
    try:
        return len(io.new_input(path)), None
    except Exception as error:  # any error of a storage library
        return None, why_unreadable(error)


@dataclass(slots=True, kw_only=True)
class _Column:
    """Metrics of a column, from the rows read so far.

    Attributes:
        path: Names from the top-level column down.
        kind: Its type in the file.
        values: Number of values, nulls included.
        nulls: Number of nulls.
        nans: Number of NaNs.
        low: The lowest value, in the form of `_ordered`; None before the first value.
        high: The highest value, in the form of `_ordered`; None before the first value.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    values: int = 0
    nulls: int = 0
    nans: int = 0
    low: object = None
    high: object = None

    def take(self, values: pa.Array) -> None:
        """Count the values of a batch."""
        self.values += len(values)
        self.nulls += values.null_count
        if pa.types.is_floating(self.kind):
            is_nan = pc.is_nan(values)
            self.nans += pc.sum(is_nan).as_py() or 0
            values = values.filter(pc.invert(is_nan))
        if len(values) == values.null_count or not _is_ordered(self.kind):
            return
        ends = pc.min_max(_ordered(values))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


def metric_problems(io: FileIO, contents: Contents, files: Mapping[str, ListedFile]) -> Iterator[str]:
    """Yield where the recorded metrics of files contradict their rows.

    Args:
        io: Opens the table's files.
        contents: The manifests of the table.
        files: The Parquet files to read, by path.
    """
    wanted = dict(files)
    for used in contents.listed_manifests().values():
        listed = contents.manifests[used.manifest_path].entries
        if any(entry.is_live and entry.file.path in wanted for entry in listed):
            mine = [found for found in _data_files(io, used) if wanted.pop(found.file_path, None) is not None]
            for problems in in_parallel(lambda found: list(_problems_of(io, found)), mine):
                yield from problems


def _data_files(io: FileIO, used: ManifestFile) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(io, used) if entry.data_file.file_format is FileFormat.PARQUET]


def _problems_of(io: FileIO, data_file: DataFile) -> Iterator[str]:
    name = f"{kind(ListedFile.of(data_file))} {data_file.file_path}"
    try:
        columns, rows = _read(io, data_file.file_path)
    except Exception as error:  # errors of Arrow and of the storage library
        yield f"{name} {why_unreadable(error)}"
        return
    if rows != data_file.record_count:
        yield f"{name} has {rows:,} rows, its recorded count is {data_file.record_count:,}"
    for number, column in columns.items():
        yield from (f"{name}, column {'.'.join(column.path)}: {wrong}" for wrong in _wrong(data_file, number, column))


def _read(io: FileIO, path: str) -> tuple[dict[int, _Column], int]:
    with io.new_input(path).open() as stream:
        file = open_parquet(stream)
        columns = dict(_columns(file.schema_arrow))
        rows = 0
        for batch in file.iter_batches(_BATCH_ROWS):
            rows += batch.num_rows
            for column in columns.values():
                column.take(_values(batch, column.path))
    return columns, rows


def _columns(schema: pa.Schema) -> Iterator[tuple[int, _Column]]:
    for top in schema:
        yield from _leaves(top, ())


def _leaves(column: pa.Field, above: tuple[str, ...]) -> Iterator[tuple[int, _Column]]:
    """Yield field id and column of each column outside lists and maps; columns without field id are left out."""
    path = (*above, column.name)
    if pa.types.is_struct(column.type):
        for position in range(column.type.num_fields):
            yield from _leaves(column.type.field(position), path)
    elif not pa.types.is_nested(column.type) and (number := field_id(column)) is not None:
        yield number, _Column(path=path, kind=column.type)


def _values(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    values = batch.column(batch.schema.get_field_index(path[0]))
    for name in path[1:]:
        # Unlike StructArray.field, this makes the child null where the struct is null.
        values = pc.struct_field(values, [name])
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _wrong(data_file: DataFile, number: int, column: _Column) -> Iterator[str]:
    counted = (
        ("value_counts", data_file.value_counts, column.values),
        ("null_value_counts", data_file.null_value_counts, column.nulls),
        ("nan_value_counts", data_file.nan_value_counts, column.nans),
    )
    for key, said, actual in counted:
        if said and number in said and said[number] != actual:
            yield f"{key} says {said[number]:,}, the data {actual:,}"
    if column.low is None:
        return
    lower = _bound(data_file.lower_bounds, number, column)
    upper = _bound(data_file.upper_bounds, number, column)
    if lower is not None and lower > column.low:  # type: ignore[operator]  # both have one type
        yield f"its lower bound {_shown(lower)} is above the value {_shown(column.low)}"
    if upper is not None and upper < column.high:  # type: ignore[operator]  # both have one type
        yield f"its upper bound {_shown(upper)} is below the value {_shown(column.high)}"


def _shown(value: object) -> str:
    return repr(value[:16]) if isinstance(value, bytes) else str(value)


def _is_ordered(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (
            types.is_integer,
            types.is_floating,
            types.is_decimal,
            types.is_boolean,
            types.is_date,
            types.is_time,
            types.is_timestamp,
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
        )
    )


def _ordered(values: pa.Array) -> pa.Array:
    """Return the values as numbers or bytes, which also hold dates outside the range of Python's types."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004  # bits
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.large_binary())
    return values


def _bound(  # noqa: PLR0911  # one return per type
    bounds: Mapping[int, bytes] | None, number: int, column: _Column
) -> object:
    """Return a bound in the form of the column's values, or None if it has no bound that can be compared.

    The column may have been widened after the file was written, so the bound may have the old or the new type.
    """
    raw = (bounds or {}).get(number)
    if raw is None or not _is_ordered(column.kind):
        return None
    kind = column.kind
    if pa.types.is_floating(kind):
        bound = struct.unpack("<f" if len(raw) == struct.calcsize("f") else "<d", raw)[0]
        return None if bound != bound else bound  # noqa: PLR0124  # NaN bounds nothing
    if pa.types.is_boolean(kind):
        return raw != b"\x00"
    if pa.types.is_decimal(kind):
        return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E{-kind.scale}")
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        microseconds = _MICROSECONDS.get(kind.unit)  # nanoseconds have none: their bound may be in either unit
        return Decimal(int.from_bytes(raw, "little", signed=True)) / microseconds if microseconds else None
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return int.from_bytes(raw, "little", signed=True)
    return bytes(raw)
