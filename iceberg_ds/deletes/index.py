"""Pure: the delete file index: which deletes apply to which data file, and so which files are searched for which keys.

A position delete applies to data files of its partition, including those of its own commit, unless they have a deletion
vector, which has all their positions. An equality delete applies
to data files of earlier commits in its partition, or in the whole table if its spec has no partitions. Source: Iceberg
spec, "Scan Planning".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType

from iceberg_ds.deletes.work import FileWork, KeyFile
from iceberg_ds.expressions.metrics_evaluator import ColumnFacts, FactsOf, may_share_rows
from iceberg_ds.plan import NO_SPEC
from iceberg_ds.snapshots.version_3 import VERSION_3, first_row_id
from iceberg_ds.table.defaults import why_not_searched
from iceberg_ds.table.names import FILE_PATH
from iceberg_ds.table.partitioning import identity_values, place_of
from iceberg_ds.writers.deletion_vectors import DeletionVector, owner_of, vector_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file of a snapshot.

    Attributes:
        data_file: Its manifest entry.
        sequence_number: Its data sequence number.
    """

    data_file: DataFile
    sequence_number: int

    @classmethod
    def of(cls, entry: ManifestEntry) -> LiveFile:
        """Return the file of a live entry of a manifest."""
        return cls(data_file=entry.data_file, sequence_number=entry.sequence_number or 0)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.data_file.file_path

    @property
    def place(self) -> tuple[int, str]:
        """Partition of the file."""
        return place_of(self.data_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """All files of a snapshot, by content.

    Attributes:
        data: The data files.
        positions: The position delete files; deletion vectors are not among them.
        equalities: The equality delete files.
        vectors: The deletion vectors, by the path of the data file that each is of.
    """

    data: Sequence[LiveFile] = ()
    positions: Sequence[LiveFile] = ()
    equalities: Sequence[LiveFile] = ()
    vectors: Mapping[str, DeletionVector] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[LiveFile]) -> LiveFiles:
        """Return the files, grouped by content.

        Raises:
            ValueError: A data file has two deletion vectors, or it is not known which one a vector is of.
        """
        found: dict[DataFileContent, list[LiveFile]] = defaultdict(list)
        vectors: dict[str, DeletionVector] = {}
        for live in files:
            vector = vector_of(live.data_file)
            if vector is None:
                found[live.data_file.content].append(live)
                continue
            vectors[owner_of(live.data_file, vectors)] = vector
        return cls(
            data=found[DataFileContent.DATA],
            positions=found[DataFileContent.POSITION_DELETES],
            equalities=found[DataFileContent.EQUALITY_DELETES],
            vectors=vectors,
        )


def name_of(file: DataFile) -> str:
    """Return a unique name of what an entry is for: the path of a file, or the name of a deletion vector in one."""
    vector = vector_of(file)
    return file.file_path if vector is None else vector.name


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """A file of keys to look for: an equality delete file of a snapshot, or a file of a task that is in no snapshot.

    Attributes:
        data_file: Its entry, with `equality_ids`, partition and spec; bounds spare work.
        sequence_number: The keys apply to data files with lower data sequence numbers; None for all data files.
    """

    data_file: DataFile
    sequence_number: int | None

    @classmethod
    def of(cls, live: LiveFile) -> KeySource:
        """Return an equality delete file of a snapshot as a file of keys."""
        return cls(data_file=live.data_file, sequence_number=live.sequence_number)

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Field ids of the key columns, ascending."""
        return tuple(sorted(self.data_file.equality_ids or ()))

    @property
    def key_file(self) -> KeyFile:
        """The same file in the form that tasks get."""
        return KeyFile(
            path=self.data_file.file_path,
            field_ids=self.field_ids,
            sequence_number=self.sequence_number,
        )


def key_types(schemas: Sequence[Schema], sources: Iterable[KeySource]) -> dict[int, IcebergType]:
    """Return the types of all key columns by field id; a dropped column has its last type.

    Args:
        schemas: All schemas that the table has had, the current one last.
        sources: The files of keys.

    Raises:
        ValueError: A field was never in the table, or cannot be a key; its files may lack it, and have its default.
    """
    types: dict[int, IcebergType] = {}
    for number in sorted({number for source in sources for number in source.field_ids}):
        found = [schema.find_field(number) for schema in schemas if number in schema.field_ids]
        if not found or not (kind := found[-1].field_type).is_primitive:
            raise ValueError(
                f"field {number}, by which rows are deleted, is no column of the table, or none that can be a key"
            )
        if (reason := why_not_searched(found[-1])) is not None:
            raise ValueError(reason)
        types[number] = kind
    return types


def all_specs(metadata: TableMetadata) -> dict[int, PartitionSpec]:
    """Return the partition specs of a table's files, and of files of keys that are in no snapshot, by spec id."""
    return {**metadata.specs(), NO_SPEC.spec_id: NO_SPEC}


def is_global(spec: PartitionSpec) -> bool:
    """Return whether equality deletes of this spec apply to data files of all partitions."""
    return all(isinstance(part.transform, VoidTransform) for part in spec.fields)


