"""`table_health`: how a table does: what commits and readers carry, how old its rows are, how fast it grows.

It loads the table's metadata once and reads the manifest list of one branch; and, up to `file_counts.MOST_FILES` files,
the manifests in it, each once while the process lives. It asks for the size of the metadata file. No data file is
opened, and nothing is written.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from typing import Literal, TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.error_hints import hint_for
from iceberg_ds.errors import DataFileError, IcebergSinkError, OptionError
from iceberg_ds.inspect.file_counts import FileCounter, SnapshotCounts
from iceberg_ds.inspect.forecast import Forecast, forecast_of, outlook
from iceberg_ds.messages import FUTURE_MS
from iceberg_ds.metrics.report import SUMMARY_PREFIX
from iceberg_ds.options.arguments import TEXT, require_types
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.growth import small_below_bytes
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory, branch_head
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    STREAM_PREFIX,
    TXNS,
    TxnMarker,
    find_all_markers,
    find_stream,
    is_number,
    named_properties,
)
from iceberg_ds.table.names import identifier_text

WriterKind: TypeAlias = Literal["stream", "query", "application"]

# The metadata file that a forecast looks ahead to, unless the user names another size.
METADATA_LIMIT_BYTES = 5_000_000
_NEWEST_EVENT = f"{SUMMARY_PREFIX}newest-event-ms"
_REMOVED_DATA_FILES = "deleted-data-files"
# How many of the newest snapshots are asked for the newest row: writers take turns, and a backfill commits old rows.
_ASKED_SNAPSHOTS = 100
# The largest number of times that a table is loaded, if its branch moves on and the files of the old snapshot expire.
_LOOKS = 3
# The largest figures that are shown in a unit; from there on they would be rounded to one of the next unit.
_SIZES = (("B", 1, 999.5), ("kB", 1e3, 999.95), ("MB", 1e6, 999.95), ("GB", 1e9, 999.95))
_AGES = (("s", 1, 59.5), ("min", 60, 59.95), ("h", 3_600, 23.95))
_DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterHealth:
    """A writer of numbered writes, and its last commit to the branch.

    Attributes:
        kind: `stream` for a streaming query under a name (`stream-name`), `query` for one without, `application` for
            batches under `txn-app-id`.
        name: The stream's name, the query's id, or the application's name.
        query_id: Spark's id of the query; None for an application.
        number: Number of its last micro-batch, or version of its last batch.
        last_commit_ms: Time of its last commit, in milliseconds since 1970, by the clock of the committing machine.
        age_s: Seconds since then; 0 if that clock is ahead.
        lag_s: Seconds since the event time of the newest row of that commit; None if its summary does not tell.
    """

    kind: WriterKind
    name: str
    query_id: str | None
    number: int
    last_commit_ms: int
    age_s: float
    lag_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """How a table does, seen from one branch; `str` has a few lines for people.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        at_ms: Time of the look, in milliseconds since 1970, by this machine's clock.
        format_version: Format version of the table.
        snapshots: Snapshots in the table's metadata, of all branches.
        metadata_bytes: Size of the metadata file; None if this machine may not read it.
        data_manifests: Manifests of data files that the branch's newest snapshot lists.
        delete_manifests: Manifests of delete files that it lists.
        data_files: Data files of the branch; None if unknown.
        delete_files: Delete files and deletion vectors of the branch; None if unknown.
        rows: Rows of the data files, deleted ones included; None if unknown.
        bytes: Bytes of data and delete files; None if unknown.
        files_read: Data and delete files whose manifest entries were read; the figures below rest on them.
        is_complete: Whether these are all files: of a larger table the first 100,000 are read.
        small_below_bytes: A quarter of `write.target-file-size-bytes`; a smaller data file is small.
        small_files: Small data files, among those that were read.
        average_file_bytes: Average size of the data files that were read; None if there are none.
        equality_delete_files: Equality delete files; None if not all delete files were read.
        position_delete_files: Position delete files and deletion vectors; None if not all delete files were read.
        equality_deletes: Keys in equality delete files; None if not all of them were read.
        position_deletes: Positions in position delete files and deletion vectors; None if not all of them were read.
        last_commit_ms: Time of the branch's newest snapshot, in milliseconds since 1970, by the clock of the
            committing machine; None if there is no snapshot.
        last_commit_age_s: Seconds since then; 0 if that clock is ahead, None if there is no snapshot.
        newest_event_ms: Event time of the newest row, in milliseconds since 1970, among the last 100 snapshots of the
            branch that tell it (option `snapshot-metrics`); None if none of them does. A time more than a day after
            the commit itself does not count.
        lag_s: Seconds since then; 0 for an event in the future, None if unknown.
        writers: Streams, queries and applications that the branch knows, the one with the newest commit first.
        forecast: How fast the table grows; None if its history is too short to tell.
        oldest_snapshot_age_s: Seconds since the oldest snapshot that no branch or tag is at; None if there is none.
        commits_since_rewrite: Snapshots of the branch since the last one in which data files were rewritten without
            changing rows, as compaction does; all that the branch shows if it shows no such one.
    """

    table: str
    branch: str
    at_ms: int
    format_version: int
    snapshots: int
    metadata_bytes: int | None
    data_manifests: int
    delete_manifests: int
    data_files: int | None
    delete_files: int | None
    rows: int | None
    bytes: int | None
    files_read: int
    is_complete: bool
    small_below_bytes: int
    small_files: int
    average_file_bytes: float | None
    equality_delete_files: int | None
    position_delete_files: int | None
    equality_deletes: int | None
    position_deletes: int | None
    last_commit_ms: int | None
    last_commit_age_s: float | None
    newest_event_ms: int | None
    lag_s: float | None
    writers: tuple[WriterHealth, ...] = ()
    forecast: Forecast | None = None
    oldest_snapshot_age_s: float | None = None
    commits_since_rewrite: int = 0

    @property
    def deletes_per_file(self) -> float | None:
        """Delete files for each data file; 0 without delete files, None if unknown."""
        if self.data_files is None or self.delete_files is None:
            return None
        return self.delete_files / max(self.data_files, 1)

    @property
    def hidden_rows_at_most(self) -> int | None:
        """The most rows that deletes hide: one for each position, and one for each key of an equality delete.

        Without equality deletes this is the number of hidden rows, unless two delete files name the same row. A key
        hides more than one row only where keys are not unique. None if unknown.
        """
        if self.position_deletes is None or self.equality_deletes is None:
            return None
        hidden = self.position_deletes + self.equality_deletes
        return hidden if self.rows is None else min(hidden, self.rows)

    def outlook(self, metadata_limit_bytes: int = METADATA_LIMIT_BYTES) -> str:
        """Return the forecast as a sentence, which says when the metadata file passes `metadata_limit_bytes`."""
        return outlook(self.forecast, self.metadata_bytes, metadata_limit_bytes)

    def to_json(self) -> str:
        """Return the attributes as a JSON object, with those of the writers and of the forecast."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(health: TableHealth) -> Iterator[str]:
    least = "" if health.is_complete else "at least "
    average = "" if health.average_file_bytes is None else f", {size_text(health.average_file_bytes)} on average"
    yield (
        f"{printable(health.table)}, branch {printable(health.branch)}: {count_text(health.rows)} rows, "
        f"{size_text(health.bytes)}, {count_text(health.data_files)} data files{average}, "
        f"{least}{health.small_files:,} small (below {size_text(health.small_below_bytes)})"
    )
    if (deletes := deletes_text(health)) is not None:
        yield f"  deletes: {deletes}"
    yield (
        f"  history: {health.snapshots:,} snapshots, metadata of {size_text(health.metadata_bytes)}, "
        f"{health.data_manifests + health.delete_manifests:,} manifests"
    )
    age, lag = age_text(health.last_commit_age_s), age_text(health.lag_s)
    yield (
        f"  last commit: {age} ago; newest row: {lag} old" if health.lag_s is not None else f"  last commit: {age} ago"
    )
    for writer in health.writers:
        yield f"  {writer.kind} {printable(writer.name)}: {writer.number:,}, {age_text(writer.age_s)} ago"
    yield f"  outlook: {health.outlook()}"


