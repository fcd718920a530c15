"""The values that the driver decides and ships: `WritePlan`, `ChangeFeed`, `EpochId` of a micro-batch, and so on.

Also the values that tasks send back, such as `TaskKeys`, the report of a task on its keys. All are
frozen, picklable, a few kilobytes, with no live handle and no credential of a catalog. Imports nothing of the package.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import NestedField

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

# The most keys that a message shows.
MAX_EXAMPLES = 5
# Columns that tasks fill in if they are asked for.
EXTRACTED_AT, EPOCH_ID, OPERATION, DIFF = "_extracted_at", "_epoch_id", "_operation", "_diff"
METADATA_COLUMNS = (EXTRACTED_AT, EPOCH_ID, OPERATION, DIFF)
# The column of a table that tells which values of a row were made null, and why.
ERRORS = "_errors"
# The spec of files that are in no table, such as those of keys to look for; never in a table's metadata.
NO_SPEC = PartitionSpec(spec_id=-1)
_SIGNED_64_BIT = 0x7FFF_FFFF_FFFF_FFFF

IsolationLevel: TypeAlias = Literal["serializable", "snapshot", "none"]
ParquetEncodings: TypeAlias = Literal["auto", "classic"]
OnBadRow: TypeAlias = Literal["null", "quarantine", "drop"]


class Reason(str, Enum):
    """Why a row cannot be written as it is."""

    REQUIRED = "required"  # a null in a required column
    CAST = "cast"  # a value that the type of the table's column cannot hold
    MALFORMED = "malformed"  # text or bytes that are no uuid, no time, or not as long as the column's values
    OPERATION = "operation"  # an unknown operation, or an update without its before image where `_diff` needs it
    KEY = "key"  # a null in a key column
    RANGE = "range"  # a row that does not satisfy `replace-where`
    PARTITION = "partition"  # a value whose partition no reader would find
    ROUTE = "route"  # a value of the route column that names no table which may be written


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRowPolicy:
    """What happens to rows that cannot be written as they are.

    Attributes:
        mode: `null`: their bad values become null; `quarantine`: they go to another table; `drop`: they are lost.
        quarantine: Identifier of the table for them, as `identifier_text` writes it; None in other modes.
        most_rows: More such rows fail the write; None for no limit.
        most_share: A larger share of them (0 to 1) among the rows from Spark fails the write; None for no limit.
    """

    mode: OnBadRow
    quarantine: str | None = None
    most_rows: int | None = None
    most_share: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """How rows of a DataFrame are to be read as changes of keys.

    Attributes:
        key_ids: Field ids of the key columns, in the order in which they were named; all are top-level columns.
        sequence: Columns of the DataFrame whose values order events of one key, the first column counts most; with the
            DataFrame's names and types, and ids of their own. Empty if nothing orders the events.
        operation_column: The DataFrame's operation column, or None if all rows are upserts.
        delete_when: Predicate on columns of the DataFrame; rows that satisfy it are deletes. None if no row is one.
        is_enforced: Whether a tie is an error; else any one of the tied rows wins.
        trusts_inserts: Whether an insert tells that the table does not have its key, so that nothing must be deleted.
        keeps_deleted: Whether a delete leaves a row of its key, which a column of the table marks.
        counts_stored: Whether a row that the table has wins over events of a lower sequence. Then `sequence` has the
            types and ids of the table's columns, and a delete by key tells its sequence.
        are_identifiers: Whether the keys are the table's identifier fields; else they are optional, and it has none.
    """

    key_ids: tuple[int, ...]
    sequence: tuple[NestedField, ...] = ()
    operation_column: str | None = None
    delete_when: str | None = None
    is_enforced: bool = True
    trusts_inserts: bool = False
    keeps_deleted: bool = False
    counts_stored: bool = False
    are_identifiers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMark:
    """The column that marks rows of deleted keys.

    Attributes:
        column: The column's name, as the DataFrame spells it if it has the column.
        is_time: Whether it says when the key was deleted, null if it was not; else true or false.
        has_zone: Whether such a time is an instant; else it is the time in UTC.
    """

    column: str
    is_time: bool = False
    has_zone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumns:
    """Columns that tasks fill in, beside or in place of those that the DataFrame has.

    Attributes:
        names: Which of `METADATA_COLUMNS`, in the order in which they were asked for.
        instant_us: When the write was planned, in microseconds since 1970 in UTC: the same in all tasks.
        number: Number of the micro-batch, or of the batch if the application numbers it; else None.
        mark: The column that marks rows of deleted keys, or None.
        operation_column: The DataFrame's operation column; None if it has none, and in a write by keys, whose feed
            has the operation column.
        delete_when: Predicate on columns of the DataFrame that marks deletes; None in these two cases, too.
    """

    names: tuple[str, ...]
    instant_us: int
    number: int | None = None
    mark: DeleteMark | None = None
    operation_column: str | None = None
    delete_when: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyExamples:
    """Keys that cannot be written.

    Attributes:
        count: How many such keys there are.
        examples: Some of these keys, as text.
    """

    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKeys:
    """The report of a task on the keys that it met.

    Attributes:
        count: How many different keys there were.
        modulus: The Spark hash of each row's key, minus the task's number, is a multiple of it: 0 if there was no
            row, 1 if that says nothing.
        key_report: For every key its digest, its sequence and what became of it, as `cdc.dedup` encodes it: first the
            rows of all data files, file after file, in their order, then keys without a row. None if the task
            met more keys than it may report.
        tied_count: How many keys have a winner in the task that is a tie; the key report says which.
        tied_keys: Some of these keys, as text.
        null_keys: Rows with a null in a key column.
        unknown_operations: How many rows had each word that is no operation.
    """

    count: int
    modulus: int
    key_report: bytes | None = field(default=None, repr=False)
    tied_count: int = 0
    tied_keys: tuple[str, ...] = ()
    null_keys: KeyExamples = KeyExamples()
    unknown_operations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochId:
    """One micro-batch of one streaming query.

    Attributes:
        query_id: Spark's query id: lasts as long as the checkpoint.
        epoch_id: Number of the micro-batch, from 0.
        run_id: Spark's run id: every start of the query has its own. None if Spark does not tell it.
    """

    query_id: str
    epoch_id: int
    run_id: str | None = None

    @property
    def writer(self) -> str:
        """The one who numbers the writes."""
        return self.query_id

    @property
    def number(self) -> int:
        """The number of this write."""
        return self.epoch_id

    def __str__(self) -> str:
        return f"query {self.query_id}, epoch {self.epoch_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnId:
    """One batch of an application that numbers its batches, so that a repeated one is recognised.

    Attributes:
        app_id: The application's name for itself.
        version: Number of the batch, 0 or more; it only ever grows.
    """

    app_id: str
    version: int

    @property
    def writer(self) -> str:
        """The one who numbers the writes."""
        return self.app_id

    @property
    def number(self) -> int:
        """The number of this write."""
        return self.version

    def __str__(self) -> str:
        return f"txn-app-id {self.app_id}, txn-version {self.version}"


NumberedWrite: TypeAlias = EpochId | TxnId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamName:
    """The lasting identity of a stream, which outlives its checkpoint.

    Attributes:
        name: The user's name for it; one query at a time writes to a branch under it.
        accepts_new_checkpoint: Whether a new query may take the place of the one that wrote under this name.
    """

    name: str
    accepts_new_checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The branch that a write goes to, where that begins, and how its rows go on from there.

    Attributes:
        branch: Branch that the snapshot is added to.
        fork_from: Branch to fork `branch` from if it is missing, None if it must exist.
        publish_to: Branch to fast-forward to the snapshot after the commit, or None.
        converts: Whether deletes by keys are converted before that; what waits for it stays on `branch`.
    """

    branch: str
    fork_from: str | None = None
    publish_to: str | None = None
    converts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundColumn:
    """What a name in a predicate means.

    Attributes:
        field_id: The column, or the field of a struct.
        type: Its type, as predicates compare it.
    """

    field_id: int
    type: str


