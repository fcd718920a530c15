"""Random keys, files and mishaps: an index of keys finds the rows that a search of the files themselves finds."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from support.keys.indexed_files import LIST, IndexedFiles, another_process, flip

from iceberg_ds.deletes import key_blocks, key_index
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.table.lineage import ROW_ID

_DAY = dt.date(1969, 12, 31)
_NOON = dt.datetime(1969, 12, 31, 12)  # noqa: DTZ001  # a timestamp without a zone


@dataclass(frozen=True)
class Kind:
    """A type of keys: its values by small numbers, and the types in which files have them."""

    field_type: IcebergType
    stored: tuple[pa.DataType, ...]
    value: Callable[[int], Any] = int


KINDS = (
    Kind(LongType(), (pa.int64(), pa.int32()), lambda number: number - 3),
    Kind(LongType(), (pa.int64(),), lambda number: (number - 3) << 60),
    Kind(IntegerType(), (pa.int32(),)),
    Kind(StringType(), (pa.string(), pa.large_string()), lambda number: "ä" * (number % 5) + str(number // 5)),
    Kind(BinaryType(), (pa.binary(),), lambda number: b"\0" * (40 * number)),
    Kind(FixedType(3), (pa.binary(3),), lambda number: bytes([0, number, 0])),
    Kind(UUIDType(), (pa.binary(16),), lambda number: bytes([number % 3, *[0] * 14, number])),
    Kind(
        DecimalType(12, 2), (pa.decimal128(12, 2), pa.decimal128(9, 2)), lambda number: Decimal(number - 3) / Decimal(4)
    ),
    Kind(DateType(), (pa.date32(),), lambda number: _DAY + dt.timedelta(number)),
    Kind(
        TimestampType(),
        (pa.timestamp("us"), pa.timestamp("ms")),
        lambda number: _NOON + dt.timedelta(hours=number),
    ),
    Kind(TimestamptzType(), (pa.timestamp("us", "UTC"),), lambda number: _NOON + dt.timedelta(hours=number)),
    Kind(BooleanType(), (pa.bool_(),), lambda number: number % 2 == 0),
)

# Keys as small numbers; None is null.
_NUMBERS = st.one_of(st.integers(0, 6), st.integers(0, 6), st.none())
_ROWS = st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=30)
_PLACES = st.floats(0, 1, exclude_max=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _ROWS, st.booleans()),
        st.tuples(st.just("search"), st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=8), st.just(None)),
        st.tuples(st.just("tidy"), st.just(None), st.just(None)),
        st.tuples(st.sampled_from(["drop", "return", "lose", "list"]), _PLACES, st.just(None)),
        st.tuples(st.just("flip"), _PLACES, _PLACES),
        st.tuples(st.just("restart"), st.just(None), st.just(None)),
    ),
    min_size=4,
    max_size=14,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let blocks, parts and merges have few rows."""
    monkeypatch.setattr(key_blocks, "_BLOCK_ROWS", 3)
    monkeypatch.setattr(key_index, "_SORTED_ROWS", 20)
    monkeypatch.setattr(key_index, "_LEAST_ROWS", 4)
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    yield
    key_index._opened.clear()


class Searched:
    """Data files with keys of some kinds, and what becomes of their index."""

    def __init__(self, folder: Path, kinds: tuple[Kind, ...]) -> None:
        types = {number: kind.field_type for number, kind in enumerate(kinds, 1)}
        self.files = IndexedFiles(folder=folder, types=types)
        self.live: list[FileWork] = []
        self.gone: list[FileWork] = []
        self.searches = 0
        self._kinds = kinds

    def columns(self, rows: list[tuple[int | None, ...]], *, is_first: bool) -> dict[int, pa.Array]:
        """Return rows in the first, or the last, of the types that files may have."""
        found = {}
        for number, kind in enumerate(self._kinds, 1):
            values = [None if row[number - 1] is None else kind.value(row[number - 1]) for row in rows]
            found[number] = pa.array(values, kind.stored[0 if is_first else -1])
        return found

    def take(self, step: tuple[str, Any, Any]) -> None:
        """Do one of `STEPS`."""
        name, what, more = step
        if name == "add":
            ids = {ROW_ID.field_id: [place if place % 3 else None for place in range(len(what))]} if more else {}
            self.live.append(self.files.data({**self.columns(what, is_first=more), **ids}))
        elif name == "search":
            self.files.search(self.live, self.files.keys(self.columns(what, is_first=True)))
            self.searches += 1
        elif name in {"drop", "return"}:
            here, there = (self.live, self.gone) if name == "drop" else (self.gone, self.live)
            if here:
                there.append(here.pop(int(what * len(here))))
        elif name == "tidy":
            self.files.tidy(self.live)
        elif name == "restart":
            key_index._opened.clear()
        elif self.files.index.exists():
            self.harm(name, what, more)

    def harm(self, name: str, what: float, more: float) -> None:
        """Damage the list, or a part, or delete one."""
        parts, listed = self.files.parts, self.files.index / LIST
        if name == "list" and listed.exists():
            flip(listed, int(what * listed.stat().st_size))
        elif parts and name != "list":
            part = parts[int(what * len(parts))]
            if name == "lose":
                part.unlink()
            else:
                flip(part, int(more * part.stat().st_size))


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2).map(tuple), STEPS)
@settings(print_blob=True)
def test_index_finds_what_a_search_of_the_files_finds(
    kinds: tuple[Kind, ...], steps: list[tuple[str, Any, Any]]
) -> None:
    """Old rows would stay beside those that replace them, or rows of other keys be hidden."""
    with tempfile.TemporaryDirectory() as folder, another_process():
        searched = Searched(Path(folder), kinds)
        everything: Any = [(number, number) for number in (*range(7), None)]

        for step in [*steps, ("search", everything, None), ("tidy", None, None), ("search", everything, None)]:
            searched.take(step)

        assert searched.searches >= 2
