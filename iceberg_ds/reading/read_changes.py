"""`read_changes`: what was inserted, deleted and updated between two snapshots, as a DataFrame."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField
from pyspark.sql import DataFrame, SparkSession

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.options.arguments import FLAG, TEXT, require_types
from iceberg_ds.reading.change_history import Bound, ChangeRange, find_range
from iceberg_ds.reading.change_rows import net_changes, with_updates, without_carry_overs
from iceberg_ds.reading.extras import CHANGE_COLUMNS, EXTRAS
from iceberg_ds.reading.read import Reader, check_arguments, how_read, planned_rows, session_options, why_by_python
from iceberg_ds.reading.request import PlannedRead, ReadRequest, read_options, time_ms
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_files import together
from iceberg_ds.table.lineage import LINEAGE
from iceberg_ds.table.names import quoted
from iceberg_ds.table.nested_fields import at_any_depth
from iceberg_ds.table.spark_types import UnreadTypeError, spark_struct, spark_type
from iceberg_ds.table.variant import holds_variant

logger = logging.getLogger(__name__)


def read_changes(  # noqa: PLR0913  # all but two by name
    spark: SparkSession,
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    columns: Sequence[str] | None = None,
    start: datetime | int | str | None = None,
    end: datetime | int | str | None = None,
    keys: Sequence[str] | None = None,
    net: bool = False,
    reader: Reader = "auto",
) -> DataFrame:
    """Return what snapshots inserted into a table and deleted from it, as a DataFrame.

    The snapshots are chosen now. Each is compared with the one before; compactions change no row. A row that a snapshot
    deleted and inserted again with the same values, because it wrote a file anew, is left out.

    Args:
        spark: The session; classic, or of Spark Connect.
        table: Identifier of the table, such as `db.events`.
        options: `catalog`, `catalog.*`, `warehouse`, `namespace`, `branch`, as for a write. None for no options.
        branch: The branch whose history is read; None for option `branch`, or `main`, or any if `end` is a snapshot.
        columns: Names of the table's columns; None for all.
        start: Changes after this snapshot: its id; or a time, for what was committed later: with a time zone, or as a
            text such as `2026-11-21T12:00:00Z`. None for the oldest snapshot that is there, all of whose rows come
            first as inserted.
        end: Changes up to this snapshot, with it: its id; or a time. None for the head of the branch.
        keys: Names of columns that say which row is which: a row that a snapshot deleted and one that it inserted with
            the same key are the row before and the row after an update. None for no updates.
        net: Whether to leave out rows that were deleted and inserted again, or inserted and deleted again, by any
            snapshots: with `keys` an update has the first row before and the last row after.
        reader: `spark` for Spark's Parquet reader, `python` for Python tasks, `auto` to choose.

    Returns:
        The rows, in no order, with the table's columns as they are now, and `_change_type` (INSERT, DELETE,
        UPDATE_BEFORE, UPDATE_AFTER), `_change_ordinal` (number of the snapshot, from 0), `_commit_snapshot_id` and
        `_commit_timestamp`.

    Raises:
        OptionError: The options or arguments are malformed; there is no such snapshot or column, or `end` does not
            descend from `start`.
        StreamHistoryError: Snapshots in between have expired.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table has files or columns that cannot be read.
        DataFileError: Files of a snapshot are missing or damaged.
        CatalogError: The catalog could not be reached or refused.
    """
    check_arguments(table, reader, columns=columns, keys=keys)
    require_types(f"read changes of {table}", branch=(branch, TEXT), net=(net, FLAG))
    started = time.monotonic()
    given = read_options(table, options, {"branch": branch, **session_options(spark)})
    request = ReadRequest.of(given)
    request.refuse_options_of_rows()
    loaded = request.load_for_tasks()
    name, schema = request.name, loaded.table.schema()
    shown, key_names = _columns(request, schema, columns), _keys(request, schema, keys)
    first, last = _bound(table, "start", start), _bound(table, "end", end)
    found = find_range(name, loaded.table.metadata, request.options.branch, start=first, end=last)
    if found is None:
        return spark.createDataFrame([], spark_struct([*shown, *(EXTRAS[column] for column in CHANGE_COLUMNS)]))
    chosen = {key: text for key, text in given.items() if key != "branch"} | _as_options(found, schema)
    planned = ReadRequest.of(chosen).plan(loaded)
    one_sided, mixed = _by_sides(planned.plan.tasks, is_net=net)
    if mixed:
        _require_comparable(name, schema)
    why = why_by_python(spark, planned if mixed else replace(planned, fields=shown), reader)
    if mixed and why is not None:  # tasks plan anew, and read all
        one_sided, mixed = [], [*one_sided, *mixed]
    frames = []
    if one_sided or not mixed:
        frames.append(planned_rows(spark, replace(_part(planned, one_sided), fields=shown), chosen, why))
    if mixed:
        rows = planned_rows(spark, _part(planned, mixed), chosen, why)
        rows = net_changes(rows) if net else without_carry_overs(rows)
        frames.append(with_updates(rows, name, key_names, is_net=net) if key_names else rows)
    logger.info(
        "Reading changes of %s up to snapshot %s: %d changes of files, %s, planned in %d ms",
        name,
        found.end_id,
        len(planned.plan.tasks),
        how_read(why),
        (time.monotonic() - started) * 1000,
    )
    names = [*(quoted(field.name) for field in shown), *CHANGE_COLUMNS]
    return together(frame.select(*names) for frame in frames)


def _columns(request: ReadRequest, schema: Schema, columns: Sequence[str] | None) -> tuple[NestedField, ...]:
    """Return the table's columns that are wanted.

    Raises:
        OptionError: There is no such column.
        UnsupportedTableError: The table has columns with the names of those that say what has changed.
    """
    request.refuse_own_change_columns(schema)
    fields, extras = replace(request, columns=None if columns is None else tuple(columns)).chosen(schema)
    if extras:
        of_streams = "; it comes with a stream of changes (on-change=changes)" if extras[0] in LINEAGE else ""
        raise OptionError(
            f"Cannot read changes of {request.name}: '{extras[0]}' is no column of the table. Leave it out{of_streams}."
        )
    request.require_spark_types(fields)
    return fields


def _require_comparable(name: str, schema: Schema) -> None:
    """Refuse to compare rows that Spark cannot compare: all columns say whether a row was changed.

    Raises:
        OptionError: A column is a list or map of variants.
        UnsupportedTableError: Spark has no type for a column.
    """
    for field in schema.fields:
        try:
            spark_type(field.field_type)
        except UnreadTypeError as unread:
            raise UnsupportedTableError(
                f"Cannot read changes of {name}: snapshots both deleted and inserted rows, all columns of which are "
                f"compared, and column '{field.name}' holds {unread}. Read between snapshots that do either, without "
                "net; or drop the column."
            ) from None
    lists = (one for one in at_any_depth(schema.fields) if isinstance(one.field_type, ListType | MapType))
    if (found := next((one for one in lists if holds_variant(one.field_type)), None)) is not None:
        raise OptionError(
            f"Cannot read changes of {name}: snapshots both deleted and inserted rows, and '{found.name}' is a list or "
            "map of variants, and Spark cannot tell whether two of them are the same. Read between snapshots that do "
            "either, without net; or read the rows of both snapshots with iceberg_ds.read, and compare them yourself."
        )


def _keys(request: ReadRequest, schema: Schema, keys: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the key columns; none without keys.

    Raises:
        OptionError: There is no such column, or it cannot be a key.
    """
    if keys is None:
        return ()
    if not keys:
        raise OptionError(f"Cannot read changes of {request.name}: keys names no column. Leave it out for no updates.")
    return request.key_names(schema, keys)


