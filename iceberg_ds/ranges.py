"""Pure: whether a data file lies inside the range of rows that a write replaces.

What cannot be decided from partition values and metrics, whatever the reason, counts as partly inside: its
rows are then read, so that a doubt costs time and never a row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import inclusive_projection, manifest_evaluator
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import UnsupportedTableError
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
        case_sensitive: Whether its names must have the case of the table's.
    """

    def __init__(self, metadata: TableMetadata, predicate: BooleanExpression, *, case_sensitive: bool) -> None:
        self.is_everything = isinstance(predicate, AlwaysTrue)
        self._metadata = metadata
        self._predicate = predicate
        self._case_sensitive = case_sensitive
        self._may_match = may_match(metadata.schema(), predicate, case_sensitive=case_sensitive)
        self._must_match = must_match(metadata.schema(), predicate, case_sensitive=case_sensitive)
        self._manifest_tests = lru_cache(maxsize=None)(self._manifest_test)

    def may_touch(self, manifest: ManifestFile) -> bool:
        """Return whether the partitions of `manifest` allow rows that satisfy the predicate."""
        if self.is_everything:
            return True
        return _or_else(lambda: self._manifest_tests(manifest.partition_spec_id)(manifest), True)  # noqa: FBT003

    def _manifest_test(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        schema, spec = self._metadata.schema(), self._metadata.specs()[spec_id]
        projected = inclusive_projection(schema, spec, self._case_sensitive)(self._predicate)
        return manifest_evaluator(spec, schema, projected, case_sensitive=True)

    def coverage(self, data_file: DataFile) -> Coverage:
        """Return what the metrics of `data_file` say."""
        if self.is_everything:
            return Coverage.INSIDE
        if data_file.content is not DataFileContent.DATA or not _or_else(lambda: self._may_match(data_file), True):  # noqa: FBT003
            return Coverage.OUTSIDE
        is_inside = _or_else(lambda: self._must_match(data_file), False)  # noqa: FBT003
        return Coverage.INSIDE if is_inside else Coverage.PARTIAL


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
        self._spec_id = metadata.default_spec_id
        self.is_everything = metadata.spec().is_unpartitioned() and bool(data_files)
        self._partitions = {_partition(data_file) for data_file in data_files}
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
                f"{data_file.file_path} was written by partition spec {data_file.spec_id}, and the table's spec is "
                f"{self._spec_id} now, so it cannot be told to which partitions its rows belong. Use replace-where."
            )
        return Coverage.INSIDE if _partition(data_file) in self._partitions else Coverage.OUTSIDE


def _partition(data_file: DataFile) -> tuple[object, ...]:
    """Return the partition as a key that is equal for equal partitions, NaN included."""
    values = (data_file.partition[position] for position in range(len(data_file.partition)))
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in values)
