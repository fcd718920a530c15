"""Overwrites under a failing catalog: rows replaced once or not at all, and no file too many or too few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import DoubleType, LongType, StructField, StructType
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_clean, check_sound, unreferenced_files
from support.tables.regions import REGIONS, ids_by_region, in_region, partitioned, run
from support.tables.sink import Row, Sink, epoch, local, paths_of

from iceberg_ds.commit import retry
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError, RefusedRowsError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId

pytestmark = pytest.mark.usefixtures("waits", "few_retries")

RETRIES = 3
REFUSALS = [refusal, throttled]
LOST = [state_unknown, server_error, connection_lost, timed_out]
Rows = dict[str | None, list[int]]
BASE: Rows = {"EU": [1, 2, 3], "US": [4]}
# Kind of write, what it writes, what is there afterwards; the last one writes rows of a replaced file again.
WRITES: dict[str, tuple[list[Row], Rows]] = {
    "static": (in_region("EU", 9), {"EU": [9]}),
    "dynamic": (in_region("EU", 9), {"EU": [9], "US": [4]}),
    "where region = 'EU'": ([], {"US": [4]}),
    "where id in (2, 9)": (in_region("EU", 9), {"EU": [1, 3, 9], "US": [4]}),
}


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits be tried `RETRIES` times again."""
    monkeypatch.setattr(retry.RetryPolicy, "of", lambda _: retry.RetryPolicy(num_retries=RETRIES))


@pytest.fixture
def regions(sink: Sink) -> Sink:
    """Return a table partitioned by region with rows in two regions."""
    made = partitioned(sink)
    run(made, "append", [*in_region("EU", 1, 2, 3), *in_region("US", 4)])
    return made


@pytest.fixture(params=WRITES)
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of overwrite."""
    return str(request.param)


def planned(sink: Sink, kind: str, of_epoch: EpochId | None = None, **options: Any) -> list[TaskCommit]:
    """Run the task of an overwrite of that kind, and return its message."""
    rows, _ = WRITES[kind]
    plan = {"replace_where": kind.removeprefix("where ")} if kind.startswith("where") else {"overwrite_mode": kind}
    return sink.write_over(rows, schema=REGIONS, of_epoch=of_epoch, **plan, **options)


@pytest.mark.parametrize("trouble", [(error, when) for error in [*REFUSALS, *LOST] for when in When])
def test_failures_below_the_limit_end_with_the_rows_replaced_once(
    regions: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    kind: str,
    trouble: tuple[Callable[[], Exception], When],
) -> None:
    """Rows would be lost or doubled, or files left behind, because the catalog hiccuped."""
    error, when = trouble
    messages = planned(faulty_sink, kind)
    times = RETRIES if when is When.BEFORE else 1
    faulty_catalog.fail_next(times, error, when=when)

    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert ids_by_region(regions) == WRITES[kind][1]
    assert len(regions.table().metadata.snapshot_log) == 2
    check_clean(regions.table())
    assert faulty_catalog.commits == (1 if when is When.AFTER else times + 1)


@pytest.mark.parametrize("of_epoch", [None, epoch(5)], ids=["batch", "stream"])
def test_refusals_up_to_the_limit_leave_the_rows_and_no_file(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str, of_epoch: EpochId | None
) -> None:
    """A failed overwrite would leave files behind, or delete those that the table still needs."""
    messages = planned(faulty_sink, kind, of_epoch)
    faulty_catalog.fail_next(1, throttled)
    faulty_catalog.fail_next(999, refusal)

    with pytest.raises(CommitConflictError, match=f"after {RETRIES + 1} attempts.*Nothing was committed"):
        faulty_sink.commit(messages)

    assert ids_by_region(regions) == BASE
    check_clean(regions.table())


def test_lasting_refusal_is_not_tried_again(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """A user without the right to write would wait for minutes, and files be left behind."""
    messages = planned(faulty_sink, kind)
    faulty_catalog.fail_next(999, forbidden)

    with pytest.raises(CatalogError, match="administrator grant"):
        faulty_sink.commit(messages)

    assert faulty_catalog.commits == 1
    assert ids_by_region(regions) == BASE
    check_clean(regions.table())


@pytest.mark.parametrize("error", LOST)
def test_lost_answers_up_to_the_limit_delete_nothing(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str, error: Callable[[], Exception]
) -> None:
    """A late request would still land, and refer to files that are gone."""
    messages = planned(faulty_sink, kind)
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError, match="No files were deleted"):
        faulty_sink.commit(messages)

    assert ids_by_region(regions) == BASE
    check_sound(regions.table())
    assert len(unreferenced_files(regions.table())) >= len(paths_of(messages)) + RETRIES


def test_request_that_arrives_late_lands_with_all_its_files(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """The rows of a write whose state was unknown would be unreadable, and with them the table."""
    messages = planned(faulty_sink, kind)
    requests = []
    send = faulty_sink.catalog.send

    def remember(*request: object) -> object:
        requests.append(request)
        return send(*request)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(faulty_sink.catalog), "send", lambda _, *request: remember(*request))
        faulty_catalog.fail_next(999, timed_out)
        with pytest.raises(CommitStateUnknownError):
            faulty_sink.commit(messages)
    regions.catalog.send(*requests[0])  # type: ignore[arg-type]

    assert ids_by_region(regions) == WRITES[kind][1]
    check_sound(regions.table())


def test_another_write_outside_the_range_lets_the_next_attempt_keep_it(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows of a write that landed between two attempts would be lost."""
    messages = planned(faulty_sink, "dynamic")
    faulty_catalog.before_commit(1, lambda: run(regions, "append", in_region("US", 5)) and None)

    faulty_sink.commit(messages)

    assert ids_by_region(regions) == {"EU": [9], "US": [4, 5]}
    assert faulty_catalog.commits == 2
    check_clean(regions.table())


