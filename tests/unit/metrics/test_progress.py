"""`progress`: Spark's word on a query beside the last commit, from the file or from the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.metrics.reports import report, write
from support.tables.sink import NAME, QUERY, Sink, epoch, rows

import iceberg_ds
from iceberg_ds.errors import OptionError, TableNotFoundError

THE_QUERY = UUID(QUERY)


@dataclass(frozen=True)
class Query:
    """A streaming query as Spark shows it."""

    id: UUID = THE_QUERY
    lastProgress: Mapping[str, Any] | None = None  # noqa: N815  # Spark's


class SourceProgress(dict[str, Any]):
    """A part of the progress as Spark shows it: a dictionary that cannot be made from its items."""

    def __init__(self, rows: int, batch: object) -> None:
        super().__init__(numInputRows=rows, observed=batch)


RUNNING = Query(lastProgress={"batchId": 7, "numInputRows": 5, "sources": [SourceProgress(5, THE_QUERY)]})


def test_report_in_the_file_is_shown_beside_sparks_progress(tmp_path: Path) -> None:
    """A user could not tell whether what Spark has read is in the table."""
    last = report(6, query_id=QUERY)
    write(tmp_path / "a", [report(5, query_id=QUERY), last, report(9, query_id="another")])
    found = iceberg_ds.progress(RUNNING, file=[tmp_path / "a", tmp_path / "none"])

    assert (found.query_id, found.source, found.report) == (QUERY, "file", last)
    assert (found.batch_id, found.number, found.snapshot_id) == (7, 6, 6)
    assert found.counts["added-records"] == 10
    assert json.loads(found.to_json())["spark"]["sources"] == [{"numInputRows": 5, "observed": QUERY}]


def test_query_that_upserts_each_batch_is_found_by_its_id(tmp_path: Path) -> None:
    """Streams by `foreachBatch`, whose commits bear the query's id as the application's name, would show nothing."""
    write(tmp_path / "a", [report(4, stream=QUERY, query_id=None)])

    assert iceberg_ds.progress(Query(), file=tmp_path / "a").number == 4


def test_newest_report_of_several_files_is_shown(tmp_path: Path) -> None:
    """A stream that moved to another file would show its last commit to the old one."""
    write(tmp_path / "old", [report(1, query_id=QUERY)])
    write(tmp_path / "new", [report(2, query_id=QUERY)])

    assert iceberg_ds.progress(Query(), file=[tmp_path / "new", tmp_path / "old"]).number == 2


def test_table_of_several_is_told_if_it_is_named(tmp_path: Path) -> None:
    """Who writes into several tables would see that of the cuts alone."""
    of_one = report(2, query_id=QUERY)
    write(tmp_path / "a", [of_one, report(3, query_id=QUERY, table="meta.cuts")])

    assert iceberg_ds.progress(Query(), file=tmp_path / "a").number == 3
    assert iceberg_ds.progress(Query(), file=tmp_path / "a", table="db.t").report == of_one


def test_table_tells_the_last_commit_where_no_file_is_seen(sink: Sink, warehouse: Path, tmp_path: Path) -> None:
    """A client of Spark Connect, who does not see the driver's files, would see no commit."""
    for number in range(3):
        sink.commit(sink.write(rows(number, number + 10), of_epoch=epoch(number)))
    sink.commit(sink.write(rows(99), of_epoch=epoch(8, "another")))
    options = {"warehouse": str(warehouse)}
    found = iceberg_ds.progress(RUNNING, options=options, table=NAME, file=tmp_path / "none")

    assert (found.source, found.number, found.report) == ("table", 2, None)
    assert (found.counts["added-records"], found.counts["total-records"]) == (2, 6)
    assert found.snapshot_id is not None
    assert iceberg_ds.progress(Query(id=UUID(int=1)), options=options, table=NAME).source is None


def test_query_without_a_commit_has_none(tmp_path: Path) -> None:
    """A query that has just begun would be an error."""
    found = iceberg_ds.progress(Query(), file=tmp_path / "none")

    assert (found.spark, found.source, found.batch_id, found.number) == (None, None, None, None)


def test_neither_file_nor_table_is_an_error() -> None:
    """A user would be told that nothing was committed."""
    with pytest.raises(OptionError, match="neither file nor table"):
        iceberg_ds.progress(Query())


def test_missing_table_is_an_error(tmp_path: Path) -> None:
    """A slip in the name would look like a query without a commit."""
    with pytest.raises(TableNotFoundError, match="does not exist"):
        iceberg_ds.progress(Query(), options={"warehouse": str(tmp_path)}, table=NAME)
