"""Pure: which rows a numbered write has put into a quarantine table, as that table tells.

The snapshot of such a write has a digest of its rows in its summary. A write that is repeated may have other rows that
cannot be written than the try before it, because others changed a column of the table between them. So its number alone
does not say that its rows are in the quarantine table: the digest does, for as long as the snapshot has not expired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.plan import NumberedWrite
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.origins import origins_in
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory
from iceberg_ds.snapshots.txn import (
    TxnMarker,
    find_markers,
    find_picked,
    kind_of,
    marker_in,
    picked_source,
    writer_in,
)

# Summary key of the digest. Each write of rows for a quarantine has it, and no other write.
QUARANTINED_ROWS_KEY = "icebergsink.quarantined-rows"
# Summary key of the UUIDs of the tables that the rows are for, in snapshots from before they told the origins.
QUARANTINED_TABLES_KEY = "icebergsink.quarantined-tables"
_DIGEST_BYTES = 16
_MODULUS = 2 ** (8 * _DIGEST_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsDigest:
    """A digest of rows that does not depend on their order; those of two sets add up to that of both.

    Attributes:
        count: Number of rows.
        total: Sum of the digests of the rows, modulo 2**128.
    """

    count: int = 0
    total: int = 0

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]]) -> RowsDigest:
        """Return the digest of rows, each a row's text and the identifier of its table."""
        digests = [
            hashlib.blake2b(f"{table}\0{row}".encode(), digest_size=_DIGEST_BYTES).digest() for row, table in rows
        ]
        return cls(count=len(digests), total=sum(int.from_bytes(digest, "big") for digest in digests) % _MODULUS)

    @classmethod
    def over(cls, parts: Iterable[RowsDigest]) -> RowsDigest:
        """Return the digest of the rows of all parts."""
        found = list(parts)
        return cls(count=sum(part.count for part in found), total=sum(part.total for part in found) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.count} {self.total:0{2 * _DIGEST_BYTES}x}"


class EarlierTry(Enum):
    """What a quarantine table tells of an earlier try of a numbered write."""

    NONE = auto()  # it put no rows there
    SAME_ROWS = auto()
    OTHER_ROWS = auto()
    UNTOLD = auto()  # it has the number, and the snapshot that would tell its rows has expired, or has no digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An earlier try of a numbered write.

    Attributes:
        found: What the quarantine table tells of it.
        numbered: The number, and the writer under the name by which the table knows it.
        marker: The writer's last marker in the table; None if it has none.
    """

    found: EarlierTry
    numbered: NumberedWrite
    marker: TxnMarker | None = None


def find_earlier_try(
    metadata: TableMetadata,
    names: Sequence[NumberedWrite],
    rows: Callable[[Mapping[str, str]], Sequence[RowsDigest]],
) -> Earlier:
    """Return what a quarantine table tells of an earlier try of a write.

    Args:
        metadata: The quarantine table.
        names: The number, and the writer under each name by which the quarantine table may know it.
        rows: Returns digests of this try, from the identifiers that tables had in an earlier try, by UUID: first that
            of all rows that cannot be written, then that of those whose tables do not have the number. An earlier try
            may have had these alone, if the other tables had it before that.
    """
    history, kind, number = BranchHistory(metadata, MAIN_BRANCH), kind_of(names[0]), names[0].number
    tries = [
        Earlier(found=EarlierTry.NONE, numbered=name, marker=find_markers(history, kind, name.writer).last)
        for name in names
    ]
    known = max(tries, key=lambda one: -1 if one.marker is None else one.marker.number)
    picked = [one for one in tries if find_picked(history, one.numbered, one.marker) is not None]
    is_passed = known.marker is not None and known.marker.number > number
    if not picked and (known.marker is None or known.marker.number < number):
        return tries[0]
    writers = {one.numbered.writer: one for one in tries}
    for snapshot in history:
        source = picked_source(metadata, snapshot) or snapshot
        writer = writer_in(source, kind)
        if writer in writers and marker_in(source, kind).number == number:
            told = summary_entries(source).get(QUARANTINED_ROWS_KEY)
            if told is None:
                return replace(writers[writer], found=EarlierTry.UNTOLD)
            had = {origin.table_uuid: name for name, origin in (origins_in(source) or {}).items()}
            is_same = told in {str(digest) for digest in rows(had)}
            return replace(writers[writer], found=EarlierTry.SAME_ROWS if is_same else EarlierTry.OTHER_ROWS)
    if is_passed and rows({})[0].count == 0:  # most numbers have no such rows
        return tries[0]
    return replace(known, found=EarlierTry.UNTOLD)
