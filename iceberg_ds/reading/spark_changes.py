"""Changes of rows as a DataFrame over Spark's own Parquet reader: each file is read once, by however many changes.

A row is visible from the moment its file is in the table to the one in which it is gone, except while a delete hides
it. Where it begins or ends to be visible as a snapshot is committed, that snapshot inserted or deleted it. So the plan
of Spark grows with the number of files, and not with that of snapshots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.types import NestedField
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.deletes.work import KeyFile
from iceberg_ds.reading.deleted_rows import positions_by_source
from iceberg_ds.reading.extras import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    COMMIT_TIMESTAMP,
    DELETE,
    INSERT,
)
from iceberg_ds.reading.file_marks import Portion, constant, portions
from iceberg_ds.reading.lives import END, FileId
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_columns import ReadColumn
from iceberg_ds.reading.spark_files import ROW, SparkFiles, alike, as_shown, together
from iceberg_ds.reading.spark_keys import EVERYWHERE, PLACE, Places, SparkKeys, spark_keys
from iceberg_ds.snapshots.live_files import HiddenBy, Source
from iceberg_ds.spark.arrow_frame import arrow_frame
from iceberg_ds.table.names import free_name, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Columns of our own: the life of a row's file, what is to be known of the file, and when deletes hide the row.
_SINCE, _UNTIL, _SEQUENCE, _PLACE, _FILE = (
    "__changes_since",
    "__changes_until",
    "__changes_sequence",
    "__changes_place",
    "__changes_file",
)
_HIDDEN, _AT_TIMES = "__changes_hidden", "__changes_at_times"
# Columns of deletes by position.
_OF_FILE, _AT = "__changes_of_file", "__changes_at"
_LIFE = pa.struct([("since", pa.int32()), ("until", pa.int32())])
_POSITIONS = pa.schema([(_AT, pa.int64()), *_LIFE])
# Keys hide rows of files with lower sequence numbers, in one partition or in all.
_KEY_LIFE = pa.struct([("below", pa.int64()), ("place", pa.int32()), *_LIFE])
# So many deletes by position go to all tasks.
_MOST_BROADCAST = 1_000_000
_NEVER = "cast(array() AS array<struct<since:int,until:int>>)"


def _is_visible(moment: str) -> str:
    """Return whether a row is visible at a moment, as SQL."""
    is_hidden = f"exists({_AT_TIMES}, h -> h.since <= {moment} AND {moment} < h.until)"
    return f"({_SINCE} <= {moment} AND {moment} < {_UNTIL} AND NOT {is_hidden})"


# The moments in which a row begins to be visible and, below 0, those in which it ends to be.
_BOUNDS = f"concat(array({_SINCE}, {_UNTIL}), flatten(transform({_AT_TIMES}, h -> array(h.since, h.until))))"
_TURNS = f"filter(array_distinct({_BOUNDS}), m -> m % 2 = 1 AND {_is_visible('m')} <> {_is_visible('(m - 1)')})"
_CHANGED = f"transform({_TURNS}, m -> if({_is_visible('m')}, m, -m))"
# The same of a row that no delete hides, as of most: its file alone tells, in a fraction of the time.
_UNTIL_GONE = f"if({_UNTIL} % 2 = 1, array(-{_UNTIL}), cast(array() AS array<int>))"
_CHANGED_BY_FILE = f"if({_SINCE} % 2 = 1, concat(array({_SINCE}), {_UNTIL_GONE}), {_UNTIL_GONE})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletes:
    """What hides rows, and when.

    Attributes:
        places: Numbers of the partitions in which keys delete.
        keys: Delete files of the same columns, with each of their keys once, and its lives.
        positions: As `hidden_positions` returns them.
    """

    places: Places
    keys: Sequence[tuple[SparkKeys, DataFrame]]
    positions: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkChanges:
    """A read of changes that Spark carries out.

    Attributes:
        files: Reads the files, of a plan that `change_scan.plan_changes` has made.
        fields: The columns of the table that are wanted, in order.
    """

    files: SparkFiles
    fields: Sequence[NestedField]

    def frame(self) -> DataFrame:
        """Return the rows that a snapshot inserted or deleted, with what became of them, as `extras.CHANGE_COLUMNS`.

        Raises:
            DataFileError: A data file is missing, or a delete file is damaged.
        """
        self.files.let_spark_read()
        plan = self.files.plan
        changed = _files(plan.tasks)
        columns = self.files.columns(self.fields, (key for task in changed for key in task.work.keys))
        places = Places.among(task.data_file for task in changed)
        deletes = _Deletes(
            places=places,
            keys=[(one, self._lives_by_key(one, places)) for one in spark_keys(self.files, changed, columns)],
            positions=hidden_positions(self.files.io, plan.tasks),
        )
        frames = [
            self._portion(portion, number, columns, deletes)
            for some in alike(changed)
            for number in range(max(len(plan.lives[task.file_id]) for task in some))
            for portion in portions([task for task in some if len(plan.lives[task.file_id]) > number])
        ]
        return self._with_snapshots(together(frames))

    @property
    def _moment(self) -> str:
        """Name of the column with the moments, beside columns of the table."""
        return free_name("__changes_moment", {field.name.lower() for field in self.fields})

    def _portion(
        self, portion: Portion[ScanTask], number: int, columns: Sequence[ReadColumn], deletes: _Deletes
    ) -> DataFrame:
        """Return the rows of a portion of the files once for each moment in which they changed.

        Args:
            portion: The files, with all keys that delete rows of each at any time.
            number: Which of their lives is looked at.
            columns: The columns that are read.
            deletes: What hides rows.
        """
        lives = {task.work.path: self.files.plan.lives[task.file_id][number] for task in portion.files}
        numbers = {task.work.path: place for place, task in enumerate(portion.files)}
        told = {
            _SINCE: lambda task: lives[task.work.path].since,
            _UNTIL: lambda task: lives[task.work.path].until,
            _SEQUENCE: lambda task: task.work.sequence_number,
            _PLACE: lambda task: deletes.places.of(task.data_file),
            _FILE: lambda task: numbers[task.work.path],
        }
        rows = self.files.marked(portion, columns)
        rows = rows.selectExpr("*", *(f"{portion.number_text(of)} AS {name}" for name, of in told.items()))
        hidden: dict[str, str] = {}  # by the columns that say when, null for never
        listed = {number: deletes.positions[path] for path, number in numbers.items() if path in deletes.positions}
        if listed:
            rows = self._with_positions(rows, listed)
            hidden[_HIDDEN] = f"coalesce({_HIDDEN}, {_NEVER})"
        own = {key.field_ids for task in portion.files for key in task.work.keys}
        for at, (keys, lives_by_key) in enumerate(deletes.keys):
            if keys.keys[0].field_ids in own:
                name = f"{_HIDDEN}_{at}"
                rows = keys.joined(rows, lives_by_key.withColumnRenamed(_HIDDEN, name), "left")
                applies = f"h.below > {_SEQUENCE} AND (h.place = {EVERYWHERE} OR h.place = {_PLACE})"
                hidden[name] = (
                    f"transform(filter(coalesce({name}, array()), h -> {applies}), "
                    "h -> named_struct('since', h.since, 'until', h.until))"
                )
        changed = _CHANGED_BY_FILE
        if hidden:
            is_never_hidden = " AND ".join(f"{name} IS NULL" for name in hidden)
            rows = rows.selectExpr(
                "*", f"if({is_never_hidden}, NULL, concat({', '.join((_NEVER, *hidden.values()))})) AS {_AT_TIMES}"
            )
            changed = f"if({_AT_TIMES} IS NULL, {_CHANGED_BY_FILE}, {_CHANGED})"
        return rows.select(*map(as_shown, columns[: len(self.fields)]), F.explode(F.expr(changed)).alias(self._moment))

    def _lives_by_key(self, keys: SparkKeys, places: Places) -> DataFrame:
        """Return each deleted key once, with when it hides which rows."""
        numbers = {key: number for number, key in enumerate(keys.keys)}
        deletes = keys.frame(lambda _: 0, numbers.__getitem__)
        lists = [
            [
                {"below": key.applies_below, "place": keys.place(places, key), "since": life.since, "until": life.until}
                for life in self.files.plan.lives[key.path, key.applies_below]
            ]
            for key in keys.keys
        ]
        lives = constant(self.files.spark, pa.array(lists, pa.list_(_KEY_LIFE)))
        found = deletes.select(*keys.names, F.get(lives, F.col(PLACE)).alias(_HIDDEN))
        return found.groupBy(*keys.names).agg(F.flatten(F.collect_list(_HIDDEN)).alias(_HIDDEN))

    def _with_positions(self, rows: DataFrame, listed: Mapping[int, pa.Table]) -> DataFrame:
        """Return rows with when deletes hide them by position, null if never.

        Args:
            rows: The rows, with the number of the file and the position of each.
            listed: The deletes of files, as `hidden_positions` returns them, by the number of the file.
        """
        of_file = pa.chunked_array(
            [pa.repeat(pa.scalar(file, pa.int32()), len(found)) for file, found in listed.items()]
        )
        lives_of_files = pa.concat_tables(listed.values()).append_column(_OF_FILE, of_file)
        grouped = lives_of_files.group_by([_OF_FILE, _AT], use_threads=False).aggregate(
            [(field.name, "list") for field in _LIFE]
        )
        since, until = (grouped.column(f"{field.name}_list").combine_chunks() for field in _LIFE)
        lives = pa.StructArray.from_arrays([since.values, until.values], fields=list(_LIFE))
        hidden = pa.ListArray.from_arrays(since.offsets, lives)
        deletes = arrow_frame(self.files.spark, grouped.select([_OF_FILE, _AT]).append_column(_HIDDEN, hidden))
        if len(hidden) <= _MOST_BROADCAST:
            deletes = F.broadcast(deletes)
        is_same = (rows[_FILE] == deletes[_OF_FILE]) & (rows[ROW] == deletes[_AT])
        return rows.join(deletes, is_same, "left")

    def _with_snapshots(self, rows: DataFrame) -> DataFrame:
        """Return what each change is and what snapshot made it, in place of its moment.

        Changes by other snapshots than those of the plan are left out: another read has them.
        """
        changes = {task.change.ordinal: task.change for task in self.files.plan.tasks if task.change is not None}
        by_ordinal = [changes.get(ordinal) for ordinal in range(max(changes) + 1)]
        ids = pa.array([one and one.snapshot_id for one in by_ordinal], pa.int64())
        times = pa.array([one and one.timestamp_ms * 1000 for one in by_ordinal], pa.int64())
        ordinal = F.expr(f"cast(shiftright(abs({self._moment}), 1) AS int)")
        told = rows.select(
            *(quoted(field.name) for field in self.fields),
            F.expr(f"if({self._moment} > 0, '{INSERT}', '{DELETE}')").alias(CHANGE_TYPE),
            ordinal.alias(CHANGE_ORDINAL),
            F.get(constant(self.files.spark, ids), ordinal).alias(COMMIT_SNAPSHOT_ID),
            F.timestamp_micros(F.get(constant(self.files.spark, times), ordinal)).alias(COMMIT_TIMESTAMP),
        )
        return told.where(F.col(COMMIT_SNAPSHOT_ID).isNotNull())


def _files(tasks: Iterable[ScanTask]) -> list[ScanTask]:
    """Return each data file once, with all keys that delete rows of it at any time, and no other deletes."""
    keys: dict[FileId, dict[KeyFile, None]] = defaultdict(dict)
    files: dict[FileId, ScanTask] = {}
    for task in tasks:
        files[task.file_id] = task
        for one in (task, task.hidden_by):
            keys[task.file_id].update(dict.fromkeys(() if one is None else one.work.keys))
    return [
        replace(task, work=replace(task.work, keys=(*keys[file],), hidden_by=HiddenBy()), change=None)
        for file, task in files.items()
    ]


def hidden_positions(io: FileIO, tasks: Sequence[ScanTask]) -> dict[str, pa.Table]:
    """Return which rows are deleted by position, and when, by path of the data file.

    Each delete file is read once. Memory grows with the number of positions.

    Args:
        io: Opens the table's storage.
        tasks: What a read of changes has to read.

    Returns:
        Tables with the position of a row and a life of what hides it, `_POSITIONS`.

    Raises:
        DataFileError: A delete file is missing or damaged.
    """
    further = [task.hidden_by for task in tasks if task.hidden_by is not None]
    positions = positions_by_source(io, [*tasks, *further])
    named = {path for path, _ in positions}
    return {
        path: _hidden(path, states, positions) for path, states in sources_by_moment(tasks).items() if path in named
    }


def sources_by_moment(tasks: Iterable[ScanTask]) -> dict[str, dict[int, frozenset[Source]]]:
    """Return what deletes rows of each data file by position, by path and by moments, these in order.

    What a file has in the moment that a task does not tell of is what it tells of, and what hides its rows then: what
    went meanwhile brings no row back, or another task tells of that moment.
    """
    told: dict[str, dict[int, frozenset[Source]]] = defaultdict(dict)
    guessed: dict[str, dict[int, frozenset[Source]]] = defaultdict(dict)
    for task in tasks:
        assert task.change is not None  # noqa: S101  # of a read of changes
        path, before, is_insert = task.work.path, 2 * task.change.ordinal, task.change.kind == INSERT
        told[path][before + is_insert] = sources = task.work.hidden_by.sources
        if task.hidden_by is not None:
            guessed[path][before + (not is_insert)] = sources | task.hidden_by.work.hidden_by.sources
    return {path: dict(sorted((guessed[path] | told[path]).items())) for path in told}


def _hidden(
    path: str, states: Mapping[int, frozenset[Source]], positions: Mapping[tuple[str, Source], pa.ChunkedArray]
) -> pa.Table:
    """Return which rows of a file deletes hide, and when."""
    ended = [_POSITIONS.empty_table()]
    now = _POSITIONS.empty_table()  # those that are hidden
    last: frozenset[Source] | None = None
    for moment, sources in states.items():
        if sources == last:
            continue
        arrays = [
            chunk for source in sources if (path, source) in positions for chunk in positions[path, source].chunks
        ]
        named = pa.chunked_array(arrays, pa.int64()).unique()
        stays = pc.is_in(now.column(_AT), value_set=named)
        ended.append(_until(now.filter(pc.invert(stays)), moment))
        new = named.filter(pc.invert(pc.is_in(named, value_set=now.column(_AT))))
        since = pa.repeat(pa.scalar(0 if last is None else moment, pa.int32()), len(new))
        until = pa.repeat(pa.scalar(END, pa.int32()), len(new))
        now = pa.concat_tables([now.filter(stays), pa.table([new, since, until], schema=_POSITIONS)])
        last = sources
    return pa.concat_tables([*ended, now])


def _until(lives: pa.Table, moment: int) -> pa.Table:
    column = pa.repeat(pa.scalar(moment, pa.int32()), len(lives))
    return lives.set_column(lives.schema.get_field_index("until"), _POSITIONS.field("until"), column)
