"""Pure: whether a data file may have a row with one of the keys of a file of keys, by the metrics of both.

What metrics do not say may be. Source: Iceberg spec, "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.types import IcebergType

from iceberg_ds.predicates.metrics import ColumnFacts, facts_of


def may_share_rows(one: Sequence[ColumnFacts], other: Sequence[ColumnFacts]) -> bool:
    """Return whether a row of one file may be equal to one of another in all these columns."""
    return all(map(_may_share_value, one, other))


def _may_share_value(one: ColumnFacts, other: ColumnFacts) -> bool:
    if (one.may_be_null and other.may_be_null) or (one.may_be_nan and other.may_be_nan):
        return True
    if one.is_all_null or other.is_all_null:
        return False
    return not (_is_below(one, other) or _is_below(other, one))


def _is_below(one: ColumnFacts, other: ColumnFacts) -> bool:
    return one.high is not None and other.low is not None and bool(one.high < other.low)


class FactsOf:
    """The facts of files, worked out once for each file and set of columns.

    Args:
        types: The types of the columns, by field id.
    """

    def __init__(self, types: Mapping[int, IcebergType]) -> None:
        self._types = types
        self._known: dict[tuple[str, tuple[int, ...]], tuple[ColumnFacts, ...]] = {}

    def __call__(self, data_file: DataFile, field_ids: tuple[int, ...]) -> tuple[ColumnFacts, ...]:
        """Return the facts of these columns, in their order."""
        key = data_file.file_path, field_ids
        if key not in self._known:
            self._known[key] = tuple(facts_of(data_file, number, self._types[number]) for number in field_ids)
        return self._known[key]
