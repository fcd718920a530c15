"""TPC-H's tables, which `tpchgen-cli` makes without any network, and when two answers to a query are the same.

An answer is a list of rows of texts, after one with the columns' names: a decimal's text has all of its digits.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
_SHOWN = 3


def make_tables(folder: Path, scale: Decimal) -> dict[str, Path]:
    """Write the tables of a scale factor as Parquet files, unless they are there, and return these."""
    program = Path(sysconfig.get_path("scripts"), "tpchgen-cli")
    command = [program, "parquet", f"--scale-factor={scale}", f"--output-dir={folder}", "--quiet"]
    subprocess.run(command, check=True)
    return {table: folder / f"{table}.parquet" for table in TABLES}


def tables_of(query: str) -> list[str]:
    """Return the tables that a query names."""
    return [table for table in TABLES if re.search(rf"\b{table}\b", query)]


def as_answer(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> list[list[str]]:
    """Return an answer."""
    return [list(columns), *([str(value) for value in row] for row in rows)]


def difference(query: str, found: list[list[str]], expected: list[list[str]]) -> str | None:
    """Return how an answer differs from the expected one, or None.

    Rows that are equal in what the query orders by may come in any order.
    """
    if found[0] != expected[0]:
        return f"columns {found[0]} instead of {expected[0]}"
    rows, wanted = Counter(map(tuple, found[1:])), Counter(map(tuple, expected[1:]))
    if rows != wanted:
        extra, missing = (list(some.elements())[:_SHOWN] for some in (rows - wanted, wanted - rows))
        return f"{rows.total()} rows instead of {wanted.total()}: {extra} instead of {missing}"
    places = [found[0].index(name) for name in _ordering(query)]
    for number, (row, other) in enumerate(zip(found[1:], expected[1:], strict=True), start=1):
        if any(row[place] != other[place] for place in places):
            return f"another order from row {number} on: {row} instead of {other}"
    return None


def _ordering(query: str) -> list[str]:
    """Return the columns that a query orders its answer by."""
    found = re.search(r"^ORDER BY (.+)$", query, re.MULTILINE)
    return [term.split()[0] for term in found[1].split(",")] if found else []
