"""Whether the files that a table refers to are there, as long as recorded, with as many rows and true metrics.

Each file is looked at once, with one request where the storage allows: the end of a Parquet file tells both. The deep
check recomputes metrics from rows, a batch at a time. A bound only has to bound: it may have been cut short. Columns
inside lists and maps have no bounds, and writers count their values in several ways, so they are left out.
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

from iceberg_ds.inspect.contents import Contents, ListedFile, in_parallel, why_unreadable
from iceberg_ds.snapshots.manifests import all_entries
from iceberg_ds.table.projection import field_id

_BATCH_ROWS = 64 * 1024
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # in a unit of Arrow's


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a file has shown.

    Attributes:
        file: The file, as it is listed.
        problem: Why it is not the file that was recorded, None if it is.
        rows: How many rows its footer counts, None if they were not counted.
        rows_problem: Why they could not be, None if they were or need not be.
    """

    file: ListedFile
    problem: str | None = None
    rows: int | None = None
    rows_problem: str | None = None

    @property
    def is_miscounted(self) -> bool:
        """Whether it holds another number of rows than recorded."""
        return self.rows is not None and self.rows != self.file.record_count


def look_at(io: FileIO, files: Iterable[ListedFile]) -> Iterator[Look]:
    """Yield what a look at each of the files shows."""
    return in_parallel(lambda file: _look(io, file), files)


def kind(file: ListedFile) -> str:
    """Return what a file is in words."""
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
            except Exception as error:  # Arrow's, and those of the storage library
                return Look(file=file, rows_problem=f"the footer of {name} {why_unreadable(error)}")
    except Exception as error:  # whatever a storage library raises
        return Look(file=file, problem=f"{name} {why_unreadable(error)}")


def _wrong_size(name: str, size: int, recorded: int) -> str | None:
    return None if size == recorded else f"{name} has {size:,} bytes, its recorded size is {recorded:,}"


def statistics_problems(table: Table) -> Iterator[str]:
    """Yield the statistics files of a table that are missing or not as long as recorded."""
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
    """Yield the metadata files that the table's log refers to, and that are not there; the current one first.

    Args:
        table: The table.
        load: Loads it afresh: a commit meanwhile may have let go of files, and deleted them.
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
    except Exception as error:  # whatever a storage library raises
        return None, why_unreadable(error)


@dataclass(slots=True, kw_only=True)
class _Column:
    """What has been seen of a column.

    Attributes:
        path: Names from the top.
        kind: Its type in the file.
        values: How many values it has, nulls too.
        nulls: How many are null.
        nans: How many are NaN.
        low: The lowest value, as `_ordered` makes it; None if there is none.
        high: The highest one.
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
    """Yield where the metrics of files do not say what is in them.

    Args:
        io: Opens the table's files.
        contents: The table.
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
    live = [entry.data_file for entry in all_entries(io, used) if entry.status.name != "DELETED"]
    return [found for found in live if found.file_format is FileFormat.PARQUET]


def _problems_of(io: FileIO, data_file: DataFile) -> Iterator[str]:
    name = f"{kind(ListedFile.of(data_file))} {data_file.file_path}"
    try:
        columns, rows = _read(io, data_file.file_path)
    except Exception as error:  # Arrow's, and those of the storage library
        yield f"{name} {why_unreadable(error)}"
        return
    if rows != data_file.record_count:
        yield f"{name} has {rows:,} rows, its recorded count is {data_file.record_count:,}"
    for number, column in columns.items():
        yield from (f"{name}, column {'.'.join(column.path)}: {wrong}" for wrong in _wrong(data_file, number, column))


def _read(io: FileIO, path: str) -> tuple[dict[int, _Column], int]:
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
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
    """Yield the columns that are in no list or map, by their field ids; those without one are left out."""
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
    if lower is not None and lower > column.low:  # type: ignore[operator]  # of one type
        yield f"its lower bound {_shown(lower)} is above the value {_shown(column.low)}"
    if upper is not None and upper < column.high:  # type: ignore[operator]  # of one type
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
    """Return the values as numbers, or as bytes: no date is too far off for them."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004  # bits
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.large_binary())
    return values


def _bound(  # noqa: PLR0911  # one return a type
    bounds: Mapping[int, bytes] | None, number: int, column: _Column
) -> object:
    """Return a bound in the terms of the column's values, None if there is none that can be compared.

    A column may have been widened since the file was written, and the bound be of either type.
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
        microseconds = _MICROSECONDS.get(kind.unit)  # none: a bound of nanoseconds may be of either unit
        return Decimal(int.from_bytes(raw, "little", signed=True)) / microseconds if microseconds else None
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return int.from_bytes(raw, "little", signed=True)
    return bytes(raw)
