"""What a requeue asks of Spark and of a DataFrame, without Spark: rows are written as one task writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from pyiceberg.types import LongType
from pyspark.sql.types import StructType
from support.tables.bad_rows import commit
from support.tables.changes_by_others import plain_table
from support.tables.sink import Row, Sink, arrow_batch

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import has_landed
from iceberg_ds.multi_table.requeue import RequeueResult, requeue
from iceberg_ds.options.parse import parse_options
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

_attempts = count(2_000_000)

BIG = "3000000000"  # for the table's `amount` once that is a long


@dataclass
class Frame:
    """What a requeue asks of a DataFrame: it is written as Spark does it, as one task."""

    rows: list[Row]
    schema: StructType
    before: Callable[[], object]
    given: dict[str, str] = field(default_factory=dict)

    @property
    def write(self) -> Frame:
        """Return what writes the rows."""
        return self

    def format(self, _: str) -> Frame:
        """Return the same writer."""
        return self

    def options(self, **options: str) -> Frame:
        """Return the writer with these options."""
        return replace(self, given=options)

    def mode(self, _: str) -> Frame:
        """Return the same writer."""
        return self

    def save(self) -> None:
        """Write the rows."""
        self.before()
        options = parse_options(self.given)
        target = Sink(catalog=connect(catalog_settings(options)), options=options)
        plan = target.plan(self.schema)
        if not has_landed(target.catalog, plan.write):
            attempt = TaskAttempt(partition_id=0, task_attempt_id=next(_attempts))
            commit(target, [report_task(plan, [arrow_batch(self.rows, self.schema)], attempt)])


@dataclass
class Session:
    """What a requeue asks of Spark; `before` is called before each batch is written."""

    before: Callable[[], object] = lambda: None

    def createDataFrame(self, rows: list[tuple[Any, ...]], schema: StructType) -> Frame:  # noqa: N802  # Spark's name
        """Return the rows as what is to be written."""
        return Frame([dict(zip(schema.names, row, strict=True)) for row in rows], schema, self.before)


def requeued(sink: Sink, session: Session | None = None, **options: str) -> RequeueResult:
    """Requeue the rows of `db.t`."""
    given = {"warehouse": str(sink.options.warehouse), **{name.replace("_", "-"): one for name, one in options.items()}}
    return requeue(session or Session(), "db.t__quarantine", "db.t", options=given)  # type: ignore[arg-type]


def mend(sink: Sink) -> None:
    """Let the table take the rows."""
    with plain_table(sink).update_schema() as change:
        change.update_column("amount", LongType())
