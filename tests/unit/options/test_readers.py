"""Which deletes which readers can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iceberg_ds.options.readers import READERS, DeleteEncoding, describe, pick_encoding, unable_readers

ALL: tuple[DeleteEncoding, ...] = ("equality", "position", "deletion-vector", "copy-on-write")
PAGE = Path(__file__).parents[3] / "docs" / "keys" / "readers.md"


def picked(*readers: str, version: int = 2, are_global: bool = False, offered: tuple[DeleteEncoding, ...] = ALL) -> str:
    """Return what is picked for readers."""
    return pick_encoding(readers, format_version=version, are_global=are_global, offered=offered)


def test_first_encoding_that_all_readers_read_is_picked() -> None:
    """A reader would meet deletes that it passes over, or writes would cost more than they must."""
    assert picked("spark", "trino", "clickhouse") == "equality"
    assert picked("spark", "clickhouse", are_global=True) == "position"
    assert picked("spark", "pyiceberg", "snowflake") == "position"
    assert picked("pyiceberg", offered=("copy-on-write", "position")) == "copy-on-write"
    assert picked() == "equality"


def test_encoding_fits_the_format_version() -> None:
    """A table would get deletes that its version does not have."""
    assert picked("spark", version=1) == "copy-on-write"
    assert picked("duckdb", version=3) == "deletion-vector"
    assert picked("pyiceberg", version=3) == "deletion-vector"
    assert picked("daft", version=3) == "copy-on-write"
    assert picked("clickhouse", version=3) == "copy-on-write"  # which reads no vectors, and two tasks may need some


def test_refusal_names_readers_and_encodings() -> None:
    """A user would not know which of his readers stands against it."""
    with pytest.raises(ValueError, match=r"^equality deletes by partition cannot be read by duckdb, pyiceberg$"):
        picked("spark", "duckdb", "pyiceberg", offered=("equality",))
    with pytest.raises(
        ValueError, match=r"position is not in format version 3; deletion-vector cannot be read by daft"
    ):
        picked("daft", version=3, offered=("position", "deletion-vector"))


def test_whole_tables_are_told_from_partitions() -> None:
    """A user would look for the wrong reason."""
    assert describe("equality", are_global=True) == "equality deletes of the whole table"
    assert describe("position", are_global=True) == "position"
    assert unable_readers(["clickhouse"], "equality", format_version=2, are_global=True) == ["clickhouse"]


def test_page_tells_of_the_same_readers() -> None:
    """A user would read that a reader can read what the option refuses, or the other way round."""
    rows = re.findall(r"^\| `([a-z]+)` \|" + r"([^|]+)\|" * 4, PAGE.read_text(), re.MULTILINE)
    told = {name: tuple(cell.strip().startswith("yes") for cell in cells) for name, *cells in rows}

    def reads(name: str, encoding: DeleteEncoding, *, version: int = 2, are_global: bool = False) -> bool:
        return not unable_readers([name], encoding, format_version=version, are_global=are_global)

    assert told == {
        name: (
            reads(name, "equality"),
            reads(name, "equality", are_global=True),
            reads(name, "position"),
            reads(name, "deletion-vector", version=3),
        )
        for name in READERS
    }
