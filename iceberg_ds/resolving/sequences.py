"""Pure: which rows of the table win over incoming ones of their keys, because their sequence is higher.

The order is that of the events of one write (`changes.winners`): the first column counts most, a null is lower than
every value, NaN higher than every other number, and zeros of either sign are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BooleanType, DoubleType, FixedType, FloatType, IcebergType, UUIDType

from iceberg_ds.changes.digests import DIGEST, digest_keys, digest_seed
from iceberg_ds.changes.winners import key_names
from iceberg_ds.layouts.sorting import ordered_bits
from iceberg_ds.plan import WritePlan

_UUID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRule:
    """How rows of the table are held against incoming ones.

    Attributes:
        types: The types of the sequence columns by field id, the first counts most.
        key_types: The types of the key columns by field id, in the order in which keys are digested.
        seed: Of the digests that the write's tasks report.
    """

    types: Mapping[int, IcebergType]
    key_types: Mapping[int, IcebergType]
    seed: bytes

    @classmethod
    def of(cls, plan: WritePlan) -> SequenceRule | None:
        """Return the rule of a write, None if the rows that it finds give way in any case."""
        feed = plan.changes
        if feed is None or not feed.counts_stored:
            return None
        return cls(
            types={field.field_id: field.field_type for field in feed.sequence},
            key_types={number: plan.schema.find_type(number) for number in feed.key_ids},
            seed=digest_seed(plan.operation_id),
        )

    def comparable(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return canonical values of the sequence columns as what Arrow compares as the rule does."""
        return [_comparable(values, of) for values, of in zip(columns, self.types.values(), strict=True)]

    def told_keys(self, columns: Mapping[int, pa.Array]) -> pa.Table:
        """Return keys with the digests that tasks report of them, from their canonical values by field id."""
        digests = digest_keys([_as_written(columns[number], of) for number, of in self.key_types.items()], self.seed)
        keys = [columns[number] for number in self.key_types]
        return pa.Table.from_arrays([digests, *keys], names=[DIGEST, *key_names(keys)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Incoming rows, in ascending order of their sequences.

    Attributes:
        sequence: Comparable values of the sequence columns.
        keys: Their keys, with the digests that tasks report of them.
    """

    sequence: Sequence[pa.Array]
    keys: pa.Table

    def lose(self, rows: pa.Array, stored: Sequence[pa.Array]) -> pa.Array:
        """Return whether each of some rows loses to one of the table.

        Args:
            rows: Their numbers.
            stored: The comparable sequence of the table's row that each is held against.
        """
        return is_higher(stored, [column.take(rows) for column in self.sequence])


def ascending(sequence: Sequence[pa.Array]) -> pa.Array:
    """Return the positions of rows in the order of their comparable sequences."""
    # Arrow puts nulls last.
    columns = [key for column in sequence for key in (column.is_valid(), column)]
    names = [str(number) for number in range(len(columns))]
    rows = pa.RecordBatch.from_arrays(columns, names=names)
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])


def is_higher(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> pa.Array:
    """Return for each row whether its comparable sequence is higher than the other one's."""
    higher = pa.repeat(pa.scalar(value=False), len(one[0]))
    is_open = pa.repeat(pa.scalar(value=True), len(one[0]))
    for mine, others in zip(one, other, strict=True):
        is_above = pc.fill_null(pc.greater(mine, others), pc.and_(mine.is_valid(), others.is_null()))
        is_same = pc.fill_null(pc.equal(mine, others), pc.and_(mine.is_null(), others.is_null()))
        higher = pc.or_(higher, pc.and_(is_open, is_above))
        is_open = pc.and_(is_open, is_same)
    return higher


def _comparable(values: pa.Array, field_type: IcebergType) -> pa.Array:
    match field_type:
        case FloatType() | DoubleType():
            # A sum with 0 takes the sign from zeros.
            return ordered_bits(pc.add(values.view(pa.float64()), pa.scalar(0.0)))
        case BooleanType():
            return values.cast(pa.int8())
    return values


def _as_written(values: pa.Array, field_type: IcebergType) -> pa.Array:
    """Return canonical values in the type that files have, as far as digests differ by it."""
    match field_type:
        case FixedType():
            return values.cast(pa.binary(len(field_type)))
        case UUIDType():
            return values.cast(pa.binary(_UUID_BYTES))
    return values
