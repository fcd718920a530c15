"""Pure: how far named streams have read, which the table says in properties so that expiry waits for them.

A record says less than the stream has read, if it is late, never more: what is held because of it may be too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from urllib.parse import quote, unquote

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from iceberg_ds.parsing import whole_number
from iceberg_ds.reading.stream import Offset
from iceberg_ds.snapshots.refs import branch_history
from iceberg_ds.table.requests import CommitRequest

CONSUMER_PREFIX = "icebergsource.consumer."
MAX_AGE = "icebergsource.consumer-max-age-ms"
_THIRTY_DAYS_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A named stream, as a table property has it.

    Attributes:
        branch: The branch that it reads.
        snapshot: Id of the snapshot that it has come to.
    """

    branch: str
    snapshot: int


def record_request(metadata: TableMetadata, name: str, branch: str, end: Offset) -> CommitRequest | None:
    """Return the request that notes how far a stream has read; None if the table says it, or is another one."""
    key, text = (
        CONSUMER_PREFIX + quote(name, safe=""),
        json.dumps(asdict(Consumer(branch=branch, snapshot=end.snapshot))),
    )
    if str(metadata.table_uuid) != end.uuid or metadata.properties.get(key) == text:
        return None
    return CommitRequest(
        requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
        updates=(SetPropertiesUpdate(updates={key: text}),),
    )


def awaited_snapshots(metadata: TableMetadata, now_ms: int) -> dict[int, str]:
    """Return the snapshots that named streams still need, each with the reason that it stays.

    A stream needs the snapshot that it has come to, and what follows. It is not waited for if some of that is older
    than the table's property `icebergsource.consumer-max-age-ms`, or if its branch does not have that snapshot.
    """
    oldest_ms = now_ms - whole_number(metadata.properties, MAX_AGE, _THIRTY_DAYS_MS)
    found: dict[int, str] = {}
    for name, consumer in _consumers(metadata):
        needed = []
        for snapshot in branch_history(metadata, consumer.branch):
            needed.append(snapshot)
            if snapshot.snapshot_id == consumer.snapshot:
                break
        else:
            continue
        if all(snapshot.timestamp_ms >= oldest_ms for snapshot in needed[:-1]):
            reason = (
                f"stream '{name}' has read up to snapshot {consumer.snapshot} of branch '{consumer.branch}': if it is "
                f"gone for good, remove property {CONSUMER_PREFIX}{quote(name, safe='')}"
            )
            found |= {snapshot.snapshot_id: reason for snapshot in needed}
    return found


def _consumers(metadata: TableMetadata) -> Iterator[tuple[str, Consumer]]:
    for key, text in sorted(metadata.properties.items()):
        if key.startswith(CONSUMER_PREFIX):
            with suppress(ValueError, TypeError):  # what others wrote there holds nothing
                yield unquote(key.removeprefix(CONSUMER_PREFIX)), Consumer(**json.loads(text))
