"""Pure: the transaction markers of numbered writes, by which a later write knows that its rows are there already.

A named writer numbers its writes: a streaming query its epochs, an application the versions of its batches. The marker
of a write is made in the same commit as its rows, twice:

* in the snapshot's summary; for an epoch under the keys of Iceberg's Spark runtime, so that a stream can
  move between the two sinks;
* as a table property, which outlives the expiry of snapshots. There is one property for each writer
  and branch, so their number does not grow with the number of writes.

The newer of the two counts. But a property is proof of rows only as long as the branch has the snapshot that it names,
or may have it behind the end of its history: a user may have rolled the branch back, dropped it and made another of
the same name, or replaced the table. Otherwise the marker is stray and proves nothing; the next commit to the branch
writes that into the property (`txn_properties`), because history expires.

A stream also has a lasting identity: a table property for each name and branch says which query writes under it. It is
written in the same commit as the query's first epoch, so that of two queries that claim a name at once one gets it.
This module knows only table metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.plan import EpochId, NumberedWrite, StreamName
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    BranchHistory,
    Place,
    behind,
    branch_history,
    branch_property,
    find_snapshot,
)

RUN_ID_KEY = "icebergsink.run-id"
_HIGHEST = 2**63 - 1
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999, the last that Python can format
STREAM_PREFIX = "icebergsink.stream"
# Summary key under which Iceberg's `cherrypick_snapshot` names the snapshot that it took the files from.
_PICKED_KEY = "source-snapshot-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnKind:
    """Where the markers of one kind of writer are kept.

    Attributes:
        property_prefix: Prefix of their table properties' names.
        number_entry: The entry of such a property that holds the number.
        writer_key: Summary key of the writer's name.
        number_key: Summary key of the number.
    """

    property_prefix: str
    number_entry: str
    writer_key: str
    number_key: str


EPOCHS = TxnKind(
    property_prefix="icebergsink.last-epoch",
    number_entry="epoch-id",
    writer_key="spark.sql.streaming.queryId",
    number_key="spark.sql.streaming.epochId",
)
TXNS = TxnKind(
    property_prefix="icebergsink.last-txn",
    number_entry="version",
    writer_key="icebergsink.txn-app-id",
    number_key="icebergsink.txn-version",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnMarker:
    """The record of one landed write.

    Attributes:
        number: Number of the micro-batch, from 0, or version of the batch.
        snapshot_id: The snapshot that holds the write's rows; it may have expired since.
        timestamp_ms: When the write was committed, in milliseconds since the Unix epoch.
        run_id: The run of the query that committed it; None if unknown, or for a batch.
        previous_run_id: The other run that committed last before this one; None without such a run, or if unknown.
        record_count: How many rows the write had; None if unknown.
        sequence_number: Sequence number of the snapshot; None if unknown, or in tables of format version 1.
        is_disproved: Whether a commit has seen that the branch does not have the snapshot, while history still told.
    """

    number: int
    snapshot_id: int
    timestamp_ms: int
    run_id: str | None = None
    previous_run_id: str | None = None
    record_count: int | None = None
    sequence_number: int | None = None
    is_disproved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayMarker:
    """A marker in a table property that proves nothing, because the branch does not have its snapshot.

    Attributes:
        marker: What the property says.
        branch: The branch.
        key: Name of the property.
        is_untold: Whether history has expired, so that the branch may have the snapshot all the same.
        follows_main: Whether what lies behind the branch's history is the same for `main`.
        proof: Name and text of the property that would prove the write where history does not tell: of `main` if what
            lies behind the branch's history is the same for both, else of the branch; None if history does tell, or
            `main` has this number or a higher one.
    """

    marker: TxnMarker
    branch: str
    key: str
    is_untold: bool = False
    follows_main: bool = False
    proof: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnMarkers:
    """What a branch tells of one writer.

    Attributes:
        last: The newest marker that counts; None if the writer never committed there.
        stray: The marker of the table property if it is newer, and its snapshot is not in the branch; else None.
        is_recorded: Whether the table property holds `last`; else only the summary of its snapshot does, if any.
    """

    last: TxnMarker | None = None
    stray: StrayMarker | None = None
    is_recorded: bool = False


def kind_of(write: NumberedWrite) -> TxnKind:
    """Return the kind of writer that `write` comes from."""
    return EPOCHS if isinstance(write, EpochId) else TXNS


def named_properties(metadata: TableMetadata, prefix: str, branch: str) -> Iterator[tuple[str, str]]:
    """Yield the names for which a branch has a property with this prefix, and the property's text."""
    start = f"{prefix}.{branch}."
    for key, text in metadata.properties.items():
        if key.startswith(start) and "." not in (name := key.removeprefix(start)):
            yield unquote(name), text


