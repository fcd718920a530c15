"""Pure: which rows a numbered write has put into a quarantine table, as that table tells.

The snapshot of such a write has a digest of its rows in its summary. A write that is repeated may have other rows that
cannot be written than the try before it, because others changed a column of the table between them. So its number alone
does not say that its rows are in the quarantine table: the digest does, for as long as the snapshot has not expired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.plan import NumberedWrite
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory
from iceberg_ds.snapshots.txn import find_markers, find_picked, kind_of, marker_in, picked_source, writer_in

# Summary key of the digest. Each write of rows for a quarantine has it, and no other write.
QUARANTINED_ROWS_KEY = "icebergsink.quarantined-rows"
# Summary key of the UUIDs of the tables that the rows are for; the rows have only the tables' names.
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


def find_earlier_try(
    metadata: TableMetadata, numbered: NumberedWrite, *, of_all: RowsDigest, of_missing: RowsDigest
) -> EarlierTry:
    """Return what a quarantine table tells of an earlier try of a write.

    Args:
        metadata: The quarantine table.
        numbered: The number, and the writer as the quarantine table knows it.
        of_all: Digest of all rows of this try that cannot be written.
        of_missing: Digest of those of them whose tables do not have the number. An earlier try may have had these
            alone, if the other tables had it before that.
    """
    history, kind = BranchHistory(metadata, MAIN_BRANCH), kind_of(numbered)
    last = find_markers(history, kind, numbered.writer).last
    if (last is None or last.number < numbered.number) and find_picked(history, numbered, last) is None:
        return EarlierTry.NONE
    for snapshot in history:
        source = picked_source(metadata, snapshot) or snapshot
        if writer_in(source, kind) == numbered.writer and marker_in(source, kind).number == numbered.number:
            told = summary_entries(source).get(QUARANTINED_ROWS_KEY)
            if told is None:
                return EarlierTry.UNTOLD
            is_same = told in {str(of_all), str(of_missing)}
            return EarlierTry.SAME_ROWS if is_same else EarlierTry.OTHER_ROWS
    if of_all.count == 0 and last is not None and last.number > numbered.number:  # most numbers have no such rows
        return EarlierTry.NONE
    return EarlierTry.UNTOLD
