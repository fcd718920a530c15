"""`format("notingsink")`: the sink, which notes in a file how its first commit ended.

A continuous query shows no exception, so a test would not know when the sink has refused. Importable by
Spark's workers through PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from iceberg_ds import IcebergSink
from iceberg_ds.datasource import DataSourceStreamArrowWriter  # Spark 4.0 has none of its own

_OPTION = "note"


class NotingSink(IcebergSink):
    """The sink; its option `note` is the file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in options.items() if key != _OPTION})
        self._note = Path(options[_OPTION])

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "notingsink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's signature
        """Plan a micro-batch, or make the writer that commits one."""
        return NotingStreamWriter(super().streamWriter(schema, overwrite), self._note)


class NotingStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer that notes how its commit ended."""

    def __init__(self, inner: DataSourceStreamArrowWriter, note: Path) -> None:
        self._inner = inner
        self._note = note

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit an epoch."""
        try:
            self._inner.commit(messages, batchId)
        except Exception as error:
            self._write(f"{type(error).__name__}: {error}")
            raise
        self._write("committed")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort an epoch."""
        self._inner.abort(messages, batchId)

    def _write(self, text: str) -> None:
        unfinished = self._note.with_suffix(".unfinished")
        unfinished.write_text(text)
        unfinished.rename(self._note)
