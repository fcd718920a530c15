"""Pure: the delete file index: which deletes apply to which data file, and so which files are searched for which keys.

An equality delete applies to data files of earlier commits in its partition, or in the whole table if its spec has no
partitions. Source: Iceberg spec, "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType

from iceberg_ds.deletes.work import FileWork, KeyFile
from iceberg_ds.expressions.metrics_evaluator import ColumnFacts, FactsOf, may_share_rows
from iceberg_ds.plan import NO_SPEC
from iceberg_ds.snapshots.live_files import Applying, LiveFile, LiveFiles, PositionIndex
from iceberg_ds.snapshots.version_3 import VERSION_3, first_row_id
from iceberg_ds.table.defaults import why_not_searched
from iceberg_ds.table.partitioning import identity_values


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
    keys = Applying(known.files(sources, key_types), specs)
    positions = PositionIndex(live)
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
                hidden_by=positions.of(found),
                read_bytes=_read_bytes(found.data_file, wanted.columns),
                partition_values=identity_values(found.data_file, specs[found.data_file.spec_id]),
            )
        )
    return work


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """A file of keys.

    Attributes:
        live: The file.
        applies_below: It applies to data files with data sequence numbers below this one.
        key_file: The same file in the form that tasks get.
        facts: What its metrics say about the key columns.
    """

    live: LiveFile
    applies_below: int
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
class _Wanted:
    """Files of keys that apply to one or more data files, and the field ids of their key columns."""

    keys: tuple[KeyFile, ...]
    columns: frozenset[int]

    @classmethod
    def of(cls, applied: Iterable[_Keys]) -> _Wanted:
        keys = tuple([some.key_file for some in applied])
        return cls(keys=keys, columns=frozenset().union(*{key.field_ids for key in keys}))


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
