"""Files in every encoding that is chosen are read right by Iceberg's own Spark runtime, ClickHouse and PyIceberg."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.peer.jvm_peer import Row
from support.spark.tables import read_with_chdb
from support.tables.event_rows import struct
from support.tables.sink import local

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

SCHEMA = struct(
    id=spark.LongType(),
    number=spark.IntegerType(),
    flag=spark.StringType(),
    comment=spark.StringType(),
    path=spark.StringType(),
    blob=spark.BinaryType(),
    day=spark.DateType(),
    at=spark.TimestampType(),
    small=spark.DecimalType(9, 2),
    middle=spark.DecimalType(18, 2),
    wide=spark.DecimalType(38, 2),
    double=spark.DoubleType(),
    single=spark.FloatType(),
    parts=struct(x=spark.LongType(), text=spark.StringType()),
    many=spark.ArrayType(spark.LongType()),
)
# Of each task; that many are worth a choice, and fill more than one block of a delta encoding.
ROWS = 3_000


def make_rows() -> list[Row]:
    """Return rows of values that suit one encoding each, with nulls."""
    draw = random.Random(7)  # noqa: S311  # the same rows every time
    epoch = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)

    def row(number: int) -> dict[str, Any]:
        return {
            "number": draw.randrange(-(2**20), 2**20),
            "flag": draw.choice("RAN"),
            "comment": f"{draw.getrandbits(60):x}",
            "path": f"/warehouse/db/table/data/{number * 37:015d}/{draw.getrandbits(16):04x}",
            "blob": draw.randbytes(draw.randrange(12)),
            "day": dt.date(1960, 1, 1) + dt.timedelta(days=draw.randrange(20_000)),
            "at": epoch + dt.timedelta(seconds=number, microseconds=draw.randrange(1_000)),
            "small": decimal.Decimal(draw.randrange(10**6)).scaleb(-2),
            "middle": decimal.Decimal(10**15 + draw.randrange(10**6)).scaleb(-2),
            "wide": decimal.Decimal(draw.randrange(10**6)).scaleb(-2),
            "double": 1e6 + number / 1024,
            "single": 1.0 + number / 2**20,
            "parts": {"x": number * 1_000, "text": f"part {draw.getrandbits(40):x}"},
            "many": [number * 10 + place for place in range(number % 3)],
        }

    full = [row(number) for number in range(2 * ROWS)]
    return [
        {"id": number, **{name: None if draw.random() < 0.05 else value for name, value in values.items()}}
        for number, values in enumerate(full)
    ]


def encodings(shared: SharedCatalog) -> set[str]:
    """Return all encodings in the table's files."""
    footers = [pq.read_metadata(local(task.file.file_path)) for task in shared.table().scan().plan_files()]
    chunks = [footer.row_group(0).column(index) for footer in footers for index in range(footer.num_columns)]
    return {encoding for chunk in chunks for encoding in chunk.encodings}


@EXHAUSTIVE
def test_every_reader_reads_chosen_encodings(shared: SharedCatalog) -> None:
    """Tables would be unreadable, or full of other values, for the engines that the project promises."""
    rows = make_rows()

    shared.append(rows, SCHEMA)

    assert {
        "DELTA_BINARY_PACKED",
        "DELTA_LENGTH_BYTE_ARRAY",
        "BYTE_STREAM_SPLIT",
        "RLE_DICTIONARY",
    } <= encodings(shared)
    shared.check_rows(rows)
    shared.alter("SET TBLPROPERTIES ('read.parquet.vectorization.enabled' = 'false')")
    shared.check_rows(rows)
    folder = local(shared.table().metadata.location)
    found = read_with_chdb(
        folder, "count() AS n, sum(id) AS i, sum(number) AS s, uniqExact(comment) AS c, max(path) AS p", order="n"
    )
    assert [(row["n"], row["i"], row["s"], row["c"], row["p"]) for row in found] == [
        (
            len(rows),
            sum(row["id"] for row in rows),
            sum(row["number"] or 0 for row in rows),
            len({row["comment"] for row in rows} - {None}),
            max(row["path"] for row in rows if row["path"]),
        )
    ]


def test_classic_files_have_none_of_them(shared: SharedCatalog) -> None:
    """Old readers would refuse files that were written for them."""
    rows = make_rows()

    shared.append(rows, SCHEMA, parquet_encodings="classic")

    assert encodings(shared) <= {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY"}
    shared.check_rows(rows)
