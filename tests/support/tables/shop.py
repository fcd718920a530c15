"""Three tables that one epoch writes in three ways, and the rows that they must have afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import rows_of
from support.spark.local_frame import LocalFrame, without_moving_rows
from support.spark.tables import Warehouse

import iceberg_ds

ORDERS, CUSTOMERS, PRICES = TABLES = ("shop.orders", "shop.customers", "shop.prices")
COLUMNS = {
    ORDERS: StructType([StructField("id", LongType()), StructField("customer", LongType())]),
    CUSTOMERS: StructType([StructField("id", LongType(), nullable=False), StructField("name", StringType())]),
    PRICES: StructType([StructField("day", LongType()), StructField("price", LongType())]),
}
Row = tuple[Any, ...]
# The rows of an epoch, by table.
Epoch = Mapping[str, Sequence[Row]]
APP_ID = "shop"


def epoch_of(number: int) -> Epoch:
    """Return what an epoch brings: new orders, customers of whom the last epoch had some, the prices of a day."""
    return {
        ORDERS: [(10 * number + i, i) for i in range(4)],
        CUSTOMERS: [(i, f"name {number}") for i in range(number, number + 3)],
        PRICES: [(number % 2, 100 * number + i) for i in range(2)],
    }


def rows_after(epochs: Iterable[int]) -> dict[str, list[Row]]:
    """Return the rows of all tables after these epochs."""
    orders: list[Row] = []
    customers: dict[Any, Row] = {}
    prices: list[Row] = []
    for number in epochs:
        brought = epoch_of(number)
        orders += brought[ORDERS]
        customers.update({row[0]: row for row in brought[CUSTOMERS]})
        prices = [row for row in prices if row[0] != number % 2] + [*brought[PRICES]]
    found = {ORDERS: orders, CUSTOMERS: [*customers.values()], PRICES: prices}
    return {table: sorted(rows) for table, rows in found.items()}


def frame(table: str, rows: Sequence[Row], tasks: int = 2) -> Any:
    """Return rows of a table as a DataFrame whose tasks run in this process; rows of one key are in one task."""
    named = [dict(zip(COLUMNS[table].names, row, strict=True)) for row in rows]
    parts = [[row for row in named if next(iter(row.values())) % tasks == number] for number in range(tasks)]
    return LocalFrame(parts=parts, schema=COLUMNS[table])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The tables, in an embedded catalog.

    Attributes:
        folder: Of the catalog.
    """

    folder: Path

    @property
    def house(self) -> Warehouse:
        """The catalog."""
        return Warehouse(folder=self.folder)

    def begin(self, version: int | None = None, **options: str) -> iceberg_ds.Transaction:
        """Return a transaction over its tables; `_` in the name of an option stands for `-`."""
        more = {name.replace("_", "-"): value for name, value in options.items()}
        app_id = None if version is None else APP_ID
        return iceberg_ds.transaction(options={**self.house.options, **more}, app_id=app_id, version=version)

    def write(
        self, epoch: iceberg_ds.Transaction, number: int, make: Callable[[str, Sequence[Row]], Any] = frame
    ) -> None:
        """Write the rows of an epoch, as the lines of a block."""
        brought = epoch_of(number)
        epoch.append(make(ORDERS, brought[ORDERS]), ORDERS)
        epoch.upsert(make(CUSTOMERS, brought[CUSTOMERS]), CUSTOMERS, keys="id")
        epoch.overwrite(make(PRICES, brought[PRICES]), PRICES, replace_where=f"day = {number % 2}")

    def run(self, number: int) -> iceberg_ds.TransactionResult:
        """Write and commit an epoch without Spark, under its number."""
        with without_moving_rows(), self.begin(number) as epoch:
            self.write(epoch, number)
        return epoch.result

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows of all tables, those that are missing among them, after checking every file."""
        return {table: self.rows_of(table) for table in TABLES}

    def rows_of(self, table: str) -> list[Row]:
        """Return the rows of a table, none if it is missing."""
        if not self.house.has_table(table):
            return []
        found = self.house.table(table)
        check_sound(found)
        return sorted(tuple(row.values()) for row in rows_of(found))

    def snapshots(self) -> dict[str, int]:
        """Return how many snapshots each table has; none if it is missing."""
        return {
            table: len(self.house.table(table).metadata.snapshots) if self.house.has_table(table) else 0
            for table in TABLES
        }

    def check_tidy(self) -> None:
        """Assert that nothing lies around in the folders of the tables."""
        for table in TABLES:
            if self.house.has_table(table):
                check_clean(self.house.table(table))

    def data_files(self) -> set[Path]:
        """Return all Parquet files, referenced or not."""
        return set(self.folder.rglob("*.parquet"))
