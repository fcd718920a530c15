"""Where new files go: in the folder of their partition, each under a name that no other file has.

What the folder is called is the table's own choice (`write.*`).
"""

from __future__ import annotations

import itertools

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider
from pyiceberg.typedef import Record

from iceberg_ds.layouts.partitioning import PartitionPath, has_sources


class FilePaths:
    """The paths of one attempt's files, one after the other.

    Args:
        places: Says where files of a partition go, as `locations.data_locations` returns it.
        schema: Has the columns that partition specs are computed from.
        name_prefix: Begins the name of every file, so that no two attempts share a path.
        are_deletes: Whether the files say which rows do not count.
    """

    def __init__(self, places: LocationProvider, schema: Schema, name_prefix: str, *, are_deletes: bool) -> None:
        self._places = places
        self._schema = schema
        self._name_prefix = name_prefix
        self._name_end = "-deletes.parquet" if are_deletes else ".parquet"
        self._numbers = itertools.count()

    def next(self, spec: PartitionSpec, partition: Record) -> str:
        """Return where the next file goes, which is of this partition of this spec."""
        name = f"{self._name_prefix}-{next(self._numbers):05d}{self._name_end}"
        # The folder means nothing, and a column that is gone gives it no name.
        if spec.is_unpartitioned() or not has_sources(spec, self._schema):
            return self._places.new_data_location(name)
        folder = PartitionPath(partition, spec, self._schema)
        # Location providers only ever ask a partition key for its path.
        return self._places.new_data_location(name, folder)  # type: ignore[arg-type]