def test_rows_that_come_between_two_attempts_are_a_conflict_if_serializable(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """Rows that came after the first look would be dropped unseen."""
    messages = planned(faulty_sink, kind)
    faulty_catalog.before_commit(1, lambda: run(regions, "append", in_region("EU", 2)) and None)

    with pytest.raises(CommitConflictError, match=r"snapshot \d+ brought"):
        faulty_sink.commit(messages)

    assert ids_by_region(regions) == {"EU": [1, 2, 2, 3], "US": [4]}
    check_clean(regions.table())


def test_rows_that_come_between_two_attempts_are_kept_under_snapshot_isolation(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """Rows that came after the first look would be dropped unseen."""
    messages = planned(faulty_sink, kind, isolation_level="snapshot")
    faulty_catalog.before_commit(1, lambda: run(regions, "append", in_region("EU", 2)) and None)

    faulty_sink.commit(messages)

    after = WRITES[kind][1]
    assert ids_by_region(regions) == {**after, "EU": sorted([2, *after.get("EU", [])])}
    check_clean(regions.table())


def test_conflict_after_a_lost_answer_is_certain_because_the_branch_moved_on(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """Files would be left behind although the lost request can never land."""
    messages = planned(faulty_sink, kind)
    faulty_catalog.fail_next(1, connection_lost)
    faulty_catalog.after_commit(1, lambda: run(regions, "append", in_region("EU", 2)) and None)

    with pytest.raises(CommitConflictError, match="nothing was committed"):
        faulty_sink.commit(messages)

    check_clean(regions.table())


def test_conflict_after_a_lost_answer_is_certain_once_the_request_can_no_longer_land(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would be left in doubt, and files left behind, although the request is refused whenever it arrives.

    Its branch is still missing, as the request asserts; but its sequence number was taken meanwhile.
    """
    messages = planned(faulty_sink, "where id in (2, 9)", branch="audit", create_branch=True)
    faulty_catalog.fail_next(1, connection_lost)
    faulty_catalog.after_commit(1, lambda: run(regions, "append", in_region("EU", 2)) and None)

    with pytest.raises(CommitConflictError, match="nothing was committed"):
        faulty_sink.commit(messages)

    assert not any(path.exists() for path in paths_of(messages))
    check_clean(regions.table())


def test_files_of_superseded_attempts_are_deleted_after_landing(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Each lost race would leave manifests and rewritten files behind."""
    messages = planned(faulty_sink, "where id in (2, 9)", isolation_level="snapshot")
    for number in (1, 2):
        faulty_catalog.before_commit(number, lambda: run(regions, "append", in_region("EU", 2)) and None)

    faulty_sink.commit(messages)

    assert faulty_catalog.commits == 3
    assert ids_by_region(regions) == {"EU": [1, 2, 2, 3, 9], "US": [4]}
    check_clean(regions.table())


def test_file_that_is_not_replaced_any_more_after_a_lost_race_leaves_no_rewritten_copy(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A conflict between two attempts would leave rewritten rows behind."""
    messages = planned(faulty_sink, "where id in (2, 9)")
    faulty_catalog.before_commit(1, lambda: run(regions, "dynamic", in_region("EU", 7)) and None)

    with pytest.raises(CommitConflictError, match="was removed by another writer"):
        faulty_sink.commit(messages)

    assert ids_by_region(regions) == {"EU": [7], "US": [4]}
    check_clean(regions.table())


def test_partly_replaced_file_is_written_again_once_for_all_attempts(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lost race would read and write the same rows anew."""
    messages = planned(faulty_sink, "where id in (2, 9)")
    faulty_catalog.fail_next(RETRIES, refusal)
    written = []
    new_output = LocalFileIO.new_output

    def note(io: LocalFileIO, location: str) -> object:
        written.append(location)
        return new_output(io, location)

    monkeypatch.setattr(LocalFileIO, "new_output", note)

    faulty_sink.commit(messages)

    assert len([path for path in written if path.endswith(".parquet")]) == 1
    assert ids_by_region(regions) == WRITES["where id in (2, 9)"][1]


def test_unreachable_storage_while_rewriting_is_tried_again(
    regions: Sink, faulty_sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage hiccup while rows are written again would fail the write, or leave half a file."""
    messages = planned(faulty_sink, "where id in (2, 9)")
    new_input, failures = LocalFileIO.new_input, [OSError("slow down")] * 2

    def fail_first(io: LocalFileIO, location: str) -> object:
        if location.endswith(".parquet") and failures:
            raise failures.pop()
        return new_input(io, location)

    monkeypatch.setattr(LocalFileIO, "new_input", fail_first)

    faulty_sink.commit(messages)

    assert failures == []
    assert ids_by_region(regions) == WRITES["where id in (2, 9)"][1]
    check_clean(regions.table())


def test_lost_data_file_fails_a_partial_overwrite_and_leaves_nothing(regions: Sink, faulty_sink: Sink) -> None:
    """Rows that cannot be read would silently be dropped with the replaced ones."""
    messages = planned(faulty_sink, "where id in (2, 9)")
    folder = local(regions.table().location()) / "data" / "region=EU"
    old = [path for path in folder.iterdir() if path not in paths_of(messages)]
    for path in old:
        path.rename(path.with_suffix(".hidden"))

    with pytest.raises(CommitConflictError, match="Nothing was committed"):
        faulty_sink.commit(messages)

    for path in old:
        path.with_suffix(".hidden").rename(path)
    assert ids_by_region(regions) == BASE
    check_clean(regions.table())


@pytest.mark.parametrize("when", When)
def test_epoch_that_replaces_is_recorded_and_skipped_when_it_comes_again(
    regions: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str, when: When
) -> None:
    """A restarted stream would replace rows that came after its epoch."""
    faulty_catalog.fail_next(1, connection_lost, when=when)
    faulty_sink.commit(planned(faulty_sink, kind, epoch(5)))
    run(regions, "append", in_region("EU", 100))
    again = planned(regions, kind, epoch(5))

    result = regions.commit(again)

    assert result.was_replayed
    assert 100 in ids_by_region(regions)["EU"]
    check_clean(regions.table())


def test_each_epoch_of_a_complete_stream_replaces_the_one_before(regions: Sink) -> None:
    """Totals of every micro-batch would pile up."""
    for number in range(3):
        messages = regions.write_over(in_region("EU", number), schema=REGIONS, of_epoch=epoch(number))
        regions.commit(messages)

    assert ids_by_region(regions) == {"EU": [2]}
    check_clean(regions.table())


def test_rows_outside_the_range_are_refused_in_every_attempt_of_an_epoch(regions: Sink) -> None:
    """A stream whose rows do not fit its range would add them at the next restart."""
    for _ in range(2):
        messages = regions.write_over(
            in_region("US", 5), schema=REGIONS, of_epoch=epoch(5), replace_where="region = 'EU'"
        )
        with pytest.raises(RefusedRowsError, match="1 rows do not satisfy replace-where"):
            regions.commit(messages)

    assert ids_by_region(regions) == BASE
    check_clean(regions.table())


def test_retry_after_a_conflict_replaces_what_is_there_then(regions: Sink, kind: str) -> None:
    """Running a refused job again, as the error says, would fail or double rows."""
    messages = planned(regions, kind)
    run(regions, "append", in_region("EU", 2))
    with pytest.raises(CommitConflictError, match="Run the write again"):
        regions.commit(messages)

    regions.commit(planned(regions, kind))

    assert ids_by_region(regions) == WRITES[kind][1]
    check_clean(regions.table())


def test_partitions_of_zeros_are_replaced_by_their_sign(sink: Sink) -> None:
    """Rows of -0.0 would go when those of 0.0 are replaced, which are another partition for all other writers."""
    schema = StructType([StructField("id", LongType()), StructField("x", DoubleType())])
    table = partitioned(sink, "x")
    table.commit(table.write([{"id": 1, "x": -0.0}, {"id": 2, "x": 0.0}, {"id": 3, "x": math.nan}], schema=schema))

    table.overwrite([{"id": 4, "x": 0.0}, {"id": 5, "x": math.nan}], schema=schema, overwrite_mode="dynamic")

    assert [(row["id"], str(row["x"])) for row in table.rows()] == [(1, "-0.0"), (4, "0.0"), (5, "nan")]
