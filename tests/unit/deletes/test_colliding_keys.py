"""Keys whose digests are equal stay apart, of every type, in every kind of write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.checks.invariants import check_clean, stored_files
from support.checks.reader import rows_of
from support.keys.colliding_digests import one_digest
from support.keys.upserts import commit_upsert
from support.tables.sink import Sink

from iceberg_ds.commit import cross_task
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import DataFileError, RefusedRowsError
from iceberg_ds.planning.plan_write import WriteMode

pytestmark = pytest.mark.usefixtures("waits")

BITS = 1 << 63 | 1 << 31
# Types of keys, as Spark sends them, and three keys of each.
KEYS: dict[str, tuple[PrimitiveType, spark.DataType, Sequence[Any]]] = {
    "boolean": (BooleanType(), spark.BooleanType(), [False, True]),
    "int": (IntegerType(), spark.IntegerType(), [5, -(2**31) + 5, 2**30 + 5]),
    "long": (LongType(), spark.LongType(), [5, -(2**63) + 5, 2**31 + 5]),
    "decimal(9,2)": (DecimalType(9, 2), spark.DecimalType(9, 2), [Decimal("0.01"), Decimal("0.03"), Decimal(0)]),
    "decimal(38,0)": (DecimalType(38, 0), spark.DecimalType(38, 0), [Decimal(1), Decimal(1 + BITS), Decimal(1 << 64)]),
    "string": (StringType(), spark.StringType(), ["a" * 20, "a" * 19 + "b", "a" * 300]),
    "binary": (BinaryType(), spark.BinaryType(), [bytes(16), BITS.to_bytes(16, "little"), b""]),
    "fixed": (FixedType(16), spark.BinaryType(), [bytes(16), BITS.to_bytes(16, "little"), b"\x01" * 16]),
    "uuid": (UUIDType(), spark.StringType(), [f"{number:08x}-{'0000-' * 3}{'0' * 12}" for number in (0, 1 << 31, 3)]),
    "date": (DateType(), spark.DateType(), [date(2026, 1, 1), date(2026, 1, 2), date(1, 1, 1)]),
    "timestamp": (TimestampType(), spark.TimestampNTZType(), [datetime(2026, 1, 1, hour) for hour in (0, 1, 2)]),  # noqa: DTZ001  # without a zone
    "timestamptz": (
        TimestamptzType(),
        spark.TimestampType(),
        [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (0, 1, 2)],
    ),
}
KINDS = ["one column", "two columns"]

Change = tuple[str, Any, int, int]


@pytest.fixture(autouse=True)
def _colliding() -> Iterator[None]:
    with one_digest():
        yield


class Table:
    """A table by keys of some type; a second key column makes keys long ones, which no task reports."""

    def __init__(self, sink: Sink, kind: str, *, is_wide: bool) -> None:
        key_type, sent_type, self.keys = KEYS[kind]
        self._sink = sink
        self._names = ("key", "more") if is_wide else ("key",)
        self._sent = StructType(
            [
                StructField("key", sent_type, nullable=False),
                StructField("more", spark.StringType(), nullable=False),
                StructField("amount", spark.LongType()),
                StructField("lsn", spark.LongType()),
                StructField("op", spark.StringType()),
            ]
        )
        fields = [
            NestedField(1, "key", key_type, required=True),
            NestedField(2, "more", StringType(), required=True),
            NestedField(3, "amount", LongType()),
            NestedField(4, "lsn", LongType()),
        ]
        sink.create(Schema(*fields, identifier_field_ids=list(range(1, 1 + len(self._names)))))

    def put(self, *tasks: Sequence[Change], encoding: RowEncoding | None = None, **options: Any) -> None:
        """Write changes (operation, key, amount, sequence) as a task for each; search for old rows by an encoding."""
        mode = WriteMode.APPEND if encoding is None else WriteMode.UPSERT
        by_key = {"keys": self._names, "operation_column": "op", "sequence_by": ("lsn",)}
        plan = self._sink.plan(self._sent, mode, **{**by_key, **options})
        parts = [
            [{"op": op, "key": key, "more": "of a key", "amount": amount, "lsn": lsn} for op, key, amount, lsn in task]
            for task in tasks
        ]
        messages = self._sink.write(*parts, schema=self._sent, plan=plan)
        if encoding is None:
            self._sink.commit(messages)
        else:
            commit_upsert(self._sink, plan, encoding, messages)

    @property
    def amounts(self) -> list[int]:
        """What the rows of the table have, in order."""
        check_clean(self._sink.table())
        return sorted(row["amount"] for row in rows_of(self._sink.table()))


@pytest.mark.parametrize("is_wide", [False, True], ids=KINDS)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_one_digest_stay_apart(sink: Sink, kind: str, is_wide: bool) -> None:  # noqa: FBT001  # by pytest
    """Whoever sends keys that collide would take away rows of others, and rows would be lost by chance."""
    table = Table(sink, kind, is_wide=is_wide)
    one, other, *_ = table.keys

    table.put([("c", one, 1, 1), ("c", other, 2, 1)], encoding="position")
    table.put([("u", other, 20, 2)], encoding="position")
    assert table.amounts == [1, 20]
    # In two tasks that both have both keys: the winner of each is in another task.
    table.put([("u", one, 3, 3), ("u", other, 4, 4)], [("u", other, 40, 3), ("u", one, 30, 4)])

    assert table.amounts == [4, 30]


@pytest.mark.parametrize("is_wide", [False, True], ids=KINDS)
def test_deletes_in_another_task_hide_rows_of_their_keys_alone(sink: Sink, is_wide: bool) -> None:  # noqa: FBT001  # by pytest
    """A delete would take rows with it that have the same digest, or leave its own."""
    table = Table(sink, "string", is_wide=is_wide)
    one, other, third = table.keys

    table.put([("c", one, 1, 1), ("c", other, 2, 1), ("c", third, 3, 1)], [("d", other, 0, 2), ("-U", third, 0, 1)])

    assert table.amounts == [1, 3]


def test_files_are_rewritten_without_rows_of_their_keys_alone(sink: Sink) -> None:
    """Copy-on-write would drop rows for good."""
    table = Table(sink, "decimal(38,0)", is_wide=True)
    one, other, third = table.keys
    table.put([("c", one, 1, 1), ("c", other, 2, 1), ("c", third, 3, 1)])

    table.put([("u", one, 10, 2), ("d", third, 0, 2)], encoding="copy-on-write")

    assert table.amounts == [2, 10]


def test_keys_in_doubt_that_cannot_be_read_leave_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would lie around, and the error would not say what could not be done."""
    table = Table(sink, "string", is_wide=True)
    one, other, _ = table.keys

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(cross_task, "read_keys", fail)
    with pytest.raises(
        DataFileError, match=r"keys that came to several tasks cannot be read again: .*the disk is gone"
    ):
        table.put([("u", one, 1, 1)], [("u", other, 1, 1)], encoding="copy-on-write")

    assert stored_files(sink.table().location()) == set()