def _bound(table: str, argument: str, given: datetime | int | str | None) -> Bound:
    """Return a snapshot, or a time.

    Raises:
        OptionError: It is neither.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return Bound(snapshot_id=given)
    return Bound(time_ms=time_ms(table, given, argument))


def _as_options(found: ChangeRange, schema: Schema) -> dict[str, str]:
    beginning = found.beginning
    return {
        "snapshot-id": str(found.end_id),
        "schema-id": str(schema.schema_id),
        f"changes-{'from' if beginning.is_whole else 'after'}-snapshot-id": str(beginning.snapshot_id),
    }


def _by_sides(tasks: Sequence[ScanTask], *, is_net: bool) -> tuple[list[ScanTask], list[ScanTask]]:
    """Return the changes by snapshots that only insert or only delete rows, and the others, which may have carry-overs.

    Of net changes all snapshots count as one.
    """
    changes = [(task, task.change) for task in tasks if task.change is not None]
    kinds: dict[int, set[str]] = defaultdict(set)
    for _, change in changes:
        kinds[0 if is_net else change.ordinal].add(change.kind)
    found: tuple[list[ScanTask], list[ScanTask]] = ([], [])
    for task, change in changes:
        found[len(kinds[0 if is_net else change.ordinal]) > 1].append(task)
    return found


def _part(planned: PlannedRead, tasks: Sequence[ScanTask]) -> PlannedRead:
    return replace(planned, plan=replace(planned.plan, tasks=tasks))