def split_name(prefix: str, key: str) -> tuple[str, str] | None:
    """Return the branch and the name that a table property with this prefix belongs to, or None for another one."""
    branch, dot, name = key.removeprefix(f"{prefix}.").rpartition(".")
    return (branch, unquote(name)) if dot and key.startswith(f"{prefix}.") else None


def recorded_markers(metadata: TableMetadata, branch: str, kind: TxnKind) -> Iterator[tuple[str, TxnMarker]]:
    """Yield each writer that has a table property for a branch, and the marker in it; malformed ones are skipped."""
    for writer, text in named_properties(metadata, kind.property_prefix, branch):
        with suppress(ValueError, KeyError, TypeError):
            yield writer, read_marker(kind, text)


def marker_property(kind: TxnKind, branch: str, writer: str, marker: TxnMarker) -> dict[str, str]:
    """Return the table property that records `marker`."""
    value: dict[str, object] = {
        kind.number_entry: marker.number,
        "snapshot-id": marker.snapshot_id,
        "timestamp-ms": marker.timestamp_ms,
    }
    if kind is EPOCHS:
        value["run-id"] = marker.run_id
    if marker.previous_run_id is not None:
        value["previous-run-id"] = marker.previous_run_id
    if marker.record_count is not None:
        value["record-count"] = marker.record_count
    if marker.sequence_number is not None:
        value["sequence-number"] = marker.sequence_number
    if marker.is_disproved:
        value["disproved"] = True
    return {branch_property(kind.property_prefix, branch, writer): json.dumps(value)}


def marker_summary(write: NumberedWrite) -> dict[str, str]:
    """Return the snapshot summary entries that record `write`."""
    kind = kind_of(write)
    run = {RUN_ID_KEY: write.run_id} if isinstance(write, EpochId) and write.run_id is not None else {}
    return {kind.writer_key: write.writer, kind.number_key: str(write.number), **run}


def find_own(history: BranchHistory, write: NumberedWrite, last: TxnMarker | None) -> TxnMarker | None:
    """Return the marker of this very write, or None if it left none, as for a number that was passed over.

    Args:
        history: The branch.
        write: The write.
        last: The newest marker of its writer there, or None. Of older ones only snapshots tell, until they expire.
    """
    if last is None or last.number <= write.number:
        return last if last is not None and last.number == write.number else None
    kind = kind_of(write)
    markers = (marker_in(snapshot, kind) for snapshot in history if writer_in(snapshot, kind) == write.writer)
    return next((found for found in markers if found.number == write.number), None) or find_picked(history, write, last)


def find_last_marker(metadata: TableMetadata, branch: str, kind: TxnKind, writer: str) -> TxnMarker | None:
    """Return the newest marker of `writer` that counts on `branch`, or None if it never committed there."""
    return find_markers(BranchHistory(metadata, branch), kind, writer).last


def find_markers(history: BranchHistory, kind: TxnKind, writer: str) -> TxnMarkers:
    """Return what a branch tells of `writer`.

    Raises:
        UnsupportedTableError: The writer's table property is not a marker.
    """
    recorded = _recorded(history, kind, writer)
    newest: TxnMarker | None = None
    for snapshot in history:
        if newest is None and writer_in(snapshot, kind) == writer:
            newest = marker_in(snapshot, kind)
        is_recorded = recorded is not None and snapshot.snapshot_id == recorded.snapshot_id
        if is_recorded or (newest is not None and (recorded is None or recorded.number <= newest.number)):
            return _newer(recorded if is_recorded else None, newest)
    of_main = find_markers(history.main, kind, writer).last if history.ends_within_main else None
    newest = newest or behind_both(history, of_main)
    if recorded is None or (newest is not None and recorded.number <= newest.number):
        return TxnMarkers(last=newest)
    if not is_stray(history, kind, writer, recorded, of_main):
        return _newer(recorded, newest)
    return TxnMarkers(last=newest, stray=_stray(history, kind, writer, recorded, of_main))


