"""Random upserts by marks and by rewriting, others between them: PyIceberg finds the rows of a dictionary."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.keys.conversions import CompactionRefusedError, compact, meanwhile
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import ENCODINGS, SEQUENCED_SCHEMA, apart, commit_upsert, sequenced_plan, upsert
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.fault_points import FaultPoint

LAYOUTS = {
    "none": PartitionSpec(),
    "by a column that moves": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
    "by the key": PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")),
}

changes = st.tuples(
    st.sampled_from(["I", "U", "D"]),
    st.integers(0, 7),
    st.sampled_from(["EU", "US", "DE"]),
    st.one_of(st.none(), st.integers(0, 99)),
)
# When another engine compacts the table: after a batch, begun before or after it, or between its search and its commit.
OTHERS = ["nothing", "nothing", "compact", "compact late", "compact meanwhile"]

# How each batch of changes is written: by which kind of write, in files of one row or of all, and what others do.
batches = st.lists(
    st.tuples(
        st.lists(changes, max_size=10),
        st.sampled_from([*ENCODINGS, "equality"]),
        st.sampled_from([1, 2**29]),
        st.booleans(),
        st.sampled_from(OTHERS),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(30))
@given(written=batches, layout=st.sampled_from(sorted(LAYOUTS)))
def test_table_has_the_row_that_came_last_for_each_key(*, written: Any, layout: str) -> None:
    """A key would have two rows, an old one, or none, for some order of writes of each kind."""
    folder = Path(tempfile.mkdtemp())
    try:
        sink = _sink(folder, LAYOUTS[layout])
        expected: dict[int, tuple[Any, ...]] = {}
        numbers = itertools.count()
        has_deletes_by_key = False
        for events, encoding, file_bytes, evolves, others in written:
            begun = sink.table()
            feed: list[Event] = [(*change, next(numbers)) for change in events]
            for operation, key, region, amount in events:
                expected.pop(key, None)
                if operation != "D":
                    expected[key] = (key, region, amount)
            with _beside(sink, begun, others):
                if encoding == "equality":
                    # Of the whole table: files of several specs may have rows of a key.
                    spec = _global_spec(sink)
                    plan = plan_by_keys(sink, delete_spec=spec, target_file_size_bytes=file_bytes)
                    sink.commit(keyed_tasks(plan, *apart(feed)))
                    has_deletes_by_key = has_deletes_by_key or bool(feed)
                else:
                    upsert(sink, encoding, *apart(feed), target_file_size_bytes=file_bytes)
            _check(sink, expected, reads_with_pyiceberg=not has_deletes_by_key)
            if evolves and layout == "none" and len(sink.table().specs()) == 1:
                with sink.table().update_spec() as change_of_spec:
                    change_of_spec.add_identity("region")
    finally:
        shutil.rmtree(folder)


@contextmanager
def _beside(sink: Sink, begun: Table, others: str) -> Iterator[None]:
    """Let another engine compact the table while something is written, or begin before that and land after it."""
    if begun.current_snapshot() is None or others == "nothing":
        yield
    elif others == "compact meanwhile":
        with meanwhile(FaultPoint.COMMIT_BEGUN, lambda: compact(sink)):
            yield
    else:
        yield
        with suppress(CompactionRefusedError):
            compact(sink, begun if others == "compact late" else None)


sequenced_changes = st.tuples(
    st.sampled_from(["I", "U", "D"]),
    st.integers(0, 5),
    st.sampled_from(["EU", "US", "DE"]),
    st.one_of(st.none(), st.integers(0, 99)),
    st.one_of(st.none(), st.integers(0, 20)),
)
# How each batch is written: whether the table's sequence counts, whether the rows of one key are in one task.
sequenced_batches = st.lists(
    st.tuples(
        # Two changes of one key and one sequence would be a tie.
        st.lists(sequenced_changes, max_size=10, unique_by=lambda change: (change[1], change[4])),
        st.sampled_from(["table", "table", "batch"]),
        st.booleans(),
        st.sampled_from([1, 2**29]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(40))
@given(written=sequenced_batches, layout=st.sampled_from(sorted(LAYOUTS)), keeps_deleted=st.booleans())
def test_table_has_the_newest_row_of_each_key(*, written: Any, layout: str, keeps_deleted: bool) -> None:
    """A late row would win, or a key would have none, for some order of rows, tasks and batches."""
    folder = Path(tempfile.mkdtemp())
    try:
        sink = _sink(folder, LAYOUTS[layout], SEQUENCED_SCHEMA)
        options = {"soft_delete_column": "gone", "schema_evolution": "add-columns"} if keeps_deleted else {}
        expected: dict[int, tuple[Any, ...]] = {}
        for events, scope, is_distributed, file_bytes, evolves in written:
            plan = sequenced_plan(sink, sequence_scope=scope, target_file_size_bytes=file_bytes, **options)
            parts = apart(events) if is_distributed else [events[number::3] for number in range(3)]
            result = commit_upsert(sink, plan, "position", keyed_tasks(plan, *parts))
            lost = 0
            for key, (operation, *row) in _winners(events).items():
                if scope == "table" and key in expected and _order(row[3]) < _order(expected[key][3]):
                    lost += 1
                    continue
                expected.pop(key, None)
                if keeps_deleted:
                    expected[key] = (*row, operation == "D")
                elif operation != "D":
                    expected[key] = tuple(row)
            assert result.late_rows == lost
            _check(sink, expected, reads_with_pyiceberg=True)
            if evolves and layout == "none" and len(sink.table().specs()) == 1:
                with sink.table().update_spec() as change_of_spec:
                    change_of_spec.add_identity("region")
    finally:
        shutil.rmtree(folder)


def _winners(events: Any) -> dict[int, Any]:
    """Return the event with the highest sequence of each key."""
    return {event[1]: event for event in sorted(events, key=lambda event: _order(event[4]))}


def _order(sequence: int | None) -> tuple[bool, int]:
    return (sequence is not None, sequence or 0)


def _sink(folder: Path, spec: PartitionSpec, schema: Schema = KEYED_SCHEMA) -> Sink:
    options = embedded_options(folder)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    sink.create(schema, spec)
    return sink


def _global_spec(sink: Sink) -> PartitionSpec:
    plan = sink.plan(COLUMNS, keys=("id",))
    assert plan.delete_spec is not None
    return plan.delete_spec


def _check(sink: Sink, expected: dict[int, tuple[Any, ...]], *, reads_with_pyiceberg: bool) -> None:
    table = sink.table()
    assert [tuple(row.values()) for row in rows_of(table)] == sorted(expected.values())
    if reads_with_pyiceberg:
        assert [tuple(row.values()) for row in sink.rows()] == sorted(expected.values())
    check_clean(table)
