"""The small commit that changes a table: two writers in fixed interleavings, and a failing catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyspark.sql import types as spark
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
from support.tables.sink import IDENTIFIER, SCHEMA, Sink, rows

from iceberg_ds.commit.alter import Propose, alter_table
from iceberg_ds.commit.retry import RetryPolicy
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    SchemaMismatchError,
)
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.schema_evolution import EvolutionPolicy, propose_request

pytestmark = pytest.mark.usefixtures("waits")

REFUSALS = [refusal, throttled]
LOST = [state_unknown, server_error, connection_lost, timed_out]
ALL = [*REFUSALS, *LOST, forbidden]
RETRIES = 3


def wanting(policy: EvolutionPolicy | None = None, **columns: spark.DataType) -> Propose:
    """Return what proposes to take a DataFrame with the table's columns, of which these are new or of other types."""
    merged = {field.name: field.dataType for field in SCHEMA} | columns
    dataframe = spark.StructType([spark.StructField(name, data_type) for name, data_type in merged.items()])
    policy = policy or EvolutionPolicy(mode="full")

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        return propose_request(dataframe, metadata, policy, table_name="db.t")

    return propose


def changing(sink: Sink, **columns: spark.DataType) -> Callable[[], None]:
    """Return what lets another writer change the table at once."""

    def change() -> None:
        alter_table(sink.catalog, IDENTIFIER, wanting(**columns))

    return change


def columns_of(sink: Sink) -> dict[str, tuple[int, str]]:
    """Return id and type of the table's columns by name."""
    return {field.name: (field.field_id, str(field.field_type)) for field in sink.table().schema().fields}


@pytest.fixture(autouse=True)
def _table(sink: Sink) -> None:
    """Have a table with an integer `n` and one row."""
    schema = spark.StructType([*SCHEMA, spark.StructField("n", spark.IntegerType())])
    sink.commit(sink.write([{"id": 1, "name": "row 1", "n": 5}], schema=schema))


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the table be tried `RETRIES` times again."""
    monkeypatch.setattr(RetryPolicy, "of", lambda _: RetryPolicy(num_retries=RETRIES))


def test_change_is_one_commit_and_the_table_is_returned_with_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows would be written for a schema that the table does not have."""
    with caplog.at_level(logging.INFO, logger="iceberg_ds.commit.alter"):
        table = alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == 1
    assert table.metadata == sink.table().metadata
    assert columns_of(sink) == {"id": (1, "long"), "name": (2, "string"), "n": (3, "int"), "new": (4, "long")}
    assert sink.rows() == [{"id": 1, "name": "row 1", "n": 5, "new": None}]
    assert "Changed table db.t, attempt 1" in caplog.text


def test_change_that_is_not_needed_asks_the_catalog_nothing(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """Every write would take another round trip, and conflict with every other one."""
    loaded = faulty_sink.table()
    before = faulty_catalog.loads

    table = alter_table(faulty_sink.catalog, IDENTIFIER, wanting(), loaded=loaded)

    assert table is loaded
    assert faulty_catalog.commits == 0
    assert faulty_catalog.loads == before


def test_two_writers_that_add_the_same_column_share_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The table would have the column twice, or one of the writers would fail."""
    faulty_catalog.before_commit(1, changing(sink, new=spark.LongType()))

    table = alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == 1
    assert columns_of(sink) == {"id": (1, "long"), "name": (2, "string"), "n": (3, "int"), "new": (4, "long")}
    assert len(table.metadata.schemas) == 2


def test_two_writers_that_add_different_columns_both_have_theirs(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """One of the columns would be lost, or both would share an id."""
    faulty_catalog.before_commit(1, changing(sink, theirs=spark.StringType()))

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(ours=spark.LongType()))

    assert faulty_catalog.commits == 2
    columns = columns_of(sink)
    assert columns["theirs"] == (4, "string")
    assert columns["ours"] == (5, "long")


def test_writer_that_widens_keeps_what_another_one_adds(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The column of the other writer would be lost."""
    faulty_catalog.before_commit(1, changing(sink, theirs=spark.StringType()))

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(n=spark.LongType()))

    assert columns_of(sink)["n"] == (3, "long")
    assert columns_of(sink)["theirs"] == (4, "string")


