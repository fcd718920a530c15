"""A consistent cut: which snapshots of several tables belong together, for readers that read all of them.

Where tables are committed one after the other, a reader may find an epoch in some tables and not yet in the others. So,
once all tables of an epoch have their rows, the sink tags the epoch's snapshot in each of them, and then records the
cut: for each table that any epoch so far has written, the snapshot that has the rows of all epochs up to this one.

The cut stands in a table of its own, which option `consistent-cut` names: one partition for each writer, with a row for
each table. The record is an ordinary numbered write that replaces this partition. So it is one commit, which readers
see whole or not at all; a repeated epoch records it once; and an epoch before the last one, or that of a second driver,
is refused like any other write of that kind. A table property would not do: catalogs change properties without the
condition that they still are what the writer has read, so that a slow driver could set an older cut in place of a newer
one. And a tag alone does not tell which tables belong to an epoch.

The tags record nothing. They keep the snapshots of the last cuts from expiring.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.commit.commit import commit_write, report_replay
from iceberg_ds.errors import DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.options.parse import given_options, options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head
from iceberg_ds.snapshots.txn import TxnMarker, find_last_marker, kind_of
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.spec_parser import parse_partition_by
from iceberg_ds.writers.loose import ON_DRIVER
from iceberg_ds.writers.reporting import report_task

logger = logging.getLogger(__name__)

# Tags of a writer that each table keeps: that of the epoch which is being recorded, that of the last cut, and one more
# for readers that have just asked for a cut.
KEPT_TAGS = 3

_OPTION = "consistent-cut"
_OF_ROUTE = "route-"
_WRITER = "app_id"
_COLUMNS = StructType(
    [
        StructField(_WRITER, StringType()),
        StructField("epoch", LongType()),
        StructField("table_name", StringType()),
        StructField("table_uuid", StringType()),
        StructField("snapshot_id", LongType()),
    ]
)
_ROWS = pa.schema(
    [
        (_WRITER, pa.string()),
        ("epoch", pa.int64()),
        ("table_name", pa.string()),
        ("table_uuid", pa.string()),
        ("snapshot_id", pa.int64()),
    ]
)
_FOR_EVER_MS = 2**63 - 1  # else a table property could let tags expire
_LONGEST_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Snapshots of several tables that belong together.

    Attributes:
        app_id: Who wrote the tables: the name of the stream, the id of a stream without a name, or the application.
        epoch: Number of the last epoch, or version, whose rows the snapshots have.
        snapshots: The snapshot of each table, by its identifier; None for a table that no epoch has written so far.
    """

    app_id: str
    epoch: int
    snapshots: Mapping[str, int | None]

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        listed = "\n".join(f"  - {name}: {found or 'no snapshot yet'}" for name, found in self.snapshots.items())
        return f"Epoch {self.epoch} of {self.app_id} is complete in {len(self.snapshots)} tables:\n{listed}"


def last_complete(
    tables: Sequence[str] | None = None, *, options: Mapping[str, str] | None = None, app_id: str | None = None
) -> Cut | None:
    """Return which snapshots of tables belong together: those of the newest epoch that is complete in all tables.

    Each snapshot stays readable until the third epoch after it writes its table, however soon snapshots are expired.

    Args:
        tables: Identifiers of the tables; None for all tables that the epochs have written.
        options: Where the tables are, as in the write, with `consistent-cut`. None for no options is refused.
        app_id: Who writes the tables: the value of `stream-name` or `txn-app-id`, or the id of a stream without a name.
            None if there is only one such writer.

    Returns:
        The cut, or None if no epoch was complete so far.

    Raises:
        OptionError: The options lack `consistent-cut`, or are malformed, or there are several writers and no `app_id`.
        TableNotFoundError: A table of the cut does not exist any more.
        UnsupportedTableError: A table of the cut was replaced, or its snapshot was removed in spite of its tag; or the
            table of the cut has other columns.
        CatalogError: The catalog could not be reached.
        DataFileError: The table of the cut could not be read.
    """
    given = given_options(options)
    if not given.get(_OPTION):
        raise OptionError(f"Cannot tell the last complete cut: give option '{_OPTION}', as the write has it.")
    # Those of a route would say that rows name their tables.
    given = {key: value for key, value in given.items() if not key.startswith(_OF_ROUTE)}
    parsed = parse_options(options_of_call(given[_OPTION], given))
    catalog = connect(catalog_settings(parsed), parsed.reports)
    with catalog.hiding_secrets():
        return _last_complete(catalog, _place(parsed), tables, app_id)


def _last_complete(
    catalog: CatalogClient, place: tuple[str, ...], tables: Sequence[str] | None, app_id: str | None
) -> Cut | None:
    table = catalog.find_table(place)
    if table is None:
        return None
    _check_columns(table)
    found = _read(catalog, table, app_id)
    writers = sorted(set(found.column(_WRITER).to_pylist()))
    if not writers:
        return None
    if len(writers) > 1:
        raise OptionError(
            f"Cannot tell the last complete cut: {identifier_text(place)} has cuts of {', '.join(writers)}. Say which "
            "one is meant by argument 'app_id'."
        )
    rows = {row["table_name"]: row for row in found.to_pylist()}
    names = list(rows) if tables is None else [identifier_text(parse_identifier(name)) for name in tables]
    snapshots = {name: rows[name]["snapshot_id"] if name in rows else None for name in names}
    for name in names:
        if name in rows:
            _check_readable(catalog, name, rows[name]["table_uuid"], rows[name]["snapshot_id"])
    return Cut(app_id=writers[0], epoch=found.column("epoch")[0].as_py(), snapshots=snapshots)


