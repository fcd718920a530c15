"""The messages of a search for keys: work and its plan go to the tasks, answers go back to the driver.

All of them are frozen and picklable.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal, TypeAlias

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType

from iceberg_ds.plan import WritePlan
from iceberg_ds.snapshots.live_files import HiddenBy
from iceberg_ds.table.bin_packing import packed
from iceberg_ds.table.name_mapping import NAME_MAPPING
from iceberg_ds.table.partitioning import place_of
from iceberg_ds.writers.deletion_vectors import has_vectors

_GRANULARITY = "write.delete.granularity"
# Above all sequence numbers.
_ABOVE_ALL = 2**63 - 1
# The largest number of rows of data files that are searched together, where all their positions may be in memory.
PORTION_ROWS = 20_000_000

RowEncoding: TypeAlias = Literal["position", "copy-on-write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """A Parquet file of keys whose rows are to be found.

    Attributes:
        path: Path of the file.
        field_ids: Field ids of the columns in which a row must equal a row of this file, ascending.
        sequence_number: The keys apply to data files with lower data sequence numbers; None for all data files.
    """

    path: str
    field_ids: tuple[int, ...]
    sequence_number: int | None

    @property
    def applies_below(self) -> int:
        """The keys apply to data files with data sequence numbers below this one."""
        return _ABOVE_ALL if self.sequence_number is None else self.sequence_number


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWork:
    """A data file to look for keys in.

    Attributes:
        data_file: Its manifest entry, without metrics.
        sequence_number: Its data sequence number.
        keys: The files of keys that may have keys of its rows.
        hidden_by: What may already hide rows of it by position.
        chosen: Paths of files of positions, in no table, that may name rows of it to remove.
        read_bytes: About how many bytes are read of it.
        partition_values: The values of its identity partition fields, by source column id.
    """

    data_file: DataFile
    sequence_number: int
    keys: tuple[KeyFile, ...]
    hidden_by: HiddenBy = field(default_factory=HiddenBy)
    chosen: tuple[str, ...] = ()
    read_bytes: int = 0
    partition_values: Mapping[int, object] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path of the data file."""
        return self.data_file.file_path

    @property
    def size_bytes(self) -> int:
        """Size of the data file."""
        return self.data_file.file_size_in_bytes

    @property
    def place(self) -> tuple[int, str]:
        """Partition of the data file: all deletes in a delete file are of one partition."""
        return place_of(self.data_file)


def portions(work: Sequence[FileWork], most_rows: int = PORTION_ROWS) -> Iterator[list[FileWork]]:
    """Yield groups of data files of one partition with at most so many rows, if there are several files in a group."""
    for _, items in itertools.groupby(work, key=lambda item: item.place):
        yield from packed(items, most_rows, attrgetter("data_file.record_count"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIndexPlace:
    """Which index of keys, and where it is.

    Attributes:
        folder: Its folder.
        key_types: The types of the key columns, by field id, ascending.
        name_mapping: What the columns of files without field ids are; None if the table does not tell.
    """

    folder: str
    key_types: Mapping[int, IcebergType]
    name_mapping: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """Everything that tasks are told of a search.

    Attributes:
        writing: How files are written, and what opens storage.
        specs: The table's partition specs, by spec id.
        sort_orders: The table's sort orders, by order id.
        key_types: The current types of the key columns, by field id; empty if rows are chosen by position.
        encoding: How the rows that are found are removed: by position deletes, or by rewriting their data files.
        with_vectors: Whether position deletes are deletion vectors, each with all positions of its data file.
        index: The index that tells where keys are; None to read the key columns of the data files.
        keeps_ids: Whether new rows take over the ids of the rows that are found.
    """

    writing: WritePlan
    specs: Mapping[int, PartitionSpec]
    key_types: Mapping[int, IcebergType]
    sort_orders: Mapping[int, SortOrder] = field(default_factory=dict)
    encoding: RowEncoding = "position"
    with_vectors: bool = False
    index: KeyIndexPlace | None = None
    keeps_ids: bool = False

    @classmethod
    def of(
        cls, writing: WritePlan, metadata: TableMetadata, key_types: Mapping[int, IcebergType], encoding: RowEncoding
    ) -> SearchPlan:
        """Return the plan of a search in the table with this metadata.

        Files are rewritten with the columns of the table, even if the rows that replace theirs have other columns.
        """
        return cls(
            writing=replace(writing, schema=metadata.schema(), name_mapping=metadata.properties.get(NAME_MAPPING)),
            specs=metadata.specs(),
            sort_orders={order.order_id: order for order in metadata.sort_orders},
            key_types=key_types,
            encoding=encoding,
            with_vectors=has_vectors(metadata),
        )

    @property
    def is_by_file(self) -> bool:
        """Whether each position delete file is for one data file only; files of deletion vectors are for many."""
        return not self.with_vectors and self.writing.properties.get(_GRANULARITY, "").lower() == "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """What was found in a data file.

    Attributes:
        path: Path of the data file.
        sequence_number: Its data sequence number.
        rows: Number of its rows that have one of the keys, were not hidden before and are to be replaced.
        rewritten: The files that hold its other rows, empty if no other row is left; None if it was not rewritten.
        positions: Names of the position delete files, or of the deletion vector, that were taken into account.
        with_vectors: Whether it was written for a table whose deletes by position are deletion vectors.
        first_row_id: That of the data file, None if its rows had no ids.
        late_keys: Keys, with digests, for which the data file has a visible row that wins over the incoming row; None
            for no such key.
        ids_path: The file that has keys and ids of the rows that were found; None if they have no ids, or if none is
            asked for.
    """

    path: str
    sequence_number: int
    rows: int
    rewritten: tuple[DataFile, ...] | None = None
    positions: frozenset[str] = frozenset()
    with_vectors: bool = False
    first_row_id: int | None = None
    late_keys: pa.Table | None = None
    ids_path: str | None = None

    @property
    def has_vector(self) -> bool:
        """Whether a deletion vector was written for it, in the place of those at `positions`."""
        return self.with_vectors and self.rows > 0 and self.rewritten is None

    @property
    def rests_on_deletes(self) -> bool:
        """Whether the answer would differ with other position deletes."""
        return self.rewritten is not None or self.late_keys is not None or self.has_vector


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDeletes:
    """A position delete file, or a deletion vector, that a task wrote.

    Attributes:
        file: The entry of the position delete file, or of the vector.
        paths: Paths of the data files whose rows it hides.
    """

    file: DataFile
    paths: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswer:
    """What a task found and wrote.

    Attributes:
        files: One answer for each data file; empty if the task failed.
        written_deletes: Position delete files, or deletion vectors, that the task wrote.
        read_bytes: Compressed bytes of the columns that the task read.
        problem: Why the task failed, or None if it did not fail; a failed task has deleted its files.
    """

    files: tuple[FileAnswer, ...] = ()
    written_deletes: tuple[WrittenDeletes, ...] = ()
    read_bytes: int = 0
    problem: str | None = None