def deletes_text(health: TableHealth) -> str | None:
    """Return the delete files of a table in words, or None if it has none."""
    if health.delete_files == 0:
        return None
    return (
        f"{count_text(health.equality_delete_files)} equality and {count_text(health.position_delete_files)} position "
        f"delete files, {count_text(health.deletes_per_file)} for each data file; they hide at most "
        f"{count_text(health.hidden_rows_at_most)} rows"
    )


def count_text(number: float | None) -> str:
    """Return a number as text; `unknown` for None."""
    if number is None:
        return "unknown"
    return f"{number:,}" if isinstance(number, int) else f"{number:.2f}"


def size_text(size_bytes: float | None) -> str:
    """Return a number of bytes as text, such as `3.1 MB`; `unknown size` for None."""
    if size_bytes is None:
        return "unknown size"
    for unit, length, most in _SIZES:
        if size_bytes / length < most:
            return f"{size_bytes / length:.{0 if length == 1 else 1}f} {unit}"
    return f"{size_bytes / 1e12:,.1f} TB"


def age_text(seconds: float | None) -> str:
    """Return an age as text, such as `12 min`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    for unit, length, most in _AGES:
        if seconds / length < most:
            return f"{seconds / length:.{0 if length == 1 else 1}f} {unit}"
    return f"{seconds / _DAY_S:,.1f} d"


def printable(text: str) -> str:
    """Return a text with Python's escapes for the characters that a terminal would obey; lines stay lines."""
    return "".join(one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in text)


