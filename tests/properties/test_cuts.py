"""Any epochs with deaths at any step: the last cut is what a dictionary of tables says, and never goes back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exhaustive import examples
from support.tables.routed import RoutedSink

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.table.names import parse_identifier

_numbers = itertools.count()
NAMES = ("a", "b", "c")
# The steps of the committer from the first table to the record of the cut.
STEPS = (
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.LANDED,
    FaultPoint.SKIPPED,
    FaultPoint.CUT_BEGUN,
    FaultPoint.CUT_TAGGED,
)
Model = Mapping[str, tuple[int, ...]]


class Died(BaseException):
    """The driver is gone."""


@contextmanager
def dying_at(step: FaultPoint, time: int) -> Iterator[None]:
    """Let the driver die when it comes to a step for the nth time."""
    reached = itertools.count(1)

    def act(point: FaultPoint) -> None:
        if point is step and next(reached) == time:
            raise Died

    listen(act)
    try:
        yield
    except Died:
        pass
    finally:
        listen(None)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the warehouse of all examples; each has a namespace of its own."""
    return tmp_path_factory.mktemp("cuts")


@pytest.mark.usefixtures("waits")
@settings(max_examples=examples(15))
@given(
    epochs=st.lists(
        st.tuples(
            st.sets(st.sampled_from(NAMES), min_size=1),
            st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 4)), max_size=2),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
    way=st.sampled_from(["together", "one by one"]),
)
def test_last_cut_is_always_one_of_whole_epochs(
    warehouse: Path, epochs: list[tuple[set[str], list[tuple[FaultPoint, int]], bool]], way: str
) -> None:
    """A reader would join tables of different epochs, go back to an older one, or get snapshots that it cannot read."""
    space = f"n{next(_numbers)}"
    sink = RoutedSink.of(warehouse, route_namespace=space, consistent_cut=f"{space}_meta.cuts")
    reader = Reader(sink=sink, options={"warehouse": str(warehouse), "consistent-cut": f"{space}_meta.cuts"})
    patch = pytest.MonkeyPatch()
    if way == "one by one":
        patch.setattr(CatalogClient, "takes_many_tables", False)
    expected: dict[str, tuple[int, ...]] = {}
    with patch.context():
        for number, (names, deaths, is_repeated) in enumerate(epochs):
            rows = [{"kind": name, "id": number} for name in sorted(names)]
            expected = {
                **expected,
                **{f"{space}.{name}": (*expected.get(f"{space}.{name}", ()), number) for name in names},
            }
            reader.models[number] = expected
            for step, time in deaths:
                with dying_at(step, time):
                    sink.append(*rows, epoch_id=number)
                reader.look(at_least=number - 1)
            for _ in range(1 + is_repeated):
                sink.append(*rows, epoch_id=number)
                reader.look(at_least=number)
    patch.undo()


class Reader:
    """Looks at the last complete cut again and again, and compares it with what the epochs wrote.

    Attributes:
        models: The ids that each table has after each epoch.
    """

    def __init__(self, sink: RoutedSink, options: Mapping[str, str]) -> None:
        self.models: dict[int, Model] = {}
        self._sink = sink
        self._options = options
        self._seen: dict[int, iceberg_ds.Cut] = {}

    def look(self, *, at_least: int) -> None:
        """Ask for the cut, and read each of its snapshots."""
        cut = iceberg_ds.last_complete(options=self._options)
        if cut is None:
            assert at_least < 0
            assert not self._seen
            return
        assert cut.epoch >= max(at_least, *self._seen, -1)
        assert self._seen.setdefault(cut.epoch, cut) == cut
        found = {}
        for name, snapshot_id in cut.snapshots.items():
            table = self._sink.catalog.load_table(parse_identifier(name))
            found[name] = tuple(sorted(table.scan(snapshot_id=snapshot_id).to_arrow().column("id").to_pylist()))
            assert any(ref.snapshot_id == snapshot_id and name != "main" for name, ref in table.refs().items())
        assert found == self.models[cut.epoch]
