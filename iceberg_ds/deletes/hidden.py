"""Which rows of data files are deleted, by position and by key: read by a task, files of one partition at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType

from iceberg_ds.deletes.match import Matcher
from iceberg_ds.deletes.work import FileWork, portions
from iceberg_ds.writers.deletion_vectors import hidden_in

_NONE = pa.array([], pa.int64())


def hidden_by_position(io: FileIO, work: FileWork) -> pa.Array:
    """Return the positions, in any order, of the rows of a data file that are hidden by position already.

    Raises:
        DataFileError: Its deletion vector is damaged.
    """
    return hidden_in(io, work.data_file, work.hidden_by)


def hidden_rows(
    io: FileIO,
    key_types: Mapping[int, IcebergType],
    work: Sequence[FileWork],
    mapping: NameMapping | None = None,
) -> Iterator[tuple[FileWork, pa.Array]]:
    """Yield the data files, each with the positions of its deleted rows, from 0, ascending, each once.

    Args:
        io: Opens the table's storage.
        key_types: The types of the columns that equality deletes delete by, by field id.
        work: The data files, with the deletes that apply to each; files of one partition follow each other.
        mapping: Tells the columns of files without field ids; None to refuse such files where keys are compared.

    Raises:
        DataFileError: A deletion vector is damaged.
    """
    matcher = Matcher(io, key_types, mapping=mapping)
    for items in portions(work):
        found = matcher.find([item for item in items if item.keys])
        for item in items:
            by_position = hidden_by_position(io, item)
            by_key = found[item.path].positions if item.path in found else _NONE
            hidden = pc.unique(pa.concat_arrays([by_position, by_key])).sort()
            yield item, hidden.filter(pc.less(hidden, item.data_file.record_count))
