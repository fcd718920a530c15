"""Conversions of deletes, and what others do to a table while one is under way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from support.keyed_messages import COLUMNS
from support.keyed_reader import Listed, listed, rows_of
from support.tables import Sink, write_batches

from iceberg_ds.commits.added import Added
from iceberg_ds.commits.commit import commit_swap
from iceberg_ds.commits.manifest_reader import live_entries
from iceberg_ds.commits.manifests import live_manifests
from iceberg_ds.commits.replacing import ReplacedManifest, Replacement
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.resolving.converting import Conversion
from iceberg_ds.resolving.result import ConvertResult
from iceberg_ds.resolving.values import RowEncoding
from iceberg_ds.snapshots.branches import branch_head
from iceberg_ds.steps import Step, listen

ENCODINGS: tuple[RowEncoding, ...] = ("position", "copy-on-write")


def convert(sink: Sink, encoding: RowEncoding = "position", **options: Any) -> ConvertResult:
    """Convert the deletes of the table in this process."""
    parsed = sink.options if not options else sink.options.__class__(**{**_fields(sink.options), **options})
    return Conversion(sink.catalog, parsed, None, encoding).run()


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}


def numbers(table: Table, content: DataFileContent, branch: str = "main") -> list[int]:
    """Return the data sequence numbers of the live files of a kind, ascending."""
    return sorted(found.number for found in listed(table, branch)[content])


def keyed_deletes(table: Table, branch: str = "main") -> list[Listed]:
    """Return the live files of deletes by key."""
    return listed(table, branch)[DataFileContent.EQUALITY_DELETES]


@contextmanager
def meanwhile(step: Step, action: Callable[[], object], times: int = 1) -> Iterator[list[int]]:
    """Do something when this process comes to a step, the first `times` times; yield when it was done."""
    done: list[int] = []

    def act(reached: Step) -> None:
        if reached is step and len(done) < times:
            done.append(len(done))
            listen(None)  # what it does comes to steps, too
            try:
                action()
            finally:
                listen(act)

    listen(act)
    try:
        yield done
    finally:
        listen(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Takes the place of data files, as Iceberg's `rewrite_data_files` does.

    Attributes:
        paths: The data files.
        added: The new ones.
        sequence_numbers: Their data sequence numbers.
    """

    paths: frozenset[str]
    added: Added
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    keeps_rows: bool = True

    def replacement(self, table: Table) -> Replacement:
        """Return what it drops."""
        untouched, replaced = [], []
        for manifest in live_manifests(table.io, branch_head(table.metadata, "main")):
            entries = live_entries(table.io, manifest)
            dropped = [entry for entry in entries if entry.data_file.file_path in self.paths]
            if not dropped:
                untouched.append(manifest)
                continue
            kept = tuple(entry for entry in entries if entry not in dropped)
            replaced.append(ReplacedManifest(manifest=manifest, kept=kept, dropped=tuple(dropped)))
        return Replacement(untouched=tuple(untouched), replaced=tuple(replaced))


def compact(sink: Sink, begun: Table | None = None, *, keeps_numbers: bool = True) -> None:
    """Write all rows of `main` into new files, as a compaction that began with the table `begun` (None: just now).

    They get the sequence number that the table had then, so that deletes that came meanwhile apply to them, or a new
    one.
    """
    base = begun or sink.table()
    head = base.current_snapshot()
    assert head is not None
    plan = sink.plan(COLUMNS)
    files = write_batches(plan, rows_of(base), COLUMNS, partition_id=uuid.uuid4().int % 10_000)
    swap = Compaction(
        paths=frozenset(found.path for found in listed(base)[DataFileContent.DATA]),
        added=Added(tuple(files)),
        sequence_numbers={file.file_path: head.sequence_number or 0 for file in files} if keeps_numbers else {},
    )
    commit_swap(sink.catalog, WriteIdentity.of(plan, None), swap)
