"""Random histories with rewrites of manifests and position deletes between and beside them, against dictionaries."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.keys.conversions import CompactionRefusedError, compact, convert, meanwhile
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import upsert
from support.tables.rewrites import SMALL, entries_of, hidden_rows, rewrite_manifests, rewrite_position_deletes
from support.tables.sink import Sink, embedded_options, epoch

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.planning.plan_write import WriteMode

GLOBAL = PartitionSpec(spec_id=1)
LAYOUTS = {
    "none": (PartitionSpec(), None),
    "by a column that moves": (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")), GLOBAL),
    "by the key": (PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")), None),
}
WRITES = ["epoch", "upsert", "upsert", "rewritten upsert", "overwrite"]
OTHERS = ["nothing", "compact", "convert", "partition", "branch", "back"]
REWRITES = ["nothing", "manifests", "positions", "positions", "both"]
STEPS = [
    FaultPoint.PLANNED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
]

changes = st.tuples(
    st.sampled_from(["U", "U", "D"]), st.integers(0, 6), st.sampled_from(["EU", "US"]), st.integers(0, 99)
)
moves = st.lists(
    st.tuples(
        st.sampled_from(WRITES),
        st.lists(changes, min_size=1, max_size=6),
        st.sampled_from(OTHERS),
        st.sampled_from(REWRITES),
        st.booleans(),
        st.sampled_from(STEPS),
    ),
    min_size=2,
    max_size=7,
)


@settings(max_examples=examples(40))
@given(
    history=moves,
    layout=st.sampled_from(sorted(LAYOUTS)),
    by_file=st.booleans(),
    manifest_bytes=st.sampled_from([1, 8_000, 8 * 1024 * 1024]),
)
def test_rewrites_change_no_row(history: Any, layout: str, by_file: bool, manifest_bytes: int) -> None:  # noqa: FBT001  # drawn
    """A deleted row would come back, or a row be lost, for some order of writes, rewrites and what others do."""
    folder = Path(tempfile.mkdtemp())
    try:
        _Trial(folder, layout, by_file=by_file, manifest_bytes=manifest_bytes).run(history)
    finally:
        shutil.rmtree(folder)


class _Trial:
    """A table, and what must be in each of its snapshots."""

    def __init__(self, folder: Path, layout: str, *, by_file: bool, manifest_bytes: int) -> None:
        options = embedded_options(folder)
        self._sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        spec, self._deletes = LAYOUTS[layout]
        self._expected: dict[int, tuple[Any, ...]] = {}
        self._are_files_left = False
        self._of_snapshots: dict[int, list[tuple[Any, ...]]] = {}
        self._numbers, self._epochs, self._branches = itertools.count(), itertools.count(), itertools.count()
        self._sink.create(KEYED_SCHEMA, spec)
        if self._deletes is not None:
            self._sink.catalog.send(self._sink.table(), (), (AddPartitionSpecUpdate(spec=self._deletes),))
        with self._sink.table().transaction() as change:
            granularity = {"write.delete.granularity": "file"} if by_file else {}
            change.set_properties(**{SMALL: str(manifest_bytes), **granularity})

    def run(self, history: Any) -> None:
        """Let it all happen, and look after each step."""
        for write, events, other, rewrite, is_beside, step in history:
            self._write(write, events)
            self._check()
            if not self._sink.table().metadata.snapshots:
                continue
            if is_beside and rewrite != "nothing":
                with meanwhile(
                    step, lambda write=write, events=events, other=other: self._beside(other, write, events)
                ):
                    self._rewrite(rewrite)
            else:
                self._other(other)
                self._check()
                self._rewrite(rewrite)
            self._check()
        before = self._facts()
        self._rewrite("both", rewrite_all="true")
        assert self._facts() == before
        self._check(is_deep=True)

    def _beside(self, other: str, write: str, events: Any) -> None:
        if other == "nothing":
            self._write(write, events[::-1])
        self._other(other)

    def _facts(self) -> Any:
        """Return what a rewrite must keep, whatever it writes: hidden rows, and the entries of data files."""
        table = self._sink.table()
        data = [entry for entry in entries_of(table) if not entry[1].endswith("-deletes.parquet")]
        return data, hidden_rows(table)

    def _rewrite(self, what: str, **options: str) -> None:
        try:
            self._try_to_rewrite(what, **options)
        except CommitConflictError:
            pass
        except CommitStateUnknownError:
            # A request that was refused may come again once the branch is set back, so its files stay.
            self._are_files_left = True

    def _try_to_rewrite(self, what: str, **options: str) -> None:
        if what in {"manifests", "both"}:
            for number in sorted(self._sink.table().metadata.specs()):
                rewrite_manifests(self._sink, spec_id=number)
        if what in {"positions", "both"}:
            rewrite_position_deletes(self._sink, **{"min_input_files": "2", **options})

    def _other(self, what: str) -> None:
        sink = self._sink
        match what:
            case "compact":
                with suppress(CompactionRefusedError):
                    compact(sink)
            case "convert":
                convert(sink, "position")
            case "partition":
                self._partition()
            case "branch":
                self._branch()
            case "back":
                self._set_back()

    def _write(self, kind: str, events: Any) -> None:
        numbered = [(*event, next(self._numbers)) for event in events]
        if kind == "overwrite":
            self._overwrite(numbered)
            return
        for operation, key, region, amount, _ in numbered:
            self._expected.pop(key, None)
            if operation != "D":
                self._expected[key] = (key, region, amount)
        if kind == "epoch":
            plan = plan_by_keys(self._sink, delete_spec=self._deletes)
            self._sink.commit(keyed_tasks(plan, numbered, of_epoch=epoch(next(self._epochs))))
        else:
            upsert(self._sink, "position" if kind == "upsert" else "copy-on-write", numbered)

    def _overwrite(self, events: list[Event]) -> None:
        """Replace a region by rows; of a table with equality deletes only all rows can be replaced."""
        rows = {event[1]: {"id": event[1], "region": event[2], "amount": event[3]} for event in events}
        sink = replace(self._sink, options=replace(self._sink.options, overwrite_mode="static"))
        sink.commit(sink.write(list(rows.values()), schema=COLUMNS, plan=sink.plan(COLUMNS, WriteMode.OVERWRITE)))
        self._expected = {key: tuple(row.values()) for key, row in rows.items()}

    def _partition(self) -> None:
        """Change the partitioning; deletes are of the whole table from then on."""
        table = self._sink.table()
        if len(table.specs()) > 2 or any(part.name == "region" for part in table.spec().fields):
            return
        with table.update_spec() as change:
            change.add_identity("region")
        known = [spec for spec in self._sink.table().specs().values() if spec.is_unpartitioned()]
        self._deletes = known[0] if known else PartitionSpec(spec_id=max(self._sink.table().specs()) + 1)
        if not known:
            self._sink.catalog.send(self._sink.table(), (), (AddPartitionSpecUpdate(spec=self._deletes),))

    def _branch(self) -> None:
        """Make a branch here, and rewrite it; main must not change."""
        table = self._sink.table()
        head = table.current_snapshot()
        if head is None:
            return
        name = f"b{next(self._branches)}"
        table.manage_snapshots().create_branch(head.snapshot_id, name).commit()
        expected = sorted(self._expected.values())
        rewrite_manifests(self._sink, branch=name)
        rewrite_position_deletes(self._sink, branch=name, rewrite_all="true")
        assert self._rows(name) == expected

    def _set_back(self) -> None:
        """Set main back by a snapshot, as a user does."""
        head = self._sink.table().current_snapshot()
        parent = None if head is None else head.parent_snapshot_id
        if parent is None or parent not in self._of_snapshots:
            return
        self._sink.table().manage_snapshots().set_current_snapshot(snapshot_id=parent).commit()
        self._expected = {row[0]: row for row in self._of_snapshots[parent]}

    def _rows(self, branch: str = "main") -> list[tuple[Any, ...]]:
        found = rows_of(self._sink.table(), branch)
        return sorted(tuple(row[name] for name in ("id", "region", "amount")) for row in found)

    def _check(self, *, is_deep: bool = False) -> None:
        table = self._sink.table()
        expected = sorted(self._expected.values())
        assert self._rows() == expected
        (check_sound if self._are_files_left else check_clean)(table)
        head: Callable[[], Any] = table.current_snapshot
        if (snapshot := head()) is not None:
            self._of_snapshots[snapshot.snapshot_id] = expected
        if is_deep:
            for number, rows in self._of_snapshots.items():
                table.manage_snapshots().create_tag(number, f"t{number}").commit()
                assert self._rows(f"t{number}") == rows
