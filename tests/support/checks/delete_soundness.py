"""What must hold of every file of deletes in a table, whoever wrote it: entry, file and scope, against the spec.

`check_deletes` reads all delete files of all snapshots, so it is for small tables.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, StringType
from support.checks.invariants import live_entries
from support.checks.reader import Listed, hidden_in, hidden_positions_of
from support.tables.sink import local

from iceberg_ds.snapshots.live_files import vector_of
from iceberg_ds.snapshots.version_3 import referenced_data_file

# Reserved field ids (spec, "Position Delete Files").
FILE_PATH, POS = 2147483546, 2147483545
_COUNTED = {
    DataFileContent.POSITION_DELETES: "total-position-deletes",
    DataFileContent.EQUALITY_DELETES: "total-equality-deletes",
}


def check_deletes(table: Table) -> None:
    """Assert that all delete files of the table's snapshots are what the spec says, and are counted."""
    for snapshot in table.metadata.snapshots:
        found = _listed(table, snapshot)
        data_files = {file.path: file for file in found if file.entry.data_file.content == DataFileContent.DATA}
        counted: Counter[str] = Counter(dict.fromkeys(_COUNTED.values(), 0))
        for file in found:
            content = file.entry.data_file.content
            if vector_of(file.entry.data_file) is not None:
                _check_vector(file, data_files)
            elif content == DataFileContent.POSITION_DELETES:
                _check_positions(file, data_files)
            elif content == DataFileContent.EQUALITY_DELETES:
                _check_keys(table, file)
            else:
                assert file.entry.data_file.equality_ids is None, f"{file.path} has equality ids and holds rows"
                continue
            counted[_COUNTED[content]] += file.entry.data_file.record_count
        assert snapshot.summary is not None
        assert {name: snapshot.summary[name] for name in counted} == {name: str(n) for name, n in counted.items()}


def _listed(table: Table, snapshot: Snapshot) -> list[Listed]:
    found = []
    for manifest in snapshot.manifests(table.io):
        for entry in live_entries(table, manifest):
            is_data = entry.data_file.content == DataFileContent.DATA
            assert is_data == (manifest.content == ManifestContent.DATA), "a delete stands among rows"
            assert entry.sequence_number is not None
            assert entry.sequence_number <= snapshot.sequence_number
            found.append(Listed(entry=entry, spec_id=manifest.partition_spec_id))
    return found


def _check_vector(file: Listed, data_files: dict[str, Listed]) -> None:
    of = data_files.get(str(referenced_data_file(file.entry.data_file)))
    assert of is not None, f"a deletion vector in {file.path} is of a data file that is gone"
    assert (of.place, of.number <= file.number) == (file.place, True), f"a vector in {file.path} does not apply"
    hidden = hidden_in(of, hidden_positions_of([file]))
    assert 0 < len(hidden) == file.entry.data_file.record_count
    assert max(hidden) < of.entry.data_file.record_count, f"a vector in {file.path} hides rows that are not there"


def _check_positions(file: Listed, data_files: dict[str, Listed]) -> None:
    """Check a file of position deletes; rows of files that have gone since may stay in it."""
    described = file.entry.data_file
    columns = _columns(file.path)
    assert list(columns)[:2] == [FILE_PATH, POS], f"{file.path} has other columns"
    rows = list(zip(columns[FILE_PATH], columns[POS], strict=True))
    assert rows == sorted(set(rows)), f"{file.path} is not sorted, or has a row twice"
    assert described.equality_ids is None
    assert described.record_count == len(rows)
    _check_bounds(described, FILE_PATH, StringType(), columns[FILE_PATH], is_exact=len(set(columns[FILE_PATH])) == 1)
    _check_bounds(described, POS, LongType(), columns[POS])
    for path, position in rows:
        if path in data_files:
            hidden = data_files[path]
            assert position < hidden.entry.data_file.record_count, f"{file.path} hides a row that {path} has not"
            assert file.place == hidden.place, f"{file.path} lies in another partition than the rows that it hides"
            assert file.number >= hidden.number, f"{file.path} came before the rows that it hides"


def _check_keys(table: Table, file: Listed) -> None:
    """Check a file of equality deletes."""
    described = file.entry.data_file
    schema, columns = table.schema(), _columns(file.path)
    assert set(columns) == set(file.key_ids) != set(), f"{file.path} has other columns than its keys"
    keys = list(zip(*(columns[field_id] for field_id in file.key_ids), strict=True))
    assert len(keys) == len(set(keys)) == described.record_count, f"{file.path} has a key twice"
    assert described.sort_order_id is None
    for field_id in file.key_ids:
        field = schema.find_field(field_id)
        assert None not in columns[field_id]
        assert (described.null_value_counts or {}).get(field_id) == 0
        _check_bounds(described, field_id, field.field_type, columns[field_id])
    _check_scope(table, file, table.specs()[file.spec_id], columns)


def _check_scope(table: Table, file: Listed, spec: PartitionSpec, columns: dict[int, list[Any]]) -> None:
    """Check that deletes of a partition are of keys that can be nowhere else."""
    for position, part in enumerate(spec.fields):
        assert part.source_id in columns, f"{file.path} is of a partition that the key does not tell"
        transform = part.transform.transform(table.schema().find_field(part.source_id).field_type)
        values = {transform(value) for value in columns[part.source_id]}
        assert values == {file.entry.data_file.partition[position]}, f"{file.path} has keys of other partitions"


def _check_bounds(
    described: DataFile, field_id: int, field_type: Any, values: list[Any], *, is_exact: bool = False
) -> None:
    """Check that bounds, which readers skip deletes by, hold all values."""
    found = [(bounds or {}).get(field_id) for bounds in (described.lower_bounds, described.upper_bounds)]
    assert not is_exact or None not in found, "nothing tells which file the deletes are of"
    lower, upper = (None if bound is None else from_bytes(field_type, bound) for bound in found)
    assert lower is None or lower <= min(values)
    assert upper is None or upper >= max(values)
    assert not is_exact or (lower, upper) == (min(values), max(values))


@lru_cache(maxsize=4096)
def _columns(path: str) -> dict[int, list[Any]]:
    found = pq.read_table(local(path), partitioning=None)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in found.schema]
    return {number: _plain(column).to_pylist() for number, column in zip(ids, found.columns, strict=True)}


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as the numbers that bounds and transforms have of them."""
    if not pa.types.is_temporal(values.type):
        return values
    return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
