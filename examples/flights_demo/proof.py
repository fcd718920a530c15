"""What readers find: PyIceberg reads the tables, pyarrow reads the source again, and both are compared.

The table of the change feed has deletes that PyIceberg cannot read: iceberg-rust reads it, and pyarrow its
files. Shares no code with the sink and none with Spark: the source is the package's own files, not the split
ones. Everything is done on whole columns.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from flights_demo.kills import DEPARTURES, EPOCH_KEY, FLIGHTS, Disk, Leftover, Traces, list_files
from flights_demo.source import CHANGED_MONTHS, ROW_NUMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The flights' table at the end.

    Attributes:
        landings_ms: For each epoch, when each of its snapshots was committed.
        bytes: Size of the files that are in the table.
        orphans: How many data files are in the folder and not in the table.
        metadata: Location of the newest metadata.
    """

    landings_ms: dict[int, list[int]]
    snapshots: int
    files: int
    bytes: int
    orphans: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A table beside its source; they are equal if there are no problems."""

    name: str
    rows: int
    columns: int
    problems: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedChanges:
    """The table of the change feed, as each reader finds it, beside what is to be left of the source."""

    rows: int
    readers: tuple[str, ...]
    problems: list[str]


def compare_changes(folder: Path, source: Path) -> ComparedChanges:
    """Compare what two readers find in the table of the change feed with the departures that were not cancelled."""
    table = _load_table(folder, DEPARTURES)
    flights = _read_source(source, FLIGHTS)
    was_planned = pc.less_equal(flights["month"], CHANGED_MONTHS)
    expected = flights.filter(pc.and_(was_planned, flights["dep_time"].is_valid()))
    readers = {"iceberg-rust": _read_with_datafusion, "the files themselves": _read_files}
    problems = [
        f"nyc.{DEPARTURES}: epoch {epoch_id} has {len(times)} snapshots"
        for epoch_id, times in _landings_ms(table).items()
        if len(times) != 1
    ]
    for reader, read in readers.items():
        found = read(table)
        columns = expected.select([name for name in found.column_names if name != "lsn"])
        differences = _find_differences(DEPARTURES, found.select(columns.column_names), columns)
        problems += [f"{problem}, says {reader}" for problem in differences]
    return ComparedChanges(
        rows=expected.num_rows,
        readers=tuple(readers),
        problems=problems,
    )


def _read_with_datafusion(table: Table) -> pa.Table:
    context = import_module("datafusion").SessionContext()
    context.register_table(DEPARTURES, table)
    found: pa.Table = context.sql(f"SELECT * FROM {DEPARTURES}").to_arrow_table()  # noqa: S608  # no outside input
    return found


def _read_files(table: Table) -> pa.Table:
    """Read all files and apply all deletes as the format's specification says it, without any library's reader."""
    rows, keys, places = [], [], []
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else []:
        for entry in manifest.fetch_manifest_entry(table.io):
            path = entry.data_file.file_path
            found = parquet.read_table(path.removeprefix("file://"), partitioning=None)
            number = pa.repeat(pa.scalar(entry.sequence_number, pa.int64()), found.num_rows)
            if entry.data_file.content is DataFileContent.EQUALITY_DELETES:
                keys.append(found.append_column("deleted_in", number))
            elif entry.data_file.content is DataFileContent.POSITION_DELETES:
                places.append(found)
            else:
                place = pa.array(range(found.num_rows), pa.int64())
                found = found.append_column("added_in", number).append_column("pos", place)
                rows.append(found.append_column("file_path", pa.repeat(path, found.num_rows)))
    found = pa.concat_tables(rows)
    if places:
        found = found.join(pa.concat_tables(places), ["file_path", "pos"], join_type="left anti")
    newest = pa.concat_tables(keys).group_by(ROW_NUMBER).aggregate([("deleted_in", "max")])
    found = found.join(newest, ROW_NUMBER)
    is_deleted = pc.greater(pc.fill_null(found["deleted_in_max"], 0), found["added_in"])
    names = [field.name for field in table.schema().fields]
    return found.filter(pc.invert(is_deleted)).select(names)


def find_traces(folder: Path, rows_of_months: Sequence[int], known: Collection[str]) -> Traces:
    """Return what the last killed driver left.

    Args:
        folder: The demo's folder.
        rows_of_months: How many rows each file of the source has.
        known: The leftovers of the drivers before it.
    """
    table, data, checkpoint = _load_table(folder, FLIGHTS), Disk(folder).data, folder / "checkpoint"
    files = _files(table)
    planned = _count_log(checkpoint / "offsets")
    landed_rows = sum(file.record_count for file in files.values())
    names = list_files(data) - files.keys() - set(known)
    return Traces(
        landed=1 + max(_landings_ms(table), default=-1),
        checkpointed=_count_log(checkpoint / "commits"),
        planned=planned,
        rows_under_way=sum(rows_of_months[: _count_taken(checkpoint, planned)]) - landed_rows,
        leftovers=tuple(Leftover(name=name, rows=_count_rows(data / name)) for name in sorted(names)),
    )


def _count_taken(checkpoint: Path, planned: int) -> int:
    """Return how many files of the source Spark has taken for the epochs that it has begun."""
    newest = (checkpoint / "offsets" / str(planned - 1)).read_text().splitlines()[-1]
    return 1 + int(json.loads(newest)["logOffset"])


def measure(folder: Path) -> Figures:
    """Return the figures of the flights' table as it is now."""
    table = _load_table(folder, FLIGHTS)
    files = _files(table)
    return Figures(
        landings_ms=_landings_ms(table),
        snapshots=len(table.snapshots()),
        files=len(files),
        bytes=sum(file.file_size_in_bytes for file in files.values()),
        orphans=len(list_files(Disk(folder).data) - files.keys()),
        metadata=table.metadata_location,
    )


