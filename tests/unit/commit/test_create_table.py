"""The first snapshot of a table, which has no rows: its list stays as long as any request that names it may land."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.catalogs.faulty_catalog import FaultyCatalog, Strike, When, false_refusal, forbidden
from support.checks.invariants import check_sound, unreferenced_files
from support.faults.kinds import Effect, Kind, Way
from support.tables.changes_by_others import drop_branch, plain_catalog
from support.tables.sink import IDENTIFIER, Sink

from iceberg_ds.commit.create_table import with_first_snapshot

pytestmark = pytest.mark.usefixtures("waits")

ID_AND_NAME = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
NO_ANSWER = Kind(way=Way.RESET, effect=Effect.AT_LAST)


@pytest.fixture(autouse=True)
def _table(sink: Sink) -> None:
    """Have a table without a snapshot."""
    sink.create(ID_AND_NAME)


def begin(sink: Sink) -> None:
    """Give the table its first snapshot."""
    with_first_snapshot(sink.catalog, sink.options, sink.table())


def made_anew(sink: Sink) -> None:
    """DROP TABLE and CREATE TABLE, with a row."""
    location = sink.table().location()
    plain_catalog(sink).drop_table(IDENTIFIER)
    plain_catalog(sink).create_table(IDENTIFIER, ID_AND_NAME, location=location)
    sink.append(7)


@pytest.mark.parametrize("others", [lambda sink: drop_branch(sink, "main"), made_anew], ids=["replaced", "made anew"])
def test_request_that_comes_late_finds_its_list_whatever_others_did(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, others: Callable[[Sink], None]
) -> None:
    """A table would be unreadable for good: a request lands after a replacement, and its list was deleted."""
    faulty_catalog.begin(Strike(method="commit_table", number=1, kind=NO_ANSWER))
    faulty_catalog.after_commit(1, lambda: sink.append(1) and None)
    begin(faulty_sink)

    others(sink)
    faulty_catalog.deliver()

    check_sound(sink.table())


def test_confirmed_snapshot_keeps_its_list_though_a_cache_shows_another(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A table would be unreadable for good: what the catalog has confirmed would be taken for overtaken."""
    loaded = faulty_sink.table()

    def replaced() -> None:
        sink.append(1)
        faulty_catalog.serve_stale(sink.table())
        drop_branch(sink, "main")

    faulty_catalog.before_commit(1, replaced)

    with_first_snapshot(faulty_sink.catalog, faulty_sink.options, loaded)

    check_sound(sink.table())
    assert sink.rows() == []


def test_refusal_of_a_request_that_landed_keeps_its_list(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A table would be unreadable for good: somebody on the way sent the request twice."""
    before = sink.table()
    faulty_catalog.fail_next(1, false_refusal, when=When.AFTER)
    faulty_catalog.serve_stale(before, times=2)

    begin(faulty_sink)

    check_sound(sink.table())
    assert len(sink.table().metadata.snapshots) == 1


def test_refused_right_leaves_no_list_though_another_writer_was_first(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Files would be left that nobody knows of."""
    faulty_catalog.fail_next(1, forbidden)
    faulty_catalog.after_commit(1, lambda: sink.append(1) and None)

    begin(faulty_sink)

    assert unreferenced_files(sink.table()) == set()
