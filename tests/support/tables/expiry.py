"""Expiry of snapshots as a user calls it, and the most aggressive one."""

from __future__ import annotations

import time
from typing import Any

from support.tables.sink import Sink

import iceberg_ds
from iceberg_ds.maintenance.expire_snapshots import Expiry, Wish
from iceberg_ds.table.names import identifier_text

HOUR_MS = 3_600_000


def soon_ms() -> int:
    """Return a time after all commits so far: the most that anyone can ask to go."""
    return time.time_ns() // 1_000_000 + HOUR_MS


def expired(sink: Sink, **arguments: Any) -> iceberg_ds.ExpireResult:
    """Expire all that may go, or what these arguments say."""
    given = {"older_than": soon_ms(), **arguments}
    options = {"warehouse": str(sink.options.warehouse)}
    return iceberg_ds.expire_snapshots(identifier_text(sink.options.table), options=options, **given)


def expired_by(sink: Sink, **arguments: Any) -> iceberg_ds.ExpireResult:
    """Do the same through the catalog of the sink, which may fail."""
    return Expiry(sink.catalog, sink.options.table, Wish.of(soon_ms(), **arguments)).run(dry_run=False)
