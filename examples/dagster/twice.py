"""Materialise two days, the first one again, and again with a step that fails after its commit; count the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from unittest.mock import patch

import dagster as dg
import takings
from pyiceberg.catalog import load_catalog


def fail_once(write: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that writes a day, and raises an error afterwards when it is first called."""
    tries = count(1)

    def write_and_fail(day: str) -> None:
        write(day)
        if next(tries) == 1:
            raise RuntimeError("This try fails after its commit.")

    return write_and_fail


def main() -> None:
    """Materialise, and print how many rows each day has."""
    for day in ("2026-11-20", "2026-11-21", "2026-11-20"):
        dg.materialize([takings.takings], partition_key=day)
    with patch("takings.write_takings", fail_once(takings.write_takings)):
        dg.materialize([takings.takings], partition_key="2026-11-20")
    days = load_catalog("lake").load_table("shop.takings").scan().to_arrow()["day"].to_pylist()
    for day, rows in sorted(Counter(days).items()):
        print(f"{day}: {rows} rows")


if __name__ == "__main__":
    main()