def _check_readable(catalog: CatalogClient, name: str, table_uuid: str, snapshot_id: int) -> None:
    metadata = catalog.load_table(parse_identifier(name)).metadata
    if str(metadata.table_uuid) != table_uuid:
        why = "another table has its name by now"
    elif metadata.snapshot_by_id(snapshot_id) is None:
        why = f"its snapshot {snapshot_id} is gone: newer epochs have landed meanwhile, or its tag was dropped"
    else:
        return
    raise UnsupportedTableError(f"Cannot read {name} in the last complete cut: {why}. Ask for the cut again.")


def refuse_unfit_cut(catalog: CatalogClient, options: SinkOptions, *, is_numbered: bool) -> None:
    """Refuse a write whose cut could not be recorded, before anything is written.

    Args:
        catalog: The catalog of all tables.
        options: The options of the write, with `consistent-cut`.
        is_numbered: Whether the write has an epoch or a version.

    Raises:
        OptionError: The write has no number, or the catalog holds no tags.
        UnsupportedTableError: The table that the option names has other columns.
        CatalogError: The catalog could not be reached.
    """
    if not is_numbered:
        raise OptionError(
            f"Cannot write with option '{_OPTION}': a cut is that of a numbered epoch, and this batch has no number. "
            "Number it: with 'txn-app-id' and 'txn-version', or app_id and version of iceberg_ds.transaction."
        )
    if not catalog.holds_branches:
        raise OptionError(
            f"Cannot write with option '{_OPTION}': Nessie holds no tags of single tables. Tag or branch the whole "
            "catalog by Nessie's own means instead, and drop the option."
        )
    if (table := catalog.find_table(_place(options))) is not None:
        _check_columns(table)


def _check_columns(table: Table) -> None:
    lacks = [column.name for column in _COLUMNS if column.name not in {field.name for field in table.schema().fields}]
    if lacks:
        raise UnsupportedTableError(
            f"Cannot use {identifier_text(table.name())} for option '{_OPTION}': it lacks column '{lacks[0]}', so it "
            "is no table of cuts. Name a table that does not exist: the write creates it."
        )


def record_cut(catalog: CatalogClient, options: SinkOptions, writes: Sequence[WriteIdentity]) -> None:
    """Tag the snapshots of an epoch in all of its tables, which have it, and record the cut.

    Does nothing if the cut of this epoch, or of a later one, is recorded.

    Args:
        catalog: The catalog of all tables.
        options: The options of the write, with `consistent-cut`.
        writes: The writes of the epoch, which have landed, in this run or in an earlier one; at least one.

    Raises:
        IcebergSinkError: The cut was not recorded; all tables have their rows. A repeated epoch goes on with it.
    """
    place, first = _place(options), writes[0]
    numbered = first.numbered
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    app_id = numbered.writer if first.stream is None else first.stream.name
    cuts = catalog.find_table(place)
    if cuts is not None:
        marker = _marker(cuts.metadata, first, MAIN_BRANCH)
        if marker is not None and marker.number >= numbered.number:
            logger.info("The cut of %s is recorded in %s", numbered, identifier_text(place))
            report_replay(catalog, first, identifier_text(place), cuts, marker)
            return
    fault_point(FaultPoint.CUT_BEGUN)
    known: dict[str, dict[str, object]] = {}
    if cuts is not None:
        known = {row["table_name"]: row for row in _read(catalog, cuts, app_id).to_pylist()}
    for write in sorted(writes, key=lambda write: write.table):
        table = alter_table(catalog, parse_identifier(write.table), partial(tag_request, write=write, app_id=app_id))
        if _has_gone_on(table.metadata, write):
            logger.info("%s has a later epoch than %s, whose cut is left out", write.table, numbered)
            return
        if (snapshot_id := _snapshot_of(table.metadata, write)) is not None:
            uuid = str(table.metadata.table_uuid)
            known[write.table] = {"table_name": write.table, "table_uuid": uuid, "snapshot_id": snapshot_id}
        fault_point(FaultPoint.CUT_TAGGED)
    rows = [{**row, _WRITER: app_id, "epoch": numbered.number} for _, row in sorted(known.items())]
    if not rows:
        return
    plan = plan_write(
        catalog,
        _options_of_cut(options, place, first),
        _COLUMNS,
        WriteMode.OVERWRITE,
        is_stream=first.epoch is not None,
    ).in_epoch(first.epoch)
    commit = report_task(plan, [pa.RecordBatch.from_pylist(rows, schema=_ROWS)], ON_DRIVER)
    commit_write(catalog, [commit], epoch_id=None if first.epoch is None else first.epoch.epoch_id)
    logger.info("Recorded the cut of %s over %d tables in %s", numbered, len(rows), identifier_text(place))


