"""Pure: how far named streams have read, which the table says in properties so that expiry waits for them.

A record says less than the stream has read, if it is late, never more: what is held because of it may be too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from urllib.parse import quote, unquote

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from iceberg_ds.errors import OptionError
from iceberg_ds.parsing import deciding_number
from iceberg_ds.reading.stream import NO_SNAPSHOT, Offset, StreamRules
from iceberg_ds.snapshots.refs import branch_history
from iceberg_ds.table.requests import AssertNoOthers, CommitRequest

CONSUMER_PREFIX = "icebergsource.consumer."
MAX_AGE = "icebergsource.consumer-max-age-ms"
_THIRTY_DAYS_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A named stream, as a table property has it.

    Attributes:
        branch: The branch that it reads.
        snapshot: Id of the snapshot that it has reached; -1 if it began when the branch had none.
        stream: What tells it from other streams that are given its name.
        is_done: Whether it has read that snapshot to its end.
    """

    branch: str
    snapshot: int
    stream: str
    is_done: bool = False

    @classmethod
    def of(cls, text: str) -> Consumer | None:
        """Return what a property holds; None if that is no record."""
        with suppress(ValueError, TypeError, RecursionError):
            found = cls(**json.loads(text))
            if tuple(map(type, asdict(found).values())) == (str, int, str, bool):
                return found
        return None

    @property
    def read(self) -> str:
        """How far it has read, in words."""
        return "nothing" if self.snapshot == NO_SNAPSHOT else f"up to snapshot {self.snapshot}"

    def needed(self, metadata: TableMetadata, now_ms: int) -> Sequence[Snapshot]:
        """Return the snapshots that the stream still needs, newest first: the one that it has reached, and later ones.

        It is not waited for if some of what follows is older than the table's property
        `icebergsource.consumer-max-age-ms`, or if its branch does not lead on from that snapshot.
        """
        oldest_ms = now_ms - deciding_number(metadata.properties, MAX_AGE, _THIRTY_DAYS_MS)
        history = list(branch_history(metadata, self.branch))
        unread = list(takewhile(lambda snapshot: snapshot.snapshot_id != self.snapshot, history))
        before = (unread[-1].parent_snapshot_id or NO_SNAPSHOT) if unread else None
        leads_on = len(unread) < len(history) or before == self.snapshot
        is_in_time = all(snapshot.timestamp_ms >= oldest_ms for snapshot in unread)
        return history[: len(unread) + 1] if leads_on and is_in_time else ()

    def has_more(self, metadata: TableMetadata, now_ms: int) -> bool:
        """Return whether the stream is waited for and has something to read that the branch has by now."""
        needed = self.needed(metadata, now_ms)
        return bool(needed) and not (self.is_done and needed[0].snapshot_id == self.snapshot)


class AssertNoOtherConsumers(AssertNoOthers):
    """No stream has taken a name beside those in `names`, as `names_of` returns them."""

    def found(self, metadata: TableMetadata) -> frozenset[str]:
        """Return the names of streams."""
        return names_of(metadata)


def names_of(metadata: TableMetadata) -> frozenset[str]:
    """Return the names of streams, each with its branch and what tells it from others of that name."""
    return frozenset(f"{name} of {one.branch} ({one.stream})" for name, one in _consumers(metadata))


def record_request(
    metadata: TableMetadata, table: str, rules: StreamRules, end: Offset, now_ms: int
) -> CommitRequest | None:
    """Return the request that notes how far a stream has read; None if the table says it, or is another one.

    Args:
        metadata: The table.
        table: Identifier of the table, for messages.
        rules: What the stream reads, and its name.
        end: How far it has read.
        now_ms: The time, in milliseconds since the Unix epoch.

    Raises:
        OptionError: The name is that of another stream, which expiry waits for.
    """
    name = str(rules.consumer_id)
    key = _key(name)
    is_done = not end.is_begin and end.is_done
    record = Consumer(branch=rules.branch, snapshot=end.snapshot, stream=end.stream, is_done=is_done)
    found = Consumer.of(metadata.properties.get(key, ""))
    if str(metadata.table_uuid) != end.uuid or found == record:
        return None
    if found is not None and found.stream != end.stream and found.needed(metadata, now_ms):
        raise OptionError(
            f"Cannot read {table}: consumer-id '{name}' is the name of another stream, with a checkpoint of its own, "
            f"which has read {found.read}; expiry could not wait for both. Give this one another name, "
            f"or remove table property {key} if the other one is gone for good."
        )
    return CommitRequest(
        requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
        updates=(SetPropertiesUpdate(updates={key: json.dumps(asdict(record))}),),
    )


def awaited_snapshots(metadata: TableMetadata, now_ms: int) -> dict[int, str]:
    """Return the snapshots that named streams still need, each with the reason that it stays."""
    found: dict[int, str] = {}
    for name, consumer in _consumers(metadata):
        reason = (
            f"stream '{name}' has read {consumer.read} of branch '{consumer.branch}': if it is gone for good, remove "
            f"property {_key(name)}"
        )
        found |= {snapshot.snapshot_id: reason for snapshot in consumer.needed(metadata, now_ms)}
    return found


def awaited_branches(metadata: TableMetadata, now_ms: int) -> frozenset[str]:
    """Return the branches that have something to read for named streams."""
    return frozenset(one.branch for _, one in _consumers(metadata) if one.has_more(metadata, now_ms))


def _key(name: str) -> str:
    return CONSUMER_PREFIX + quote(name, safe="")


def _consumers(metadata: TableMetadata) -> Iterator[tuple[str, Consumer]]:
    for key, text in sorted(metadata.properties.items()):
        if key.startswith(CONSUMER_PREFIX) and (consumer := Consumer.of(text)) is not None:
            yield unquote(key.removeprefix(CONSUMER_PREFIX)), consumer
