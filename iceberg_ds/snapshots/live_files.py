"""Pure: the files of a snapshot by content, and which of them hide rows of which data file by position.

A position delete applies to data files of its partition, including those of its own commit, unless they have a deletion
vector, which has all their positions. Partitions are compared by their texts: NaN is one partition, and is not equal to
itself. Source: Iceberg spec, "Scan Planning". One that names a single data file applies to this file in any partition,
as in Iceberg's Java library and PyIceberg: a row that readers do not see must not come back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from iceberg_ds.snapshots.version_3 import deletion_vector, referenced_data_file
from iceberg_ds.table.names import FILE_PATH
from iceberg_ds.table.partitioning import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVector:
    """Where a deletion vector is.

    Attributes:
        path: Path of the Puffin file.
        offset: Its first byte in the file.
        length: Its bytes.
        cardinality: How many rows it hides.
    """

    path: str
    offset: int
    length: int
    cardinality: int

    @property
    def name(self) -> str:
        """A unique name: the path with the offset, because several vectors may share a file."""
        return f"{self.path}#{self.offset}"


# What hides rows by position: the path of a position delete file, or a deletion vector.
Source: TypeAlias = "str | DeletionVector"


def vector_of(file: DataFile) -> DeletionVector | None:
    """Return the deletion vector that an entry of a manifest names, None if it is for a whole file.

    Raises:
        ValueError: It is for a Puffin file, and does not say where in it the vector is.
    """
    if file.content != DataFileContent.POSITION_DELETES or file.file_format is not FileFormat.PUFFIN:
        return None
    if (place := deletion_vector(file)) is None:
        raise ValueError(f"the entry of {file.file_path} does not say where its deletion vector is")
    return DeletionVector(path=file.file_path, offset=place[0], length=place[1], cardinality=file.record_count)


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
            vectors[_owner_of(live.data_file, vector, vectors)] = vector
        return cls(
            data=found[DataFileContent.DATA],
            positions=found[DataFileContent.POSITION_DELETES],
            equalities=found[DataFileContent.EQUALITY_DELETES],
            vectors=vectors,
        )


def _owner_of(file: DataFile, vector: DeletionVector, owners: Container[str]) -> str:
    """Return the path of the data file whose rows a deletion vector hides.

    Args:
        file: The vector's entry in a manifest.
        vector: The vector.
        owners: The data files of the vectors before it.

    Raises:
        ValueError: It does not say which, or that data file has a vector already.
    """
    path = referenced_data_file(file)
    if path is None or path in owners:
        told = "does not name its data file" if path is None else f"is the second one of {path}"
        raise ValueError(f"the deletion vector at {vector.offset} in {vector.path} {told}")
    return path


def name_of(file: DataFile) -> str:
    """Return a unique name of what an entry is for: the path of a file, or the name of a deletion vector in one."""
    vector = vector_of(file)
    return file.file_path if vector is None else vector.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenBy:
    """What may hide rows of a data file by position.

    Attributes:
        positions: Paths of position delete files; none beside a deletion vector.
        vector: The data file's deletion vector; None if it has none.
    """

    positions: tuple[str, ...] = ()
    vector: DeletionVector | None = None

    @property
    def sources(self) -> frozenset[Source]:
        """All these."""
        return frozenset((*self.positions, *(() if self.vector is None else (self.vector,))))

    @property
    def names(self) -> frozenset[str]:
        """Names of all these: paths, or the name of the deletion vector."""
        return frozenset(source if isinstance(source, str) else source.name for source in self.sources)


class PositionIndex:
    """Finds what may hide rows of data files by position.

    Args:
        live: The files of a snapshot.
    """

    def __init__(self, live: LiveFiles) -> None:
        self._vectors = live.vectors
        self._by_path: dict[str, _Ordered[_Positions]] = defaultdict(_Ordered)
        others = []
        for deletes in sorted(map(_Positions.of, live.positions), key=lambda found: found.applies_below):
            if (path := only_path(deletes.live.data_file)) is None:
                others.append(deletes)
            else:
                self._by_path[path].append(deletes)
        self._others = Applying(others)

    def of(self, data_file: LiveFile) -> HiddenBy:
        """Return what may hide rows of a data file."""
        if (vector := self._vectors.get(data_file.path)) is not None:
            return HiddenBy(vector=vector)
        path = data_file.path.encode()
        own = self._by_path[data_file.path].above(data_file.sequence_number) if data_file.path in self._by_path else []
        applying = [*own, *(deletes for deletes in self._others.to(data_file) if deletes.may_name(path))]
        return HiddenBy(positions=tuple([deletes.live.path for deletes in applying]))


def applying_positions(live: LiveFiles, paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, for each of these data files that is live, the names of what may hide rows of it by position."""
    index, wanted = PositionIndex(live), set(paths)
    return {found.path: index.of(found).names for found in live.data if found.path in wanted}


def only_path(deletes: DataFile) -> str | None:
    """Return the path of the only data file whose rows a position delete file hides, or None if that is uncertain."""
    if (path := referenced_data_file(deletes)) is not None:
        return path
    low, high = path_bounds(deletes)
    return low.decode(errors="replace") if low is not None and low == high else None


def path_bounds(deletes: DataFile) -> tuple[bytes | None, bytes | None]:
    """Return the bounds of the data file paths in a position delete file; None for a bound that is unknown."""
    number = FILE_PATH.field_id
    return (deletes.lower_bounds or {}).get(number), (deletes.upper_bounds or {}).get(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positions:
    """A position delete file.

    Attributes:
        live: The file.
        low: Lower bound of the data file paths in it, or None if unknown.
        high: Upper bound of the data file paths in it, or None if unknown.
    """

    live: LiveFile
    low: bytes | None
    high: bytes | None

    @classmethod
    def of(cls, live: LiveFile) -> _Positions:
        low, high = path_bounds(live.data_file)
        return cls(live=live, low=low, high=high)

    @property
    def applies_below(self) -> int:
        return self.live.sequence_number + 1

    def may_name(self, path: bytes) -> bool:
        """Return whether the file may have positions in the data file at `path`."""
        return (self.low is None or self.low <= path) and (self.high is None or self.high >= path)


class AppliesBelow(Protocol):
    """A file of deletes."""

    @property
    def live(self) -> LiveFile:
        """The file."""

    @property
    def applies_below(self) -> int:
        """It applies to data files with data sequence numbers below this one."""


_AnyDeletes = TypeVar("_AnyDeletes", bound=AppliesBelow)


class Applying(Generic[_AnyDeletes]):
    """Finds the delete files that apply to a data file, without looking at their bounds.

    Args:
        files: The delete files.
        specs: The table's partition specs if a spec without partitions stands for the whole table, else None.
    """

    def __init__(self, files: Iterable[_AnyDeletes], specs: Mapping[int, PartitionSpec] | None = None) -> None:
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


def is_global(spec: PartitionSpec) -> bool:
    """Return whether equality deletes of this spec apply to data files of all partitions."""
    return all(isinstance(part.transform, VoidTransform) for part in spec.fields)
