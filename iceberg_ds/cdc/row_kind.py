"""Pure: what the words of an operation column mean, in all dialects at once and in upper or lower case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc


class RowKind(IntEnum):
    """What a row says about its key, as the integer that event batches hold.

    The numbers are in order of precedence among events of one sequence, but inserts and upserts have equal precedence.
    """

    BEFORE = 0
    DELETE = 1
    UPSERT = 2
    INSERT = 3


# Debezium (c, r, u, d), Flink (+I, -U, +U, -D), Spark and Delta (_change_type), and plain words, each group under the
# one word that stands for it in a table.
_WORDS: dict[RowKind, dict[str, tuple[str, ...]]] = {
    RowKind.INSERT: {"insert": ("i", "insert", "c", "create", "+i")},
    RowKind.UPSERT: {
        "update": ("u", "update", "+u", "update_postimage", "update_after"),
        "upsert": ("upsert",),
        "read": ("r", "read"),
    },
    RowKind.DELETE: {"delete": ("d", "delete", "-d")},
    RowKind.BEFORE: {"update_before": ("-u", "update_preimage", "update_before")},
}
_KINDS = {word: kind for kind, groups in _WORDS.items() for words in groups.values() for word in words}
_NAMES = {word: name for groups in _WORDS.values() for name, words in groups.items() for word in words}
# Materialize (_mz_diff): an update is -1 for the old row and +1 for the new one.
_DIFFS = {-1: RowKind.BEFORE, 1: RowKind.UPSERT}
_DIFF_NAMES = {-1: "update_before", 1: "upsert"}
# Words of rows that replace a row which the feed does not show.
_LONE = ("u", "update", "upsert")
# Most unknown words that are counted apart; further words are counted together.
_MAX_WORDS = 20
OTHER_WORDS = "other words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What the rows of a batch do.

    Attributes:
        kinds: A `RowKind` for each row as int8, null where the word is unknown.
        unknown: How many rows have each unknown word.
    """

    kinds: pa.Array
    unknown: Counter[str]


def describe_words() -> str:
    """Return all known words as text, for errors."""
    return f"{', '.join(_KINDS)}, in any case, or the numbers 1 and -1"


def read_operations(column: pa.Array) -> Operations:
    """Return what the words in an operation column mean.

    Args:
        column: Strings or integers.
    """
    encoded = column.dictionary_encode(null_encoding="encode")
    words = encoded.dictionary.to_pylist()
    known = pa.array([_kind(word) for word in words], pa.int8())
    kinds = known.take(encoded.indices)
    unknown: Counter[str] = Counter()
    if kinds.null_count:
        refused = pc.value_counts(encoded.indices.filter(kinds.is_null())).to_pylist()
        for found in refused:
            count_words(unknown, {_text(words[found["values"]]): found["counts"]})
    return Operations(kinds=kinds, unknown=unknown)


def operation_names(column: pa.Array) -> pa.Array:
    """Return for each row the one word that stands for its operation in a table, null where its word is unknown."""
    encoded = column.dictionary_encode(null_encoding="encode")
    names = pa.array([_name(word) for word in encoded.dictionary.to_pylist()], pa.string())
    return names.take(encoded.indices)


def are_lone_updates(column: pa.Array) -> pa.Array:
    """Return which rows replace a row that the feed does not show, so that the old row cannot be taken back."""
    encoded = column.dictionary_encode(null_encoding="encode")
    words = encoded.dictionary.to_pylist()
    return pa.array([isinstance(word, str) and word.lower() in _LONE for word in words]).take(encoded.indices)


def count_words(counted: Counter[str], words: dict[str, int] | Counter[str]) -> None:
    """Add counts of unknown words; new words are counted together once `_MAX_WORDS` words are counted apart."""
    for word, count in words.items():
        counted[word if word in counted or len(counted) < _MAX_WORDS else OTHER_WORDS] += count


def with_deletes(kinds: pa.Array, is_delete: pa.Array) -> pa.Array:
    """Return the kinds, with every kind but `BEFORE` replaced by `DELETE` where `is_delete` is true."""
    is_marked = pc.and_(pc.fill_null(is_delete, False), pc.not_equal(kinds, pa.scalar(RowKind.BEFORE, pa.int8())))  # noqa: FBT003  # Arrow's signature
    return pc.if_else(is_marked, pa.scalar(RowKind.DELETE, pa.int8()), kinds)


def _kind(word: str | int | None) -> RowKind | None:
    if isinstance(word, str):
        return _KINDS.get(word.lower())
    return None if word is None else _DIFFS.get(word)


def _name(word: str | int | None) -> str | None:
    if isinstance(word, str):
        return _NAMES.get(word.lower())
    return None if word is None else _DIFF_NAMES.get(word)


def _text(word: str | int | None) -> str:
    return "null" if word is None else repr(word)