def tag_prefix(app_id: str) -> str:
    """Return how the names of a writer's tags begin; the number of the epoch follows."""
    safe = _UNSAFE.sub("_", app_id)
    if safe != app_id or len(safe) > _LONGEST_NAME:
        # Two names must not share tags because they differ in what is left out.
        safe = f"{safe[:_LONGEST_NAME]}-{hashlib.blake2b(app_id.encode(), digest_size=4).hexdigest()}"
    return f"{safe}-epoch-"


def tag_request(metadata: TableMetadata, *, write: WriteIdentity, app_id: str) -> CommitRequest | None:
    """Return the request that tags an epoch's snapshot and drops the writer's oldest tags, or None for no change."""
    snapshot_id = _snapshot_of(metadata, write)
    if snapshot_id is None or write.numbered is None:
        return None
    prefix = tag_prefix(app_id)
    own = f"{prefix}{write.numbered.number}"
    tags = {
        name: ref.snapshot_id
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type is SnapshotRefType.TAG and re.fullmatch(re.escape(prefix) + r"\d+", name)
    }
    # Not by their numbers: a new checkpoint of a named stream begins with 0 again.
    others = sorted(tags.keys() - {own}, key=lambda name: _age(metadata, tags[name]), reverse=True)
    dropped = others[KEPT_TAGS - 1 :]
    is_set = tags.get(own) == snapshot_id
    if is_set and not dropped:
        return None
    setting = SetSnapshotRefUpdate(
        ref_name=own,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=_FOR_EVER_MS,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=own, snapshot_id=tags.get(own)),
            *(AssertRefSnapshotId(ref=name, snapshot_id=tags[name]) for name in dropped),
        ),
        updates=(
            *(() if is_set else (setting,)),
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in dropped),
        ),
    )


def _age(metadata: TableMetadata, snapshot_id: int) -> tuple[int, int]:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    return (0, 0) if snapshot is None else (snapshot.sequence_number or 0, snapshot.timestamp_ms)


def _snapshot_of(metadata: TableMetadata, write: WriteIdentity) -> int | None:
    """Return the snapshot with an epoch's rows; None if the epoch changed nothing in the table.

    If the snapshot has expired before it was tagged, the newest one of the branch takes its place. It has no rows of
    later epochs: none begins before the cut of this one is recorded.
    """
    branch = _shown(write)
    marker = _marker(metadata, write, branch)
    if marker is None or write.numbered is None or marker.number != write.numbered.number:
        return None
    if metadata.snapshot_by_id(marker.snapshot_id) is not None:
        return marker.snapshot_id
    head = branch_head(metadata, branch)
    return None if head is None else head.snapshot_id


def _has_gone_on(metadata: TableMetadata, write: WriteIdentity) -> bool:
    """Return whether the table has a later epoch of this writer: an old version runs again, or a second driver."""
    marker = _marker(metadata, write, _shown(write))
    return marker is not None and write.numbered is not None and marker.number > write.numbered.number


def _shown(write: WriteIdentity) -> str:
    """Return the branch that readers are to use."""
    return write.route.publish_to or write.branch


def _marker(metadata: TableMetadata, write: WriteIdentity, branch: str) -> TxnMarker | None:
    numbered = write.numbered
    return None if numbered is None else find_last_marker(metadata, branch, kind_of(numbered), numbered.writer)


def _read(catalog: CatalogClient, cuts: Table, app_id: str | None) -> pa.Table:
    """Return the rows of the last cut of a writer, or of all writers."""
    scan = cuts.scan(selected_fields=tuple(_ROWS.names))
    if app_id is not None:
        scan = scan.filter(EqualTo(term=Reference(name=_WRITER), value=literal(app_id)))
    try:
        return scan.to_arrow()
    except Exception as failure:  # of any storage library
        raise DataFileError(
            f"Cannot read the cuts in {identifier_text(cuts.name())}: {catalog.describe(failure)}. Check that the "
            "driver may read its files, and that they are there; then run it again."
        ) from None  # the cause may show credentials


def _place(options: SinkOptions) -> tuple[str, ...]:
    assert options.consistent_cut is not None  # noqa: S101  # checked by the caller
    return options.consistent_cut


def _options_of_cut(options: SinkOptions, place: tuple[str, ...], write: WriteIdentity) -> SinkOptions:
    return SinkOptions(
        table=place,
        catalog=options.catalog,
        catalog_properties=options.catalog_properties,
        warehouse=options.warehouse,
        txn_app_id=None if write.txn is None else write.txn.app_id,
        txn_version=None if write.txn is None else write.txn.version,
        stream_name=None if write.stream is None else write.stream.name,
        accept_new_checkpoint=options.accept_new_checkpoint,
        overwrite_mode="dynamic",
        partition_by=parse_partition_by(_WRITER),
        metrics_file=options.metrics_file,
        metrics_reporter=options.metrics_reporter,
        snapshot_metrics=options.snapshot_metrics,
    )