def find_all_markers(history: BranchHistory, kind: TxnKind) -> dict[str, TxnMarkers]:
    """Return what a branch tells of every writer of this kind that it knows.

    Malformed properties are ignored. The branch's history is read only once, however many writers there are.
    """
    newest: dict[str, TxnMarker] = {}
    for snapshot in history:
        if (writer := writer_in(snapshot, kind)) is not None and writer not in newest:
            newest[writer] = marker_in(snapshot, kind)
    of_main = markers_of_main(history, kind)
    for writer, marker in of_main.items():
        if writer not in newest and (shared := behind_both(history, marker)) is not None:
            newest[writer] = shared
    found = {writer: TxnMarkers(last=marker) for writer, marker in newest.items()}
    for writer, recorded in recorded_markers(history.metadata, history.branch, kind):
        last = newest.get(writer)
        is_proof = history.shows(recorded.snapshot_id)
        if is_proof or not is_stray(history, kind, writer, recorded, of_main.get(writer)):
            found[writer] = _newer(recorded, last)
        elif last is None or last.number < recorded.number:
            stray = _stray(history, kind, writer, recorded, of_main.get(writer))
            found[writer] = TxnMarkers(last=last, stray=stray)
    return found


def markers_of_main(history: BranchHistory, kind: TxnKind) -> dict[str, TxnMarker]:
    """Return the newest marker of every writer on `main`, for a branch that ends within `main`; else nothing."""
    if not history.ends_within_main:
        return {}
    markers = find_all_markers(history.main, kind)
    return {writer: found.last for writer, found in markers.items() if found.last is not None}


def behind_both(history: BranchHistory, of_main: TxnMarker | None) -> TxnMarker | None:
    """Return a marker of `main` if its snapshot lies behind the end of what a branch that ends within `main` shows.

    A user may have forked the branch from `main`, or moved it there, after history had expired: then it has the rows
    and no property of its own. What lies behind the end of a branch that ends within `main` is the same for both.
    """
    return None if of_main is None or history.main.shows(of_main.snapshot_id) else of_main


def _recorded(history: BranchHistory, kind: TxnKind, writer: str) -> TxnMarker | None:
    key = branch_property(kind.property_prefix, history.branch, writer)
    if (text := history.metadata.properties.get(key)) is None:
        return None
    try:
        return read_marker(kind, text)
    except (ValueError, KeyError, TypeError) as malformed:
        raise UnsupportedTableError(
            f"Cannot tell what {writer} has committed to branch '{history.branch}': table property '{key}' is no "
            f"marker of a write ({text!r}). Set it back to what it was, or remove it if the next write of {writer} is "
            "new."
        ) from malformed


def _newer(recorded: TxnMarker | None, newest: TxnMarker | None) -> TxnMarkers:
    if recorded is not None and (newest is None or newest.number <= recorded.number):
        return TxnMarkers(last=replace(recorded, is_disproved=False), is_recorded=True)
    return TxnMarkers(last=newest)


def _stray(
    history: BranchHistory, kind: TxnKind, writer: str, marker: TxnMarker, of_main: TxnMarker | None
) -> StrayMarker:
    place = behind(history.metadata, history.oldest, marker.snapshot_id, marker.sequence_number)
    is_untold = place is Place.UNKNOWN
    lacks_proof = is_untold and not (history.ends_within_main and _reaches(of_main, marker))
    prover = MAIN_BRANCH if history.ends_within_main else history.branch
    proof = marker_property(kind, prover, writer, replace(marker, is_disproved=False))
    return StrayMarker(
        marker=marker,
        branch=history.branch,
        key=branch_property(kind.property_prefix, history.branch, writer),
        is_untold=is_untold,
        follows_main=history.ends_within_main,
        proof=next(iter(proof.items())) if lacks_proof else None,
    )


def is_stray(history: BranchHistory, kind: TxnKind, writer: str, marker: TxnMarker, of_main: TxnMarker | None) -> bool:
    """Return whether a branch has no claim to a marker whose snapshot it does not show.

    A commit that saw this has recorded it, because later on history does not tell. What lies behind the end of a
    branch that ends within `main` is in `main`, and publishing takes markers along. So a marker that `main` does not
    know belongs to an earlier branch of that name.

    Args:
        history: The snapshots of the branch.
        kind: The kind of writer.
        writer: The writer.
        marker: What the table property holds.
        of_main: The newest marker of the same writer on `main`, if the branch ends within `main`; else None.
    """
    metadata, oldest = history.metadata, history.oldest
    place = behind(metadata, oldest, marker.snapshot_id, marker.sequence_number)
    if place is not Place.UNKNOWN or marker.is_disproved:
        return place is not Place.WITHIN
    if not history.ends_within_main:
        return False
    if not _reaches(of_main, marker):
        return True
    # Numbers grow: where `main` shows this number or a lower one, and its marker is shown, too, none lies behind.
    return behind_both(history, of_main) is None and any(
        writer_in(snapshot, kind) == writer and marker_in(snapshot, kind).number <= marker.number
        for snapshot in history.main
    )


