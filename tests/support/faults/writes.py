"""One write under attack, and the one oracle of what must be true afterwards, whatever was attacked and how.

Takes the steps that Spark's processes take, in this process: plan, tasks, commit, and `abort` after a failure; then
what follows a failure in real life: a stream's epoch is replayed, a batch that failed for certain is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import check_sound, stored_files, unreferenced_files
from support.checks.reader import rows_of
from support.checks.version_3 import check_version_3
from support.faults.operations import BASE, Mode, Operation, Phase
from support.keys.upserts import commit_upsert
from support.spark.tables import read_with_chdb
from support.tables.sink import QUERY, Sink, local, paths_of

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, IcebergSinkError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import WritePlan
from iceberg_ds.snapshots import manifests
from iceberg_ds.snapshots.manifests import ManifestLists
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.writers import reporting

RETRIES = 2
ATTEMPTS = RETRIES + 1
_EPOCH = 2
_MOST_REPLAYS = 3


class Attack(Protocol):
    """What lets a write fail."""

    def begin(self, phase: Phase) -> None:
        """Let the write fail in this phase, if this is the one."""

    def calm(self) -> None:
        """Let nothing fail any more."""

    def deliver(self, *, all_of_them: bool) -> bool:
        """Let requests that were held up be carried out, those too that wait for the next commit if `all_of_them`.

        Returns:
            Whether there were any.
        """

    @property
    def has_struck(self) -> bool:
        """Whether anything has failed."""

    @property
    def leaves_doubt(self) -> bool:
        """Whether a request was sent of which no answer and no look at the table told what became of it."""

    @property
    def was_blind(self) -> bool:
        """Whether the writer's last look at the table failed, or showed an older state."""

    @property
    def hinders_deleting(self) -> bool:
        """Whether files may be left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a writer saw.

    Attributes:
        error: What it raised, None for success.
        phase: Where.
        messages: What its tasks reported.
    """

    error: IcebergSinkError | None = None
    phase: Phase = Phase.COMMIT
    messages: list[TaskCommit] = field(default_factory=list)

    @property
    def is_unknown(self) -> bool:
        """Whether the writer says that it does not know."""
        return isinstance(self.error, CommitStateUnknownError)


