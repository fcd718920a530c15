"""What a read is asked for, by arguments or by options of `icebergsource`, and its plan."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import NestedField, StructType, TimeType, UUIDType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.expressions.literals import parsed
from iceberg_ds.expressions.parser import Call, Tree, parse_predicate, texts_in
from iceberg_ds.expressions.row_filter import RowFilter
from iceberg_ds.expressions.types import TIME
from iceberg_ds.options.declaring import Option
from iceberg_ds.options.parse import options_of_call
from iceberg_ds.options.read_options import BATCH_OPTIONS, READ_OPTIONS, STREAM_OPTIONS, ReadOptions, parse_read_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.parsing import milliseconds, moment
from iceberg_ds.reading.change_history import Beginning, changed_snapshots
from iceberg_ds.reading.change_scan import plan_changes
from iceberg_ds.reading.extras import CHANGE_COLUMNS, CHANGE_TYPE, EXTRAS, PARTITION, extra_field, partition_type
from iceberg_ds.reading.metadata_tables import METADATA_TABLES
from iceberg_ds.reading.scan import ScanPlan, SnapshotChoice, chosen_schema, plan_scan
from iceberg_ds.reading.stream import Limits, OnChange, StreamRules
from iceberg_ds.secrets import masked_problem
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.lineage import LINEAGE
from iceberg_ds.table.names import AmbiguousNameError, find_position, identifier_text
from iceberg_ds.table.spark_types import UnreadTypeError, spark_type

if TYPE_CHECKING:
    from pyspark.sql import types as spark

logger = logging.getLogger(__name__)

_NO_COLUMNS = "columns names none. Leave it out to read all."
_LEAST_LEVELS = 2  # of a table that has metadata tables: a namespace and a name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """A read.

    Attributes:
        options: The table and its catalog; how names and times in a predicate are understood.
        choice: The snapshot.
        columns: Names of the columns; None for the table's.
        where: The rows; None for all.
        stream: What a stream reads.
        beginning: Where changes begin, up to the snapshot that is chosen; None to read the rows of the snapshot.
        given: Names of the options that are given.
    """

    options: SinkOptions
    choice: SnapshotChoice
    columns: tuple[str, ...] | None = None
    where: str | None = None
    stream: StreamRules = field(default_factory=StreamRules)
    beginning: Beginning | None = None
    given: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadRequest:
        """Return the read that options ask for.

        Args:
            given: The options, by names in lower case.

        Raises:
            OptionError: An option is unknown or malformed.
        """
        options = parse_read_options(given)
        branch = options.of_table.branch
        return cls(
            options=options.of_table,
            choice=SnapshotChoice(
                snapshot_id=options.snapshot_id,
                as_of_ms=options.as_of_timestamp,
                branch=branch,
                tag=options.tag,
                schema_id=options.schema_id,
            ),
            columns=options.columns,
            where=options.where,
            stream=_stream_rules(options, branch or MAIN_BRANCH),
            beginning=_beginning(options),
            given=frozenset(given),
        )

    @property
    def name(self) -> str:
        """Identifier of the table."""
        return identifier_text(self.options.table)

    @property
    def has_changes(self) -> bool:
        """Whether changes of rows are read, and the result says what became of each."""
        return self.beginning is not None or self.stream.on_change is OnChange.CHANGES

    def load(self) -> LoadedTable:
        """Load the table.

        Raises:
            TableNotFoundError: The table does not exist.
            CatalogError: The catalog could not be reached or refused.
        """
        catalog = connect_to_existing(self.options)
        with catalog.hiding_secrets():
            *parent, last = self.options.table
            is_metadata_table = last in METADATA_TABLES and len(parent) >= _LEAST_LEVELS
            if is_metadata_table and catalog.find_table(self.options.table) is None:
                return LoadedTable(catalog=catalog, table=catalog.load_table(parent), metadata_table=last)
            return LoadedTable(catalog=catalog, table=catalog.load_table(self.options.table))

    def load_for_tasks(self) -> LoadedTable:
        """Load a table whose rows tasks are to read.

        Raises:
            OptionError: It is a metadata table.
            TableNotFoundError: The table does not exist.
            CatalogError: The catalog could not be reached or refused.
        """
        loaded = self.load()
        if loaded.metadata_table is not None:
            raise OptionError(f"Cannot read {self.name} by tasks: it is a metadata table. Read it by iceberg_ds.read.")
        return loaded

    def result_fields(self) -> tuple[NestedField, ...]:
        """Load the table, and return the columns of the result, without a look at its files.

        Raises:
            OptionError: There is no such snapshot or column, or it is a metadata table.
            TableNotFoundError: The table does not exist.
            UnsupportedTableError: Spark has no type for a column.
            CatalogError: The catalog could not be reached or refused.
        """
        return self.fields_of(self.load_for_tasks().table.metadata)

    def fields_of(self, metadata: TableMetadata) -> tuple[NestedField, ...]:
        """Return the columns of the result of a read of a table.

        Raises:
            OptionError: There is no such snapshot or column.
            UnsupportedTableError: Spark has no type for a column.
        """
        fields, extras = self.chosen(self.schema_of(metadata), metadata.format_version)
        partition = self._partition(metadata, extras)
        found = (*fields, *(extra_field(name, partition) for name in extras))
        self.require_spark_types(found)
        return found

    def names_among(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns that are wanted of a metadata table that has those with these names.

        Raises:
            OptionError: It has no such column.
        """
        for column in self.columns or ():
            if find_position(column, names, case_sensitive=self.options.case_sensitive) is None:
                raise OptionError(
                    f"Cannot read {self.name}: it has no column '{column}' (columns: {', '.join(names)})."
                )
        if self.columns == ():
            raise OptionError(f"Cannot read {self.name}: {_NO_COLUMNS}")
        return self.columns or names

    def schema_of(self, metadata: TableMetadata) -> Schema:
        """Return the columns of the table at the snapshot that is chosen.

        Raises:
            OptionError: There is no such snapshot or schema.
        """
        return chosen_schema(self.name, metadata, self.choice)[1]

    def with_columns(self, metadata: TableMetadata, wanted: spark.StructType) -> ReadRequest:
        """Return the read of the columns that Spark has: those that it was told before, or that a user gave.

        Raises:
            OptionError: The table has no such column, or another order is needed.
            SchemaMismatchError: A column is of another type.
        """
        names = tuple(wanted.names)
        found = replace(self, columns=names)
        shown = found.fields_of(metadata)
        if names != (told := tuple(column.name for column in shown)):
            raise OptionError(
                f"Cannot read {self.name}: the schema has the columns {', '.join(names)}, expected {', '.join(told)}: "
                "spelt as in the table, metadata columns last."
            )
        for column, asked in zip(shown, wanted, strict=True):
            now = spark_type(column.field_type).simpleString()
            if asked.dataType.simpleString() != now:
                raise SchemaMismatchError(
                    f"Cannot read {self.name}: column '{column.name}' is {now}, and {asked.dataType.simpleString()} in "
                    "the schema that is given, or that the table had when the DataFrame was made. Make it anew."
                )
        return found

    def require_spark_types(self, fields: Iterable[NestedField], tested: Iterable[NestedField] = ()) -> None:
        """Refuse columns that Spark has no type for, such as `geometry`.

        Args:
            fields: The columns of the result.
            tested: Those that the predicate needs.

        Raises:
            UnsupportedTableError: There is one.
        """
        shown = tuple(fields)
        for column in (*shown, *tested):
            try:
                spark_type(column.field_type)
            except UnreadTypeError as unread:
                step = (
                    "name the other columns in 'columns' to read them."
                    if column in shown
                    else "where names it, or is understood by Spark alone, which needs all columns: leave where out."
                )
                raise UnsupportedTableError(
                    f"Cannot read {self.name}: column '{column.name}' holds {unread}: {step}"
                ) from None

    def _partition(self, metadata: TableMetadata, extras: Iterable[str]) -> StructType:
        """Return the type of `_partition`, empty if it is not asked for; raise OptionError if there is none."""
        if PARTITION not in extras:
            return StructType()
        partition = partition_type(metadata)
        if not partition.fields:
            raise OptionError(f"Cannot read {self.name}: it has no column '{PARTITION}': it never had partitions.")
        return partition

    def refuse_options_of_streams(self) -> None:
        """Refuse what only a stream can do.

        Raises:
            OptionError: An option of streams is given, or changes would not tell what became of each row.
        """
        self._refuse(STREAM_OPTIONS, "batch")
        self._refuse_untold_changes()

    def refuse_options_of_batches(self) -> None:
        """Refuse what only a batch can do.

        Raises:
            OptionError: An option of batches is given, or `_partition`, whose type changes with the table's specs; or
                changes would not tell what became of each row.
        """
        self._refuse(BATCH_OPTIONS, "stream")
        if PARTITION in (self.columns or ()):
            raise OptionError(f"Cannot read {self.name}: column '{PARTITION}' is none of a stream: leave it out.")
        self._refuse_untold_changes()

    def _refuse_untold_changes(self) -> None:
        if self.has_changes and CHANGE_TYPE not in (self.columns or CHANGE_COLUMNS):
            raise OptionError(
                f"Cannot read changes of {self.name}: columns lacks '{CHANGE_TYPE}', without which a deleted row looks "
                "like one that was inserted. Add it."
            )

    def refuse_options_of_rows(self) -> None:
        """Refuse what only a read of a snapshot's rows can do.

        Raises:
            OptionError: An option of such a read, or of streams, is given.
        """
        self._refuse(READ_OPTIONS, "read of changes")

    def _refuse(self, options: Iterable[Option], kind: str) -> None:
        for key in sorted(self.given.intersection(option.name for option in options)):
            raise OptionError(f"Cannot read {self.name}: option '{key}' is none of a {kind}: leave it out.")

    def plan(self, loaded: LoadedTable, *, prunes: bool = True, pushed: Tree | None = None) -> PlannedRead:
        """Plan the read of a table's rows.

        Args:
            loaded: The table.
            prunes: Whether files are passed over that cannot have rows of the predicate.
            pushed: Another predicate by which files are passed over; None for none.

        Raises:
            OptionError: There is no such snapshot or column.
            UnsupportedTableError: The table has files that cannot be read.
            DataFileError: Manifests cannot be read.
        """
        table = loaded.table
        with loaded.catalog.hiding_secrets():
            where = self.tree() if prunes else None
            where = Call("and", (where, pushed)) if where is not None and pushed is not None else where or pushed
            plan = self._plan_rows(table, where) if self.beginning is None else self._plan_changes(table)
            fields, extras = self.chosen(plan.schema, table.metadata.format_version)
            self._partition(table.metadata, extras)
            return PlannedRead(
                request=self,
                plan=plan,
                io=table.io,
                io_properties=loaded.catalog.plan_properties(table),
                fields=fields,
                extras=extras,
            )

    def _plan_rows(self, table: Table, where: Tree | None) -> ScanPlan:
        return plan_scan(
            self.name,
            table.metadata,
            table.io,
            self.choice,
            where=where,
            case_sensitive=bool(self.options.case_sensitive),
            time_zone=self.options.time_zone,
        )

    def _plan_changes(self, table: Table) -> ScanPlan:
        assert self.beginning is not None  # noqa: S101  # asked for only then
        end, schema = chosen_schema(self.name, table.metadata, self.choice)
        steps = changed_snapshots(self.name, table.metadata, self.beginning, end)
        plan = plan_changes(self.name, table.metadata, table.io, schema, steps)
        return replace(plan, snapshot_id=None if end is None else end.snapshot_id)

    def refuse_own_change_columns(self, schema: Schema) -> None:
        """Refuse to read changes of a table that has columns with the names of those that tell of them.

        Raises:
            UnsupportedTableError: It has one.
        """
        taken = [field.name for field in schema.fields if field.name.lower() in CHANGE_COLUMNS]
        if taken:
            raise UnsupportedTableError(
                f"Cannot read changes of {self.name}: it has a column '{taken[0]}' of its own, which is the name of "
                "one that says what has changed. Rename it."
            )

    def key_names(self, schema: Schema, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the names of key columns as the table has them.

        Args:
            schema: The columns of the table.
            keys: The names that are given.

        Raises:
            OptionError: There is no such column, or it cannot be a key.
        """
        fields, extras = replace(self, columns=tuple(keys), stream=StreamRules()).chosen(schema)
        if extras:
            raise OptionError(
                f"Cannot read changes of {self.name}: '{extras[0]}' is no column of the table. Name columns of the "
                "table as keys."
            )
        unfit = next((field for field in fields if not field.field_type.is_primitive), None)
        if unfit is not None:
            raise OptionError(
                f"Cannot read changes of {self.name}: column '{unfit.name}' of type {unfit.field_type} cannot be a "
                "key. Name columns of one value, such as a number or a text."
            )
        return tuple(field.name for field in fields)

    def tree(self) -> Tree | None:
        """Return the predicate that files are passed over by; None if only Spark understands it."""
        if self.where is None:
            return None
        try:
            return parse_predicate(self.where)
        except ValueError as problem:
            logger.info("All files of %s are read: %s", self.name, masked_problem(self.where, str(problem)))
            return None

    def is_about_texts(self, metadata: TableMetadata) -> bool:
        """Return whether the predicate compares values of uuid or time, which Spark has as texts, with other texts.

        `10:00` is a time that Spark writes as `10:00:00.000000`, so it is another text.

        Args:
            metadata: The table.

        Raises:
            OptionError: There is no such snapshot.
        """
        schema = self.schema_of(metadata)
        tested = self.test(schema)
        if tested is None or not any(
            isinstance(schema.find_type(column.field_id), TimeType | UUIDType) for column in tested.columns
        ):
            return False
        return not all(map(_is_as_spark_writes, texts_in(parse_predicate(str(self.where)))))

    def test(self, schema: Schema) -> RowFilter | None:
        """Return the test of rows by the predicate, or None if no predicate is given, or only Spark understands it."""
        if self.where is None:
            return None
        try:
            return RowFilter(
                self.where,
                schema,
                case_sensitive=bool(self.options.case_sensitive),
                time_zone=self.options.time_zone,
            )
        except ValueError:
            return None

    def chosen(
        self, schema: Schema, format_version: int = VERSION_3
    ) -> tuple[tuple[NestedField, ...], tuple[str, ...]]:
        """Return the columns of the table that are wanted, and the metadata columns.

        Args:
            schema: The columns of the table.
            format_version: Its format version, which says whether rows have ids.

        Raises:
            OptionError: There is no such column, or it is named twice.
            UnsupportedTableError: Changes are read, and the table has a column with the name of one that tells of them.
        """
        if self.has_changes:
            self.refuse_own_change_columns(schema)
        if self.columns is None:
            return schema.fields, CHANGE_COLUMNS if self.has_changes else ()
        names = [field.name for field in schema.fields]
        fields, extras = [], []
        for column in self.columns:
            try:
                position = find_position(column, names, case_sensitive=self.options.case_sensitive)
            except AmbiguousNameError as problem:
                raise OptionError(f"Cannot read {self.name}: {problem}.") from problem
            if position is not None:
                fields.append(schema.fields[position])
            elif column in EXTRAS and (column not in CHANGE_COLUMNS or self.has_changes):
                if column in LINEAGE and format_version < VERSION_3:  # nor has it one to Iceberg's Spark runtime
                    raise OptionError(
                        f"Cannot read {self.name}: it has no column '{column}': it is of format version "
                        f"{format_version}, and rows have ids from version {VERSION_3} on."
                    )
                extras.append(column)
            else:
                raise OptionError(
                    f"Cannot read {self.name}: it has no column '{column}' (columns: {', '.join(names)})."
                )
        if not self.columns:
            raise OptionError(f"Cannot read {self.name}: {_NO_COLUMNS}")
        if len({*extras, *(field.field_id for field in fields)}) < len(self.columns):
            raise OptionError(f"Cannot read {self.name}: a column is named twice: {', '.join(self.columns)}.")
        return tuple(fields), tuple(extras)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """A table that is to be read.

    Attributes:
        catalog: Its catalog.
        table: The table.
        metadata_table: Name of its metadata table that is meant; None for its rows.
    """

    catalog: CatalogClient
    table: Table
    metadata_table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """A read with its plan.

    Attributes:
        request: What is asked for.
        plan: The files.
        io: Opens the table's storage in this process.
        io_properties: What opens it in tasks.
        fields: The columns of the table that are wanted, in order.
        extras: The metadata columns that are wanted, which follow.
    """

    request: ReadRequest
    plan: ScanPlan
    io: FileIO
    io_properties: Mapping[str, str]
    fields: tuple[NestedField, ...]
    extras: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Names of the columns of the result."""
        return [*(field.name for field in self.fields), *self.extras]

    @property
    def read_fields(self) -> tuple[NestedField, ...]:
        """The columns of the table that are read: those that are wanted, then those of the predicate beside them."""
        return (*self.fields, *(field for field in self.tested() if field not in self.fields))

    def require_spark_types(self) -> None:
        """Refuse columns that are read and that Spark has no type for.

        Raises:
            UnsupportedTableError: There is one.
        """
        partition = partition_type(self.plan.metadata) if PARTITION in self.extras else StructType()
        extras = (extra_field(name, partition) for name in self.extras)
        self.request.require_spark_types((*self.fields, *extras), self.tested())

    def tested(self) -> tuple[NestedField, ...]:
        """Return the columns that the predicate names; all, if only Spark understands it."""
        if self.request.where is None:
            return ()
        fields, test = self.plan.schema.fields, self.request.test(self.plan.schema)
        return fields if test is None else tuple(fields[position] for position in test.positions)


def read_options(table: str, options: Mapping[str, str] | None, asked: Mapping[str, object]) -> dict[str, str]:
    """Return the options of `icebergsource` for a call, in lower case; arguments win over options.

    Args:
        table: Identifier of the table.
        options: The options that are given.
        asked: What arguments say, by the name of their option; None for what they do not say.

    Raises:
        OptionError: Option `table` names another table.
    """
    given = options_of_call(table, options)
    said = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in asked.items() if value is not None
    }
    if said.keys() & {"snapshot-id", "as-of-timestamp", "tag"}:
        given.pop("branch", None)
    return {**given, **said}


