"""Data files without a table, and searches for keys in them: by an index, and in the files themselves."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, LongType

from iceberg_ds.deletes import key_index
from iceberg_ds.deletes.indexed import IndexedMatcher
from iceberg_ds.deletes.key_blocks import Blocks, Indexed
from iceberg_ds.deletes.key_index import open_index
from iceberg_ds.deletes.match import ID, POSITION, Matcher, Matches
from iceberg_ds.deletes.work import FileWork, KeyFile, KeyIndexPlace
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.table.lineage import ROW_ID

LIST, LOCK = "index.json", "lock"
LONG: dict[int, IcebergType] = {1: LongType()}
# For each data file the positions of the rows that were found, with the ids that the file has for them.
Rows = dict[str, list[tuple[int, int | None]]]

_numbers = itertools.count()


class CountingIO(LocalFileIO):
    """Local storage that notes which files are opened.

    Attributes:
        opened: Their paths.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def new_input(self, location: str) -> InputFile:
        """Open a file, and note it."""
        self.opened.append(location)
        return super().new_input(location)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFiles:
    """Data files in a folder, and an index of their keys in another one.

    Attributes:
        folder: The folder.
        types: The types of the key columns, by field id.
        io: Opens the files.
    """

    folder: Path
    types: Mapping[int, IcebergType] = field(default_factory=lambda: LONG)
    io: CountingIO = field(default_factory=CountingIO)

    @property
    def index(self) -> Path:
        """The folder of the index."""
        return self.folder / "indexes" / "index"

    @property
    def place(self) -> KeyIndexPlace:
        """Which index, and where it is."""
        return KeyIndexPlace(folder=str(self.index), key_types=self.types)

    @property
    def parts(self) -> list[Path]:
        """The files of the index's parts, and what else is in its folder."""
        return sorted(path for path in self.index.iterdir() if path.name not in {LIST, LOCK})

    def data(
        self,
        columns: Mapping[int, Any],
        *,
        path: Path | None = None,
        count: int | None = None,
        partition_values: Mapping[int, object] | None = None,
    ) -> FileWork:
        """Write a data file, and return it as one to search; by field id, the values of its columns.

        Args:
            columns: The values.
            path: Where it goes; None for a new file.
            count: The number of rows that it is listed with, if it is not its own.
            partition_values: Values of columns that it does not have.
        """
        path = path or self.folder / f"data{next(_numbers)}.parquet"
        rows = stored(columns)
        pq.write_table(rows, path, row_group_size=64)
        listed = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=str(path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=rows.num_rows if count is None else count,
            file_size_in_bytes=path.stat().st_size,
        )
        listed.spec_id = 0
        return FileWork(data_file=listed, sequence_number=1, keys=(), partition_values=partition_values or {})

    def keys(self, columns: Mapping[int, Any], number: int | None = None) -> KeyFile:
        """Write a file of keys to look for."""
        path = self.folder / f"keys{next(_numbers)}.parquet"
        pq.write_table(stored(columns), path)
        return KeyFile(path=str(path), field_ids=tuple(sorted(columns)), sequence_number=number)

    def search(self, files: Sequence[FileWork], *keys: KeyFile) -> Rows:
        """Return the rows with one of these keys, as the index finds them.

        They have to be those that are found without it.
        """
        work = [_with_keys(item, keys) for item in files]
        found = _rows(IndexedMatcher(self.io, self.place).find(work))
        assert found == _rows(Matcher(LocalFileIO(), self.types, with_ids=True).find(work))
        return found

    def reads(self, files: Sequence[FileWork], *keys: KeyFile) -> set[str]:
        """Search, and return the paths of the data files that were read for it."""
        before = len(self.io.opened)
        IndexedMatcher(self.io, self.place).find([_with_keys(item, keys) for item in files])
        return {*self.io.opened[before:]} - {key.path for key in keys}

    def tidy(self, files: Sequence[FileWork]) -> None:
        """Let the index forget all other data files, and merge its parts."""
        with open_index(self.place) as index:
            index.tidy({Indexed.of(item.data_file) for item in files})

    def save(self) -> Path:
        """Copy the index, and return where the copy is."""
        return Path(shutil.copytree(self.index, self.folder / f"saved{next(_numbers)}"))

    def put_back(self, saved: Path) -> None:
        """Put a copy of the index in its place, as restored from a backup."""
        shutil.rmtree(self.index, ignore_errors=True)
        shutil.copytree(saved, self.index)


def stored(columns: Mapping[int, Any]) -> pa.Table:
    """Return columns with their field ids; row ids have their own."""
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, None if any_value(values) else pa.int64())
        for values in columns.values()
    ]
    fields = [
        pa.field(
            ROW_ID.name if number == ROW_ID.field_id else f"column{number}",
            values.type,
            metadata={"PARQUET:field_id": str(number)},
        )
        for number, values in zip(columns, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def any_value(values: Sequence[Any]) -> bool:
    """Return whether there is a value that is not null."""
    return any(value is not None for value in values)


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << (place % 8)
    path.write_bytes(content)


@contextmanager
def another_process(opened: dict[Path, Blocks] | None = None) -> Iterator[dict[Path, Blocks]]:
    """Let the block be another process, as far as it is told by what it has opened; yield that."""
    own, others = dict(key_index._opened), {} if opened is None else opened
    _become(others)
    try:
        yield others
    finally:
        others.clear()
        others.update(key_index._opened)
        _become(own)


def _become(opened: dict[Path, Blocks]) -> None:
    key_index._opened.clear()
    key_index._opened.update(opened)


def _with_keys(item: FileWork, keys: Sequence[KeyFile]) -> FileWork:
    return FileWork(
        data_file=item.data_file,
        sequence_number=item.sequence_number,
        keys=tuple(keys),
        partition_values=item.partition_values,
    )


def _rows(found: Mapping[str, Matches]) -> Rows:
    """Return what was found; each row that was found is told with its id."""
    told: Rows = {}
    for path, matches in found.items():
        assert matches.rows is not None
        ids = dict(zip(matches.rows[POSITION].to_pylist(), matches.rows[ID].to_pylist(), strict=True))
        positions = matches.positions.to_pylist()
        assert positions == sorted({*positions})
        assert ids.keys() == {*positions}
        told[path] = [(position, ids[position]) for position in positions]
    return {path: rows for path, rows in told.items() if rows}
