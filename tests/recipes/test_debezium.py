"""The recipe `examples/debezium`: changes of a real PostgreSQL into a table by keys, killed on the way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
from support.services.kafka import Kafka, serve_connect, serve_kafka
from support.services.postgres import Database, serve_database
from support.services.server_process import HOST, free_port
from support.services.servers import REPOSITORY
from support.spark.process import wait_until
from support.spark.submit import SubmittedProgram, wait_for_landing
from support.spark.tables import Warehouse, read_with_chdb

RECIPE = REPOSITORY / "examples" / "debezium"
# Of the other recipe: sends orders that are no changes; that of id 20 is no JSON.
PRODUCER = REPOSITORY / "examples" / "kafka" / "produce.py"
TOPIC, TABLE = "shop.public.orders", "shop.orders"
COLUMNS = ["id", "customer", "amount", "paid", "note", "at"]
KILLS = 3
# How long after a landing, at most, its driver is killed: the time of some epochs.
KILLED_WITHIN_S = 2.0
EQUAL_WITHIN_S = 180
CHANGES_TIMEOUT_S = 300


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a PostgreSQL server that tells its changes."""
    with serve_database(tmp_path / "postgres", wal_level="logical") as database:
        yield database


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    """Return a broker of this test alone: Debezium names the topic."""
    with serve_kafka(tmp_path / "kafka") as broker:
        yield broker


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", [(), ("--equality-deletes",)], ids=["upserts", "equality-deletes"])
def test_table_equals_postgres_after_kills(
    tmp_path: Path, house: Warehouse, kafka: Kafka, database: Database, way: tuple[str, ...]
) -> None:
    """Rows would be lost, come back or keep old values when a driver or the connector dies."""
    environment = _environment(kafka, database)
    connector = (tmp_path, RECIPE / "worker.properties", RECIPE / "postgres.properties", environment)
    source = ("--broker", kafka.broker, "--topic", TOPIC)
    stream = (RECIPE / "stream.py", *source, "--table", TABLE, "--checkpoint", "checkpoint", *way)
    with _changing(environment, "--transactions", "200", "--seed", "0") as changes:
        assert changes.wait(CHANGES_TIMEOUT_S) == 0

    with _changing(environment, "--transactions", "1000000", "--pause", "0.05") as changes:
        for _ in range(KILLS):
            with (
                serve_connect(*connector),
                SubmittedProgram(tmp_path, *stream, "--every", "500 milliseconds") as driver,
            ):
                wait_for_landing(driver, house, TABLE)
                time.sleep(random.uniform(0, KILLED_WITHIN_S))  # noqa: S311  # no secret
                driver.kill()
        assert changes.poll() is None, "PostgreSQL was no longer changed"
    with serve_connect(*connector), SubmittedProgram(tmp_path, *stream, "--every", "500 milliseconds") as driver:
        expected = _orders(database)
        wait_until(lambda: _read(house, driver) == expected, "the table equals PostgreSQL's", EQUAL_WITHIN_S)

    assert len(expected) > 100
    if not way:  # PyIceberg reads no equality deletes
        assert house.rows(TABLE).select(COLUMNS).to_pylist() == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("first", "error"), [("20", "MALFORMED_RECORD_IN_PARSING"), ("1", "the operation column has null")]
)
def test_message_that_is_no_change_stops_the_stream(
    tmp_path: Path, house: Warehouse, kafka: Kafka, first: str, error: str
) -> None:
    """The table would be believed to equal its source while changes are passed over."""
    kafka.create_topic(TOPIC)
    source = ("--broker", kafka.broker, "--topic", TOPIC)
    with SubmittedProgram(tmp_path, PRODUCER, *source, "--first", first, "--count", "1") as producer:
        producer.wait()
    stream = (*source, "--table", TABLE, "--checkpoint", "checkpoint", "--available-now")

    with SubmittedProgram(tmp_path, RECIPE / "stream.py", *stream) as driver:
        log = driver.wait_failure()

    assert error in log
    assert not house.has_table(TABLE)


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


def _read(house: Warehouse, driver: SubmittedProgram) -> list[dict[str, Any]]:
    """Return what ClickHouse reads, a second from now."""
    time.sleep(1)
    driver.check_running()
    return read_with_chdb(house.folder / "shop" / "orders", ", ".join(COLUMNS))


def _orders(database: Database) -> list[dict[str, Any]]:
    """Return the rows of PostgreSQL's table, by id."""
    address = {"host": HOST, "port": database.port, "dbname": database.name}
    with (
        closing(psycopg2.connect(**address, user=database.user, password=database.password)) as connection,
        connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor,
    ):
        cursor.execute("SELECT * FROM orders ORDER BY id")
        return [dict(row) for row in cursor.fetchall()]
