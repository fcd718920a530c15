"""Rewrites of a table's manifests and position deletes in this process, and what must be the same afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from support.checks.invariants import live_entries
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.maintenance.rewrite_manifests import RewriteManifestsResult
from iceberg_ds.table.partitioning import place_of

Entry = tuple[Any, ...]


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
