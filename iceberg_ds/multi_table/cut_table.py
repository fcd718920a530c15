"""The table of cuts, which option `consistent-cut` names: its columns, its rows, and whether a table is one.

One partition for each writer, with a row for each table of its last cut. `record_cut` writes it, `cut` reads it.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from pyspark.sql.types import LongType, StringType, StructField, StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.table.names import identifier_text

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
        OptionError: The write has no number, or the catalog holds no tags.
        UnsupportedTableError: The table that the option names has other columns.
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
    if (table := catalog.find_table(place_of(options))) is not None:
        check_columns(table)


def check_columns(table: Table) -> None:
    """Refuse a table that lacks a column.

    Raises:
        UnsupportedTableError: Names the column.
    """
    lacks = [column.name for column in COLUMNS if column.name not in {field.name for field in table.schema().fields}]
    if lacks:
        raise UnsupportedTableError(
            f"Cannot use {identifier_text(table.name())} for option '{OPTION}': it lacks column '{lacks[0]}', so it "
            "is no table of cuts. Name a table that does not exist: the write creates it."
        )


def read_cuts(catalog: CatalogClient, cuts: Table, app_id: str | None) -> pa.Table:
    """Return the rows of the last cut of a writer, or of all writers."""
    scan = cuts.scan(selected_fields=tuple(ROWS.names))
    if app_id is not None:
        scan = scan.filter(EqualTo(term=Reference(name=WRITER), value=literal(app_id)))
    try:
        return scan.to_arrow()
    except Exception as failure:  # of any storage library
        raise DataFileError(
            f"Cannot read the cuts in {identifier_text(cuts.name())}: {catalog.describe(failure)}. Check that the "
            "driver may read its files, and that they are there; then run it again."
        ) from None  # the cause may show credentials
