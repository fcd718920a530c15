"""`transaction` without Spark: all tables or none, each exactly once, and no file of what failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.checks.reader import listed
from support.keys.conversions import meanwhile
from support.spark.local_frame import LocalFrame, without_moving_rows
from support.tables.shop import (
    APP_ID,
    COLUMNS,
    CUSTOMERS,
    ORDERS,
    PRICES,
    TABLES,
    Shop,
    epoch_of,
    frame,
    rows_after,
)

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.deletes import search
from iceberg_ds.errors import (
    CommitConflictError,
    DataFileError,
    OptionError,
    RefusedRowsError,
    SchemaMismatchError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.spark import write_job

pytestmark = pytest.mark.usefixtures("waits", "_rows_stay")
NOTHING = dict.fromkeys(TABLES, 0)
# How the tables are committed, as fixtures.
WAYS = ("together", "one_by_one")


@pytest.fixture
def _rows_stay() -> Iterator[None]:
    """Let the rows of the frames stay in their tasks."""
    with without_moving_rows():
        yield


@pytest.fixture
def shop(warehouse: Path) -> Shop:
    """Return the tables of a shop, none of which exists yet."""
    return Shop(folder=warehouse)


@pytest.fixture
def together(catalog: CatalogClient) -> None:
    """Let the tables be committed by one request, as the embedded catalog takes it."""
    assert catalog.takes_many_tables


def raising_at(point: FaultPoint, time: int) -> Callable[[FaultPoint], None]:
    """Return a listener that ends the process, as far as its code can tell, when it comes to a point again."""
    left = time

    def act(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is point
        if reached is point and left == 0:
            raise KeyboardInterrupt

    return act


def test_tables_get_their_rows_at_the_end_of_the_block(shop: Shop) -> None:
    """Readers would see orders of customers that are not there yet."""
    shop.run(0)
    before = shop.rows()

    with shop.begin(1) as epoch:
        shop.write(epoch, 1)
        assert shop.rows() == before == rows_after([0])

    assert shop.rows() == rows_after([0, 1])
    assert shop.snapshots() == dict.fromkeys(TABLES, 2)
    shop.check_tidy()


def test_several_tables_are_created_at_once(shop: Shop) -> None:
    """The first epoch would need tables that somebody else has made."""
    with shop.begin() as epoch:
        shop.write(epoch, 0)
        assert not any(shop.house.has_table(table) for table in TABLES)

    assert shop.rows() == rows_after([0])
    assert shop.house.table(CUSTOMERS).schema().identifier_field_ids == [1]


def test_result_tells_what_became_of_each_table(shop: Shop) -> None:
    """A job could not log, or check, what it did."""
    shop.run(0)
    result = shop.run(1)

    orders, customers, prices = result.tables
    assert [found.table for found in result.tables] == [*TABLES]
    assert (orders.rows, customers.rows, customers.replaced_rows, prices.rows) == (4, 3, 2, 2)
    for found in result.tables:
        assert found.snapshot_id == shop.house.table(found.table).metadata.current_snapshot_id
    assert not result.was_replayed
    assert json.loads(result.to_json())["tables"][1]["replaced_rows"] == 2
    assert "shop.customers: 3 rows in place of 2, snapshot" in str(result)


def test_block_that_raises_leaves_nothing(shop: Shop) -> None:
    """Half an epoch would be committed, or files would be left that nobody deletes."""

    def fail(number: int) -> None:
        with shop.begin(number) as epoch:
            shop.write(epoch, number)
            assert len(shop.data_files()) > len(before)
            raise ZeroDivisionError

    before: set[Path] = set()
    with pytest.raises(ZeroDivisionError):
        fail(0)
    assert shop.data_files() == before
    assert shop.snapshots() == NOTHING
    shop.run(0)
    before = shop.data_files()
    with pytest.raises(ZeroDivisionError):
        fail(1)

    assert shop.data_files() == before
    assert shop.rows() == rows_after([0])
    shop.check_tidy()


def test_line_that_fails_dooms_the_block_that_handles_its_error(shop: Shop) -> None:
    """Half an epoch would be committed by a block that logs errors and goes on."""
    wrong = LocalFrame(parts=[[{"id": "x"}]], schema=StructType([StructField("id", StringType())]))
    shop.run(0)
    before = shop.data_files()

    with pytest.raises(SchemaMismatchError, match="column 'id'"), shop.begin(1) as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(frame(ORDERS, [(77, 7)]), ORDERS)
        with pytest.raises(SchemaMismatchError):
            epoch.append(wrong, CUSTOMERS)  # type: ignore[arg-type]  # a frame of ours

    assert shop.rows() == rows_after([0])
    assert shop.data_files() == before
    with pytest.raises(OptionError, match="has failed"):
        _ = epoch.result


def test_task_that_fails_leaves_no_file_of_any_line(shop: Shop) -> None:
    """A full disk would fill further with files that nobody deletes."""
    required = StructType([StructField("id", LongType()), StructField("name", StringType())])
    shop.run(0)
    before = shop.data_files()
    null = LocalFrame(parts=[[{"id": 8, "name": "x"}], [{"id": None, "name": "y"}]], schema=required)

    with pytest.raises(SchemaMismatchError, match="null"), shop.begin(1) as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(frame(ORDERS, [(77, 7)]), ORDERS)
        epoch.append(null, CUSTOMERS)  # type: ignore[arg-type]  # a frame of ours

    assert shop.data_files() == before
    assert shop.rows() == rows_after([0])


def test_rows_outside_the_replaced_range_fail_their_line(shop: Shop) -> None:
    """All other lines would run in vain, and the traceback would not show the one that is wrong."""
    shop.run(0)
    before, went_on = shop.data_files(), False

    with pytest.raises(RefusedRowsError, match="replace-where"), shop.begin(1) as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(frame(ORDERS, [(77, 7)]), ORDERS)
        epoch.overwrite(frame(PRICES, [(1, 10), (2, 20)]), PRICES, replace_where="day = 1")
        went_on = True

    assert not went_on
    assert shop.data_files() == before
    assert shop.rows() == rows_after([0])


@pytest.mark.parametrize(
    ("point", "time"), [(FaultPoint.MANIFESTS_WRITTEN, 2), (FaultPoint.COMMITTED, 1), (FaultPoint.COMMITTED, 3)]
)
@pytest.mark.parametrize("way", WAYS)
def test_epoch_that_ends_between_tables_is_finished_by_its_repetition(
    shop: Shop, request: pytest.FixtureRequest, way: str, point: FaultPoint, time: int
) -> None:
    """Tables would have the rows of an epoch twice, or not at all, after a crash."""
    request.getfixturevalue(way)
    shop.run(0)
    listen(raising_at(point, time))
    with pytest.raises(KeyboardInterrupt):
        shop.run(1)
    listen(None)

    shop.run(1)
    again = shop.run(1)

    assert shop.rows() == rows_after([0, 1])
    assert shop.snapshots() == dict.fromkeys(TABLES, 2)
    assert again.was_replayed
    assert shop.run(2).was_replayed is False
    assert shop.rows() == rows_after([0, 1, 2])


def test_repeated_epoch_runs_no_job_for_tables_that_have_it(shop: Shop) -> None:
    """Each restart would write everything again, to delete it."""
    with shop.begin(1) as epoch:
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
    orders, prices = frame(ORDERS, [(1, 1)]), frame(PRICES, [(1, 1)])

    with shop.begin(1) as epoch:
        epoch.append(orders, ORDERS)
        epoch.append(prices, PRICES)

    assert (orders.jobs, prices.jobs) == ([], [2])
    assert [found.was_replayed for found in epoch.result.tables] == [True, False]
    assert "shop.orders has this version already" in str(epoch.result)
    assert (shop.rows_of(ORDERS), shop.rows_of(PRICES)) == ([(1, 1)], [(1, 1)])


def test_numbers_of_another_application_do_not_count(shop: Shop) -> None:
    """A second stream into the same tables would lose its first epochs."""
    shop.run(5)
    options = shop.house.options

    with iceberg_ds.transaction(options=options, app_id="another", version=1) as epoch:
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)

    assert (1, 1) in shop.rows_of(ORDERS)


def test_transaction_without_a_number_writes_each_time(shop: Shop) -> None:
    """A batch that says nothing of numbers would be taken for a repetition."""
    for _ in range(2):
        with shop.begin() as epoch:
            epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)

    assert shop.rows_of(ORDERS) == [(1, 1), (1, 1)]


def test_empty_transaction_commits_nothing(shop: Shop) -> None:
    """A quiet epoch would fail."""
    with shop.begin(0) as epoch:
        pass

    assert epoch.result.tables == ()
    assert not epoch.result.was_replayed
    assert str(epoch.result).startswith("Nothing to commit")


def test_dataframe_without_tasks_makes_its_table(shop: Shop) -> None:
    """The first epoch of a quiet table would fail all tables."""
    empty = {table: LocalFrame(parts=[], schema=columns) for table, columns in COLUMNS.items()}

    with shop.begin() as epoch:
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
        epoch.upsert(empty[CUSTOMERS], CUSTOMERS, keys=["id"])  # type: ignore[arg-type]  # a frame of ours
        epoch.append(empty[PRICES], PRICES)  # type: ignore[arg-type]  # a frame of ours

    assert shop.snapshots() == {ORDERS: 1, CUSTOMERS: 0, PRICES: 0}
    assert [found.rows for found in epoch.result.tables] == [1, 0, 0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("encoding", ["position", "copy-on-write"])
def test_rows_that_came_after_the_search_give_way(
    shop: Shop, request: pytest.FixtureRequest, way: str, encoding: str
) -> None:
    """A key would have two rows: that of the epoch, and that of somebody who committed a moment before."""
    request.getfixturevalue(way)
    shop.run(0)
    brought = epoch_of(1)

    def others() -> None:
        rows = frame(CUSTOMERS, [(1, "other"), (9, "other")])
        iceberg_ds.upsert(rows, CUSTOMERS, keys="id", options=shop.house.options)

    with meanwhile(FaultPoint.COMMIT_BEGUN, others), shop.begin(1) as epoch:
        epoch.append(frame(ORDERS, brought[ORDERS]), ORDERS)
        epoch.upsert(frame(CUSTOMERS, brought[CUSTOMERS]), CUSTOMERS, keys="id", options={"delete-encoding": encoding})

    assert shop.rows_of(CUSTOMERS) == [*rows_after([0, 1])[CUSTOMERS], (9, "other")]
    assert shop.rows_of(ORDERS) == rows_after([0, 1])[ORDERS]
    assert shop.snapshots()[ORDERS] == 2
    assert listed(shop.house.table(CUSTOMERS))[DataFileContent.EQUALITY_DELETES] == []
    shop.check_tidy()


def test_upsert_that_others_never_let_through_fails_and_leaves_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would search for ever, or leave its files behind."""
    shop.run(0)
    monkeypatch.setattr("iceberg_ds.deletes.upsert.ROUNDS", 2)
    numbers = iter(range(100))

    def others() -> None:
        rows = frame(CUSTOMERS, [(1, f"other {next(numbers)}")])
        iceberg_ds.upsert(rows, CUSTOMERS, keys="id", options=shop.house.options)

    with (
        meanwhile(FaultPoint.TABLE_LOADED, others, times=9),
        pytest.raises(CommitConflictError, match="in 2 tries"),
        shop.begin() as epoch,
    ):
        epoch.upsert(frame(CUSTOMERS, epoch_of(1)[CUSTOMERS]), CUSTOMERS, keys="id")

    assert next(name for number, name in shop.rows_of(CUSTOMERS) if number == 1).startswith("other")
    shop.check_tidy()


