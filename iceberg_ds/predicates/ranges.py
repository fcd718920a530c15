"""Pure: whether a data file lies inside the range of rows that a write replaces.

What cannot be decided from partition values and metrics, whatever the reason, counts as partly inside: its
rows are then read, so that a doubt costs time and never a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
    manifest_evaluator,
    strict_projection,
)
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, NestedField

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.layouts.partitioning import PartitionKey
from iceberg_ds.predicates.typed import typed_predicate
from iceberg_ds.pyiceberg_inner import may_match, must_match


class Coverage(Enum):
    """How much of a file lies in a range."""

    OUTSIDE = auto()
    PARTIAL = auto()
    INSIDE = auto()


class Range(ABC):
    """The rows of a branch that a write replaces."""

    is_everything = False

    @abstractmethod
    def may_touch(self, manifest: ManifestFile) -> bool:
        """Return whether a file of `manifest`, which lists data files, may lie in the range."""

    @abstractmethod
    def coverage(self, data_file: DataFile) -> Coverage:
        """Return how much of `data_file` lies in the range."""


class FilterRange(Range):
    """The rows that satisfy a predicate.

    Args:
        metadata: The table.
        predicate: As `predicates.parse_predicate` gives it.
        case_sensitive: As in `typed_predicates.typed_predicate`.

    Raises:
        ValueError: The predicate does not fit the table's columns any more.
    """

    def __init__(self, metadata: TableMetadata, predicate: BooleanExpression, *, case_sensitive: bool) -> None:
        self.is_everything = isinstance(predicate, AlwaysTrue)
        self._metadata = metadata
        self._predicate = typed_predicate(predicate, metadata.schema(), case_sensitive=case_sensitive)
        self._may_match = may_match(metadata.schema(), self._predicate)
        self._must_match = must_match(metadata.schema(), self._predicate)
        self._counted = _counted_fields(metadata.schema(), self._predicate)
        self._tests = lru_cache(maxsize=None)(self._tests_of_spec)

    def may_touch(self, manifest: ManifestFile) -> bool:
        """Return whether the partitions of `manifest` allow rows that satisfy the predicate."""
        if self.is_everything:
            return True
        return _or_else(lambda: self._tests(manifest.partition_spec_id).of_manifest(manifest), True)  # noqa: FBT003

    def coverage(self, data_file: DataFile) -> Coverage:
        """Return what the partition and the metrics of `data_file` say."""
        if self.is_everything:
            return Coverage.INSIDE
        if not self._may_lie_inside(data_file):
            return Coverage.OUTSIDE
        return Coverage.INSIDE if self._must_lie_inside(data_file) else Coverage.PARTIAL

    def _may_lie_inside(self, data_file: DataFile) -> bool:
        partition = PartitionKey.of(data_file.partition).record()
        may = _or_else(lambda: self._tests(data_file.spec_id).may_hold(partition), True)  # noqa: FBT003
        return may and _or_else(lambda: self._may_match(data_file), True)  # noqa: FBT003

    def _must_lie_inside(self, data_file: DataFile) -> bool:
        partition = PartitionKey.of(data_file.partition).record()
        if _or_else(lambda: self._tests(data_file.spec_id).must_hold(partition), False):  # noqa: FBT003
            return True
        return self._is_counted(data_file) and _or_else(lambda: self._must_match(data_file), False)  # noqa: FBT003

    def _is_counted(self, data_file: DataFile) -> bool:
        """Return whether the nulls and NaN of all columns in question were counted, as not every writer does.

        PyIceberg's test takes what was not counted for zero.
        """
        nulls, nans = data_file.null_value_counts or {}, data_file.nan_value_counts or {}
        return all(field_id in nulls and (field_id in nans or not has_nan) for field_id, has_nan in self._counted)

    def _tests_of_spec(self, spec_id: int) -> _PartitionTests:
        return _partition_tests(self._metadata.schema(), self._metadata.specs()[spec_id], self._predicate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionTests:
    """What the partitions of one spec say of a predicate.

    Attributes:
        of_manifest: Whether the partitions of a manifest's files allow a row that satisfies it.
        may_hold: Whether a partition allows one.
        must_hold: Whether each row of a partition satisfies it.
    """

    of_manifest: Callable[[ManifestFile], bool]
    may_hold: Callable[[Record], bool]
    must_hold: Callable[[Record], bool]


def _partition_tests(schema: Schema, spec: PartitionSpec, predicate: BooleanExpression) -> _PartitionTests:
    may = inclusive_projection(schema, spec)(predicate)
    # A partition value that is the column's own proves the most; metrics say it better for all other transforms.
    proving = [field for field in spec.fields if isinstance(field.transform, IdentityTransform)]
    must = strict_projection(schema, PartitionSpec(*proving, spec_id=spec.spec_id))(predicate)
    # Partition values are optional (spec, "Partition Transforms"), and null where a struct above their source is.
    partitions = Schema(
        *(
            NestedField(field.field_id, field.name, field.field_type, required=False)
            for field in spec.partition_type(schema).fields
        )
    )
    return _PartitionTests(
        of_manifest=manifest_evaluator(spec, schema, may),
        may_hold=expression_evaluator(partitions, may, case_sensitive=True),
        must_hold=expression_evaluator(partitions, must, case_sensitive=True),
    )


def _counted_fields(schema: Schema, predicate: BooleanExpression) -> list[tuple[int, bool]]:
    """Return the ids of the columns that the predicate names, and whether each may hold NaN."""
    field_ids = extract_field_ids(bind(schema, predicate, case_sensitive=True))
    return [(field_id, isinstance(schema.find_type(field_id), FloatType | DoubleType)) for field_id in field_ids]


def _or_else(decide: Callable[[], bool], otherwise: bool) -> bool:  # noqa: FBT001  # the answer, not a switch
    """Return the decision, or the one that is always safe if PyIceberg cannot compare the values."""
    try:
        return decide()
    except Exception:  # types that were widened since, transforms that it cannot project, and the like
        return otherwise


class PartitionRange(Range):
    """The partitions that a set of data files belongs to; in an unpartitioned table all rows.

    Args:
        metadata: The table.
        data_files: The files.
        name: The table's name, for errors.
    """

    def __init__(self, metadata: TableMetadata, data_files: Sequence[DataFile], name: str) -> None:
        # The files' own, because the table's may have changed since they were written.
        self._spec_id = data_files[0].spec_id if data_files else metadata.default_spec_id
        spec = metadata.specs()[self._spec_id]
        is_unpartitioned = all(isinstance(field.transform, VoidTransform) for field in spec.fields)
        self.is_everything = is_unpartitioned and bool(data_files)
        self._partitions = {PartitionKey.of(data_file.partition) for data_file in data_files}
        self._name = name

    def may_touch(self, manifest: ManifestFile) -> bool:  # noqa: ARG002  # the files tell it as fast
        """Return whether there are partitions at all."""
        return bool(self._partitions)

    def coverage(self, data_file: DataFile) -> Coverage:
        """Return whether the file's partition is one of them.

        Raises:
            UnsupportedTableError: The file was written by another partition spec.
        """
        if self.is_everything:
            return Coverage.INSIDE
        if data_file.spec_id != self._spec_id:
            raise UnsupportedTableError(
                f"Cannot write to {self._name} with overwrite-mode=dynamic, nothing was committed: "
                f"{data_file.file_path} was written by partition spec {data_file.spec_id} and these rows by "
                f"{self._spec_id}, so it cannot be told to which partitions its rows belong. Use replace-where."
            )
        return Coverage.INSIDE if PartitionKey.of(data_file.partition) in self._partitions else Coverage.OUTSIDE