class HealthReader:
    """Looks at one branch of a table, again and again if it is asked to.

    Args:
        options: Options of a write, which name the table, the catalog and the branch.
        files: Counts the files of the branch.
    """

    def __init__(self, options: SinkOptions, files: FileCounter | None = None) -> None:
        self.table = identifier_text(options.table)
        self.branch = options.branch or MAIN_BRANCH
        self._options = options
        self._files = files or FileCounter()

    def read(self) -> TableHealth:
        """Return how the table does now.

        Raises:
            OptionError: The table has no such branch, or the catalog's options cannot be used.
            TableNotFoundError: The table does not exist, nor may the embedded catalog: none is made.
            UnsupportedTableError: The identifier names a view.
            CatalogError: The catalog could not be reached or refused.
            DataFileError: A manifest or the manifest list cannot be read.
        """
        catalog = connect_to_existing(self._options)
        with catalog.hiding_secrets():
            return self._read(catalog)

    def _read(self, catalog: CatalogClient) -> TableHealth:
        table = catalog.load_table(self._options.table)
        for look in range(1, _LOOKS + 1):
            self._require_branch(table.metadata)
            head = branch_head(table.metadata, self.branch)
            try:
                files = self._files.read(table.io, head, small_below_bytes(table.metadata))
                break
            except IcebergSinkError:
                raise
            except Exception as error:  # any error of a storage library or the Avro reader
                table = catalog.load_table(self._options.table)
                if look == _LOOKS or branch_head(table.metadata, self.branch) == head:
                    raise self._unreadable(catalog, error) from None  # the cause may show credentials
        return health_of(
            table.metadata, self.table, self.branch, files, metadata_bytes=_metadata_bytes(table), now_ms=_now_ms()
        )

    def _unreadable(self, catalog: CatalogClient, error: Exception) -> DataFileError:
        return DataFileError(
            f"Cannot read the manifests of {self.table}: {catalog.describe(error)}. {hint_for(error).next_step} "
            f"`iceberg-ds verify {shlex.quote(self.table)}` names every file that is missing or damaged."
        )

    def _require_branch(self, metadata: TableMetadata) -> None:
        branches = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH]
        if self.branch not in {*branches, MAIN_BRANCH}:
            found = ", ".join(f"'{name}'" for name in sorted({*branches, MAIN_BRANCH}))
            kind = "a tag, which no commit moves" if self.branch in metadata.refs else "no branch of it"
            raise OptionError(f"Cannot look at {self.table}: '{self.branch}' is {kind}. Its branches: {found}.")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _metadata_bytes(table: Table) -> int | None:
    with suppress(Exception):  # a catalog may keep the file where only its server may read it
        return len(table.io.new_input(table.metadata_location))
    return None


def health_of(  # noqa: PLR0913  # what was loaded, from four places
    metadata: TableMetadata, name: str, branch: str, files: SnapshotCounts, *, metadata_bytes: int | None, now_ms: int
) -> TableHealth:
    """Return how a table does.

    Args:
        metadata: The table.
        name: Its identifier.
        branch: The branch.
        files: What the branch's newest snapshot lists.
        metadata_bytes: Size of the metadata file; None if unknown.
        now_ms: The time, in milliseconds since 1970.
    """
    head, history = branch_head(metadata, branch), BranchHistory(metadata, branch)
    newest_event_ms = max(
        (event for snapshot in islice(history, _ASKED_SNAPSHOTS) if (event := _newest_event(snapshot)) is not None),
        default=None,
    )
    last_commit_ms = None if head is None else head.timestamp_ms
    read, deletes_are_known = files.read, files.deletes_are_complete
    return TableHealth(
        table=name,
        branch=branch,
        at_ms=now_ms,
        format_version=metadata.format_version,
        snapshots=len(metadata.snapshots),
        metadata_bytes=metadata_bytes,
        data_manifests=files.data_manifests,
        delete_manifests=files.delete_manifests,
        data_files=files.data_files,
        delete_files=files.delete_files,
        rows=files.rows,
        bytes=files.bytes,
        files_read=read.files,
        is_complete=files.is_complete,
        small_below_bytes=small_below_bytes(metadata),
        small_files=read.small_files,
        average_file_bytes=read.data_bytes / read.data_files if read.data_files else None,
        equality_delete_files=read.equality_delete_files if deletes_are_known else None,
        position_delete_files=read.position_delete_files if deletes_are_known else None,
        equality_deletes=read.equality_deletes if deletes_are_known else None,
        position_deletes=read.position_deletes if deletes_are_known else None,
        last_commit_ms=last_commit_ms,
        last_commit_age_s=_age_s(last_commit_ms, now_ms),
        newest_event_ms=newest_event_ms,
        lag_s=_age_s(newest_event_ms, now_ms),
        writers=_writers(history, now_ms),
        forecast=forecast_of(metadata, branch, metadata_bytes, now_ms),
        oldest_snapshot_age_s=_age_s(_oldest_ms(metadata), now_ms),
        commits_since_rewrite=sum(1 for _ in takewhile(lambda one: not _rewrites_data(one), history)),
    )


