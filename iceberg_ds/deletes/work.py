"""The values of a search for keys that travel: work and its plan to the tasks, answers back to the driver.

Frozen and picklable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType

from iceberg_ds.plan import WritePlan
from iceberg_ds.table.partitioning import place_of

_GRANULARITY = "write.delete.granularity"
# No sequence number is as high.
_ABOVE_ALL = 2**63 - 1

RowEncoding: TypeAlias = Literal["position", "copy-on-write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """A Parquet file of keys whose rows are to be found.

    Attributes:
        path: Where it is.
        field_ids: The columns that a row must share with one of its rows, ascending.
        sequence_number: Rows of data files below it are meant; None for rows of all data files.
    """

    path: str
    field_ids: tuple[int, ...]
    sequence_number: int | None

    @property
    def applies_below(self) -> int:
        """The number that the sequence numbers of the data files are below."""
        return _ABOVE_ALL if self.sequence_number is None else self.sequence_number


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWork:
    """A data file to look for keys in.

    Attributes:
        data_file: Its manifest entry, without metrics.
        sequence_number: Its data sequence number.
        keys: The files of keys that it may have.
        positions: The files of position deletes that may hide rows of it already.
        read_bytes: About how much is read of it.
        partition_values: The values of its identity partition fields, by the ids of their columns.
    """

    data_file: DataFile
    sequence_number: int
    keys: tuple[KeyFile, ...]
    positions: tuple[str, ...] = ()
    read_bytes: int = 0
    partition_values: Mapping[int, object] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where the data file is."""
        return self.data_file.file_path

    @property
    def place(self) -> tuple[int, str]:
        """Its partition: deletes of one file are of one place."""
        return place_of(self.data_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvePlan:
    """Everything that tasks are told of a search.

    Attributes:
        writing: How files are written, and what opens storage.
        specs: The table's partition specs, by id.
        sort_orders: Its sort orders, by id.
        key_types: The types of key columns as the table has them now, by field id.
        encoding: What becomes of the rows that are found: marked by position, or left out of a new file.
    """

    writing: WritePlan
    specs: Mapping[int, PartitionSpec]
    key_types: Mapping[int, IcebergType]
    sort_orders: Mapping[int, SortOrder] = field(default_factory=dict)
    encoding: RowEncoding = "position"

    @classmethod
    def of(
        cls, writing: WritePlan, metadata: TableMetadata, key_types: Mapping[int, IcebergType], encoding: RowEncoding
    ) -> ResolvePlan:
        """Return the plan of a search in a table as its metadata describe it.

        Files are written again with the columns of the table, whatever the rows were written with that replace theirs.
        """
        return cls(
            writing=replace(writing, schema=metadata.schema()),
            specs=metadata.specs(),
            sort_orders={order.order_id: order for order in metadata.sort_orders},
            key_types=key_types,
            encoding=encoding,
        )

    @property
    def is_by_file(self) -> bool:
        """Whether each file of position deletes is of one data file only."""
        return self.writing.properties.get(_GRANULARITY, "").lower() == "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """What was found in a data file.

    Attributes:
        path: Where it is.
        sequence_number: Its data sequence number.
        rows: How many of its rows, not hidden before, have one of the keys.
        rewritten: The files that hold its other rows, none if there is no such row; None if it was not rewritten.
        positions: The files of position deletes that were looked at.
        late_keys: The keys, with their digests, of which it has a row, not hidden before, that wins over the incoming
            one; None for none.
    """

    path: str
    sequence_number: int
    rows: int
    rewritten: tuple[DataFile, ...] | None = None
    positions: frozenset[str] = frozenset()
    late_keys: pa.Table | None = None

    @property
    def rests_on_deletes(self) -> bool:
        """Whether other position deletes would make another answer."""
        return self.rewritten is not None or self.late_keys is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """A file of position deletes that a task has written.

    Attributes:
        file: The file.
        paths: The data files whose rows it hides.
    """

    file: DataFile
    paths: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswer:
    """What a task found and wrote.

    Attributes:
        files: One answer for each data file; none if it failed.
        marks: Files of position deletes that it wrote.
        read_bytes: Compressed bytes of the columns that it read.
        problem: Why it failed, None if it did not; then it has deleted its files.
    """

    files: tuple[FileAnswer, ...] = ()
    marks: tuple[Marks, ...] = ()
    read_bytes: int = 0
    problem: str | None = None
