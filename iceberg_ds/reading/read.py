"""`read`: the rows of a table as a DataFrame, read by Spark itself where it can, else by Python tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from urllib.parse import urlparse

from pyiceberg.types import DoubleType, FloatType, TimeType

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.options.arguments import NUMBER, TEXT, require_types
from iceberg_ds.reading.deleted_rows import MOST_POSITIONS, position_count
from iceberg_ds.reading.metadata_tables import metadata_frame
from iceberg_ds.reading.request import LoadedTable, PlannedRead, ReadRequest, read_options, time_ms
from iceberg_ds.reading.scan import ScanPlan
from iceberg_ds.reading.source import frame_by_python
from iceberg_ds.reading.spark_changes import SparkChanges
from iceberg_ds.reading.spark_columns import is_misread, why_not_by_spark
from iceberg_ds.reading.spark_files import SparkFiles, column_of, hadoop_path
from iceberg_ds.reading.spark_scan import SparkScan
from iceberg_ds.secrets import is_secret
from iceberg_ds.spark.filesystems import has_filesystem
from iceberg_ds.spark.sql_text import expression, refusing_sql
from iceberg_ds.table.name_mapping import NAME_MAPPING
from iceberg_ds.table.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

Reader: TypeAlias = Literal["auto", "spark", "python"]
_READERS: tuple[Reader, ...] = get_args(Reader)
# What predicates mean in Spark depends on these, and here they mean what they mean by the defaults.
_DEFAULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}
_SESSION_ZONE, _CASE_SENSITIVE = "spark.sql.session.timeZone", "spark.sql.caseSensitive"


def read(  # noqa: PLR0913  # all but two by name
    spark: SparkSession,
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    snapshot_id: int | None = None,
    as_of: datetime | int | str | None = None,
    tag: str | None = None,
    reader: Reader = "auto",
) -> DataFrame:
    """Return the rows of a table as a DataFrame.

    The snapshot is chosen now: what is committed later is not in it. Rows are read when the DataFrame is used: by
    Spark's own Parquet reader where it can read them, with the session's own filesystems and credentials; else by
    Python tasks. Switches `spark.sql.parquet.fieldId.read.enabled` on in the session, and
    `spark.sql.parquet.fieldId.read.ignoreMissing` off, for which Spark asks when a query runs: leave them so.

    Args:
        spark: The session; classic, or of Spark Connect.
        table: Identifier of the table, such as `db.events`; or of one of its metadata tables, such as
            `db.events.snapshots`, which the driver reads.
        options: `catalog`, `catalog.*`, `warehouse`, `namespace`, `branch`, as for a write. None for no options.
        branch: Read the head of this branch. At most one of this, `snapshot_id`, `as_of` and `tag` is given; without
            any, the head of option `branch`, or of `main`, is read.
        columns: Names of the columns; also metadata columns, which follow the table's own: `_file`, `_pos`, `_spec_id`
            and `_partition` are path of a row's file, position of the row in it from 0, id of the file's partition
            spec, and its partition, a struct of the fields of all specs that the table has had; `_row_id`
            and `_last_updated_sequence_number` are the id that a row keeps as it moves, and the sequence number of the
            commit that wrote it, in tables of format version 3 alone, and null for rows without ids. None for the
            table's columns.
        where: A predicate in Spark's SQL: only rows that satisfy it are returned, and files are passed over that
            cannot have any by their partitions and metrics. None for all rows.
        snapshot_id: Id of the snapshot to read.
        as_of: Read the snapshot that was current in `main` then: a time with a time zone, milliseconds since the Unix
            epoch, or a text such as `2026-11-21T12:00:00Z`.
        tag: Read the snapshot of this tag.
        reader: `spark` for Spark's Parquet reader, `python` for Python tasks, `auto` to choose.

    Returns:
        The rows, in no order. All columns are nullable; uuid and time are text, fixed is binary.

    Raises:
        OptionError: The options or arguments are malformed; there is no such snapshot or column.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table has files or columns that cannot be read.
        DataFileError: Files of the snapshot are missing or damaged.
        CatalogError: The catalog could not be reached or refused.
    """
    check_arguments(table, reader, columns=columns)
    require_types(
        f"read {table}", branch=(branch, TEXT), where=(where, TEXT), snapshot_id=(snapshot_id, NUMBER), tag=(tag, TEXT)
    )
    started = time.monotonic()
    asked = {
        "columns": columns if columns is None else list(columns),
        "where": where,
        "snapshot-id": snapshot_id,
        "as-of-timestamp": time_ms(table, as_of),
        "branch": branch,
        "tag": tag,
        **session_options(spark),
    }
    given = read_options(table, options, asked)
    request = ReadRequest.of(given)
    request.refuse_options_of_streams()
    loaded = request.load()
    if loaded.metadata_table is not None:
        found = metadata_frame(spark, loaded.table, loaded.metadata_table, request.choice)
        return selected(request, found, request.names_among(found.columns))
    planned = request.plan(loaded, prunes=request.where is not None and is_read_alike(spark, request, loaded))
    why = why_by_python(spark, planned, reader)
    rows = planned_rows(spark, planned, given, why)
    logger.info(
        "Reading snapshot %s of %s: %d data files, %d passed over, %s, planned in %d ms",
        planned.plan.snapshot_id,
        planned.plan.name,
        len(planned.plan.tasks),
        planned.plan.left_out,
        how_read(why),
        (time.monotonic() - started) * 1000,
    )
    return rows if request.where is None else selected(request, rows, planned.names)


def session_options(spark: SparkSession) -> dict[str, str]:
    """Return what the session says of names and of times without a zone, as options."""
    return {
        "time-zone": str(spark.conf.get(_SESSION_ZONE)),
        "case-sensitive": str(is_case_sensitive(spark)).lower(),
    }


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether the session tells names apart that differ in case alone."""
    return str(spark.conf.get(_CASE_SENSITIVE)).lower() == "true"


