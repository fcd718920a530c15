"""Pure: which data files follow the offset of a stream that reads what is appended to a branch, or changed in it.

A branch is read snapshot by snapshot, oldest first, and of each snapshot the data files that it added, in the order of
its manifests; snapshots and manifests never change. So a snapshot and a number of files say exactly what has been read.
What cannot be told from the history that the table still has is an error: a stream never passes over rows that it was
not told to pass over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from hashlib import sha256

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_ds.errors import StreamHistoryError
from iceberg_ds.parsing import whole_number
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    Place,
    begins_a_table,
    branch_history,
    branch_snapshot_id,
    find_snapshot,
    keeps_rows,
    last_sequence_number,
    place_in,
)

NO_SNAPSHOT = -1
# Instead of the snapshot that is read whole, in an offset before everything: the branch had no snapshot then.
_EMPTY_BRANCH = -2
_BEGIN_ANEW = (
    "To go on, begin with a new checkpoint: by default the stream reads all rows of the oldest snapshot that is there, "
    "and then what was appended; option starting-snapshot-id begins after a snapshot whose rows you have"
)


class OnChange(Enum):
    """What becomes of a snapshot that does more than append rows."""

    FAIL = "fail"  # the stream ends with an error
    SKIP = "skip"  # it is passed over
    ADDED_FILES = "added-files"  # the rows of the data files that it added are read
    CHANGES = "changes"  # the rows that it inserted and deleted are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a micro-batch reads; at least one file.

    Attributes:
        files: Data files; None for no limit.
        rows: Rows of data files; None for no limit.
    """

    files: int | None = None
    rows: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """What a stream reads.

    Attributes:
        branch: The branch.
        after_snapshot_id: It begins after this snapshot; None for the beginning.
        since_ms: It begins with the first snapshot of this time, in milliseconds since the Unix epoch, or later; None
            for the beginning.
        on_change: What becomes of a snapshot that changes rows.
        keys: Names of the columns that say which row is which, for updates; empty for none.
        skipped: Operations whose snapshots are always passed over; `on_change` does not count for them.
        limits: The most that a micro-batch reads.
        consumer_id: Name of the stream, under which the table says how far it has read; None for no name.
    """

    branch: str = MAIN_BRANCH
    after_snapshot_id: int | None = None
    since_ms: int | None = None
    on_change: OnChange = OnChange.FAIL
    keys: tuple[str, ...] = ()
    skipped: frozenset[Operation] = frozenset()
    limits: Limits = field(default_factory=Limits)
    consumer_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """How far a stream has read: a snapshot, all snapshots of the branch before it, and so many of its files.

    Attributes:
        uuid: The table's UUID.
        stream: What tells the stream from others: each checkpoint has its own.
        first: Id of the snapshot that the stream has read whole; -1 if it reads added files alone; -2 if nothing has
            been read, and the branch had no snapshot when the stream began.
        snapshot: Id of the snapshot; -1 if nothing has been read.
        sequence: Its sequence number; 0 if the table has none. If nothing has been read, the table's last one then.
        file: How many of its files have been read.
        files: How many files of it are to be read.
        taken: How many files the micro-batch has that ended here.
        paths: SHA-256 of their paths; empty if nothing has been read, and in the first checkpoints.
        ordinal: Number of the snapshot among those that the stream has come to, from 0; -1 if nothing has been read.
    """

    uuid: str
    stream: str
    first: int = NO_SNAPSHOT
    snapshot: int = NO_SNAPSHOT
    sequence: int = 0
    file: int = 0
    files: int = 0
    taken: int = 0
    paths: str = ""
    ordinal: int = -1

    @classmethod
    def of(cls, name: str, given: object) -> Offset:
        """Return the offset that a checkpoint holds.

        Args:
            name: Identifier of the table, for messages.
            given: What its JSON says.

        Raises:
            StreamHistoryError: It is of another source.
        """
        numbers = dict.fromkeys(("first", "snapshot", "sequence", "file", "files", "taken", "ordinal"), int)
        types = {**numbers, **dict.fromkeys(("uuid", "stream", "paths"), str)}
        if isinstance(given, Mapping):
            told = {"ordinal": -1, "paths": "", **given}  # which the first checkpoints did not have
            if {key: type(value) for key, value in told.items()} == types:
                found = cls(**told)
                if 0 <= found.file <= found.files:
                    return found
        raise StreamHistoryError(
            f"Cannot read what follows in {name}: the checkpoint holds {given}, which is no offset of icebergsource. "
            "Give the query a checkpoint of its own."
        )

    def as_json(self) -> dict[str, object]:
        """Return what a checkpoint holds."""
        return asdict(self)

    @property
    def is_begin(self) -> bool:
        """Whether nothing has been read."""
        return self.snapshot == NO_SNAPSHOT

    @property
    def is_done(self) -> bool:
        """Whether the snapshot has been read to its end."""
        return self.file == self.files


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A snapshot that a stream reads.

    Attributes:
        snapshot: The snapshot.
        whole: Whether all its visible rows are read, instead of those that it added.
        ordinal: Its number among those that the stream reads, from 0.
    """

    snapshot: Snapshot
    whole: bool = False
    ordinal: int = 0


# The data files to read of a snapshot, in an order that is always the same.
FilesOf = Callable[[Step], Sequence[ScanTask]]


class Course:
    """What a stream has to read of a table, as the table is now.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        rules: What the stream reads.
        files_of: Returns the files of a step; asked for those alone that are read.
        stream: What tells the stream from others, if it has no offset yet.
    """

    def __init__(self, name: str, metadata: TableMetadata, rules: StreamRules, files_of: FilesOf, stream: str) -> None:
        self._name = name
        self._stream = stream
        self._metadata = metadata
        self._rules = rules
        self._files_of = files_of

    def begin(self) -> Offset:
        """Return the offset before everything."""
        metadata = self._metadata
        begin = Offset(uuid=str(metadata.table_uuid), stream=self._stream)
        if branch_snapshot_id(metadata, self._rules.branch) is not None:
            return begin
        return replace(begin, first=_EMPTY_BRANCH, sequence=last_sequence_number(metadata))

    def waits_at(self) -> int | None:
        """Return the oldest snapshot that a stream needs which has read nothing; None if the branch has none.

        Raises:
            StreamHistoryError: It is not known.
        """
        steps = self._steps(self.begin())
        if not steps:
            return branch_snapshot_id(self._metadata, self._rules.branch)
        first = steps[0].snapshot
        before = None if steps[0].whole else find_snapshot(self._metadata, first.parent_snapshot_id or NO_SNAPSHOT)
        # The one before tells where the stream begins, and what the first one changed.
        return first.snapshot_id if before is None else before.snapshot_id

    def head(self) -> Offset:
        """Return the end of the branch, to be shown: the number of files is as the snapshot's summary tells."""
        newest = next(branch_history(self._metadata, self._rules.branch), None)
        if newest is None:
            return self.begin()
        added = whole_number(summary_entries(newest), "added-data-files", 0)
        return _at(self.begin(), Step(snapshot=newest), file=added, files=added)

    def next(self, start: Offset, limits: Limits, until: int | None = None) -> Offset:
        """Return where the next micro-batch ends; `start` if there is nothing to read.

        Before a snapshot that the stream fails at, it ends: rows before it are read first.

        Args:
            start: How far the stream has read.
            limits: The most that the micro-batch reads.
            until: Id of the last snapshot to read, or -1 for none; None for the head of the branch.

        Raises:
            StreamHistoryError: What follows is not known, or is a snapshot that the stream fails at.
        """
        end, budget, paths = start, _Budget(limits), list[str]()
        steps = self._until(start, until)
        first = _first(start, steps)
        for step in steps:
            reason = self._why_failing(step)
            if reason is not None and end != start:
                break
            files = self._files(step, reason)
            done = self._files_done(step, start, files)
            taken = budget.take(files[done:], together=self.changed_by(step) is not None)
            if not taken and done < len(files):
                break
            end = _at(start, step, file=done + taken, files=len(files))
            paths += (task.work.path for task in files[done : done + taken])
            end = replace(end, first=first, taken=budget.files, paths=_digest(paths))
            if not end.is_done:
                break
        return end

    def between(self, start: Offset, end: Offset) -> Iterator[tuple[Step, Sequence[ScanTask]]]:
        """Yield the files from one offset to a later one, snapshot by snapshot.

        Raises:
            StreamHistoryError: They are not known, or of a snapshot that the stream fails at.
        """
        steps = self._steps(start)
        self._check_table(end)
        if start == end or end.is_begin:
            return
        ids = [step.snapshot.snapshot_id for step in steps]
        if end.snapshot not in ids:
            raise self._untold(end)
        if end.first != (first := _first(start, steps)):
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: the first micro-batch, which is to be repeated, begins "
                f"with {_beginning(end.first)}, and the stream would begin with {_beginning(first)} now: that has "
                f"expired since, or other options say where to begin. {_BEGIN_ANEW}."
            )
        paths: list[str] = []
        for step in steps[: ids.index(end.snapshot) + 1]:
            files = self._files(step, self._why_failing(step))
            begin, until = self._files_done(step, start, files), len(files)
            if step.snapshot.snapshot_id == end.snapshot:
                self._check_count(end, files)
                until = end.file
            paths += (task.work.path for task in files[begin:until])
            yield step, files[begin:until]
        if len(paths) != end.taken or (end.paths and _digest(paths) != end.paths):
            others = "others" if len(paths) == end.taken else len(paths)
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: the micro-batch that is to be repeated had {end.taken} "
                f"files, and would have {others} now. Start the query with the options that it had, until it has read "
                f"snapshot {end.snapshot}."
            )

    def changed_by(self, step: Step) -> str | None:
        """Return in words what a snapshot changes if its changed rows are read; None if they are not."""
        if step.whole or self._on_change(step.snapshot) is not OnChange.CHANGES:
            return None
        return change_of(step.snapshot)

    def _files(self, step: Step, why_failing: str | None) -> Sequence[ScanTask]:
        if why_failing is not None:
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: snapshot {step.snapshot.snapshot_id} of branch "
                f"'{self._rules.branch}' {why_failing}."
            )
        return self._files_of(step) if step.whole or self._reads(step.snapshot) else ()

    def _reads(self, snapshot: Snapshot) -> bool:
        change = change_of(snapshot)
        if change is None:
            return not keeps_rows(snapshot)
        return self._on_change(snapshot) in {OnChange.ADDED_FILES, OnChange.CHANGES}

    def _on_change(self, snapshot: Snapshot) -> OnChange:
        operation = None if snapshot.summary is None else snapshot.summary.operation
        return OnChange.SKIP if operation in self._rules.skipped else self._rules.on_change

    def _why_failing(self, step: Step) -> str | None:
        """Return why the stream fails at a snapshot, or None."""
        if (change := self.changed_by(step)) is not None:
            before = step.snapshot.parent_snapshot_id
            if before is None or find_snapshot(self._metadata, before) is not None:
                return None
            return (
                f"({change}) changes rows of snapshot {before}, which has expired, so that it is not known which. Keep "
                f"snapshots for longer than the query rests. {_BEGIN_ANEW}"
            )
        if step.whole or self._on_change(step.snapshot) is not OnChange.FAIL:
            return None
        change = change_of(step.snapshot)
        if change is None:
            return None
        return (
            f"({change}) changes rows, and on-change is 'fail'. Start the query again with on-change=skip to pass such "
            "snapshots over, or with on-change=added-files to read the rows of the files that they add"
        )

    def _files_done(self, step: Step, start: Offset, files: Sequence[ScanTask]) -> int:
        """Return how many files of a step have been read."""
        if step.snapshot.snapshot_id != start.snapshot:
            return 0
        self._check_count(start, files)
        return start.file

    def _check_count(self, offset: Offset, files: Sequence[ScanTask]) -> None:
        if offset.files != len(files):
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: the checkpoint counts {offset.files} files of snapshot "
                f"{offset.snapshot}, of which {len(files)} are to be read now. Start the query with the options that "
                "it had, until it has read this snapshot."
            )

    def _until(self, start: Offset, until: int | None) -> Sequence[Step]:
        steps = self._steps(start)
        ids = [step.snapshot.snapshot_id for step in steps]
        if until is None:
            return steps
        if until in ids:
            return steps[: ids.index(until) + 1]
        history = branch_history(self._metadata, self._rules.branch)
        if until in {NO_SNAPSHOT, start.snapshot} or any(snapshot.snapshot_id == until for snapshot in history):
            return ()  # the stream goes on, or begins, after it
        raise self._untold(replace(start, snapshot=until, sequence=0))

    def _check_table(self, offset: Offset) -> None:
        if offset.uuid != str(self._metadata.table_uuid):
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: it is another table (UUID {self._metadata.table_uuid}) "
                f"than the one that the checkpoint is of (UUID {offset.uuid}), under the same name. {_BEGIN_ANEW}."
            )

    def _steps(self, start: Offset) -> Sequence[Step]:
        """Return the snapshots that are still to be read, oldest first.

        Raises:
            StreamHistoryError: They are not known.
        """
        first = start.ordinal + start.is_done
        return [replace(step, ordinal=first + place) for place, step in enumerate(self._still_unread(start))]

    def _still_unread(self, start: Offset) -> Sequence[Step]:
        """Return the same steps, not numbered yet."""
        branch, metadata = self._rules.branch, self._metadata
        self._check_table(start)
        ref = metadata.refs.get(branch)
        if branch != MAIN_BRANCH and (ref is None or ref.snapshot_ref_type is not SnapshotRefType.BRANCH):
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: it has no branch '{branch}'. Create it again at the "
                "snapshot that it had; or name another branch in option 'branch', with a new checkpoint."
            )
        history = list(branch_history(metadata, branch))
        if start.is_begin:
            return self._from_beginning(start, history)
        since = _since(history, start.snapshot)
        if since is None:
            raise self._untold(start)
        own = [found for found in history if found.snapshot_id == start.snapshot]
        if start.is_done:
            return since
        if not own:  # the rest of its files is not known any more
            raise self._untold(start)
        return [Step(snapshot=own[0], whole=start.first == start.snapshot), *since]

    def _from_beginning(self, start: Offset, history: Sequence[Snapshot]) -> Sequence[Step]:
        """Return the snapshots that a stream reads which has read nothing."""
        rules = self._rules
        if rules.after_snapshot_id is not None:
            since = _since(history, rules.after_snapshot_id)
            if since is None:
                raise StreamHistoryError(
                    f"Cannot read what follows in {self._name}: starting-snapshot-id is {rules.after_snapshot_id}, and "
                    f"what follows this snapshot is not known: the history of branch '{rules.branch}' shows "
                    f"{known_snapshots(history)}. Give one of these."
                )
            return since
        steps = [Step(snapshot=snapshot) for snapshot in reversed(history)]
        if rules.since_ms is not None:
            # Times need not ascend: clocks of writers differ.
            late = [number for number, step in enumerate(steps) if step.snapshot.timestamp_ms >= rules.since_ms]
            if not late:
                return []
            if late[0] == 0 and not _is_first(steps[0].snapshot):
                raise StreamHistoryError(
                    f"Cannot read what follows in {self._name}: history since stream-from-timestamp {rules.since_ms} "
                    f"has expired; it begins with snapshot {steps[0].snapshot.snapshot_id} of "
                    f"{steps[0].snapshot.timestamp_ms}. Give a time after that, or leave the option out to read all "
                    "rows of that snapshot first."
                )
            return steps[late[0] :]
        if start.first == _EMPTY_BRANCH and history and not _is_first(history[-1], start.sequence):
            raise StreamHistoryError(
                f"Cannot read what follows in {self._name}: branch '{rules.branch}' had no snapshot when the stream "
                f"began, and of those that it has got since it shows {known_snapshots(history)}: what came before has "
                f"expired, or was replaced. Option consumer-id lets expiry wait for the stream. {_BEGIN_ANEW}."
            )
        return [Step(snapshot=step.snapshot, whole=True) for step in steps[:1]] + steps[1:]

    def _untold(self, offset: Offset) -> StreamHistoryError:
        """Return why what follows an offset is not known."""
        branch = self._rules.branch
        place = place_in(self._metadata, branch, offset.snapshot, sequence_number=offset.sequence or None)
        if place is Place.OUTSIDE:
            reason = (
                f"snapshot {offset.snapshot}, up to which it was read, is not in the history of branch '{branch}', "
                f"which stands at snapshot {branch_snapshot_id(self._metadata, branch)}: the branch was set back, or "
                "the table was replaced. Set the branch forward again if that was not meant"
            )
        else:
            known = known_snapshots(list(branch_history(self._metadata, branch)))
            reason = (
                f"snapshot {offset.snapshot}, up to which it was read, has expired, and what was appended since may "
                f"have expired with it: branch '{branch}' shows {known}. Keep snapshots for longer than the query rests"
            )
        return StreamHistoryError(f"Cannot read what follows in {self._name}: {reason}. {_BEGIN_ANEW}.")


