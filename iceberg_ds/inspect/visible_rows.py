"""Finds values that several visible rows of a snapshot share: keys, or row ids.

Nothing is sampled or digested: the values of all visible rows are sorted, on disk if there are many, so that equal ones
are adjacent. Position deletes, deletion vectors and equality deletes of any writer are applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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

from iceberg_ds.cdc.keys import numbers_from, same_rows
from iceberg_ds.deletes.hidden import hidden_by_position
from iceberg_ds.deletes.index import KeySource, all_specs, key_types, plan_work
from iceberg_ds.deletes.key_reader import KeyedRowReader
from iceberg_ds.deletes.match import Matcher
from iceberg_ds.deletes.work import portions
from iceberg_ds.inspect.checklist import NotTriedError
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles
from iceberg_ds.table.arrow_schema import one_batch
from iceberg_ds.table.name_mapping import NAME_MAPPING, parsed_mapping
from iceberg_ds.table.partitioning import identity_values
from iceberg_ds.table.sort_order import RowOrder
from iceberg_ds.writers.spill import ExternalSort

_FILE, _POSITION = "file", "position"
_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row is.

    Attributes:
        path: Its data file.
        position: Its position there, from 0.
    """

    path: str
    position: int

    def __str__(self) -> str:
        return f"row {self.position} of {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SameValues:
    """Two rows that have the same values.

    Attributes:
        values: The values in canonical form, a batch of one row.
        one: Where one of the rows is.
        other: Where the other row is.
    """

    values: pa.RecordBatch
    one: Place
    other: Place

    def __str__(self) -> str:
        return f"{self.one} and {self.other}"


@dataclass(slots=True, kw_only=True)
class Repeated:
    """Values that several rows have.

    Attributes:
        values: Number of these values.
        rows: Number of rows with these values.
        examples: Two rows for each of a few of these values.
    """

    values: int = 0
    rows: int = 0
    examples: list[SameValues] = field(default_factory=list)

    @property
    def and_more(self) -> str:
        """What follows the examples in a text."""
        return "; and more" if self.values > _EXAMPLES else ""


def heads(metadata: TableMetadata) -> list[tuple[str, Snapshot]]:
    """Return the snapshots that branches and tags point at, each once, with the name of a branch or tag."""
    refs = {ref.snapshot_id: name for name, ref in sorted(metadata.refs.items(), reverse=True)}
    return [(name, head) for found, name in refs.items() if (head := metadata.snapshot_by_id(found)) is not None]


class VisibleRows:
    """The values of some columns in all visible rows of a snapshot.

    Args:
        table: The table.
        live: The files of the snapshot.
        types: Types of the columns, by field id.

    Attributes:
        types: As above.
        io: Opens the table's storage.
        count: Number of visible rows; known after `repeated`.

    Raises:
        NotTriedError: They cannot be read.
    """

    def __init__(self, table: Table, live: LiveFiles, types: Mapping[int, IcebergType]) -> None:
        _check_readable([found.data_file for found in (*live.data, *live.positions, *live.equalities)])
        self.count = 0
        self.io: FileIO = table.io
        self.types = types
        self._metadata: TableMetadata = table.metadata
        self._mapping = parsed_mapping(table.metadata.properties.get(NAME_MAPPING))
        self._live = live
        marked = plan_work(live, (), all_specs(self._metadata), {}, with_all=True)
        self._marked = {item.path: item for item in marked}

    def repeated(self) -> Repeated:
        """Return which values several visible rows have."""
        found = Repeated()
        names = [str(number) for number in self.types]
        last: pa.RecordBatch | None = None
        is_open = False  # whether the values of the last row were already counted
        sort: ExternalSort | None = None
        try:
            for rows in self._visible():
                self.count += rows.num_rows
                sort = sort or ExternalSort(_by_values(rows.schema))
                sort.add(rows)
            for batch in sort.sorted_batches() if sort is not None else ():
                rows = batch if last is None else one_batch([last, batch])
                columns = [rows.column(name) for name in names]
                count = rows.num_rows - 1
                is_same = same_rows([one.slice(0, count) for one in columns], [one.slice(1) for one in columns])
                is_first = pc.and_not(is_same, pa.concat_arrays([pa.array([is_open]), is_same])[:-1])
                found.values += is_first.true_count
                found.rows += is_same.true_count + is_first.true_count
                for place in pc.indices_nonzero(is_first)[: _EXAMPLES - len(found.examples)].to_pylist():
                    found.examples.append(self._example(rows.slice(place, 2)))
                is_open = is_same[-1].as_py() if count else is_open
                last = rows.slice(count)
        finally:
            if sort is not None:
                sort.close()
        return found

    def _example(self, rows: pa.RecordBatch) -> SameValues:
        one, other = (
            Place(path=self._live.data[number].path, position=position)
            for number, position in zip(*(rows.column(name).to_pylist() for name in (_FILE, _POSITION)), strict=True)
        )
        return SameValues(values=rows.slice(0, 1).select([str(number) for number in self.types]), one=one, other=other)

    def _visible(self) -> Iterator[pa.RecordBatch]:
        """Yield batches with values, file number and position of all visible rows."""
        sources = [KeySource.of(found) for found in self._live.equalities]
        types = key_types([*self._metadata.schemas, self._metadata.schema()], sources)
        work = plan_work(self._live, sources, all_specs(self._metadata), types)
        files = {found.path: (number, found) for number, found in enumerate(self._live.data)}
        for items in portions(sorted(work, key=lambda item: (item.place, item.path))):
            matches = Matcher(self.io, types, mapping=self._mapping).find(items)
            for item in items:
                number, found = files.pop(item.path)
                by_key = [matches[item.path].positions] if item.path in matches else []
                yield from self._rows(number, found, by_key)
        for number, found in files.values():
            yield from self._rows(number, found, [])

    def _rows(self, number: int, found: LiveFile, hidden_by_key: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        by_position = hidden_by_position(self.io, self._marked[found.path])
        hidden = pa.concat_arrays([by_position, *hidden_by_key])
        for first, columns in self.read(found):
            count = len(columns[0])
            positions = numbers_from(first, count)
            batch = pa.RecordBatch.from_arrays(
                [*columns, pa.repeat(pa.scalar(number, pa.int64()), count), positions],
                names=[*map(str, self.types), _FILE, _POSITION],
            )
            yield batch.filter(pc.invert(pc.is_in(positions, value_set=hidden))) if len(hidden) else batch

    def read(self, found: LiveFile) -> Iterator[tuple[int, list[pa.Array]]]:
        """Yield the columns of all rows of a data file in canonical form, with the position of the first row."""
        values = identity_values(found.data_file, self._metadata.specs()[found.data_file.spec_id])
        for rows in KeyedRowReader(self.io, self.types, mapping=self._mapping).read(found.path, values):
            yield rows.first, rows.keys


def _check_readable(files: Sequence[DataFile]) -> None:
    path, count = next(iter(Counter(file.file_path for file in files).most_common(1)), ("", 0))
    if count > 1:
        raise NotTriedError(f"{path} is listed {count} times, so that deletes may hide other rows of each entry")
    for file in files:
        if file.file_format is not FileFormat.PARQUET or file.key_metadata is not None:
            kind = "encrypted" if file.key_metadata is not None else f"of format {file.file_format.value}"
            raise NotTriedError(f"{file.file_path} is {kind}, and rows are read from plain Parquet files alone")


def _by_values(schema: pa.Schema) -> RowOrder:
    """Return the order that sorts rows by their values, and rows of the same values by file number and position."""
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