def plan_work(  # noqa: PLR0913  # the last ones are seldom given
    live: LiveFiles,
    sources: Sequence[KeySource],
    specs: Mapping[int, PartitionSpec],
    key_types: Mapping[int, IcebergType],
    *,
    with_all: bool = False,
    known: KnownKeys | None = None,
) -> list[FileWork]:
    """Return the data files that may have rows with some of the keys, each with the files to read for it.

    Args:
        live: The files of a snapshot.
        sources: The files of keys.
        specs: The table's partition specs, by spec id.
        key_types: The types of all key columns, by field id.
        with_all: Whether to return the other data files, too.
        known: What is known from other snapshots of the table; None for nothing.
    """
    known = KnownKeys(is_kept=False) if known is None else known
    keys = _Applying(known.files(sources, key_types), specs)
    positions = _positions_of(live)
    shared: dict[tuple[int, ...], _Wanted] = {}
    work = []
    for found in live.data:
        applied = known.applying(found, keys.to(found))
        if not (applied or with_all):
            continue
        # Data files share equal combinations, so that the pickled work is short.
        combination = tuple(map(id, applied))
        if combination not in shared:
            shared[combination] = _Wanted.of(applied)
        wanted = shared[combination]
        work.append(
            FileWork(
                data_file=without_metrics(found.data_file),
                sequence_number=found.sequence_number,
                keys=wanted.keys,
                positions=() if found.path in live.vectors else tuple(_hiding(found, positions)),
                vector=live.vectors.get(found.path),
                read_bytes=_read_bytes(found.data_file, wanted.columns),
                partition_values=identity_values(found.data_file, specs[found.data_file.spec_id]),
            )
        )
    return work


