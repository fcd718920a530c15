"""The reads of a running stream, on the driver: loads the table, and plans what lies between two offsets.

Files are spread over tasks. Those of a partition in which a snapshot both deletes and inserts rows are read by one, and
all of such a snapshot if keys tell which row is which: it must see all rows that may belong together.

The columns are those that the DataFrame was made with, found again by field id however the table changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType
from pyspark.sql.types import StructType

from iceberg_ds.commit.alter import alter_table
from iceberg_ds.deletes.index import all_specs
from iceberg_ds.errors import IcebergSinkError, OptionError, SchemaMismatchError, StreamHistoryError
from iceberg_ds.parsing import whole_number
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.reading.change_history import ChangeStep
from iceberg_ds.reading.change_scan import changed_tasks, plan_changes
from iceberg_ds.reading.consumers import record_request
from iceberg_ds.reading.extras import EXTRAS
from iceberg_ds.reading.python_scan import TASK_BYTES, PythonScan, task_groups
from iceberg_ds.reading.request import LoadedTable, PlannedRead, ReadRequest
from iceberg_ds.reading.row_changes import has_both_sides
from iceberg_ds.reading.scan import ScanPlan, SnapshotChoice, added_tasks, plan_scan
from iceberg_ds.reading.scan_task import ScanTask, TaskFiles
from iceberg_ds.reading.stream import Course, Limits, Offset, Step, change_of, why_other_types
from iceberg_ds.snapshots.live_files import LiveFile
from iceberg_ds.snapshots.refs import find_snapshot
from iceberg_ds.table.bin_packing import packed
from iceberg_ds.table.lineage import ROW_ID
from iceberg_ds.table.spark_types import UnreadTypeError, spark_struct

logger = logging.getLogger(__name__)


class StreamRead:
    """The reads of one run of a query.

    Args:
        request: What is read.
        schema: The columns, as Spark has them since the DataFrame was made.
    """

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self._request = request
        self._asked = schema
        self._known: LoadedTable | None = None
        self._schema: Schema | None = None
        self._files: dict[tuple[int, bool], Sequence[ScanTask]] = {}
        self._stream = uuid4().hex
        self._begin: Offset | None = None
        self._done: Offset | None = None  # how far the stream has read for good
        self._not_noted: Offset | None = None  # what the table would not note
        self._key_types: Mapping[int, IcebergType] = {}  # of equality deletes
        self._keys: tuple[str, ...] = ()
        self._manifests: dict[str, list[LiveFile]] = {}  # of the last snapshot that changed rows, as far as it was read

    def begin(self) -> Offset:
        """Return the offset before everything, as it was when first asked for: Spark asks until rows have come.

        Raises:
            IcebergSinkError: The table cannot be loaded, or its columns have changed.
        """
        if self._begin is None:
            with self._course() as course:
                self._begin = course.begin()
        return self._begin

    def head(self) -> Offset:
        """Return the end of the branch, as it was when the table was last loaded.

        Raises:
            IcebergSinkError: The table cannot be loaded, or its columns have changed.
        """
        with self._course() as course:
            return course.head()

    def next(self, start: Offset, limits: Limits, until: int | None = None) -> Offset:
        """Load the table anew, and return where the next micro-batch ends, as `Course.next` does.

        Raises:
            IcebergSinkError: The table cannot be read, or what follows is not known.
        """
        self._known = None
        with self._course() as course:
            self._done = self._done or start  # what a query is started with is in its checkpoint
            self._note(self._waiting(course, self._done) if self._done.is_begin else self._done)
            return course.next(start, limits, until)

    def plan(self, start: Offset, end: Offset) -> tuple[PythonScan, list[TaskFiles]]:
        """Return what all tasks are told, and what each is told beside that.

        Raises:
            IcebergSinkError: The table cannot be read, or what follows is not known.
        """
        with self._course() as course:
            steps = list(course.between(start, end))
            self._files = {key: files for key, files in self._files.items() if key[0] == end.snapshot}
            assert self._known is not None  # noqa: S101  # loaded before
            return PythonScan.of(self._planned(self._known)), self._groups(steps)

    def _groups(self, steps: Sequence[tuple[Step, Sequence[ScanTask]]]) -> list[TaskFiles]:
        """Return the files of each task."""
        # A file that is added again has no deletes, even if it had some in the snapshot that is read whole.
        whole = [task for step, files in steps if step.whole for task in files]
        later = [files for step, files in steps if not step.whole]
        places = [group for files in later for group in (self._places(files) if has_both_sides(files) else [files])]
        one_sided = [task for group in places if not has_both_sides(group) for task in group]
        groups = [TaskFiles(tasks=tasks) for tasks in (*task_groups(whole), *task_groups(one_sided))]
        several = [group for group in places if has_both_sides(group)]
        for _, of_snapshot in groupby(several, key=lambda group: group[0].state[0]):
            for some in packed(of_snapshot, TASK_BYTES, lambda group: sum(task.work.size_bytes for task in group)):
                tasks = [task for group in some for task in group]
                groups.append(TaskFiles(tasks=tasks, compared=self._compared, keys=self._keys))
        return groups

    def _places(self, files: Sequence[ScanTask]) -> Iterator[Sequence[ScanTask]]:
        """Yield the files of a snapshot in groups: rows of two groups are never the same, nor of one key."""
        assert self._known is not None  # noqa: S101  # loaded before
        in_order = sorted(files, key=lambda task: task.work.place)
        known_specs, specs = all_specs(self._known.table.metadata), {task.data_file.spec_id for task in files}
        sources = {field.source_id for number in specs for field in known_specs[number].fields}
        known = {field.field_id for field in self._columns.fields}
        if self._keys or len(specs) > 1 or not sources <= known:
            yield in_order
            return
        for _, group in groupby(in_order, key=lambda task: task.work.place):
            yield list(group)

    @property
    def _compared(self) -> tuple[str, ...]:
        """Names of the columns by which rows are compared: those that the table still has, and the ids of rows."""
        assert self._known is not None  # noqa: S101  # loaded before
        now = self._known.table.schema().field_ids
        names = [field.name for field in self._columns.fields if field.field_id in now]
        return (*names, *(ROW_ID.name for name in self._request.columns or () if name == ROW_ID.name))

    def commit(self, end: Offset) -> None:
        """Take what is read up to an offset as read for good.

        Raises:
            IcebergSinkError: The table cannot be loaded, or the stream's name is that of another one.
        """
        with self._course():
            self._done = end
            if not end.is_begin:
                self._note(end)

    def _waiting(self, course: Course, begin: Offset) -> Offset:
        """Return what a stream needs that has read nothing, as a snapshot that it has not read to its end."""
        waits_at = course.waits_at() if self._request.stream.consumer_id is not None else None
        return begin if waits_at is None else replace(begin, snapshot=waits_at, files=1)

    def _note(self, done: Offset) -> None:
        """Let the table say how far the stream has read, if it has a name; what keeps it from that is logged.

        Raises:
            OptionError: The name is that of another stream.
        """
        rules, known = self._request.stream, self._known
        assert known is not None  # noqa: S101  # loaded before
        if rules.consumer_id is None or done == self._not_noted:
            return
        propose = partial(
            record_request, table=self._request.name, rules=rules, end=done, now_ms=time.time_ns() // 1_000_000
        )
        try:
            if propose(known.table.metadata) is None:
                return
            alter_table(known.catalog, self._request.options.table, propose)
        except OptionError:
            raise
        except IcebergSinkError as problem:  # the table says less than the stream has read, which harms nothing
            self._not_noted = done
            logger.warning(
                "%s does not say how far '%s' has read it: %s", self._request.name, rules.consumer_id, problem
            )

    @contextmanager
    def _course(self) -> Iterator[Course]:
        loaded = self._known or self._request.load_for_tasks()
        with loaded.catalog.hiding_secrets():
            if self._known is None:
                self._settle_columns(loaded)
                self._known = loaded
            files_of = partial(self._files_of, loaded.table)
            yield Course(self._request.name, loaded.table.metadata, self._request.stream, files_of, self._stream)

    def _files_of(self, table: Table, step: Step) -> Sequence[ScanTask]:
        key = (step.snapshot.snapshot_id, step.whole)
        if key not in self._files:
            self._files[key] = self._find_files(table, step)
        return self._files[key]

    def _find_files(self, table: Table, step: Step) -> Sequence[ScanTask]:
        if not self._request.has_changes:
            return self._whole(table, step) if step.whole else self._added(table, step)
        if not step.whole and change_of(step.snapshot) is not None:
            return self._changed(table, step)
        inserted = ChangeStep(snapshot=step.snapshot, parent=None, ordinal=step.ordinal)
        tasks = self._whole(table, step) if step.whole else self._added(table, step)
        return list(changed_tasks((), tasks, inserted))

    def _changed(self, table: Table, step: Step) -> Sequence[ScanTask]:
        before = step.snapshot.parent_snapshot_id
        parent = None if before is None else find_snapshot(table.metadata, before)
        changed = ChangeStep(snapshot=step.snapshot, parent=parent, ordinal=step.ordinal)
        plan = plan_changes(
            self._request.name, table.metadata, table.io, self._columns, [changed], known=self._manifests
        )
        self._key_types = {**self._key_types, **plan.key_types}
        return plan.tasks

    def _added(self, table: Table, step: Step) -> Sequence[ScanTask]:
        name, snapshot = self._request.name, step.snapshot
        tasks = added_tasks(name, table.metadata, table.io, snapshot)
        told = whole_number(summary_entries(snapshot), "added-data-files", 0)
        if len(tasks) < told:
            raise StreamHistoryError(
                f"Cannot read what follows in {name}: snapshot {snapshot.snapshot_id} says that it added {told} data "
                f"files, and its manifests have {len(tasks)} that are marked as added by it. Look at how it was "
                "written; to go on after it, begin with a new checkpoint and option starting-snapshot-id."
            )
        return tasks

    def _whole(self, table: Table, step: Step) -> Sequence[ScanTask]:
        plan = plan_scan(
            self._request.name,
            table.metadata,
            table.io,
            SnapshotChoice(snapshot_id=step.snapshot.snapshot_id),
            where=None,  # the number of files is counted
            case_sensitive=True,
            time_zone=None,
        )
        self._key_types = {**self._key_types, **plan.key_types}
        return plan.tasks

    @property
    def _columns(self) -> Schema:
        assert self._schema is not None  # noqa: S101  # found when the table was first loaded
        return self._schema

    def _planned(self, loaded: LoadedTable) -> PlannedRead:
        table = loaded.table
        fields, extras = self._request.chosen(self._columns, table.metadata.format_version)
        plan = ScanPlan(
            name=self._request.name,
            snapshot_id=None,
            schema=self._columns,
            metadata=table.metadata,
            tasks=(),
            deletes={},
            key_files={},
            key_types=self._key_types,
            specs=all_specs(table.metadata),
        )
        return PlannedRead(
            request=self._request,
            plan=plan,
            io=table.io,
            io_properties=loaded.catalog.plan_properties(table),
            fields=fields,
            extras=extras,
        )

    def _settle_columns(self, loaded: LoadedTable) -> None:
        """Find the table's columns that Spark's are, once; see later that they are of the same types still.

        A column that the predicate names must be there: it is null in new files, whose rows would be passed over.

        Raises:
            SchemaMismatchError: They are not.
            OptionError: The predicate is none on them.
        """
        now = loaded.table.schema()
        if self._schema is None:
            asked = next(filter(self._is_asked, [now, *reversed(loaded.table.metadata.schemas)]), None)
            if asked is not None:
                keys = self._request.stream.keys
                self._keys = self._request.key_names(asked, keys) if keys else ()
            self._schema = asked
            if self._schema is not None:
                PythonScan.of(self._planned(loaded))  # which looks at the predicate
        if self._schema is None:
            reason = f"it never had the columns {self._asked.simpleString()}: leave out what sets the schema"
        else:
            planned = self._planned(loaded)
            reads_all = self._request.where is not None or self._request.has_changes
            reason = why_other_types(self._schema if reads_all else Schema(*planned.fields), now) or ""
            for name in self._keys:
                if self._schema.find_field(name).field_id not in now.field_ids:
                    reason = f"keys names column '{name}', which was dropped"
            for field in planned.tested():
                if field.field_id not in now.field_ids:
                    reason = f"where names column '{field.name}', which was dropped"
        if reason:
            raise SchemaMismatchError(
                f"Cannot read what follows in {self._request.name}: {reason}. Make the DataFrame of the stream anew, "
                "and start the query again."
            )

    def _is_asked(self, schema: Schema) -> bool:
        # An older schema may lack a column that is asked for; a newer one may have one of a type that Spark lacks.
        with suppress(OptionError, UnreadTypeError):
            fields, extras = self._request.chosen(schema)
            columns = spark_struct([*fields, *(EXTRAS[name] for name in extras)])
            return columns.simpleString() == self._asked.simpleString()
        return False
