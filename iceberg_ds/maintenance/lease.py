"""A lease on the maintenance of a table: of several maintainers one does the work, and the rest leave it to that one.

The lease is a table property with its owner and the time until which it holds; the owner renews it while it works. A
maintainer that died leaves its lease behind until that time. The lease spares work and is no lock: should two
maintainers work at once, as their clocks may differ and REST catalogs take no condition on a property, then each of
their commits is as safe as beside any other writer.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

LEASE_KEY = "icebergsink.maintenance-lease"
# A lease is renewed so many times before it ends.
_RENEWALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has the lease on a table.

    Attributes:
        owner: The maintainer.
        until_ms: Until when, in milliseconds since 1970, by the owner's clock.
    """

    owner: str
    until_ms: int

    def to_text(self) -> str:
        """Return the value of the property."""
        return json.dumps({"owner": self.owner, "until-ms": self.until_ms})


def holder_of(metadata: TableMetadata, now_ms: int) -> Holder | None:
    """Return who holds the lease now, or None if no lease is held, it has ended, or its property cannot be read."""
    try:
        told = json.loads(metadata.properties[LEASE_KEY])
        found = Holder(owner=str(told["owner"]), until_ms=int(told["until-ms"]))
    except (KeyError, TypeError, ValueError):
        return None
    return found if found.until_ms > now_ms else None


@contextmanager
def leased(catalog: CatalogClient, identifier: Sequence[str], seconds: float) -> Iterator[Holder | None]:
    """Hold the lease on a table in the block; yield None, or the other one that has it.

    Args:
        catalog: The catalog of the table.
        identifier: Levels of the table's identifier.
        seconds: How long the lease outlives its owner.

    Raises:
        CatalogError, CommitConflictError, CommitStateUnknownError: The table's property could not be changed.
    """
    lease = _Lease(catalog, identifier, seconds)
    other = lease.take()
    if other is not None:
        yield other
        return
    ended = threading.Event()
    renewing = threading.Thread(target=lease.renew_until, args=(ended,), daemon=True, name="iceberg-ds-lease")
    renewing.start()
    try:
        yield None
    finally:
        ended.set()
        renewing.join()
        lease.give_up()


class _Lease:
    def __init__(self, catalog: CatalogClient, identifier: Sequence[str], seconds: float) -> None:
        self._catalog = catalog
        self._identifier = tuple(identifier)
        self._seconds = seconds
        self._owner = uuid.uuid4().hex

    def take(self) -> Holder | None:
        """Take the lease, or make it last; return the other one that has it, if any."""
        until_ms = _now_ms() + int(self._seconds * 1000)
        others: list[Holder] = []

        def propose(metadata: TableMetadata) -> CommitRequest | None:
            holder = holder_of(metadata, _now_ms())
            others[:] = [holder] if holder is not None and holder.owner != self._owner else []
            if others or (holder is not None and holder.until_ms >= until_ms):
                return None
            mine = Holder(owner=self._owner, until_ms=until_ms)
            return CommitRequest(
                requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
                updates=(SetPropertiesUpdate(updates={LEASE_KEY: mine.to_text()}),),
            )

        alter_table(self._catalog, self._identifier, propose)
        return others[0] if others else None

    def renew_until(self, ended: threading.Event) -> None:
        """Make the lease last until the event; what keeps it from lasting is logged, and ends nothing."""
        while not ended.wait(self._seconds / _RENEWALS):
            try:
                other = self.take()
            except IcebergSinkError as problem:
                logger.warning("The lease on the maintenance of a table could not be renewed: %s", problem)
            else:
                if other is not None:
                    logger.warning("Another maintainer, %s, has the lease on the same table", other.owner)

    def give_up(self) -> None:
        """Give the lease up; it ends by itself if that fails."""

        def propose(metadata: TableMetadata) -> CommitRequest | None:
            holder = holder_of(metadata, 0)
            if holder is None or holder.owner != self._owner:
                return None
            return CommitRequest(
                requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
                updates=(RemovePropertiesUpdate(removals=[LEASE_KEY]),),
            )

        try:
            alter_table(self._catalog, self._identifier, propose)
        except IcebergSinkError as problem:
            logger.warning("The lease on the maintenance of a table ends by itself: %s", problem)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
