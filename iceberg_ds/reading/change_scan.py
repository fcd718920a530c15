"""Plans a read of changes on the driver: which rows of which data files each snapshot inserted or deleted.

A snapshot is compared with its parent, file by file: a file that only one of them has changed all its visible rows, and
so did one that was added again with another sequence number; a file of both changed the rows that are visible in one,
and that deletes hide which only the other has. Manifests that both list are read once, and those of data files not at
all, unless deletes differ. Rows that a snapshot wrote again unchanged are still among the changes: `change_rows` takes
them away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType

from iceberg_ds.deletes.index import KnownKeys, all_specs
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.reading.change_history import ChangeStep
from iceberg_ds.reading.deleted_rows import MOST_POSITIONS, deleted_positions, position_count
from iceberg_ds.reading.extras import DELETE, INSERT
from iceberg_ds.reading.file_errors import naming_manifests
from iceberg_ds.reading.lives import FileId, Lives
from iceberg_ds.reading.scan import ScanPlan, live_files, plan_files
from iceberg_ds.reading.scan_task import Change, ScanTask
from iceberg_ds.snapshots.live_files import LiveFile
from iceberg_ds.snapshots.manifests import live_manifests

# Snapshots whose manifests are read side by side: in memory are those of so many.
_STEPS_AT_ONCE = 8


def plan_changes(  # noqa: PLR0913  # the last one is seldom given
    name: str,
    metadata: TableMetadata,
    io: FileIO,
    schema: Schema,
    steps: Sequence[ChangeStep],
    *,
    known: dict[str, list[LiveFile]] | None = None,
) -> ScanPlan:
    """Return what a read of changes has to read: a file once for each change of its rows.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        io: Opens its storage.
        schema: The columns.
        steps: The snapshots, as `changed_snapshots` returns them.
        known: The files of manifests that were read before, by their paths; becomes those of the last snapshot. None
            for none.

    Raises:
        UnsupportedTableError: A file cannot be read, or is listed twice.
        DataFileError: Manifests, or deletion vectors, cannot be read.
    """
    planner = _Planner(name, metadata, io, schema, {} if known is None else known)
    tasks, early_times, lives, key_lives = list[ScanTask](), set[int](), Lives(), Lives()
    deletes, key_files, key_ids = dict[str, DataFile](), dict[str, DataFile](), set[FileId]()
    key_types = dict[int, IcebergType]()
    for look, before, after in planner.states(steps):
        step = look.step
        looked_at = None if look.is_whole else before.data_files | after.data_files
        for moment, state in ((2 * step.ordinal, before), (2 * step.ordinal + 1, after)):
            lives.note(moment, state.data_files, looked_at)
            key_lives.note(moment, state.key_files)
            deletes |= state.plan.deletes
            key_files |= state.plan.key_files
            key_ids |= state.key_files
            key_types |= state.plan.key_types
            early_times |= state.plan.early_times
        tasks += _without_undone(io, list(changed_tasks(before.plan.tasks, after.plan.tasks, step)), deletes)
    return ScanPlan(
        name=name,
        snapshot_id=None,
        schema=schema,
        metadata=metadata,
        tasks=tasks,
        deletes=deletes,
        key_files=key_files,
        key_types=key_types,
        specs=all_specs(metadata),
        early_times=frozenset(early_times),
        lives={
            **{task.file_id: lives.of(task.file_id) for task in tasks},
            **{file: key_lives.of(file) for file in key_ids},
        },
    )


def changed_tasks(before: Sequence[ScanTask], after: Sequence[ScanTask], step: ChangeStep) -> Iterator[ScanTask]:
    """Yield the files whose rows a snapshot changed, each with what the snapshot did to which rows.

    Args:
        before: The files of the snapshot before, with the deletes that apply to each.
        after: The files of the snapshot. Files that both have, with the same deletes, may be left out of both.
        step: The snapshot.
    """
    snapshot = step.snapshot
    change = Change(
        kind=DELETE,
        ordinal=step.ordinal,
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
    )
    yield from _only_in(before, after, change)
    yield from _only_in(after, before, replace(change, kind=INSERT))


def _only_in(these: Sequence[ScanTask], those: Sequence[ScanTask], change: Change) -> Iterator[ScanTask]:
    """Yield the files with rows that are visible among these, and may not be among those."""
    others = {task.file_id: task for task in those}
    for task in these:
        other = others.get(task.file_id)
        if other is None:
            yield replace(task, change=change)
            continue
        hiding = other.beside(task)
        if hiding.has_deletes:
            yield replace(task, change=replace(change, hidden_by=hiding))


def _without_undone(io: FileIO, tasks: Sequence[ScanTask], deletes: Mapping[str, DataFile]) -> Sequence[ScanTask]:
    """Return the changes of a snapshot without rows that never came back.

    Writers merge the position deletes of a file with new ones, and remove the old ones: that brings no row back, and
    the file need not be read for it.
    """
    merged = {
        task.work.path: (task, task.hidden_by)
        for task in tasks
        if _inserts(task) and task.hidden_by is not None and not task.hidden_by.work.keys
    }
    now, before = [task for task, _ in merged.values()], [gone for _, gone in merged.values()]
    if position_count([*now, *before], deletes) > MOST_POSITIONS:
        return tasks
    hidden, were_hidden = deleted_positions(io, now), deleted_positions(io, before)
    undone = {path for path in merged if set(were_hidden.get(path, ())) <= set(hidden.get(path, ()))}
    return [task for task in tasks if not (_inserts(task) and task.work.path in undone)]


def _inserts(task: ScanTask) -> bool:
    return task.change is not None and task.change.kind == INSERT


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A snapshot, as far as it is looked at.

    Attributes:
        plan: What a read of it has to read.
        key_files: All its equality delete files.
    """

    plan: ScanPlan
    key_files: frozenset[FileId]

    @property
    def data_files(self) -> set[FileId]:
        """Its data files."""
        return {task.file_id for task in self.plan.tasks}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The manifests of a snapshot and of its parent, as far as they are looked at.

    Attributes:
        step: The snapshot.
        before: Manifests of its parent.
        after: Manifests of the snapshot.
        is_whole: Whether these are all. Else data files that both have are left out: nothing about their rows differs.
    """

    step: ChangeStep
    before: Sequence[ManifestFile]
    after: Sequence[ManifestFile]
    is_whole: bool

    def by_snapshot(self) -> Iterator[tuple[Snapshot | None, ManifestFile]]:
        """Yield each manifest with the snapshot that lists it."""
        yield from ((self.step.parent, one) for one in self.before)
        yield from ((self.step.snapshot, one) for one in self.after)


class _Planner:
    """Plans snapshots one after the other, as far as each differs from its parent."""

    def __init__(
        self, name: str, metadata: TableMetadata, io: FileIO, schema: Schema, known: dict[str, list[LiveFile]]
    ) -> None:
        self._name = name
        self._metadata = metadata
        self._io = io
        self._schema = schema
        self._files = known  # of the manifests that were read for the last steps
        self._keys = KnownKeys()
        self._last: tuple[int, list[str], _State] | None = None

    def states(self, steps: Sequence[ChangeStep]) -> Iterator[tuple[_Look, _State, _State]]:
        """Yield what is looked at for each snapshot, its parent and the snapshot.

        What some snapshots need is read side by side, and forgotten when the next ones do not need it.
        """
        for start in range(0, len(steps), _STEPS_AT_ONCE):
            looks = list(in_parallel(self._look, steps[start : start + _STEPS_AT_ONCE]))
            self._read(looks)
            for look in looks:
                yield look, self._state(look.step.parent, look.before), self._state(look.step.snapshot, look.after)

    def _look(self, step: ChangeStep) -> _Look:
        old, new = self._manifests(step.parent), self._manifests(step.snapshot)
        is_whole = _deletes(old) != _deletes(new)
        if not is_whole:
            shared = _paths(old) & _paths(new)
            old, new = (
                [one for one in some if _is_deletes(one) or one.manifest_path not in shared] for some in (old, new)
            )
        return _Look(step=step, before=old, after=new, is_whole=is_whole)

    def _manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        with naming_manifests(self._name, self._io, snapshot):
            return live_manifests(self._io, snapshot)

    def _read(self, looks: Sequence[_Look]) -> None:
        """Read the manifests that are not known yet; forget those that are not looked at."""
        wanted = {one.manifest_path: (snapshot, one) for look in looks for snapshot, one in look.by_snapshot()}
        for path in self._files.keys() - wanted.keys():
            del self._files[path]
        missing = {path: found for path, found in wanted.items() if path not in self._files}
        self._files |= zip(missing, in_parallel(self._live_files, missing.values()), strict=True)

    def _live_files(self, found: tuple[Snapshot | None, ManifestFile]) -> list[LiveFile]:
        snapshot, manifest = found
        with naming_manifests(self._name, self._io, snapshot):
            return live_files(self._io, manifest)

    def _state(self, snapshot: Snapshot | None, manifests: Sequence[ManifestFile]) -> _State:
        key = (0 if snapshot is None else snapshot.snapshot_id, [one.manifest_path for one in manifests])
        if self._last is None or self._last[:2] != key:
            files = [live for manifest in manifests for live in self._files[manifest.manifest_path]]
            plan = plan_files(self._name, self._metadata, self._schema, snapshot, files, known=self._keys)
            keys = (one for one in files if one.data_file.content is DataFileContent.EQUALITY_DELETES)
            self._last = (*key, _State(plan=plan, key_files=frozenset((one.path, one.sequence_number) for one in keys)))
        return self._last[2]


def _is_deletes(manifest: ManifestFile) -> bool:
    return manifest.content == ManifestContent.DELETES


def _deletes(manifests: Iterable[ManifestFile]) -> frozenset[str]:
    return _paths(filter(_is_deletes, manifests))


def _paths(manifests: Iterable[ManifestFile]) -> frozenset[str]:
    return frozenset(manifest.manifest_path for manifest in manifests)
