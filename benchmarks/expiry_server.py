"""The session of `bench_expiry.py`: that of `peer_server.py`, which also expires snapshots and removes orphan files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import remote
from peer_memory import peak_bytes
from peer_server import PeerServer

import iceberg_ds
from iceberg_ds.maintenance import places_on_spark

_OWN_PEAK = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # `man proc`, clear_refs


class ExpiryServer(PeerServer):
    """The session and what it can be told beside appends."""

    def expire(self, table: str, options: dict[str, str], *, on_spark: bool) -> dict[str, float]:
        """Expire all snapshots but the last, on Spark or in this process; return as `timed`."""
        return self._ours(lambda **how: iceberg_ds.expire_snapshots(table, "now", 1, options=options, **how), on_spark)

    def clean(self, table: str, options: dict[str, str], *, on_spark: bool) -> dict[str, float]:
        """Remove the orphan files of a table, on Spark or in this process; return as `timed`."""
        return self._ours(lambda **how: iceberg_ds.remove_orphan_files(table, options=options, **how), on_spark)

    def timed(self, statement: str) -> dict[str, float]:
        """Run a statement; return the seconds that it took, and peaks of memory."""
        return self._timed(lambda: self._spark.sql(statement).collect())

    def _ours(self, work: Callable[..., object], on_spark: bool) -> dict[str, float]:  # noqa: FBT001  # as above
        if on_spark:
            return self._timed(lambda: work(spark=self._spark, stream_results=True))
        large, places_on_spark.LARGE_TABLE_FILES = places_on_spark.LARGE_TABLE_FILES, 10**12
        try:
            return self._timed(work)
        finally:
            places_on_spark.LARGE_TABLE_FILES = large

    def _timed(self, work: Callable[[], object]) -> dict[str, float]:
        self._memory.reset()
        _OWN_PEAK.write_text(_RESET_PEAK)
        os.sync()
        before, started = peak_bytes(), time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "driver_peak_bytes": peak_bytes() - before, **self._memory.peaks()}


if __name__ == "__main__":
    remote.serve(ExpiryServer(**remote.arguments()))