EVERY_ROW = "true"  # the predicate of a write that replaces all rows


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteByFilter:
    """The write replaces the rows that satisfy a predicate, and all of its own rows satisfy it.

    Attributes:
        predicate: Says which rows, in the words of `parse_predicate`; `true` for all rows of the branch.
        case_sensitive: Whether its names of columns must have the case of the table's.
        columns: What its names mean in the table that was planned for; a different meaning at the commit is a
            conflict.
        time_zone: Time zone of its times without a zone, or None if unknown.
        isolation_level: Whether rows that come into that range meanwhile are a conflict, stay, or are replaced, too.
        base_snapshot_id: The snapshot since which rows count as having come meanwhile, None if there was none.
    """

    predicate: str
    case_sensitive: bool
    isolation_level: IsolationLevel
    base_snapshot_id: int | None
    columns: tuple[BoundColumn, ...] = ()
    time_zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicOverwrite:
    """The write replaces the partitions that its own rows belong to.

    Attributes:
        isolation_level: Whether rows that come into these partitions meanwhile are a conflict, stay, or are replaced.
        base_snapshot_id: The snapshot since which rows count as having come meanwhile, None if there was none.
    """

    isolation_level: IsolationLevel
    base_snapshot_id: int | None


Overwrite: TypeAlias = OverwriteByFilter | DynamicOverwrite


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A new schema that lands together with the rows that replace all others.

    Attributes:
        schema: The schema of the table from then on.
        base_schema_id: The schema that it is made from; it is a conflict if the table has another schema by then.
    """

    schema: Schema
    base_schema_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """How data files are written.

    Attributes:
        target_file_size_bytes: Compressed size at which the next file is begun.
        delete_file_size_bytes: The same for files of deletes.
        compression_codec: Iceberg's name of the codec, such as `zstd`.
        compression_level: None means the codec's own default.
        parquet_encodings: `auto` for what suits each column's values, `classic` for dictionary and plain alone.
        metrics_properties: The table's `write.metadata.metrics.*` properties.
        max_open_files: The most files that a task has open at once.
        row_group_size_bytes: Compressed size of a row group, None for the compressed size of 64 MB of rows in memory.
        page_size_bytes: Encoded size at which the next data page is begun, None for Arrow's own default.
        page_row_limit: The most rows of a data page, None for Arrow's own default.
        dictionary_size_bytes: Size of a dictionary page at which a column chunk gives it up, None for Arrow's default.
        bloom_filter_fpp: Share of false positives (0 to 1) of each column with a Bloom filter, by field id.
        bloom_filter_ndv: How many distinct values to expect in a row group, by field id; else as many as fit.
        bloom_filter_max_bytes: The largest size of one Bloom filter.
    """

    target_file_size_bytes: int
    compression_codec: str
    compression_level: int | None
    metrics_properties: Mapping[str, str]
    parquet_encodings: ParquetEncodings = "auto"
    max_open_files: int = 16
    row_group_size_bytes: int | None = None
    page_size_bytes: int | None = None
    page_row_limit: int | None = None
    dictionary_size_bytes: int | None = None
    bloom_filter_fpp: Mapping[int, float] = field(default_factory=dict)
    bloom_filter_ndv: Mapping[int, int] = field(default_factory=dict)
    bloom_filter_max_bytes: int = 1024 * 1024
    delete_file_size_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What the ids of a table's schema and partition specs mean.

    A table from which unused schemas and specs are removed may give their ids to new ones.

    Attributes:
        schema: Digest of the current schema.
        specs: Digest of each partition spec, by its id.
    """

    schema: str
    specs: Mapping[int, str]

    @classmethod
    def of(cls, metadata: TableMetadata) -> Fingerprint:
        """Return the fingerprint of a table as it is now."""
        specs = {number: _digest(spec) for number, spec in metadata.specs().items()}
        return cls(schema=_digest(metadata.schema()), specs=specs)

    def is_of_schema(self, schema: Schema) -> bool:
        """Return whether this is the schema that was the current one."""
        return is_digest_of(self.schema, schema)

    def is_of_spec(self, spec: PartitionSpec) -> bool:
        """Return whether the spec means what its id meant, or its id is new."""
        known = self.specs.get(spec.spec_id)
        return known is None or known == _digest(spec)


