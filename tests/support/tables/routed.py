"""Writes whose rows name their tables, without Spark: `RoutedSink` takes the steps of planner, tasks and committer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType
from support.checks.reader import rows_of
from support.tables.sink import QUERY, Row, arrow_batch

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.messages import TablesCommit
from iceberg_ds.multi_table.commit import abort_routed, commit_routed
from iceberg_ds.multi_table.plan import plan_routed
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.routes import RouteOptions, parse_route
from iceberg_ds.plan import EpochId, RoutedPlan
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.writers.routed import report_routed_task
from iceberg_ds.writers.task_writer import TaskAttempt

# `kind` names the table; orders have a total, customers a name.
FEED = StructType(
    [
        StructField("kind", StringType()),
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("total", DoubleType()),
    ]
)

_attempts = count()


def route_options(warehouse: Path, **options: str) -> RouteOptions:
    """Return the options of writes by column `kind` into tables of `db` in the embedded catalog in `warehouse`.

    Underscores in names stand for dashes.
    """
    raw = {"warehouse": str(warehouse), "route-by": "kind"}
    raw |= {name.replace("_", "-").lower(): value for name, value in options.items()}
    if not {"route-tables", "route-namespace"} & raw.keys():
        raw["route-namespace"] = "db"
    return parse_route(raw, parse_options(raw))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedSink:
    """A write into several tables.

    Attributes:
        catalog: The connected catalog.
        options: Options of every write.
    """

    catalog: CatalogClient
    options: RouteOptions

    @classmethod
    def of(cls, warehouse: Path, given: Mapping[str, str] | None = None, **options: str) -> RoutedSink:
        """Return the sink with these options, as `route_options` takes them; `given` has names with dots."""
        parsed = route_options(warehouse, **options, **(given or {}))
        return cls(catalog=connect(catalog_settings(parsed.of_all)), options=parsed)

    def plan(
        self, schema: StructType = FEED, mode: WriteMode = WriteMode.APPEND, *, is_stream: bool = False
    ) -> RoutedPlan:
        """Plan a write."""
        return plan_routed(self.catalog, self.options, schema, mode, is_stream=is_stream)

    def write(
        self,
        *parts: Sequence[Mapping[str, object]],
        schema: StructType = FEED,
        plan: RoutedPlan | None = None,
        epoch_id: int | None = None,
    ) -> list[TablesCommit]:
        """Run one task for each of `parts`, and return what the tasks report."""
        epoch = None if epoch_id is None else EpochId(query_id=QUERY, epoch_id=epoch_id)
        planned = (plan or self.plan(schema, is_stream=epoch is not None)).in_epoch(epoch)
        return [
            report_routed_task(
                planned,
                [arrow_batch(part, schema)] if part else [],
                TaskAttempt(partition_id=number, task_attempt_id=next(_attempts)),
            )
            for number, part in enumerate(parts)
        ]

    def commit(self, messages: Sequence[object], epoch_id: int | None = None) -> list[CommitResult]:
        """Commit what tasks report."""
        return commit_routed(self.catalog, self.options, messages, epoch_id=epoch_id)

    def abort(self, messages: Sequence[object]) -> None:
        """Give up what tasks report."""
        abort_routed(self.catalog, messages)

    def append(self, *rows: Mapping[str, object], epoch_id: int | None = None) -> list[CommitResult]:
        """Write and commit rows of `FEED` in one task."""
        return self.commit(self.write(rows, epoch_id=epoch_id), epoch_id)

    def rows(self, table: str) -> list[Row]:
        """Return all rows of a table, ordered by id."""
        found = rows_of(self.catalog.reading_anew().load_table(parse_identifier(table)))
        return sorted(found, key=lambda row: row["id"])

    def ids(self, table: str) -> list[int]:
        """Return the ids of all rows of a table in order; none if there is no such table."""
        if self.catalog.find_table(parse_identifier(table)) is None:
            return []
        return [row["id"] for row in self.rows(table)]


def order(number: int, total: float = 1.0) -> Row:
    """Return a row for table `orders`."""
    return {"kind": "orders", "id": number, "total": total}


def customer(number: int, name: str = "Ann") -> Row:
    """Return a row for table `customers`."""
    return {"kind": "customers", "id": number, "name": name}
