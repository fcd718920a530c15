"""`requeue`: rows of a quarantine table, mended or not, are written into their table again, each exactly once.

Each snapshot that appended rows to the quarantine table is written as one numbered batch: the quarantine table's UUID
is the application, and the snapshot's sequence number the version. So a repeated or a second call skips what the table
has, and snapshots are taken in their order. Only writes that quarantined rows have rows to take: what others append or
write over may be the same rows again, so that nothing is written if they did, or if it is hidden which rows a snapshot
appended, or whether the table still lacks the rows (`origins`).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import PrimitiveType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.errors import CommitConflictError, OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.options.arguments import ArgumentType, require_types
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import Reason
from iceberg_ds.planning.decide import plan_branches
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.manifests import added_entries, live_entries, live_manifests
from iceberg_ds.snapshots.origins import (
    REQUEUED_SINCE_KEY,
    Origin,
    find_origin,
    origins_in,
    state_of,
    why_not_since,
    why_untold,
)
from iceberg_ds.snapshots.quarantined import QUARANTINED_ROWS_KEY, QUARANTINED_TABLES_KEY
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    BranchHistory,
    base_branch,
    begins_a_table,
    branch_head,
    branch_snapshot_id,
    last_sequence_number,
)
from iceberg_ds.snapshots.txn import TXNS, find_markers, marker_in, writer_in
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS, QUARANTINE_SCHEMA, has_raw_bytes

logger = logging.getLogger(__name__)

_NAME = ArgumentType(str, "the identifier of a table")
_OURS = ("txn-app-id", "txn-version", "txnappid", "txnversion")
# Summary key, in the table, of the call that wrote a batch: a batch that was skipped has no snapshot of this call.
_CALL_KEY = "requeue-call"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueResult:
    """What `requeue` did.

    Attributes:
        table: Identifier of the table that rows were written into.
        quarantine: Identifier of the quarantine table.
        rows: Rows that were taken from the quarantine table and written, again into the quarantine those that are
            still bad; without those of batches that were skipped, because another call wrote them meanwhile.
        batches: How many batches that were, one for each snapshot with such rows.
        not_text: Rows that were left where they are, because they have text that is not UTF-8.
        other_tables: The other tables that rows since the last call were for, by the names that they had.
    """

    table: str
    quarantine: str
    rows: int = 0
    batches: int = 0
    not_text: int = 0
    other_tables: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        left = f" {self.not_text:,} rows were left there: they have text that is not UTF-8." if self.not_text else ""
        if self.batches:
            done = f"{self.rows:,} rows from {self.quarantine} into {self.table}, in {self.batches:,} batches"
            return f"Requeued {done}.{left}"
        if self.other_tables and not self.not_text:
            return (
                f"Requeued nothing into {self.table}: {self.quarantine} has no rows of it since the last call, but "
                f"rows for {', '.join(self.other_tables)}."
            )
        return f"Nothing to requeue from {self.quarantine} into {self.table}.{left}"


def requeue(
    spark: SparkSession,
    quarantine: str,
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> RequeueResult:
    """Write the rows that `on-bad-row=quarantine` kept back from a table into it, each exactly once.

    What an earlier call has written is skipped, so a call that failed or was killed is simply repeated. Rows stay in
    the quarantine table; delete them there once they are written.

    Args:
        spark: The session.
        quarantine: Identifier of the quarantine table.
        table: Identifier of the table.
        options: The options of the write. Without `on-bad-row` rows that are still bad go into the same quarantine
            table again, and a later call takes them up. None for no options.
        transform: Takes a DataFrame of quarantined rows, with the columns of the quarantine table, and returns the
            DataFrame to write. None to take the rows as they came, with every column as text, which is cast.

    Returns:
        How many rows were written.

    Raises:
        OptionError: The options are malformed, or number the write.
        TableNotFoundError: One of the tables does not exist.
        UnsupportedTableError: It cannot be told which rows came into the quarantine table since the last call, or
            whether the table lacks them.
        CommitConflictError: Others replaced the table, its rows or its branch meanwhile; calling it again finds out.
        IcebergSinkError: As a write with `format("icebergsink")`; batches that were written before stay.
    """
    require_types("requeue", quarantine=(quarantine, _NAME))
    if not (transform is None or callable(transform)):
        raise OptionError(
            f"Cannot requeue: transform is {transform!r}, expected a function from DataFrame to DataFrame."
        )
    given = options_of_call(table, options)
    if numbered := [key for key in _OURS if key in given]:
        raise OptionError(f"Cannot requeue: option '{numbered[0]}' is given, and requeue numbers its batches itself.")
    given = {"on-bad-row": "quarantine", **given}
    if given["on-bad-row"].lower() == "quarantine":
        given.setdefault("quarantine-table", quarantine)
    parsed = parse_options(given)
    catalog = connect_to_existing(parsed)
    name, identifier = identifier_text(parsed.table), parse_identifier(quarantine)
    if len(identifier) == 1:
        identifier = (*parsed.table[:-1], *identifier)
    passed, call, sent = Passed(), uuid.uuid4().hex, dict[int, int]()
    with catalog.hiding_secrets():
        found = catalog.load_table(identifier)
        target = Target.of(catalog.load_table(parsed.table).metadata, parsed)
        number, since = _last_number(target, found), state_of(target.history)
        for version, kept in pending_rows(found, target, after=number, passed=passed):
            if sent:
                now = Target.of(catalog.load_table(parsed.table).metadata, parsed)
                since = _state_after(now, since, found, max(sent))
            own = {
                "txn-app-id": _application(found),
                "txn-version": str(version),
                f"snapshot-property.{_CALL_KEY}": call,
                f"snapshot-property.{REQUEUED_SINCE_KEY}": since,
            }
            frame = _frame(spark, kept, transform, target.history.metadata.schema())
            frame.write.format("icebergsink").options(**{**given, **own}).mode("append").save()
            sent[version] = kept.num_rows
        written = _written(catalog.load_table(parsed.table).metadata, call) if sent else []
    result = RequeueResult(
        table=name,
        quarantine=identifier_text(identifier),
        rows=sum(sent[version] for version in written),
        batches=len(written),
        not_text=passed.not_text,
        other_tables=tuple(sorted(passed.other_tables)),
    )
    logger.log(logging.WARNING if passed.not_text else logging.INFO, "%s", result)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that rows are requeued into.

    Attributes:
        name: Its identifier, as `identifier_text` writes it.
        history: The branch that the rows build on.
        branch: The branch that readers use.
    """

    name: str
    history: BranchHistory
    branch: str

    @classmethod
    def of(cls, metadata: TableMetadata, options: SinkOptions) -> Target:
        """Return the target of writes with these options."""
        route = plan_branches(options, metadata, is_new=False)
        base = base_branch(metadata, route)
        history = BranchHistory(metadata, base)
        return cls(name=identifier_text(options.table), history=history, branch=route.publish_to or base)

    @property
    def table_uuid(self) -> str:
        """UUID of the table."""
        return str(self.history.metadata.table_uuid)


