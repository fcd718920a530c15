"""Random change feeds in real files and commits: readers find the rows of a dictionary, after every epoch."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.spark.tables import read_with_chdb
from support.tables.sink import Sink, embedded_options, epoch, local

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

GLOBAL = PartitionSpec(spec_id=1)
# How rows are partitioned, and whether deletes are.
LAYOUTS = {
    "none": (PartitionSpec(), None),
    "by a column that moves": (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")), GLOBAL),
    "by the key": (PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")), None),
}

changes = st.tuples(
    st.sampled_from(["I", "U", "D"]),
    st.integers(0, 5),
    st.sampled_from(["EU", "US", "DE"]),
    st.one_of(st.none(), st.integers(0, 99)),
)
# Each event has a task.
epochs = st.lists(st.lists(st.tuples(changes, st.integers(0, 2)), max_size=12), min_size=1, max_size=4)


@settings(max_examples=examples(15))
@given(
    feed=epochs,
    layout=st.sampled_from(sorted(LAYOUTS)),
    file_bytes=st.sampled_from([1, 2**29]),  # a file for each row, or one
    evolves_after=st.one_of(st.none(), st.integers(0, 3)),
    replays=st.booleans(),
    data=st.data(),
)
def test_table_has_the_row_that_came_last_for_each_key(  # noqa: PLR0913  # one case
    *, feed: Any, layout: str, file_bytes: int, evolves_after: int | None, replays: bool, data: st.DataObject
) -> None:
    """A key would have two rows, an old one, or none, for some order, layout, division or repetition of its changes."""
    folder = Path(tempfile.mkdtemp())
    try:
        sink = _sink(folder, layout)
        delete_spec = LAYOUTS[layout][1]
        expected: dict[int, tuple[Any, ...]] = {}
        numbers = itertools.count()
        for number, events in enumerate(feed):
            order = data.draw(st.permutations(range(len(events))))
            sequence = [next(numbers) for _ in events]
            parts: list[list[Event]] = [[], [], []]
            for place in order:  # events come in any order, the sequence says which is the last
                change, task = events[place]
                parts[task].append((*change, sequence[place]))
            for operation, key, region, amount in (change for change, _ in events):
                expected.pop(key, None)
                if operation != "D":
                    expected[key] = (key, region, amount)
            for _ in range(1 + replays):
                plan = plan_by_keys(sink, delete_spec=delete_spec, target_file_size_bytes=file_bytes)
                sink.commit(keyed_tasks(plan, *parts, of_epoch=epoch(number)))
            _check(sink, expected, reads_with_chdb=delete_spec is None)
            if number == evolves_after and layout == "none":
                with sink.table().update_spec() as change_of_spec:
                    change_of_spec.add_identity("region")
                delete_spec = PartitionSpec(spec_id=0)
    finally:
        shutil.rmtree(folder)


def _sink(folder: Path, layout: str) -> Sink:
    options = embedded_options(folder)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    spec, deletes = LAYOUTS[layout]
    sink.create(KEYED_SCHEMA, spec)
    if deletes is not None:
        sink.catalog.send(sink.table(), (), (AddPartitionSpecUpdate(spec=deletes),))
    return sink


def _check(sink: Sink, expected: dict[int, tuple[Any, ...]], *, reads_with_chdb: bool) -> None:
    """Compare; ClickHouse applies no deletes of the whole table to files of a partition."""
    table = sink.table()
    found = [tuple(row.values()) for row in rows_of(table)]
    assert found == sorted(expected.values())
    if table.metadata.snapshots and reads_with_chdb:
        assert [tuple(row.values()) for row in read_with_chdb(local(table.location()))] == found
    check_clean(table)
