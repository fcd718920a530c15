"""What a task of a row-level operation does: it writes new rows, and notes which rows of the table go.

The positions of the rows that go are written into files that are in no table; other tasks read them, all those of a
data file together, because only then it is known whether a row is named twice, and whether any row of the file stays.
Knows neither Spark nor the catalog, and commits nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.typedef import Record

from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import NO_SPEC, WritePlan
from iceberg_ds.table.locations import FilePaths, data_locations
from iceberg_ds.writers.position_deletes import HiddenRows, write_position_deletes
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt, discarding, name_prefix

# The columns that come before those of the table: where a row of the table is that goes, null for none; and whether
# there is a new row.
FILE, POS, IS_ROW = "__row_level_file", "__row_level_pos", "__row_level_is_row"
_OURS = 3
# The most positions that wait to be written: 12 bytes each.
_MOST_WAITING = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """The message of a task.

    Attributes:
        commit: The report on the new rows.
        gone: How many rows of the table go, by path of their data file; a row that is named twice counts twice.
        positions: Files of their positions, in the form of position delete files; they are in no table.
        updated: How many rows of the table go that a new row takes the place of.
        inserted: How many new rows take the place of none.
    """

    commit: TaskCommit
    gone: Mapping[str, int]
    positions: tuple[DataFile, ...]
    updated: int = 0
    inserted: int = 0


def report_changes(plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt) -> ChangedRows:
    """Write the new rows of one task and the positions of the rows that go, and return its message.

    Args:
        plan: What the driver decided.
        batches: `FILE`, `POS` and `IS_ROW`, then the columns of `plan.schema`, as Spark sends them; may be empty.
        attempt: Becomes part of the files' names, so that no two attempts share a path.

    Raises:
        SchemaMismatchError: As `report_task`; no file of the attempt is left.
        DataFileError: As above.
        RowCountError: As above.
    """
    split = _Split(plan, attempt)
    with discarding(split, plan):
        commit = report_task(plan, split.new_rows(batches), attempt)
    return ChangedRows(
        commit=commit,
        gone=split.gone,
        positions=tuple(split.written),
        updated=split.updated,
        inserted=split.inserted,
    )


class _Split:
    """Parts the new rows from the positions of the rows that go.

    Attributes:
        gone: As `ChangedRows`.
        written: As `ChangedRows.positions`.
        updated: As `ChangedRows`.
        inserted: As `ChangedRows`.
    """

    def __init__(self, plan: WritePlan, attempt: TaskAttempt) -> None:
        self.gone: Counter[str] = Counter()
        self.written: list[DataFile] = []
        self.updated = self.inserted = 0
        self._plan = plan
        self._io = file_io(plan.io_properties, plan.location)
        places = data_locations(plan.location, plan.properties, plan.write.location_provider)
        self._paths = FilePaths(places, plan.schema, name_prefix(plan, attempt), are_deletes=True)
        self._numbers: dict[str, int] = {}  # of the data files, by path
        self._waiting: list[pa.RecordBatch] = []

    def new_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the new rows, with the table's columns; afterwards all positions are written."""
        for batch in batches:
            files, positions, is_row = (batch.column(number) for number in range(_OURS))
            # Spark may compute a condition twice, and by a function that answers otherwise then, no clause is left.
            goes = pc.and_(files.is_valid(), is_row.is_valid())
            updated = pc.and_(goes, is_row).true_count
            self.updated += updated
            self.inserted += is_row.true_count - updated
            self._note(files.filter(goes), positions.filter(goes))
            if is_row.true_count:
                yield batch.select(range(_OURS, batch.num_columns)).filter(is_row)
        self._write()

    def discard(self) -> None:
        """Delete every file of positions."""
        delete_files(self._io, [file.file_path for file in self.written], Proof.TASK_FAILED)

    def _note(self, files: pa.Array, positions: pa.Array) -> None:
        named = files.dictionary_encode()
        paths = named.dictionary.to_pylist()
        numbers = pa.array([self._numbers.setdefault(path, len(self._numbers)) for path in paths], pa.int32())
        for count in pc.value_counts(files):
            self.gone[count["values"].as_py()] += count["counts"].as_py()
        self._waiting.append(
            pa.RecordBatch.from_arrays([numbers.take(named.indices), positions.cast(pa.int64())], [FILE, POS])
        )
        if sum(map(len, self._waiting)) > _MOST_WAITING:
            self._write()

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._waiting) if self._waiting else None
        self._waiting = []
        if rows is None or not rows.num_rows:
            return
        rows = rows.sort_by([(FILE, "ascending"), (POS, "ascending")])
        numbers, positions = (rows.column(name).combine_chunks() for name in (FILE, POS))  # which copies all of them
        paths = list(self._numbers)
        hidden, begin = [], 0
        runs = pc.run_end_encode(numbers)
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            hidden.append(HiddenRows(data_file=_named(paths[number]), positions=positions[begin:end]))
            begin = end
        path = self._paths.next(NO_SPEC, Record())
        self.written.append(write_position_deletes(self._io, path, hidden, self._plan.write.files))


def _named(path: str) -> DataFile:
    """Return an entry that says no more of a data file than its path."""
    file = DataFile.from_args(
        file_path=path, file_format=FileFormat.PARQUET, partition=Record(), record_count=0, file_size_in_bytes=0
    )
    file.spec_id = NO_SPEC.spec_id
    return file