def test_search_that_fails_leaves_no_file_of_any_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables before it would be committed, or their files left behind."""
    shop.run(0)
    before = shop.data_files()

    def fail(*_: object) -> None:
        raise DataFileError("no space left")

    monkeypatch.setattr(search, "resolve", fail)

    with pytest.raises(DataFileError, match="no space left"):
        shop.run(1)

    assert shop.data_files() == before
    assert shop.rows() == rows_after([0])
    shop.check_tidy()


def test_append_by_key_takes_the_place_of_old_rows(shop: Shop) -> None:
    """A change feed that is appended in a transaction would double the rows of its keys."""
    shop.run(0)

    with shop.begin(1) as epoch:
        epoch.append(frame(CUSTOMERS, epoch_of(1)[CUSTOMERS]), CUSTOMERS, options={"keys": "id"})
        epoch.append(frame(ORDERS, epoch_of(1)[ORDERS]), ORDERS)

    assert shop.rows_of(CUSTOMERS) == rows_after([0, 1])[CUSTOMERS]
    assert listed(shop.house.table(CUSTOMERS))[DataFileContent.EQUALITY_DELETES]


def test_overwrites_replace_what_they_name(shop: Shop) -> None:
    """Rows of other partitions would go, or old rows would stay."""
    with shop.begin() as epoch:
        for table in TABLES:
            column = COLUMNS[table].names[0]
            epoch.append(frame(table, epoch_of(0)[table]), table, options={"partition-by": column})

    with shop.begin() as epoch:
        epoch.overwrite(frame(ORDERS, [(1, 9)]), ORDERS)
        epoch.overwrite(frame(PRICES, [(5, 1)]), PRICES, options={"overwrite-mode": "dynamic"})
        epoch.overwrite(frame(CUSTOMERS, [(0, "new")]), CUSTOMERS, options={"replace-where": "id = 0"})

    assert shop.rows_of(ORDERS) == [(1, 9)]
    assert shop.rows_of(PRICES) == [(0, 0), (0, 1), (5, 1)]
    assert shop.rows_of(CUSTOMERS) == [(0, "new"), *epoch_of(0)[CUSTOMERS][1:]]


@pytest.mark.parametrize("again", ["shop.orders", "`shop`.orders", "orders"])
def test_second_write_of_a_table_is_refused(shop: Shop, again: str) -> None:
    """One of the two would be taken for a repetition of the other, and its rows be lost."""
    with pytest.raises(OptionError, match=r"to shop\.orders twice in one"), shop.begin(0) as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
        epoch.append(frame(ORDERS, [(2, 2)]), again, options={"namespace": "shop"})

    assert shop.snapshots() == NOTHING
    assert shop.data_files() == set()


@pytest.mark.parametrize("is_first", [True, False])
def test_quarantine_table_of_a_line_takes_no_rows_of_another(shop: Shop, *, is_first: bool) -> None:
    """An overwrite would take away rows that could not be written, and a repetition not write them again."""
    keeping = {"on-bad-row": "quarantine", "quarantine-table": PRICES}
    lines = [(ORDERS, keeping), (PRICES, {})]
    with pytest.raises(OptionError, match=r"to shop\.prices in this transaction: it is the quarantine table"):  # noqa: PT012, SIM117  # the block is what fails
        with shop.begin(0) as epoch:
            for table, options in lines if is_first else lines[::-1]:
                epoch.append(frame(table, [(1, 1)]), table, options=options)

    assert shop.snapshots() == NOTHING


def test_arguments_of_another_type_are_refused_by_name(shop: Shop) -> None:
    """A library would say what it expects, deep inside."""
    with pytest.raises(OptionError, match="Cannot begin a transaction: app_id is 5, expected a text or None"):
        iceberg_ds.transaction(app_id=5, version=1)  # type: ignore[arg-type]  # as a user might
    with pytest.raises(OptionError, match=r"append to shop\.orders: its rows are a list, expected a DataFrame"):  # noqa: SIM117
        with shop.begin(0) as epoch:
            epoch.append([(1, 1)], ORDERS)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"upsert into shop\.orders: keys is 5, expected names of columns"):  # noqa: SIM117
        with shop.begin(0) as epoch:
            epoch.upsert(frame(ORDERS, [(1, 1)]), ORDERS, keys=5)  # type: ignore[arg-type]


def test_table_under_another_name_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogs that heed no case would have one table written twice under one number."""
    shop.run(0)
    find = CatalogClient.find_table
    monkeypatch.setattr(CatalogClient, "find_table", lambda own, name: find(own, [level.lower() for level in name]))

    with pytest.raises(OptionError, match="twice in one transaction"), shop.begin(1) as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
        epoch.append(frame(ORDERS, [(2, 2)]), "shop.Orders")

    assert shop.rows() == rows_after([0])


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "another catalog": ({"warehouse": "elsewhere"}, "another catalog"),
    "a number of its own": ({"txn-version": "7"}, r"txn-version in a transaction: .* Give app_id and version"),
    "staging": ({"staging-branch": "audit"}, r"'staging-branch' would show .* iceberg_ds\.publish"),
    "conversion": ({"publish-converted": "true", "keys": "id"}, "'publish-converted' would show"),
    "unknown": ({"write-modus": "x"}, "unknown option 'write-modus'"),
    "another table": ({"table": "shop.prices"}, "Cannot tell which table is meant"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_option_that_does_not_fit_is_refused(
    shop: Shop, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be passed over, or the tables would not be shown together."""
    monkeypatch.chdir(tmp_path)  # where the other catalog's relative warehouse is made
    options, told = REFUSED[name]

    with pytest.raises(OptionError, match=told), shop.begin() as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(frame(PRICES, [(1, 1)]), PRICES)
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS, options=options)

    assert shop.data_files() == set()


def test_options_of_a_line_win_over_those_of_all(shop: Shop) -> None:
    """A table could not have another layout than the others."""
    with shop.begin(partition_by="id") as epoch:
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
        epoch.append(frame(PRICES, [(1, 1)]), PRICES, options={"Partition-By": "day"})

    assert [str(shop.house.table(table).spec().fields[0].name) for table in (ORDERS, PRICES)] == ["id", "day"]


def test_stream_is_refused_with_the_way_that_works(shop: Shop) -> None:
    """A user would meet an error of Spark's that does not say what to do."""
    stream: Any = LocalFrame(parts=[], schema=COLUMNS[ORDERS], isStreaming=True)

    with pytest.raises(OptionError, match=r"the DataFrame is a stream.*foreachBatch"), shop.begin() as epoch:
        epoch.append(stream, ORDERS)


def test_number_without_an_application_needs_a_query(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of two queries would be taken for each other's."""
    with (
        pytest.raises(OptionError, match="no app_id"),
        iceberg_ds.transaction(options=shop.house.options, version=1) as epoch,
    ):
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)

    monkeypatch.setattr("iceberg_ds.multi_table.transaction.query_id_of", lambda _: APP_ID)
    with iceberg_ds.transaction(options=shop.house.options, version=1) as epoch:
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
    with shop.begin(1) as epoch:
        epoch.append(frame(ORDERS, [(2, 2)]), ORDERS)

    assert epoch.result.was_replayed


def test_application_without_a_number_is_refused() -> None:
    """A user would rely on a marker that is not written."""
    with pytest.raises(OptionError, match="there is no version"):
        iceberg_ds.transaction(app_id="cdc")
    with pytest.raises(OptionError, match="txn-app-id, txn-version in a transaction"):
        iceberg_ds.transaction(options={"txn-app-id": "cdc", "TXN-VERSION": "1"})


def test_writes_outside_of_the_block_are_refused(shop: Shop) -> None:
    """Rows would be written that nothing commits."""
    epoch = shop.begin()
    with pytest.raises(OptionError, match="has not begun, or has ended"):
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
    with pytest.raises(OptionError, match="has not ended"), epoch:
        _ = epoch.result
    with pytest.raises(OptionError, match="has not begun, or has ended"):
        epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
    with pytest.raises(OptionError, match="twice"), epoch:
        pass

    assert shop.data_files() == set()


def test_line_that_runs_when_the_block_ends_is_not_forgotten(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a thread that nobody waited for would be missing, and no error would say so."""
    epoch, original = shop.begin(1), write_job.run_job

    def end_meanwhile(*arguments: Any) -> Any:
        with pytest.raises(OptionError, match="still being written"):
            epoch.__exit__(None, None, None)
        return original(*arguments)

    epoch.__enter__()
    epoch.append(frame(ORDERS, [(1, 1)]), ORDERS)
    monkeypatch.setattr(write_job, "run_job", end_meanwhile)

    with pytest.raises(OptionError, match="the block ended while its rows"):
        epoch.append(frame(PRICES, [(1, 1)]), PRICES, options={"small-task-size-bytes": "0"})

    assert shop.snapshots() == NOTHING
    assert shop.data_files() == set()


def test_task_that_reports_twice_fails_its_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would be committed twice, or those of a task that never reported be missing."""
    original = write_job.run_job
    monkeypatch.setattr(write_job, "run_job", lambda *arguments: [original(*arguments)[0]] * 2)

    with pytest.raises(iceberg_ds.CommitMessageError, match="must come once"), shop.begin() as epoch:
        epoch.append(frame(ORDERS, [(2, 2)]), ORDERS, options={"small-task-size-bytes": "0"})

    assert shop.data_files() == set()
