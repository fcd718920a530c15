"""`format("markedsink")`: the sink with its planned fault, which keeps what its tasks hold and what they report.

Importable by Spark's workers through PYTHONPATH. Option `evidence` names the folder for it.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from support.spark_faulty_sink import FaultySink

from iceberg_ds.datasource import DataSourceStreamArrowWriter  # Spark 4.0 has none of its own

_OPTION = "evidence"


def log_everything() -> None:
    """Print all that the sink and PyIceberg log in this process."""
    for name in ("iceberg_ds", "pyiceberg"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.StreamHandler(sys.stderr))
            logger.setLevel(logging.DEBUG)


def _keep(folder: Path, kind: str, value: object) -> None:
    target = folder / kind
    target.mkdir(parents=True, exist_ok=True)
    number = len(list(target.iterdir()))
    (target / f"{os.getpid()}-{number}.pickle").write_bytes(pickle.dumps(value))
    (target / f"{os.getpid()}-{number}.repr").write_text(f"{value!r}\n{value}")


def _innermost(writer: Any) -> Any:
    while hasattr(writer, "_inner"):
        writer = writer._inner
    return writer


class MarkedSink(FaultySink):
    """The sink that keeps evidence."""

    def __init__(self, options: Mapping[str, str]) -> None:
        log_everything()
        super().__init__({key: value for key, value in options.items() if key != _OPTION})
        self._folder = Path(options[_OPTION])

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "markedsink"

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
        """Plan a batch write."""
        return MarkedBatchWriter(super().writer(schema, overwrite), self._folder)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's signature
        """Plan a micro-batch, or make the writer that commits one."""
        return MarkedStreamWriter(super().streamWriter(schema, overwrite), self._folder)


class MarkedBatchWriter(DataSourceArrowWriter):
    """A batch writer that keeps what it holds in a task, and all messages."""

    def __init__(self, inner: DataSourceArrowWriter, folder: Path) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        log_everything()
        _keep(self._folder, "task", _innermost(self).__dict__)
        return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit."""
        log_everything()
        _keep(self._folder, "messages", messages)
        self._inner.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort."""
        log_everything()
        self._inner.abort(messages)


class MarkedStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer that keeps what it holds in a task, and all messages."""

    def __init__(self, inner: DataSourceStreamArrowWriter, folder: Path) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        log_everything()
        _keep(self._folder, "task", _innermost(self).__dict__)
        return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit an epoch."""
        log_everything()
        _keep(self._folder, "messages", messages)
        self._inner.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort an epoch."""
        self._inner.abort(messages, batchId)