class _Budget:
    """What a micro-batch may still take."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.files = 0
        self._rows = 0

    def take(self, files: Sequence[ScanTask], *, together: bool) -> int:
        """Return how many of these files are taken, the first ones; all or none, if they are taken together."""
        before, rows_before = self.files, self._rows
        for number, task in enumerate(files):
            if self.files and self._is_beyond(task):
                if not together:
                    return number
                if before:
                    self.files, self._rows = before, rows_before
                    return 0
            self.files += 1
            self._rows += task.data_file.record_count
        return len(files)

    def _is_beyond(self, task: ScanTask) -> bool:
        files, rows = self._limits.files, self._limits.rows
        return (files is not None and self.files >= files) or (
            rows is not None and self._rows + task.data_file.record_count > rows
        )


def _is_first(oldest: Snapshot, after: int = 0) -> bool:
    """Return whether no snapshot came between a sequence number and the oldest one that a branch shows.

    One that has expired, or that was replaced, leaves its number out. One of another branch does so, too: nothing tells
    whose it was.
    """
    return begins_a_table(oldest) and (oldest.sequence_number or 0) <= after + 1


def _at(start: Offset, step: Step, *, file: int, files: int) -> Offset:
    """Return an offset in a snapshot, of the stream that has another offset."""
    snapshot = step.snapshot
    return replace(
        start,
        snapshot=snapshot.snapshot_id,
        sequence=snapshot.sequence_number or 0,
        file=file,
        files=files,
        ordinal=step.ordinal,
    )


def _digest(paths: Iterable[str]) -> str:
    return sha256("\n".join(sorted(paths)).encode()).hexdigest()


def _first(start: Offset, steps: Sequence[Step]) -> int:
    """Return the snapshot that a stream reads whole, or has read whole; -1 for none."""
    if not start.is_begin:
        return start.first
    return steps[0].snapshot.snapshot_id if steps and steps[0].whole else NO_SNAPSHOT


def _beginning(first: int) -> str:
    return "files that a snapshot added" if first == NO_SNAPSHOT else f"all rows of snapshot {first}"


def _since(history: Sequence[Snapshot], snapshot_id: int) -> list[Step] | None:
    """Return the snapshots of a branch after one, oldest first; None if they are not all known."""
    since: list[Step] = []
    for snapshot in history:
        if snapshot.snapshot_id == snapshot_id:
            break
        since.append(Step(snapshot=snapshot))
    else:
        if not (history and history[-1].parent_snapshot_id == snapshot_id):
            return None
    return since[::-1]


def known_snapshots(history: Sequence[Snapshot]) -> str:
    """Return in words which snapshots a history shows, newest first."""
    if not history:
        return "no snapshot"
    return f"snapshots {history[-1].snapshot_id} to {history[0].snapshot_id}"


def change_of(snapshot: Snapshot) -> str | None:
    """Return in words what a snapshot does to rows beside appending some, or None."""
    operation = None if snapshot.summary is None else snapshot.summary.operation
    entries = summary_entries(snapshot)
    word = "without an operation" if operation is None else f"operation {operation.value}"
    added, removed = (whole_number(entries, key, 0) for key in ("added-records", "deleted-records"))
    if keeps_rows(snapshot):
        return f"{word}, but with {added} rows in place of {removed}" if added > removed else None
    if operation is not Operation.APPEND:
        return word
    for key in ("added-delete-files", "deleted-data-files"):
        if whole_number(entries, key, 0):
            return f"{word}, but with {key} {entries[key]}"
    return None


def why_other_types(fixed: Schema, now: Schema) -> str | None:
    """Return which field of a stream's columns has another type by now, or None; a dropped field is null from then on.

    Args:
        fixed: The columns, as the stream has had them since it was started.
        now: The table's columns.
    """
    for number in sorted(fixed.field_ids & now.field_ids):
        before, after = fixed.find_type(number), now.find_type(number)
        if before.is_primitive and before != after:
            return f"column '{fixed.find_column_name(number)}' was of type {before}, and is of type {after} now"
    return None
