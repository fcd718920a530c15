"""Peaks of memory of a Spark session, without looking while it works: the system and Java keep them.

A Python worker's peak is what the kernel has counted since it was reset (`VmHWM`), so workers that ended before the
look are not seen. Java's is that of its heap's pools: garbage included, so it shows what was taken, not what is needed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

_PROC = Path("/proc")
_RESET_PEAK = "5"  # `man proc`, clear_refs


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMemory:
    """The memory of a session's Java process and of its Python workers.

    Attributes:
        spark: The session.
        java: The number of its Java process.
    """

    spark: SparkSession = field(repr=False)
    java: int

    @classmethod
    def of(cls, spark: SparkSession) -> SessionMemory:
        """Return that of a session."""
        return cls(spark=spark, java=spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001

    def reset(self) -> None:
        """Collect Java's garbage and begin new peaks."""
        self.spark._jvm.java.lang.System.gc()  # noqa: SLF001
        for pool in self._pools():
            pool.resetPeakUsage()
        for worker in self._workers():
            with suppress(OSError):  # it has ended
                (_PROC / str(worker) / "clear_refs").write_text(_RESET_PEAK)

    def peaks(self) -> dict[str, float]:
        """Return the peaks since `reset`: of Java's heap, of the largest Python worker, and of all workers together."""
        workers = [peak_bytes(worker) for worker in self._workers()]
        return {
            "heap_peak_bytes": sum(pool.getPeakUsage().getUsed() for pool in self._pools()),
            "worker_peak_bytes": max(workers, default=0),
            "workers_peak_bytes": sum(workers),
        }

    def _pools(self) -> list:  # type: ignore[type-arg]
        beans = self.spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()  # noqa: SLF001
        return [bean for bean in beans if str(bean.getType().name()) == "HEAP"]

    def _workers(self) -> list[int]:
        return [process for process in _descendants(self.java) if process != self.java]


def _descendants(process: int) -> list[int]:
    found = [process]
    with suppress(OSError):
        for thread in (_PROC / str(process) / "task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _descendants(int(child))
    return found


def peak_bytes(process: int | None = None) -> int:
    """Return the most memory that a process has had since its start or the last reset, 0 if it has ended."""
    with suppress(OSError):
        for line in (_PROC / str(process or os.getpid()) / "status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0