@dataclass(slots=True, kw_only=True)
class Trial:
    """One write under attack.

    Attributes:
        operation: What the write does.
        mode: Whether Spark repeats it.
        clean: Reaches the table past the attack.
        attacked: Writes under attack.
        attack: The attack.
        folder: The table's folder.
        second_reader: Returns the ids that another reader finds, None to do without.
    """

    operation: Operation
    mode: Mode
    clean: Sink
    attacked: Sink
    attack: Attack
    folder: Path
    second_reader: Callable[[Table], list[int]] | None = None

    def prepare(self) -> None:
        """Make the table with its rows, as the first epochs of the query."""
        if not self.operation.creates:
            for number in (0, 1):
                part = BASE[2 * number : 2 * number + 2]
                plan = self._plan(self.attacked, self.operation.first, number)
                self._commit(self.attacked, plan, self._tasks(plan, self.operation.first, part, number, "run-0"))
        if self.operation.table_properties:
            change = SetPropertiesUpdate(updates=self.operation.table_properties)
            self.clean.catalog.send(self.clean.table(), (), (change,))

    def run(self) -> Outcome:
        """Write under attack, hold the outcome against the table, and go on as Spark or a user would."""
        self.attack.calm()
        known = self._stored()
        schema = self._schema()
        outcome = self.write()
        assert self.attack.has_struck, "nothing was attacked: the cell is empty"
        self._check(outcome, known, schema)
        if self.attack.deliver(all_of_them=self.mode is Mode.BATCH):
            self._check_rows(outcome)
        self._go_on(outcome, known)
        return outcome

    def write(self) -> Outcome:
        """Write under attack, and return what the writer sees."""
        outcome = self._write()
        self.attack.calm()
        # Spark knows nothing of the commit of an upsert.
        if outcome.error is not None and outcome.phase is Phase.COMMIT and self.operation.encoding is None:
            abort_write(self.clean.catalog, outcome.messages)
        return outcome

    def _write(self) -> Outcome:
        phase, messages = Phase.PLAN, []
        try:
            self.attack.begin(phase)
            with _new_process(self.attacked) as planner:
                plan = self._plan(planner, self.operation, _EPOCH)
            self.attack.begin(phase := Phase.TASKS)
            messages = self._tasks(plan, self.operation, self.operation.ours, _EPOCH, "run-1")
            self.attack.begin(phase := Phase.COMMIT)
            with _new_process(self.attacked) as committer:
                self._commit(committer, plan, messages)
        except IcebergSinkError as error:
            return Outcome(error=error, phase=phase, messages=messages)
        return Outcome(messages=messages)

    def _plan(self, sink: Sink, operation: Operation, epoch: int) -> WritePlan:
        """Plan a write; an upsert of a stream has its epoch as a version of the application's."""
        is_numbered = operation.encoding is not None and self.mode is Mode.STREAM
        version = {"txn_app_id": QUERY, "txn_version": epoch} if is_numbered else {}
        return sink.plan(operation.schema, operation.mode, **operation.options_in(sink.options), **version)

    def _tasks(
        self, plan: WritePlan, operation: Operation, ids: tuple[int, ...], epoch: int, run: str
    ) -> list[TaskCommit]:
        """Run two tasks; where the first fails, Spark gives up the other."""
        parts = self.operation.parts(ids)
        of_epoch = None if operation.encoding is not None else self.mode.epoch(epoch, run)
        with patch.object(reporting, "MANY_FILES", self.operation.many_files):
            return self.attacked.write(*parts, schema=operation.schema, plan=plan, of_epoch=of_epoch)

    def _commit(self, sink: Sink, plan: WritePlan, messages: list[TaskCommit]) -> None:
        if self.operation.encoding is None:
            sink.commit(messages)
        else:
            commit_upsert(sink, plan, self.operation.encoding, messages)

    def _check(self, outcome: Outcome, known: set[Path], schema: str) -> None:
        """Hold what the writer says against what there is."""
        ids = self._check_rows(outcome)
        left = self._unreferenced() - known
        error = outcome.error
        if outcome.is_unknown:
            assert self.attack.leaves_doubt, f"it is known what became of each request, unlike: {error}"
            has_landed = outcome.phase is Phase.COMMIT and ids == self.operation.after
            assert not has_landed or self.attack.was_blind, f"the table shows what became of the write, unlike: {error}"
            assert all(path.exists() for path in self._kept(outcome)), f"files are gone, unlike: {error}"
            assert "o files were deleted" in str(error) or not self.operation.ours, (
                f"the fate of files is open: {error}"
            )
            return
        assert ids == (self.operation.after if error is None else self.operation.before), f"unlike: {error}"
        assert not left or self.attack.hinders_deleting, f"{left} are left behind by: {error}"
        if error is not None and outcome.phase is Phase.PLAN:
            assert schema == self._schema(), f"columns changed, unlike: {error}"

    def _kept(self, outcome: Outcome) -> list[Path]:
        """Return the files that tasks wrote and that a request may name; keys of an upsert never are in one."""
        if self.operation.encoding is None:
            return paths_of(outcome.messages)
        table = self._table()
        if table is not None and table.metadata.format_version == VERSION_3:
            # Rows that keep ids were written again before the request: its files are read when it is carried out.
            return []
        return paths_of([replace(message, delete_files=()) for message in outcome.messages])

    def _check_rows(self, outcome: Outcome) -> list[int] | None:
        """Assert that the table is whole, and has the rows of before or of after; return their ids, None for none."""
        ids = self._ids()
        possible = [self.operation.before, self.operation.after]
        assert ids in possible, f"{ids} are in the table after: {outcome.error}"
        if outcome.error is None:
            assert ids == self.operation.after
        elif not outcome.is_unknown:
            assert ids == self.operation.before, f"a request landed after: {outcome.error}"
        return ids

    def _go_on(self, outcome: Outcome, known: set[Path]) -> None:
        """Replay the epoch, or run a batch again that has not landed."""
        if self.mode is Mode.BATCH:
            if outcome.error is not None and self._ids() == self.operation.before:
                self._repeat("again")
        else:
            self._replay()
        self.attack.deliver(all_of_them=True)
        assert self._ids() == self.operation.after
        if not outcome.is_unknown and not self.attack.hinders_deleting:
            assert not self._unreferenced() - known, f"files are left behind by what followed: {outcome.error}"

    def _replay(self) -> None:
        """Replay the epoch in new runs until one succeeds; a late request that lands beside it looks like a driver."""
        for number in range(_MOST_REPLAYS):
            try:
                self._repeat(f"run-{number + 2}")
            except CommitConflictError as fenced:
                if "another live driver" not in str(fenced) or not self.attack.leaves_doubt:
                    raise
            else:
                return
        raise AssertionError("no replay succeeded")

    def _repeat(self, run: str) -> None:
        plan = self._plan(self.attacked, self.operation, _EPOCH)
        self._commit(self.attacked, plan, self._tasks(plan, self.operation, self.operation.ours, _EPOCH, run))

    def _table(self) -> Table | None:
        return self.clean.catalog.reading_anew().find_table(self.clean.options.table)

    def _schema(self) -> str:
        table = self._table()
        return "" if table is None else str(table.metadata.schema())

    def _ids(self) -> list[int] | None:
        """Return the ids that each reader finds in the table, whose every snapshot is whole; None for no table."""
        table = self._table()
        if table is None:
            return None
        check_sound(table)
        # PyIceberg reads no table with deletes by key.
        is_by_keys = self.operation is Operation.UPSERT
        found = rows_of(table) if is_by_keys else table.scan().to_arrow().to_pylist()
        ids = sorted(row["id"] for row in found)
        assert all(row["name"] == f"row {row['id']}" for row in found)
        if table.metadata.format_version == VERSION_3:
            check_version_3(table)
        if is_by_keys:
            check_deletes(table)
        if self.second_reader is not None and table.metadata.snapshots:
            assert self.second_reader(table) == ids, "the second reader finds other rows"
        return ids

    def _stored(self) -> set[Path]:
        return stored_files(str(self.folder))

    def _unreferenced(self) -> set[Path]:
        table = self._table()
        return self._stored() if table is None else unreferenced_files(table)


def ids_of_clickhouse(table: Table) -> list[int]:
    """Return the ids that ClickHouse finds; a catalog in memory has its state written down for it."""
    folder = local(table.metadata.location)
    metadata = local(table.metadata_location)
    if not metadata.is_file():
        metadata = folder / "metadata" / "v1.metadata.json"
        metadata.write_text(table.metadata.model_dump_json())
    return [row["id"] for row in read_with_chdb(folder, "id", metadata=metadata)]


def few_retries(sink: Sink, version: str | None = None) -> Sink:
    """Return the sink whose new table, of a format version, has its commits tried again only `RETRIES` times."""
    properties = {**sink.options.table_properties, "commit.retry.num-retries": str(RETRIES)}
    options = replace(sink.options, table_properties=properties, format_version=version)
    return Sink(catalog=sink.catalog, options=options)


@contextmanager
def _new_process(sink: Sink) -> Iterator[Sink]:
    """Return the sink as a process has it that has seen no table yet, so that it has to ask for everything."""
    with patch.object(manifests, "KNOWN_LISTS", ManifestLists()):
        yield Sink(catalog=CatalogClient(sink.catalog.raw, catalog_settings(sink.options)), options=sink.options)
