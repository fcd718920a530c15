"""The stream of a chaos run that writes by key: which changes its source stands for, and what its table must hold.

A row of the source has a number and a name. Of five numbers one deletes what came some epochs before, one writes one
of few keys again and again, and three write new keys, neighbours the same one. Each change depends on the number
alone, and a higher one comes later: so the source tells the table, row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from chaos.reader import TableFiles

TABLE = "db.k"
MAIN = "main"
_HOT_KEYS = 13
_BACK = 400  # numbers between a row and its delete
_FEW = 5
# The same as `change_of`, in SQL.
SELECT = (
    f"CASE id % 5 WHEN 0 THEN (id - {_BACK}) div 3 WHEN 1 THEN -1 - id % {_HOT_KEYS} ELSE id div 3 END AS id",
    "name",
    "id AS lsn",
    "IF(id % 5 = 0, 'd', 'u') AS op",
)
OPTIONS = {"keys": "id", "sequence-by": "lsn", "operation-column": "op"}


def change_of(number: int) -> tuple[int, bool]:
    """Return the key that a row of the source changes, and whether it deletes it."""
    match number % 5:
        case 0:
            return (number - _BACK) // 3, True
        case 1:
            return -1 - number % _HOT_KEYS, False
    return number // 3, False


def rows_after(numbers: Iterable[int]) -> dict[int, str]:
    """Return the name that each key must have once these rows of the source were taken."""
    found: dict[int, str] = {}
    for number in sorted(numbers):
        key, is_delete = change_of(number)
        found.pop(key, None)
        if not is_delete:
            found[key] = f"row {number}"
    return found


def problems_of(table: TableFiles, numbers: Iterable[int]) -> Iterator[str]:
    """Yield what is wrong with a table whose source has had these rows."""
    expected, found = rows_after(numbers), table.rows_by_key(MAIN)
    times = Counter(key for key, _ in found.elements())
    doubled = sorted(key for key, count in times.items() if count > 1)
    lost, strange = sorted(expected.keys() - times.keys()), sorted(times.keys() - expected.keys())
    wrong = sorted(key for key, name in found if key in expected and expected[key] != name)
    for what, which in (("lost", lost), ("doubled", doubled), ("back after their delete", strange), ("old", wrong)):
        if which:
            yield f"{TABLE}: {len(which)} keys are {what}, such as {which[:_FEW]}"
