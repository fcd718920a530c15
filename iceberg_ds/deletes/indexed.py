"""Finds the positions of rows that have certain keys by the index of a branch's keys, without reading the table.

The index says which rows may have a key; their keys are compared here, as where the key columns of data files are read
(`match`). What the index cannot tell is looked for there.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from iceberg_ds.deletes.key_blocks import FILE, DamagedBlocksError, Indexed
from iceberg_ds.deletes.key_index import Found, KeyedFile, KeyIndex, open_index
from iceberg_ds.deletes.key_reader import KeyedRowReader
from iceberg_ds.deletes.match import (
    ID,
    POSITION,
    KeySet,
    Matcher,
    Matches,
    by_columns,
    matched_rows,
    read_key_sets,
    together,
)
from iceberg_ds.deletes.work import FileWork, KeyFile, KeyIndexPlace, portions
from iceberg_ds.table.name_mapping import parsed_mapping

logger = logging.getLogger(__name__)

# How often a damaged part of the index is made again before it is given up.
_TRIES = 3


class IndexedMatcher:
    """Finds the rows with certain keys in data files, by an index.

    Args:
        io: Opens the table's storage.
        place: The index.

    Attributes:
        read_bytes: Compressed bytes of the columns of data files that were read so far.
        portion_rows: The largest number of rows of data files that are searched together.
    """

    portion_rows = sys.maxsize  # only the rows that are found are in memory

    def __init__(self, io: FileIO, place: KeyIndexPlace) -> None:
        self.read_bytes = 0
        self._io = io
        self._place = place
        self._mapping = parsed_mapping(place.name_mapping)

    def find(self, work: Sequence[FileWork]) -> dict[str, Matches]:
        """Return the rows with one of their file's keys, as `Matcher.find`.

        Args:
            work: Data files of any partitions; those of one partition follow each other.

        Raises:
            UnsupportedTableError: A data file cannot be read.
            OptionError: The index's folder is not this user's.
        """
        if set(by_columns(work)) <= {tuple(self._place.key_types)}:
            for _ in range(_TRIES):
                try:
                    with open_index(self._place) as index:
                        return self._find(index, work)
                except DamagedBlocksError as problem:
                    logger.warning("Keys are read from the table again: %s", problem)
                except OSError as problem:
                    logger.warning(
                        "Keys are looked for in the table, because %s is of no use: %s", self._place.folder, problem
                    )
                    break
        matcher = Matcher(self._io, self._place.key_types, with_ids=True, mapping=self._mapping)
        matches: dict[str, Matches] = {}
        for items in portions(work):
            matches.update(matcher.find(items))
        self.read_bytes += matcher.read_bytes
        return matches

    def _find(self, index: KeyIndex, work: Sequence[FileWork]) -> dict[str, Matches]:
        items = {Indexed.of(item.data_file): item for item in work}
        if missing := index.missing(items):
            stored = KeyedRowReader(self._io, self._place.key_types, with_ids=True, mapping=self._mapping)
            batches = ((file, stored.read(file.path, items[file].partition_values)) for file in missing)
            try:
                index.add(KeyedFile(file=file, batches=rows) for file, rows in batches)
            finally:
                self.read_bytes += stored.read_bytes
        found: dict[str, list[Matches]] = defaultdict(list)
        reader = KeyedRowReader(self._io, self._place.key_types)
        for keys, wanted in _by_keys(work).items():
            files = {Indexed.of(item.data_file): item.sequence_number for item in wanted}
            for key_set in read_key_sets(reader, list(keys)):
                for some in index.find(key_set.columns, files):
                    _take(key_set, some, files, found)
        self.read_bytes += reader.read_bytes
        return {path: together(parts) for path, parts in found.items()}


def _by_keys(work: Sequence[FileWork]) -> dict[frozenset[KeyFile], list[FileWork]]:
    """Return the data files by the files of keys that apply in their partitions."""
    found: dict[frozenset[KeyFile], list[FileWork]] = defaultdict(list)
    for _, items in itertools.groupby(work, key=lambda item: item.place):
        here = list(items)
        found[frozenset(key for item in here for key in item.keys)] += [item for item in here if item.keys]
    return found


def _take(keys: KeySet, some: Found, files: Mapping[Indexed, int], found: dict[str, list[Matches]]) -> None:
    numbers, positions, row_ids = (some.rows.column(name).combine_chunks() for name in (FILE, POSITION, ID))
    sequence = pa.array([files.get(file) for file in some.files], pa.int64()).take(numbers)
    hits = keys.find(keys.digests(some.keys), some.keys, sequence).places
    numbers = numbers.take(hits)
    rows = matched_rows(positions.take(hits), row_ids.take(hits), [column.take(hits) for column in some.keys])
    for number in pc.unique(numbers).to_pylist():
        here = rows.filter(pc.equal(numbers, pa.scalar(number, pa.int32())))
        found[some.files[number].path].append(Matches(positions=here.column(POSITION).combine_chunks(), rows=here))
