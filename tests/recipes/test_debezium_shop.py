"""The recipe `examples/debezium_shop`: ten tables with foreign keys follow PostgreSQL, killed and read on the way."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
from pyiceberg.table import StaticTable
from support.services.kafka import Kafka, serve_connect_cluster, serve_kafka
from support.services.postgres import Database, serve_database
from support.services.server_process import HOST, free_port
from support.services.servers import REPOSITORY
from support.spark.process import wait_until
from support.spark.submit import SubmittedProgram, wait_for_landing
from support.spark.tables import Warehouse, read_with_chdb

import iceberg_ds

RECIPE = REPOSITORY / "examples" / "debezium_shop"
NAMESPACE, CUTS = "shop", "meta.cuts"
STREAM = (RECIPE / "stream.py", "--checkpoint", "checkpoint", "--every", "500 milliseconds")
# Small epochs end within transactions, and within what Debezium sends at once. They fall behind what is changed.
SMALL_EPOCHS = ("--at-most", "100")
KILLS = 3
# How long after a landing, at most, something is killed: the time of some epochs.
KILLED_WITHIN_S = 6.0
EQUAL_WITHIN_S = 180
_LOOK_EVERY_S = 0.05
CHANGES_TIMEOUT_S = 300
# Of each table, by its keys.
Rows = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What PostgreSQL says of its tables.

    Attributes:
        columns: The columns of each table.
        keys: The primary key of each table.
        foreign_keys: Table, column, and the table whose `id` the column has.
    """

    columns: Mapping[str, list[str]]
    keys: Mapping[str, list[str]]
    foreign_keys: list[tuple[str, str, str]]

    def orphans(self, rows: Rows) -> list[tuple[str, str, int]]:
        """Return the values of foreign keys that no row has as its `id`: table, column, value."""
        return [
            (table, column, row[column])
            for table, column, parent in self.foreign_keys
            for there in [{None, *(row["id"] for row in rows[parent])}]
            for row in rows[table]
            if row[column] not in there
        ]