def check_arguments(table: str, reader: Reader, **names: Sequence[str] | None) -> None:
    """Look at the reader, and at lists of names of columns, by the name of their argument.

    Raises:
        OptionError: One is something else.
    """
    if reader not in _READERS:
        raise OptionError(f"Cannot read {table}: reader is {reader!r}, expected one of {', '.join(_READERS)}.")
    for argument, given in names.items():
        if isinstance(given, str):
            raise OptionError(f"Cannot read {table}: {argument} is the text {given!r}, expected a list of names.")
        if given is not None and not (isinstance(given, Sequence) and all(isinstance(name, str) for name in given)):
            raise OptionError(f"Cannot read {table}: {argument} is {given!r}, expected a list of names.")


def is_read_alike(spark: SparkSession, request: ReadRequest, loaded: LoadedTable) -> bool:
    """Return whether Spark understands the predicate as this package does: by its defaults, and in the same types."""
    has_defaults = all(str(spark.conf.get(key, value)).lower() == value for key, value in _DEFAULTS.items())
    return has_defaults and not request.is_about_texts(loaded.table.metadata)


def why_by_python(spark: SparkSession, planned: PlannedRead, reader: Reader) -> str | None:
    """Return why Python tasks read the rows of a planned read, or None if Spark does.

    Raises:
        UnsupportedTableError: Spark is asked for, and cannot; or it has no type for a column.
    """
    planned.require_spark_types()
    if not planned.plan.tasks:
        return None
    return "it is asked for" if reader == "python" else _why_not_spark(spark, planned, reader)


def planned_rows(spark: SparkSession, planned: PlannedRead, given: Mapping[str, str], why: str | None) -> DataFrame:
    """Return the rows, with all columns that the predicate may need.

    Args:
        spark: The session.
        planned: The read.
        given: Its options, in lower case.
        why: Why Python tasks read, as `why_by_python` returns it.

    Raises:
        DataFileError: Files are missing or damaged.
    """
    fields = planned.read_fields
    if why is None:
        files = SparkFiles(spark=spark, io=planned.io, plan=planned.plan)
        if planned.request.has_changes and planned.plan.tasks:
            return SparkChanges(files=files, fields=fields).frame()
        return SparkScan(files=files, fields=fields, extras=planned.extras).frame()
    return frame_by_python(spark, given, planned, [*(field.name for field in fields), *planned.extras])


def how_read(why: str | None) -> str:
    """Return for the log who reads, by what `why_by_python` returns."""
    return "by Spark" if why is None else f"by Python tasks, because {why}"


def _why_not_spark(spark: SparkSession, planned: PlannedRead, reader: Reader) -> str | None:
    """Return why Spark does not read the rows, or None if it does.

    Raises:
        UnsupportedTableError: Spark is asked for, and cannot.
    """
    why = why_not_by_spark(planned.read_fields) or _why_not_files(planned.plan)
    if why is not None and reader == "spark":
        raise UnsupportedTableError(f'Cannot read {planned.plan.name} with reader="spark": {why}. Leave reader out.')
    return why if reader == "spark" else why or _why_not_opened(spark, planned)


def _why_not_files(plan: ScanPlan) -> str | None:
    """Return why Spark, with any filesystem, cannot read the files of a scan, or None if it can."""
    if NAME_MAPPING in plan.metadata.properties:
        return f"property {NAME_MAPPING} says that the table may have files without field ids"
    for number, kind in plan.key_types.items():
        try:
            column_of(plan, number)
        except LookupError:
            return f"rows are deleted by field {number}, which is inside a column"
        if isinstance(kind, TimeType | FloatType | DoubleType):  # Spark takes 0.0 and -0.0 for one number
            return f"rows are deleted by field {number}, which is of type {kind}"
    tasks = [*plan.tasks, *(task.hidden_by for task in plan.tasks if task.hidden_by is not None)]
    paths = [*(task.work.path for task in tasks), *plan.key_files]
    misread = next(filter(is_misread, paths), None)
    if misread is not None:
        return f"it passes over a file with such a name, fails with it, or takes its path for a pattern: {misread}"
    count = position_count(tasks, plan.deletes)
    if count > MOST_POSITIONS:
        return f"{count:,} rows are deleted by position, and the driver takes {MOST_POSITIONS:,} of them"
    return None


def _why_not_opened(spark: SparkSession, planned: PlannedRead) -> str | None:
    """Return why Spark may not open the files of a scan, or None if it can."""
    schemes = {urlparse(hadoop_path(task.work.path)).scheme for task in planned.plan.tasks} - {"", "file"}
    if schemes and any(map(is_secret, planned.io.properties)):
        return "the catalog has the storage's credentials, and Spark has not"
    lacking = next((scheme for scheme in sorted(schemes) if not has_filesystem(spark, scheme)), None)
    return None if lacking is None else f"Spark has no filesystem for {lacking}, or does not tell"


def selected(request: ReadRequest, rows: DataFrame, columns: Sequence[str], action: str | None = None) -> DataFrame:
    """Return the rows that satisfy the predicate, with the columns of the result.

    Args:
        request: What is asked for.
        rows: All rows.
        columns: The columns of the result.
        action: What is being done, for errors; None for a read of the table.

    Raises:
        OptionError: Spark does not understand the predicate.
    """
    where = request.where
    if where is not None:
        with refusing_sql(where, f"Cannot {action or f'read {request.name}'}: where is no predicate on its columns"):
            rows = rows.where(expression(where))
            rows.schema  # noqa: B018  # for its errors
    return rows.select(*map(quoted, columns))
