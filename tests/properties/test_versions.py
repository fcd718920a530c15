"""Random sequences of numbered batches, with faults and races: exactly what a dictionary of last versions says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal
from support.tables.sink import Sink, embedded_options, rows

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.messages import TaskCommit

pytestmark = pytest.mark.usefixtures("waits")

BRANCHES = ("main", "audit")


def written(sink: Sink, version: int, ids: list[int], app_id: str, branch: str) -> list[TaskCommit]:
    """Run the task of a numbered batch."""
    return sink.write(rows(*ids), plan=sink.plan(txn_app_id=app_id, txn_version=version, branch=branch))


def expire_all_but_heads(sink: Sink) -> None:
    """Expire every snapshot that the table can do without."""
    table = sink.table()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(old).commit()


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.integers(0, 4),
            st.sampled_from(BRANCHES),
            st.sampled_from(["fine", "refused", "lost before", "lost after", "faster", "empty", "expire"]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_sequence_of_versions_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str, str]]
) -> None:
    """Rows would be lost or doubled in a case that nobody thought of."""
    sink, faulty_sink, faulty_catalog = faulty_table(tmp_path_factory)
    sink.append(0)
    sink.commit(sink.write(rows(-1), plan=sink.plan(branch="audit", create_branch=True)))
    expected, last = {"main": [0], "audit": [-1, 0]}, dict[tuple[str, str], int]()
    for number, (app_id, version, branch, event) in enumerate(steps, start=1):
        is_new = version > last.get((branch, app_id), -1)
        ids = [] if event == "empty" else [number]
        messages = written(faulty_sink, version, ids, app_id, branch)
        faulty_catalog.forget()
        if event == "expire":
            expire_all_but_heads(sink)
        elif event == "refused":
            faulty_catalog.fail_next(1, refusal)
        elif event.startswith("lost"):
            faulty_catalog.fail_next(1, connection_lost, when=When.AFTER if event.endswith("after") else When.BEFORE)
        elif event == "faster":
            sink.commit(written(sink, version, ids, app_id, branch))

        result = faulty_sink.commit(messages)

        assert result.was_replayed == (not is_new or event == "faster")
        if is_new:
            last[branch, app_id] = version
            expected[branch] += ids
        assert {branch: [row["id"] for row in sink.rows_of(branch)] for branch in BRANCHES} == {
            branch: sorted(ids) for branch, ids in expected.items()
        }


def faulty_table(folders: pytest.TempPathFactory) -> tuple[Sink, Sink, FaultyCatalog]:
    """Return a new table, the same through a catalog that fails on demand, and that catalog."""
    options = embedded_options(folders.mktemp("model") / "warehouse")
    settings = catalog_settings(options)
    real = connect(settings)  # makes the folder
    faulty = FaultyCatalog(load_catalog(settings.name, **dict(settings.properties)))
    client = CatalogClient(faulty, settings)  # type: ignore[arg-type]  # it has the methods that are called
    return Sink(catalog=real, options=options), Sink(catalog=client, options=options), faulty