def miscounted(rows: Rows) -> list[int]:
    """Return the orders that have not as many pieces as their items, which is so whenever a transaction has ended."""
    pieces: dict[int, int] = defaultdict(int)
    for item in rows["order_items"]:
        pieces[item["order_id"]] += item["quantity"]
    return [order["id"] for order in rows["orders"] if order["pieces"] != pieces[order["id"]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the rows of a table are in one state: a metadata file, and a snapshot in it."""

    metadata: Path = field(compare=False)
    snapshot_id: int


# None for a table without a snapshot.
State = Mapping[str, Place | None]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a PostgreSQL server that tells its changes."""
    with serve_database(tmp_path / "postgres", wal_level="logical") as database:
        yield database


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    """Return a broker of this test alone: the recipe names the topic."""
    with serve_kafka(tmp_path / "kafka") as broker:
        yield broker


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_every_state_is_one_of_whole_transactions_and_tables_equal_postgres(
    tmp_path: Path, house: Warehouse, kafka: Kafka, database: Database
) -> None:
    """Readers would find orders without customers or items, or tables would lose or keep rows, when something dies."""
    environment = _environment(kafka, database)
    worker = (tmp_path, RECIPE / "worker.properties", environment)
    stream = (*STREAM, "--broker", kafka.broker)
    with _changing(environment, "--transactions", "1000", "--seed", "0") as changes:
        assert changes.wait(CHANGES_TIMEOUT_S) == 0
    schema = _schema(database)
    reader = _Reader(house, schema)

    with reader.reading():
        with _changing(environment, "--transactions", "1000000", "--pause", "0.05") as changes:
            for number in range(KILLS):
                with SubmittedProgram(tmp_path, *stream, *SMALL_EPOCHS) as driver:
                    with serve_connect_cluster(*worker, None if number else RECIPE / "connector.json"):
                        _wait_for_more(driver, house)
                    with serve_connect_cluster(*worker):  # while the driver reads what comes
                        _wait_for_more(driver, house)
                        driver.kill()
            assert changes.poll() is None, "PostgreSQL was no longer changed"
        with serve_connect_cluster(*worker), SubmittedProgram(tmp_path, *stream) as driver:
            expected = {table: _rows(database, table, keys) for table, keys in schema.keys.items()}

            def are_equal() -> bool:
                driver.check_running()
                reader.check_running()
                return reader.rows == [expected, expected]

            wait_until(are_equal, "the tables equal PostgreSQL's", EQUAL_WITHIN_S)

    assert len(expected) == 10
    assert len(schema.foreign_keys) == 12
    assert all(expected.values())
    assert min(reader.states) > 3 * KILLS, reader.states


def _wait_for_more(driver: SubmittedProgram, house: Warehouse) -> None:
    """Wait until an epoch has landed, and then for a time that nobody knows."""
    wait_for_landing(driver, house, f"{NAMESPACE}.orders")
    time.sleep(random.uniform(0, KILLED_WITHIN_S))  # noqa: S311  # no secret


class _Reader:
    """Reads the tables again and again: the last cut, and the state that the catalog's pointers lead to.

    Attributes:
        states: How many states it has read, of each kind.
        rows: The rows of the last state, of each kind.
    """

    def __init__(self, house: Warehouse, schema: Schema) -> None:
        self.states = [0, 0]
        self.rows: list[Rows] = [{}, {}]
        self._house, self._schema = house, schema
        self._stop = Event()
        self._thread: Future[None] = Future()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read during the block.

        Raises:
            AssertionError: A foreign key did not resolve in some state, or an order lacked pieces.
        """
        with ThreadPoolExecutor(1) as pool:
            self._thread = pool.submit(self._read)
            try:
                yield
            finally:
                self._stop.set()
        self._thread.result()

    def check_running(self) -> None:
        """Raise what ended it, if anything did."""
        if self._thread.done():
            self._thread.result()

    def _read(self) -> None:
        seen: list[State | None] = [None, None]
        while not self._stop.wait(_LOOK_EVERY_S):
            for kind, find in enumerate((_find_cut, _find_pointers)):
                state = find(self._house, self._schema)
                if state is None or state == seen[kind]:
                    continue
                rows = _read(self._house, state, self._schema)
                assert not (orphans := self._schema.orphans(rows)), f"{find.__name__}, {self.states}: {orphans}"
                assert not (orders := miscounted(rows)), f"{find.__name__}, {self.states}: {orders}"
                seen[kind], self.rows[kind] = state, rows
                self.states[kind] += any(state.values())


def _find_cut(house: Warehouse, schema: Schema) -> State | None:
    """Return the last complete cut, None before the first."""
    if not house.has_table(CUTS):
        return None
    tables = [f"{NAMESPACE}.{table}" for table in schema.columns]
    cut = iceberg_ds.last_complete(tables, options={**house.options, "consistent-cut": CUTS})
    if cut is None:
        return None
    return {
        table: None
        if found is None
        else Place(metadata=_metadata(house.table(name).metadata_location), snapshot_id=found)
        for table, name, found in zip(schema.columns, tables, (cut.snapshots[name] for name in tables), strict=True)
    }


def _find_pointers(house: Warehouse, schema: Schema) -> State:
    """Return where the catalog's pointers of all tables lead, as one query finds them."""
    query = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = ?"
    try:
        with closing(sqlite3.connect(f"file:{house.folder}/catalog.db?mode=ro", uri=True)) as connection:
            found = dict(connection.execute(query, (NAMESPACE,)).fetchall())
    except sqlite3.OperationalError:  # no such file, or no tables in it yet
        found = {}
    return {table: _current(found[table]) if table in found else None for table in schema.columns}


def _current(location: str) -> Place | None:
    """Return the current snapshot of a metadata file, None if there is none."""
    snapshot = StaticTable.from_metadata(location).metadata.current_snapshot_id
    return None if snapshot is None else Place(metadata=_metadata(location), snapshot_id=snapshot)


def _metadata(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def _read(house: Warehouse, state: State, schema: Schema) -> Rows:
    """Return the rows of all tables in a state, as ClickHouse reads them, by their keys."""
    return {
        table: []
        if place is None
        else read_with_chdb(
            house.folder / NAMESPACE / table,
            ", ".join(schema.columns[table]),
            ", ".join(schema.keys[table]),
            place.metadata,
            place.snapshot_id,
        )
        for table, place in state.items()
    }


def _environment(kafka: Kafka, database: Database) -> dict[str, str]:
    """Return the variables that the recipe's files name."""
    return {
        "KAFKA": kafka.broker,
        "CONNECT_PORT": str(free_port()),
        "PGHOST": HOST,
        "PGPORT": str(database.port),
        "PGDATABASE": database.name,
        "PGUSER": database.user,
        "PGPASSWORD": database.password,
    }


@contextmanager
def _changing(environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Change PostgreSQL during the block; what is not committed at its end is rolled back."""
    command = [sys.executable, str(RECIPE / "change.py"), *arguments]
    with subprocess.Popen(command, env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            process.kill()


def _query(database: Database, query: str) -> list[dict[str, Any]]:
    """Return what PostgreSQL answers."""
    address = {"host": HOST, "port": database.port, "dbname": database.name}
    with (
        closing(psycopg2.connect(**address, user=database.user, password=database.password)) as connection,
        connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor,
    ):
        cursor.execute(query)
        return [dict(row) for row in cursor.fetchall()]


def _rows(database: Database, table: str, keys: list[str]) -> list[dict[str, Any]]:
    """Return the rows of PostgreSQL's table, by its key."""
    return _query(database, f"SELECT * FROM {table} ORDER BY {', '.join(keys)}")  # noqa: S608  # no outside input


def _schema(database: Database) -> Schema:
    """Return what PostgreSQL says of its tables."""
    columns: dict[str, list[str]] = defaultdict(list)
    keys: dict[str, list[str]] = defaultdict(list)
    for row in _query(database, "SELECT * FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 5"):
        columns[row["table_name"]].append(row["column_name"])
    foreign_keys = []
    for row in _query(
        database,
        """SELECT contype, conrelid::regclass::text AS table, attname AS column, confrelid::regclass::text AS parent
        FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
        WHERE contype IN ('p', 'f') AND connamespace = 'public'::regnamespace ORDER BY attnum""",
    ):
        if row["contype"] == "p":
            keys[row["table"]].append(row["column"])
        else:
            foreign_keys.append((row["table"], row["column"], row["parent"]))
    return Schema(columns=columns, keys=keys, foreign_keys=foreign_keys)