def applying_positions(live: LiveFiles, paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, for each of these data files that is live, the names of what may hide rows of it by position."""
    positions, wanted, vectors = _positions_of(live), set(paths), live.vectors
    return {
        found.path: frozenset({vectors[found.path].name} if found.path in vectors else _hiding(found, positions))
        for found in live.data
        if found.path in wanted
    }


def only_path(deletes: DataFile) -> str | None:
    """Return the path of the only data file whose rows a position delete file hides, or None if that is uncertain."""
    low, high = path_bounds(deletes)
    return low.decode(errors="replace") if low is not None and low == high else None


def path_bounds(deletes: DataFile) -> tuple[bytes | None, bytes | None]:
    """Return the bounds of the data file paths in a position delete file; None for a bound that is unknown."""
    number = FILE_PATH.field_id
    return (deletes.lower_bounds or {}).get(number), (deletes.upper_bounds or {}).get(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletes:
    """A delete file, or a file of keys.

    Attributes:
        live: The file.
        applies_below: It applies to data files with data sequence numbers below this one.
    """

    live: LiveFile
    applies_below: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys(_Deletes):
    """A file of keys.

    Attributes:
        key_file: The same file in the form that tasks get.
        facts: What its metrics say about the key columns.
    """

    key_file: KeyFile
    facts: tuple[ColumnFacts, ...]

    @classmethod
    def of(cls, source: KeySource, facts: FactsOf) -> _Keys:
        key_file = source.key_file
        return cls(
            live=LiveFile(data_file=source.data_file, sequence_number=key_file.applies_below),
            applies_below=key_file.applies_below,
            key_file=key_file,
            facts=facts(source.data_file, key_file.field_ids),
        )

    def may_share_rows(self, data_file: DataFile, facts: FactsOf) -> bool:
        """Return whether the metrics of a data file allow a row with one of the keys."""
        return may_share_rows(facts(data_file, self.key_file.field_ids), self.facts)


class KnownKeys:
    """Which files of keys may have rows of which data files, over snapshots of a table that are planned one by one.

    A snapshot mostly has the files of the one before and a few more: only what is new is compared.

    Args:
        is_kept: Whether more than one snapshot is planned: what is kept grows with data files times files of keys.
    """

    def __init__(self, *, is_kept: bool = True) -> None:
        self._is_kept = is_kept
        self._types: Mapping[int, IcebergType] = {}
        # A path may come again with another sequence number, as another file.
        self._files: dict[tuple[str, int | None], _Keys] = {}
        self._compared: dict[tuple[str, int], _Compared] = {}

    def files(self, sources: Iterable[KeySource], key_types: Mapping[int, IcebergType]) -> list[_Keys]:
        """Return files of keys with what their metrics say; the same objects for the same files and types."""
        if key_types != self._types:
            self._types, self._files, self._compared = key_types, {}, {}
        found = []
        for source in sources:
            name = source.data_file.file_path, source.sequence_number
            if name not in self._files:
                self._files[name] = _Keys.of(source, FactsOf(key_types))
            found.append(self._files[name])
        return found

    def applying(self, found: LiveFile, keys: list[_Keys]) -> list[_Keys]:
        """Return those of some files of keys that may have keys of a data file's rows."""
        name = found.path, found.sequence_number
        before = self._compared.get(name)
        if before is None or keys[: len(before.keys)] != before.keys:
            before = _Compared(keys=[], sharing=[], facts=FactsOf(self._types))
        added = keys[len(before.keys) :]
        sharing = [*before.sharing, *(some for some in added if some.may_share_rows(found.data_file, before.facts))]
        if self._is_kept:
            self._compared[name] = _Compared(keys=keys, sharing=sharing, facts=before.facts)
        return sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What a data file was compared with.

    Attributes:
        keys: The files of keys, in order.
        sharing: Those of them that may have keys of its rows.
        facts: What its metrics say.
    """

    keys: list[_Keys]
    sharing: list[_Keys]
    facts: FactsOf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positions(_Deletes):
    """A position delete file.

    Attributes:
        low: Lower bound of the data file paths in it, or None if unknown.
        high: Upper bound of the data file paths in it, or None if unknown.
    """

    low: bytes | None
    high: bytes | None

    @classmethod
    def of(cls, live: LiveFile) -> _Positions:
        low, high = path_bounds(live.data_file)
        return cls(live=live, applies_below=live.sequence_number + 1, low=low, high=high)

    def may_name(self, path: bytes) -> bool:
        """Return whether the file may have positions in the data file at `path`."""
        return (self.low is None or self.low <= path) and (self.high is None or self.high >= path)


def _positions_of(live: LiveFiles) -> _Applying[_Positions]:
    return _Applying(map(_Positions.of, live.positions), None)


def _hiding(found: LiveFile, positions: _Applying[_Positions]) -> list[str]:
    """Return the paths of the position delete files that may hide rows of a data file."""
    path = found.path.encode()
    return [deletes.live.path for deletes in positions.to(found) if deletes.may_name(path)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Files of keys that apply to one or more data files, and the field ids of their key columns."""

    keys: tuple[KeyFile, ...]
    columns: frozenset[int]

    @classmethod
    def of(cls, applied: Iterable[_Keys]) -> _Wanted:
        keys = tuple([some.key_file for some in applied])
        return cls(keys=keys, columns=frozenset().union(*{key.field_ids for key in keys}))


_AnyDeletes = TypeVar("_AnyDeletes", bound=_Deletes)


@dataclass(slots=True)
class _Ordered(Generic[_AnyDeletes]):
    """Delete files in ascending order of the sequence numbers below which they apply."""

    files: list[_AnyDeletes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def append(self, deletes: _AnyDeletes) -> None:
        self.numbers.append(deletes.applies_below)
        self.files.append(deletes)

    def above(self, number: int) -> list[_AnyDeletes]:
        return self.files[bisect_right(self.numbers, number) :]


class _Applying(Generic[_AnyDeletes]):
    """Finds the delete files that apply to a data file, without looking at their bounds.

    Args:
        files: The delete files.
        specs: The table's partition specs if a spec without partitions stands for the whole table, else None.
    """

    def __init__(self, files: Iterable[_AnyDeletes], specs: Mapping[int, PartitionSpec] | None) -> None:
        self._everywhere: _Ordered[_AnyDeletes] = _Ordered()
        self._by_place: dict[tuple[int, str], _Ordered[_AnyDeletes]] = defaultdict(_Ordered)
        for deletes in sorted(files, key=lambda found: found.applies_below):
            spec = None if specs is None else specs[deletes.live.data_file.spec_id]
            is_everywhere = spec is not None and is_global(spec)
            (self._everywhere if is_everywhere else self._by_place[deletes.live.place]).append(deletes)

    def to(self, found: LiveFile) -> list[_AnyDeletes]:
        """Return the delete files that apply to a data file."""
        near = self._by_place.get(found.place) if self._by_place else None
        here = [] if near is None else near.above(found.sequence_number)
        return [*self._everywhere.above(found.sequence_number), *here]


def why_not_readable(file: DataFile) -> str | None:
    """Return why a data file or a file of keys cannot be read, or None if it can."""
    if file.file_format is not FileFormat.PARQUET:
        return f"is a file of {file.file_format.value}, and only Parquet is read"
    if file.key_metadata is not None:
        return "is encrypted"
    if file.content == DataFileContent.EQUALITY_DELETES and not file.equality_ids:
        return "does not say by which columns it deletes"
    return None


def without_metrics(data_file: DataFile) -> DataFile:
    """Return the entry of a file without its metrics, so that it is short when pickled."""
    slim = DataFile.from_args(
        VERSION_3,
        content=data_file.content,
        file_path=data_file.file_path,
        file_format=data_file.file_format,
        partition=data_file.partition,
        record_count=data_file.record_count,
        file_size_in_bytes=data_file.file_size_in_bytes,
        sort_order_id=data_file.sort_order_id,
        first_row_id=first_row_id(data_file),
    )
    slim.spec_id = data_file.spec_id
    return slim


def _read_bytes(data_file: DataFile, columns: frozenset[int]) -> int:
    sizes = data_file.column_sizes or {}
    if columns <= sizes.keys():
        return sum(sizes[number] for number in columns)
    return data_file.file_size_in_bytes
