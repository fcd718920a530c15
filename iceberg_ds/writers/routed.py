"""One task of a write whose rows name their tables: from its Arrow batches to the files of every table.

Batches with rows of several tables are parted together, up to `_MIXED_BYTES` of them. The rows of the table that comes
first go straight into its files; the rows of all others wait, in memory up to `WAITING_BYTES`, then in a temporary
file, and are written table after table, each as a task of its own write would. So memory is bounded over tables and
partitions together, and all that holds for one table holds for each. Rows of tables without a plan, and rows with
values in columns that their table is yet to get, go to the driver. Knows neither Spark nor the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.errors import RefusedRowsError, SchemaMismatchError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.messages import BadRows, LooseRows, RefusedRows, TablesCommit, TaskCommit, check_tables
from iceberg_ds.plan import Reason, RoutedPlan, TablePlan, WritePlan
from iceberg_ds.snapshots.manifests import live_entries
from iceberg_ds.table.routes import Routes, may_be_new
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS, json_texts, quarantine_rows, too_many_bad
from iceberg_ds.writers.loose import MOST_LOOSE_BYTES, loose_rows, too_many_loose
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.spill import Chunk, SpillFile
from iceberg_ds.writers.task_writer import TaskAttempt, naming_failure

# Most Arrow bytes of rows that wait in memory for the tables before theirs to be written.
WAITING_BYTES = 64 * 1024 * 1024

# Arrow bytes of rows of one table that are passed on at once: batches of many tables have few rows of each.
_STEP_BYTES = 1024 * 1024
# Arrow bytes of batches with rows of several tables that are parted together.
_MIXED_BYTES = 16 * 1024 * 1024
_UNROUTED = -1


def report_routed_task(plan: RoutedPlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt) -> TablesCommit:
    """Write the rows of one task into the tables that they name, and return the task's message.

    Args:
        plan: What the driver decided, for this micro-batch or for a batch.
        batches: The rows as Spark sends them; may be empty.
        attempt: Becomes part of the files' names, so that no two attempts share a path.

    Raises:
        SchemaMismatchError: Rows have values in a column that their table lacks, or as `report_task`.
        RefusedRowsError: Rows name a table that cannot be written.
        DataFileError: Files could not be written, or the driver would get too many rows.
        RowCountError: Rows were lost on the way.
    """
    rows = _RowsByTable(plan, batches)
    commits: list[TaskCommit] = []
    try:
        while (table := rows.next_table()) is not None:
            commits.append(report_task(table.plan, rows.of(table), attempt))
        # The driver writes its rows as one more task of the write that was planned, such as an overwrite.
        loose = rows.tables_of_loose_rows({commit.write.table for commit in commits})
        commits += [report_task(table.plan, [], attempt) for table in loose]
        message = TablesCommit(
            attempt.partition_id,
            rows.received,
            tuple(commits),
            loose=rows.loose(),
            refused=rows.unrouted.refused(),
            bad=rows.unrouted.bad(),
            epoch=plan.epoch,
            is_overwrite=plan.is_overwrite,
        )
        check_tables(message)
    except BaseException:
        for commit in commits:
            _discard(plan.tables[commit.write.table].plan, commit)
        raise
    finally:
        rows.close()
    return message


def _discard(plan: WritePlan, commit: TaskCommit) -> None:
    """Delete the files of a table that was written before the task failed."""
    io = file_io(plan.io_properties, plan.location)
    paths = [file.file_path for file in (*commit.data_files, *commit.delete_files)]
    for manifest in commit.manifests:
        paths += [*(entry.data_file.file_path for entry in live_entries(io, manifest.file)), manifest.path]
    delete_files(io, paths, Proof.TASK_FAILED)


class _RowsByTable:
    """The rows of a task, by the tables that they name."""

    def __init__(self, plan: RoutedPlan, batches: Iterable[pa.RecordBatch]) -> None:
        self.received = 0
        self.unrouted = _UnroutedRows(plan)
        self._plan = plan
        self._batches = iter(batches)
        self._routes = Routes(plan.rule)
        self._numbers: dict[str | bytes | None, int] = {}  # of tables, by the values that name them
        self._tables: list[str] = []
        self._number_of: dict[str, int] = {}
        self._first: int | None = None
        self._waiting = _Waiting()
        self._loose = _Waiting(is_kept=True)
        self._mixed: list[tuple[pa.Array, pa.RecordBatch]] = []
        self._mixed_bytes = self._pushed_bytes = 0
        self._left: Iterator[int] | None = None
        self._pushed: list[pa.RecordBatch] = []
        self._frame: dict[str, Any] = json.loads(plan.frame)
        self._columns: dict[str, list[str]] = {}

    def next_table(self) -> TablePlan | None:
        """Return the next table with rows that tasks write, or None after the last one; take all its rows first."""
        if self._left is None:
            if (first := self._advance()) is not None:
                return self._plan.tables[self._tables[first]]
            self._left = iter(self._waiting.numbers)
        number = next(self._left, None)
        return None if number is None else self._plan.tables[self._tables[number]]

    def of(self, table: TablePlan) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table that `next_table` has returned."""
        number = self._number_of[table.plan.write.table]
        if number != self._first:
            with naming_failure(table.plan):
                yield from self._waiting.take(number)
            return
        while self._read():
            pushed, self._pushed, self._pushed_bytes = self._pushed, [], 0
            yield from _joined(pushed)
        self._left = iter(self._waiting.numbers)

    def loose(self) -> tuple[LooseRows, ...]:
        """Return the rows for the driver."""
        return tuple(
            loose_rows(self._tables[number], self._frame_of(self._tables[number]), list(self._loose.take(number)))
            for number in self._loose.numbers
        )

    def tables_of_loose_rows(self, written: Collection[str]) -> list[TablePlan]:
        """Return the tables with a plan that have rows for the driver and are not among those that were written."""
        names = [self._tables[number] for number in self._loose.numbers]
        return [self._plan.tables[name] for name in names if name in self._plan.tables and name not in written]

    def close(self) -> None:
        """Forget all rows."""
        self._waiting.close()

    def _advance(self) -> int | None:
        """Read until a table with a plan has rows, and return its number, or None if no such table is left."""
        while self._read_batch():
            if self._first is not None:
                return self._first
        return None

    def _read(self) -> bool:
        """Read until the first table has rows that are worth a step; return whether it has any."""
        while self._pushed_bytes < _STEP_BYTES and self._read_batch():
            pass
        return bool(self._pushed)

    def _read_batch(self) -> bool:
        """Read a batch and bring its rows on their way, maybe later; return whether there was one, or rows waited."""
        batch = next(self._batches, None)
        if batch is None:
            is_last = bool(self._mixed)
            self._divide()
            return is_last
        self.received += batch.num_rows
        if batch.num_rows:
            self._look_at(batch)
        return True

    def _look_at(self, batch: pa.RecordBatch) -> None:
        values = batch.column(self._plan.column).dictionary_encode(null_encoding="encode")
        numbers = pa.array([self._number(value) for value in _texts_of(values.dictionary)], pa.int32())
        if len(set(numbers.to_pylist())) == 1:
            self._divide()
            self._take(numbers[0].as_py(), batch, is_whole=True)
            return
        self._mixed.append((numbers.take(values.indices), batch))
        self._mixed_bytes += batch.nbytes
        if self._mixed_bytes > _MIXED_BYTES:
            self._divide()

    def _divide(self) -> None:
        """Part the rows of batches with rows of several tables; together, since there are few of each in one batch."""
        if not self._mixed:
            return
        numbers = pa.chunked_array([numbers for numbers, _ in self._mixed]).combine_chunks()
        rows = pa.Table.from_batches([batch for _, batch in self._mixed])
        self._mixed, self._mixed_bytes = [], 0
        start = 0
        for portion in rows.combine_chunks().to_batches():  # one, unless texts are very long
            self._part(numbers.slice(start, portion.num_rows), portion)
            start += portion.num_rows

    def _part(self, numbers: pa.Array, rows: pa.RecordBatch) -> None:
        """Bring rows of several tables on their way, whose numbers are given row by row."""
        order = pc.sort_indices(numbers)
        runs = pc.run_end_encode(numbers.take(order))
        ordered, start = rows.take(order), 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            self._take(number, ordered.slice(start, end - start))
            start = end

    def _number(self, value: str | bytes | None) -> int:
        """Return the number of the table that a value names, or `_UNROUTED`; bytes name none."""
        known = self._numbers.get(value)
        if known is None:
            table = None if isinstance(value, bytes) else self._routes.table_of(value)
            known = _UNROUTED if table is None or not self._may_be_named(table) else self._number_of_table(table)
            self._numbers[value] = known
        return known

    def _may_be_named(self, table: str) -> bool:
        plan = self._plan
        if plan.new_tables is None or any(table in there for there in (plan.tables, plan.refused, plan.waiting)):
            return True
        return may_be_new(table, plan.new_tables)

    def _number_of_table(self, table: str) -> int:
        if table not in self._number_of:
            self._number_of[table] = len(self._tables)
            self._tables.append(table)
        return self._number_of[table]

    def _take(self, number: int, rows: pa.RecordBatch, *, is_whole: bool = False) -> None:
        """Bring rows of one table on their way; `is_whole` if they are a whole batch, which is passed on uncopied."""
        if number == _UNROUTED:
            self.unrouted.take(rows)
            return
        name = self._tables[number]
        if (reason := self._plan.refused.get(name)) is not None:
            raise RefusedRowsError(reason)
        table = self._plan.tables.get(name)
        if table is None:
            self._send(number, rows.select(self._picked(name)))
            return
        filled = [column for column in table.absent if rows.column(column).null_count < rows.num_rows]
        if filled and not table.may_gain:
            raise SchemaMismatchError(_lacking(name, filled))
        if filled:
            self._send(number, rows.select(self._picked(name)))
            return
        rows = rows.select(table.columns)
        if self._first is None:
            self._first = number
        if number == self._first:
            self._pushed.append(rows if is_whole else _apart(rows))
            self._pushed_bytes += rows.nbytes
        else:
            self._waiting.add(number, rows)

    def _send(self, number: int, rows: pa.RecordBatch) -> None:
        self._loose.add(number, rows)
        if self._loose.size_bytes > MOST_LOOSE_BYTES:
            raise too_many_loose([self._tables[found] for found in self._loose.numbers])

    def _picked(self, table: str) -> list[str]:
        """Return the columns that the driver gets of rows of a table."""
        columns = self._columns.get(table)
        if columns is None:
            named = self._plan.waiting.get(table) or self._plan.picked.get(table.lower())
            known = [column["name"] for column in self._frame["fields"]]
            there = self._plan.tables.get(table)
            if there is not None:
                named = (*there.columns, *there.absent)
            columns = [name for name in known if (name != self._plan.column if named is None else name in named)]
            self._columns[table] = columns
        return columns

    def _frame_of(self, table: str) -> str:
        names = set(self._picked(table))
        fields = [column for column in self._frame["fields"] if column["name"] in names]
        return json.dumps({**self._frame, "fields": fields})


