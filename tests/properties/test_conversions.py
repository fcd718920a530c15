"""Random change feeds with conversions, compactions and other partitions in between, against a dictionary."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import StringType
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.keys.conversions import ENCODINGS, CompactionRefusedError, compact, convert, keyed_deletes, meanwhile
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.spark.tables import read_with_chdb
from support.tables.sink import Sink, embedded_options, epoch, local

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.fault_points import FaultPoint

GLOBAL = PartitionSpec(spec_id=1)
LAYOUTS = {
    "none": (PartitionSpec(), None),
    "by a column that moves": (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")), GLOBAL),
    "by the key": (PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")), None),
}
# What happens after an epoch; two words: the second happens while the first is under way.
EVENTS = [
    "nothing",
    "convert",
    "compact",
    "compact late",
    "compact after a conversion",
    "partition",
    "column",
    "convert+epoch",
    "convert+compact",
    "convert+compact late",
]
STEPS = [FaultPoint.PLANNED, FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN]

changes = st.tuples(
    st.sampled_from(["U", "U", "D"]), st.integers(0, 6), st.sampled_from(["EU", "US"]), st.integers(0, 99)
)
epochs = st.lists(
    st.tuples(
        st.lists(st.tuples(changes, st.integers(0, 1)), max_size=8),
        st.sampled_from(EVENTS),
        st.sampled_from(ENCODINGS),
        st.sampled_from(STEPS),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=examples(20))
@given(feed=epochs, layout=st.sampled_from(sorted(LAYOUTS)), file_rows=st.integers(1, 4))
def test_conversions_change_no_row(feed: Any, layout: str, file_rows: int) -> None:
    """A key would have two rows, an old one, or none, for some order of epochs, conversions and compactions."""
    folder = Path(tempfile.mkdtemp())
    try:
        _Trial(folder, layout, file_rows).run(feed)
    finally:
        shutil.rmtree(folder)


class _Trial:
    """A table, and what must be in it."""

    def __init__(self, folder: Path, layout: str, file_rows: int) -> None:
        options = embedded_options(folder)
        self._sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        spec, self._deletes = LAYOUTS[layout]
        self._file_rows = file_rows
        self._expected: dict[int, tuple[Any, ...]] = {}
        self._numbers, self._epochs = itertools.count(), itertools.count()
        self._sink.create(KEYED_SCHEMA, spec)
        if self._deletes is not None:
            self._sink.catalog.send(self._sink.table(), (), (AddPartitionSpecUpdate(spec=self._deletes),))

    def run(self, feed: Any) -> None:
        """Let it all happen, and look after each epoch."""
        sink = self._sink
        for events, what, encoding, step in feed:
            begun = sink.table()
            self._put(events)
            self._check()
            if not sink.table().metadata.snapshots:
                continue
            self._happen(what, begun, lambda events=events: self._put(events[::-1]), encoding, step)
            self._check()
        convert(sink, ENCODINGS[len(feed) % 2])
        self._check(is_converted=True)

    def _happen(
        self, what: str, begun: Table, put: Callable[[], object], encoding: RowEncoding, step: FaultPoint
    ) -> None:
        sink = self._sink
        match what:
            case "convert":
                convert(sink, encoding)
            case "compact":
                compact(sink)
            case "compact late":
                self._compact(begun)
            case "compact after a conversion":
                convert(sink, encoding)
                self._compact(begun)
            case "partition":
                self._partition()
            case "column":
                self._column()
            case "convert+epoch":
                with meanwhile(step, put):
                    convert(sink, encoding)
            case "convert+compact":
                with meanwhile(step, lambda: compact(sink)):
                    convert(sink, encoding)
            case "convert+compact late":
                with meanwhile(step, lambda: self._compact(begun)):
                    convert(sink, encoding)

    def _compact(self, begun: Table) -> None:
        """Compact what was there before the last epoch; Iceberg's Java library may refuse that."""
        with suppress(CompactionRefusedError):
            compact(self._sink, begun if begun.current_snapshot() is not None else None)

    def _put(self, events: Any) -> None:
        parts: list[list[Event]] = [[], []]
        for (operation, key, region, amount), task in events:
            parts[task].append((operation, key, region, amount, next(self._numbers)))
            self._expected.pop(key, None)
            if operation != "D":
                self._expected[key] = (key, region, amount)
        plan = plan_by_keys(self._sink, delete_spec=self._deletes)
        self._sink.commit(keyed_tasks(plan, *parts, of_epoch=epoch(next(self._epochs))))

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

    def _column(self) -> None:
        """Make a column and drop it again, so that files have different schemas."""
        table = self._sink.table()
        with table.update_schema() as change:
            change.add_column("note", StringType())
        with self._sink.table().update_schema() as change:
            change.delete_column("note")

    def _check(self, *, is_converted: bool = False) -> None:
        table, expected = self._sink.table(), sorted(self._expected.values())
        found = sorted(tuple(row[name] for name in ("id", "region", "amount")) for row in rows_of(table))
        assert found == expected
        check_clean(table)
        if is_converted and table.metadata.snapshots:
            assert keyed_deletes(table) == []
            assert [tuple(row.values()) for row in self._sink.rows()] == expected
            assert [tuple(row.values()) for row in read_with_chdb(local(table.location()))] == expected
