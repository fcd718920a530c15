"""Pure: whether a data file lies inside the range of rows that a write replaces.

What cannot be decided from partition values and metrics, whatever the reason, counts as partly inside: its
rows are then read, so that a doubt costs time and never a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.layouts.partitioning import PartitionKey
from iceberg_ds.predicates.expressions import Constant
from iceberg_ds.predicates.facts import FileFacts
from iceberg_ds.predicates.predicates import Tree
from iceberg_ds.predicates.typed import typed_predicate
from iceberg_ds.predicates.values import Values


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
        case_sensitive: As in `typed.typed_predicate`.
        time_zone: As in `typed.typed_predicate`.

    Raises:
        ValueError: The predicate does not fit the table's columns any more.
    """

    def __init__(
        self, metadata: TableMetadata, predicate: Tree, *, case_sensitive: bool, time_zone: str | None = None
    ) -> None:
        self._metadata = metadata
        self._predicate = typed_predicate(
            predicate, metadata.schema(), case_sensitive=case_sensitive, time_zone=time_zone
        )
        self.is_everything = isinstance(self._predicate, Constant) and self._predicate.value.as_py() is True
        self._facts = lru_cache(maxsize=None)(self._facts_of_spec)

    def may_touch(self, manifest: ManifestFile) -> bool:
        """Return whether the partitions of `manifest` allow rows that satisfy the predicate."""
        return _or_else(lambda: self._of_manifest(manifest).may_be_true, True)  # noqa: FBT003

    def coverage(self, data_file: DataFile) -> Coverage:
        """Return what the partition and the metrics of `data_file` say."""
        if self.is_everything:
            return Coverage.INSIDE
        if data_file.record_count == 0:
            return Coverage.OUTSIDE
        if not _or_else(lambda: self._of_partition(data_file).may_be_true, True):  # noqa: FBT003
            return Coverage.OUTSIDE
        is_inside = _or_else(lambda: _is_true(self._of_rows(data_file)), False)  # noqa: FBT003
        return Coverage.INSIDE if is_inside else Coverage.PARTIAL

    def _of_manifest(self, manifest: ManifestFile) -> Values:
        return self._predicate.among(self._facts(manifest.partition_spec_id).of_manifest(manifest))

    def _of_partition(self, data_file: DataFile) -> Values:
        return self._predicate.among(self._facts(data_file.spec_id).of_partition(data_file))

    def _of_rows(self, data_file: DataFile) -> Values:
        return self._predicate.among(self._facts(data_file.spec_id).of_rows(data_file))

    def _facts_of_spec(self, spec_id: int) -> FileFacts:
        return FileFacts(self._metadata.schema(), self._metadata.specs()[spec_id])


def _is_true(outcome: Values) -> bool:
    return outcome.may_be_true and not outcome.may_be_false and not outcome.has_nulls


def _or_else(decide: Callable[[], bool], otherwise: bool) -> bool:  # noqa: FBT001  # the answer, not a switch
    """Return the decision, or the one that is always safe if the values cannot be compared."""
    try:
        return decide()
    except Exception:  # partitions and bounds of other types than the columns have, and the like
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
