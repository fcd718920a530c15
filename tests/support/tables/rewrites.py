"""Rewrites of a table's manifests and position deletes in this process, and what must be the same afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from support.checks.invariants import live_entries
from support.checks.reader import hidden_in, hidden_positions_of, listed
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.maintenance.rewrite_manifests import RewriteManifestsResult
from iceberg_ds.maintenance.rewrite_position_deletes import RewritePositionDeleteFilesResult
from iceberg_ds.table.partitioning import place_of

Entry = tuple[Any, ...]
# Size that manifests are to have.
SMALL = "commit.manifest.target-size-bytes"
OPTIONS = {"target_file_size_bytes", "min_file_size_bytes", "max_file_size_bytes", "min_input_files", "rewrite_all"}


def options_of(sink: Sink) -> dict[str, str]:
    """Return the options that lead to the sink's embedded catalog."""
    return {"warehouse": str(sink.options.warehouse)}


def rewrite_manifests(sink: Sink, **arguments: Any) -> RewriteManifestsResult:
    """Rewrite the manifests of the table, as a user calls it."""
    return iceberg_ds.rewrite_manifests(NAME, options=options_of(sink), **arguments)


def manifests_of(table: Table, branch: str = "main", content: ManifestContent | None = None) -> list[ManifestFile]:
    """Return the manifests of a branch, or those of one content."""
    snapshot = table.snapshot_by_name(branch)
    listed = [] if snapshot is None else snapshot.manifests(table.io)
    return [manifest for manifest in listed if content is None or manifest.content == content]


def entries_of(table: Table, branch: str = "main") -> list[Entry]:
    """Return all that the entries of a branch's live files say, but for their manifests and their status, in order."""
    return sorted(
        (
            (
                str(place_of(entry.data_file)),
                entry.data_file.file_path,
                entry.snapshot_id,
                entry.sequence_number,
                entry.file_sequence_number,
                repr([_in_order(entry.data_file[position]) for position in range(len(entry.data_file))]),
            )
            for manifest in manifests_of(table, branch)
            for entry in live_entries(table, manifest)
        ),
        key=str,
    )


def _in_order(value: Any) -> Any:
    """Return the value, of a map its entries in order: an Avro file has them in any."""
    return sorted(value.items()) if isinstance(value, Mapping) else value


def partitions_in(table: Table, manifests: Sequence[ManifestFile]) -> list[set[str]]:
    """Return the partitions of the live files of each manifest."""
    return [{place_of(entry.data_file)[1] for entry in live_entries(table, manifest)} for manifest in manifests]


def rewrite_position_deletes(sink: Sink, **arguments: Any) -> RewritePositionDeleteFilesResult:
    """Rewrite the position delete files of the table in this process; further options go by their names."""
    options = {name.replace("_", "-"): str(arguments.pop(name)) for name in OPTIONS & arguments.keys()}
    return iceberg_ds.rewrite_position_delete_files(NAME, options={**options_of(sink), **options}, **arguments)


def hidden_rows(table: Table, branch: str = "main") -> dict[str, set[int]]:
    """Return the positions that position deletes hide in each live data file, as the spec says."""
    files = listed(table, branch)
    hidden = hidden_positions_of(files[DataFileContent.POSITION_DELETES])
    found = {data_file.path: hidden_in(data_file, hidden) for data_file in files[DataFileContent.DATA]}
    return {path: positions for path, positions in found.items() if positions}
