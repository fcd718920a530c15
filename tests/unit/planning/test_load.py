"""Back-pressure: a write into a table that is too ill is refused before a task starts, and lands later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.exhaustive import EXHAUSTIVE
from support.tables.routed import RoutedSink, customer, order
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds
from iceberg_ds.errors import OverloadedTableError


def filled(sink: Sink, count: int = 5) -> None:
    """Commit so many small files."""
    for number in range(count):
        sink.append(number, of_epoch=epoch(number))


@pytest.mark.parametrize(
    ("limit", "figure"),
    [
        ({"max_snapshots": 4}, "it has 5 snapshots, and option 'max-snapshots' is 4"),
        (
            {"max_small_files": 4},
            "its branch 'main' has at least 5 data files below 134,217,728 bytes, and option 'max-small-files' is 4",
        ),
    ],
)
def test_write_into_an_ill_table_is_refused_with_what_to_do(sink: Sink, limit: dict[str, Any], figure: str) -> None:
    """The table would get worse with each epoch, until nobody can read it."""
    filled(sink)

    with pytest.raises(OverloadedTableError) as refused:
        sink.plan(**limit)

    assert str(refused.value) == (
        f"Cannot write to db.t, nothing was written: {figure}. Run `iceberg-ds maintain db.t` until it has fewer, or "
        "raise the limit; then write again."
    )
    sink.plan(**dict.fromkeys(limit, 5))


@EXHAUSTIVE
def test_refused_epoch_lands_once_the_table_is_well(sink: Sink) -> None:
    """Its rows would be lost, or the stream never go on."""
    filled(sink)
    limits = {"max_snapshots": 4, "max_small_files": 4}
    with pytest.raises(OverloadedTableError, match=r"5 snapshots, and .*; its branch 'main' has at least 5 data files"):
        sink.plan(**limits)

    options = {"warehouse": str(sink.options.warehouse)}
    policy = iceberg_ds.MaintenancePolicy(max_small_files=1, max_snapshots=2, min_snapshot_age_s=0)
    assert iceberg_ds.maintain(NAME, options=options, policy=policy).ok
    plan = sink.plan(is_stream=True, **limits)
    sink.commit(sink.write([{"id": 5, "name": "x"}], plan=plan, of_epoch=epoch(5)))

    assert sink.ids() == list(range(6))


def test_limits_are_looked_at_without_a_request(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch would wait for the catalog or the store once more."""
    filled(sink)
    asked: list[str] = []
    for method in ("find_table", "load_table"):
        own = getattr(type(sink.catalog), method)

        def note(*given: Any, own: Any = own, **named: Any) -> Any:
            asked.append("load")
            return own(*given, **named)

        monkeypatch.setattr(type(sink.catalog), method, note)
    monkeypatch.setattr("pyiceberg.table.snapshots.Snapshot.manifests", lambda *_: asked.append("manifests"))

    sink.plan(max_snapshots=5, max_small_files=5)

    assert asked == ["load"]


def test_branch_counts_what_it_builds_on(sink: Sink) -> None:
    """A staged write would never be refused."""
    filled(sink)

    with pytest.raises(OverloadedTableError, match="its branch 'main' has at least 5 data files"):
        sink.plan(max_small_files=4, branch="audit", create_branch=True)


@pytest.mark.parametrize("evolution", ["strict", "add-columns"])
def test_one_ill_table_holds_the_whole_epoch_back(tmp_path: Path, evolution: str) -> None:
    """Its rows would be taken for bad ones, and go to the quarantine table."""
    plain = RoutedSink.of(tmp_path)
    plain.append(order(1), customer(7))
    plain.append(order(2))
    more = {"on-bad-row": "quarantine", "quarantine-table": "db.bad", "schema-evolution": evolution}

    with pytest.raises(OverloadedTableError, match=r"Cannot write to db\.orders, nothing was written: it has 2 snap"):
        RoutedSink.of(tmp_path, {**more, "max-snapshots": "1"}).plan()
    RoutedSink.of(tmp_path, {**more, "max-snapshots": "1", "route-options.orders.max-snapshots": "2"}).plan()


def test_rows_that_came_are_written_though_the_table_fell_ill_meanwhile(tmp_path: Path) -> None:
    """An epoch would be refused after its tasks had run, because the driver writes rows of new columns."""
    RoutedSink.of(tmp_path, schema_evolution="add-columns").append(order(1))
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns", max_snapshots="1")
    messages = sink.write([{**order(2), "name": "Bob"}], epoch_id=1)
    RoutedSink.of(tmp_path).append(order(3))

    sink.commit(messages, 1)

    assert sink.ids("db.orders") == [1, 2, 3]
