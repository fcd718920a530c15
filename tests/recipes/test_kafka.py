"""The recipe `examples/kafka`: messages of a real broker into two tables, its driver killed on the way."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.services.kafka import PARTITIONS, Kafka
from support.services.servers import REPOSITORY
from support.spark.submit import SubmittedProgram, wait_for_landing
from support.spark.tables import Warehouse

RECIPE = REPOSITORY / "examples" / "kafka"
AVRO = ("--avro-schema", str(RECIPE / "order.avsc"), "--schema-id", "7")
KILLS = 3
ORDERS_A_TURN = 500
# How long after a landing, at most, its driver is killed: the time of some epochs.
KILLED_WITHIN_S = 2.0


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dialect", [(), AVRO], ids=["json", "avro"])
def test_each_message_is_in_one_of_the_tables_once_after_kills(
    kafka: Kafka, house: Warehouse, tmp_path: Path, dialect: tuple[str, ...]
) -> None:
    """Orders would be lost or be there twice, or messages that cannot be read would vanish."""
    topic = f"orders-{len(dialect)}"
    kafka.create_topic(topic)
    source = ("--broker", kafka.broker, "--topic", topic, *dialect)
    stream = (RECIPE / "stream.py", *source, "--table", "shop.orders", "--checkpoint", "checkpoints")

    for turn in range(KILLS):
        span = ("--first", str(turn * ORDERS_A_TURN), "--count", str(ORDERS_A_TURN))
        with SubmittedProgram(tmp_path, RECIPE / "produce.py", *source, *span) as producer:
            with SubmittedProgram(tmp_path, *stream, "--every", "500 milliseconds") as driver:
                wait_for_landing(driver, house, "shop.orders")
                time.sleep(random.uniform(0, KILLED_WITHIN_S))  # noqa: S311  # no secret
                driver.kill()
            producer.wait()
    with SubmittedProgram(tmp_path, *stream, "--available-now") as driver:
        driver.wait()

    sent = range(KILLS * ORDERS_A_TURN)
    orders, unread = (house.rows(name).to_pylist() for name in ("shop.orders", "shop.orders_unread"))
    assert [{name: order[name] for name in _order(0)} for order in orders] == [_order(id_) for id_ in sent if id_ % 20]
    assert len(unread) == len(sent) / 20
    assert all(message["topic"] == topic for message in unread)
    # Each offset of each partition is in one of the tables, once.
    places = Counter((row["partition"], row["offset"]) for row in [*orders, *unread])
    ends = [
        1 + max((offset for partition, offset in places if partition == number), default=-1)
        for number in range(PARTITIONS)
    ]
    assert places == Counter((number, offset) for number, end in enumerate(ends) for offset in range(end))


@pytest.mark.exhaustive
def test_messages_that_cannot_be_read_are_kept_as_they_are(kafka: Kafka, house: Warehouse, tmp_path: Path) -> None:
    """What a producer has broken could not be looked at, nor be written again."""
    kafka.create_topic("broken")
    source = ("--broker", kafka.broker, "--topic", "broken")
    with SubmittedProgram(tmp_path, RECIPE / "produce.py", *source, "--count", "101") as producer:
        producer.wait()
    stream = (*source, "--table", "shop.broken", "--checkpoint", "checkpoints", "--available-now")

    with SubmittedProgram(tmp_path, RECIPE / "stream.py", *stream) as driver:
        driver.wait()

    assert {message["value"] for message in house.rows("shop.broken_unread").to_pylist()} == {
        None,
        b"no JSON",
        b'{"id":40,"customer":',
        b'{"id": "one", "customer": "x"}',
        b'{"customer": "x"}',
        b'{"id": 1, "customer": "\xff"}',
    }


def _order(id_: int) -> dict[str, Any]:
    """Return what `produce.py` says of an order."""
    return {
        "id": id_,
        "customer": f"customer {id_ % 7}",
        "amount": None if id_ % 3 == 0 else Decimal(id_).scaleb(-2),
        "at": datetime.fromtimestamp(1_790_000_000, timezone.utc) + timedelta(microseconds=id_ * 1_000_001),
    }
