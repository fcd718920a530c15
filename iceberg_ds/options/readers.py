"""Pure: which readers can read which deletes, and the encoding of deletes that all of a set of readers can read.

Each fact was tried in the tests or stands in the readers' own documentation or source; `docs/keys/readers.md` names the
place of each. A delete that a reader is not proven to read counts as one that it cannot read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Literal, TypeAlias

DeleteEncoding: TypeAlias = Literal["equality", "position", "deletion-vector", "copy-on-write"]


class Deletes(Enum):
    """What a reader may meet in a table."""

    POSITIONS = auto()
    VECTORS = auto()
    KEYS = auto()  # equality deletes of partitions, and of tables that never had partitions
    KEYS_OF_ALL = auto()  # equality deletes of a whole table whose rows lie in partitions


_ALL = frozenset(Deletes)
READERS: Mapping[str, frozenset[Deletes]] = {
    "athena": frozenset({Deletes.POSITIONS}),
    "bigquery": frozenset({Deletes.POSITIONS, Deletes.VECTORS}),
    "clickhouse": frozenset({Deletes.POSITIONS, Deletes.KEYS}),
    "daft": frozenset({Deletes.POSITIONS}),
    "datafusion": _ALL,
    "duckdb": frozenset({Deletes.POSITIONS, Deletes.VECTORS}),
    "flink": _ALL,
    "hive": frozenset({Deletes.POSITIONS, Deletes.KEYS}),
    "impala": frozenset({Deletes.POSITIONS, Deletes.VECTORS, Deletes.KEYS}),
    "polars": frozenset({Deletes.POSITIONS, Deletes.VECTORS}),
    "pyiceberg": frozenset({Deletes.POSITIONS, Deletes.VECTORS}),
    "sail": _ALL,
    "snowflake": frozenset({Deletes.POSITIONS}),
    "spark": _ALL,
    "trino": _ALL,
}
_POSITIONS_UNTIL = 2
_FIRST_WITH_DELETES = 2


def pick_encoding(
    readers: Iterable[str], *, format_version: int, are_global: bool, offered: Sequence[DeleteEncoding]
) -> DeleteEncoding:
    """Return the first encoding on offer that all readers can read.

    Args:
        readers: Names of `READERS`; empty for readers of all kinds.
        format_version: The table's format version.
        are_global: Whether equality deletes would cover a whole table whose rows lie in partitions.
        offered: The encodings that can be written, the best one first.

    Raises:
        ValueError: No encoding suits all readers; says for each encoding which readers cannot read it.
    """
    refused = []
    for encoding in offered:
        if not _exists(encoding, format_version):
            refused.append(f"{encoding} is not in format version {format_version}")
        elif unable := unable_readers(readers, encoding, format_version=format_version, are_global=are_global):
            refused.append(f"{describe(encoding, are_global=are_global)} cannot be read by {', '.join(unable)}")
        else:
            return encoding
    raise ValueError("; ".join(refused))


def without_vectors() -> list[str]:
    """Return the readers that are not known to read deletion vectors, as tables of format version 3 have them."""
    return [reader for reader, known in READERS.items() if Deletes.VECTORS not in known]


def unable_readers(
    readers: Iterable[str], encoding: DeleteEncoding, *, format_version: int, are_global: bool
) -> list[str]:
    """Return the readers that cannot read an encoding; the arguments are those of `pick_encoding`."""
    needed = _needed(encoding, format_version, are_global=are_global)
    return [reader for reader in readers if not needed <= READERS[reader]]


def describe(encoding: DeleteEncoding, *, are_global: bool) -> str:
    """Return in words what readers meet."""
    if encoding != "equality":
        return encoding
    return "equality deletes of the whole table" if are_global else "equality deletes by partition"


def _exists(encoding: DeleteEncoding, format_version: int) -> bool:
    match encoding:
        case "copy-on-write":
            return True
        case "position":
            return format_version == _POSITIONS_UNTIL
        case "deletion-vector":
            return format_version > _POSITIONS_UNTIL
    return format_version >= _FIRST_WITH_DELETES


def _needed(encoding: DeleteEncoding, format_version: int, *, are_global: bool) -> set[Deletes]:
    positions = Deletes.POSITIONS if format_version <= _POSITIONS_UNTIL else Deletes.VECTORS
    match encoding:
        case "copy-on-write":
            return set()
        case "position" | "deletion-vector":
            return {positions}
    # A row that another task of the same write supersedes is hidden by its position.
    return {positions, Deletes.KEYS_OF_ALL if are_global else Deletes.KEYS}