def time_ms(table: str, as_of: datetime | int | str | None, argument: str = "as_of") -> int | None:
    """Return a time in milliseconds since the Unix epoch.

    Args:
        table: Identifier of the table, for messages.
        as_of: The time; a number is in milliseconds already.
        argument: What the argument is called.

    Raises:
        OptionError: It is no time, or no time zone says which.
    """
    if as_of is None or (isinstance(as_of, int) and not isinstance(as_of, bool)):
        return as_of
    found = moment(as_of) if isinstance(as_of, str) else as_of
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise OptionError(
            f"Cannot read {table}: {argument} is {as_of!r}, expected a time with a time zone, such as "
            "2026-11-21T12:00:00Z."
        )
    return milliseconds(found)


def _stream_rules(options: ReadOptions, branch: str) -> StreamRules:
    skips = {
        Operation.OVERWRITE: options.streaming_skip_overwrite_snapshots,
        Operation.DELETE: options.streaming_skip_delete_snapshots,
    }
    return StreamRules(
        branch=branch,
        after_snapshot_id=options.starting_snapshot_id,
        since_ms=options.stream_from_timestamp,
        on_change=OnChange(options.on_change),
        keys=options.keys or (),
        skipped=frozenset(operation for operation, is_skipped in skips.items() if is_skipped),
        consumer_id=options.consumer_id,
        limits=Limits(
            files=options.streaming_max_files_per_micro_batch, rows=options.streaming_max_rows_per_micro_batch
        ),
    )


def _beginning(options: ReadOptions) -> Beginning | None:
    """Return where changes begin; None to read rows."""
    after, first = options.changes_after_snapshot_id, options.changes_from_snapshot_id
    if first is not None:
        return Beginning(snapshot_id=first, is_whole=True)
    return None if after is None else Beginning(snapshot_id=after, is_whole=False)


def _is_as_spark_writes(text: str) -> bool:
    """Return whether a text that means a uuid or a time is written as Spark writes these."""
    with suppress(ValueError):
        return str(UUID(text)) == text
    with suppress(ValueError):
        return str(parsed(text, TIME, None).as_py().isoformat("microseconds")) == text
    return True