def _reaches(of_main: TxnMarker | None, marker: TxnMarker) -> bool:
    return of_main is not None and of_main.number >= marker.number


def read_marker(kind: TxnKind, text: str) -> TxnMarker:
    """Return the marker that a table property records.

    Raises:
        ValueError, KeyError, TypeError: The text is not a marker.
    """
    value: dict[str, Any] = _from_json(text)
    numbers = (value[kind.number_entry], value["snapshot-id"], value["timestamp-ms"], value.get("sequence-number", 0))
    if not all(type(number) is int and 0 <= number <= _HIGHEST for number in numbers):
        raise ValueError(f"no numbers: {numbers}")
    return TxnMarker(
        number=value[kind.number_entry],
        snapshot_id=value["snapshot-id"],
        timestamp_ms=_of_a_calendar(value["timestamp-ms"]),
        run_id=value.get("run-id"),
        previous_run_id=value.get("previous-run-id"),
        record_count=value.get("record-count"),
        sequence_number=value.get("sequence-number"),
        is_disproved=value.get("disproved") is True,
    )


def writer_in(snapshot: Snapshot, kind: TxnKind) -> str | None:
    """Return which writer of this kind left its marker in a snapshot's summary, or None.

    A summary without a number, or with a malformed one, has no marker.
    """
    entries = summary_entries(snapshot)
    if (writer := entries.get(kind.writer_key)) is None:
        return None
    number = entries.get(kind.number_key)
    return writer if is_number(number) else None


def is_number(text: str | None) -> bool:
    """Return whether a text of the table is a whole number, at least 0, that Iceberg's library can hold."""
    if text is None or not (text.isascii() and text.isdecimal()):
        return False
    return len(text) <= len(str(_HIGHEST)) and int(text) <= _HIGHEST


def marker_in(snapshot: Snapshot, kind: TxnKind) -> TxnMarker:
    """Return the marker in the summary of a snapshot that has one of this kind."""
    entries = summary_entries(snapshot)
    return TxnMarker(
        number=int(entries.get(kind.number_key) or 0),
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=_of_a_calendar(snapshot.timestamp_ms),
        run_id=entries.get(RUN_ID_KEY),
        sequence_number=snapshot.sequence_number or None,
    )


def _of_a_calendar(timestamp_ms: int) -> int:
    """Return the time, or the nearest one that Python can format: some writers count in microseconds."""
    return min(max(timestamp_ms, 0), _LATEST_MS)


def find_picked(history: BranchHistory, numbered: NumberedWrite, last: TxnMarker | None) -> TxnMarker | None:
    """Return the marker of a write if its snapshot was cherry-picked, or None.

    Iceberg's procedure makes a new snapshot with the files of the picked snapshot, but without its marker. The picked
    snapshot tells the marker until it expires. An epoch is looked for only after the last marker: a query that goes on
    has passed all earlier epochs.
    """
    kind = kind_of(numbered)
    for snapshot in history:
        if kind is EPOCHS and last is not None and snapshot.snapshot_id == last.snapshot_id:
            return None
        source = picked_source(history.metadata, snapshot)
        if source is None or writer_in(source, kind) != numbered.writer:
            continue
        if (marker := marker_in(source, kind)).number == numbered.number:
            return replace(marker, snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number or None)
    return None