def test_writer_that_adds_keeps_what_another_one_widens(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The column would be narrowed again, below values that it holds."""
    faulty_catalog.before_commit(1, changing(sink, n=spark.LongType()))

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(n=spark.IntegerType(), ours=spark.LongType()))

    assert columns_of(sink)["n"] == (3, "long")
    assert columns_of(sink)["ours"] == (4, "long")


def test_writer_whose_column_another_one_adds_with_another_type_is_told_so(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The column would be there twice, or hold values of another type."""
    faulty_catalog.before_commit(1, changing(sink, new=spark.StringType()))

    with pytest.raises(SchemaMismatchError, match="column 'new' is bigint in the DataFrame and string in the table"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert columns_of(sink)["new"] == (4, "string")


def test_rows_that_come_meanwhile_do_not_hinder_a_change(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A busy table could never be changed."""

    def append() -> None:
        schema = spark.StructType([*SCHEMA, spark.StructField("n", spark.IntegerType())])
        sink.commit(sink.write([{**rows(2)[0], "n": 6}], schema=schema))

    faulty_catalog.before_commit(1, append)

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == 1
    assert [row["new"] for row in sink.rows()] == [None, None]


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", [*REFUSALS, *LOST])
@pytest.mark.parametrize("times", [1, RETRIES])
def test_failures_below_the_limit_end_with_the_change(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], times: int
) -> None:
    """A write would fail because the catalog hiccuped."""
    faulty_catalog.fail_next(times, error)

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == times + 1
    assert columns_of(sink)["new"] == (4, "long")


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", ALL)
@pytest.mark.parametrize("failures_before", [0, RETRIES])
def test_change_that_landed_in_spite_of_a_failure_is_not_made_again(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], failures_before: int
) -> None:
    """The column would be there twice, or a write would fail whose change has been made."""
    faulty_catalog.fail_next(failures_before, refusal)
    faulty_catalog.fail_next(1, error, when=When.AFTER)

    table = alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == failures_before + 1
    assert table.metadata.last_column_id == 4
    assert len(sink.table().metadata.schemas) == 2


@pytest.mark.usefixtures("few_retries")
def test_first_request_that_arrives_during_the_second_changes_the_table_once(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The column would be there twice because the network was slow."""
    sent: list[Any] = []
    real = faulty_catalog._inner.commit_table

    def slow(*request: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            raise TimeoutError("no answer")
        real(*sent[0])
        return real(*request)

    faulty_catalog._inner.commit_table = slow  # type: ignore[method-assign]  # the network, for once

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert columns_of(sink)["new"] == (4, "long")
    assert len(sink.table().metadata.schemas) == 2


@pytest.mark.usefixtures("few_retries")
def test_old_answer_of_a_cache_does_not_change_the_table_twice(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The column would be there twice because a cache in front of the catalog was slow."""
    before = sink.table()
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(before))

    table = alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == 2
    assert table.metadata == sink.table().metadata
    assert columns_of(sink)["new"] == (4, "long")


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", REFUSALS)
def test_refusals_up_to_the_limit_are_a_conflict(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """A user would wait for ever, or not know whether the table was changed."""
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitConflictError, match=f"Cannot change table db.t after {RETRIES + 1} attempts"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == RETRIES + 1
    assert "new" not in columns_of(sink)


def test_lasting_refusal_is_not_tried_again(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A write without the right to change the table would take minutes to fail, and blame other writers."""
    faulty_catalog.fail_next(999, forbidden)

    with pytest.raises(CatalogError, match=r"no right to write.*It stays as it is"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == 1


def test_refusal_that_was_about_an_older_table_is_tried_again(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A write would fail for good because of what another writer was just correcting."""
    faulty_catalog.before_commit(1, changing(sink, theirs=spark.StringType()))
    faulty_catalog.fail_next(1, forbidden)

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(ours=spark.LongType()))

    assert columns_of(sink)["ours"] == (5, "long")


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", LOST)
def test_lost_answers_up_to_the_limit_are_unknown(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """A user would take for unchanged what changes a moment later."""
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError, match=r"Whether table db\.t was changed is unknown"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))


@pytest.mark.usefixtures("few_retries")
def test_lost_requests_that_can_no_longer_land_are_a_conflict(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would look for a change that cannot come any more."""
    faulty_catalog.fail_next(1, timed_out)
    faulty_catalog.fail_next(999, refusal)
    faulty_catalog.after_commit(2, changing(sink, theirs=spark.StringType()))

    with pytest.raises(CommitConflictError, match="branch main has changed"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(ours=spark.LongType()))


def test_unreachable_catalog_is_reported_at_once_if_nothing_was_sent(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would wait half an hour for a wrong address."""
    faulty_catalog.fail_next_loads(999, timed_out)

    with pytest.raises(CatalogError, match=r"Cannot load table db\.t"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.loads == 1


@pytest.mark.usefixtures("few_retries")
def test_unreachable_catalog_after_a_request_is_asked_again(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A write would fail because the catalog was away for a moment."""
    faulty_catalog.fail_next_loads(RETRIES, timed_out, after=1)

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert columns_of(sink)["new"] == (4, "long")


@pytest.mark.usefixtures("few_retries")
def test_catalog_that_stays_unreachable_after_a_request_leaves_it_unknown(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would take for unchanged what was changed."""
    faulty_catalog.fail_next_loads(999, timed_out, after=1)
    faulty_catalog.fail_next(1, timed_out, when=When.AFTER)

    with pytest.raises(CommitStateUnknownError, match="Run the write again: it finds out"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))


def test_table_that_is_dropped_meanwhile_is_missed_by_name(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would be told of a conflict that goes away by waiting."""
    faulty_catalog.before_commit(1, lambda: sink.catalog._catalog.drop_table(IDENTIFIER))

    with pytest.raises(CommitStateUnknownError, match=r"table db\.t .* the catalog has no such table by now"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))


@pytest.mark.usefixtures("few_retries")
def test_writers_that_undo_each_others_changes_come_to_an_end(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Two writers would fill the table's metadata for ever."""
    dropping = EvolutionPolicy(mode="full", drop_missing_columns=True)

    def undo() -> None:
        alter_table(sink.catalog, IDENTIFIER, wanting(dropping, n=spark.IntegerType()))

    for number in range(1, 9):
        faulty_catalog.after_commit(number, undo)

    with pytest.raises(CommitConflictError, match="another writer has undone each change"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert faulty_catalog.commits == RETRIES + 1


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
def test_table_that_stays_out_of_date_after_the_change_is_not_a_conflict(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, ahead_ms: int
) -> None:
    """A user would be told that nothing was changed, and by whom, while the new column is there."""
    before = sink.table()
    later_ms = before.metadata.last_updated_ms + ahead_ms  # as the clock of its writer may be
    before.metadata = before.metadata.model_copy(update={"last_updated_ms": later_ms})
    faulty_catalog.fail_next(RETRIES, refusal)
    faulty_catalog.serve_stale(before, times=RETRIES + 2)

    with pytest.raises(CommitStateUnknownError, match="answers from an older state"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert "new" in sink.table().schema().column_names


def test_retries_follow_the_tables_own_policy(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float]
) -> None:
    """A user who forbids retries would not get what they asked for."""
    with sink.table().transaction() as change:
        change.set_properties({"commit.retry.num-retries": "1", "commit.retry.max-wait-ms": "14"})
    faulty_catalog.fail_next(999, refusal)

    with pytest.raises(CommitConflictError, match="after 2 attempts"):
        alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert len(waits) == 2
    assert max(waits) <= 0.014


@pytest.mark.usefixtures("waits")
def test_change_outlasts_as_many_lost_races_as_a_commit(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A stream could not start beside writers that its commits hold their own against."""
    faulty_catalog.fail_next(RetryPolicy().num_other_retries + 10, refusal)

    alter_table(faulty_sink.catalog, IDENTIFIER, wanting(new=spark.LongType()))

    assert columns_of(sink)["new"] == (4, "long")


def test_any_change_of_a_table_can_be_proposed(sink: Sink) -> None:
    """Partition specs and sort orders would need loops of their own."""

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        if metadata.properties.get("owner") == "me":
            return None
        return CommitRequest(
            requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
            updates=(SetPropertiesUpdate(updates={"owner": "me"}),),
        )

    assert alter_table(sink.catalog, IDENTIFIER, propose).properties["owner"] == "me"
