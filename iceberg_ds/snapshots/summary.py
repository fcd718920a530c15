"""Pure: what added data files sum up to, file by file or manifest by manifest, and how a summary says it.

The words are PyIceberg's, which are the spec's ("Optional Snapshot Summary Fields").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import (
    ADDED_DATA_FILES,
    ADDED_FILE_SIZE,
    ADDED_RECORDS,
    CHANGED_PARTITION_COUNT_PROP,
    CHANGED_PARTITION_PREFIX,
    PARTITION_SUMMARY_PROP,
)

from iceberg_ds.messages import Totals
from iceberg_ds.table.partitioning import partition_path, place_of


def totals_of(data_files: Iterable[DataFile], specs: Mapping[int, PartitionSpec], schema: Schema) -> Totals:
    """Return what the data files sum up to.

    Args:
        data_files: The files; no delete files.
        specs: Their partition specs, by id.
        schema: Has the columns that the specs are computed from.
    """
    paths: dict[tuple[int, str], str] = {}
    partitions: dict[str, tuple[int, int, int]] = {}
    files = rows = size_bytes = 0
    for data_file in data_files:
        count, size = data_file.record_count, data_file.file_size_in_bytes
        files, rows, size_bytes = files + 1, rows + count, size_bytes + size
        if not len(data_file.partition):
            continue
        key = place_of(data_file)
        path = paths.get(key)
        if path is None:
            path = paths[key] = partition_path(data_file.partition, specs[data_file.spec_id], schema)
        partitions[path] = _sum(partitions.get(path, (0, 0, 0)), (1, count, size))
    return Totals(files=files, rows=rows, size_bytes=size_bytes, partitions=partitions)


def added_summary(totals: Sequence[Totals], partition_limit: int) -> dict[str, str]:
    """Return the summary entries that count what a snapshot adds.

    Args:
        totals: What it adds, in any number of parts.
        partition_limit: Partitions that the summary counts one by one at most.
    """
    summary = _counts(
        sum(part.files for part in totals), sum(part.rows for part in totals), sum(part.size_bytes for part in totals)
    )
    changed = len(set().union(*(part.partitions for part in totals)))
    if changed:
        summary[CHANGED_PARTITION_COUNT_PROP] = str(changed)
    if 0 < changed <= partition_limit:
        partitions: dict[str, tuple[int, int, int]] = {}
        for part in totals:
            for path, figures in part.partitions.items():
                partitions[path] = _sum(partitions.get(path, (0, 0, 0)), figures)
        summary[PARTITION_SUMMARY_PROP] = "true"
        for path, figures in partitions.items():
            counts = _counts(*figures)
            summary[CHANGED_PARTITION_PREFIX + path] = ",".join(f"{name}={count}" for name, count in counts.items())
    return summary


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _counts(files: int, rows: int, size_bytes: int) -> dict[str, str]:
    counts = {ADDED_FILE_SIZE: size_bytes, ADDED_DATA_FILES: files, ADDED_RECORDS: rows}
    return {name: str(count) for name, count in counts.items() if count > 0}
