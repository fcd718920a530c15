"""Upkeep by Iceberg's own Spark runtime of tables that are written by key: beside a stream, and for other readers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import few
from support.keys.epochs import EPOCHS, LAYOUTS, check, expected, make, run
from support.keys.messages import keyed_tasks, plan_by_keys
from support.peer.jvm_peer import PeerError
from support.spark.process import wait_until
from support.tables.sink import Sink, epoch, local

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

# Each file is rewritten by a job of its own, one after the other, so that there is time for an epoch.
SLOWLY = "'rewrite-all', 'true', 'max-file-group-size-bytes', '1', 'max-concurrent-file-group-rewrites', '1'"
REWRITE = "'delete-file-threshold', '1'"


def compact_beside_an_epoch(shared: SharedCatalog, sink: Sink, layout: str, more: str) -> None:
    """Let a compaction begin, land the second epoch while it writes its files, and wait for its end."""
    plan = plan_by_keys(sink, delete_spec=LAYOUTS[layout][1], target_file_size_bytes=1)
    messages = keyed_tasks(plan, *EPOCHS[1], of_epoch=epoch(1))
    folder = local(sink.table().location())
    before = set(folder.rglob("*.parquet"))
    with ThreadPoolExecutor(1) as pool:
        compaction = pool.submit(shared.call, "rewrite_data_files", f"options => map({SLOWLY}{more})")
        wait_until(lambda: bool(set(folder.rglob("*.parquet")) - before), "the compaction writes")
        sink.commit(messages)
        compaction.result()


def operations(shared: SharedCatalog) -> list[str]:
    """Return what each snapshot did, in order."""
    return [row["operation"] for row in shared.metadata("snapshots", "committed_at, operation")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compaction_that_runs_beside_an_epoch_brings_nothing_back(shared: SharedCatalog, layout: str) -> None:
    """Rows that were deleted while a compaction ran would be there again, or no compaction end beside a stream."""
    sink = make(shared, layout)
    run(sink, layout, 0)

    compact_beside_an_epoch(shared, sink, layout, "")

    assert operations(shared) == ["overwrite", "overwrite", "replace"]
    check(shared, expected(2))
    run(sink, layout, 2)
    check(shared, expected(3))


@pytest.mark.parametrize("layout", few(1, LAYOUTS))
def test_compaction_with_new_sequence_numbers_is_refused_beside_an_epoch(shared: SharedCatalog, layout: str) -> None:
    """Files with numbers above those of deletes that landed meanwhile would bring the deleted rows back."""
    sink = make(shared, layout)
    run(sink, layout, 0)

    with pytest.raises(PeerError, match="Cannot commit rewrite"):
        compact_beside_an_epoch(shared, sink, layout, ", 'use-starting-sequence-number', 'false'")

    assert operations(shared) == ["overwrite", "overwrite"]
    check(shared, expected(2))


def delete_files(shared: SharedCatalog) -> list[Any]:
    """Return the kinds of delete files that the table has."""
    return [row["content"] for row in shared.metadata("delete_files", "content")]


@pytest.mark.parametrize("layout", few(1, LAYOUTS))
def test_rewriting_without_dangling_deletes_opens_the_table_to_every_reader(shared: SharedCatalog, layout: str) -> None:
    """Readers that refuse tables with equality deletes would refuse them after the upkeep that is to help, too."""
    sink = make(shared, layout)
    for number in range(len(EPOCHS)):
        run(sink, layout, number)
    assert {*delete_files(shared)} == {1, 2}

    shared.call("rewrite_data_files", f"options => map({REWRITE})")
    left = delete_files(shared)
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        sink.rows()
    check(shared, expected(3))
    shared.call("rewrite_data_files", f"options => map({REWRITE}, 'remove-dangling-deletes', 'true')")

    assert {*left} == {2}
    assert [list(row.values()) for row in sink.rows()] == expected(3)
    check(shared, expected(3))
    assert delete_files(shared) == []


@pytest.mark.parametrize("layout", few(1, LAYOUTS))
def test_one_rewriting_is_enough(shared: SharedCatalog, layout: str) -> None:
    """Users would have to rewrite a table twice before every reader reads it."""
    sink = make(shared, layout)
    for number in range(len(EPOCHS)):
        run(sink, layout, number)

    shared.call("rewrite_data_files", f"options => map({REWRITE}, 'remove-dangling-deletes', 'true')")

    assert delete_files(shared) == []
    assert [list(row.values()) for row in sink.rows()] == expected(3)
    check(shared, expected(3))
