"""Finds keys with several visible rows in a snapshot, although the table's identifier fields promise one row per key.

Nothing is sampled or digested: the keys of all visible rows are sorted, on disk if there are many, so that equal keys
are adjacent. Position deletes and equality deletes of any writer are applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, BooleanType, DecimalType, IcebergType, LongType, NestedField

from iceberg_ds.cdc.keys import same_rows
from iceberg_ds.cdc.reader import key_texts
from iceberg_ds.commit.cross_task import read_keys
from iceberg_ds.deletes.index import KeySource, LiveFile, LiveFiles, all_specs, key_types, plan_work
from iceberg_ds.deletes.key_reader import KeyedRowReader
from iceberg_ds.deletes.match import Matcher
from iceberg_ds.deletes.search import SnapshotReader
from iceberg_ds.deletes.tasks import hidden_by_position
from iceberg_ds.deletes.work import portions
from iceberg_ds.inspect.checklist import CheckFailedError, Checklist, NotTriedError
from iceberg_ds.inspect.contents import counted
from iceberg_ds.table.partitioning import identity_values
from iceberg_ds.table.sort_order import RowOrder
from iceberg_ds.writers.spill import ExternalSort

UNIQUE = "unique keys"
_FILE, _POSITION = "file", "position"
_EXAMPLES = 5
_NEXT_STEP = (
    "Find out which writer does not hold rows against the keys that are there, such as an append without `keys`; "
    "upsert the keys once more, and each has one row again."
)


@dataclass(slots=True, kw_only=True)
class _Repeated:
    """Keys with several rows.

    Attributes:
        keys: Number of these keys.
        rows: Number of rows with these keys.
        examples: Two rows for each of a few of these keys; a row is the number of its file and its position.
    """

    keys: int
    rows: int
    examples: list[tuple[tuple[int, int], tuple[int, int]]]


def check_unique_keys(checklist: Checklist, table: Table) -> None:
    """Check that each snapshot that a branch or tag points at has at most one visible row per key."""
    checklist.attempt(UNIQUE, lambda: _unique_keys(table))


def _unique_keys(table: Table) -> tuple[str, None]:
    metadata = table.metadata
    key_ids = tuple(sorted(metadata.schema().identifier_field_ids))
    if not key_ids:
        raise NotTriedError("the table has no identifier fields")
    refs = {ref.snapshot_id: name for name, ref in sorted(metadata.refs.items(), reverse=True)}
    heads = [(name, head) for found, name in refs.items() if (head := metadata.snapshot_by_id(found)) is not None]
    reader, rows, problems = SnapshotReader(), 0, []
    for name, head in heads:
        keys = _Keys(table, reader.read(table.io, head).files, key_ids)
        repeated = keys.repeated()
        rows += keys.count
        if repeated.keys:
            problems.append(_problem(keys, name, head, repeated))
    if problems:
        raise CheckFailedError("; ".join(problems), _NEXT_STEP)
    return f"each has one row: {counted(rows, 'row')} of {counted(len(heads), 'snapshot')}", None


def _problem(keys: _Keys, name: str, head: Snapshot, repeated: _Repeated) -> str:
    examples = "; ".join(keys.describe(*example) for example in repeated.examples)
    return (
        f"on {name}, snapshot {head.snapshot_id} shows {counted(repeated.rows, 'row')} of "
        f"{counted(repeated.keys, 'key')}: {examples}{'; and more' if repeated.keys > _EXAMPLES else ''}"
    )


class _Keys:
    """The keys of all visible rows of a snapshot.

    Args:
        table: The table.
        live: The files of the snapshot.
        key_ids: Ids of the identifier fields, ascending.

    Attributes:
        count: Number of visible rows; known after `repeated`.
    """

    def __init__(self, table: Table, live: LiveFiles, key_ids: tuple[int, ...]) -> None:
        _check_readable([found.data_file for found in (*live.data, *live.positions, *live.equalities)])
        self.count = 0
        self._io: FileIO = table.io
        self._metadata: TableMetadata = table.metadata
        self._live = live
        self._key_ids = key_ids
        self._types = {number: table.metadata.schema().find_type(number) for number in key_ids}
        marked = plan_work(live, (), all_specs(self._metadata), {}, with_all=True)
        self._marked = {item.path: item for item in marked}

    def repeated(self) -> _Repeated:
        """Return which keys have several visible rows."""
        found = _Repeated(keys=0, rows=0, examples=[])
        names = [str(number) for number in self._key_ids]
        last: pa.RecordBatch | None = None
        is_open = False  # whether the key of the last row was already counted
        sort: ExternalSort | None = None
        try:
            for rows in self._visible():
                self.count += rows.num_rows
                sort = sort or ExternalSort(_by_key(rows.schema))
                sort.add(rows)
            for batch in sort.sorted_batches() if sort is not None else ():
                rows = batch if last is None else _joined(last, batch)
                columns = [rows.column(name) for name in names]
                count = rows.num_rows - 1
                is_same = same_rows([one.slice(0, count) for one in columns], [one.slice(1) for one in columns])
                is_first = pc.and_not(is_same, pa.concat_arrays([pa.array([is_open]), is_same])[:-1])
                found.keys += is_first.true_count
                found.rows += is_same.true_count + is_first.true_count
                for place in pc.indices_nonzero(is_first)[: _EXAMPLES - len(found.examples)].to_pylist():
                    found.examples.append((_place(rows, place), _place(rows, place + 1)))
                is_open = is_same[-1].as_py() if count else is_open
                last = rows.slice(count)
        finally:
            if sort is not None:
                sort.close()
        return found

    def describe(self, one: tuple[int, int], other: tuple[int, int]) -> str:
        """Return a text that says which key two rows share, and where they are."""
        (file, position), (other_file, other_position) = one, other
        path, other_path = self._live.data[file].path, self._live.data[other_file].path
        where = f"row {position} of {path} and row {other_position} of {other_path}"
        try:
            (key,) = key_texts(*read_keys(self._io, path, [position], self._key_ids).to_batches())
        except KeyError:  # only the partition has the key
            return where
        return f"{key} in {where}"

    def _visible(self) -> Iterator[pa.RecordBatch]:
        """Yield batches with keys, file number and position of all visible rows."""
        sources = [KeySource.of(found) for found in self._live.equalities]
        types = key_types([*self._metadata.schemas, self._metadata.schema()], sources)
        work = plan_work(self._live, sources, all_specs(self._metadata), types)
        files = {found.path: (number, found) for number, found in enumerate(self._live.data)}
        for items in portions(sorted(work, key=lambda item: (item.place, item.path))):
            matches = Matcher(self._io, types).find(items)
            for item in items:
                number, found = files.pop(item.path)
                by_key = [matches[item.path].positions] if item.path in matches else []
                yield from self._rows(number, found, by_key)
        for number, found in files.values():
            yield from self._rows(number, found, [])

    def _rows(self, number: int, found: LiveFile, hidden_by_key: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        by_position = hidden_by_position(self._io, self._marked[found.path])
        hidden = pa.concat_arrays([by_position, *hidden_by_key])
        values = identity_values(found.data_file, self._metadata.specs()[found.data_file.spec_id])
        for rows in KeyedRowReader(self._io, self._types).read(found.path, values):
            positions = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(rows)), start=rows.first - 1)
            batch = pa.RecordBatch.from_arrays(
                [*rows.keys, pa.repeat(pa.scalar(number, pa.int64()), len(rows)), positions],
                names=[*map(str, self._key_ids), _FILE, _POSITION],
            )
            yield batch.filter(pc.invert(pc.is_in(positions, value_set=hidden))) if len(hidden) else batch


def _check_readable(files: Sequence[DataFile]) -> None:
    path, count = next(iter(Counter(file.file_path for file in files).most_common(1)), ("", 0))
    if count > 1:
        raise NotTriedError(f"{path} is listed {count} times, so that deletes may hide other rows of each entry")
    for file in files:
        if file.file_format is not FileFormat.PARQUET or file.key_metadata is not None:
            kind = "encrypted" if file.key_metadata is not None else f"of format {file.file_format.value}"
            raise NotTriedError(f"{file.file_path} is {kind}, and keys are read from plain Parquet files alone")


def _by_key(schema: pa.Schema) -> RowOrder:
    """Return the order that sorts rows by key, and rows of one key by file number and position."""
    fields = [
        NestedField(number, column.name, _type_of(column.type), required=False)
        for number, column in enumerate(schema, 1)
    ]
    return RowOrder(SortOrder(*(SortField(field.field_id, IdentityTransform()) for field in fields)), Schema(*fields))


def _type_of(canonical: pa.DataType) -> IcebergType:
    """Return the type by which canonical values are sorted."""
    if pa.types.is_decimal128(canonical):
        return DecimalType(canonical.precision, canonical.scale)
    kinds: Mapping[pa.DataType, IcebergType] = {pa.bool_(): BooleanType(), pa.int64(): LongType()}
    return kinds.get(canonical, BinaryType())


def _place(rows: pa.RecordBatch, place: int) -> tuple[int, int]:
    return rows.column(_FILE)[place].as_py(), rows.column(_POSITION)[place].as_py()


def _joined(last: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches([last, batch]).combine_chunks().to_batches()
    return joined
