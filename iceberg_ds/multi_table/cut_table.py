"""The table of cuts, which option `consistent-cut` names: its columns, its rows, and whether a table is one.

One partition for each writer, with a row for each table of its last cut; without a snapshot if it could not be told.
`record_cut` writes it, `cut` reads it. The markers that the writes of cuts leave in it, as in any table, tell who wrote
them and up to which number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import count

import pyarrow as pa
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.types import LongType, StringType, StructField, StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.manifests import all_entries, live_manifests
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_history
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    TXNS,
    TxnKind,
    TxnMarker,
    find_last_marker,
    find_stream,
    marker_in,
    writer_in,
)
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.spark_types import convert_type

OPTION = "consistent-cut"
WRITER = "app_id"
COLUMNS = StructType(
    [
        StructField(WRITER, StringType()),
        StructField("epoch", LongType()),
        StructField("table_name", StringType()),
        StructField("table_uuid", StringType()),
        StructField("snapshot_id", LongType()),
    ]
)
ROWS = pa.schema(
    [
        (WRITER, pa.string()),
        ("epoch", pa.int64()),
        ("table_name", pa.string()),
        ("table_uuid", pa.string()),
        ("snapshot_id", pa.int64()),
    ]
)


class WriterKind(Enum):
    """Who numbers the epochs of a cut, in words."""

    STREAM = "the stream"  # by its name, with any checkpoint
    QUERY = "the stream without a name"
    APPLICATION = "the application"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWriter:
    """Who writes the tables of a cut.

    Attributes:
        app_id: The name of the stream or application, or the id of a stream without a name.
        kind: Which of them it is.
    """

    app_id: str
    kind: WriterKind

    @classmethod
    def of(cls, write: WriteIdentity) -> CutWriter:
        """Return the writer of a numbered write."""
        assert write.numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
        if write.stream is not None:
            return cls(app_id=write.stream.name, kind=WriterKind.STREAM)
        kind = WriterKind.APPLICATION if write.epoch is None else WriterKind.QUERY
        return cls(app_id=write.numbered.writer, kind=kind)

    @property
    def markers(self) -> TxnKind:
        """Where tables keep the markers of the writer."""
        return TXNS if self.kind is WriterKind.APPLICATION else EPOCHS

    def id_in(self, metadata: TableMetadata, branch: str) -> str | None:
        """Return under which id the writer last wrote to a branch, or None if a stream of that name never did."""
        if self.kind is not WriterKind.STREAM:
            return self.app_id
        record = find_stream(metadata, branch, self.app_id)
        return None if record is None else record.query_id

    def last_marker(
        self, metadata: TableMetadata, branch: str, *, of: str | None = None, up_to: int = 0
    ) -> tuple[str, TxnMarker] | None:
        """Return the id of the writer in a branch and its newest marker there, or None if it has none.

        Args:
            metadata: The table.
            branch: The branch.
            of: The id whose numbers above `up_to` do not count; None if all count.
            up_to: The highest number that counts under this id.
        """
        kind, writer = self.markers, self.id_in(metadata, branch)
        if writer is None:
            return None
        marker = find_last_marker(metadata, branch, kind, writer)
        if marker is not None and writer == of and marker.number > up_to:
            own = (snapshot for snapshot in branch_history(metadata, branch) if writer_in(snapshot, kind) == writer)
            marker = next((found for found in (marker_in(one, kind) for one in own) if found.number <= up_to), None)
        return None if marker is None else (writer, marker)


def find_recorder(cuts: TableMetadata, app_id: str) -> CutWriter | None:
    """Return who recorded the last cut under a name, or None if no marker of that name is there."""
    found: list[tuple[tuple[int, int], CutWriter]] = []
    for kind in WriterKind:
        writer = CutWriter(app_id=app_id, kind=kind)
        if (last := writer.last_marker(cuts, MAIN_BRANCH)) is not None:
            _, marker = last
            found.append(((marker.sequence_number or 0, marker.timestamp_ms), writer))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def refuse_other_writer(catalog: CatalogClient, cuts: Table, writer: CutWriter) -> None:
    """Refuse to let a cut take the place of that of another writer of the same name.

    Raises:
        OptionError: The name is that of a stream and of an application, for example.
    """
    other = find_recorder(cuts.metadata, writer.app_id)
    if other is None or other.kind is writer.kind or not read_cuts(catalog, cuts, writer.app_id).num_rows:
        return
    raise OptionError(
        f"Cannot use {identifier_text(cuts.name())} for the cuts of {writer.kind.value} '{writer.app_id}': it has the "
        f"last cut of {other.kind.value} '{other.app_id}', and a name stands for one writer there. Give this one "
        f"another name, or another table in option '{OPTION}'."
    )


def place_of(options: SinkOptions) -> tuple[str, ...]:
    """Return the identifier of the table of cuts."""
    assert options.consistent_cut is not None  # noqa: S101  # checked by the caller
    return options.consistent_cut


def refuse_unfit_cut(catalog: CatalogClient, options: SinkOptions, *, is_numbered: bool) -> None:
    """Refuse a write whose cut could not be recorded, before anything is written.

    Args:
        catalog: The catalog of all tables.
        options: The options of the write, with `consistent-cut`.
        is_numbered: Whether the write has an epoch or a version.

    Raises:
        OptionError: The write has no number, or the catalog holds no tags, or another kind of writer has its name.
        UnsupportedTableError: The table that the option names has other columns, or another partitioning.
        CatalogError: The catalog could not be reached.
    """
    if not is_numbered:
        raise OptionError(
            f"Cannot write with option '{OPTION}': a cut is that of a numbered epoch, and this batch has no number. "
            "Number it: with 'txn-app-id' and 'txn-version', or app_id and version of iceberg_ds.transaction."
        )
    if not catalog.holds_branches:
        raise OptionError(
            f"Cannot write with option '{OPTION}': Nessie holds no tags of single tables. Tag or branch the whole "
            "catalog by Nessie's own means instead, and drop the option."
        )
    if (table := catalog.find_table(place_of(options))) is None:
        return
    check_columns(table)
    fields = [(table.schema().find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
    if fields != [(WRITER, "identity")]:
        raise UnsupportedTableError(
            f"Cannot use {identifier_text(table.name())} for option '{OPTION}': it is partitioned by "
            f"{', '.join(f'{transform}({name})' for name, transform in fields) or 'nothing'}, and each cut replaces "
            f"the partition of its writer. Partition the table by '{WRITER}' alone; or name a table that does not "
            "exist, and the write creates it."
        )
    if options.txn_app_id is not None:
        refuse_other_writer(catalog, table, CutWriter(app_id=options.txn_app_id, kind=WriterKind.APPLICATION))
    elif options.stream_name is not None:
        refuse_other_writer(catalog, table, CutWriter(app_id=options.stream_name, kind=WriterKind.STREAM))


def refuse_other_use(cut: tuple[str, ...], others: Iterable[tuple[str, ...] | None]) -> None:
    """Refuse to write rows into the table of cuts.

    Args:
        cut: Its identifier.
        others: The tables that rows go into, quarantine tables included; None where there is none.

    Raises:
        OptionError: It is one of them.
    """
    name = identifier_text(cut)
    if name.lower() in {identifier_text(other).lower() for other in others if other is not None}:
        raise OptionError(
            f"Cannot write with option '{OPTION}': it names {name}, into which this write puts other rows, and a table "
            "of cuts takes none. Name another table for the cuts, or for these rows."
        )


def check_columns(table: Table) -> None:
    """Refuse a table without the columns of a table of cuts, or with further ones that need a value.

    Raises:
        UnsupportedTableError: Names the column.
    """
    there = {field.name: field for field in table.schema().fields}
    own = {column.name: convert_type(column.dataType, count()) for column in COLUMNS}
    problems = [f"it lacks column '{name}'" for name in own if name not in there]
    problems += [
        f"its column '{name}' is {there[name].field_type}, where {kind} is needed"
        for name, kind in own.items()
        if name in there and there[name].field_type != kind
    ]
    needed = (name for name, field in there.items() if field.required and (name not in own or name == "snapshot_id"))
    problems += [f"its column '{name}' is required, and has no value in some rows of a cut" for name in needed]
    if problems:
        raise UnsupportedTableError(
            f"Cannot use {identifier_text(table.name())} for option '{OPTION}': {problems[0]}, so it is no table of "
            "cuts. Name a table that does not exist: the write creates it."
        )


def read_cuts(catalog: CatalogClient, cuts: Table, app_id: str | None) -> pa.Table:
    """Return the rows of the last cut of a writer, or of all writers."""
    scan = cuts.scan(selected_fields=tuple(ROWS.names))
    if app_id is not None:
        scan = scan.filter(EqualTo(term=Reference(name=WRITER), value=literal(app_id)))
    try:
        for manifest in live_manifests(cuts.io, cuts.current_snapshot()):
            all_entries(cuts.io, manifest)  # PyIceberg reads nothing where one was cut off
        return scan.to_arrow()
    except Exception as failure:  # of any storage library
        raise DataFileError(
            f"Cannot read the cuts in {identifier_text(cuts.name())}: {catalog.describe(failure)}. Check that the "
            "driver may read its files, and that they are there; then run it again."
        ) from None  # the cause may show credentials
