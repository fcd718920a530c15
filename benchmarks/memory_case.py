"""One memory measurement of `bench_memory.py`: JSON on stdin says what to do, a line of JSON is the result.

Runs in a process of its own, because a process's peak of memory never falls, and one that has loaded what
a task's process has loaded: PySpark's worker, and what the task itself loads.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark.worker  # noqa: F401  # Spark's Python workers are forked from a process that has loaded it

from iceberg_ds.plan import WritePlan
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

_KILOBYTE = 1024  # the unit of ru_maxrss on Linux


class Endless:
    """Batches of an Arrow stream, again and again, until a task has had its bytes.

    Each is read from the file into memory of its own, as a Python worker reads it from Spark: a batch that
    waits in a buffer costs what it would cost there.
    """

    def __init__(self, path: str, arrow_bytes: int) -> None:
        self.rows = 0
        self.bytes = 0
        self._path = path
        self._limit = arrow_bytes

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self.bytes < self._limit:
            with pa.OSFile(self._path) as file, pa.ipc.open_stream(file) as stream:
                yield from self._counted(stream)

    def _counted(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            if self.bytes >= self._limit:
                return
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            yield batch


def measure(plan: WritePlan, batches: Endless) -> dict[str, float]:
    """Write the task's rows and return the peak of memory, and what is needed to judge it.

    Raises:
        RuntimeError: Not all rows were written.
    """
    before = _resident_bytes()
    started = time.perf_counter()
    files = write_task(plan, batches, TaskAttempt(partition_id=0, task_attempt_id=0))
    seconds = time.perf_counter() - started
    written = sum(file.record_count for file in files)
    if written != batches.rows:
        raise RuntimeError(f"{written} rows were written of {batches.rows}")
    return {
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE,
        "before_bytes": before,
        "arrow_peak_bytes": pa.default_memory_pool().max_memory() or 0,
        "seconds": seconds,
        "rows": written,
        "arrow_bytes": batches.bytes,
        "files": len(files),
        "file_bytes": sum(file.file_size_in_bytes for file in files),
        "largest_file_bytes": max(file.file_size_in_bytes for file in files),
        "row_groups": sum(len(file.split_offsets or ()) for file in files),
    }


def _resident_bytes() -> int:
    """Return what the process has in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measure what stdin says."""
    case = json.load(sys.stdin)
    plan = pickle.loads(Path(case["plan"]).read_bytes())  # noqa: S301  # the benchmark's own file
    print(json.dumps(measure(plan, Endless(case["batches"], case["arrow_bytes"]))))


if __name__ == "__main__":
    main()