@pytest.mark.parametrize("is_wide", [False, True], ids=KINDS)
def test_rows_of_late_keys_alone_are_late(sink: Sink, is_wide: bool) -> None:  # noqa: FBT001  # by pytest
    """A late row would hide new ones that have the same digest."""
    table = Table(sink, "uuid", is_wide=is_wide)
    one, other, third = table.keys
    table.put([("c", one, 1, 5), ("c", other, 2, 5)], encoding="position", sequence_scope="table")

    late = [("u", one, 10, 4), ("u", other, 20, 6), ("c", third, 30, 1)]
    table.put(late, encoding="position", sequence_scope="table")

    assert table.amounts == [1, 20, 30]


@pytest.mark.parametrize("is_wide", [False, True], ids=KINDS)
def test_ties_are_those_of_one_key(sink: Sink, is_wide: bool) -> None:  # noqa: FBT001  # by pytest
    """Rows of two keys would be refused as a tie, or the tie of one key be settled by the row of another."""
    table = Table(sink, "long", is_wide=is_wide)
    one, other, third = table.keys

    table.put([("u", one, 1, 3), ("u", one, 1, 3), ("u", other, 2, 3)], [("u", third, 3, 3), ("u", one, 10, 4)])
    assert table.amounts == [2, 3, 10]
    with pytest.raises(RefusedRowsError, match=r"1 keys have several rows, and none comes last .*'key': 5"):
        table.put([("u", one, 1, 3), ("u", one, 1, 3)], [("u", other, 2, 4)])
