"""What a commit asks, at each attempt, of a search for keys: what takes the place of what, and whether it still fits.

Deletes by keys may go once every live data file that they apply to was searched for them. That is found out anew at
each attempt to commit, from the manifests of the branch as it is then, so it does not matter what came meanwhile:

* rows and deletes that a stream adds have higher sequence numbers; its deletes stay;
* a file that a compaction has written, with the sequence number of its rows, was not searched: the work is stale;
* deletes by keys that are gone were replaced by marks, or taken back by a rollback: the work is stale;
* a data file that was marked by position and is gone takes its marks with it; if it is there still, so must be the
  position deletes that hid rows of it, which were not marked again;
* a data file that was rewritten must be there still, and no other position deletes may have come: else the same. So
  must one with a row that wins over an incoming one, because that row may be gone.

A rewritten file keeps the data sequence number of the file whose rows it has. So every delete by keys, whether it came
before, meanwhile or later, applies to it if and only if it applied to that file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from iceberg_ds.commits.added import Added
from iceberg_ds.commits.manifests import live_rows
from iceberg_ds.commits.replacing import ReplacedManifest, Replacement
from iceberg_ds.commits.swapping import StaleWorkError
from iceberg_ds.resolving.live_files import LiveFiles
from iceberg_ds.resolving.resolution import Goal
from iceberg_ds.resolving.scan import all_specs, only_path
from iceberg_ds.resolving.search import KeySearch
from iceberg_ds.resolving.snapshot_reader import ReadSnapshot

# Entries of a manifest that is written in place of others at most.
MANIFEST_ENTRIES = 5_000


class ResolvedSwap:
    """Takes deletes by keys out of a branch whose rows were found, and the data files that were rewritten.

    Args:
        goal: The keys and the deletes.
        search: What was found.

    Attributes:
        dropped: The files that the last attempt takes out.
        leaves_deletes: Whether the branch has other deletes by keys after it.
    """

    def __init__(self, goal: Goal, search: KeySearch) -> None:
        self.dropped: Sequence[DataFile] = ()
        self.leaves_deletes = True
        self._goal = goal
        self._search = search

    @property
    def added(self) -> Added:
        """The files that hide the rows, or hold the others."""
        return self._search.resolution.added

    @property
    def keeps_rows(self) -> bool:
        """Whether nothing is hidden that was not hidden before."""
        return not self._goal.written

    @property
    def sequence_numbers(self) -> dict[str, int]:
        """Each rewritten file has the number of the file whose rows it has."""
        return {
            file.file_path: answer.sequence_number
            for answer in self._search.resolution.rewritten.values()
            for file in answer.rewritten or ()
        }

    def replacement(self, table: Table) -> Replacement:
        """Return what to drop from the branch as it is now.

        Raises:
            StaleWorkError: A data file has to be searched first, or a rewritten one is not as it was.
        """
        read = self._search.read(table)
        if not self._goal.is_whole(read.files):
            raise StaleWorkError("another writer has taken out deletes by keys")
        sources = self._goal.sources(read.files)
        self._search.check_deletes(read.files, self._goal)
        self._check_unchanged(read.files)
        missing = self._search.resolution.plan(read.files, sources, all_specs(table.metadata), self._goal.key_types)
        if missing:
            raise StaleWorkError(
                f"another writer has brought {missing[0].path} and {len(missing) - 1} more data files that may have "
                "rows of the same keys"
            )
        rewritten = self._search.resolution.rewritten.keys()
        gone = {found.path for found in self._goal.deletes(read.files)} | rewritten
        found = _replacement(read, gone | _left_alone(read.files, rewritten))
        self.dropped = found.removed
        self.leaves_deletes = any(delete.path not in self._goal.paths for delete in read.files.equalities)
        return found

    def _check_unchanged(self, live: LiveFiles) -> None:
        changed = self._search.resolution.changed(live)
        if changed:
            raise StaleWorkError(f"another writer has removed, or deleted rows of, {changed[0]} meanwhile")


def _left_alone(files: LiveFiles, rewritten: Iterable[str]) -> set[str]:
    """Return the position deletes that hide rows of rewritten files alone."""
    paths = set(rewritten)
    return {found.path for found in files.positions if only_path(found.data_file) in paths}


def _replacement(read: ReadSnapshot, gone: set[str]) -> Replacement:
    """Return what drops these files; manifests that have to be written anyway become few."""
    untouched: list[ManifestFile] = []
    alike: dict[tuple[ManifestContent, int], list[_Touched]] = defaultdict(list)
    for manifest, entries in read.manifests.items():
        if all(entry.data_file.file_path not in gone for entry in entries):
            untouched.append(manifest)
            continue
        parts = alike[ManifestContent(manifest.content), manifest.partition_spec_id]
        if not parts or parts[-1].count + len(entries) > MANIFEST_ENTRIES:
            parts.append(_Touched(manifest=manifest))
        parts[-1].take(manifest, entries, gone)
    replaced = (touched.replaced() for parts in alike.values() for touched in parts)
    return Replacement(untouched=tuple(untouched), replaced=tuple(replaced))


@dataclass(slots=True, kw_only=True)
class _Touched:
    """Entries of manifests of one kind, which become one manifest."""

    manifest: ManifestFile
    kept: list[ManifestEntry] = field(default_factory=list)
    dropped: list[ManifestEntry] = field(default_factory=list)
    listed_rows: int | None = 0

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.dropped)

    def take(self, manifest: ManifestFile, entries: Iterable[ManifestEntry], gone: set[str]) -> None:
        listed = live_rows(manifest)
        self.listed_rows = None if self.listed_rows is None or listed is None else self.listed_rows + listed
        for entry in entries:
            (self.dropped if entry.data_file.file_path in gone else self.kept).append(entry)

    def replaced(self) -> ReplacedManifest:
        return ReplacedManifest(
            manifest=self.manifest,
            kept=tuple(self.kept),
            dropped=tuple(self.dropped),
            listed_rows=self.listed_rows,
        )