@dataclass(slots=True, kw_only=True)
class Passed:
    """Rows of the snapshots since the last call that are not taken.

    Attributes:
        not_text: How many rows of the table have text that is not UTF-8.
        other_tables: The tables that other rows were for.
    """

    not_text: int = 0
    other_tables: set[str] = field(default_factory=set)


def pending_rows(
    quarantine: Table, target: Target, *, after: int | None, passed: Passed | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each snapshot that appended rows of a table to the quarantine, with its number, in order.

    Args:
        quarantine: The quarantine table.
        target: The table that the rows are of.
        after: Number of the last snapshot whose rows the table has; None if it has none.
        passed: Takes up what is not taken; None if that is of no interest.

    Raises:
        UnsupportedTableError: It cannot be told which rows came since, or whether the table lacks them.
    """
    head = branch_head(quarantine.metadata, MAIN_BRANCH)
    if head is None:
        return
    chain = _since(quarantine, head, after)
    if not chain:
        return
    passed = passed or Passed()
    _check_own(quarantine, chain)
    live = {entry.data_file.file_path for entry in _live(quarantine, head)}
    origins = [origins_in(snapshot) for snapshot in chain]
    for position, snapshot in enumerate(chain):
        if _operation(snapshot) is not Operation.APPEND:
            continue
        appended = [entry.data_file for entry in added_entries(quarantine.io, snapshot)]
        found = {file.file_path: _rows(quarantine, file) for file in appended}
        names = {name for rows in found.values() for name in rows.column("table").unique().to_pylist()} - {None}
        ours = _ours(quarantine, target, snapshot, names)
        passed.other_tables.update(names - ours.keys())
        kept = {path: _of_tables(rows, ours) for path, rows in found.items()}
        kept = {path: rows for path, rows in kept.items() if rows.num_rows}
        later = {_operation(other) for other in chain[position + 1 :]}
        # What replaces files, such as a compaction, keeps their rows.
        if not kept.keys() <= live and later - {Operation.APPEND, Operation.REPLACE}:
            raise _unsure(quarantine, f"others deleted rows of snapshot {snapshot.snapshot_id}, or wrote over them")
        if not kept:
            continue
        for origin in ours.values():
            _check_lacking(quarantine, target, snapshot, origin, origins[position + 1 :])
        of_text = _of_text(pa.concat_tables(kept.values()), passed)
        if of_text.num_rows:
            yield snapshot.sequence_number or 0, of_text


def _ours(quarantine: Table, target: Target, snapshot: Snapshot, names: Collection[str]) -> dict[str, Origin]:
    """Return the origins of a snapshot's rows of a table, by the names that it had.

    Raises:
        UnsupportedTableError: There are rows of its name that may be of another table.
    """
    if (origins := origins_in(snapshot)) is None:
        if target.name in names or target.table_uuid in summary_entries(snapshot).get(QUARANTINED_TABLES_KEY, ""):
            raise _unsure(quarantine, f"snapshot {snapshot.snapshot_id} does not say which writes its rows are of")
        return {}
    ours = {}
    for name in names:
        origin = origins.get(name)
        if origin is not None and origin.table_uuid == target.table_uuid:
            ours[name] = origin
        elif name != target.name:
            continue
        # A write that creates a table gets another UUID when it is repeated, and finds its rows by its number.
        elif origin is not None and origin.is_new and find_origin(target.history, origin, snapshot) is not None:
            ours[name] = origin
        else:
            raise _unsure(
                quarantine,
                f"rows of snapshot {snapshot.snapshot_id} are for a table {name} that was dropped or renamed since, "
                f"or might not be written, and not for the one that has its name now (UUID {target.table_uuid})",
            )
    return ours


def _check_lacking(
    quarantine: Table,
    target: Target,
    snapshot: Snapshot,
    origin: Origin,
    later: Iterable[Mapping[str, Origin] | None],
) -> None:
    """Check that nothing says that the table may have the rows of a write by now.

    Args:
        quarantine: The quarantine table.
        target: The table.
        snapshot: The snapshot of the quarantine table that has the rows.
        origin: The write.
        later: The origins of the rows of each later snapshot; None where they are unknown.

    Raises:
        UnsupportedTableError: Something does.
    """
    why = why_untold(target.history, target.branch, origin, snapshot)
    # An overwrite whose rows all came here, or that has expired, is known here alone.
    if why is None and any(
        one.replaces and one.branch == origin.branch and one.table_uuid == target.table_uuid
        for others in later
        for one in (others or {}).values()
    ):
        why = "are of a write before another one that replaced rows, and has rows here, too"
    if why is not None:
        raise _unsure(quarantine, f"rows of snapshot {snapshot.snapshot_id} {why}")


def _last_number(target: Target, quarantine: Table) -> int | None:
    """Return the number of the last snapshot of the quarantine table whose rows the table has, or None."""
    marker = find_markers(target.history, TXNS, _application(quarantine)).last
    return None if marker is None else marker.number


def _state_after(target: Target, since: str, quarantine: Table, version: int) -> str:
    """Return the state of the table after a batch, in which it lacks the rows of the next one.

    Args:
        target: The table, loaded after the batch.
        since: The state in which it lacked the rows of the batch.
        quarantine: The quarantine table.
        version: Number of the batch.

    Raises:
        CommitConflictError: Others replaced rows since, or set the branch back behind the batch.
    """
    why = why_not_since(target.history, since)
    application = _application(quarantine)
    batches = (found for found in target.history if writer_in(found, TXNS) == application)
    if why is None and all(marker_in(found, TXNS).number < version for found in batches):
        why = f"branch '{target.history.branch}' of the table was set back behind rows that this call has written"
    if why is not None:
        raise CommitConflictError(
            f"Cannot requeue further rows into {target.name}: {why}. What was written before may be gone with it: call "
            "requeue again, which finds out."
        )
    return state_of(target.history)


def _written(metadata: TableMetadata, call: str) -> list[int]:
    """Return the numbers of the batches that a call wrote into the table."""
    return [
        marker_in(snapshot, TXNS).number
        for snapshot in metadata.snapshots
        if summary_entries(snapshot).get(_CALL_KEY) == call
    ]


def _application(quarantine: Table) -> str:
    return f"requeue {quarantine.metadata.table_uuid}"


def _since(quarantine: Table, head: Snapshot, after: int | None) -> list[Snapshot]:
    """Return the snapshots of the branch after a number, in order.

    Raises:
        UnsupportedTableError: One of them has expired, or has no number.
    """
    if quarantine.metadata.format_version == 1:
        raise UnsupportedTableError(
            f"Cannot requeue from {_name(quarantine)}: it is of format version 1, whose snapshots have no numbers to "
            "tell by which of them were requeued. Upgrade it to format version 2, and run this again: it says how to "
            "write the rows that are there by then, and takes up those that come later."
        )
    last = last_sequence_number(quarantine.metadata)
    if after is not None and after > last:
        raise UnsupportedTableError(
            f"Cannot requeue from {_name(quarantine)}: the table has its snapshots up to number {after}, and its last "
            f"one is {last}: it was registered again as it once was, and its numbers come again. Nothing was written. "
            "While nothing writes into it, write the rows that you want in a batch of your own, and drop it: the next "
            "bad row makes another one."
        )
    chain: list[Snapshot] = []
    current: Snapshot | None = head
    while current is not None and (current.sequence_number or 0) > (after or 0):
        chain.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else quarantine.metadata.snapshot_by_id(parent)
    # A snapshot whose parent has expired may look like the first one.
    numbers = [snapshot.sequence_number for snapshot in reversed(chain)]
    if numbers != list(range((after or 0) + 1, (head.sequence_number or 0) + 1)):
        raise _unsure(quarantine, "snapshots of its branch 'main' have expired, or it has other branches")
    if after is None and not (chain and begins_a_table(chain[-1])):
        raise _unsure(
            quarantine,
            "it has snapshots without a number, from before it was upgraded from format version 1, or had such ones",
        )
    return chain[::-1]


def _operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def _of_text(found: pa.Table, passed: Passed) -> pa.Table:
    """Return the rows whose text is all UTF-8, and count those whose text is not."""
    is_text = pa.array([not has_raw_bytes(row) for row in found.column("row").to_pylist()], pa.bool_())
    passed.not_text += found.num_rows - is_text.true_count
    return found.filter(is_text)


def _check_own(quarantine: Table, chain: list[Snapshot]) -> None:
    """Check that only this sink has written rows.

    Raises:
        UnsupportedTableError: Others did.
    """
    for snapshot in chain:
        if why := _why_foreign(snapshot):
            raise _unsure(quarantine, why)


def _why_foreign(snapshot: Snapshot) -> str:
    """Return why a snapshot may have brought rows that are there already, empty if it has not.

    Rows of a deletion or a compaction are not taken, and are missed if they were pending.
    """
    operation = _operation(snapshot)
    if operation in (Operation.REPLACE, Operation.DELETE):
        return ""
    if operation is Operation.APPEND and QUARANTINED_ROWS_KEY in summary_entries(snapshot):
        return ""
    word = "none" if operation is None else operation.value
    return f"snapshot {snapshot.snapshot_id} (operation {word}) is not of a write that quarantined rows"


def _live(quarantine: Table, head: Snapshot) -> Iterator[ManifestEntry]:
    for manifest in live_manifests(quarantine.io, head):
        entries = live_entries(quarantine.io, manifest)
        if manifest.content == ManifestContent.DELETES and entries:
            raise _unsure(quarantine, "it has delete files: others deleted rows of it, and which ones is not looked up")
        yield from entries


def _rows(quarantine: Table, file: DataFile) -> pa.Table:
    """Return the rows of a file that are of a table; others have in column `table` what only looks like its name."""
    with quarantine.io.new_input(file.file_path).open() as opened:
        found = pq.read_table(opened)
    columns = {name.lower(): name for name in found.column_names}
    if missing := [name for name in QUARANTINE_SCHEMA.names if name not in columns]:
        raise _unsure(quarantine, f"its column '{missing[0]}' was renamed or dropped")
    found = found.select([columns[name] for name in QUARANTINE_SCHEMA.names])
    found = found.rename_columns(QUARANTINE_SCHEMA.names).cast(QUARANTINE_SCHEMA)
    return found.filter(pc.invert(pc.starts_with(found.column("reason"), f"{Reason.ROUTE.value}: ")))


def _of_tables(found: pa.Table, names: Iterable[str]) -> pa.Table:
    return found.filter(pc.is_in(found.column("table"), pa.array(names, pa.string())))


def _frame(
    spark: SparkSession, kept: pa.Table, transform: Callable[[DataFrame], DataFrame] | None, schema: Schema
) -> DataFrame:
    if transform is not None:
        columns = StructType.fromJson(json.loads(QUARANTINE_COLUMNS))
        rows = [tuple(row[name] for name in columns.names) for row in kept.to_pylist()]
        found = transform(spark.createDataFrame(rows, columns))
        if not hasattr(found, "write"):
            raise OptionError(f"Cannot requeue: transform returns {found!r}, expected a DataFrame.")
        return found
    texts = [row_texts(text) for text in kept.column("row").to_pylist()]
    # Rows that have nulls alone name no column, and a DataFrame has one.
    some = next((field for field in schema.fields if isinstance(field.field_type, PrimitiveType)), schema.fields[0])
    names = list(dict.fromkeys(name for row in texts for name in row)) or [some.name]
    of_text = StructType([StructField(name, StringType()) for name in names])
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in texts], of_text)


def row_texts(row: str) -> dict[str, str | None]:
    """Return the values of a quarantined row as text, by column; numbers exactly as they stand there.

    Raises:
        SchemaMismatchError: A value is a struct, a list or a map.
    """
    found: dict[str, object] = json.loads(row, parse_float=str, parse_int=str)
    if nested := [name for name, value in found.items() if isinstance(value, dict | list)]:
        raise SchemaMismatchError(
            f"Cannot requeue: column '{nested[0]}' holds structs, lists or maps. Give argument transform, which makes "
            "them of the text in column 'row', for example with from_json."
        )
    return {name: str(value).lower() if isinstance(value, bool) else _text(value) for name, value in found.items()}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _unsure(quarantine: Table, why: str) -> UnsupportedTableError:
    head = branch_snapshot_id(quarantine.metadata, MAIN_BRANCH)
    number = last_sequence_number(quarantine.metadata)
    return UnsupportedTableError(
        f"Cannot requeue from {_name(quarantine)}: {why}, so that it is unknown which of its rows the table lacks. "
        f"Nothing more was written. Read the rows that you want as of its snapshot {head}, and write them in a batch "
        f"of your own, with txn-app-id={_application(quarantine)!r} and txn-version={number}: requeue goes on after "
        "that."
    )


def _name(quarantine: Table) -> str:
    return identifier_text(quarantine.name())