def _rewrites_data(snapshot: Snapshot) -> bool:
    """Return whether data files were rewritten without changing rows, and not only manifests or delete files."""
    summary = snapshot.summary
    is_replace = summary is not None and summary.operation is Operation.REPLACE
    return is_replace and summary_entries(snapshot).get(_REMOVED_DATA_FILES, "0") != "0"


def _oldest_ms(metadata: TableMetadata) -> int | None:
    """Return when the oldest snapshot was committed that no branch or tag is at."""
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    return min((one.timestamp_ms for one in metadata.snapshots if one.snapshot_id not in kept), default=None)


def _age_s(then_ms: int | None, now_ms: int) -> float | None:
    # The clock of a committing machine may be ahead, and so may events.
    return None if then_ms is None else max(0, now_ms - then_ms) / 1000


def _newest_event(snapshot: Snapshot) -> int | None:
    text = summary_entries(snapshot).get(_NEWEST_EVENT)
    event_ms = int(text) if text is not None and is_number(text) else None
    return None if event_ms is None or event_ms > snapshot.timestamp_ms + FUTURE_MS else event_ms


def _writers(history: BranchHistory, now_ms: int) -> tuple[WriterHealth, ...]:
    streams = _streams_by_query(history)
    by_id = {snapshot.snapshot_id: snapshot for snapshot in history}
    found: list[WriterHealth] = []
    for kind in (EPOCHS, TXNS):
        for writer, markers in find_all_markers(history, kind).items():
            if (last := markers.last) is None:
                continue
            of_query = kind is EPOCHS
            stream = streams.get(writer) if of_query else None
            name_kind: WriterKind = "application" if not of_query else "query" if stream is None else "stream"
            found.append(
                WriterHealth(
                    kind=name_kind,
                    name=stream or writer,
                    query_id=writer if of_query else None,
                    number=last.number,
                    last_commit_ms=last.timestamp_ms,
                    age_s=_age_s(last.timestamp_ms, now_ms) or 0.0,
                    lag_s=_lag_s(last, by_id, now_ms),
                )
            )
    return tuple(sorted(found, key=lambda writer: (-writer.last_commit_ms, writer.name)))


def _lag_s(last: TxnMarker, by_id: Mapping[int, Snapshot], now_ms: int) -> float | None:
    snapshot = by_id.get(last.snapshot_id)
    return None if snapshot is None else _age_s(_newest_event(snapshot), now_ms)


def _streams_by_query(history: BranchHistory) -> dict[str, str]:
    """Return the name of each query that writes to the branch under one; malformed records are ignored."""
    names: dict[str, str] = {}
    for name, _ in named_properties(history.metadata, STREAM_PREFIX, history.branch):
        with suppress(IcebergSinkError):
            if (stream := find_stream(history.metadata, history.branch, name)) is not None:
                names[stream.query_id] = name
    return names


def parse_health_options(table: str, options: Mapping[str, str] | None, branch: str | None) -> SinkOptions:
    """Return the options that say which table to look at; arguments as `table_health`.

    Raises:
        OptionError: They are malformed, or name another table.
    """
    require_types(f"look at {table}", branch=(branch, TEXT))
    given = options_of_call(table, options)
    return parse_options(given if branch is None else {**given, "branch": branch})


def table_health(table: str, *, options: Mapping[str, str] | None = None, branch: str | None = None) -> TableHealth:
    """Tell how a table does, no matter which engine writes it: its size, its history, its deletes, its age, its growth.

    The metadata is loaded once; the manifest list of the branch is read, and its manifests until 100,000 files are
    known. No data file is opened, and nothing is written.

    Args:
        table: Identifier of the table, such as `db.events`.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no
            options.
        branch: The branch; None for the branch of option `branch`, or `main`.

    Returns:
        The figures; those that cannot be known are None.

    Raises:
        OptionError: The options or arguments are malformed or name another table, or the table has no such branch.
        TableNotFoundError: The table does not exist, nor may the embedded catalog in the folder that is named.
        UnsupportedTableError: The identifier names a view.
        CatalogError: The catalog could not be reached or refused.
        DataFileError: A manifest or the manifest list cannot be read.
    """
    return HealthReader(parse_health_options(table, options, branch)).read()
