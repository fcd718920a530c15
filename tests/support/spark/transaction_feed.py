"""The files of a change feed that end within transactions of the source."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

from support.spark.jobs import write_file

# Values that pandas would change: whole numbers above 2^53 beside nulls, decimals, bytes, times, nulls within values.
COLUMNS = (
    "position BIGINT, transaction STRING, is_end BOOLEAN, count INT, amount BIGINT, big BIGINT, price DECIMAL(38, 9), "
    "at TIMESTAMP, data BINARY, marks ARRAY<INT>, more STRUCT<a: BIGINT, b: ARRAY<STRING>>"
)


def write_feed(folder: Path, transactions: int, files: int, *, has_ends: bool, seed: int) -> None:
    """Write the files of a feed. The amounts of a transaction, which are positive but for the last one, are 0 together.

    Args:
        folder: Where the files go.
        transactions: How many there are.
        files: Into how many files they are divided, at random.
        has_ends: Whether the feed says where transactions end, and how many rows they have.
        seed: Decides the rows.
    """
    chance = random.Random(seed)  # noqa: S311  # no secret
    rows: list[dict[str, object]] = []
    for number in range(transactions):
        amounts = [chance.randint(1, 2**40) for _ in range(chance.randint(1, 6))]
        for amount in (*amounts, -sum(amounts)):
            row = {
                "transaction": f"t{number}",
                "position": len(rows),
                "amount": amount,
                "big": chance.choice([None, 2**53 + 1, 1 - 2**63]),
                "price": chance.choice([None, "12345678901234567890.123456789", "0.1"]),
                "at": "2026-11-25T10:00:00.123456Z",
                "data": chance.choice([None, "AAH/"]),
                "marks": chance.choice([None, [], [1, None, 3]]),
                "more": chance.choice([None, {"a": None, "b": [None, ""]}, {"a": 2**53 + 1, "b": None}]),
            }
            rows.append(row)
        if has_ends:
            rows.append({"transaction": f"t{number}", "position": len(rows), "is_end": True, "count": len(amounts) + 1})
    cuts = [0, *sorted(chance.sample(range(1, len(rows)), files - 1)), len(rows)]
    for number, (first, end) in enumerate(pairwise(cuts)):
        part = rows[first:end]
        chance.shuffle(part)  # `position` says the order
        write_file(folder, number, "".join(json.dumps(row) + "\n" for row in part))