def _lacking(table: str, columns: Sequence[str]) -> str:
    named = ", ".join(f"'{column}'" for column in columns)
    return (
        f"Cannot write to {table}: its rows have values in {named}, which the table lacks. Add the columns to the "
        f"table, or let writes add them: option 'route-options.{table}.schema-evolution', or 'schema-evolution' for "
        f"all, is add-columns; or name the columns to write in 'route-columns.{table}'."
    )


class _Waiting:
    """Rows of several tables, each with its own columns, in memory or in a temporary file.

    Args:
        is_kept: Whether all rows stay in memory.

    Attributes:
        size_bytes: Arrow bytes of the rows in memory.
    """

    def __init__(self, *, is_kept: bool = False) -> None:
        self.size_bytes = 0
        self._is_kept = is_kept
        self._rows: dict[int, list[pa.RecordBatch]] = {}
        self._chunks: dict[int, list[Chunk]] = {}
        self._spill: SpillFile | None = None

    @property
    def numbers(self) -> list[int]:
        """The tables that have rows, in the order in which they came."""
        return list(dict.fromkeys([*self._chunks, *self._rows]))

    def add(self, number: int, rows: pa.RecordBatch) -> None:
        """Take rows of a table."""
        rows = _apart(rows)
        self._rows.setdefault(number, []).append(rows)
        self.size_bytes += rows.nbytes
        if self.size_bytes > WAITING_BYTES and not self._is_kept:
            self._write()

    def take(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, in the order in which they came, and forget them."""
        for chunk in self._chunks.pop(number, []):
            assert self._spill is not None  # noqa: S101  # chunks lie in it
            yield self._spill.read(chunk)
        waiting = self._rows.pop(number, [])
        self.size_bytes -= sum(rows.nbytes for rows in waiting)
        yield from _joined(waiting)

    def close(self) -> None:
        """Forget all rows."""
        self._rows, self._chunks = {}, {}
        if self._spill is not None:
            self._spill.close()

    def _write(self) -> None:
        self._spill = self._spill or SpillFile("waiting for the tables before theirs")
        for number, waiting in self._rows.items():
            for rows in _joined(waiting):
                self._chunks.setdefault(number, []).append(self._spill.write(rows))
        self._rows, self.size_bytes = {}, 0


def _apart(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy in memory of its own: a slice, or some columns, would hold the memory of a whole batch."""
    return pa.ipc.read_record_batch(rows.serialize(), rows.schema)


def _joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows of batches in as few batches as their texts allow, without what else their memory holds."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []


class _UnroutedRows:
    """The rows that name no table which may be written: they fail the write, go to the quarantine, or are lost.

    Args:
        plan: What the driver decided.
    """

    def __init__(self, plan: RoutedPlan) -> None:
        self._column = plan.column
        self._policy = plan.bad_rows
        self._epoch = plan.epoch
        self._count = self._kept_bytes = 0
        self._value = ""
        self._kept: list[pa.RecordBatch] = []

    def take(self, rows: pa.RecordBatch) -> None:
        """Take rows, at least one.

        Raises:
            DataFileError: There are too many to send them to the driver.
        """
        if not self._count:
            self._value = repr(_texts_of(rows.column(self._column).slice(0, 1))[0])
        self._count += rows.num_rows
        if self._policy is not None and self._policy.quarantine is not None:
            self._keep(rows)

    def refused(self) -> RefusedRows | None:
        """Return the rows that fail the write, or None if there are none."""
        if self._policy is not None or not self._count:
            return None
        return RefusedRows(count=self._count, example=self._value)

    def bad(self) -> BadRows | None:
        """Return the rows that go to the quarantine table or are lost, or None if there are none."""
        if self._policy is None or not self._count:
            return None
        target = self._policy.quarantine
        rows = None if target is None else loose_rows(target, QUARANTINE_COLUMNS, self._kept)
        return BadRows(counts={Reason.ROUTE.value: self._count}, example=self._reason, rows=rows)

    @property
    def _reason(self) -> str:
        return f"{Reason.ROUTE.value}: column '{self._column}': names no table that may be written"

    def _keep(self, rows: pa.RecordBatch) -> None:
        position, count = rows.schema.get_field_index(self._column), rows.num_rows
        names = [name if isinstance(name, str) else None for name in _texts_of(rows.column(position))]
        kept = quarantine_rows(
            json_texts(rows, [(position, pc.is_null(rows.column(position)))]),
            pa.array(names, pa.string()),
            [[self._column]] * count,
            [self._reason] * count,
            self._epoch,
        )
        self._kept.append(kept)
        self._kept_bytes += kept.nbytes
        if self._kept_bytes > MOST_LOOSE_BYTES:
            raise too_many_bad("write to several tables", self._count, self._reason)


def _texts_of(values: pa.Array) -> Sequence[str | bytes | None]:
    """Return texts; as bytes those that are no UTF-8, which other engines let a column of text have."""
    try:
        found: list[str | bytes | None] = values.to_pylist()
    except UnicodeDecodeError:
        found = [_text(value) for value in values]
    return found


def _text(value: pa.StringScalar) -> str | bytes | None:
    try:
        text: str | None = value.as_py()
    except UnicodeDecodeError:
        return bytes(value.as_buffer())
    return text