def is_digest_of(digest: str, schema: Schema) -> bool:
    """Return whether a digest, as `Fingerprint.schema` is one, is that of a schema."""
    return _digest(schema) == digest


def _digest(definition: Schema | PartitionSpec) -> str:
    return hashlib.blake2b(definition.model_dump_json().encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIdentity:
    """What identifies one write to the driver and all tasks: a part of its plan, and of every message.

    Attributes:
        table: Identifier of the table, as `identifier_text` writes it.
        table_uuid: UUID of the table that the files were written for.
        route: Branch that is written, and what happens to it before and after.
        overwrite: Which rows are replaced, None to append.
        operation_id: Part of the name of every file of the write.
        snapshot_id: Id of the snapshot to add.
        schema_id: Schema that the files were written with.
        schema_change: The change that makes it the table's schema, or None if it already is.
        files: How data files are written.
        snapshot_properties: Entries to add to the summary of the snapshot.
        epoch: The micro-batch, None for a batch write.
        new_table: Metadata (JSON) of the table to create with this commit, or None if it exists.
        txn: The number that the application gave to this batch, None if it did not, and in a stream.
        stream: The name of the stream, None if it has none, and in a batch.
        changes: How rows change keys of the table, None for a write without keys.
        delete_spec_id: Partition spec of the files of equality deletes, None if the table gets none of them.
        location_provider: The class that decides where files go, None for Iceberg's own layouts.
        fingerprint: That of the table before `schema_change`; None if the commit creates the table.
        bad_rows: What happens to rows that cannot be written, None if they fail the write.
        later_schemas: Further schemas that files were written with, because rows added columns: the digest of each, as
            `fingerprint` has it, by its id.
    """

    table: str
    table_uuid: str
    route: Route
    operation_id: str
    snapshot_id: int
    schema_id: int
    files: FileSettings
    overwrite: Overwrite | None = None
    schema_change: SchemaChange | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    epoch: EpochId | None = None
    new_table: str | None = None
    txn: TxnId | None = None
    stream: StreamName | None = None
    changes: ChangeFeed | None = None
    delete_spec_id: int | None = None
    location_provider: str | None = None
    fingerprint: Fingerprint | None = None
    bad_rows: BadRowPolicy | None = None
    later_schemas: Mapping[int, str] = field(default_factory=dict)

    @property
    def branch(self) -> str:
        """Branch that is written."""
        return self.route.branch

    @property
    def numbered(self) -> NumberedWrite | None:
        """The writer and its number, or None for a batch without a number."""
        return self.epoch or self.txn

    def __str__(self) -> str:
        return f"{self.table} (branch {self.branch}, {self.numbered or 'batch'}, operation {self.operation_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestLayout:
    """How manifests of one partition spec are written.

    Attributes:
        format_version: Version of the table format.
        schema: The table's schema.
        spec: The partition spec.
        sources: The source columns of the spec, as they are now or were when they were dropped.
        avro_codec: Avro's name of the codec.
    """

    format_version: int
    schema: Schema
    spec: PartitionSpec
    sources: tuple[NestedField, ...]
    avro_codec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table to create.

    Attributes:
        schema: Its columns; the catalog gives them ids of its own.
        spec: How it is partitioned, by the ids of `schema`.
        sort_order: In which order rows lie within a file, by the ids of `schema`.
        location: Where it goes, or None to let the catalog choose.
        format_version: The spec's version, None for the catalog's default.
        properties: Its properties.
    """

    schema: Schema
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    location: str | None = None
    format_version: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Everything that the tasks of one write are told.

    Attributes:
        write: The part of the plan that the messages of these tasks repeat.
        schema: Schema that the files are written with.
        spec: Partition spec that the files are written with.
        location: Location of the table.
        properties: The table's properties that decide where data files go (`write.*`).
        name_mapping: What the columns of the table's files without field ids are, for tasks that read such files, as
            the table's property has it; None if they read none, or the table has no such property.
        io_properties: Properties that open storage, with its credentials but none of a catalog; never shown.
        sort_order: Order of the rows within a file, None for the order in which they come.
        case_sensitive: How column names are matched: None for exactly, else as the only one that differs in case.
        manifests: How a task with many files writes a manifest of them; None if the commit must see each file.
        small_task_size_bytes: Arrow bytes of rows that a task hands over instead of writing files, 0 for none.
        driver_host: Name of the driver's machine, None if it does not matter where a file is written.
        delete_spec: Partition spec that files of equality deletes are written with, `NO_SPEC` if the table gets none of
            them, None for a write without keys.
        time_zone: Time zone of times without a zone in `delete_when`, or None if unknown.
        frame: The columns of the DataFrame that `delete_when` of the change feed or of `added` is bound to, by their
            names there; None without it.
        added: The columns that tasks fill in, or None.
        is_audited: Whether settings of the session may send writes of the table to another branch.
        event_time: The DataFrame's column with the event time of rows, for the report on the commit; None for no such
            column.
    """

    write: WriteIdentity
    schema: Schema
    spec: PartitionSpec
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str] = field(repr=False)
    sort_order: SortOrder | None = None
    case_sensitive: bool | None = None
    manifests: ManifestLayout | None = None
    small_task_size_bytes: int = 0
    driver_host: str | None = None
    delete_spec: PartitionSpec | None = None
    time_zone: str | None = None
    frame: Schema | None = None
    added: AddedColumns | None = None
    is_audited: bool = False
    event_time: str | None = None
    name_mapping: str | None = None

    @classmethod
    def into(cls, metadata: TableMetadata, write: WriteIdentity, io_properties: Mapping[str, str]) -> WritePlan:
        """Return the plan of files in the table's own layout, in the order in which rows come.

        Args:
            metadata: The table.
            write: The write whose files they are.
            io_properties: What opens storage.
        """
        return cls(
            write=write,
            schema=metadata.schema(),
            spec=metadata.spec(),
            location=metadata.location,
            properties={name: value for name, value in metadata.properties.items() if name.startswith("write.")},
            io_properties=io_properties,
            name_mapping=metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING),
        )

    def in_epoch(self, epoch: EpochId | None) -> WritePlan:
        """Return the plan for the tasks of a micro-batch, with its number; the plan itself for a batch (None)."""
        if epoch is None:
            return self
        added = None if self.added is None else replace(self.added, number=epoch.epoch_id)
        return replace(self, write=replace(self.write, epoch=epoch), added=added)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """How rows of a route go into a table that was there when the write was planned.

    Attributes:
        plan: The plan of the table's write.
        columns: The columns of the DataFrame that the table gets.
        absent: Other columns of the DataFrame, which the table lacks: its rows have nulls there.
        may_gain: Whether rows with another value in an absent column go to the driver, which adds the column to the
            table; else they are refused.
    """

    plan: WritePlan
    columns: tuple[str, ...]
    absent: tuple[str, ...] = ()
    may_gain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRule:
    """Which table a value of the route column names.

    Attributes:
        namespace: Levels before a name of one level; empty for none.
        template: Text of the name, with `{value}` for the value.
        patterns: Identifiers of the tables that may be written, as text, with `*` for any characters in a level.
        kept: Identifiers, in lower case, of tables that the write keeps for itself, so that rows may not name them.
        kept_name: What other such tables are called in any namespace, in lower case, with `*` for any characters;
            empty for no others.
    """

    namespace: tuple[str, ...]
    template: str
    patterns: tuple[str, ...]
    kept: tuple[str, ...] = ()
    kept_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTables:
    """Which tables without a plan rows may name, where rows that name none are kept or lost.

    Attributes:
        is_allowed: Whether the write creates tables.
        named: Whether rows may name a table that has options of its own, by identifier in lower case.
    """

    is_allowed: bool
    named: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedPlan:
    """Everything that the tasks of a write are told whose rows name their tables.

    Attributes:
        column: Name of the DataFrame's column that names the table of each row.
        rule: Which table a value names.
        tables: The plans of tables that are there, by identifier, as `identifier_text` writes it.
        frame: The columns of the DataFrame, as the JSON of a Spark `StructType`.
        refused: Tables that cannot be written, by identifier, with the reason; only patterns allow them, and rows may
            name none of them.
        waiting: Tables that are there and have no plan before rows have added a column, by identifier, with the names
            of the columns that the driver gets of their rows.
        picked: Names of the columns that the driver gets of rows of new tables that have such an option, by identifier
            in lower case; of others, all columns but `column`.
        bad_rows: What happens to rows that name no table which may be written; None if they fail the write.
        new_tables: Which other tables rows may name; None if rows that may not name their table fail the write.
        epoch: The micro-batch, None for a batch and before its tasks begin.
        is_overwrite: Whether the write replaces rows of the tables; the driver must know it for tables without a plan.
    """

    column: str
    rule: RouteRule
    tables: Mapping[str, TablePlan]
    frame: str
    refused: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    picked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bad_rows: BadRowPolicy | None = None
    new_tables: NewTables | None = None
    epoch: EpochId | None = None
    is_overwrite: bool = False

    def in_epoch(self, epoch: EpochId | None) -> RoutedPlan:
        """Return the plan for the tasks of a micro-batch, with its number; the plan itself for a batch (None)."""
        if epoch is None:
            return self
        numbered = {name: replace(table, plan=table.plan.in_epoch(epoch)) for name, table in self.tables.items()}
        return replace(self, tables=numbered, epoch=epoch)


def new_operation() -> tuple[str, int]:
    """Return the id of a new write, and the snapshot id that is made from it."""
    operation_id = uuid.uuid4()
    return str(operation_id), (operation_id.int & _SIGNED_64_BIT) or 1