def _load_table(folder: Path, name: str) -> Table:
    warehouse = folder / "warehouse"
    catalog = SqlCatalog("default", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    return catalog.load_table(f"nyc.{name}")


def _landings_ms(table: Table) -> dict[int, list[int]]:
    landings: dict[int, list[int]] = {}
    for snapshot in table.snapshots():
        if snapshot.summary is not None:
            landings.setdefault(int(snapshot.summary[EPOCH_KEY] or -1), []).append(snapshot.timestamp_ms)
    return landings


def _files(table: Table) -> dict[str, DataFile]:
    """Return the data files that are in the table, by name."""
    return {Path(task.file.file_path).name: task.file for task in table.scan().plan_files()}


def _count_log(log: Path) -> int:
    """Return how many epochs a log of Spark's checkpoint has: its files are named by their numbers."""
    return 1 + max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)


def _count_rows(file: Path) -> int | None:
    try:
        return int(parquet.read_metadata(file).num_rows)
    except pa.ArrowInvalid:  # Parquet says at its end what it holds
        return None


def compare(folder: Path, source: Path, name: str) -> Comparison:
    """Compare all that a table holds with its source."""
    try:
        written = _load_table(folder, name).scan().to_arrow()
    except NoSuchTableError:
        return Comparison(name=name, rows=0, columns=0, problems=[f"nyc.{name} does not exist"])
    problems = _find_differences(name, written, _read_source(source, name))
    return Comparison(name=name, rows=written.num_rows, columns=written.num_columns, problems=problems)


def _find_differences(name: str, written: pa.Table, expected: pa.Table) -> list[str]:
    if written.column_names != expected.column_names:
        return [f"nyc.{name} has the columns {written.column_names} instead of {expected.column_names}"]
    problems = _compare_counts(name, written, expected)
    if ROW_NUMBER in expected.column_names:
        problems += _compare_numbers(name, written[ROW_NUMBER], expected[ROW_NUMBER])
    return problems or _compare_columns(name, written, expected)


def _read_source(source: Path, name: str) -> pa.Table:
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    if name != FLIGHTS:
        return csv.read_csv(source / f"{name}.csv", convert_options=options)
    with zipfile.ZipFile(source / "flights.csv.zip") as archive, archive.open("flights.csv") as flights:
        rows = csv.read_csv(flights, convert_options=options)
    return rows.add_column(0, ROW_NUMBER, pa.array(range(1, rows.num_rows + 1), pa.int64()))


def _compare_counts(name: str, written: pa.Table, expected: pa.Table) -> list[str]:
    if written.num_rows == expected.num_rows:
        return []
    return [f"nyc.{name} has {written.num_rows:,} rows instead of {expected.num_rows:,}"]


def _compare_numbers(name: str, written: pa.ChunkedArray, expected: pa.ChunkedArray) -> list[str]:
    counts = {
        "lost": pc.sum(pc.invert(pc.is_in(expected, value_set=written))).as_py(),
        "doubled": len(written) - pc.count_distinct(written, mode="all").as_py(),
        "not of the source": pc.sum(pc.invert(pc.is_in(written, value_set=expected))).as_py(),
    }
    return [f"nyc.{name}: {count:,} row numbers are {what}" for what, count in counts.items() if count]


def _compare_columns(name: str, written: pa.Table, expected: pa.Table) -> list[str]:
    """Return the columns whose values or nulls differ when both sides are put in the same order."""
    keys = [ROW_NUMBER] if ROW_NUMBER in expected.column_names else expected.column_names
    order = [(key, "ascending") for key in keys]
    expected = expected.cast(written.schema).sort_by(order)
    written = written.sort_by(order)
    differing = [column for column in expected.column_names if not written[column].equals(expected[column])]
    return [f"nyc.{name}: column {column} has other values than the source" for column in differing]
