"""Sets the rows of a task that cannot be written apart from those that can, before the writers see them.

What is found here is what a task or its commit refuses where `on-bad-row` is `fail`; so the writers stay as they are,
and refuse what is left. The work is done on columns of Arrow; only bad rows are looked at one by one. Columns that a
write fills in itself are not checked. Knows neither Spark nor the catalog.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, StructType

from iceberg_ds.cdc.row_kind import RowKind, are_lone_updates, read_operations, with_deletes
from iceberg_ds.errors import DataFileError, SchemaMismatchError
from iceberg_ds.messages import BadRows, RowCounts
from iceberg_ds.plan import (
    DIFF,
    ERRORS,
    EVERY_ROW,
    BadRowPolicy,
    DynamicOverwrite,
    EpochId,
    OverwriteByFilter,
    Reason,
    WritePlan,
)
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.bad_values import check_column, may_be_bad
from iceberg_ds.table.names import find_sources
from iceberg_ds.table.nested_arrow import to_json
from iceberg_ds.table.nested_fields import all_optional
from iceberg_ds.table.partitioning import may_be_unfindable, unfindable
from iceberg_ds.writers.loose import MOST_LOOSE_BYTES, loose_rows
from iceberg_ds.writers.row_predicates import delete_test
from iceberg_ds.writers.task_writer import naming_failure

if TYPE_CHECKING:
    from iceberg_ds.expressions.row_filter import RowFilter

NULLED = "NULLED"
_REQUIRED = "is required"
_NO_UTF8 = re.compile("[\udc80-\udcff]")  # how Python marks such bytes
_RAW_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\udc[89a-f][0-9a-f]")
_ERROR = pa.struct([("column", pa.string()), ("change", pa.string()), ("reason", pa.string())])
ERRORS_TYPE = pa.list_(_ERROR)

QUARANTINE_SCHEMA = pa.schema(
    [
        ("row", pa.string()),
        ("table", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("reason", pa.string()),
        ("epoch", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)
_SPARK_TYPES = {
    "row": "string",
    "table": "string",
    "columns": {"type": "array", "elementType": "string", "containsNull": True},
    "reason": "string",
    "epoch": "long",
    "time": "timestamp",
}
# The columns of a quarantine table, as the JSON of a Spark `StructType`.
QUARANTINE_COLUMNS = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": data_type, "nullable": True, "metadata": {}}
            for name, data_type in _SPARK_TYPES.items()
        ],
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """What is wrong with some rows of a batch: in a column, or (empty name) with whole rows."""

    column: str
    reason: Reason
    detail: str
    mask: pa.Array

    @property
    def text(self) -> str:
        where = f"column '{self.column}': " if self.column else ""
        return f"{self.reason.value}: {where}{self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A column of the batches that is to be checked."""

    source: int
    named: pa.Field
    is_key: bool
    is_of_every_row: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows as Spark sent them, the same rows with their columns cast, and which of them are written (None: all)."""

    sent: pa.RecordBatch
    cast: pa.RecordBatch
    is_written: pa.Array | None

    def filter(self, mask: pa.Array) -> _Rows:
        """Return some of the rows."""
        written = None if self.is_written is None else self.is_written.filter(mask)
        return _Rows(sent=self.sent.filter(mask), cast=self.cast.filter(mask), is_written=written)


class BadRowFilter:
    """Parts the rows of one task.

    Args:
        plan: What the driver decided.
        policy: What happens to rows that cannot be written.

    Attributes:
        quarantined: How many rows go into the quarantine table.
        dropped: How many rows are lost.
    """

    def __init__(self, plan: WritePlan, policy: BadRowPolicy) -> None:
        self.quarantined = self.dropped = 0
        self._plan = plan
        self._policy = policy
        self._shape = file_shape(plan.schema, case_sensitive=plan.case_sensitive)
        self._feed, added = plan.write.changes, plan.added
        self._operations = self._feed.operation_column if self._feed else added.operation_column if added else None
        self._needs_images = self._feed is None and added is not None and DIFF in added.names
        predicate = self._feed.delete_when if self._feed else added.delete_when if added else None
        self._is_delete = delete_test(predicate, plan)
        marks = [added.mark.column] if added and added.mark else []
        self._filled = {name.lower() for name in [*(added.names if added else ()), *marks]}
        self._placement = _Placement(plan)
        self._range = _Range(plan, self._filled)
        self._schema: pa.Schema | None = None
        self._sources: list[int | None] = []
        self._places: list[_Place] = []
        self._never_null: dict[str, str] = {}
        self._defaulted: list[int] = []
        self._counts: Counter[str] = Counter()
        self._example = ""
        self._kept: list[pa.RecordBatch] = []
        self._kept_bytes = 0

    @classmethod
    def of(cls, plan: WritePlan) -> BadRowFilter | None:
        """Return the filter of a task of the plan, or None if rows that cannot be written fail the write."""
        return None if plan.write.bad_rows is None else cls(plan, plan.write.bad_rows)

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write, as the writers expect them from Spark.

        Raises:
            SchemaMismatchError: A value cannot become null (mode `null`).
            DataFileError: There are too many bad rows to send them to the driver.
        """
        for batch in batches:
            if batch.num_rows:
                with naming_failure(self._plan):
                    rows = self._passing(batch)
                yield rows
            else:
                yield batch

    def report(self) -> BadRows | None:
        """Return what was found, or None if all rows could be written."""
        if not self._counts:
            return None
        target = self._policy.quarantine
        kept = self._kept if target is not None else []
        return BadRows(
            counts=dict(self._counts),
            example=self._example,
            rows=loose_rows(target, QUARANTINE_COLUMNS, kept) if target is not None and kept else None,
        )

    def _passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._look_at(batch.schema)
        is_written, problems = self._operations_of(batch)
        columns = list(batch.columns)
        for place in self._places:
            checked = check_column(columns[place.source], place.named, case_sensitive=self._plan.case_sensitive)
            columns[place.source] = checked.values
            found = [(bad.reason, bad.detail, bad.mask) for bad in checked.bad]
            if place.is_key and batch.column(place.source).null_count:
                found = [one for one in found if one[0] is not Reason.REQUIRED]
                found.append((Reason.KEY, "a null in a key column", batch.column(place.source).is_null()))
            for reason, detail, mask in found:
                if is_written is not None and not place.is_of_every_row:
                    mask = pc.and_(mask, is_written)  # noqa: PLW2901  # rows that only name a key need no more
                if mask.true_count:
                    problems.append(_Problem(column=place.named.name, reason=reason, detail=detail, mask=mask))
        cast = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        rows = _Rows(sent=batch, cast=cast, is_written=is_written)
        if self._policy.mode == "null":
            return self._with_nulls(rows, problems)
        rows = self._without(rows, problems)
        rows = self._without(
            rows, [*self._placement.problems(rows, self._sources), *self._range.problems(rows, self._sources)]
        )
        return rows.cast

    def _look_at(self, schema: pa.Schema) -> None:
        """Find the columns to check; all batches of a task have the same."""
        if self._schema is not None and self._schema.equals(schema):
            return
        self._schema = schema
        named = self._shape.named
        self._sources = find_sources(schema.names, named.names, case_sensitive=self._shape.case_sensitive)
        feed = self._feed
        keys = set(feed.key_ids) if feed else set()
        of_every_row = keys | ({field.field_id for field in feed.sequence} if feed and feed.counts_stored else set())
        self._places = [
            _Place(
                source=source,
                named=field,
                is_key=own.field_id in keys,
                is_of_every_row=own.field_id in of_every_row,
            )
            for source, field, own in zip(self._sources, named, self._plan.schema.fields, strict=True)
            if source is not None
            and schema.names[source].lower() not in self._filled
            and (own.field_id in keys or may_be_bad(schema.field(source).type, field))
        ]
        self._defaulted = [
            source
            for source, own in zip(self._sources, self._plan.schema.fields, strict=True)
            if source is not None and own.write_default is not None
        ]
        if self._policy.mode == "null":
            self._never_null = self._find_never_null(schema, keys)

    def _find_never_null(self, schema: pa.Schema, keys: Collection[int]) -> dict[str, str]:
        """Return the columns of the table whose values no null may take the place of, each with why."""
        feed, plan = self._feed, self._plan
        events = {self._operations, *(field.name for field in feed.sequence)} if feed else {self._operations}
        predicate = {field.name for field in plan.frame.fields} if plan.frame else set()
        replaced: set[int] = set()
        if isinstance(plan.write.overwrite, DynamicOverwrite):
            parts = [part for part in plan.spec.fields if not isinstance(part.transform, VoidTransform)]
            replaced = {path[0] for part in parts if (path := _path(plan.schema.as_struct(), part.source_id))}
        found: dict[str, str] = {}
        for position, (source, own) in enumerate(zip(self._sources, plan.schema.fields, strict=True)):
            if source is None:
                continue
            if own.required:
                found[own.name] = _REQUIRED
            elif own.field_id in keys:
                found[own.name] = "is a key"
            elif schema.names[source] in events:
                found[own.name] = "says what a row does to its key"
            elif schema.names[source] in predicate:
                found[own.name] = "delete-when reads"
            elif position in replaced:
                found[own.name] = "decides which partition is replaced"
        return found

    def _operations_of(self, batch: pa.RecordBatch) -> tuple[pa.Array | None, list[_Problem]]:
        """Return which rows are written (None: all), and what is wrong with operations."""
        problems: list[_Problem] = []
        kinds = pa.repeat(pa.scalar(RowKind.UPSERT, pa.int8()), batch.num_rows)
        if self._operations is not None:
            words = batch.column(self._operations)
            kinds = read_operations(words).kinds
            if kinds.null_count:
                problems.append(self._of_operation("an unknown operation", kinds.is_null()))
        if self._is_delete is not None:
            kinds = with_deletes(kinds, self._is_delete(batch))
        if self._operations is not None and self._needs_images:
            is_lone = pc.and_(are_lone_updates(words), pc.equal(kinds, pa.scalar(RowKind.UPSERT, pa.int8())))
            if is_lone.true_count:
                problems.append(self._of_operation("an update without the row that it replaces", _sure(is_lone)))
        if self._feed is None or self._feed.keeps_deleted:
            return None, problems
        is_written = _sure(pc.greater_equal(kinds, pa.scalar(RowKind.UPSERT, pa.int8())))
        return (None if is_written.true_count == batch.num_rows else is_written), problems

    def _of_operation(self, detail: str, mask: pa.Array) -> _Problem:
        return _Problem(column=self._operations or "", reason=Reason.OPERATION, detail=detail, mask=mask)

    def _without(self, rows: _Rows, problems: Sequence[_Problem]) -> _Rows:
        """Return the good rows, and keep or count the bad ones."""
        if not problems:
            return rows
        is_bad = self._count(problems)
        if self._policy.mode == "drop":
            self.dropped += is_bad.true_count
        else:
            self.quarantined += is_bad.true_count
            self._keep(rows.sent.filter(is_bad), problems, is_bad)
        return rows.filter(pc.invert(is_bad))

    def _count(self, problems: Sequence[_Problem]) -> pa.Array:
        """Count each bad row once, under its first reason, and return which rows are bad."""
        is_bad = problems[0].mask
        self._counts[problems[0].reason.value] += is_bad.true_count
        for problem in problems[1:]:
            if (more := pc.and_not(problem.mask, is_bad).true_count) > 0:
                self._counts[problem.reason.value] += more
            is_bad = pc.or_(is_bad, problem.mask)
        self._example = self._example or problems[0].text
        return is_bad

    def _keep(self, rows: pa.RecordBatch, problems: Sequence[_Problem], is_bad: pa.Array) -> None:
        columns: list[list[str]] = [[] for _ in range(rows.num_rows)]
        reasons: list[list[str]] = [[] for _ in range(rows.num_rows)]
        for problem in problems:
            for number, is_found in enumerate(problem.mask.filter(is_bad).to_pylist()):
                if is_found:
                    reasons[number].append(problem.text)
                    if problem.column and problem.column not in columns[number]:
                        columns[number].append(problem.column)
        kept = quarantine_rows(
            json_texts(rows, self._bad_columns(problems, is_bad)),
            pa.repeat(pa.scalar(self._plan.write.table), rows.num_rows),
            columns,
            ["; ".join(texts) for texts in reasons],
            self._plan.write.epoch,
        )
        self._kept.append(kept)
        self._kept_bytes += kept.nbytes
        if self._kept_bytes > MOST_LOOSE_BYTES:
            raise too_many_bad(f"write to {self._plan.write.table}", self.quarantined, self._example)

    def _bad_columns(self, problems: Sequence[_Problem], is_bad: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield the columns of the DataFrame with bad values, each with where these are among the bad rows.

        Columns whose default would take the place of a null, if rows came again without them, are shown everywhere.
        """
        assert self._schema is not None  # noqa: S101  # rows have been looked at
        yield from ((source, pa.repeat(pa.scalar(value=True), is_bad.true_count)) for source in self._defaulted)
        for problem in problems:
            position = self._shape.named.get_field_index(problem.column)
            # The operation column may be in the DataFrame alone.
            source = self._schema.get_field_index(problem.column) if position < 0 else self._sources[position]
            if source is not None and source >= 0:
                yield source, problem.mask.filter(is_bad)

    def _with_nulls(self, rows: _Rows, problems: list[_Problem]) -> pa.RecordBatch:
        """Return the rows with nulls for bad values, and with the column that says which and why."""
        problems = self._fixable(problems)
        cast = self._nulled(rows.cast, problems)
        placed = self._fixable(self._placement.problems(replace(rows, cast=cast), self._sources))
        cast = self._nulled(cast, placed)
        problems += placed
        errors = pa.nulls(cast.num_rows, ERRORS_TYPE)
        if problems:
            errors = _errors(problems, self._count(problems))
        return cast.append_column(ERRORS, errors)

    def _fixable(self, problems: Iterable[_Problem]) -> list[_Problem]:
        """Return what is wrong with values that can become null; what the writers refuse is left to them."""
        fixable = []
        for problem in problems:
            if problem.reason in (Reason.OPERATION, Reason.KEY):
                continue
            if (why := self._never_null.get(problem.column)) is not None:
                optional = "make the column optional in the table, " if why == _REQUIRED else ""
                raise SchemaMismatchError(
                    f"Cannot write to {self._plan.write.table}: {problem.mask.true_count} of {len(problem.mask)} rows "
                    f"here have {problem.detail} in column '{problem.column}', which {why}, so that on-bad-row=null "
                    f"cannot make it null. Filter or mend these rows, {optional}or write with on-bad-row=quarantine."
                )
            fixable.append(problem)
        return fixable

    def _nulled(self, rows: pa.RecordBatch, problems: Sequence[_Problem]) -> pa.RecordBatch:
        columns = list(rows.columns)
        for problem in problems:
            source = self._sources[self._shape.named.get_field_index(problem.column)]
            assert source is not None  # noqa: S101  # only columns of the batch are checked
            numbers = pa.array(range(rows.num_rows), pa.int64())
            columns[source] = columns[source].take(pc.if_else(problem.mask, pa.scalar(None, pa.int64()), numbers))
        return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def row_counts(received: int, left_out: int, bad: BadRowFilter | None) -> RowCounts:
    """Return what became of the rows of a task; `bad` is what parted them, or None."""
    if bad is None:
        return RowCounts(received=received, left_out=left_out)
    return RowCounts(received=received, left_out=left_out, quarantined=bad.quarantined, dropped=bad.dropped)


def quarantine_rows(
    texts: pa.Array, tables: pa.Array, columns: Sequence[Sequence[str]], reasons: Sequence[str], epoch: EpochId | None
) -> pa.RecordBatch:
    """Return rows of a quarantine table.

    Args:
        texts: The bad rows, as `json_texts` writes them.
        tables: Identifier of the table that each was for.
        columns: The columns of each with a bad value.
        reasons: The reasons of each, and what is wrong.
        epoch: The micro-batch, None for a batch.
    """
    number = pa.scalar(epoch.epoch_id if epoch else None, pa.int64())
    now = pa.scalar(time.time_ns() // 1000, QUARANTINE_SCHEMA.field("time").type)
    return pa.RecordBatch.from_arrays(
        [
            texts,
            tables,
            pa.array(columns, QUARANTINE_SCHEMA.field("columns").type),
            pa.array(reasons, pa.string()),
            pa.repeat(number, len(texts)),
            pa.repeat(now, len(texts)),
        ],
        schema=QUARANTINE_SCHEMA,
    )


def too_many_bad(action: str, count: int, example: str) -> DataFileError:
    """Return the error of a task with more rows for a quarantine table than it may send."""
    return DataFileError(
        f"Cannot {action}: a task has more than {MOST_LOOSE_BYTES // 2**20} MiB of rows that cannot be written: "
        f"{count:,} so far, for example {example}. The driver writes the quarantine table, and gets them all at once. "
        "Nothing was committed. Mend the source, or write fewer rows at once."
    )


def json_texts(rows: pa.RecordBatch, bad: Iterable[tuple[int, pa.Array]] = ()) -> pa.Array:
    r"""Return each row as the text of a JSON object; bytes of texts that are no UTF-8 stand as `\udcff`.

    Columns without a value are left out, as Spark's `to_json` leaves them out: whether a row is sent with them depends
    on the table, and on the rows beside it, where rows name their tables. The earlier try is told by these texts.
    Those that are shown all the same depend on the table alone.
    No text of Spark has such an escape: it stands for half a character, and a backslash in a text is escaped itself.

    Args:
        rows: The rows.
        bad: Numbers of columns, each with where it is shown without a value, too.
    """
    shown = [to_json(column) for column in rows.columns]
    for number, mask in bad:
        shown[number] = pc.if_else(mask, pc.fill_null(shown[number], "null"), shown[number])
    # Arrow loses rows if it is to skip nulls and a row has nothing else.
    members = [
        pc.fill_null(pc.binary_join_element_wise(f",{json.dumps(name, ensure_ascii=False)}:", text, ""), "")
        for name, text in zip(rows.schema.names, shown, strict=True)
    ]
    texts = pc.binary_join_element_wise(pa.repeat(pa.scalar("{"), rows.num_rows), *members, "}", "")
    texts = pc.replace_substring(texts, "{,", "{", max_replacements=1)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.cast(pa.binary()).to_pylist()
        return pa.array([_NO_UTF8.sub(_shown, text.decode(errors="surrogateescape")) for text in raw], pa.string())
    return texts


def has_raw_bytes(row: str) -> bool:
    """Return whether a row, as `json_texts` writes it, has text with bytes that are no UTF-8."""
    return _RAW_BYTE.search(row) is not None


def _shown(byte: re.Match[str]) -> str:
    return f"\\u{ord(byte[0]):04x}"


def _errors(problems: Sequence[_Problem], is_bad: pa.Array) -> pa.Array:
    """Return for each row the list of its problems, null for rows without one."""
    of_rows: list[list[dict[str, str]]] = [[] for _ in range(is_bad.true_count)]
    for problem in problems:
        error = {"column": problem.column, "change": NULLED, "reason": f"{problem.reason.value}: {problem.detail}"}
        for number, is_found in enumerate(problem.mask.filter(is_bad).to_pylist()):
            if is_found:
                of_rows[number].append(error)
    numbers = pc.subtract(pc.cumulative_sum(is_bad.cast(pa.int64())), 1)
    return pa.array(of_rows, ERRORS_TYPE).take(pc.if_else(is_bad, numbers, pa.scalar(None, pa.int64())))


def _sure(mask: pa.Array) -> pa.Array:
    return pc.fill_null(mask, False)  # noqa: FBT003  # Arrow's signature


class _Columns:
    """Some columns of the table, taken out of batches of a DataFrame in the types of the files.

    Args:
        plan: What the driver decided.
        positions: The positions of the columns in the table.
    """

    def __init__(self, plan: WritePlan, positions: Iterable[int]) -> None:
        self.positions = tuple(sorted(set(positions)))
        fields = [plan.schema.fields[position] for position in self.positions]
        self.schema = Schema(*fields)
        self._shape = file_shape(all_optional(fields), case_sensitive=True)

    def of(self, rows: pa.RecordBatch, sources: Sequence[int | None]) -> pa.RecordBatch:
        """Return the columns of the rows; a column that the rows lack has its default, or nulls."""
        places = [sources[position] for position in self.positions]
        found = {place: name for place, name in zip(places, self._shape.named.names, strict=True) if place is not None}
        return conform(rows.select([*found]).rename_columns([*found.values()]), self._shape)


class _Placement:
    """Finds rows whose partition no reader would find."""

    def __init__(self, plan: WritePlan) -> None:
        found = [(field, _path(plan.schema.as_struct(), field.source_id)) for field in plan.spec.fields]
        self._fields: list[tuple[PartitionField, IcebergType, tuple[int, ...]]] = [
            (field, plan.schema.find_type(field.source_id), path)
            for field, path in found
            if path and may_be_unfindable(plan.schema.find_type(field.source_id), field.transform)
        ]
        self._columns = _Columns(plan, (path[0] for _, _, path in self._fields))
        keys = plan.write.changes.key_ids if plan.write.changes else ()
        # Deletes by keys are written by partition then, too.
        self._is_of_keys = all(field.source_id in keys for field, _, _ in self._fields)

    def problems(self, rows: _Rows, sources: Sequence[int | None]) -> list[_Problem]:
        """Return what is wrong with the rows."""
        if not self._fields or not rows.cast.num_rows:
            return []
        some = None if self._is_of_keys else rows.is_written
        columns = self._columns.of(rows.cast if some is None else rows.cast.filter(some), sources)
        problems = []
        for field, source_type, path in self._fields:
            position = self._columns.positions.index(path[0])
            values = columns.column(position)
            for inner in path[1:]:
                values = pc.struct_field(values, inner)
            mask = unfindable(values, source_type, field.transform)
            if mask is None:
                continue
            if some is not None:
                mask = pc.replace_with_mask(pa.repeat(pa.scalar(value=False), len(some)), some, mask)
            name = self._columns.schema.fields[position].name
            detail = f"no reader would find partition field '{field.name}' ({field.transform})"
            problems.append(_Problem(column=name, reason=Reason.PARTITION, detail=detail, mask=mask))
        return problems


class _Range:
    """Finds rows that the write would not replace the next time; a range of columns that are filled in is not known."""

    def __init__(self, plan: WritePlan, filled: set[str]) -> None:
        self._filter: RowFilter | None = None
        overwrite = plan.write.overwrite
        if not isinstance(overwrite, OverwriteByFilter) or overwrite.predicate == EVERY_ROW:
            return
        from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415  # most tasks need no predicates

        positions = RowFilter.of(overwrite, plan.schema).positions
        if not positions or any(plan.schema.fields[position].name.lower() in filled for position in positions):
            return
        self._columns = _Columns(plan, positions)
        self._filter = RowFilter.of(overwrite, self._columns.schema)

    def problems(self, rows: _Rows, sources: Sequence[int | None]) -> list[_Problem]:
        """Return what is wrong with the rows."""
        if self._filter is None or not rows.cast.num_rows:
            return []
        outside = pc.invert(self._filter.mask(self._columns.of(rows.cast, sources)))
        if not outside.true_count:
            return []
        return [_Problem(column="", reason=Reason.RANGE, detail="the row does not satisfy replace-where", mask=outside)]


def _path(struct: StructType, field_id: int) -> tuple[int, ...]:
    """Return the positions that lead to a field inside structs; empty if there is no such field."""
    for position, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return (position,)
        if isinstance(field.field_type, StructType) and (rest := _path(field.field_type, field_id)):
            return (position, *rest)
    return ()
