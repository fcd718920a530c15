"""Somebody reads all tables, again and again, while the driver that writes them is killed, again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from pyiceberg.table import Table
from support.exhaustive import EXHAUSTIVE
from support.programs.feed_writer import TABLES, feed
from support.tables.routed import RoutedSink

import iceberg_ds
from iceberg_ds.table.names import parse_identifier

EPOCHS = 8
CUTS = {"consistent_cut": "meta.cuts"}


def chances(seed: int) -> random.Random:
    """Return what decides by chance."""
    return random.Random(seed)  # noqa: S311  # not for secrets


@contextmanager
def polling(poll: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Read beside the block; yield what went wrong."""
    failures: list[BaseException] = []
    is_over = Event()

    def run() -> None:
        while not is_over.is_set():
            try:
                poll()
            except BaseException as failure:  # shown by the test
                failures.append(failure)
                return

    reader = Thread(target=run)
    reader.start()
    try:
        yield failures
    finally:
        is_over.set()
        reader.join()


def write_all(warehouse: Path, checkpoint: Path, chance: random.Random, *, is_together: bool, **options: str) -> int:
    """Write all epochs, by as many drivers as it takes; return how many died."""
    deaths = 0
    while not feed(warehouse, options, checkpoint, EPOCHS, steps=chance.randint(1, 120), is_together=is_together):
        deaths += 1
    return deaths


def epochs_in(table: Table | None, snapshot_id: int | None = None) -> list[int]:
    """Return the epochs whose rows a table has."""
    rows = None if table is None else table.scan(snapshot_id=snapshot_id).to_arrow()
    return [] if rows is None or not rows.num_rows else sorted(rows.column("id").to_pylist())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=EXHAUSTIVE) for seed in range(2, 8))])
def test_reader_never_sees_half_an_epoch_where_the_catalog_is_atomic(tmp_path: Path, seed: int) -> None:
    """What it reads later would lack an epoch that it has seen in a table which it has read before."""
    chance, sink = chances(seed), RoutedSink.of(tmp_path)
    seen: list[list[int]] = []

    def poll() -> None:
        order = chance.sample(TABLES, len(TABLES))
        found = [epochs_in(sink.catalog.reading_anew().find_table(("db", name))) for name in order]
        assert all(ids == list(range(len(ids))) for ids in found)
        assert [len(ids) for ids in found] == sorted(len(ids) for ids in found)
        seen.append([len(ids) for ids in found])

    with polling(poll) as failures:
        deaths = write_all(tmp_path, tmp_path / "checkpoint", chances(seed), is_together=True)

    assert failures == []
    assert deaths > 0
    assert len({number for found in seen for number in found}) > 2
    for name in TABLES:
        assert epochs_in(sink.catalog.find_table(("db", name))) == list(range(EPOCHS))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=EXHAUSTIVE) for seed in range(2, 8))])
def test_reader_of_cuts_never_sees_two_different_ones_where_tables_are_committed_singly(
    tmp_path: Path, seed: int
) -> None:
    """It would join orders with customers that are not there yet."""
    chance, sink = chances(seed), RoutedSink.of(tmp_path)
    options = {"warehouse": str(tmp_path), "consistent-cut": CUTS["consistent_cut"], "route-namespace": "db"}
    seen: list[int] = []

    def poll() -> None:
        cut = iceberg_ds.last_complete(options=options)
        if cut is None:
            return
        assert sorted(cut.snapshots) == [f"db.{name}" for name in TABLES]
        for name, snapshot_id in chance.sample(sorted(cut.snapshots.items()), len(cut.snapshots)):
            table = sink.catalog.reading_anew().load_table(parse_identifier(name))
            assert epochs_in(table, snapshot_id) == list(range(cut.epoch + 1)), name
        assert not seen or cut.epoch >= seen[-1]
        seen.append(cut.epoch)

    with polling(poll) as failures:
        deaths = write_all(tmp_path, tmp_path / "checkpoint", chances(seed), is_together=False, **CUTS)

    assert failures == []
    assert deaths > 0
    assert len(set(seen)) > 2
    cut = iceberg_ds.last_complete(options=options)
    assert cut is not None
    assert cut.epoch == EPOCHS - 1
