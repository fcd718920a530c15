"""Pure: which deletes apply to which data file, and so what is to be searched for which keys.

Source: Iceberg spec, "Scan Planning". A position delete applies to data files of its partition, those of its own
commit among them; a delete by keys to data files of earlier commits, in its partition, or in the whole table if its
spec has no partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType

from iceberg_ds.layouts.partitioning import place_of
from iceberg_ds.plan import NO_SPEC
from iceberg_ds.resolving.bounds import ColumnFacts, FactsOf, may_share_rows
from iceberg_ds.resolving.values import FileWork, KeyFile, PositionFile

_PATH_ID = 2147483546
_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file of a snapshot.

    Attributes:
        data_file: Its manifest entry.
        sequence_number: Its data sequence number.
    """

    data_file: DataFile
    sequence_number: int

    @property
    def path(self) -> str:
        """Where it is."""
        return self.data_file.file_path

    @property
    def place(self) -> tuple[int, str]:
        """Its partition."""
        return place_of(self.data_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """All files of a snapshot, by what they hold."""

    data: Sequence[LiveFile] = ()
    positions: Sequence[LiveFile] = ()
    equalities: Sequence[LiveFile] = ()

    @classmethod
    def of(cls, files: Iterable[LiveFile]) -> LiveFiles:
        """Return the files, told apart."""
        found: dict[DataFileContent, list[LiveFile]] = defaultdict(list)
        for live in files:
            found[live.data_file.content].append(live)
        return cls(
            data=found[DataFileContent.DATA],
            positions=found[DataFileContent.POSITION_DELETES],
            equalities=found[DataFileContent.EQUALITY_DELETES],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """A file of keys to look for: of a snapshot, or one that a task has written and that is in none.

    Attributes:
        data_file: Its entry, with `equality_ids`, partition and spec; bounds spare work.
        sequence_number: Rows of data files below it are meant; None for rows of all data files.
    """

    data_file: DataFile
    sequence_number: int | None

    @classmethod
    def of(cls, live: LiveFile) -> KeySource:
        """Return a file of equality deletes of a snapshot."""
        return cls(data_file=live.data_file, sequence_number=live.sequence_number)

    @property
    def key_file(self) -> KeyFile:
        """The same for tasks."""
        return KeyFile(
            path=self.data_file.file_path,
            size_bytes=self.data_file.file_size_in_bytes,
            field_ids=field_ids(self.data_file),
            sequence_number=self.sequence_number,
        )


def field_ids(data_file: DataFile) -> tuple[int, ...]:
    """Return the columns by which a file deletes, ascending."""
    return tuple(sorted(data_file.equality_ids or ()))


def all_specs(metadata: TableMetadata) -> dict[int, PartitionSpec]:
    """Return the partition specs of a table's files, and of files of keys that are in no table, by id."""
    return {**metadata.specs(), NO_SPEC.spec_id: NO_SPEC}


def is_global(spec: PartitionSpec) -> bool:
    """Return whether deletes of this spec are meant for files of all partitions."""
    return all(isinstance(part.transform, VoidTransform) for part in spec.fields)


def plan_work(
    live: LiveFiles,
    sources: Sequence[KeySource],
    specs: Mapping[int, PartitionSpec],
    key_types: Mapping[int, IcebergType],
) -> list[FileWork]:
    """Return the data files that may have rows with some of the keys, each with what has to be read for it.

    Args:
        live: The files of a snapshot.
        sources: The keys.
        specs: The table's partition specs, by id.
        key_types: The types of all key columns, by field id.
    """
    facts = FactsOf(key_types)
    keys = _Applying([_source(source, facts) for source in sources], specs)
    positions = _Applying([_hiding(found) for found in live.positions], None)
    shared: dict[tuple[int, ...], _Wanted] = {}
    work = []
    for found in live.data:
        applied = [source for source in keys.to(found) if _may_have(found, source, facts)]
        if not applied:
            continue
        # Few different ones, so that work is short when it is pickled.
        wanted = shared.setdefault(tuple(map(id, applied)), _Wanted())
        wanted.take(applied)
        path = found.path.encode()
        work.append(
            FileWork(
                data_file=_without_metrics(found.data_file),
                sequence_number=found.sequence_number,
                keys=wanted.keys,
                positions=tuple(_position_file(hiding.live) for hiding in positions.to(found) if hiding.may_name(path)),
                read_bytes=_read_bytes(found.data_file, wanted.columns),
            )
        )
    return work


def _may_have(found: LiveFile, source: _Applied, facts: FactsOf) -> bool:
    return source.key_file is not None and may_share_rows(
        facts(found.data_file, source.key_file.field_ids), source.facts
    )


def applying_positions(live: LiveFiles, paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, for each of these data files that is live, the files of position deletes that may hide rows of it."""
    positions = _Applying([_hiding(found) for found in live.positions], None)
    wanted = set(paths)
    found_in: dict[str, frozenset[str]] = {}
    for found in live.data:
        if found.path in wanted:
            path = found.path.encode()
            found_in[found.path] = frozenset(
                hiding.live.path for hiding in positions.to(found) if hiding.may_name(path)
            )
    return found_in


def only_path(deletes: DataFile) -> str | None:
    """Return the one data file whose rows a file of position deletes hides, None if that is not certain."""
    low, high = (deletes.lower_bounds or {}).get(_PATH_ID), (deletes.upper_bounds or {}).get(_PATH_ID)
    return low.decode(errors="replace") if low is not None and low == high else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Applied:
    """A delete file.

    Attributes:
        live: The file.
        number: It applies to data files with lower sequence numbers.
        key_file: The same for tasks, None for position deletes.
        facts: What its metrics say of the key columns.
        low: No path that it names is lower, None if that is not known.
        high: No path that it names is higher, None if that is not known.
    """

    live: LiveFile
    number: int
    key_file: KeyFile | None = None
    facts: tuple[ColumnFacts, ...] = ()
    low: bytes | None = None
    high: bytes | None = None

    def may_name(self, path: bytes) -> bool:
        """Return whether a file of position deletes may have positions in the data file at `path`."""
        return (self.low is None or self.low <= path) and (self.high is None or self.high >= path)


def _source(source: KeySource, facts: FactsOf) -> _Applied:
    number = _LAST if source.sequence_number is None else source.sequence_number
    key_file = source.key_file
    return _Applied(
        live=LiveFile(data_file=source.data_file, sequence_number=number),
        number=number,
        key_file=key_file,
        facts=facts(source.data_file, key_file.field_ids),
    )


def _hiding(live: LiveFile) -> _Applied:
    deletes = live.data_file
    return _Applied(
        live=live,
        number=live.sequence_number + 1,
        low=(deletes.lower_bounds or {}).get(_PATH_ID),
        high=(deletes.upper_bounds or {}).get(_PATH_ID),
    )


@dataclass(slots=True)
class _Wanted:
    """The files of keys that several data files may have, and their columns."""

    keys: tuple[KeyFile, ...] = ()
    columns: frozenset[int] = frozenset()

    def take(self, applied: Sequence[_Applied]) -> None:
        """Take the files, unless that was done before."""
        if not self.keys:
            self.keys = tuple(source.key_file for source in applied if source.key_file is not None)
            self.columns = frozenset(number for key in self.keys for number in key.field_ids)


@dataclass(slots=True)
class _Ordered:
    """Delete files by the numbers below which they apply, ascending."""

    files: list[_Applied] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def append(self, applied: _Applied) -> None:
        self.numbers.append(applied.number)
        self.files.append(applied)

    def above(self, number: int) -> list[_Applied]:
        return self.files[bisect_right(self.numbers, number) :]


class _Applying:
    """Finds the delete files that apply to a data file, without any look at their bounds.

    Args:
        files: The delete files.
        specs: The table's partition specs if a spec without partitions stands for the whole table, else None.
    """

    def __init__(self, files: Iterable[_Applied], specs: Mapping[int, PartitionSpec] | None) -> None:
        self._everywhere = _Ordered()
        self._by_place: dict[tuple[int, str], _Ordered] = defaultdict(_Ordered)
        for applied in sorted(files, key=lambda found: found.number):
            spec = None if specs is None else specs[applied.live.data_file.spec_id]
            is_everywhere = spec is not None and is_global(spec)
            (self._everywhere if is_everywhere else self._by_place[applied.live.place]).append(applied)

    def to(self, found: LiveFile) -> list[_Applied]:
        """Return what applies to a data file."""
        near = self._by_place.get(found.place)
        here = [] if near is None else near.above(found.sequence_number)
        return [*self._everywhere.above(found.sequence_number), *here]


def _position_file(live: LiveFile) -> PositionFile:
    return PositionFile(path=live.path, size_bytes=live.data_file.file_size_in_bytes)


def _without_metrics(data_file: DataFile) -> DataFile:
    slim = DataFile.from_args(
        content=data_file.content,
        file_path=data_file.file_path,
        file_format=data_file.file_format,
        partition=data_file.partition,
        record_count=data_file.record_count,
        file_size_in_bytes=data_file.file_size_in_bytes,
        sort_order_id=data_file.sort_order_id,
    )
    slim.spec_id = data_file.spec_id
    return slim


def _read_bytes(data_file: DataFile, columns: frozenset[int]) -> int:
    sizes = data_file.column_sizes or {}
    if columns <= sizes.keys():
        return sum(sizes[number] for number in columns)
    return data_file.file_size_in_bytes