def picked_source(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    """Return the write whose files were cherry-picked with this snapshot, or None; what was picked may be a pick."""
    return next(iter(picked_sources(metadata, snapshot)[::-1]), None)


def picked_sources(metadata: TableMetadata, snapshot: Snapshot) -> list[Snapshot]:
    """Return what was cherry-picked with this snapshot, then what was picked with that, and so on."""
    found: list[Snapshot] = []
    seen: set[int] = set()
    source: Snapshot | None = snapshot
    while source is not None and source.snapshot_id not in seen:  # damaged metadata may name sources in a circle
        seen.add(source.snapshot_id)
        source_id = summary_entries(source).get(_PICKED_KEY)
        source = find_snapshot(metadata, int(source_id)) if source_id is not None and is_number(source_id) else None
        if source is not None:
            found.append(source)
    return found


def is_picked(snapshot: Snapshot) -> bool:
    """Return whether the snapshot adds files that were cherry-picked."""
    return _PICKED_KEY in summary_entries(snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMarker:
    """A query and the last marker that it left on a branch.

    Attributes:
        query_id: Spark's query id.
        marker: Its last epoch.
    """

    query_id: str
    marker: TxnMarker


def find_last_epoch(metadata: TableMetadata, branch: str, query_id: str) -> TxnMarker | None:
    """Return the newest epoch that `query_id` committed to `branch`, or None if it never did."""
    return find_last_marker(metadata, branch, EPOCHS, query_id)


def last_of_others(metadata: TableMetadata, branch: str, known: frozenset[str]) -> QueryMarker | None:
    """Return the query that committed last to `branch`, or None; queries whose ids are `known` do not count."""
    others = (found for found in _queries(metadata, branch) if found.query_id not in known)
    return max(others, key=lambda found: (found.marker.timestamp_ms, found.marker.number), default=None)


def _queries(metadata: TableMetadata, branch: str) -> Iterator[QueryMarker]:
    for query_id, marker in recorded_markers(metadata, branch, EPOCHS):
        yield QueryMarker(query_id=query_id, marker=marker)
    for snapshot in branch_history(metadata, branch):  # the JVM sink leaves no property
        if (writer := writer_in(snapshot, EPOCHS)) is not None:
            yield QueryMarker(query_id=writer, marker=marker_in(snapshot, EPOCHS))


def run_before(last: TxnMarker | None, run_id: str | None) -> str | None:
    """Return which other run committed last, for the marker that `run_id` leaves after `last`."""
    if last is None:
        return None
    return last.previous_run_id if last.run_id == run_id else last.run_id


def has_committed(metadata: TableMetadata, branch: str, run_id: str) -> bool:
    """Return whether run `run_id` of a query has landed an epoch on `branch` that has not expired."""
    return any(summary_entries(snapshot).get(RUN_ID_KEY) == run_id for snapshot in branch_history(metadata, branch))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """Which query writes under a stream's name.

    Attributes:
        query_id: Spark's query id.
        was_accepted: It took another query's place by `accept-new-checkpoint`, which has been on ever since:
            while it is on, it accepts no further query.
    """

    query_id: str
    was_accepted: bool = False


def find_stream(metadata: TableMetadata, branch: str, name: str) -> StreamRecord | None:
    """Return which query writes to `branch` under `name`, or None if no query has so far.

    Raises:
        UnsupportedTableError: The table property that should say so is malformed.
    """
    key = branch_property(STREAM_PREFIX, branch, name)
    if (text := metadata.properties.get(key)) is None:
        return None
    try:
        return _parse(text)
    except (ValueError, KeyError, TypeError) as malformed:
        raise UnsupportedTableError(
            f"Cannot tell which query writes stream '{name}' to branch '{branch}': table property '{key}' is no record "
            f"of one ({text!r}). Set it back to what it was, or remove it: the next query under that name takes it."
        ) from malformed


def named_queries(metadata: TableMetadata, branch: str) -> frozenset[str]:
    """Return the ids of the queries that write to `branch` under a name; malformed records are ignored."""
    found: set[str] = set()
    for _, text in named_properties(metadata, STREAM_PREFIX, branch):
        with suppress(ValueError, KeyError, TypeError):
            found.add(_parse(text).query_id)
    return frozenset(found)


def next_record(last: StreamRecord | None, stream: StreamName, query_id: str) -> StreamRecord | None:
    """Return the record after an epoch of `query_id` under this name, or None if the query may not use the name."""
    if last is None:
        return StreamRecord(query_id=query_id)
    if last.query_id == query_id:
        return StreamRecord(query_id=query_id, was_accepted=last.was_accepted and stream.accepts_new_checkpoint)
    if stream.accepts_new_checkpoint and not last.was_accepted:
        return StreamRecord(query_id=query_id, was_accepted=True)
    return None


def stream_property(branch: str, name: str, record: StreamRecord) -> dict[str, str]:
    """Return the table property that holds `record`."""
    value = {"query-id": record.query_id, "accepted-new-checkpoint": record.was_accepted}
    return {branch_property(STREAM_PREFIX, branch, name): json.dumps(value)}


def _parse(text: str) -> StreamRecord:
    value = _from_json(text)
    return StreamRecord(query_id=str(value["query-id"]), was_accepted=bool(value["accepted-new-checkpoint"]))


def _from_json(text: str) -> Any:  # noqa: ANN401  # JSON
    """Return the value of a property that any user may have set; raise ValueError if the text is not JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
