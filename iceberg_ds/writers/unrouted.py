"""The rows of a task that name no table which may be written: they fail the write, go to the quarantine, or are lost.

Knows neither Spark nor the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.messages import BadRows, RefusedRows
from iceberg_ds.plan import Reason, RoutedPlan
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS, json_texts, quarantine_rows, too_many_bad
from iceberg_ds.writers.loose import MOST_LOOSE_BYTES, loose_rows


class UnroutedRows:
    """Takes such rows, and tells what became of them.

    Args:
        plan: What the driver decided.
    """

    def __init__(self, plan: RoutedPlan) -> None:
        self._column = plan.column
        self._policy = plan.bad_rows
        self._epoch = plan.epoch
        self._count = self._kept_bytes = 0
        self._value = ""
        self._kept: list[pa.RecordBatch] = []

    def take(self, rows: pa.RecordBatch) -> None:
        """Take rows, at least one.

        Raises:
            DataFileError: There are too many to send them to the driver.
        """
        if not self._count:
            self._value = repr(texts_of(rows.column(self._column).slice(0, 1))[0])
        self._count += rows.num_rows
        if self._policy is not None and self._policy.quarantine is not None:
            self._keep(rows)

    def refused(self) -> RefusedRows | None:
        """Return the rows that fail the write, or None if there are none."""
        if self._policy is not None or not self._count:
            return None
        return RefusedRows(count=self._count, example=self._value)

    def bad(self) -> BadRows | None:
        """Return the rows that go to the quarantine table or are lost, or None if there are none."""
        if self._policy is None or not self._count:
            return None
        target = self._policy.quarantine
        rows = None if target is None else loose_rows(target, QUARANTINE_COLUMNS, self._kept)
        return BadRows(counts={Reason.ROUTE.value: self._count}, example=self._reason, rows=rows)

    @property
    def _reason(self) -> str:
        return f"{Reason.ROUTE.value}: column '{self._column}': names no table that may be written"

    def _keep(self, rows: pa.RecordBatch) -> None:
        position, count = rows.schema.get_field_index(self._column), rows.num_rows
        names = [name if isinstance(name, str) else None for name in texts_of(rows.column(position))]
        kept = quarantine_rows(
            json_texts(rows, [(position, pc.is_null(rows.column(position)))]),
            pa.array(names, pa.string()),
            [[self._column]] * count,
            [self._reason] * count,
            self._epoch,
        )
        self._kept.append(kept)
        self._kept_bytes += kept.nbytes
        if self._kept_bytes > MOST_LOOSE_BYTES:
            raise too_many_bad("write to several tables", self._count, self._reason)


def texts_of(values: pa.Array) -> Sequence[str | bytes | None]:
    """Return texts; as bytes those that are no UTF-8, which other engines let a column of text have."""
    try:
        found: list[str | bytes | None] = values.to_pylist()
    except UnicodeDecodeError:
        found = [_text(value) for value in values]
    return found


def _text(value: pa.StringScalar) -> str | bytes | None:
    try:
        text: str | None = value.as_py()
    except UnicodeDecodeError:
        return bytes(value.as_buffer())
    return text
