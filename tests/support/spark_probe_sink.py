"""`format("probesink")`: the sink, whose processes report what they hold and how they got it.

Importable by Spark's workers through PYTHONPATH. Option `probe` names a folder for the reports.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from iceberg_ds import IcebergSink
from iceberg_ds.datasource import DataSourceStreamArrowWriter  # Spark 4.0 has none of its own

_OPTION = "probe"
# In these forms the secret is not itself in the memory of who looks for it.
_FIRST_PART = "MARKED-SECRET"
_SECRET = re.compile(b"MARKED[-]SECRET[-]7f3a")


def secret() -> str:
    """Return the secret that the probes look for."""
    return f"{_FIRST_PART}-7f3a"


def holds_secret() -> bool:
    """Return whether the secret is anywhere in the memory of this process."""
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for region in maps:
            span, mode, *_ = region.split()
            start, end = (int(part, 16) for part in span.split("-"))
            if mode.startswith("rw") and _holds_secret(memory.fileno(), start, end):
                return True
    return False


def _holds_secret(memory: int, start: int, end: int) -> bool:
    try:
        return _SECRET.search(os.pread(memory, end - start, start)) is not None
    except OSError:  # a region of the kernel's own
        return False


def read_reports(folder: Path) -> dict[str, set[str]]:
    """Return what the processes reported, by their roles."""
    reports: dict[str, set[str]] = {}
    for path in folder.iterdir():
        role, _, text = path.read_text().partition(": ")
        reports.setdefault(role, set()).add(text)
    return reports


def _report(folder: Path, role: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{role}-{os.getpid()}-{len(list(folder.iterdir()))}").write_text(f"{role}: {text}")


class ProbeSink(IcebergSink):
    """The sink with probes in its tasks and committers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in options.items() if key != _OPTION})
        self._folder = Path(options[_OPTION])

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "probesink"

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
        """Plan a batch write."""
        return ProbeBatchWriter(super().writer(schema, overwrite), self._folder)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's signature
        """Plan a micro-batch, or make the writer that commits one."""
        return ProbeStreamWriter(super().streamWriter(schema, overwrite), self._folder)


class ProbeBatchWriter(DataSourceArrowWriter):
    """A batch writer that reports what its process holds; it is pickled once more than Spark does, before that."""

    def __init__(self, inner: DataSourceArrowWriter, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._early = pickle.dumps(inner)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        _report(self._folder, "task", f"secret {holds_secret()}")
        return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit."""
        self._inner.commit(messages)
        _report(self._folder, "commit", f"secret {holds_secret()}")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort."""
        self._inner.abort(messages)
        _report(self._folder, "abort", f"secret {holds_secret()}")


class ProbeStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer that reports what its process holds."""

    def __init__(self, inner: DataSourceStreamArrowWriter, folder: Path) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        _report(self._folder, "task", f"secret {holds_secret()}")
        return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit an epoch."""
        _report(self._folder, "commit", f"secret {holds_secret()}")
        self._inner.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort an epoch."""
        self._inner.abort(messages, batchId)
