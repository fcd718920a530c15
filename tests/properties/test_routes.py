"""Any epochs of rows that name their tables, with deaths and repetitions, equal a dictionary of tables."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables.routed import RoutedSink
from support.tables.sink import Row

from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.writers import routed

_numbers = itertools.count()
COLUMNS = ("name", "total")


class Died(BaseException):
    """The driver is gone."""


@dataclass(frozen=True)
class Epoch:
    """Rows of one epoch, a list for each task, and after how many tables its driver dies in each earlier try."""

    parts: list[list[Row]]
    deaths: list[int]
    is_repeated: bool


@st.composite
def feeds(draw: st.DrawFn) -> list[Epoch]:
    """Return the epochs of a stream."""
    ids = itertools.count()
    row = st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["a", "b", "`c d`", "db.e"]),
            "name": st.none() | st.sampled_from(["x", ""]),
            "total": st.none() | st.floats(allow_nan=False, width=16),
        }
    )
    parts = st.lists(st.lists(row, max_size=6), min_size=1, max_size=3)
    return [
        Epoch(
            parts=[[{**found, "id": next(ids)} for found in part] for part in draw(parts)],
            deaths=draw(st.lists(st.integers(0, 3), max_size=2)),
            is_repeated=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]


@contextmanager
def dying_after(tables: int) -> Iterator[None]:
    """Let the driver die as soon as so many tables have landed; 0 before any has."""
    landed = itertools.count(1)

    def reached(point: FaultPoint) -> None:
        if (point is FaultPoint.COMMITTED and next(landed) == tables) or (
            point is FaultPoint.TABLE_LOADED and not tables
        ):
            raise Died

    with mock.patch("iceberg_ds.commit.snapshot_update.fault_point", reached):
        yield


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the warehouse of all examples; each has a namespace of its own."""
    return tmp_path_factory.mktemp("routes")


@pytest.mark.usefixtures("waits")
@given(feed=feeds(), waiting_bytes=st.sampled_from([1, 1 << 26]), small=st.sampled_from(["0", "262144"]))
def test_every_row_is_once_in_its_table(warehouse: Path, feed: list[Epoch], waiting_bytes: int, small: str) -> None:
    """A feed of many tables would lose or double rows, or mix up their tables or columns."""
    space = f"n{next(_numbers)}"
    sink = RoutedSink.of(
        warehouse,
        route_namespace=space,
        route_tables=f"{space}.*, db.e{space}",
        schema_evolution="add-columns",
        small_task_size_bytes=small,
    )
    expected: dict[str, dict[int, Row]] = defaultdict(dict)
    with mock.patch.object(routed, "WAITING_BYTES", waiting_bytes):
        for number, epoch in enumerate(feed):
            parts = [
                [{**row, "kind": row["kind"].replace("db.e", f"db.e{space}")} for row in part] for part in epoch.parts
            ]
            for part in parts:
                for row in part:
                    table = row["kind"] if "." in row["kind"] else f"{space}.{row['kind']}"
                    expected[table][row["id"]] = {column: row[column] for column in COLUMNS}
            for tables in epoch.deaths:
                try:
                    with dying_after(tables):
                        sink.commit(sink.write(*parts, epoch_id=number), number)
                except Died:
                    pass
            for _ in range(1 + epoch.is_repeated):
                sink.commit(sink.write(*parts, epoch_id=number), number)

    for table, rows in expected.items():
        found = sink.rows(table)
        assert {row["id"]: {column: row.get(column) for column in COLUMNS} for row in found} == rows
        assert len(found) == len(rows)
        filled = {column for row in rows.values() for column in COLUMNS if row[column] is not None}
        assert {column for column in found[0] if column != "id"} == filled
